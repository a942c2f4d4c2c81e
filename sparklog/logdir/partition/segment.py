"""The active segment of a partition, for the writer: log, offset index, time index.

Indexes grow with the log and are never preallocated. Their contents depend only on the batch
positions, so they equal the indexes that Kafka's recovery would rebuild, even after closes, undos
and reopens. Source: LogSegment.java (Kafka 4.1).
"""

import contextlib
from collections.abc import Iterator
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from sparklog.format.batch import HEADER_SIZE, LOG_APPEND_TIME
from sparklog.format.index import IndexState, final_time_entry, index_entries
from sparklog.format.names import (
    index_name,
    log_name,
    timeindex_name,
    txnindex_name,
)
from sparklog.format.scan import stored_crcs
from sparklog.fs import File, FileSystem
from sparklog.log.batch_windows import walk
from sparklog.logdir.partition.indexes import offset_entries, regular_times
from sparklog.logdir.partition.rolling import RollParams
from sparklog.logdir.partition.validation import out_of_order
from sparklog.logdir.segment_files import joined

Table = NDArray[Any]


class Segment:
    """The active segment of a partition, open for appends.

    Attributes:
        base: The base offset.
        size: The size of the log in bytes.
        end: The offset after the last record.
        created_ms: When the segment was created or loaded (ms).
        index_bytes: The size of the offset index; the file may be larger.
        timeindex_bytes: The size of the time index; the file may be larger.
        stamped_ms: The append time (ms) of the newest batch with LogAppendTime, or -1.
        tail_crc: The CRC field of the last batch when loaded; -1 if unknown.
    """

    def __init__(
        self, fs: FileSystem, directory: str, base: int, *, interval_bytes: int, created_ms: int
    ) -> None:
        self.base, self.size, self.end = base, 0, base
        self.created_ms = created_ms
        self.index_bytes = self.timeindex_bytes = 0
        self.txnindex: File | None = None
        self.stamped_ms = -1  # the append time of the newest batch
        self.tail_crc = -1  # the CRC field of the last batch when loaded
        self._identity: tuple[int, int] | None = None
        self._fs, self._directory = fs, directory
        self._interval_bytes = interval_bytes
        self._state = IndexState()
        self._first_timestamp: int | None = None
        self.log = fs.open(joined(directory, log_name(base)), write=True)
        self.index = fs.open(joined(directory, index_name(base)), create=True)
        self.timeindex = fs.open(joined(directory, timeindex_name(base)), create=True)

    def size_on_disk(self) -> int:
        """Return the size of the log's file; -1 if the file was replaced since the last call.

        Raises:
            FileNotFoundError: The file was deleted, so that readers can't see new writes.
        """
        identity = self._fs.identity(self.log.path)
        # A file that was restored from a copy may have the expected size, but appends would go to
        # the old inode, which no reader opens.
        self._identity = self._identity or identity
        return self.log.size() if self._identity == identity else -1

    @classmethod
    def create(
        cls, fs: FileSystem, directory: str, base: int, *, interval_bytes: int, now: int
    ) -> Self:
        """Create an empty segment. Existing files with the same names are emptied."""
        with contextlib.suppress(FileNotFoundError):
            fs.unlink(joined(directory, txnindex_name(base)))
        for name in (index_name(base), timeindex_name(base), log_name(base)):
            # The log is last, so that a reader that sees it finds its indexes.
            with fs.open(joined(directory, name), create=True) as file:
                if file.size():
                    file.truncate(0)
        return cls(fs, directory, base, interval_bytes=interval_bytes, created_ms=now)

    @classmethod
    def load(
        cls, fs: FileSystem, directory: str, base: int, end: int, *, interval_bytes: int, now: int
    ) -> Self:
        """Open a segment up to offset `end`. Cost: reads the indexes, and the log after their end.

        The result's `end` is lower if the log ends earlier. Indexes that contradict the log are
        rebuilt.
        """
        segment = cls(fs, directory, base, interval_bytes=interval_bytes, created_ms=now)
        if not segment._load_tail(end):
            segment._rebuild(end)
        return segment

    def _note_tail(self, table: Table) -> None:
        """Set `size`, `end` and `tail_crc` by the last batch of a table."""
        last = table[-1:]
        position = int(last["position"][0])
        self.size, self.end = position + int(last["size"][0]), int(last["last_offset"][0]) + 1
        head = self.log.pread(HEADER_SIZE, position)
        self.tail_crc = int.from_bytes(stored_crcs(head, last, position), "big")

    def _load_tail(self, end: int) -> bool:
        offsets = offset_entries(
            self._fs, self._directory, self.base, size=self.log.size(), end=end
        )
        if not len(offsets):
            return False
        times = regular_times(self._fs, self._directory, self.base, offsets)
        tables = list(self._batches(int(offsets["position"][-1]), end))
        if not tables:
            return False
        first = tables[0][0]
        if int(first["last_offset"]) - self.base != int(offsets["relative_offset"][-1]):
            return False
        self._note_stamp(tables[0])
        newest = int(times["timestamp"][-1]) if len(times) else -1
        holder = self.base + int(times["relative_offset"][-1]) if len(times) else -1
        self._state = IndexState(
            bytes_since_entry=int(first["size"]),
            max_timestamp=newest,
            max_offset=holder,
            last_timestamp=newest,
        )
        self.index_bytes, self.timeindex_bytes = offsets.nbytes, times.nbytes
        if int(first["max_timestamp"]) > newest:
            return False  # the time index is outdated: its entry would include it
        self._index(np.concatenate([tables[0][1:], *tables[1:]]))
        self._note_tail(tables[-1])
        return True

    def _rebuild(self, end: int) -> None:
        self._state, self.index_bytes, self.timeindex_bytes = IndexState(), 0, 0
        self.size, self.end = 0, self.base
        for table in self._batches(0, end):
            self._index(table)
            self._note_tail(table)

    def _batches(self, start: int, end: int) -> Iterator[Table]:
        """Yield batches in offset order from byte `start`, up to offset `end`."""
        expected = self.base
        for window in walk(self.log, start=start, check_crc=False):
            table = window.batches.table
            # CRCs are not checked on each open, which would cost a pass over the data, but a batch
            # of a wrong offset ends the segment.
            wrong = out_of_order(table, expected, end, gaps=True)
            known = table if wrong < 0 else table[:wrong]
            known = known[known["last_offset"] < end]
            if len(known):
                expected = int(known["last_offset"][-1]) + 1
                yield known
            if len(known) < len(table):
                return

    @property
    def roll_params(self) -> RollParams:
        """The properties that decide when the segment is rolled."""
        if self._first_timestamp is None and self.size:
            windows = walk(self.log, limit=self.size, check_crc=False, window_bytes=4096)
            head = next(window for window in windows if len(window.batches))
            self._first_timestamp = int(head.batches.table["max_timestamp"][0])
        return RollParams(self.base, self.size, self._first_timestamp, self.created_ms)

    def room(self, table: Table, limits: tuple[int, int]) -> int:
        """Return how many batches of `table` fit before a full index forces a roll.

        `limits` are the maximum numbers of entries; see `entry_limits`.
        """
        if self._full(0, 0, limits):
            return 0
        if not self._full(len(table), len(table), limits):  # at most one entry per batch
            return len(table)
        if not self._full(*self._entries_of(table), limits):
            return len(table)
        # How many entries a batch produces depends on the batches before it, so there is no
        # formula; the number of entries never decreases with the number of batches.
        low, high = 1, len(table)  # the smallest count that fills an index is in [low, high]
        while low < high:
            middle = (low + high) // 2
            if self._full(*self._entries_of(table[:middle]), limits):
                high = middle
            else:
                low = middle + 1
        return low

    def _entries_of(self, table: Table) -> tuple[int, int]:
        moved = table.copy()
        moved["position"] += self.size - int(table["position"][0])
        index, timeindex, _ = index_entries(moved, self.base, self._interval_bytes, self._state)
        return len(index) // 8, len(timeindex) // 12

    def _full(self, offsets: int, times: int, limits: tuple[int, int]) -> bool:
        return (
            self.index_bytes // 8 + offsets >= limits[0]
            or self.timeindex_bytes // 12 + times >= limits[1]
        )

    def append(self, data: memoryview, table: Table) -> None:
        """Write the batches of `table` to the end of the log, and index them.

        `data` contains the batches at the positions in `table`.
        """
        start = int(table["position"][0])
        stop = int(table["position"][-1] + table["size"][-1])
        if not self.size:
            self._first_timestamp = int(table["max_timestamp"][0])
        self.log.pwrite(data[start:stop], self.size)
        moved = table.copy()
        moved["position"] += self.size - start
        self._index(moved)
        self.size += stop - start
        self.end = int(table["last_offset"][-1]) + 1

    def replace_by(
        self, chunk_path: str, table: Table, prefixes: bytes, size: int, now: int
    ) -> "Segment":
        """Replace this empty segment by a staged file, by rename; return the new segment.

        Args:
            chunk_path: The staged file.
            table: Its batches, with their final offsets.
            prefixes: The new first 16 bytes (base offset, length, leader epoch) of each batch.
            size: The size of the file.
            now: The current time (ms).
        """
        assert self.size == 0
        self.close()
        path = joined(self._directory, log_name(self.base))
        self._fs.rename(chunk_path, path)
        segment = Segment(
            self._fs,
            self._directory,
            self.base,
            interval_bytes=self._interval_bytes,
            created_ms=now,
        )
        for row, position in enumerate(table["position"].tolist()):
            segment.log.pwrite(prefixes[row * 16 : row * 16 + 16], position)
        segment._index(table)
        segment.size, segment.end = size, int(table["last_offset"][-1]) + 1
        return segment

    def _note_stamp(self, table: Table) -> None:
        if int(table["attributes"][-1]) & LOG_APPEND_TIME:
            self.stamped_ms = int(table["max_timestamp"][-1])

    def _index(self, table: Table) -> None:
        """Write the index entries of `table`, the batches after the last indexed batch."""
        if len(table):
            self._note_stamp(table)
        index, timeindex, self._state = index_entries(
            table, self.base, self._interval_bytes, self._state
        )
        if index:
            self.index.pwrite(index, self.index_bytes)
            self.index_bytes += len(index)
        if timeindex:
            self.timeindex.pwrite(timeindex, self.timeindex_bytes)
            self.timeindex_bytes += len(timeindex)

    def add_aborted(self, entries: bytes) -> None:
        """Append entries to the transaction index, which is created with the first entries."""
        if self.txnindex is None:
            path = joined(self._directory, txnindex_name(self.base))
            self.txnindex = self._fs.open(path, create=True)
        self.txnindex.pwrite(entries, self.txnindex.size())

    def finish(self) -> None:
        """Write the final time index entry, and truncate files with more than the used bytes.

        The segment may still grow: the entry is then overwritten. Source:
        LogSegment.onBecomeInactiveSegment.
        """
        entry, _ = final_time_entry(self.base, self._state)
        if entry:
            self.timeindex.pwrite(entry, self.timeindex_bytes)
        for file, size in (
            (self.log, self.size),
            (self.index, self.index_bytes),
            (self.timeindex, self.timeindex_bytes + len(entry)),
        ):
            if file.size() > size:
                file.truncate(size)

    def sync(self, *, indexes: bool) -> None:
        """Make the log durable, and with `indexes` also the indexes."""
        self.log.sync()
        if indexes:
            self.index.sync()
            self.timeindex.sync()
            if self.txnindex is not None:
                self.txnindex.sync()

    def close(self) -> None:
        """Close the files, without writes."""
        for file in (self.log, self.index, self.timeindex, self.txnindex):
            if file is not None:
                file.close()
