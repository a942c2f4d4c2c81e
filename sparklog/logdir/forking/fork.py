"""`fork`: creates a new log from the state of a log right after a commit.

Closed segments get a second name (a hard link), so a fork takes little time and no space,
regardless of the log's size. Only the segment that contains the end is copied, up to the end. The
fork has its own ledger, which starts with a snapshot; its own topic ids, because two logs must not
share a copy in remote storage; and a higher leader epoch, so that readers of the old log notice.
The old log is unchanged. The fork is created in a directory beside its final name, and renamed when
it is durable: a crash leaves the complete fork or no fork.
Source: PROTOCOL, "Leader epochs" and "Fork".
"""

import os
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any, Final

from sparklog.clock import Clock, stopwatch, system_clock
from sparklog.common import TopicPartition
from sparklog.config import LogOptions
from sparklog.errors import InvalidRequestError
from sparklog.fs import LOCAL, FileSystem
from sparklog.log.fork_points import Wanted
from sparklog.log.timeline import within
from sparklog.log.topic_names import new_topic_id
from sparklog.logdir.broker_lockout import check_file_system, mark_made
from sparklog.logdir.closing import close_commits, write_checkpoints
from sparklog.logdir.commit_log import LogDirCommits
from sparklog.logdir.forking.fork_point import ForkPoint, find_point
from sparklog.logdir.forking.partition_fork import (
    PartitionFork,
    Tally,
    complete,
    link_files,
    plan_partition_fork,
)
from sparklog.logdir.high_watermarks import publish
from sparklog.logdir.ledger import LEDGER, LEDGER_TOPIC, Ledger, ledger_config, ledger_path
from sparklog.logdir.log_dirs import write_new_dirs
from sparklog.logdir.offset_checkpoints import (
    CLEANED,
    CLEANER,
    Offsets,
    read_offsets,
    write_offsets,
)
from sparklog.logdir.opening import open_commits
from sparklog.logdir.partition.partition_log import PartitionLog
from sparklog.logdir.paths import check_writable, is_nested, split_path
from sparklog.logdir.staged_directory import StagedDirectories
from sparklog.logdir.topics_file import write_topics
from sparklog.storage.ledger_records import ForkedFrom, LedgerRecord

_TAILS: Final = "tails"


@dataclass(frozen=True, slots=True, kw_only=True)
class Forked:
    """A new fork.

    `offset`: ledger offset in the old log after the last record that the fork includes; `time_ms`:
    the time of this record. `epoch`: the fork's leader epoch. `offsets`: {topic: {partition: (log
    start, end)}}. `writers`: {writer: its last batch}. `locked_ms`: how long the old log's writers
    waited.
    """

    path: str
    offset: int
    time_ms: int
    epoch: int
    offsets: dict[str, dict[int, tuple[int, int]]]
    writers: dict[str, int]
    linked_files: int
    linked_bytes: int
    copied_bytes: int
    locked_ms: int
    took_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class _Plan:
    """The fork as planned under the lock."""

    point: ForkPoint
    parts: list[PartitionFork]
    epoch: int
    now_ms: int
    cleaned: dict[str, Offsets]  # by name of the checkpoint file
    locked_ms: int


def fork(
    path: str | os.PathLike[str],
    new_path: str | os.PathLike[str],
    *,
    writer: str | None = None,
    batch: int | None = None,
    time_ms: int | None = None,
    offsets: Wanted | None = None,
    leave_remote: bool = False,
    waits_for: str | None = None,
    options: Mapping[str, object] | None = None,
    threads: int = 8,
    fs: FileSystem = LOCAL,
    clock: Clock = system_clock,
) -> Forked:
    """Create a new log at `new_path` from the state of the log at `path` at a commit.

    Args:
        path: A log dir, or several joined by ",".
        new_path: As many new log dirs, or a single log dir for all. They must not exist, but their
            parents must. On other file systems everything is copied instead of hard-linked.
        writer, batch: Fork right after this commit. `writer` is a single writer, or a query's id
            for all of its sinks.
        time_ms: Fork right after the last commit at or before this time.
        offsets: {topic: {partition: end}}: fork right after the last commit that exceeds no end.
        leave_remote: Start at the local log start if offsets are only in remote storage.
        waits_for: A path that is created later, to which the fork belongs: see `StagedDirectories`.
        options: Options of the old log ("lock.timeout.ms").
        threads: The number of partitions to complete in parallel; they mostly wait for the disk.

    Raises: InvalidRequestError, OffsetOutOfRangeError: records were deleted (retention, compaction,
    deleted topics, the ledger's own retention) or are remote; LogLockedError: a broker runs on the
    old log, or another fork of this name is in progress; DataCorruptionError,
    StorageUnavailableError. After an error, all files of the fork are removed.
    Cost: a link for each file of closed segments, under the write lock; then a synced copy of at
    most segment.bytes per partition. Compacted partitions may have to be read.
    """
    watch = stopwatch()
    sources, targets = split_path(path), split_path(new_path)
    check_writable(targets)
    _check_places(fs, sources, targets)
    tally = Tally()
    with StagedDirectories(fs, targets, "fork", waits_for=waits_for) as staged:
        commits = open_commits(fs, clock, sources, LogOptions.parse(options or {}))
        try:
            with commits.exclusive():
                if commits.state.unsynced:
                    commits.write_snapshot()  # linked files must be durable
            given: Any = {"writer": writer, "batch": batch, "time_ms": time_ms, "offsets": offsets}
            point = find_point(commits, **given)
            plan = _plan_and_link(commits, staged, point, tally, leave_remote=leave_remote)
        finally:
            close_commits(commits)
        ids = _complete(fs, clock, staged, plan, tally, threads)
        _write(fs, clock, staged, plan, ids, origin=os.fspath(path))
        write_new_dirs(fs, staged.directories, targets)
        staged.publish()
    return Forked(
        path=os.fspath(new_path),
        offset=plan.point.offset,
        time_ms=plan.point.time_ms,
        epoch=plan.epoch,
        offsets=_spans(plan.parts),
        writers={name: last.batch for name, last in sorted(plan.point.state.writers.items())},
        linked_files=tally.linked_files,
        linked_bytes=tally.linked_bytes,
        copied_bytes=tally.copied_bytes,
        locked_ms=plan.locked_ms,
        took_ms=watch(),
    )


def _check_places(fs: FileSystem, sources: list[str], targets: list[str]) -> None:
    """Raise InvalidRequestError if there is no log, or the fork's place is invalid."""
    if len(targets) not in (1, len(sources)):
        raise InvalidRequestError(
            f"{', '.join(targets)} are {len(targets)} directories: give one, or as many as the old "
            f"log has ({len(sources)})"
        )
    if not fs.is_dir(ledger_path(sources[0])):
        raise InvalidRequestError(f"{sources[0]} holds no log of sparklog's: there is no ledger")
    for target in targets:
        for source in sources:
            if is_nested(source, target):
                raise InvalidRequestError(
                    f"{target} and the old log's {source} are nested: choose a place "
                    "beside it"
                )
        check_file_system(fs, os.path.dirname(target))


def _plan_and_link(
    commits: LogDirCommits,
    staged: StagedDirectories,
    point: ForkPoint,
    tally: Tally,
    *,
    leave_remote: bool,
) -> _Plan:
    """Choose the files and link them into the new directory. The lock prevents deletions."""
    with commits.exclusive():
        watch = stopwatch()
        fs, state = commits.fs, point.state
        known = {name: _checkpoint(commits, name) for name in (CLEANER, CLEANED)}
        parts = [
            plan_partition_fork(
                commits,
                state.topics[key.topic],
                TopicPartition(*key),
                end,
                cleaned=max(offsets.get(key, 0) for offsets in known.values()),
                leave_remote=leave_remote,
            )
            for key, end in sorted(state.ends.items())
        ]
        for number, directory in enumerate(staged.directories):
            fs.mkdir(directory)
            fs.mkdir(staged.beside(number, _TAILS))
        for part in parts:
            link_files(fs, part, *_paths(staged, part), tally)
        return _Plan(
            point=point,
            parts=parts,
            epoch=commits.state.epoch + 1,
            now_ms=max(commits.clock(), commits.state.time_ms),
            cleaned=known,
            locked_ms=watch(),
        )


def _checkpoint(commits: LogDirCommits, name: str) -> Offsets:
    found: Offsets = {}
    for directory in commits.present:
        found |= read_offsets(commits.fs, directory, name)
    return found


def _paths(staged: StagedDirectories, part: PartitionFork) -> tuple[str, str]:
    """Return the directory of a partition, and the directory of the tail's files."""
    number = _number(staged, part)
    tails = os.path.join(staged.beside(number, _TAILS), part.name)
    return os.path.join(staged.directories[number], part.name), tails


def _number(staged: StagedDirectories, part: PartitionFork) -> int:
    """Return the number of a partition's new log dir: as in the old log, or the only number."""
    return part.number if len(staged.directories) > 1 else 0


def _complete(
    fs: FileSystem, clock: Clock, staged: StagedDirectories, plan: _Plan, tally: Tally, threads: int
) -> dict[str, str]:
    """Complete all partitions durably; return the topics' ids."""
    ids = {name: new_topic_id() for name in plan.point.state.topics}

    def complete_partition(part: PartitionFork) -> None:
        complete(fs, clock, part, *_paths(staged, part), ids[part.topic], tally)

    if threads <= 1:
        for part in plan.parts:
            complete_partition(part)
        return ids
    with ThreadPoolExecutor(threads, "sparklog-fork") as pool:
        futures = [pool.submit(complete_partition, part) for part in plan.parts]
        try:
            for future in futures:
                future.result()
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise
    return ids


def _write(
    fs: FileSystem,
    clock: Clock,
    staged: StagedDirectories,
    plan: _Plan,
    ids: dict[str, str],
    *,
    origin: str,
) -> None:
    """Write the files of the log itself, as after a clean close."""
    state = plan.point.state
    for name in state.topics:
        parts = [part for part in plan.parts if part.topic == name]
        dirs = {part.partition: _number(staged, part) for part in parts}
        state.topics[name] = replace(parts[0].state, id=ids[name], dirs=dirs)
    state.ends = {part.key: part.end for part in plan.parts}
    state.starts = {part.key: part.start for part in plan.parts if part.start}
    state.local_starts, state.deleted = {}, {}
    state.idempotent &= state.ends.keys()
    state.tails = {}  # a partition may end elsewhere: do not check its last batch
    if state.abandoned is not None:
        state.abandoned = within(state.abandoned, state)
    state.epoch, state.unsynced = plan.epoch, set()
    about = ForkedFrom(origin, plan.point.offset, plan.point.time_ms)
    record = replace(state.snapshot(), fork=about)
    home = staged.directories[0]
    _write_ledger(fs, clock, home, record, epoch=plan.epoch, now_ms=plan.now_ms)
    write_topics(fs, home, state)
    for name, offsets in plan.cleaned.items():
        for number, directory in enumerate(staged.directories):
            kept: Offsets = {
                part.key: offsets[part.key]
                for part in plan.parts
                if _number(staged, part) == number and 0 < offsets.get(part.key, 0) <= part.end
            }
            if kept:
                write_offsets(fs, directory, name, kept)
    write_checkpoints(fs, staged.directories, state, 1)
    publish(fs, home, {**state.ends, LEDGER: 1}, state.starts, durable=1)
    mark_made(fs, staged.directories)


def _write_ledger(
    fs: FileSystem, clock: Clock, home: str, record: LedgerRecord, *, epoch: int, now_ms: int
) -> None:
    log = PartitionLog.create(
        fs, ledger_path(home), topic=LEDGER_TOPIC, partition=0, topic_id=new_topic_id(),
        config=ledger_config(), clock=clock,
    )  # fmt: skip
    Ledger(log).append(record, epoch=epoch, time_ms=now_ms, sync=True)
    log.close()


def _spans(parts: list[PartitionFork]) -> dict[str, dict[int, tuple[int, int]]]:
    spans: dict[str, dict[int, tuple[int, int]]] = {}
    for part in parts:
        spans.setdefault(part.topic, {})[part.partition] = (part.start, part.end)
    return spans
