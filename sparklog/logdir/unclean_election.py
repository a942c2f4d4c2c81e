"""Unclean leader election: brings an offline partition back online, with data loss.

As in Kafka, the election makes a partition available although records are lost. Offsets are never
assigned twice, so new records start at the old end, and the ledger records which offsets were lost.
The remaining files of a partition are renamed to a stray directory beside it.
"""

import logging
import os
from collections.abc import Collection, Iterable
from dataclasses import replace
from typing import Final

from sparklog.common import TopicPartition
from sparklog.errors import DataCorruptionError
from sparklog.logdir.closing import is_partition_whole
from sparklog.logdir.commit_log import LogDirCommits
from sparklog.logdir.log_dirs import retire_dirs
from sparklog.logdir.offline_partitions import stored_metadata, why_foreign
from sparklog.logdir.recovery.redo import stray_name
from sparklog.logdir.recovery.single_partition import (
    check_partition,
    recover_partition,
    recovery_points,
)
from sparklog.logdir.segment_files import segment_bases
from sparklog.storage.commits import Change
from sparklog.storage.home import GivenUp, not_offline
from sparklog.storage.ledger_records import GivenUpRange, StartRecord, TopicRecord

_LOGGER: Final = logging.getLogger(__name__)


def give_up(
    commits: LogDirCommits, topic: str | None, partitions: Iterable[int] | None, *, dry_run: bool
) -> list[GivenUp]:
    """Bring offline partitions back online, giving up missing data; see `Log.give_up`."""
    with commits.exclusive():
        # The caller may pass an iterator, which can be read only once.
        numbers = None if partitions is None else set(partitions)
        damaged = _recover_damaged(commits, topic, numbers, dry_run=dry_run)
        offline = {**commits.offline, **damaged}
        keys = _chosen(offline, topic, numbers)
        losses = [_loss(commits, key, offline[key]) for key in keys]
        if dry_run:
            return losses
        for lost in losses:
            _LOGGER.warning(
                "%s-%d: offsets [%d, %d) are given up: %s",
                lost.topic, lost.partition, lost.first, lost.end, lost.why,
            )  # fmt: skip
            (_raise_start if lost.kept else _reset_partition)(commits, lost)
        _retire_dirs(commits)
        commits.manager.idle()
        return losses


def _recover_damaged(
    commits: LogDirCommits, topic: str | None, partitions: set[int] | None, *, dry_run: bool
) -> dict[TopicPartition, DataCorruptionError]:
    """Recover the online partitions that differ from the ledger, before offline ones are given up.

    A partition that can't be recovered goes offline. Without this, a partition that was damaged
    since the log was opened would count as intact until its next write. A dry run changes no files,
    and returns {partition: error} of the partitions that would go offline.
    """
    damaged: dict[TopicPartition, DataCorruptionError] = {}
    for key in sorted(commits.state.ends.keys() - commits.offline.keys()):
        if topic not in (None, key.topic):
            continue
        if partitions is not None and key.partition not in partitions:
            continue
        if not is_partition_whole(commits, *key):
            if not dry_run:
                commits.manager.writers.drop()
                recover_partition(commits.manager, key, recovery_points(commits.manager))
            elif (error := check_partition(commits.manager, key)) is not None:
                damaged[key] = error
    return damaged


def _chosen(
    offline: Collection[TopicPartition], topic: str | None, partitions: set[int] | None
) -> list[TopicPartition]:
    if topic is None:
        return sorted(offline)
    wanted = sorted(key for key in offline if key.topic == topic)
    if partitions is not None:
        wanted = [TopicPartition(topic, partition) for partition in sorted(partitions)]
    available = [key.partition for key in wanted if key not in offline]
    if available:
        raise not_offline(topic, available)
    return wanted


def _loss(commits: LogDirCommits, key: TopicPartition, error: DataCorruptionError) -> GivenUp:
    """Return the records that are lost if an offline partition is given up.

    These are the records before the first existing segment, or all records if no segment can be
    used.
    """
    state = commits.state
    start, end = state.starts.get(key, 0), state.ends[key]
    is_partial, last = False, end
    if (
        commits.offline.dirs.why_absent(state.topics[key.topic].dirs[key.partition])
        is None
    ):
        path = commits.partition_path(*key)
        exists = commits.fs.is_dir(path)
        bases = segment_bases(commits.fs, path) if exists else []
        topic_id = state.topics[key.topic].id
        same = exists and why_foreign(stored_metadata(commits.fs, path), key, topic_id) is None
        # Only the first segments are missing; the others are assumed to be intact.
        is_partial = bool(bases) and same and state.local_start(*key) < bases[0] < end
        last = bases[0] if is_partial else end
    return GivenUp(
        topic=key.topic, partition=key.partition, directory=error.path, first=start, end=last,
        kept=is_partial, why=error.reason,
    )  # fmt: skip


def _raise_start(commits: LogDirCommits, lost: GivenUp) -> None:
    """Raise the log start to the first existing segment, and recover the partition."""
    key = TopicPartition(lost.topic, lost.partition)
    record = StartRecord(starts={key: lost.end}, given_up=_as_record(lost))
    commits.append(Change(record=record), expected=commits.position)
    commits.offline.pop(key, None)
    recover_partition(commits.manager, key, recovery_points(commits.manager))


def _reset_partition(commits: LogDirCommits, lost: GivenUp) -> None:
    """Create the partition again, empty, so that new records start at its old end offset.

    The remaining files are renamed to a stray directory.
    """
    topic, fs = commits.state.topics[lost.topic], commits.fs
    number = topic.dirs[lost.partition]
    if commits.offline.dirs.why_absent(number) is None:
        path = commits.partition_path(lost.topic, lost.partition)
        if fs.is_dir(path):
            fs.rename(path, stray_name(path))
            fs.sync_dir(os.path.dirname(path))
    else:
        number = commits.placement(range(lost.partition, lost.partition + 1))[lost.partition]
    left = {p: n for p, n in topic.left.items() if p != lost.partition}  # now a stray
    moved = replace(topic, dirs={**topic.dirs, lost.partition: number}, left=left)
    record = TopicRecord.of(lost.topic, moved, {lost.partition: lost.end}, _as_record(lost))
    commits.append(Change(record=record), expected=commits.position)
    commits.offline.pop(TopicPartition(lost.topic, lost.partition), None)


def _as_record(lost: GivenUp) -> GivenUpRange:
    """Return the lost range of offsets as the ledger's description of the loss."""
    return GivenUpRange(
        topic=lost.topic, partition=lost.partition, first=lost.first, end=lost.end,
        directory=lost.directory, why=lost.why,
    )  # fmt: skip


def _retire_dirs(commits: LogDirCommits) -> None:
    """Remove log dirs that are absent and contain no partition from the list of log dirs.

    The ids are removed too, so that such a log dir is recognized as retired when it returns.
    """
    used = {number for topic in commits.state.topics.values() for number in topic.dirs.values()}
    unused = [number for number in commits.offline.dirs.absent if number not in used]
    if unused:
        commits.offline.dirs = retire_dirs(commits.fs, commits.offline.dirs, unused)
