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
from dataclasses import dataclass, replace
from functools import partial

from sparklog.clock import Clock, stopwatch, system_clock
from sparklog.common import TopicPartition
from sparklog.config import LogOptions
from sparklog.errors import InvalidRequestError
from sparklog.fs import LOCAL, FileSystem
from sparklog.log.copied_log import (
    copied_state,
    copied_topics,
    copy_all,
    next_epoch,
    offsets_by_topic,
)
from sparklog.log.fork_points import ForkPointRequest
from sparklog.log.topic_names import new_topic_id
from sparklog.logdir.closing import close_commits
from sparklog.logdir.commit_log import LogDirCommits
from sparklog.logdir.forking.fork_point import ForkPoint, find_point
from sparklog.logdir.forking.partition_fork import (
    ForkFiles,
    PartitionFork,
    plan_partition_fork,
)
from sparklog.logdir.ledger import ledger_path
from sparklog.logdir.new_log_dirs import NewLogDirs
from sparklog.logdir.offset_checkpoints import CLEANED, CLEANER, Offsets, read_offsets
from sparklog.logdir.opening import open_commits
from sparklog.logdir.paths import is_nested, split_path
from sparklog.storage.ledger_records import ForkedFrom
from sparklog.storage.log_state import LogState
from sparklog.storage.topic_state import TopicState


@dataclass(frozen=True, slots=True, kw_only=True)
class Forked:
    """The result of a fork.

    Attributes:
        offset: The ledger offset in the old log after the last record that the fork includes.
        time_ms: The time of this record.
        epoch: The fork's leader epoch.
        offsets: {topic: {partition: (log start, end)}}.
        writers: {writer: last batch}.
        linked_files: The number of files that both logs share by hard links.
        linked_bytes: The size of these files.
        copied_bytes: The size of the copied files.
        locked_ms: How long the old log's writers waited.
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
    """The fork as planned under the lock.

    Attributes:
        parts: The partitions to fork.
        state: The state with which the ledger of the fork starts.
        cleaned: {name of a checkpoint file: the offsets up to which cleaners have read}.
        locked_ms: How long the old log was locked.
    """

    parts: list[PartitionFork]
    state: LogState
    cleaned: dict[str, Offsets]  # by name of the checkpoint file
    locked_ms: int


def fork(
    path: str | os.PathLike[str],
    new_path: str | os.PathLike[str],
    wanted: ForkPointRequest,
    *,
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
        wanted: The commit after which the fork ends.
        waits_for: A path that is created later, to which the fork belongs: see `StagedDirectories`.
        options: Options of the old log ("lock.timeout.ms").
        threads: The number of partitions to complete in parallel; they mostly wait for the disk.

    Cost: a link for each file of closed segments, under the write lock; then a synced copy of at
    most segment.bytes per partition. Compacted partitions may have to be read. After an error, all
    files of the fork are removed.

    Raises:
        InvalidRequestError, OffsetOutOfRangeError: Records were deleted (by retention, compaction,
            a deletion of their topic, or the ledger's own retention), or are remote.
        LogLockedError: A broker runs on the old log, or another fork of this name is in progress.
        DataCorruptionError, StorageUnavailableError: Files can't be read or written.
    """
    watch = stopwatch()
    sources, targets = split_path(path), split_path(new_path)
    new_dirs = NewLogDirs(fs, clock, targets, "fork", waits_for=waits_for)
    _check_places(fs, sources, targets)
    with new_dirs as new:
        files = ForkFiles(fs, clock, new)
        commits = open_commits(fs, clock, sources, LogOptions.parse(options or {}))
        try:
            with commits.exclusive():
                if commits.state.unsynced:
                    commits.write_snapshot()  # linked files must be durable
            point = find_point(commits, wanted)
            plan = _plan_and_link(commits, new, files, point, leave_remote=wanted.leave_remote)
        finally:
            close_commits(commits)
        state = plan.state
        jobs = (
            partial(files.complete, part, state.topics[part.key.topic].id) for part in plan.parts
        )
        # After the old log is closed, so that its writers don't wait for the copies: links can't be
        # deleted under the fork any more.
        list(copy_all(jobs, threads))
        about = ForkedFrom(os.fspath(path), point.offset, point.time_ms)
        new.publish(state, fork=about, cleaned=plan.cleaned)
    return Forked(
        path=os.fspath(new_path),
        offset=point.offset,
        time_ms=point.time_ms,
        epoch=state.epoch,
        offsets=offsets_by_topic(state.ends, state.starts),
        writers={name: last.batch for name, last in sorted(state.writers.items())},
        linked_files=files.linked_files,
        linked_bytes=files.linked_bytes,
        copied_bytes=files.copied_bytes,
        locked_ms=plan.locked_ms,
        took_ms=watch(),
    )


def _check_places(fs: FileSystem, sources: list[str], targets: list[str]) -> None:
    """Raise InvalidRequestError if the old log has no ledger, or the new log dirs are invalid.

    There must be one new log dir, or as many as old log dirs, and none may be within another.
    """
    if len(targets) not in (1, len(sources)):
        raise InvalidRequestError(
            f"{', '.join(targets)} are {len(targets)} directories: name a single directory, or as "
            f"many as the old log has ({len(sources)})"
        )
    if not fs.is_dir(ledger_path(sources[0])):
        raise InvalidRequestError(
            f"{sources[0]} has no ledger and can't be forked, because sparklog has never opened it "
            "for writing"
        )
    for target in targets:
        for source in sources:
            if is_nested(source, target):
                raise InvalidRequestError(
                    f"{target} and the old log's {source} are nested: choose a place "
                    "beside it"
                )


def _plan_and_link(
    commits: LogDirCommits,
    new: NewLogDirs,
    files: ForkFiles,
    point: ForkPoint,
    *,
    leave_remote: bool,
) -> _Plan:
    """Plan the fork at `point`, and link the files into the new log dirs, under the write lock.

    The lock prevents deletions meanwhile. `leave_remote`: leave out records that are only in remote
    storage.
    """
    with commits.exclusive():
        watch = stopwatch()
        known = {name: _checkpoint(commits, name) for name in (CLEANER, CLEANED)}
        topics = copied_topics(point.state)
        parts = [
            plan_partition_fork(
                commits,
                topics[key.topic],
                TopicPartition(*key),
                end,
                new,
                cleaned=max(offsets.get(key, 0) for offsets in known.values()),
                leave_remote=leave_remote,
            )
            for key, end in sorted(point.state.ends.items()) if key.topic in topics
        ]
        files.make_directories()
        for part in parts:
            files.link(part)
        state = copied_state(
            point.state,
            {name: _forked_topic([p for p in parts if p.key.topic == name]) for name in topics},
            starts={part.key: part.start for part in parts},
            epoch=next_epoch(commits.state.epoch, (part.epochs for part in parts)),
            time_ms=max(commits.clock(), commits.state.time_ms),
        )
        return _Plan(parts=parts, state=state, cleaned=known, locked_ms=watch())


def _forked_topic(parts: list[PartitionFork]) -> TopicState:
    """Return a topic of the fork, with a new id, from its partitions."""
    dirs = {part.key.partition: part.number for part in parts}
    return replace(parts[0].state, id=new_topic_id(), dirs=dirs)


def _checkpoint(commits: LogDirCommits, name: str) -> Offsets:
    found: Offsets = {}
    for directory in commits.present:
        found |= read_offsets(commits.fs, directory, name)
    return found
