"""`look`: records of a topic in the order of time, whatever it costs to find them: bounded.

Each partition is read in the order of its offsets, forwards or backwards, some record batches at a
time; what is found is merged by time, as far as that goes without leaving the offsets' order. Where
the limits end the look, a cursor says where it goes on, and nothing is lost or comes twice.

Cost (2 vCPUs, page cache): see `docs/browse.md`.
"""

import heapq
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from sparklog.clock import Clock, stopwatch, system_clock
from sparklog.common import TopicPartition
from sparklog.errors import (
    InvalidRequestError,
    LogReplacedError,
    OffsetOutOfRangeError,
    SparklogError,
    TopicReplacedError,
    UnknownTopicError,
)
from sparklog.log.log import Log, view_of
from sparklog.log.positions import offsets_for_times
from sparklog.tools.browse.bounds import EARLIEST, LATEST, Bound
from sparklog.tools.browse.chunks import (
    CHUNK_BYTES,
    Chunk,
    Source,
    read_backwards,
    read_forwards,
)
from sparklog.tools.browse.cursors import LENGTH_MAX, Cursor
from sparklog.tools.browse.filters import Filters
from sparklog.tools.browse.limits import RECORDS_MAX, Budget, Limits

COLUMNS: Final = ("key", "value", "offset", "timestamp", "timestampType", "headers")
_PAGE_BYTES: Final = 128 << 10  # what is read at first where records are only shown
_SEARCH_SPAN: Final = 2048  # offsets that are looked at first where a search goes backwards
_SPAN_MAX: Final = 1 << 40
_FAULTS_MAX: Final = 20
_AHEAD: Final = int(np.iinfo(np.int64).max)
_BEHIND: Final = -_AHEAD  # before any time


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    """What is looked for. `partitions` None: all. [start, end) is the same for each of them."""

    topic: str
    partitions: tuple[int, ...] | None = None
    start: Bound = EARLIEST
    end: Bound = LATEST
    newest_first: bool = True
    filters: Filters = field(default_factory=Filters)
    limits: Limits = field(default_factory=Limits)
    cursor: Cursor | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """What was found: `rows` in the order of time, with the columns of COLUMNS, BATCH_FIELDS,
    `aborted` and `partition`.

    `cursor`: where it goes on, None at the end. `ended`: which limit ended it (see `Budget.over`),
    "records" if there were enough, "" at the end. `share`: of the offsets in question, how many are
    behind us. `unseen`: partitions that were not looked at at all. `faults`: what can't be read.
    """

    rows: pa.Table
    cursor: Cursor | None
    ended: str
    looked_at: int
    read_bytes: int
    took_ms: int
    share: float
    unseen: int
    partitions: int
    faults: tuple[str, ...]


def look(
    log: Log, query: Query, *, gone: Callable[[], bool] = lambda: False,
    clock: Clock = system_clock, budget: Budget | None = None,
) -> Look:  # fmt: skip
    """Look for records. `gone`: asked between two reads whether nobody waits for them any more.

    Raises: UnknownTopicError, InvalidRequestError; LogReplacedError, TopicReplacedError: begin
        again. What can't be read of some partitions is in `Look.faults`.
    Memory: the limits', and one chunk. Cost: 2 MiB of log at a time, or one record batch.
    """
    took = stopwatch()
    if not 1 <= query.limits.records <= RECORDS_MAX:
        raise InvalidRequestError(f"limit={query.limits.records}: want 1..{RECORDS_MAX}")
    budget = budget or Budget(query.limits, gone=gone)
    faults: list[str] = []
    sides = _sides(log, query, budget, clock(), faults)
    ended, turn = _walk(sides, query, budget, faults)
    rows, left = _merged(sides, query.limits.records)
    done = all(side.done for side in sides) and not left
    total = sum(side.whole for side in sides)
    cursor = None if done else Cursor(turn, {s.partition: s.at for s in sides if s.moved})
    if cursor is not None and len(str(cursor)) > LENGTH_MAX:
        cursor, ended = None, "partitions"
    return Look(
        rows=rows,
        cursor=cursor,
        ended="" if done else ended or "records",
        looked_at=budget.looked_at,
        read_bytes=budget.read_bytes,
        took_ms=took(),
        share=1.0 if done or not total else 1 - sum(side.left for side in sides) / total,
        unseen=sum(not side.seen and not side.done for side in sides),
        partitions=len(sides),
        faults=tuple(dict.fromkeys(faults))[:_FAULTS_MAX],
    )


class _Side:
    """One partition of a look: what of [low, high) is still to be read, and what was found."""

    def __init__(
        self, source: Source, whole: tuple[int, int], at: int | None, *, newest_first: bool,
        search: bool,
    ) -> None:  # fmt: skip
        self.source, self.partition = source, source.partition
        low, high = whole
        self.whole = high - low
        self._back, self._search = newest_first, search
        if at is not None:
            at = min(max(at, low), high)
            low, high = (low, at) if newest_first else (at, high)
        self.low, self.high = low, high
        self.moved = at is not None
        self.seen = False
        self.failed = False
        self.found: list[pa.RecordBatch] = []
        self.times: list[NDArray[np.int64]] = []  # of `found`, as `reached` is
        self.count = 0
        # How far it was read, in microseconds, backwards negative: it never goes back.
        self.reached = _BEHIND
        self._span = _SEARCH_SPAN if search else 0

    @property
    def at(self) -> int:
        """Where it goes on."""
        return self.high if self._back else self.low

    @property
    def left(self) -> int:
        """Offsets that were not looked at."""
        return max(self.high - self.low, 0)

    @property
    def done(self) -> bool:
        """Whether all was looked at."""
        return self.low >= self.high

    def step(self, want: int, filters: Filters, budget: Budget) -> str:
        """Read on; `want` records would do. Returns what can't be read, or ""."""
        self.seen = self.moved = True
        chunk = self._backwards(want, budget) if self._back else self._forwards(budget)
        for rows in reversed(chunk.rows) if self._back else chunk.rows:
            times = self._times_of(rows)
            at = np.flatnonzero(filters.mask(rows)) if filters else np.arange(rows.num_rows)
            if len(at):
                # A copy: what is kept must not keep the chunk.
                taken = rows.take(pa.array(at[::-1] if self._back else at))
                self.found.append(taken)
                self.times.append(times[at[::-1] if self._back else at])
                self.count += len(at)
                budget.kept_bytes += taken.nbytes
        return f"{self.source.key}: {chunk.fault}" if chunk.fault else ""

    def _times_of(self, rows: pa.RecordBatch) -> NDArray[np.int64]:
        """Times that never go back along a partition: the order of offsets goes before theirs."""
        stamps: Any = pc.cast(rows.column("timestamp"), pa.int64())
        known = pc.fill_null(stamps, _AHEAD if self._back else -_AHEAD).to_numpy()
        found: NDArray[np.int64]
        if self._back:
            found = np.maximum.accumulate(-known[::-1])[::-1]
        else:
            found = np.maximum.accumulate(known)
        found = np.maximum(found, self.reached)
        if len(found):
            self.reached = int(found[0] if self._back else found[-1])
        return found

    def _forwards(self, budget: Budget) -> Chunk:
        size = CHUNK_BYTES if self._search else _PAGE_BYTES
        chunk = read_forwards(self.source, self.low, self.high, COLUMNS, budget, max_bytes=size)
        self.low = chunk.end
        return chunk

    def _backwards(self, want: int, budget: Budget) -> Chunk:
        span = self._span or want
        size = CHUNK_BYTES if self._search else min(max(_PAGE_BYTES, want << 11), CHUNK_BYTES)
        chunk = read_backwards(
            self.source, self.low, self.high, span, COLUMNS, budget, max_bytes=size
        )
        self.high = chunk.start
        took = chunk.end - chunk.start
        if not self._search:
            # What is asked next is as large as what came, or begins behind a gap.
            self._span = 2 * took if took < span else 0 if chunk.records else 4 * span
            self._span = min(self._span, _SPAN_MAX)
        elif 2 * chunk.read_bytes < size:
            more = min(4.0, 0.8 * size / max(chunk.read_bytes, 1))
            self._span = min(int(max(took, 1) * more) + 1, _SPAN_MAX)
        else:
            self._span = max(took, 1)
        return chunk

    def rewind(self, taken: int) -> None:
        """Go back to behind the first `taken` of what was found."""
        if taken >= self.count:
            return
        for rows in self.found:
            if taken < rows.num_rows:
                offset = rows.column("offset")[taken].as_py()
                self.low, self.high = (self.low, offset + 1) if self._back else (offset, self.high)
                return
            taken -= rows.num_rows


def _sides(log: Log, query: Query, budget: Budget, now_ms: int, faults: list[str]) -> list[_Side]:
    view = view_of(log)
    incarnation = view.renew()
    view.refresh()
    known = view.partitions(query.topic)
    numbers = list(known if query.partitions is None else query.partitions)
    if strange := sorted(set(numbers) - set(known)):
        raise UnknownTopicError(
            f"topic {query.topic} has no partition {', '.join(map(str, strange[:5]))}: it has "
            f"{len(known)}, from {known[0]} to {known[-1]}"
        )
    spans = view.spans([TopicPartition(query.topic, p) for p in numbers])
    cursor = query.cursor or Cursor()
    sides = []
    for p in numbers:
        start, end = spans[TopicPartition(query.topic, p)]
        source = Source(view, query.topic, p, view.topic_id(query.topic, p), incarnation, end)
        try:
            whole = _range(source, query, start, end, now_ms)
        except (SparklogError, FileNotFoundError) as error:
            faults.append(_named(source.key, error))
            whole = start, start
        sides.append(
            _Side(
                source, whole, cursor.at.get(p), newest_first=query.newest_first,
                search=bool(query.filters),
            )
        )  # fmt: skip
        if budget.over == "gone":
            break
    return sides


def _range(source: Source, query: Query, start: int, end: int, now_ms: int) -> tuple[int, int]:
    key = TopicPartition(source.topic, source.partition)

    def find(time_ms: int) -> int | None:
        when, spans = {source.partition: time_ms}, {key: (start, end)}
        found = offsets_for_times(
            source.view, source.topic, when, spans, isolation="read_uncommitted"
        )
        return found[source.partition]

    low = query.start.at(start, end, now_ms=now_ms, find=find)
    return low, max(query.end.at(start, end, now_ms=now_ms, find=find), low)


def _walk(
    sides: Sequence[_Side], query: Query, budget: Budget, faults: list[str]
) -> tuple[str, int]:
    """Read on until enough was found; returns what ended it, and whose turn it is then.

    The partition that is behind in time goes next, so nothing that comes later can belong before
    what was found up to there.
    """
    wanted = query.limits.records
    turn = query.cursor.turn if query.cursor is not None else 0
    waiting: list[tuple[int, int, int]] = [
        (_BEHIND, (at - turn) % len(sides), at) for at, side in enumerate(sides) if not side.done
    ]
    heapq.heapify(waiting)
    stepped = False
    while waiting:
        reached, order, at = waiting[0]
        over = budget.over
        if over and (stepped or over == "gone"):
            return over, at
        if reached > _BEHIND and _settled(sides, reached, wanted):
            return "records", at
        side = sides[at]
        fault = _stepped(side, wanted, query, budget)
        stepped = True
        if fault:
            faults.append(fault)
        if side.done or side.failed:
            heapq.heappop(waiting)
        else:
            heapq.heapreplace(waiting, (max(side.reached, _BEHIND + 1), order, at))
    return "", turn


def _settled(sides: Sequence[_Side], reached: int, wanted: int) -> bool:
    """Whether so many records were found that nothing which is still to be read comes before."""
    if sum(side.count for side in sides) < wanted:
        return False
    count = 0
    for side in sides:
        count += sum(int((times <= reached).sum()) for times in side.times)
        if count >= wanted:
            return True
    return False


def _stepped(side: _Side, want: int, query: Query, budget: Budget) -> str:
    """Let a side read on; what can't be read now is told, and stays where it is."""
    try:
        return side.step(want, query.filters, budget)
    except (LogReplacedError, TopicReplacedError):
        raise
    except OffsetOutOfRangeError as error:  # retention went on meanwhile
        side.low = max(side.low, error.start)
        side.high = max(side.high, side.low)
        return f"{side.source.key}: what lies before offset {error.start} is gone meanwhile"
    except (SparklogError, FileNotFoundError) as error:
        side.failed = True
        return _named(side.source.key, error)


def _named(key: str, error: Exception) -> str:
    words = str(error)
    return words if words.startswith(f"{key}:") else f"{key}: {words}"


def _merged(sides: Sequence[_Side], limit: int) -> tuple[pa.Table, bool]:
    """Return the first `limit` of all that was found; the sides go back to behind theirs.

    Also whether something was left.
    """
    holding = [side for side in sides if side.count]
    if not holding:
        return pa.table({}), False
    tables = []
    for side in holding:
        table = pa.Table.from_batches(side.found)
        numbers = np.full(side.count, side.partition, np.int32)
        tables.append(table.append_column("partition", pa.array(numbers)))
    whole = pa.concat_tables(tables)
    when = np.concatenate([times for side in holding for times in side.times])
    owner = np.repeat(np.arange(len(holding)), [side.count for side in holding])
    order = np.lexsort((np.arange(len(when)), owner, when))
    shown = order[:limit]
    taken = np.bincount(owner[shown], minlength=len(holding))
    for side, count in zip(holding, taken.tolist(), strict=True):
        side.rewind(count)
    return whole.take(pa.array(shown)), len(order) > limit
