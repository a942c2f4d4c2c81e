"""Moves an entire log from a store to a new log dir, where queries and groups can continue.

The reverse of `to_store`: all of the ledger's state is moved too. Batches are written as readers
see them, with their offsets and leader epochs, into segments of the topic's size, and indexes are
made as in a broker's recovery. The directory is made beside its final place, and renamed when all
of it is durable and closed as a broker closes it. So a crash leaves a complete log or none, and the
next call removes the leftovers.
"""

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any, Final

import numpy as np

from sparklog.clock import Clock, stopwatch, system_clock
from sparklog.common import TopicPartition
from sparklog.diskless.extent_logs import ExtentLogs
from sparklog.diskless.extent_objects import ExtentObjects
from sparklog.diskless.groups import GroupObjects
from sparklog.diskless.import_objects import MadeLog
from sparklog.diskless.log_creation import current_state
from sparklog.diskless.state import DisklessState
from sparklog.errors import (
    DataCorruptionError,
    InvalidRequestError,
    StorageUnavailableError,
)
from sparklog.format.names import log_name, partition_dir, snapshot_name
from sparklog.format.producer_snapshot import format_snapshot
from sparklog.fs import LOCAL, File, FileSystem, write_durably
from sparklog.log.batch_windows import Window, walk
from sparklog.log.copied_log import (
    copied_state,
    copied_topics,
    copy_all,
    next_epoch,
    offsets_by_topic,
)
from sparklog.logdir.new_log_dirs import NewLogDirs, write_partition_files
from sparklog.logdir.offset_checkpoints import CLEANED, CLEANER
from sparklog.logdir.partition.segment import Segment
from sparklog.logdir.paths import split_path
from sparklog.logdir.recovery.log_loader import load
from sparklog.logdir.segment_files import joined, segment_bases
from sparklog.opening import Path
from sparklog.progress import Progress, shows_progress
from sparklog.storage.group_store import Groups
from sparklog.storage.leader_epochs import clipped
from sparklog.storage.log_state import LogState
from sparklog.tiered.reading.options import RemoteOptions
from sparklog.tiered.reading.remote_objects import open_objects
from sparklog.tiered.target import open_store

_OFFSETS_MAX: Final = 2**31 - 1
"""The largest relative offset in the index of a segment; the size in bytes is an int32 as well."""


@shows_progress("moving")
def move_to_log_dir(
    url: str,
    path: Path,
    *,
    storage_options: Mapping[str, Any] | None = None,
    options: RemoteOptions | None = None,
    threads: int = 4,
    progress: Progress | None = None,
    fs: FileSystem = LOCAL,
    clock: Clock = system_clock,
) -> MadeLog:
    """Copy the log at `url`, as of now, into the new log dir `path`.

    The log in the store stays unchanged. Commits during the call aren't moved, so stop all writers
    first. `ledger_offset` and `time_ms` of the result say which state was moved.

    Args:
        url: The log.
        path: A missing or empty directory with a parent that exists.
        storage_options: Options of fsspec for the store.
        options: Options of the log, such as the key ring.
        threads: The number of partitions that are copied at the same time.
        progress: Called with the number of bytes done, and the total.
        fs: The file system.
        clock: The current time.

    Raises:
        InvalidRequestError: `path` is not empty, or there is no log at `url`.
        DataCorruptionError: An object is damaged, or was deleted during the call.
        LogLockedError: Another call creates the same log dir.
        StorageUnavailableError: The store fails, or the disk has too little free space. No log dir
            exists at `path` then.

    Cost:
        Reads every record once from the store, and twice from the disk.
    """
    watch = stopwatch()
    (target,) = _one(path)
    store = open_store(url, storage_options)
    objects = ExtentObjects(open_objects(lambda: store, options or RemoteOptions()))
    state = objects.remote.retry.call(lambda: current_state(store))
    total = sum(one.size for extents in state.extents.values() for one in extents)
    new = NewLogDirs(fs, clock, [target], "move")
    # The finished log is renamed to `target`, so an empty directory must make room.
    if fs.is_dir(target) and not fs.listdir(target):
        fs.rmdir(target)
    readers = Groups(GroupObjects(store, retry=objects.remote.retry)).readers()
    for damaged in readers.damaged:
        raise DataCorruptionError(
            "the position of a group can't be read, so it can't be moved: let its reader commit "
            "again, or delete it with Log.delete_reader", path=damaged,
        )  # fmt: skip
    with new:
        (directory,) = new.directories
        fs.mkdir(directory)
        if fs.free_bytes(directory) < total:
            raise StorageUnavailableError(
                f"{target}: {total} bytes are needed, {fs.free_bytes(directory)} are free; move "
                "to another disk",
                path=target,
            )
        moved = _Move(fs, clock, directory, state, objects, total, progress)
        moved.bring(threads)
        then = _copied_state(state, time_ms=max(clock(), state.log.time_ms))
        cleaned = {CLEANED: {key: then.ends[key] for key in state.gaps}, CLEANER: moved.cleaned}
        new.publish(then, cleaned=cleaned, groups=readers.groups)
    return MadeLog(
        path=target, epoch=then.epoch, offsets=offsets_by_topic(then.ends, then.starts),
        writers={name: last.batch for name, last in sorted(then.writers.items())},
        copied_objects=len(state.live_objects()), copied_bytes=total, took_ms=watch(),
        dry_run=False, ledger_offset=state.next_number, time_ms=state.log.time_ms,
    )  # fmt: skip


def _one(path: Path) -> list[str]:
    targets = split_path(path)
    if len(targets) != 1:
        raise InvalidRequestError(
            f"{path}: a log in a bucket is moved to a single log dir: pass a single directory"
        )
    return targets


def _copied_state(moved: DisklessState, *, time_ms: int) -> LogState:
    """Return the state of the new log dir.

    Topics with compacted partitions are marked as adopted, so that offsets may be missing.
    """
    gaps = {key.topic for key in moved.gaps}
    topics = {
        name: replace(
            topic, dirs=dict.fromkeys(topic.dirs, 0), adopted=topic.adopted or name in gaps
        )
        for name, topic in copied_topics(moved.log).items()
    }
    return copied_state(
        moved.log, topics, starts=moved.log.starts, time_ms=time_ms,
        epoch=next_epoch(moved.log.epoch, moved.epochs.values()),
    )  # fmt: skip


class _Move:
    """Writes the partitions of the new log dir.

    Attributes:
        cleaned: The offsets up to which the log was compacted.
    """

    def __init__(
        self,
        fs: FileSystem,
        clock: Clock,
        directory: str,
        state: DisklessState,
        objects: ExtentObjects,
        total: int,
        progress: Progress | None,
    ) -> None:
        self._fs, self._clock, self._directory = fs, clock, directory
        self._state, self._objects = state, objects
        self.cleaned: dict[TopicPartition, int] = {}
        self._done, self._total, self._progress = 0, total, progress

    def bring(self, threads: int) -> None:
        """Write all partitions, durably."""
        jobs = (partial(self._partition, key) for key in sorted(self._state.log.ends))
        list(copy_all(jobs, threads, cancel=self._objects.remote.retry.cancel))

    def _partition(self, key: TopicPartition) -> None:
        fs, state = self._fs, self._state
        topic = state.log.topics[key.topic]
        start, end = state.log.starts.get(key, 0), state.log.ends[key]
        path = joined(self._directory, partition_dir(*key))
        fs.mkdir(path)
        reached = self._records(key, path, start, end)
        config = topic.parsed()
        epochs = clipped(list(state.epochs.get(key, ())), start=start, end=end)
        write_partition_files(fs, path, key, topic.id, epochs)
        if reached < end or not segment_bases(fs, path):
            if reached < end and start < end and not (key in state.gaps or topic.adopted):
                raise DataCorruptionError(
                    f"{key}: records are missing at the end; restore the bucket from a copy",
                    path=self._objects.store.url, first=reached, end=end,
                )  # fmt: skip
            interval = config.index_interval_bytes
            Segment.create(fs, path, end, interval_bytes=interval, now=self._clock()).close()
        report = load(
            fs, path, config, self._clock, clean=True, recovery_point=end, log_start=start
        )
        if (report.start, report.end) != (start, end):
            raise DataCorruptionError(
                f"{key} should contain offsets [{start}, {end}), but contains [{report.start}, "
                f"{report.end}); check the log in the store (sparklog verify)",
                path=self._objects.store.url, first=start, end=end,
            )  # fmt: skip
        producers = state.producers.get(key)
        if producers is not None and end:
            # The ledger also knows producers whose batches were compacted or deleted. The snapshot
            # must contain them too, so that their retries are detected.
            raw = format_snapshot(producers.entries())
            write_durably(fs, joined(path, snapshot_name(end)), raw, sync_dir=False)
        fs.sync_dir(path)

    def _records(self, key: TopicPartition, path: str, start: int, end: int) -> int:
        """Write the batches of all extents; return the offset after the last batch."""
        state = self._state
        extents = state.extents.get(key, ()) if start < end else ()
        logs = ExtentLogs(self._objects, state.log_id, key.topic, extents, state.keys, eager=True)
        limit = state.log.topics[key.topic].parsed().roll_bytes
        with _Segments(self._fs, path, limit) as segments:
            for at, extent in enumerate(extents):
                if extent.size:
                    self._extent(segments, logs, at)
                else:
                    segments.begin(extent.base)
        if segments.gaps_below > start:
            self.cleaned[key] = segments.gaps_below
        return segments.end

    def _extent(self, segments: "_Segments", logs: ExtentLogs, at: int) -> None:
        extent = logs.extents[at]
        where, held = logs.path_of(extent), 0
        segments.begin(extent.base, whole=bool(extent.segment))
        try:
            for window in walk(logs.open(at)):
                if window.batches.error is not None:
                    raise window.batches.error
                segments.write(window)
                held = window.batches.end
                self._count(len(window.data))
        except FileNotFoundError as error:
            raise DataCorruptionError(
                f"{error}: the object was merged or deleted during the move, so move again; if "
                "that "
                "fails, restore the object from a copy of the bucket",
                path=where, first=extent.base, end=extent.end,
            ) from error  # fmt: skip
        if held < extent.size:
            raise DataCorruptionError(
                "the object ends within a batch; restore the object from a copy of the bucket",
                path=where, position=held, first=extent.base, end=extent.end,
            )  # fmt: skip

    def _count(self, size: int) -> None:
        self._done += size
        if self._progress is not None:
            self._progress(min(self._done, self._total), self._total)


class _Segments:
    """Writes a partition's `.log` files in sequence, and makes each file durable before the next.

    Attributes:
        end: The offset after the last batch.
        gaps_below: The offset after the last batch with missing offsets, up to which the log was
            compacted.
    """

    def __init__(self, fs: FileSystem, path: str, limit: int) -> None:
        self._fs, self._path, self._limit = fs, path, limit
        self._file: File | None = None
        self._base = self._size = 0
        self._whole = False
        self.end = self.gaps_below = 0

    def __enter__(self) -> "_Segments":
        return self

    def __exit__(self, *error: object) -> None:
        self._end()

    def begin(self, base: int, *, whole: bool = False) -> None:
        """Begin an extent. With `whole`, the extent is a closed segment, and stays a segment."""
        if self._file is None:
            self.end = base
        if self._file is None or ((whole or self._whole) and self._size):
            self._roll(base)
        self._whole = whole

    def write(self, window: Window) -> None:
        """Write a window's batches; a segment ends before the batch that doesn't fit."""
        table = window.batches.table
        stops = table["position"] + table["size"] - window.position
        at = 0
        while at < len(table):
            first = int(stops[at - 1]) if at else 0
            room = self._limit - self._size
            too_far = table["last_offset"][at:] - self._base > _OFFSETS_MAX
            fits = ((stops[at:] - first) <= room) & ~too_far
            count = len(fits) if fits.all() else int(np.argmin(fits))
            if not count and self._size:
                self._roll(int(table["base_offset"][at]))
                continue
            count = max(count, 1)  # a single batch above the maximum size of a segment
            self._put(window.data[first : int(stops[at + count - 1])])
            at += count
        if len(table):
            self._note_gaps(table["base_offset"], table["last_offset"], table["count"])
            self.end = int(table["last_offset"][-1]) + 1

    def _note_gaps(self, first: Any, last: Any, count: Any) -> None:
        holes = first > np.concatenate(([self.end], last[:-1] + 1))
        short = last - first + 1 > count
        if holes.any() or short.any():
            self.gaps_below = int(last[holes | short][-1]) + 1

    def _put(self, data: bytes | memoryview) -> None:
        assert self._file is not None
        self._file.pwrite(data, self._size)
        self._size += len(data)

    def _roll(self, base: int) -> None:
        self._end()
        self._file = self._fs.open(joined(self._path, log_name(base)), create=True)
        self._base, self._size = base, 0

    def _end(self) -> None:
        if self._file is not None:
            self._file.sync()
            self._file.close()
            self._file = None
