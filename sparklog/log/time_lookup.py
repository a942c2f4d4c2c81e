"""Looks timestamps up. Source: UnifiedLog.fetchOffsetByTimestamp, LogSegment (4.1).

The first segment whose largest timestamp reaches the target answers, or nobody: later segments
are not tried, though with old event times one of them might hold such a record. Time index
entries are believed only if the batch they name has just that maximum.
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
    """A segment's largest timestamp (ms, -1: none) and the last offset of its first batch with it.

    Holds for the batches below offset `end`, which lie before byte `position`.
    """

    timestamp: int
    offset: int
    end: int
    position: int


class TimeLookup:
    """Time look-ups in one partition; what closed segments reach is remembered."""

    def __init__(self, lookup: Lookup) -> None:
        self._lookup = lookup
        self._largest: dict[int, Largest] = {}
        self._running: list[int] = []  # the largest timestamp up to each settled segment
        self._running_of: list[int] = []

    def refresh(self) -> None:
        """Forget everything."""
        self._largest.clear()

    def find(self, timestamp: int, start: int, end: int) -> tuple[int, int] | None:
        """(offset, timestamp) of the first record at or after `timestamp` in [start, end).

        The first segment that reaches the time answers, of those that hold anything from `start`
        on: one below it is on its way out. Raises StaleReadError if none holds `start`.
        """
        if start >= end:
            return None
        skip = self._lookup.bases.index(self._lookup.floor(start))
        if not skip:  # as it is but for the moment before retention
            skip = self._settled(end)
            at = bisect.bisect_left(self._running, timestamp, 0, skip)
            if at < skip:
                return self._search(self._lookup.bases[at], timestamp, start, end)
        for base in self._segments(end, skip=skip):
            if self.largest_timestamp(base, end) >= timestamp:
                return self._search(base, timestamp, start, end)
        return None

    def _settled(self, end: int) -> int:
        """How many leading segments are settled; `_running` then holds what they reach."""
        bases = self._lookup.bases
        if self._running_of is not bases:
            self._running, self._running_of = [], bases
        settled = max(bisect.bisect_left(bases, end) - 1, 0)
        for base in bases[len(self._running) : settled]:
            before = self._running[-1] if self._running else -1
            self._running.append(max(before, self.largest_timestamp(base, end)))
        return settled

    def latest(self, start: int, end: int) -> tuple[int, int] | None:
        """(offset, timestamp) of the first record with the largest timestamp of all."""
        if start >= end:
            return None
        skip = self._lookup.bases.index(self._lookup.floor(start))
        found = [(self._of(base, end).timestamp, -base) for base in self._segments(end, skip=skip)]
        timestamp, negated = max(found, default=(-1, 0))
        if timestamp < 0:
            return None
        return self._search(-negated, timestamp, start, end)

    def _segments(self, end: int, *, skip: int = 0) -> Iterator[int]:
        """The segments below `end`; lists anew if the last one known doesn't go so far."""
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
        """The largest timestamp (ms) of a segment; its file's time if its records have none."""
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
            known = None  # a lower end than before: what lies between doesn't count
        told = self._lookup.segments.max_timestamp(base)
        if told is not None and (settled or (following is None and self._all_below(end))):
            found = self._largest[base] = Largest(told, base, limit, 0)
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
        """Whether the last segment, a remote one, holds nothing from `end` on."""
        remote_end = self._lookup.segments.remote_end()
        return remote_end is not None and remote_end <= end

    def _final(self, base: int, log: SegmentLog, end: int) -> Largest | None:
        """What a closed segment's last time entry says, if it is true."""
        entries = self._lookup.times(base, end + 1)
        if entries is None or not entries.count:
            return None
        timestamp, relative = entries[entries.count - 1]
        if not self._is_true(base, log, timestamp, base + relative, end):
            return None
        # What lies behind is looked at all the same: the file may have been cut at an entry.
        position = self._lookup.position(base, base + relative, end)
        return Largest(timestamp, base + relative, base + relative, position)

    def _regular(self, base: int, log: SegmentLog, end: int) -> Largest | None:
        """Where to begin in a segment that may grow: its newest index entries, if true."""
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
        """Tell whether the batch holding `offset` is the first near it with that maximum."""
        if not base <= offset < end or timestamp < 0:
            return False
        position = self._lookup.position(base, max(offset - 1, base), end)
        for window in walk(log, start=position, window_bytes=SCAN_BYTES, check_crc=False):
            for row in window.batches.table:
                if int(row["last_offset"]) >= offset:
                    held = int(row["base_offset"]) <= offset
                    return held and int(row["max_timestamp"]) == timestamp
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
                found = _first_record(window, row, timestamp, start, end, log.path)
                if found is not None:
                    return found
            if len(table) and int(table["last_offset"][-1]) + 1 >= end:
                return None
            if window.batches.error is not None:
                raise window.batches.error
        return None

    def _start_of_search(
        self, base: int, log: SegmentLog, timestamp: int, start: int, end: int
    ) -> int:
        """A position before which no record can be the answer."""
        floor = max(start, base)
        times = self._lookup.times(base, end)
        if times is not None:
            span = end - base
            count = times.last(lambda entry: entry[1] < span) + 1
            slot = times.last(lambda entry: entry[0] <= timestamp, count=count)
            if slot >= 0:
                found, relative = times[slot]
                if self._is_true(base, log, found, base + relative, end):
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
    """Take in the batches behind what is known, up to `end`."""
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
