"""Moving an entire log from a store to a new log dir, where its queries and groups continue.

The reverse of `to_store`: all of the ledger's state is moved too. Batches are written as readers
see them, with their offsets and leader epochs, into segments of the topic's size, and indexes are
made as in a broker's recovery. The directory is made beside its final place, and renamed when all
of it is durable and closed as a broker closes it. So a crash leaves a complete log or none, and the
next call removes the leftovers.
"""

import os
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any, Final

import numpy as np

from sparklog.clock import Clock, stopwatch, system_clock
from sparklog.common import TopicPartition
from sparklog.diskless.extent_logs import ExtentLogs
from sparklog.diskless.extent_objects import ExtentObjects
from sparklog.diskless.groups import GroupObjects
from sparklog.diskless.log_creation import MadeLog, current_state
from sparklog.diskless.state import DisklessState
from sparklog.errors import (
    DataCorruptionError,
    InvalidRequestError,
    StorageUnavailableError,
)
from sparklog.format.checkpoint_files import (
    format_partition_metadata,
)
from sparklog.format.names import PARTITION_METADATA, log_name, partition_dir, snapshot_name
from sparklog.format.producer_snapshot import format_snapshot
from sparklog.fs import LOCAL, File, FileSystem, write_durably
from sparklog.log.batch_windows import Window, walk
from sparklog.log.topic_names import new_topic_id
from sparklog.logdir.broker_lockout import check_file_system, mark_made
from sparklog.logdir.closing import write_checkpoints
from sparklog.logdir.group_offsets import write_reader
from sparklog.logdir.high_watermarks import publish
from sparklog.logdir.ledger import LEDGER, LEDGER_TOPIC, Ledger, ledger_config, ledger_path
from sparklog.logdir.log_dirs import write_new_dirs
from sparklog.logdir.offset_checkpoints import CLEANED, CLEANER, write_offsets
from sparklog.logdir.partition.leader_epochs import write_epochs
from sparklog.logdir.partition.partition_log import PartitionLog
from sparklog.logdir.partition.segment import Segment
from sparklog.logdir.paths import check_writable, split_path
from sparklog.logdir.recovery.log_loader import load
from sparklog.logdir.segment_files import joined, segment_bases
from sparklog.logdir.staged_directory import StagedDirectories
from sparklog.logdir.topics_file import write_topics
from sparklog.opening import Path
from sparklog.progress import Progress, shows_progress
from sparklog.storage.group_store import Groups
from sparklog.storage.leader_epochs import clipped
from sparklog.storage.log_state import LogState
from sparklog.storage.topic_state import TopicState
from sparklog.tiered.reading.opening import open_objects
from sparklog.tiered.reading.options import RemoteOptions
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
    """Make the new log dir `path` of the log at `url`, as of now.

    The log in the store stays unchanged. Commits during the call aren't moved, so stop its writers
    first: `ledger_offset`, `time_ms` of the result say which state was moved.
    Args: path: missing or empty, with a parent that exists. options: the key ring.
    Raises: InvalidRequestError: `path` is taken, `url` is no log; DataCorruptionError: an object is
       damaged, or was deleted during the call; LogLockedError: another call makes the same;
       StorageUnavailableError: the store, or too little room. No log dir exists at `path` then.
    Cost: reads every record once from the store, and twice from the disk.
    """
    watch = stopwatch()
    (target,) = _one(path)
    store = open_store(url, storage_options)
    objects = ExtentObjects(open_objects(lambda: store, options or RemoteOptions()))
    state = objects.remote.retry.call(lambda: current_state(store))
    total = sum(one.size for extents in state.extents.values() for one in extents)
    check_writable([target])
    check_file_system(fs, os.path.dirname(target))
    if fs.is_dir(target) and not fs.listdir(target):
        fs.rmdir(target)
    readers = Groups(GroupObjects(store, retry=objects.remote.retry)).readers()
    for damaged in readers.damaged:
        raise DataCorruptionError(
            "the position of a group can't be read, so it can't be moved: let its reader commit "
            "again, or forget it by Log.delete_reader", path=damaged,
        )  # fmt: skip
    with StagedDirectories(fs, [target], "move") as staged:
        (directory,) = staged.directories
        fs.mkdir(directory)
        if fs.free_bytes(directory) < total:
            raise StorageUnavailableError(
                f"{target}: {total} bytes are needed, {fs.free_bytes(directory)} are free; move "
                "to another disk",
                path=target,
            )
        moved = _Move(fs, clock, directory, state, objects, total, progress)
        moved.bring(threads)
        then = moved.write_log()
        for reader in readers.groups:
            write_reader(fs, directory, reader)
        mark_made(fs, [directory])
        write_new_dirs(fs, [directory], [target])
        staged.publish()
    return MadeLog(
        path=target, epoch=then.epoch, offsets=_offsets(then),
        writers={name: last.batch for name, last in sorted(then.writers.items())},
        copied_objects=len(state.live_objects()), copied_bytes=total, took_ms=watch(),
        dry_run=False, ledger_offset=state.next_number, time_ms=state.log.time_ms,
    )  # fmt: skip


def _one(path: Path) -> list[str]:
    targets = split_path(path)
    if len(targets) != 1:
        raise InvalidRequestError(f"{path}: a log in a store becomes one log dir: give one")
    return targets


def _offsets(state: LogState) -> dict[str, dict[int, tuple[int, int]]]:
    found: dict[str, dict[int, tuple[int, int]]] = {}
    for key, end in sorted(state.ends.items()):
        found.setdefault(key.topic, {})[key.partition] = state.starts.get(key, 0), end
    return found


class _Move:
    """The log dir while it is created; `state`: of the moved log."""

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
        self._cleaned: dict[TopicPartition, int] = {}
        self._done, self._total, self._progress = 0, total, progress

    def bring(self, threads: int) -> None:
        """Write all partitions, durably."""
        with ThreadPoolExecutor(max(1, threads), "sparklog-move") as pool:
            futures = [pool.submit(self._partition, key) for key in sorted(self._state.log.ends)]
            try:
                for future in futures:
                    future.result()
            except BaseException:
                self._objects.remote.retry.cancel()
                pool.shutdown(cancel_futures=True)
                raise

    def _partition(self, key: TopicPartition) -> None:
        fs, state = self._fs, self._state
        topic = state.log.topics[key.topic]
        start, end = state.log.starts.get(key, 0), state.log.ends[key]
        path = joined(self._directory, partition_dir(*key))
        fs.mkdir(path)
        metadata = format_partition_metadata(topic.id, key.partition)
        write_durably(fs, joined(path, PARTITION_METADATA), metadata, sync_dir=False)
        reached = self._records(key, path, start, end)
        config = topic.parsed()
        known = list(state.epochs.get(key, ()))
        write_epochs(fs, path, clipped(known, start=start, end=end), sync_dir=False)
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
            # also of producers without remaining batches
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
            self._cleaned[key] = segments.gaps_below
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
                f"{error}: it was merged or deleted meanwhile, so move again; if that doesn't help "
                "restore the object from a copy of the bucket",
                path=where, first=extent.base, end=extent.end,
            ) from error  # fmt: skip
        if held < extent.size:
            raise DataCorruptionError(
                "it ends within a batch; restore the object from a copy of the bucket",
                path=where, position=held, first=extent.base, end=extent.end,
            )  # fmt: skip

    def _count(self, size: int) -> None:
        self._done += size
        if self._progress is not None:
            self._progress(min(self._done, self._total), self._total)

    def write_log(self) -> LogState:
        """Write the files of the entire log, as after a clean close; return its state."""
        fs, home, known = self._fs, self._directory, self._state
        then = known.copy().log
        gaps = {key.topic for key in known.gaps}
        then.topics = {
            name: _in_log_dir(topic, gaps=name in gaps) for name, topic in then.topics.items()
        }
        then.local_starts, then.unsynced, then.deleted = {}, set(), {}
        latest = max((e for epochs in known.epochs.values() for e, _ in epochs), default=0)
        then.epoch = max(then.epoch, latest) + 1
        then.time_ms = max(self._clock(), then.time_ms)
        log = PartitionLog.create(
            fs, ledger_path(home), topic=LEDGER_TOPIC, partition=0, topic_id=new_topic_id(),
            config=ledger_config(), clock=self._clock,
        )  # fmt: skip
        Ledger(log).append(then.snapshot(), epoch=then.epoch, time_ms=then.time_ms, sync=True)
        log.close()
        write_topics(fs, home, then)
        if known.gaps:
            cleaned = {key: then.ends[key] for key in known.gaps if then.ends[key]}
            write_offsets(fs, home, CLEANED, cleaned)
        if self._cleaned:
            write_offsets(fs, home, CLEANER, self._cleaned)
        write_checkpoints(fs, [home], then, 1)
        publish(fs, home, {**then.ends, LEDGER: 1}, then.starts, durable=1)
        return then


def _in_log_dir(topic: TopicState, *, gaps: bool) -> TopicState:
    return replace(topic, dirs=dict.fromkeys(topic.dirs, 0), adopted=topic.adopted or gaps)


class _Segments:
    """A partition's `.log` files, written in sequence; each durable when it ends.

    `limit`: segment.bytes. `end`: the offset after the last batch; `gaps_below`: the offset after
    the last batch with missing offsets, up to which a cleaner has come.
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
        """Begin an extent. `whole`: a closed segment, which stays a segment."""
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
