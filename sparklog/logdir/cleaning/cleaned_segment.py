"""Read a closed segment to rewrite, and write the new segment to `.cleaned` files.

No lock is needed: recovery always deletes these files, and `segment_swap` replaces the sources by
these files.
Source: Cleaner.cleanSegments (Kafka 4.1).
"""

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from sparklog.errors import DataCorruptionError, InvalidRequestError
from sparklog.format.index import SegmentIndexes
from sparklog.format.names import (
    CLEANED,
    index_name,
    log_name,
    timeindex_name,
    txnindex_name,
)
from sparklog.format.scan import scan
from sparklog.fs import Buffer, File, FileSystem
from sparklog.log.batch_windows import Window, walk
from sparklog.log.cleaner_options import Throttle, unthrottled
from sparklog.logdir.cleaning.plan import Segment
from sparklog.logdir.partition.indexes import hint
from sparklog.logdir.partition.validation import misplaced, out_of_order
from sparklog.logdir.segment_files import joined


class Bounds(Protocol):
    """The base offsets of all segments of a partition, and the log end offset.

    They limit the offsets that each segment can contain.
    """

    @property
    def bases(self) -> Sequence[int]: ...

    @property
    def end(self) -> int: ...


def remove_cleaned(fs: FileSystem, directory: str) -> None:
    """Remove a partition's `.cleaned` files, the leftovers of an interrupted rewrite."""
    for name in fs.listdir(directory):
        if name.endswith(CLEANED):
            with contextlib.suppress(FileNotFoundError):
                fs.unlink(joined(directory, name))


def segment_windows(
    fs: FileSystem,
    directory: str,
    segment: Segment,
    bounds: Bounds,
    first: int = 0,
    throttle: Throttle = unthrottled,
) -> Iterator[tuple[Window, str]]:
    """Yield (window, path) of a segment: blocks of complete batches, and the log file's path.

    The segment must be intact.

    Args:
        fs: The file system.
        directory: The partition's directory.
        segment: The segment as listed.
        bounds: The base offsets of all segments, and the log end.
        first: Batches below this offset may be left out.
        throttle: Called with the size of each block, to limit the rate.

    Raises:
        DataCorruptionError: The segment is damaged.
        InvalidRequestError: The segment contains batches of magic 0 or 1.
    """
    expected = segment.base
    path = joined(directory, log_name(segment.base))
    limit = min((base for base in bounds.bases if base > segment.base), default=bounds.end)
    with fs.open(path) as file:
        at = hint(fs, directory, segment.base, file, first) if first > segment.base else 0
        for window in walk(file, start=at, limit=segment.size):
            throttle(len(window.data))
            table, error = window.batches.table, window.batches.error
            if error is not None:
                raise error
            fault = out_of_order(table, expected, limit, gaps=True)
            if fault < 0 and len(table) and int(table["last_offset"][-1]) >= limit:
                fault = int(np.argmax(table["last_offset"] >= limit))
            if fault >= 0:  # the CRC does not cover offsets
                raise misplaced(path, table[fault], expected)
            if len(table) and int(table["magic"].min()) < 2:
                raise InvalidRequestError(
                    f"{path} has record batches of magic 0 or 1, which can't be rewritten here: "
                    "let a broker before 4.0 compact the topic, or copy its records to a new topic"
                )
            if len(table):
                yield window, path
                expected = int(table["last_offset"][-1]) + 1
            at = window.batches.end
        if at != segment.size:
            raise DataCorruptionError(
                f"the file ends in a torn batch; it should have {segment.size} bytes",
                path=path,
                position=at,
            )


@dataclass(slots=True)
class CleanedSegment:
    """Writes the `.cleaned` files of a new segment, which will replace a group of segments.

    Attributes:
        directory: The partition's directory.
        interval_bytes: The topic's index.interval.bytes.
        group: The segments to replace, ascending.
        base: The base offset of the new segment.
        end: The offset after the last batch so far.
        size: The size of the log so far.
        identity: The device and inode of the new log file.
    """

    fs: FileSystem
    directory: str
    interval_bytes: int
    group: Sequence[Segment]
    base: int = 0
    end: int = 0
    size: int = 0
    identity: tuple[int, int] = (0, 0)
    _log: File = field(init=False)
    _indexes: SegmentIndexes = field(init=False)

    def __post_init__(self) -> None:
        self.base = self.end = self.group[0].base
        self._indexes = SegmentIndexes(self.base, self.interval_bytes)
        self._log = self._create(log_name(self.base))
        # The identity of this file: another cleaner may replace the file before we are done.
        self.identity = self.fs.identity(self._log.path)

    def _names(self) -> list[str]:
        base = self.base
        return [log_name(base), index_name(base), timeindex_name(base), txnindex_name(base)]

    def _path(self, name: str) -> str:
        return joined(self.directory, name + CLEANED)

    def _unlink(self, names: list[str]) -> None:
        for name in names:
            with contextlib.suppress(FileNotFoundError):
                self.fs.unlink(self._path(name))

    def _create(self, name: str) -> File:
        return self.fs.open(self._path(name), create=True)

    def write(self, data: Buffer) -> None:
        """Append batches, and add them to the new indexes. `data` must end with a whole batch."""
        table = scan(data, path=self._log.path, position=self.size, check_crc=False).table
        self._indexes.take(table)
        self._log.pwrite(data, self.size)
        self.size += len(data)
        self.end = int(table["last_offset"][-1]) + 1

    def finish(self, aborted: bytes | None) -> tuple[str, ...]:
        """Write the indexes, and make all files durable.

        Args:
            aborted: The new index of aborted transactions. Empty bytes replace an outdated index;
                None leaves the current index as it is.

        Returns:
            The names of the index files, without the suffix `.cleaned`.
        """
        self._indexes.finish()
        contents = {
            index_name(self.base): bytes(self._indexes.index),
            timeindex_name(self.base): bytes(self._indexes.timeindex),
        }
        old = joined(self.directory, txnindex_name(self.base))
        if aborted is not None and (aborted or self.fs.exists(old)):
            contents[txnindex_name(self.base)] = aborted
        changed_ms = self.fs.mtime_ms(joined(self.directory, log_name(self.group[-1].base)))
        with self._log:
            self._log.sync()
        for name, data in contents.items():
            with self._create(name) as file:
                file.pwrite(data, 0)
                file.sync()
        for name in (log_name(self.base), *contents):
            # Retention uses the log's modification time if a segment has no timestamps, so a
            # rewrite must not make old records look new.
            self.fs.set_mtime_ms(self._path(name), changed_ms)
        return tuple(contents)

    def discard(self) -> None:
        """Remove the `.cleaned` files, because the rewrite failed."""
        self._log.close()
        with contextlib.suppress(Exception):  # recovery removes leftovers
            self._unlink(self._names())
