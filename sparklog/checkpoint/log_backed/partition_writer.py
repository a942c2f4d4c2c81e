"""Writes a partition of a checkpoint's log dir. The caller locks it before (lock.py).

Append: truncate a torn tail, write the batches, fdatasync. After a failed write the file is
truncated; a failed fdatasync is never repeated. Clean: segment after segment, in order, so that a
deletion is removed only after the records that it deleted. Live batches keep their bytes and
offsets, and the very last batch stays for its offset.

Unlike logdir.partition.partition_log and logdir.cleaning, there are no indexes, producers or ledger
to update, and a deletion needs no retention, because no reader depends on seeing it. Source:
sparklog/jvm/scala/checkpoint/Partition.scala.
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
"""A partition with fewer bytes of dead records is not cleaned."""

_COPY_BYTES: Final = 4 << 20


class Record(NamedTuple):
    """A new version of a file: the content (None deletes the file), and a timestamp in ms."""

    key: str
    value: bytes | None
    timestamp: int


def create(fs: FileSystem, directory: str, epochs: Sequence[tuple[int, int]] = ((0, 0),)) -> None:
    """Create a partition's directory and leader epochs, durably, unless the directory exists."""
    if not fs.exists(directory):
        fs.mkdir(directory)
    # A crash may have left the directory without the epochs, so both are checked.
    if not fs.exists(joined(directory, EPOCH_CHECKPOINT)):
        write_epochs(fs, directory, list(epochs))
    fs.sync_dir(os.path.dirname(directory))


def append(
    partition: CheckpointPartition, records: Iterable[Record], *, segment_bytes: int = SEGMENT_BYTES
) -> None:
    """Append records, durably.

    After an error none of the records for the last segment are appended.

    Raises:
        StorageUnavailableError: The disk is full or fails.
        DataCorruptionError: The partition is damaged.
    """
    partition.refresh()
    # Readers take bytes after an incomplete batch for damage once a complete batch follows.
    if partition.segments:
        _truncate_torn_tail(partition, partition.segments[-1])
    offset, epoch = partition.next_offset, partition.epoch
    tag = partition_tag(os.path.basename(partition.directory))
    # Encoded one by one, because an import passes records of up to 32 MiB.
    encoded = (_batch(record, offset + n, epoch, tag) for n, record in enumerate(records))
    while (first := next(encoded, None)) is not None:
        offset = _append_some(partition, itertools.chain([first], encoded), segment_bytes)
    partition.refresh()


def clean(partition: CheckpointPartition) -> bool:
    """Rewrite the segments if dead bytes exceed live bytes by over 64 KiB.

    Returns whether the segments were rewritten. Cost: live bytes are copied and synced.
    """
    partition.refresh()
    remove_leftovers(partition.fs, partition.directory)
    total = sum(segment.end for segment in partition.segments)
    alive = sum(entry.size for _, entry in partition.live())
    if total - alive <= alive + DEAD_BYTES_MIN:
        return False
    # The oldest segment first: a deletion may go only after the records that it deleted, else a
    # crash in between would bring the deleted file back.
    for segment in partition.segments:
        _clean_segment(partition, segment)
    partition.refresh()
    return True


def remove_leftovers(fs: FileSystem, directory: str) -> None:
    """Remove files of an interrupted cleaning."""
    for name in fs.listdir(directory):
        if name.endswith(CLEANED):
            fs.unlink(joined(directory, name))


def copy_ranges(
    source: File, ranges: Iterable[tuple[int, int]], write: Callable[[bytes], None]
) -> None:
    """Pass the byte ranges [first, end) of a file to `write`, joining adjacent ranges.

    Raises:
        DataCorruptionError: The file ends before a range does.
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
    """Join adjacent byte ranges, which must be in order."""
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
    """A new file, written from the start. `close` makes the content durable."""

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
    """Append to the last segment until it is full, or no batch is left. Return the next offset."""
    if not partition.segments or partition.segments[-1].end >= segment_bytes:
        _roll(partition)
    segment = partition.segments[-1]
    at = segment.end
    if not at:  # the process that created it may have died before its name was durable
        partition.fs.sync_dir(partition.directory)
    with partition.fs.open(partition.path(segment), write=True) as file:
        try:
            for batch in batches:
                file.pwrite(batch, at)
                at += len(batch)
                if at >= segment_bytes:
                    break
            file.sync()
        # After a failed fdatasync the kernel may report success for the same pages, though they
        # never reached the disk. Therefore the bytes are removed, and not synced again.
        except Exception:
            with contextlib.suppress(Exception):  # raise the first error
                file.truncate(segment.end)
            raise
    partition.refresh()
    return partition.next_offset


def _roll(partition: CheckpointPartition) -> None:
    fs, path = partition.fs, joined(partition.directory, log_name(partition.next_offset))
    fs.open(path, create=True).close()
    fs.sync_dir(partition.directory)  # a synced batch in a file without a name would be lost
    partition.refresh()


def _truncate_torn_tail(partition: CheckpointPartition, segment: CheckpointSegment) -> None:
    if segment.is_torn:
        with partition.fs.open(partition.path(segment), write=True) as file:
            file.truncate(segment.end)
            file.sync()


def _clean_segment(partition: CheckpointPartition, segment: CheckpointSegment) -> None:
    """Keep the live batches of a segment; in the last segment also the last batch."""
    spans = {
        (entry.position, entry.position + entry.size)
        for _, entry in partition.live()
        if entry.base == segment.base
    }
    # Without the last batch, its offset would be assigned again to another record.
    if segment is partition.segments[-1] and segment.tables:
        last = segment.tables[-1][-1]
        spans.add((int(last["position"]), int(last["position"] + last["size"])))
    fs, path = partition.fs, partition.path(segment)
    if not spans and segment is not partition.segments[-1]:
        fs.unlink(path)
        fs.sync_dir(partition.directory)
    # A new file and a rename: readers that have the old file open continue to read it.
    elif sum(end - first for first, end in spans) < segment.end:
        output = FileWriter(fs, path + CLEANED)
        with fs.open(path) as source:
            copy_ranges(source, sorted(spans), output.write)
        output.close()
        fs.rename(path + CLEANED, path)
        fs.sync_dir(partition.directory)
