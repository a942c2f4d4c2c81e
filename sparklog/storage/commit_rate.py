"""How steadily somebody commits: since when, its longest pause, and how far it got when.

A reader's file carries its own, so that one look at a log tells whether the reader keeps up, with
which speed, and whether it has stopped by its own measure. What is kept is small however long it
runs: the older a point, the farther it lies from its neighbours.
Source: the sliding window of offset commits by which Burrow (LinkedIn) judges Kafka's consumers.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, Self

BREAK_MS: Final = 30 * 60_000
"""A longer pause ends a run: what comes after it begins anew."""
_NEAR_MS: Final = 10_000  # points this near one another are one
_LATE_MS: Final = 10 * 60_000  # speed is measured over so much
_POINTS_MAX: Final = 32


class RatePoint(NamedTuple):
    """At `time_ms` its positions in so many `partitions` came to `total` together."""

    time_ms: int
    partitions: int
    total: int


@dataclass(frozen=True, slots=True)
class CommitRate:
    """A run of commits: it began at `since_ms`; `longest_ms` is its longest pause so far.

    `points`: ascending by time, the last one is of its last commit.
    """

    since_ms: int
    longest_ms: int = 0
    points: tuple[RatePoint, ...] = ()

    @property
    def last_ms(self) -> int:
        """When it committed last."""
        return self.points[-1].time_ms if self.points else self.since_ms

    def after_commit(self, point: RatePoint) -> "CommitRate":
        """Return the pace after another commit; a new one after a long pause, or a step back."""
        last = self.points[-1] if self.points else None
        if last is None or point.time_ms < last.time_ms:
            return CommitRate(point.time_ms, 0, (point,))
        pause = point.time_ms - last.time_ms
        if pause > BREAK_MS or (point.partitions == last.partitions and point.total < last.total):
            return CommitRate(point.time_ms, 0, (point,))
        return CommitRate(
            self.since_ms, max(self.longest_ms, pause), _thinned((*self.points, point))
        )

    def speed(self) -> tuple[float, int] | None:
        """Return (offsets a ms, over how many ms), of late; None if too little was seen.

        Only of points with as many partitions as the last one; of the last two where it commits
        less often.
        """
        *earlier, last = self.points or (RatePoint(self.since_ms, 0, 0),)
        mine = [p for p in earlier if p.partitions == last.partitions]
        if not mine:
            return None
        first = next((p for p in mine if last.time_ms - p.time_ms <= _LATE_MS), mine[-1])
        span = last.time_ms - first.time_ms
        return None if span < _NEAR_MS else ((last.total - first.total) / span, span)

    def to_json(self) -> dict[str, Any]:
        """Return what is kept."""
        points = [list(point) for point in self.points]
        return {"since": self.since_ms, "longest": self.longest_ms, "points": points}

    @classmethod
    def from_json(cls, content: Any) -> Self | None:
        """Return what was kept; None if it is not as it should be: it is a hint."""
        try:
            points = tuple(RatePoint(*map(int, point)) for point in content["points"])
            return cls(int(content["since"]), int(content["longest"]), points)
        except (KeyError, TypeError, ValueError):
            return None


def _thinned(points: Sequence[RatePoint]) -> tuple[RatePoint, ...]:
    """Drop points until neighbours lie about as far apart as they are old."""
    kept, now_ms = list(points), points[-1].time_ms
    at = len(kept) - 2
    while at > 0:
        newer, older = kept[at + 1], kept[at - 1]
        if newer.time_ms - older.time_ms <= max(_NEAR_MS, now_ms - newer.time_ms):
            del kept[at]
        at -= 1
    return tuple(kept[-_POINTS_MAX:])
