"""A partition of a checkpoint's log dir, written. The caller holds its lock (lock.py).

Append: truncate a torn tail, write the batches, fdatasync. A failed write is truncated; a failed
fdatasync is never repeated. Clean: segment after segment, in order, so that a deletion is removed
only after what it deleted; live batches keep their bytes and offsets, and the very last batch stays
for its offset.

What differs from logdir.partition.partition_log and logdir.cleaning: no indexes, producers or
ledger to keep in step, and a deletion needs no retention, as no reader depends on seeing it.
Source: sparklog/jvm/scala/checkpoint/Partition.scala.
"""

import contextlib
import itertools
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from sparklog.checkpoint.log_backed.layout import partition_tag
from sparklog.checkpoint.log_backed.partition import (
    SEGMENT_BYTES,
    CheckpointPartition,
    CheckpointSegment,
)
from sparklog.errors import DataCorruptionError
from sparklog.format.batch import encode_one
from sparklog.format.names import CLEANED, EPOCH_CHECKPOINT, log_name
from sparklog.format.scan import rebase
from sparklog.fs import File, FileSystem
from sparklog.logdir.partition.leader_epochs import write_epochs
from sparklog.logdir.segment_files import joined

DEAD_BYTES_MIN: Final = 64 << 10
"""Below so many bytes of dead records nothing is cleaned."""

_COPY_BYTES: Final = 4 << 20


class Record(NamedTuple):
    """What becomes of a file: its content, or None to delete it; `timestamp` in ms."""

    key: str
    value: bytes | None
    timestamp: int


def create(fs: FileSystem, directory: str, epochs: Sequence[tuple[int, int]] = ((0, 0),)) -> None:
    """Make the directory of a partition, with its leader epochs, durably; where there is none."""
    if not fs.exists(directory):
        fs.mkdir(directory)
    if not fs.exists(joined(directory, EPOCH_CHECKPOINT)):
        write_epochs(fs, directory, list(epochs))
    fs.sync_dir(os.path.dirname(directory))


def append(
    partition: CheckpointPartition, records: Iterable[Record], *, segment_bytes: int = SEGMENT_BYTES
) -> None:
    """Write records to the end; they are durable when the call returns, all or (on error) none
    of those that went into the last segment.

    Raises: StorageUnavailableError; DataCorruptionError: the partition is damaged.
    """
    partition.refresh()
    if partition.segments:
        _truncate_torn_tail(partition, partition.segments[-1])
    offset, epoch = partition.next_offset, partition.epoch
    tag = partition_tag(os.path.basename(partition.directory))
    encoded = (_batch(record, offset + n, epoch, tag) for n, record in enumerate(records))
    while (first := next(encoded, None)) is not None:
        offset = _append_some(partition, itertools.chain([first], encoded), segment_bytes)
    partition.refresh()


def clean(partition: CheckpointPartition) -> bool:
    """Rewrite the segments if more of them is dead than alive, and over 64 KiB; tell whether.

    Cost: the live bytes are copied and synced.
    """
    partition.refresh()
    remove_leftovers(partition.fs, partition.directory)
    total = sum(segment.end for segment in partition.segments)
    alive = sum(entry.size for _, entry in partition.live())
    if total - alive <= alive + DEAD_BYTES_MIN:
        return False
    for segment in partition.segments:
        _clean_segment(partition, segment)
    partition.refresh()
    return True


def remove_leftovers(fs: FileSystem, directory: str) -> None:
    """Remove what a crash left of a cleaning."""
    for name in fs.listdir(directory):
        if name.endswith(CLEANED):
            fs.unlink(joined(directory, name))


def copy_ranges(
    source: File, ranges: Iterable[tuple[int, int]], write: Callable[[bytes], None]
) -> None:
    """Pass the byte ranges [first, end) of a file to `write`, adjacent ones together.

    Raises: DataCorruptionError: the file ends before a range does.
    """
    for first, end in _adjacent_joined(ranges):
        at = first
        while at < end:
            data = source.pread(min(_COPY_BYTES, end - at), at)
            if not data:
                raise DataCorruptionError("the file became shorter", path=source.path, position=at)
            write(data)
            at += len(data)


def _adjacent_joined(ranges: Iterable[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """Join byte ranges that touch; they come in order."""
    held: tuple[int, int] | None = None
    for first, end in ranges:
        if held is not None and held[1] == first:
            held = held[0], end
            continue
        if held is not None:
            yield held
        held = first, end
    if held is not None:
        yield held


class FileWriter:
    """A file that is written from its start; `close` makes its contents durable."""

    def __init__(self, fs: FileSystem, path: str) -> None:
        self._file = fs.open(path, create=True)
        self._file.truncate(0)
        self.size = 0

    def write(self, data: bytes | bytearray) -> None:
        """Append `data`."""
        self._file.pwrite(data, self.size)
        self.size += len(data)

    def close(self) -> None:
        """Sync and close."""
        self._file.sync()
        self._file.close()


def _batch(record: Record, offset: int, epoch: int, tag: int) -> bytearray:
    value = record.value
    batch = encode_one(record.key.encode(), value, timestamp=record.timestamp, base_sequence=tag)
    rebase(batch, offset, epoch)
    return batch


def _append_some(
    partition: CheckpointPartition, batches: Iterator[bytearray], segment_bytes: int
) -> int:
    """Append to the last segment until it is full, or nothing is left; return the next offset."""
    if not partition.segments or partition.segments[-1].end >= segment_bytes:
        _roll(partition)
    segment = partition.segments[-1]
    at = segment.end
    if not at:  # its maker may have died before its name was durable
        partition.fs.sync_dir(partition.directory)
    with partition.fs.open(partition.path(segment), write=True) as file:
        try:
            for batch in batches:
                file.pwrite(batch, at)
                at += len(batch)
                if at >= segment_bytes:
                    break
            file.sync()
        except Exception:
            with contextlib.suppress(Exception):  # the first error is the one to tell
                file.truncate(segment.end)
            raise
    partition.refresh()
    return partition.next_offset


def _roll(partition: CheckpointPartition) -> None:
    fs, path = partition.fs, joined(partition.directory, log_name(partition.next_offset))
    fs.open(path, create=True).close()
    fs.sync_dir(partition.directory)
    partition.refresh()


def _truncate_torn_tail(partition: CheckpointPartition, segment: CheckpointSegment) -> None:
    if segment.is_torn:
        with partition.fs.open(partition.path(segment), write=True) as file:
            file.truncate(segment.end)
            file.sync()


def _clean_segment(partition: CheckpointPartition, segment: CheckpointSegment) -> None:
    """Keep the live batches of a segment; of the last one the last batch, too."""
    spans = {
        (entry.position, entry.position + entry.size)
        for _, entry in partition.live()
        if entry.base == segment.base
    }
    if segment is partition.segments[-1] and segment.tables:
        last = segment.tables[-1][-1]
        spans.add((int(last["position"]), int(last["position"] + last["size"])))
    fs, path = partition.fs, partition.path(segment)
    if not spans and segment is not partition.segments[-1]:
        fs.unlink(path)
        fs.sync_dir(partition.directory)
    elif sum(end - first for first, end in spans) < segment.end:
        output = FileWriter(fs, path + CLEANED)
        with fs.open(path) as source:
            copy_ranges(source, sorted(spans), output.write)
        output.close()
        fs.rename(path + CLEANED, path)
        fs.sync_dir(partition.directory)
