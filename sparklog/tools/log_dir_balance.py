"""Which partitions are to move so that a log's directories are evenly full, and as few bytes move.

Pure: sizes in, moves out. Each directory has its share of the log's bytes by what it can hold; it
is even within a tolerance. What lies outside of that is *excess* bytes, which single moves lower,
the most per byte first, and where none does, exchanges of two partitions. At the end every move is
looked at again: left out, or made with a smaller partition, where that is as even.
"""

import bisect
import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from sparklog.common import TopicPartition

WITHIN: Final = 0.1
"""How far from its share a directory may be, as a part of it."""
_EXCHANGES_MAX: Final = 2000  # partitions of a directory that are looked at for exchanges


@dataclass(frozen=True, slots=True)
class Place:
    """A log dir: what the log could hold there, and how much is free, in bytes.

    `disk`: places of the same one share its free bytes.
    """

    path: str
    capacity_bytes: int
    free_bytes: int
    disk: int


@dataclass(frozen=True, slots=True)
class Held:
    """A partition in the place of that number."""

    key: TopicPartition
    size: int
    place: int


class PlannedMove(NamedTuple):
    """A partition moves from one place to another, by their numbers."""

    held: Held
    target: int


@dataclass(frozen=True, slots=True)
class BalancePlan:
    """Moves in the order in which they fit; the bytes of each place, before, after, and its share.

    `is_even`: all places are within the tolerance then; else partitions are too large, or disks too
    full for it.
    """

    moves: tuple[PlannedMove, ...]
    before: tuple[int, ...]
    after: tuple[int, ...]
    shares: tuple[int, ...]
    is_even: bool

    @property
    def bytes(self) -> int:
        """How many bytes move."""
        return sum(move.held.size for move in self.moves)


def plan_balance(
    places: Sequence[Place],
    held: Sequence[Held],
    *,
    within: float = WITHIN,
    fixed: Sequence[int] | None = None,
) -> BalancePlan:
    """Return what makes places even; nothing where they are, or nothing makes them more so.

    No move takes more than is free in its target when its turn comes. The same input gives the same
    plan, and what a plan led to has none, unless disks are nearly full.
    Args: fixed: bytes of each place that stay where they are.
    Cost: about moves x places^2 x log(partitions).
    """
    search = _Search(places, [one for one in held if one.size], within, fixed)
    before = tuple(search.sizes)
    search.run()
    after, shares = tuple(search.sizes), tuple(int(share) for share in search.shares)
    return BalancePlan(tuple(search.moves), before, after, shares, not search.excess())


class _Search:
    """The state of a search: where each partition is by now, by the moves so far."""

    def __init__(
        self,
        places: Sequence[Place],
        held: Sequence[Held],
        within: float,
        fixed: Sequence[int] | None,
    ) -> None:
        self.places, self.moves = places, list[PlannedMove]()
        self.sizes = list(fixed) if fixed is not None else [0] * len(places)
        total = sum(one.size for one in held) + sum(self.sizes)
        capacity = sum(place.capacity_bytes for place in places)
        self.shares = [total * place.capacity_bytes / max(1, capacity) for place in places]
        self.low = [int(share * (1 - within)) for share in self.shares]
        self.high = [int(share * (1 + within)) + 1 for share in self.shares]
        self.free = {place.disk: place.free_bytes for place in places}
        self._here: list[list[tuple[int, Held]]] = [[] for _ in places]
        for one in sorted(held, key=lambda one: (one.size, one.key)):
            self._here[one.place].append((one.size, one))
            self.sizes[one.place] += one.size

    def excess(self) -> int:
        """How many bytes lie outside of the tolerance, above or below."""
        return sum(self._outside(place, size) for place, size in enumerate(self.sizes))

    def _outside(self, place: int, size: int) -> int:
        return max(0, size - self.high[place]) + max(0, self.low[place] - size)

    def run(self) -> None:
        """Search until neither a move nor a smaller plan is found."""
        while True:
            while self.excess() and (self._move_one() or self._exchange()):
                pass
            if not self._shrink():
                return

    # --- steps -------------------------------------------------------------------------------

    def _gain(self, source: int, target: int, size: int) -> int:
        """By how much the excess falls if so many bytes go from one place to another."""
        before = self._outside(source, self.sizes[source])
        before += self._outside(target, self.sizes[target])
        after = self._outside(source, self.sizes[source] - size)
        return before - after - self._outside(target, self.sizes[target] + size)

    def _pairs(self) -> Iterator[tuple[int, int]]:
        numbers = range(len(self.places))
        return ((i, j) for i in numbers for j in numbers if i != j)

    def _move_one(self) -> bool:
        """Make the move that gains most a byte; of those the largest."""
        best: tuple[float, int] | None = None
        chosen: tuple[Held, int] | None = None
        for source, target in self._pairs():
            for one in self._candidates(source, target, 0):
                gain = self._gain(source, target, one.size)
                rank = gain / one.size, gain
                if gain > 0 and self._fits(one, target) and (best is None or rank > best):
                    best, chosen = rank, (one, target)
        return chosen is not None and self._replan(*chosen)

    def _candidates(self, source: int, target: int, back: int) -> Iterator[Held]:
        """Yield the partitions of a place that may gain most, if `back` bytes come back for it.

        The gain changes its slope where a place enters or leaves its tolerance.
        """
        size, other = self.sizes[source], self.sizes[target]
        here = self._here[source]
        edges = {
            size - self.high[source], size - self.low[source],
            self.low[target] - other, self.high[target] - other,
        }  # fmt: skip
        seen = set()
        for edge in sorted(edges):
            at = bisect.bisect_right(here, edge + back, key=lambda pair: pair[0])
            for slot in (at - 1, at):
                if 0 <= slot < len(here) and slot not in seen:
                    seen.add(slot)
                    yield here[slot][1]

    def _exchange(self) -> bool:
        """Make the exchange of two partitions that gains most a byte; of a swap each must fit."""
        best: tuple[float, int] | None = None
        chosen: tuple[Held, Held, int, int] | None = None
        for source, target in self._pairs():
            if self.sizes[source] <= self.high[source] and self.sizes[target] >= self.low[target]:
                continue
            for _, back in self._here[target][-_EXCHANGES_MAX:]:
                for one in self._candidates(source, target, back.size):
                    gain = self._gain(source, target, one.size - back.size)
                    rank = gain / (one.size + back.size), gain
                    if gain > 0 and (best is None or rank > best):
                        best, chosen = rank, (one, back, source, target)
        if chosen is None:
            return False
        one, back, source, target = chosen
        for first, second in (((one, target), (back, source)), ((back, source), (one, target))):
            before = list(self.moves)
            if self._fits(*first) and self._replan(*first):
                if self._fits(*second) and self._replan(*second):
                    return True
                self._restore(before)
        return False

    def _fits(self, one: Held, target: int) -> bool:
        return one.size <= self.free[self.places[target].disk]

    def _replan(self, one: Held, target: int) -> bool:
        """Move a partition, by one move in all; False if that doesn't fit in its turn."""
        moves = [move for move in self.moves if move.held is not one]
        if target != one.place:
            moves.append(PlannedMove(one, target))
        return self._restore(moves)

    def _restore(self, moves: list[PlannedMove]) -> bool:
        """Go to where these moves lead; False, and nothing, if one doesn't fit in its turn."""
        free = {place.disk: place.free_bytes for place in self.places}
        for one, target in moves:
            if free[self.places[target].disk] < one.size:
                return False
            free[self.places[target].disk] -= one.size
            free[self.places[one.place].disk] += one.size
        old = {move.held.key: move for move in self.moves}
        new = {move.held.key: move for move in moves}
        for key in old.keys() | new.keys():
            move = new.get(key) or old[key]
            at = old[key].target if key in old else move.held.place
            to = new[key].target if key in new else move.held.place
            self._shift(move.held, at, to)
        self.moves, self.free = moves, free
        return True

    def _shift(self, one: Held, at: int, to: int) -> None:
        if at == to:
            return
        order = (one.size, one.key)
        for number in (at, to):
            slot = bisect.bisect_left(
                self._here[number], order, key=lambda pair: (pair[0], pair[1].key)
            )
            if number == at:
                del self._here[number][slot]
            else:
                self._here[number].insert(slot, (one.size, one))
        self.sizes[at] -= one.size
        self.sizes[to] += one.size

    # --- fewer bytes -------------------------------------------------------------------------

    def _shrink(self) -> bool:
        """Leave moves out, or move smaller partitions for them, where that is as even."""
        found = False
        for move in sorted(self.moves, key=lambda move: (-move.held.size, move.held.key)):
            one, target = move
            at = self.moves.index(move)
            instead = itertools.chain([None], self._smaller(move))
            for other in instead:
                back = one.size - (0 if other is None else other.size)
                if self._gain(target, one.place, back) < 0:
                    continue
                new = [] if other is None else [PlannedMove(other, target)]
                if self._restore([*self.moves[:at], *new, *self.moves[at + 1 :]]):
                    found = True
                    break
        return found

    def _smaller(self, move: PlannedMove) -> list[Held]:
        """Return partitions that didn't move and are smaller, one of each size."""
        home = self._here[move.held.place]
        smaller = home[: bisect.bisect_left(home, move.held.size, key=lambda pair: pair[0])]
        return list({s: one for s, one in smaller if one.place == move.held.place}.values())
