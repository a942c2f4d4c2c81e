"""Look up timestamps. Source: UnifiedLog.fetchOffsetByTimestamp, LogSegment (4.1).

Only the first segment with a largest timestamp at or above the target is searched. A later segment
is not searched, even if it contains a matching record because of old event times. Time index
entries are used only if the batch that they refer to has exactly that largest timestamp.
"""

import bisect
import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from sparklog.format.batch import CONTROL
from sparklog.format.records import Decoder
from sparklog.log.batch_windows import Window, walk
from sparklog.log.index_entries import is_batch_at, offset_entries, regular_times
from sparklog.log.offset_lookup import Lookup
from sparklog.storage.segments import SegmentLog

SCAN_BYTES: Final = 20 << 10  # an interval of the index and a usual batch
Table = NDArray[Any]


@dataclass(frozen=True, slots=True)
class Largest:
    """The largest timestamp of a segment's batches below offset `end`.

    Attributes:
        timestamp: The timestamp (ms); -1 without timestamps.
        offset: The last offset of the first batch with this timestamp; the base offset if unknown.
        end: The offset below which batches were considered.
        position: The position in the file at which to continue with later batches.
    """

    timestamp: int
    offset: int
    end: int
    position: int


class TimeLookup:
    """Looks up offsets by timestamp in a partition.

    The largest timestamps of closed segments are cached.
    """

    def __init__(self, lookup: Lookup) -> None:
        self._lookup = lookup
        self._largest: dict[int, Largest] = {}
        self._running: list[int] = []  # the largest timestamp up to each settled segment
        self._running_of: list[int] = []

    def refresh(self) -> None:
        """Drop all cached data."""
        self._largest.clear()

    def find(self, timestamp: int, start: int, end: int) -> tuple[int, int] | None:
        """Return (offset, timestamp) of the first record at or after `timestamp` in [start, end).

        Searches the first segment that reaches the time, among the segments with offsets from
        `start` on; segments below it are about to be deleted.

        Raises:
            StaleReadError: No segment contains `start`.
        """
        if start >= end:
            return None
        skip = self._lookup.bases.index(self._lookup.floor(start))
        if not skip:  # the usual case: `start` is in the first segment
            skip = self._settled(end)
            at = bisect.bisect_left(self._running, timestamp, 0, skip)
            if at < skip:
                return self._search(self._lookup.bases[at], timestamp, start, end)
        for base in self._segments(end, skip=skip):
            if self.largest_timestamp(base, end) >= timestamp:
                return self._search(base, timestamp, start, end)
        return None

    def _settled(self, end: int) -> int:
        """Return the number of leading segments that end below `end`.

        `_running` then has the largest timestamp up to each of them.
        """
        bases = self._lookup.bases
        if self._running_of is not bases:  # another list object: the segments were listed again
            self._running, self._running_of = [], bases
        settled = max(bisect.bisect_left(bases, end) - 1, 0)
        for base in bases[len(self._running) : settled]:
            before = self._running[-1] if self._running else -1
            self._running.append(max(before, self.largest_timestamp(base, end)))
        return settled

    def latest(self, start: int, end: int) -> tuple[int, int] | None:
        """Return (offset, timestamp) of the first record with the largest timestamp, or None.

        Only records of [start, end) are considered.
        """
        if start >= end:
            return None
        skip = self._lookup.bases.index(self._lookup.floor(start))
        bases = self._segments(end, skip=skip)
        largest = [(self._of(base, end).timestamp, -base) for base in bases]
        timestamp, negated = max(largest, default=(-1, 0))
        if timestamp < 0:
            return None
        return self._search(-negated, timestamp, start, end)

    def _segments(self, end: int, *, skip: int = 0) -> Iterator[int]:
        """Yield the base offsets of the segments below `end`, without the first `skip` segments.

        The segments are listed again if the last known segment ends before `end`.
        """
        done = -1
        for base in self._lookup.bases[skip:]:
            if base < end:
                done = base
                yield base
        if done >= 0 and self._of(done, end).end < end:
            self._lookup.refresh()
            if self._lookup.gaps:
                self.refresh()
            yield from (base for base in list(self._lookup.bases) if done < base < end)

    def largest_timestamp(self, base: int, end: int) -> int:
        """Return the largest timestamp (ms) of a segment's records below offset `end`.

        Without timestamps, it is the time of the file's last change; -1 if the file does not exist.
        """
        largest = self._of(base, end).timestamp
        if largest >= 0:
            return largest
        with contextlib.suppress(FileNotFoundError):
            # As Kafka: a segment without timestamps counts as old as its file.
            return self._lookup.segments.modified_ms(base)
        return -1

    def _of(self, base: int, end: int) -> Largest:
        following = self._lookup.following(base)
        settled = following is not None and following < end
        limit = following if following is not None and settled else end
        known = self._largest.get(base)
        if known is not None and known.end == limit:
            return known
        if known is not None and known.end > limit:
            known = None  # a lower end than before: do not count the batches behind it
        recorded = self._lookup.segments.max_timestamp(base)
        if recorded is not None and (settled or (following is None and self._all_below(end))):
            found = self._largest[base] = Largest(recorded, base, limit, 0)
            return found
        log = self._lookup.log(base)
        if known is None and settled:
            known = self._final(base, log, limit)
        if known is None:
            known = self._regular(base, log, limit) or Largest(-1, base, base, 0)
        found = _grown(known, log, limit)
        if settled:  # the cleaner may have removed the last batches
            found = replace(found, end=limit)
        self._largest[base] = found
        return found

    def _all_below(self, end: int) -> bool:
        """Return True if the last segment is remote and ends at or before `end`."""
        remote_end = self._lookup.segments.remote_end()
        return remote_end is not None and remote_end <= end

    def _final(self, base: int, log: SegmentLog, end: int) -> Largest | None:
        """Return the largest timestamp of a closed segment by its last time index entry.

        Returns None if there is no entry, or if it is wrong.
        """
        entries = self._lookup.times(base, end + 1)
        if entries is None or not entries.count:
            return None
        timestamp, relative = entries[entries.count - 1]
        if not self._is_true(base, log, timestamp, base + relative, end):
            return None
        # The batches behind the entry are checked too: the file may have been cut at an entry.
        position = self._lookup.position(base, base + relative, end)
        return Largest(timestamp, base + relative, base + relative, position)

    def _regular(self, base: int, log: SegmentLog, end: int) -> Largest | None:
        """Return the largest timestamp of a segment that may grow, by its newest index entries.

        Returns None if there are none, or if they are wrong.
        """
        segments, size = self._lookup.segments, log.size()
        offsets = offset_entries(segments, base, size=size, end=end)
        times = regular_times(segments, base, offsets)
        if not len(offsets) or not len(times):
            return None
        timestamp, holder = int(times["timestamp"][-1]), base + int(times["relative_offset"][-1])
        last, position = (
            base + int(offsets["relative_offset"][-1]),
            int(offsets["position"][-1]),
        )
        if not is_batch_at(log, position, size, last):
            return None
        if not self._is_true(base, log, timestamp, holder, end):
            return None
        return Largest(timestamp, holder, last, position)

    def _is_true(self, base: int, log: SegmentLog, timestamp: int, offset: int, end: int) -> bool:
        """Return True if a time index entry is correct.

        The batch with `offset` must have exactly that largest timestamp, and the batches just
        before it smaller ones.
        """
        if not base <= offset < end or timestamp < 0:
            return False
        # From the batch before: an entry names the first batch with the timestamp.
        position = self._lookup.position(base, max(offset - 1, base), end)
        for window in walk(log, start=position, window_bytes=SCAN_BYTES, check_crc=False):
            for row in window.batches.table:
                if int(row["last_offset"]) >= offset:
                    contains = int(row["base_offset"]) <= offset
                    return contains and int(row["max_timestamp"]) == timestamp
                if int(row["max_timestamp"]) >= timestamp:
                    return False
        return False

    def _search(self, base: int, timestamp: int, start: int, end: int) -> tuple[int, int] | None:
        log = self._lookup.log(base)
        position = self._start_of_search(base, log, timestamp, start, end)
        for window in walk(log, start=position, window_bytes=SCAN_BYTES):
            table = window.batches.table
            hit = (table["max_timestamp"] >= timestamp) & (table["last_offset"] >= start)
            for row in table[hit & (table["base_offset"] < end)]:
                record = _first_record(window, row, timestamp, start, end, log.path)
                if record is not None:
                    return record
            if len(table) and int(table["last_offset"][-1]) + 1 >= end:
                return None
            if window.batches.error is not None:
                raise window.batches.error
        return None

    def _start_of_search(
        self, base: int, log: SegmentLog, timestamp: int, start: int, end: int
    ) -> int:
        """Return the position in a segment where the search for a timestamp starts.

        No record before it can match. It comes from the time index, if its entry is correct.
        """
        floor = max(start, base)
        times = self._lookup.times(base, end)
        if times is not None:
            span = end - base
            count = times.last(lambda entry: entry[1] < span) + 1
            slot = times.last(lambda entry: entry[0] <= timestamp, count=count)
            if slot >= 0:
                largest, relative = times[slot]
                if self._is_true(base, log, largest, base + relative, end):
                    floor = max(floor, base + relative)
        position = self._lookup.position(base, floor, end)
        if not position:
            return 0
        for window in walk(log, start=position, window_bytes=SCAN_BYTES):
            table = window.batches.table
            if len(table):
                return position if int(table["base_offset"][0]) <= floor else 0
        return 0


def _grown(known: Largest, log: SegmentLog, end: int) -> Largest:
    """Return the largest timestamp after the batches that follow those of `known`, up to `end`."""
    if known.end >= end:
        return known
    timestamp, offset, reached, position = (
        known.timestamp,
        known.offset,
        known.end,
        known.position,
    )
    for window in walk(log, start=position, check_crc=False):
        table = window.batches.table
        table = table[table["base_offset"] < end]
        if not len(table):
            break
        at = int(np.argmax(table["max_timestamp"]))
        if int(table["max_timestamp"][at]) > timestamp:
            timestamp = int(table["max_timestamp"][at])
            offset = int(table["last_offset"][at])
        reached = int(table["last_offset"][-1]) + 1
        position = int(table["position"][-1] + table["size"][-1])
    return Largest(timestamp, offset, reached, position)


def _first_record(
    window: Window, row: Any, timestamp: int, start: int, end: int, path: str
) -> tuple[int, int] | None:
    if row["attributes"] & CONTROL:
        # A marker is a record to Kafka's search as well; its time is the batch's.
        offset = int(row["base_offset"])
        return (offset, int(row["max_timestamp"])) if start <= offset < end else None
    decoder = Decoder(["offset", "timestamp"])
    decoder.add_many(
        window.data,
        np.array([row], dtype=row.dtype),
        first=start,
        end=end,
        path=path,
        position=window.position,
    )
    rows = decoder.finish()
    offsets = rows.column("offset").to_numpy()
    stamps = rows.column("timestamp").view("int64").to_numpy() // 1000
    hits = np.flatnonzero(stamps >= timestamp)
    return (int(offsets[hits[0]]), int(stamps[hits[0]])) if len(hits) else None
