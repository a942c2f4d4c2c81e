"""Writes a checkpoint as a cut leaves it into a new directory, durably; the original stays.

Files get a second name (hard link): Spark replaces files, it never changes them. Records are
copied as the bytes of their batches; a closed segment of which nothing goes is linked as well.
"""

import contextlib
import os
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from sparklog.checkpoint.files import Checkpoint, walk_directories
from sparklog.checkpoint.log_backed.layout import LOGS, METADATA_PARTITION, address_of, path_of
from sparklog.checkpoint.log_backed.lock import LOCK_NAME
from sparklog.checkpoint.log_backed.metadata_marker import METADATA_FILE, leave
from sparklog.checkpoint.log_backed.partition import CheckpointPartition, CheckpointSegment
from sparklog.checkpoint.log_backed.partition_writer import (
    FileWriter,
    Record,
    append,
    copy_ranges,
    create,
)
from sparklog.checkpoint.ownership import take_after, take_logs_after
from sparklog.checkpoint.truncation import Truncation
from sparklog.clock import Clock
from sparklog.errors import LogLockedError, StorageUnavailableError
from sparklog.format.names import log_name
from sparklog.fs import FileSystem, write_durably
from sparklog.logdir.partition.leader_epochs import read_epochs
from sparklog.logdir.segment_files import joined
from sparklog.storage.leader_epochs import assigned


@dataclass(slots=True)
class CopyStats:
    """What was written: names given to existing files, bytes copied, leader epochs begun."""

    linked_files: int = 0
    linked_bytes: int = 0
    copied_bytes: int = 0


def build(checkpoint: Checkpoint, cut: Truncation, directory: str, *, clock: Clock) -> CopyStats:
    """Write all that `cut` leaves of a checkpoint into `directory`, which exists and is empty.

    Raises: LogLockedError: the checkpoint changes too quickly; StorageUnavailableError.
    Cost: a link and an fdatasync a file; the last segment of each partition is copied.
    """
    fs, built = checkpoint.fs, CopyStats()
    made = [directory]
    for path in walk_directories(fs, checkpoint.path):
        made.append(os.path.join(directory, path))
        fs.mkdir(made[-1])
        take_after(fs, made[-1], checkpoint.real(path))
    for path in sorted(checkpoint.files() - cut.dropped - cut.replaced.keys()):
        _bring(fs, checkpoint.real(path), os.path.join(directory, path), built)
    if checkpoint.is_log_backed:
        _build_logs(checkpoint, cut, os.path.join(directory, LOGS), built, clock)
        take_logs_after(fs, directory, checkpoint.logs, os.path.join(checkpoint.logs, LOCK_NAME))
        if checkpoint.is_record(METADATA_FILE):
            leave(fs, directory)
            model = os.path.join(checkpoint.logs, LOCK_NAME)
            take_after(fs, os.path.join(directory, METADATA_FILE), model)
    else:
        for path, data in cut.replaced.items():
            write_durably(fs, os.path.join(directory, path), data)
            take_after(fs, os.path.join(directory, path), checkpoint.real(path))
    take_after(fs, directory, checkpoint.path)
    for each in reversed(made):
        fs.sync_dir(each)
    return built


def _bring(fs: FileSystem, source: str, target: str, built: CopyStats) -> None:
    """Give a file a second name, or copy it where there are no hard links; make it durable."""
    try:
        with fs.open(source) as file:
            file.sync()  # Spark doesn't
            size = file.size()
            try:
                fs.link(source, target)
                built.linked_files += 1
                built.linked_bytes += size
            except StorageUnavailableError:
                output = FileWriter(fs, target)
                copy_ranges(file, [(0, size)], output.write)
                output.close()
                take_after(fs, target, source)
                built.copied_bytes += size
    except FileNotFoundError:
        return  # cleaned up since it was listed; what is needed is looked for at the end


def _build_logs(
    checkpoint: Checkpoint, cut: Truncation, logs: str, built: CopyStats, clock: Clock
) -> None:
    fs = checkpoint.fs
    fs.mkdir(logs)
    fs.open_lock(os.path.join(logs, LOCK_NAME)).close()
    known, gone = frozenset(checkpoint.paths()), cut.dropped | cut.replaced.keys()
    names = dict.fromkeys([*checkpoint.partitions, *([METADATA_PARTITION] if cut.replaced else [])])
    for name in names:
        source = checkpoint.partitions.get(name)
        target = os.path.join(logs, name)
        if source is None:
            create(fs, target)
        else:
            _copy_partition(source, known, gone, target, built)
        records = [
            Record(address_of(path).key, data, clock())
            for path, data in cut.replaced.items()
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
    built: CopyStats,
) -> None:
    name = os.path.basename(source.directory)
    for _ in range(5):
        # A read of what was cleaned meanwhile takes in later batches, which the cut doesn't name.
        later = {path_of(name, key) for key, _ in source.live()} - known
        try:
            return _copy_segments(source, gone | later, directory, built)
        except (FileNotFoundError, InterruptedError):  # rewritten under our hands
            for left in source.fs.listdir(directory):
                source.fs.unlink(joined(directory, left))
            source.fs.rmdir(directory)
            source.refresh()
    raise LogLockedError(f"{source.directory} is rewritten all the time: try again")


def _copy_segments(
    source: CheckpointPartition, gone: frozenset[str], directory: str, built: CopyStats
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
        # An empty one begins where the next record comes, not where that came before.
        base = segment.base if kept.any() else kept_end
        _copy_segment(source, segment, kept, joined(directory, log_name(base)), built)
        if kept.any():
            last = np.flatnonzero(kept)[-1]
            kept_end = int(np.concatenate([t["last_offset"] for t in segment.tables])[last]) + 1
    epochs = read_epochs(fs, source.directory)
    epoch = epochs[-1][0] + 1 if epochs else 1
    create(fs, directory, assigned(epochs, epoch, kept_end))


def _kept(segment: CheckpointSegment, partition: str, gone: frozenset[str]) -> NDArray[np.bool_]:
    """Which batches of a segment belong to paths that stay."""
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
    built: CopyStats,
) -> None:
    """Raises InterruptedError: the segment isn't any more what was read."""
    fs, path, linked = source.fs, source.path(segment), False
    with fs.open(path) as file:
        if fs.identity(path) != segment.identity:
            raise InterruptedError(path)
        if kept.all() and segment is not source.segments[-1] and not segment.lost:
            file.sync()  # first: nothing may fail behind the link and end in a copy, into it
            with contextlib.suppress(StorageUnavailableError):
                fs.link(path, target)
                linked = True
        if linked:
            if fs.identity(target) != segment.identity:
                raise InterruptedError(path)
            built.linked_files += 1
            built.linked_bytes += segment.end
            return
        output = FileWriter(fs, target)
        if len(kept):
            table = np.concatenate(segment.tables)[kept]
            ends = table["position"] + table["size"]
            ranges = zip(table["position"].tolist(), ends.tolist(), strict=True)
            copy_ranges(file, ranges, output.write)
        built.copied_bytes += output.size
        output.close()
