"""Unclean leader election: an offline partition goes on, with data loss.

What Kafka calls an unclean leader election: it makes a partition available at the price of records.
No offset that was ever given out is given again, so what is appended next begins at the old end;
the ledger says what was given up. What is left of a partition is kept beside it, as a stray.
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
    session: LogDirCommits, topic: str | None, partitions: Iterable[int] | None, *, dry_run: bool
) -> list[GivenUp]:
    """Give up what offline partitions miss, and go on; see `Log.give_up`."""
    with session.exclusive():
        numbers = None if partitions is None else set(partitions)
        damaged = _recover_damaged(session, topic, numbers, dry_run=dry_run)
        offline = {**session.offline, **damaged}
        keys = _chosen(offline, topic, numbers)
        found = [_loss(session, key, offline[key]) for key in keys]
        if dry_run:
            return found
        for one in found:
            _LOGGER.warning(
                "%s-%d: offsets [%d, %d) are given up: %s",
                one.topic, one.partition, one.first, one.end, one.why,
            )  # fmt: skip
            (_raise_start if one.kept else _reset_partition)(session, one)
        _retire_dirs(session)
        session.idle()
        return found


def _recover_damaged(
    session: LogDirCommits, topic: str | None, partitions: set[int] | None, *, dry_run: bool
) -> dict[TopicPartition, DataCorruptionError]:
    """Recover partitions that aren't as the ledger says: what can't be recovered goes offline.

    Else a partition that was damaged since the log was opened would count as whole until somebody
    writes to it. A dry run changes nothing, and returns the partitions that would go offline.
    """
    damaged: dict[TopicPartition, DataCorruptionError] = {}
    for key in sorted(session.state.ends.keys() - session.offline.keys()):
        if topic not in (None, key.topic):
            continue
        if partitions is not None and key.partition not in partitions:
            continue
        if not is_partition_whole(session, *key):
            if not dry_run:
                session.drop_writers()
                recover_partition(session, key, recovery_points(session))
            elif (error := check_partition(session, key)) is not None:
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
    whole = [key.partition for key in wanted if key not in offline]
    if whole:
        raise not_offline(topic, whole)
    return wanted


def _loss(session: LogDirCommits, key: TopicPartition, error: DataCorruptionError) -> GivenUp:
    """Tell what giving a partition up loses: its first segments, or all that it held."""
    state = session.state
    start, end = state.starts.get(key, 0), state.ends[key]
    kept, last = False, end
    if (
        session.dirs.why_absent(session.directories, state.topics[key.topic].dirs[key.partition])
        is None
    ):
        path = session.partition_path(*key)
        there = session.fs.is_dir(path)
        bases = segment_bases(session.fs, path) if there else []
        topic_id = state.topics[key.topic].id
        same = there and why_foreign(stored_metadata(session.fs, path), key, topic_id) is None
        # Only the first ones are gone: what follows is whole, as far as anybody knows.
        kept = bool(bases) and same and state.local_start(*key) < bases[0] < end
        last = bases[0] if kept else end
    return GivenUp(
        topic=key.topic, partition=key.partition, directory=error.path, first=start, end=last,
        kept=kept, why=error.reason,
    )  # fmt: skip


def _raise_start(session: LogDirCommits, one: GivenUp) -> None:
    """Let the log begin at the first segment that is there."""
    key = TopicPartition(one.topic, one.partition)
    record = StartRecord(starts={key: one.end}, given_up=_as_record(one))
    session.append(Change(record=record), expected=session.position)
    session.offline.pop(key, None)
    recover_partition(session, key, recovery_points(session))


def _reset_partition(session: LogDirCommits, one: GivenUp) -> None:
    """Make the partition anew, empty, at its old end."""
    topic, fs = session.state.topics[one.topic], session.fs
    number = topic.dirs[one.partition]
    if session.dirs.why_absent(session.directories, number) is None:
        path = session.partition_path(one.topic, one.partition)
        if fs.is_dir(path):
            fs.rename(path, stray_name(path))
            fs.sync_dir(os.path.dirname(path))
    else:
        number = session.placement(range(one.partition, one.partition + 1))[one.partition]
    left = {p: n for p, n in topic.left.items() if p != one.partition}  # that one is a stray
    moved = replace(topic, dirs={**topic.dirs, one.partition: number}, left=left)
    record = TopicRecord.of(one.topic, moved, {one.partition: one.end}, _as_record(one))
    session.append(Change(record=record), expected=session.position)
    session.offline.pop(TopicPartition(one.topic, one.partition), None)


def _as_record(one: GivenUp) -> GivenUpRange:
    """What the ledger keeps of it."""
    return GivenUpRange(
        topic=one.topic, partition=one.partition, first=one.first, end=one.end,
        directory=one.directory, why=one.why,
    )  # fmt: skip


def _retire_dirs(session: LogDirCommits) -> None:
    """A log dir that is absent, and holds nothing that counts any more, has its place given away.

    Its id is taken from it, so that it is known for what it is if it comes back.
    """
    used = {number for topic in session.state.topics.values() for number in topic.dirs.values()}
    gone = [number for number in session.dirs.absent if number not in used]
    if gone:
        session.dirs = retire_dirs(session.fs, session.directories, session.dirs, gone)
