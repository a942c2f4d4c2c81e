"""Copies a truncated checkpoint into a new directory, durably.

The original is unchanged. Files are hard-linked: Spark replaces files, and never changes them.
Records are copied as the bytes of their batches; a closed segment that stays complete is linked as
well. New files get the owner and mode of the old files, because the query may run as another user.
"""

import contextlib
import os
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from sparklog.checkpoint.batches import Batches
from sparklog.checkpoint.files import Checkpoint, walk_directories
from sparklog.checkpoint.log_backed.layout import LOGS, METADATA_PARTITION, address_of, path_of
from sparklog.checkpoint.log_backed.lock import LOCK_NAME
from sparklog.checkpoint.log_backed.metadata_marker import METADATA_FILE, write_marker
from sparklog.checkpoint.log_backed.partition import (
    CheckpointPartition,
    CheckpointSegment,
    epochs_of,
)
from sparklog.checkpoint.log_backed.partition_writer import (
    FileWriter,
    Record,
    append,
    copy_ranges,
    create,
)
from sparklog.checkpoint.truncation import Truncation
from sparklog.clock import Clock
from sparklog.errors import LogLockedError, StorageUnavailableError
from sparklog.format.names import log_name
from sparklog.fs import FileSystem, LocalFileSystem, write_durably
from sparklog.logdir.segment_files import joined
from sparklog.storage.leader_epochs import assigned


@dataclass(slots=True)
class CopyStats:
    """The number and size of the linked files, and the number of bytes copied."""

    linked_files: int = 0
    linked_bytes: int = 0
    copied_bytes: int = 0


def copy_truncated(
    checkpoint: Checkpoint,
    truncation: Truncation,
    directory: str,
    *,
    fs: FileSystem,
    clock: Clock,
) -> CopyStats:
    """Write the truncated checkpoint into the empty directory `directory`.

    Args:
        checkpoint: The original, on the file system of the copy or in a store.
        truncation: What to drop and to replace.
        directory: The copy.
        fs: The file system of the copy.
        clock: Dates the replaced records.

    Raises:
        LogLockedError: The checkpoint changes too quickly, or the query removed files that the
            batch needs.
        StorageUnavailableError: The disk is full or fails.

    Cost:
        A link and an fdatasync per file; the last segment of each partition is copied. Of a
        checkpoint in a store, a GET per file, up to 16 at once.
    """
    stats, made = CopyStats(), [directory]
    is_local = checkpoint.fs is fs
    for path in walk_directories(checkpoint.fs, checkpoint.path):
        made.append(os.path.join(directory, path))
        fs.mkdir(made[-1])
        if is_local:
            copy_mode_and_owner(fs, made[-1], checkpoint.real(path))
    for path in sorted(checkpoint.files() - truncation.dropped - truncation.replaced.keys()):
        if is_local:
            link_or_copy(fs, checkpoint.real(path), os.path.join(directory, path), stats)
        else:
            _fetch(checkpoint, path, fs, os.path.join(directory, path), stats)
    if checkpoint.is_log_backed:
        _copy_log_dir(checkpoint, truncation, os.path.join(directory, LOGS), stats, clock)
        lock = os.path.join(checkpoint.logs, LOCK_NAME)
        copy_log_dir_ownership(fs, directory, checkpoint.logs, lock)
        if checkpoint.is_record(METADATA_FILE):
            write_marker(fs, directory)
            model = os.path.join(checkpoint.logs, LOCK_NAME)
            copy_mode_and_owner(fs, os.path.join(directory, METADATA_FILE), model)
    else:
        for path, data in truncation.replaced.items():
            write_durably(fs, os.path.join(directory, path), data)
            if is_local:
                copy_mode_and_owner(fs, os.path.join(directory, path), checkpoint.real(path))
    if is_local:
        copy_mode_and_owner(fs, directory, checkpoint.path)
    # All names must be durable before the caller renames the directory to its final name.
    for each in reversed(made):
        fs.sync_dir(each)
    _check_complete(directory, truncation.batch, fs)
    return stats


def _check_complete(directory: str, batch: int, fs: FileSystem) -> None:
    """Raise LogLockedError if the query has removed files that the batch needs."""
    obstacle = Batches(Checkpoint.open(directory, fs)).obstacle(batch)
    # Spark retains only the newest batches, so a running query may delete files between the listing
    # and the copy.
    if obstacle is not None:
        raise LogLockedError(
            f"the query removed files that batch {batch} needs during the copy ({obstacle}): try "
            "again, or go back to a later batch"
        )


def _fetch(
    checkpoint: Checkpoint, path: str, fs: FileSystem, target: str, stats: CopyStats
) -> None:
    """Copy a file from a store durably, with its time, which is the time of a commit."""
    try:
        with checkpoint.fs.open(checkpoint.real(path)) as file:
            output = FileWriter(fs, target)
            copy_ranges(file, [(0, file.size())], output.write)
            output.close()
    except FileNotFoundError:  # removed since the listing; _check_complete detects missing files
        with contextlib.suppress(FileNotFoundError):
            fs.unlink(target)
        return
    fs.set_mtime_ms(target, checkpoint.stat(path).mtime_ms)
    stats.copied_bytes += output.size


def link_or_copy(fs: FileSystem, source: str, target: str, stats: CopyStats) -> None:
    """Hard-link a file durably, or copy it if the file system has no hard links."""
    try:
        with fs.open(source) as file:
            file.sync()  # Spark doesn't sync files, and the copy must be durable
            size = file.size()
            try:
                fs.link(source, target)
                stats.linked_files += 1
                stats.linked_bytes += size
            except StorageUnavailableError:
                output = FileWriter(fs, target)
                copy_ranges(file, [(0, size)], output.write)
                output.close()
                copy_mode_and_owner(fs, target, source)
                stats.copied_bytes += size
    except FileNotFoundError:
        return  # removed since the listing; _check_complete detects missing files


def _copy_log_dir(
    checkpoint: Checkpoint, truncation: Truncation, logs: str, stats: CopyStats, clock: Clock
) -> None:
    fs = checkpoint.fs
    fs.mkdir(logs)
    fs.open_lock(os.path.join(logs, LOCK_NAME)).close()
    known = frozenset(checkpoint.paths())
    gone = truncation.dropped | truncation.replaced.keys()
    names = dict.fromkeys(
        [*checkpoint.partitions, *([METADATA_PARTITION] if truncation.replaced else [])]
    )
    for name in names:
        source = checkpoint.partitions.get(name)
        target = os.path.join(logs, name)
        if source is None:
            create(fs, target)
        else:
            _copy_partition(source, known, gone, target, stats)
        records = [
            Record(address_of(path).key, data, clock())
            for path, data in truncation.replaced.items()
            if address_of(path).partition == name
        ]
        if records:
            append(CheckpointPartition(fs, target), records)
        fs.sync_dir(target)
    fs.sync_dir(logs)


def _copy_partition(
    source: CheckpointPartition,
    known: frozenset[str],
    gone: frozenset[str],
    directory: str,
    stats: CopyStats,
) -> None:
    name = os.path.basename(source.directory)
    for _ in range(5):
        # After a cleaning the read may include later batches, which the truncation doesn't name.
        later = {path_of(name, key) for key, _ in source.live()} - known
        try:
            return _copy_segments(source, gone | later, directory, stats)
        except (FileNotFoundError, InterruptedError):  # rewritten by a cleaning
            for left in source.fs.listdir(directory):
                source.fs.unlink(joined(directory, left))
            source.fs.rmdir(directory)
            source.refresh()
    raise LogLockedError(
        f"{source.directory} was rewritten each time that it was copied: try again",
        path=source.directory,
    )


def _copy_segments(
    source: CheckpointPartition, gone: frozenset[str], directory: str, stats: CopyStats
) -> None:
    fs = source.fs
    fs.mkdir(directory)
    name = os.path.basename(source.directory)
    kept_end = source.segments[0].base if source.segments else 0
    for segment in source.segments:
        kept = _kept(segment, name, gone)
        is_last = segment is source.segments[-1]
        if not kept.any() and not is_last:
            continue
        # An empty segment starts at the offset of the next record.
        base = segment.base if kept.any() else kept_end
        _copy_segment(source, segment, kept, joined(directory, log_name(base)), stats)
        if kept.any():
            last = np.flatnonzero(kept)[-1]
            kept_end = int(np.concatenate([t["last_offset"] for t in segment.tables])[last]) + 1
    # The copy continues with a higher leader epoch, so that its records can be told from those
    # that the original writes at the same offsets.
    epochs = epochs_of(fs, source.directory)
    epoch = epochs[-1][0] + 1 if epochs else 1
    create(fs, directory, assigned(epochs, epoch, kept_end))


def _kept(segment: CheckpointSegment, partition: str, gone: frozenset[str]) -> NDArray[np.bool_]:
    """Return a mask of the segment's batches that belong to remaining paths."""
    if not segment.keys:
        return np.zeros(0, np.bool_)
    keys = pa.chunked_array(segment.keys).combine_chunks().dictionary_encode()
    if isinstance(keys, pa.ChunkedArray):
        keys = pa.concat_arrays(keys.chunks)
    stays = [path_of(partition, key) not in gone for key in keys.dictionary.to_pylist()]
    kept: NDArray[np.bool_] = np.array(stays, np.bool_)[keys.indices.to_numpy()]
    return kept


def _copy_segment(
    source: CheckpointPartition,
    segment: CheckpointSegment,
    kept: NDArray[np.bool_],
    target: str,
    stats: CopyStats,
) -> None:
    """Copy or link a segment.

    Raises:
        InterruptedError: The segment was rewritten since it was read.
    """
    fs, path, linked = source.fs, source.path(segment), False
    with fs.open(path) as file:
        # The positions that were read are valid only in the same file. A cleaning replaces a
        # segment by a rename, and the name then refers to a file with other positions.
        if fs.identity(path) != segment.identity:
            raise InterruptedError(path)
        if kept.all() and segment is not source.segments[-1] and not segment.damaged:
            file.sync()  # before the link: a copy after a failure would write into the linked file
            with contextlib.suppress(StorageUnavailableError):
                fs.link(path, target)
                linked = True
        if linked:
            # The check before the link is not sufficient: a cleaning may replace the segment in
            # between.
            if fs.identity(target) != segment.identity:
                raise InterruptedError(path)
            stats.linked_files += 1
            stats.linked_bytes += segment.end
            return
        output = FileWriter(fs, target)
        if len(kept):
            table = np.concatenate(segment.tables)[kept]
            ends = table["position"] + table["size"]
            ranges = zip(table["position"].tolist(), ends.tolist(), strict=True)
            copy_ranges(file, ranges, output.write)
        stats.copied_bytes += output.size
        output.close()


def copy_mode_and_owner(fs: FileSystem, path: str, model: str) -> None:
    """Give the new file `path` the mode of `model`, and the owner of `model` if permitted."""
    if isinstance(fs, LocalFileSystem):
        fs.copy_mode_and_owner(path, model)


def copy_log_dir_ownership(fs: FileSystem, root: str, directory: str, file: str) -> None:
    """Set mode and owner of a checkpoint's new log dir, and of all files in the log dir.

    `directory` is the model for directories, and `file` the model for files.
    """
    logs = os.path.join(root, LOGS)
    partitions = [path for n in fs.listdir(logs) if fs.is_dir(path := os.path.join(logs, n))]
    copy_mode_and_owner(fs, os.path.join(logs, LOCK_NAME), file)
    for partition in partitions:
        for name in fs.listdir(partition):
            copy_mode_and_owner(fs, os.path.join(partition, name), file)
    for path in (*partitions, logs):
        copy_mode_and_owner(fs, path, directory)
