"""Checks a segment's offset and time index against its batches, window by window.

Every entry must lead to a batch at or before the entry's offset or time, entries must increase, and
none may be missing for long stretches. In indexes of sparklog or Kafka 4.1, each offset entry
refers to a single batch, and each time entry to the first batch with a new largest timestamp. Older
Kafka versions wrote an entry for several batches of an append, so that entries may be between
batches. A topic's index.interval.bytes may have changed since, so an index is not compared byte by
byte with a rebuilt index.
"""

from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from sparklog.format.index import OFFSET_ENTRY, TIME_ENTRY, Entries
from sparklog.format.names import index_name, timeindex_name
from sparklog.fs import FileSystem, read_bytes
from sparklog.log.batch_windows import Window
from sparklog.logdir.segment_files import joined
from sparklog.service.verification.findings import Findings, FixKind, Severity
from sparklog.service.verification.log_dir_state import ExpectedPartition
from sparklog.service.verification.segment import Walked

Table = NDArray[Any]


class IndexFile:
    """The entries of an index of the segment with offset `base`, and the first fault of the index.

    `fault` is (description, position of the entry in bytes).
    """

    def __init__(self, base: int, dtype: np.dtype[Any], data: bytes | None, path: str = "") -> None:
        """Parse the bytes of an index file; `data` is None for a missing file."""
        self.base, self.path, self.is_missing = base, path, data is None
        self.fault: tuple[str, int] | None = None
        self.next = 0  # the first entry that was not compared yet
        data = data or b""
        count, torn = divmod(len(data), dtype.itemsize)
        self.entries: Entries = np.frombuffer(data, dtype, count=count)
        if torn:
            self.note(f"{len(data)} bytes are no multiple of {dtype.itemsize}", count)

    @classmethod
    def read(
        cls,
        fs: FileSystem,
        part: ExpectedPartition,
        name: str,
        base: int,
        dtype: np.dtype[Any],
        *,
        last: bool,
    ) -> Self:
        """Read an index of a log dir.

        `last` means that the segment is the last one, whose index a writer may be changing.
        """
        path = joined(part.path, name)
        try:
            index = cls(base, dtype, read_bytes(fs, path), path)
        except FileNotFoundError:
            return cls(base, dtype, None, path)
        if last and not part.situation.is_clean:
            index.fault = None
            index.entries = _settled(index.entries, part, base)
        return index

    @property
    def is_done(self) -> bool:
        """Whether a fault was noted, or all entries were compared."""
        return self.fault is not None or self.next == len(self.entries)

    def rows(
        self, keys: NDArray[np.int64], batch_keys: NDArray[np.int64], stop: int
    ) -> tuple[slice, NDArray[np.intp]]:
        """Return the next entries, with keys below `stop`, and the row of each entry's batch."""
        entries = slice(self.next, int(np.searchsorted(keys, stop)))
        self.next = entries.stop
        rows = np.searchsorted(batch_keys, keys[entries])
        return entries, np.minimum(rows, len(batch_keys) - 1)

    def note(self, what: str, row: int) -> None:
        """Remember the first fault, in the entry with number `row`."""
        if self.fault is None:
            self.fault = what, row * self.entries.dtype.itemsize

    def report(self, out: Findings, severity: Severity, fix: FixKind | None) -> None:
        """Add the fault to the findings."""
        if self.fault is not None:
            what, position = self.fault
            place = None if self.is_missing else position
            out.add(severity, self.path, what, position=place, fix=fix, offset=self.base)


def _settled(entries: Entries, part: ExpectedPartition, base: int) -> Entries:
    """Return the entries without preallocated entries and entries past the committed end."""
    used = np.flatnonzero(entries["relative_offset"])
    entries = entries[: int(used[-1]) + 1 if len(used) else 0]
    if part.situation.is_ours:
        past = np.flatnonzero(entries["relative_offset"] >= part.end - base)
        entries = entries[: int(past[0])] if len(past) else entries
    return entries


def _first(wrong: NDArray[np.bool_], start: int = 0) -> int | None:
    """Return the number of the first wrong entry. The first entry has the number `start`."""
    hits = np.flatnonzero(wrong)
    return start + int(hits[0]) if len(hits) else None


class OffsetIndexCheck:
    """A `Consumer` that checks `.index`.

    Args:
        exact: Whether each entry must refer to the last offset of a single batch.
        interval_bytes: The topic's index.interval.bytes, if known.
    """

    def __init__(self, file: IndexFile, *, exact: bool, interval_bytes: int | None = None) -> None:
        self.file, self._exact, self._interval_bytes = file, exact, interval_bytes
        self._offsets = file.entries["relative_offset"].astype(np.int64) + file.base
        self._positions = file.entries["position"].astype(np.int64)
        for column in (self._offsets, self._positions):
            if (at := _first(np.diff(column) <= 0, 1)) is not None:
                file.note("offset or position goes back", at)
        if len(file.entries) and (self._offsets[0] < file.base or self._positions[0] < 0):
            file.note("offset or position is negative", 0)

    def take(self, window: Window, table: Table) -> None:
        """Check the entries that point to these batches."""
        if self.file.is_done:
            return
        starts = table["position"]
        entries, rows = self.file.rows(self._positions, starts, int(starts[-1] + table["size"][-1]))
        last, offsets = table["last_offset"][rows], self._offsets[entries]
        wrong = starts[rows] != self._positions[entries]
        wrong |= last != offsets if self._exact else last > offsets
        if (at := _first(wrong, entries.start)) is not None:
            self.file.note(
                f"no batch of offset {self._offsets[at]} begins at byte {self._positions[at]}", at
            )

    def finish(self, walked: Walked) -> None:
        """Check all entries together, after the log has been read."""
        if self.file.is_missing:
            self.file.note("it is missing", 0)
        elif self.file.next < len(self._positions):
            self.file.note(f"it points past the log's {walked.size} bytes", self.file.next)
        elif len(self._offsets) and int(self._offsets[-1]) >= walked.end:
            self.file.note(f"it leads past the end {walked.end}", len(self._offsets) - 1)
        elif self._interval_bytes is not None:
            marks = np.concatenate(([0], self._positions, [walked.size]))
            holes = np.diff(marks)
            # An entry is due when more than the interval was appended after the last entry's batch.
            if (at := _first(holes > self._interval_bytes + 2 * walked.largest)) is not None:
                self.file.note(
                    f"nothing is indexed for {holes[at]} bytes from byte {marks[at]} on", at
                )


class TimeIndexCheck:
    """A `Consumer` that checks `.timeindex`.

    Args:
        exact: Whether each entry must refer to a single batch.
        final: Whether the index must have the last entry that rolling or closing a segment writes.
    """

    def __init__(self, file: IndexFile, *, exact: bool, final: bool) -> None:
        self.file, self._exact, self._final = file, exact, final
        self._offsets = file.entries["relative_offset"].astype(np.int64) + file.base
        self._stamps = file.entries["timestamp"].astype(np.int64)
        self._largest = -1
        bad = (np.diff(self._stamps) <= 0) | (np.diff(self._offsets) < 0)
        if (at := _first(bad, 1)) is not None:
            file.note("timestamp or offset goes back", at)
        if len(file.entries) and self._offsets[0] < file.base:
            file.note("offset is negative", 0)

    def take(self, window: Window, table: Table) -> None:
        """Check the entries of these batches: the largest timestamp so far, and its first batch."""
        highest = np.maximum.accumulate(np.concatenate(([self._largest], table["max_timestamp"])))
        self._largest = int(highest[-1])
        if self.file.is_done:
            return
        last = table["last_offset"]
        entries, rows = self.file.rows(self._offsets, last, int(last[-1]) + 1)
        stamps = self._stamps[entries]
        wrong = (table["max_timestamp"][rows] != stamps) | (highest[rows] >= stamps)
        if self._exact:
            wrong |= last[rows] != self._offsets[entries]
        if (at := _first(wrong, entries.start)) is not None:
            self.file.note(
                f"offset {self._offsets[at]} is not the first to reach time {self._stamps[at]}", at
            )

    def finish(self, walked: Walked) -> None:
        """Check all entries together, after the log has been read."""
        if self.file.is_missing:
            self.file.note("it is missing", 0)
        elif self.file.next < len(self._offsets):
            self.file.note(f"it leads past the end {walked.end}", self.file.next)
        elif self._final and self._largest >= 0:
            known = int(self._stamps[-1]) if len(self._stamps) else -1
            if known != self._largest:
                self.file.note(
                    f"its last entry has time {known}, the segment's largest is {self._largest}",
                    max(len(self._stamps) - 1, 0),
                )


def index_checks(
    fs: FileSystem, part: ExpectedPartition, base: int, *, last: bool
) -> tuple[OffsetIndexCheck, TimeIndexCheck]:
    """Return the checks of a segment of a log dir. `last` means that it is the last segment."""
    index = IndexFile.read(fs, part, index_name(base), base, OFFSET_ENTRY, last=last)
    times = IndexFile.read(fs, part, timeindex_name(base), base, TIME_ENTRY, last=last)
    return (
        OffsetIndexCheck(index, exact=part.exact, interval_bytes=part.interval_bytes),
        TimeIndexCheck(times, exact=part.exact, final=not last or part.situation.is_clean),
    )
