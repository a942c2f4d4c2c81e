"""Checks a segment's offset and time index against its batches, window by window.

Every entry must lead to a batch at or before the entry's offset or time, entries must increase, and
none may be missing for long stretches. In indexes of sparklog or Kafka 4.1, each offset entry
refers to a single batch, and each time entry to the first batch with a new largest timestamp. Older
Kafka versions wrote an entry for several batches of an append, so that entries may be between
batches.
"""

from typing import Any, Final

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
_OLD_KAFKA: Final = 2  # allowed factor of distances if several batches share an entry


class IndexFile:
    """The entries of a segment's index file, and its first fault."""

    def __init__(
        self,
        fs: FileSystem,
        part: ExpectedPartition,
        name: str,
        base: int,
        dtype: np.dtype[Any],
        *,
        last: bool,
        data: bytes | None = None,
    ) -> None:
        """Read an index file. `data`: its content, if it is from a manifest."""
        self.base, self.path = base, joined(part.path, name)
        self.fault: tuple[str, int] | None = None
        self.is_missing = False
        try:
            data = read_bytes(fs, self.path) if data is None else data
        except FileNotFoundError:
            data, self.is_missing = b"", True
        count, torn = divmod(len(data), dtype.itemsize)
        self.entries: Entries = np.frombuffer(data, dtype, count=count)
        if last and not part.situation.is_clean:
            self.entries = self._settled(part)
        elif torn:
            self.note(f"{len(data)} bytes are no multiple of {dtype.itemsize}", count)

    def _settled(self, part: ExpectedPartition) -> Entries:
        """Return the entries without preallocated entries and entries past the committed end."""
        entries = self.entries
        used = np.flatnonzero(entries["relative_offset"])
        entries = entries[: int(used[-1]) + 1 if len(used) else 0]
        if part.situation.is_ours:
            past = np.flatnonzero(entries["relative_offset"] >= part.end - self.base)
            entries = entries[: int(past[0])] if len(past) else entries
        return entries

    def note(self, what: str, row: int) -> None:
        """Remember the first fault. `row`: the number of its entry."""
        if self.fault is None:
            self.fault = what, row * self.entries.dtype.itemsize

    def report(self, out: Findings, severity: Severity, fix: FixKind | None) -> None:
        """Add the fault to the findings."""
        if self.fault is not None:
            what, position = self.fault
            place = None if self.is_missing else position
            out.add(severity, self.path, what, position=place, fix=fix, offset=self.base)


class OffsetIndexCheck:
    """A `Consumer` that checks `.index`."""

    def __init__(
        self,
        fs: FileSystem,
        part: ExpectedPartition,
        base: int,
        *,
        last: bool,
        data: bytes | None = None,
    ) -> None:
        self.file = IndexFile(fs, part, index_name(base), base, OFFSET_ENTRY, last=last, data=data)
        self._part, self._base = part, base
        entries = self.file.entries
        self._offsets = entries["relative_offset"].astype(np.int64) + base
        self._positions = entries["position"].astype(np.int64)
        self._next = 0
        for column in (self._offsets, self._positions):
            bad = np.flatnonzero(np.diff(column) <= 0)
            if len(bad):
                self.file.note("offset or position goes back", int(bad[0]) + 1)
        if len(entries) and (self._offsets[0] < base or self._positions[0] < 0):
            self.file.note("offset or position is negative", 0)

    def take(self, window: Window, table: Table) -> None:
        """Check the entries that point to these batches."""
        if self.file.fault is not None or self._next == len(self._positions):
            return
        starts = table["position"]
        stop = int(starts[-1] + table["size"][-1])
        until = int(np.searchsorted(self._positions, stop))
        positions, offsets = self._positions[self._next : until], self._offsets[self._next : until]
        rows = np.minimum(np.searchsorted(starts, positions), len(starts) - 1)
        wrong = starts[rows] != positions
        if self._part.exact:
            wrong |= table["last_offset"][rows] != offsets
        else:
            wrong |= table["last_offset"][rows] > offsets
        hits = np.flatnonzero(wrong)
        if len(hits):
            at = self._next + int(hits[0])
            self.file.note(
                f"no batch of offset {self._offsets[at]} begins at byte {self._positions[at]}", at
            )
        self._next = until

    def finish(self, walked: Walked) -> None:
        """Check the entries as a whole, after the log has been read."""
        if self.file.is_missing:
            self.file.note("it is missing", 0)
        elif self._next < len(self._positions):
            self.file.note(f"it points past the log's {walked.size} bytes", self._next)
        elif len(self._offsets) and int(self._offsets[-1]) >= walked.end:
            self.file.note(f"it leads past the end {walked.end}", len(self._offsets) - 1)
        elif self._part.interval_bytes is not None:
            self._check_density(walked, self._part.interval_bytes)

    def _check_density(self, walked: Walked, interval_bytes: int) -> None:
        marks = np.concatenate(([0], self._positions, [walked.size]))
        holes = np.diff(marks)
        # An entry is due when more than the interval was appended after the last entry's batch.
        most = interval_bytes + 2 * walked.largest
        hits = np.flatnonzero(holes > most)
        if len(hits):
            at = int(hits[0])
            self.file.note(f"nothing is indexed for {holes[at]} bytes from byte {marks[at]} on", at)


class TimeIndexCheck:
    """A `Consumer` that checks `.timeindex`.

    `final`: the index must have the last entry that rolling or closing a segment writes.
    """

    def __init__(
        self,
        fs: FileSystem,
        part: ExpectedPartition,
        base: int,
        *,
        last: bool,
        final: bool,
        data: bytes | None = None,
    ) -> None:
        name = timeindex_name(base)
        self.file = IndexFile(fs, part, name, base, TIME_ENTRY, last=last, data=data)
        self._part, self._final = part, final
        entries = self.file.entries
        self._stamps = entries["timestamp"].astype(np.int64)
        self._offsets = entries["relative_offset"].astype(np.int64) + base
        self._next, self._largest = 0, -1
        bad = (np.diff(self._stamps) <= 0) | (np.diff(self._offsets) < 0)
        if bad.any():
            self.file.note("timestamp or offset goes back", int(np.argmax(bad)) + 1)
        if len(entries) and self._offsets[0] < base:
            self.file.note("offset is negative", 0)

    def take(self, window: Window, table: Table) -> None:
        """Check the entries of these batches: the largest timestamp so far, and its first batch."""
        highest = np.maximum.accumulate(np.concatenate(([self._largest], table["max_timestamp"])))
        if self.file.fault is None and self._next < len(self._offsets):
            self._compare(table, highest)
        self._largest = int(highest[-1])

    def _compare(self, table: Table, highest: NDArray[np.int64]) -> None:
        last = table["last_offset"]
        until = int(np.searchsorted(self._offsets, int(last[-1]), side="right"))
        offsets, stamps = self._offsets[self._next : until], self._stamps[self._next : until]
        rows = np.minimum(np.searchsorted(last, offsets), len(last) - 1)
        wrong = (table["max_timestamp"][rows] != stamps) | (highest[rows] >= stamps)
        if self._part.exact:
            wrong |= last[rows] != offsets
        hits = np.flatnonzero(wrong)
        if len(hits):
            at = self._next + int(hits[0])
            self.file.note(
                f"offset {self._offsets[at]} is not the first to reach time {self._stamps[at]}", at
            )
        self._next = until

    def finish(self, walked: Walked) -> None:
        """Check the entries as a whole, after the log has been read."""
        if self.file.is_missing:
            self.file.note("it is missing", 0)
        elif self._next < len(self._offsets):
            self.file.note(f"it leads past the end {walked.end}", self._next)
        elif self._final and self._largest >= 0:
            known = int(self._stamps[-1]) if len(self._stamps) else -1
            if known != self._largest:
                self.file.note(
                    f"its last entry has time {known}, the segment's largest is {self._largest}",
                    max(len(self._stamps) - 1, 0),
                )
