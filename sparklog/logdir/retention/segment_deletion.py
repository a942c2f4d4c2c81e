"""Rolls and deletes segments: the short steps of retention under the write lock.

Rolling during appends: `sparklog.logdir.partition.rolling`.

A deletion first raises the log start by a ledger record, as `delete_records` does. Then it renames
the segments below it to `.deleted`, oldest first. If it is interrupted, the other segments are
below the log start and are deleted next time. Readers with an open file can finish, because the
inode stays; a reader that can't open a renamed file lists again and finds the new log start.
Source: LocalLog.removeAndDeleteSegments (4.1).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from sparklog.clock import monotonic_ms
from sparklog.common import TopicPartition
from sparklog.errors import SparklogError, StorageUnavailableError
from sparklog.fs import FileSystem
from sparklog.log.due_segments import (
    DueSegments,
    LocalSegment,
    RetentionConstraints,
    due,
    largest_timestamps,
)
from sparklog.logdir.commit_log import LogDirCommits
from sparklog.logdir.partition.partition_segments import LogDirSegments
from sparklog.logdir.partition.segment_swap import retire
from sparklog.logdir.retention.partition_retention import (
    PartitionRetention,
    retention_of,
    segments_of,
)
from sparklog.logdir.segment_files import segment_bases
from sparklog.storage.ledger_records import StartRecord


@dataclass(slots=True, kw_only=True)
class Deletion:
    """The result of a deletion.

    Attributes:
        taken: {partition: the deleted segments}.
        failed: {partition: error} of damaged partitions, which were left unchanged.
        waiting: {path: file.delete.delay.ms} of the files that were renamed to `.deleted`.
        locked_ms: The time under the lock.
    """

    taken: dict[TopicPartition, DueSegments] = field(default_factory=dict)
    failed: dict[TopicPartition, Exception] = field(default_factory=dict)  # damaged; left alone
    waiting: dict[str, int] = field(default_factory=dict)  # path: file.delete.delay.ms
    locked_ms: float = 0.0


def roll(commits: LogDirCommits, keys: list[TopicPartition]) -> None:
    """Start a new segment in each of these partitions, in a single step. Under the lock.

    Offsets don't change, and no record is written. An empty active segment is not rolled.
    """
    with commits.changing_files(keys):
        for key in keys:
            log = commits.partition_log(*key)
            log.roll()
            log.sync()


def roll_if_active(commits: LogDirCommits, key: TopicPartition, base: int) -> None:
    """Roll a partition if the segment `base` is still its active segment. Under the lock."""
    if segment_bases(commits.fs, commits.partition_path(*key))[-1:] == [base]:
        roll(commits, [key])


def due_segments_of(
    fs: FileSystem,
    place: PartitionRetention,
    segments: Sequence[LocalSegment],
    *,
    now_ms: int,
    terms: RetentionConstraints,
) -> DueSegments:
    """Return which of a partition's segments may be deleted or must be rolled.

    Without the lock the result is a guess, which must be verified under the lock.

    Args:
        fs: The file system.
        place: The partition.
        segments: The partition's segments, ascending.
        now_ms: The current time.
        terms: Constraints that are not part of the topic's config, such as readers.
    """
    first = segments[0].base if segments and terms.tier is None else 0
    return due(
        segments,
        place.config,
        log_start=max(place.log_start, first),
        local_start=place.local_start,
        end=place.end,
        now_ms=now_ms,
        largest=largest_timestamps(LogDirSegments(fs, place.directory), place.end),
        terms=terms,
    )


def delete_due(
    commits: LogDirCommits,
    keys: Mapping[TopicPartition, RetentionConstraints],
    *,
    now_ms: int,
    budget_ms: float,
) -> Deletion:
    """Delete due segments of some partitions, as many as fit into `budget_ms` under the lock.

    Args:
        commits: The open log.
        keys: {(topic, partition): constraints on retention there}.
        now_ms: The current time.
        budget_ms: The maximum time under the lock.

    Cost: a ledger record (an fdatasync) per call, and a directory sync per partition.

    Returns:
        The deleted segments, and the damaged partitions. Other partitions were not reached in time.

    Raises:
        StorageUnavailableError: The log is unchanged, or the deletion continues next time.
    """
    done = Deletion()
    with commits.exclusive():
        began = monotonic_ms()
        for key, terms in keys.items():
            # At least one partition per step, or a slow disk would stop retention completely.
            if done.taken and monotonic_ms() - began > budget_ms:
                break
            try:
                done.taken[key] = _due_under_lock(commits, key, now_ms=now_ms, terms=terms)
            except (SparklogError, OSError) as error:
                done.failed[key] = error
        _delete(commits, done)
        done.locked_ms = monotonic_ms() - began
    return done


def _due_under_lock(
    commits: LogDirCommits, key: TopicPartition, *, now_ms: int, terms: RetentionConstraints
) -> DueSegments:
    """Return a partition's due segments, under the write lock.

    `terms` are constraints on retention that are not part of the topic's config.

    Raises:
        UnknownTopicError: The partition was deleted.
        DataCorruptionError: The partition is offline.
    """
    directory = commits.partition_path(*key)
    if key in commits.offline:
        raise commits.offline[key]
    state = commits.state
    place = retention_of(state, key, directory, state.topics[key.topic].parsed())
    segments = segments_of(commits.fs, directory)
    return due_segments_of(commits.fs, place, segments, now_ms=now_ms, terms=terms)


def _delete(commits: LogDirCommits, done: Deletion) -> None:
    rolling = [key for key, found in done.taken.items() if found.rolls]
    if rolling:
        roll(commits, rolling)
    state = commits.state
    starts: dict[TopicPartition, int] = {}
    local_starts: dict[TopicPartition, int] = {}
    for key, found in done.taken.items():
        if not found.expired:
            continue
        if found.local and found.log_start > state.local_start(*key):
            local_starts[key] = found.log_start
        elif not found.local and found.log_start > state.starts.get(key, 0):
            starts[key] = found.log_start
    if (starts or local_starts) and not _record_starts(commits, starts, local_starts):
        done.taken.clear()  # not published; the next round deletes below the start
        return
    if any(found.expired for found in done.taken.values()):
        # A power cut must not undo the published starts but not the renames.
        commits.fs.sync_dir(commits.home)
    for key, found in done.taken.items():
        if found.expired:
            delay_ms = commits.state.topics[key.topic].parsed().file_delete_delay_ms
            directory = commits.partition_path(*key)
            for segment in found.expired:
                for path in retire(commits.fs, directory, segment.base):
                    done.waiting[path] = delay_ms
            commits.fs.sync_dir(directory)


def _record_starts(
    commits: LogDirCommits,
    starts: Mapping[TopicPartition, int],
    local_starts: Mapping[TopicPartition, int],
) -> bool:
    """Raise log starts and local log starts by a ledger record. Under the lock.

    Returns True if readers see the new starts.
    """
    # With flush=none, a power cut could otherwise drop the record of the new start, although the
    # segments below it are already renamed.
    commits.snapshot_if_due(irrevocable=True)
    with commits.step() as step:
        step.record = StartRecord(starts=_typed(starts), local_starts=_typed(local_starts) or None)
    # An open partition log still has the old start.
    commits.manager.forget_writers()
    return commits.manager.is_current


def _typed(starts: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
    return {TopicPartition(*key): offset for key, offset in starts.items()}


def raise_starts(
    commits: LogDirCommits, wanted: Mapping[TopicPartition, int]
) -> dict[TopicPartition, int]:
    """Raise log starts to the offsets `wanted`; return {partition: current log start}.

    No segment is changed. This is for remote segments, which may be deleted only when no reader
    looks for them. Missing partitions, and offsets below the log start or above the end, are
    skipped. The log starts are durable on return.

    Raises:
        StorageUnavailableError: The remote segments must not be deleted.
    """
    with commits.exclusive():
        state = commits.state
        known = {key: at for key, at in wanted.items() if at <= state.ends.get(key, -1)}
        known = {key: at for key, at in known.items() if key not in commits.offline}
        raised = {key: at for key, at in known.items() if at > state.starts.get(key, 0)}
        if raised and not _record_starts(commits, raised, {}):
            raise StorageUnavailableError(
                f"{commits.home}: the new log starts can't be published to readers, so no remote "
                "segment is deleted"
            )
        if known:
            commits.fs.sync_dir(commits.home)
        return {key: state.starts.get(key, 0) for key in known}
