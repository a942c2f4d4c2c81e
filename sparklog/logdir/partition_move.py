"""Move a partition to another log dir of the log, while no other session has the log open.

The partition is copied to a `-future` directory under the write lock, as a single step: a failure
or a crash removes the copy. Then a ledger record gives the partition's new place.
Source: PROTOCOL, "Moving a partition to another log dir"; KIP-113.
"""

import contextlib
import os
from collections.abc import Callable
from typing import Final

from sparklog.clock import monotonic_ms
from sparklog.common import TopicPartition
from sparklog.errors import (
    DataCorruptionError,
    InvalidRequestError,
    LogLockedError,
    StorageUnavailableError,
)
from sparklog.format.names import (
    EPOCH_CHECKPOINT,
    PARTITION_METADATA,
    index_name,
    log_name,
    partition_dir,
    snapshot_name,
    timeindex_name,
    txnindex_name,
)
from sparklog.fs import FileSystem, read_bytes
from sparklog.log.admin import refuse_internal
from sparklog.log.batch_windows import walk
from sparklog.logdir.commit_log import LogDirCommits
from sparklog.logdir.free_space import SPARE_BYTES
from sparklog.logdir.log_dirs import find_dirs
from sparklog.logdir.offset_checkpoints import CLEANED, CLEANER, read_offsets, write_offsets
from sparklog.logdir.partition.producer_snapshots import snapshot_offsets
from sparklog.logdir.recovery.redo import settle_directories
from sparklog.logdir.segment_files import joined, segment_bases
from sparklog.logdir.topics_file import future_path
from sparklog.progress import Progress, shows_progress
from sparklog.storage.home import MovedPartition
from sparklog.storage.ledger_records import TopicRecord

_INDEXES: Final = (index_name, timeindex_name, txnindex_name)


@shows_progress("moving")
def move_partition(
    commits: LogDirCommits, key: TopicPartition, to: str, *, progress: Progress | None = None
) -> MovedPartition:
    """Move a partition to the log dir `to`; see `Log.move_partition`."""
    refuse_internal(key.topic)
    began_ms = monotonic_ms()
    with commits.exclusive():
        source = commits.partition_path(*key)  # raises UnknownTopicError
        topic, number = commits.state.topics[key.topic], _log_dir_number(commits, to)
        directory = commits.directories[number]
        if topic.dirs[key.partition] == number:
            raise InvalidRequestError(f"{key} is in {directory} already")
        if key in commits.offline:
            raise commits.offline[key]
        if not commits.lock.is_last():
            raise LogLockedError(
                f"{key} was not moved: {commits.home} is also open for writing elsewhere, by a "
                "service, an endpoint, a streaming query or another Log. Stop the service and "
                "close the other writers, then move the partition"
            )
        active, bases = commits.partition_log(*key).state, segment_bases(commits.fs, source)
        sizes = {base: commits.fs.size(joined(source, log_name(base))) for base in bases}
        # Not the size of the file, which may have bytes after the committed end.
        sizes[active.base] = active.size  # the committed bytes
        _check_room(commits, directory, sum(sizes.values()))
        settle_directories(commits.manager)  # removes leftovers of an earlier move
        place = joined(directory, partition_dir(*key))
        if commits.fs.exists(place):
            raise StorageUnavailableError(
                f"{place} exists; move this directory away, then move the partition"
            )
        commits.snapshot_if_due(irrevocable=True)
        target = future_path(commits.directories, key.topic, topic, key.partition, number)
        try:
            with commits.step(making=[target]) as step:
                _copy_partition(commits.fs, key, source, target, sizes, progress)
                step.record = TopicRecord.of(key.topic, topic.moved(key.partition, number), {})
        except FileNotFoundError as error:
            raise StorageUnavailableError(
                f"{error} disappeared, so {key} was not moved to {directory}"
            ) from error
        commits.manager.forget_writers()
    return MovedPartition(
        topic=key.topic, partition=key.partition, source=os.path.dirname(source), target=directory,
        bytes=sum(sizes.values()), took_ms=int(monotonic_ms() - began_ms),
    )  # fmt: skip


def _log_dir_number(commits: LogDirCommits, to: str) -> int:
    """Return the number of the log dir with the path `to`.

    Raises:
        InvalidRequestError: The path is no log dir of the log.
        StorageUnavailableError: The log dir is unavailable, or its disk is not mounted.
    """
    directories = commits.directories
    wanted, known = os.path.abspath(to), [os.path.abspath(path) for path in directories]
    if wanted not in known:
        raise InvalidRequestError(
            f"{to} is no log dir of this log, which has {', '.join(directories)}. To add it, "
            f"name it after them whenever the log is opened: {','.join([*directories, to])}"
        )
    number = known.index(wanted)
    found = find_dirs(commits.fs, directories)
    why = found.why_absent(number)
    if why is None and number < len(found.known) and number not in found.files:
        why = "its sparklog.dirs is missing: is its disk mounted?"
    if why is not None:
        place = commits.offline.dirs.place(number)
        raise StorageUnavailableError(f"no partition can be moved to {place}: {why}", path=place)
    return number


def _check_room(commits: LogDirCommits, directory: str, size: int) -> None:
    free, floor = commits.fs.free_bytes(directory), commits.options.min_free_bytes
    if free - floor < size + SPARE_BYTES:
        reserve = f", and log.min.free.bytes reserves {floor}" if floor else ""
        raise StorageUnavailableError(
            f"{directory} has {free} bytes free, but the partition takes {size}{reserve}; free "
            "space there, or move the partition to another log dir"
        )


def _copy_partition(
    fs: FileSystem,
    key: TopicPartition,
    source: str,
    target: str,
    sizes: dict[int, int],
    progress: Progress | None,
) -> None:
    """Copy a partition's files, durably, and check every batch."""
    copied, total = 0, sum(sizes.values())

    def count(size: int) -> None:
        nonlocal copied
        copied += size
        if progress is not None:
            progress(copied, total)

    fs.mkdir(target)
    for base, size in sizes.items():
        try:
            _copy_log(fs, source, target, log_name(base), size, count)
        except DataCorruptionError as error:
            raise DataCorruptionError(
                f"{error.reason}: {key} was not moved. Restore the file "
                "from a copy (`sparklog verify` shows all damage), then move the partition",
                path=error.path,
                position=error.position,
                first=base if error.first is None else error.first,
                end=min((other for other in sizes if other > base), default=None),
            ) from error
    names = [name_of(base) for base in sizes for name_of in _INDEXES]
    names += [snapshot_name(offset) for offset in sorted(snapshot_offsets(fs.listdir(source)))]
    for name in (*names, PARTITION_METADATA, EPOCH_CHECKPOINT):
        with contextlib.suppress(FileNotFoundError):
            data = read_bytes(fs, joined(source, name))
            with fs.open(joined(target, name), create=True, write=True) as copy:
                copy.pwrite(data, 0)
                copy.sync()
    fs.sync_dir(target)
    old, new = os.path.dirname(source), os.path.dirname(target)
    fs.sync_dir(new)
    # The checkpoint files belong to a log dir. Without these entries, the cleaner would start from
    # the beginning, and a later fork would not know that records are missing.
    for name in (CLEANER, CLEANED):
        if (offset := read_offsets(fs, old, name).get(key)) is not None:
            write_offsets(fs, new, name, {**read_offsets(fs, new, name), key: offset})


def _copy_log(
    fs: FileSystem, source: str, target: str, name: str, size: int, count: Callable[[int], None]
) -> None:
    """Copy the first `size` bytes of a segment's batches.

    Raises:
        DataCorruptionError: A batch is damaged.
    """
    end = 0
    with (
        fs.open(joined(source, name)) as file,
        fs.open(joined(target, name), create=True, write=True) as copy,
    ):
        for window in walk(file, start=0, limit=size):
            if window.batches.error is not None:
                raise window.batches.error
            end = window.batches.end
            copy.pwrite(memoryview(window.data)[: end - window.position], window.position)
            count(end - window.position)
        if end != size:
            raise DataCorruptionError("a batch is incomplete", path=file.path, position=end)
        copy.sync()
