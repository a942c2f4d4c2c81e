"""Changes of topics: made, altered, deleted, cut at the start; writers set back.

Each is one step with one record.
"""

import os
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING

from sparklog.common import TopicPartition
from sparklog.config import TopicConfig
from sparklog.errors import InvalidRequestError, OffsetOutOfRangeError, UnknownTopicError
from sparklog.log.commit import snapshot_if_due
from sparklog.log.committed_batches import find_commit
from sparklog.log.timeline import abandoned_by
from sparklog.logdir.partition.partition_log import PartitionLog
from sparklog.logdir.recovery.redo import is_empty, remove_tree
from sparklog.logdir.topics import INTERNAL, check_new, new_topic_id, partition_path
from sparklog.storage.ledger_records import (
    DropRecord,
    GivenUpRange,
    LastMicroBatch,
    ResetRecord,
    StartRecord,
    TopicRecord,
)
from sparklog.storage.log_state import is_writer_of
from sparklog.storage.topic_state import TopicState

if TYPE_CHECKING:
    from sparklog.logdir.commit_log import LogDirCommits


def unknown(name: str, path: str, topics: Collection[str]) -> UnknownTopicError:
    """Return the error for a topic that isn't there."""
    held = ", ".join(sorted(topics)) or "none"
    return UnknownTopicError(f"topic {name} is not in {path}; its topics: {held}")


def create_topic(
    session: "LogDirCommits",
    name: str,
    partitions: int,
    config: Mapping[str, object],
    if_not_exists: bool,
    starts: Mapping[int, int] | None = None,
) -> None:
    """Make a topic with all its partitions; nothing, or all of it. See `Log.create_topic`."""
    if partitions < 1:
        raise InvalidRequestError(f"partitions={partitions}: want at least 1")
    parsed = TopicConfig.parse(config, base=session.options.topics)
    with session.locked():
        state = session.state
        if if_not_exists and name in state.topics:
            return
        check_new(name, state.topics)
        snapshot_if_due(session)
        bases = {p: state.dropped.get(TopicPartition(name, p), 0) for p in range(partitions)}
        if starts is not None:
            bases = _started(name, starts, bases)
        topic = TopicState(
            new_topic_id(), parsed.to_dict(), spread(session, range(partitions)),
            adopted=starts is not None,
        )  # fmt: skip
        make(session, name, topic, bases)


def _started(name: str, starts: Mapping[int, int], bases: Mapping[int, int]) -> dict[int, int]:
    """Return where the partitions begin. Raises InvalidRequestError: a former topic was there."""
    for p, start in starts.items():
        if p not in bases or start < 0:
            raise InvalidRequestError(
                f"starts={dict(starts)}: want offsets of partitions in 0..{len(bases) - 1}"
            )
        if start < bases[p]:
            raise InvalidRequestError(
                f"{name}-{p} was to begin at offset {start}, but a topic of this name was deleted "
                f"that ended at {bases[p]}, and no offset may ever name two records: choose "
                "another name"
            )
    return {p: starts.get(p, base) for p, base in bases.items()}


def create_internal(session: "LogDirCommits", name: str, config: Mapping[str, object]) -> bool:
    """Make a topic of sparklog's own, with one partition; tells whether it wasn't there.

    What a creation that was cut has left is made anew. Raises InvalidRequestError if there are
    records in a directory of that name: a broker's.
    """
    assert name in INTERNAL
    with session.locked():
        state = session.state
        if name in state.topics:
            return False
        snapshot_if_due(session)
        parsed = TopicConfig.parse(config)
        topic = TopicState(new_topic_id(), parsed.to_dict(), {0: 0})  # with the ledger
        path = partition_path(session.directories, name, topic, 0)
        if session.fs.is_dir(path) and is_empty(session.fs, path):
            remove_tree(session.fs, path)
        make(session, name, topic, {0: state.dropped.get(TopicPartition(name, 0), 0)})
        return True


def alter_topic(
    session: "LogDirCommits",
    name: str,
    partitions: int | None,
    config: Mapping[str, object | None],
) -> None:
    """Set or reset configs, add partitions."""
    refuse_internal(name)
    with session.locked():
        topic = _topic(session, name)
        merged: dict[str, object] = {k: v for k, v in topic.config.items() if k not in config}
        merged |= {key: value for key, value in config.items() if value is not None}
        parsed = TopicConfig.parse(merged)
        _check_tiering(name, topic.parsed(), parsed)
        count = max(topic.dirs) + 1  # not those found: a number that was given out stays so
        wanted = count if partitions is None else partitions
        if wanted < count:
            raise InvalidRequestError(
                f"topic {name} has {count} partitions and can't have {wanted}: their number can "
                "only grow; make a new topic instead"
            )
        snapshot_if_due(session)
        fresh = spread(session, range(count, wanted))
        gaps = topic.adopted or topic.parsed().compact  # they stay when compaction ends
        altered = TopicState(topic.id, parsed.to_dict(), {**topic.dirs, **fresh}, gaps)
        before = session.state.dropped  # a former life had more partitions
        bases = {p: before.get(TopicPartition(name, p), 0) for p in fresh}
        make(session, name, altered, bases)
        session.forget_writers()


def _check_tiering(name: str, before: TopicConfig, after: TopicConfig) -> None:
    """Refuse to leave copies behind. Source: LogConfig.validateTurningOffRemoteStorageWithDelete.

    A topic that never had a copy pays nothing for saying that its copies may go.
    """
    turned_off = before.remote_storage_enable and not after.remote_storage_enable
    if turned_off and not after.remote_log_delete_on_disable:
        raise InvalidRequestError(
            f"topic {name}: remote.storage.enable=false would leave its copies behind. To delete "
            "them, set remote.log.delete.on.disable=true as well; to keep them readable and copy "
            "no more, set remote.log.copy.disable=true instead"
        )


def make(
    session: "LogDirCommits",
    name: str,
    topic: TopicState,
    bases: Mapping[int, int],
    *,
    given_up: GivenUpRange | None = None,
) -> None:
    """Make the directories of the partitions in `bases` and record the topic.

    Args: bases: {partition: the offset at which it begins}. given_up: what is lost by it.
    """
    paths = {p: partition_path(session.directories, name, topic, p) for p in bases}
    for path in paths.values():
        if session.fs.exists(path):
            raise InvalidRequestError(
                f"{path} exists and is in no topic of this log: move it away, nothing was made"
            )
    with session.step(making=list(paths.values())) as step:
        for p, path in paths.items():
            PartitionLog.create(
                session.fs,
                path,
                topic=name,
                partition=p,
                topic_id=topic.id,
                config=topic.parsed(),
                clock=session.clock,
                start_offset=bases[p],
            ).sync()
        for directory in sorted({os.path.dirname(path) for path in paths.values()}):
            session.fs.sync_dir(directory)
        step.record = TopicRecord.of(name, topic, bases, given_up)


def spread(session: "LogDirCommits", partitions: range) -> dict[int, int]:
    """Give each new partition the log dir that has fewest. Source: LogManager.nextLogDirs."""
    counts = dict.fromkeys((number for number, _ in session.dirs.numbered(session.directories)), 0)
    for topic in session.state.topics.values():
        for number in topic.dirs.values():
            if number in counts:
                counts[number] += 1
    chosen = {}
    for partition in partitions:
        number = min(counts, key=lambda n: (counts[n], n))
        counts[number] += 1
        chosen[partition] = number
    return chosen


def refuse_internal(name: str) -> None:
    """Raise InvalidRequestError for a topic that users read at most."""
    if name in INTERNAL:
        raise InvalidRequestError(f"topic {name} is sparklog's own; leave it as it is")


def _topic(session: "LogDirCommits", name: str) -> TopicState:
    if name not in session.state.topics:
        raise unknown(name, session.home, session.state.topics)
    return session.state.topics[name]


def delete_topic(session: "LogDirCommits", name: str) -> None:
    """Record the drop; the files go after it."""
    refuse_internal(name)
    drop_topic(session, name)


def drop_topic(session: "LogDirCommits", name: str) -> None:
    """Delete a topic, an internal one too."""
    with session.locked():
        topic = _topic(session, name)
        snapshot_if_due(session, destructive=True)
        with session.step() as step:
            step.record = DropRecord(topic=name, id=topic.id)
        session.forget_writers()


def delete_records(
    session: "LogDirCommits", topic: str, offsets: Mapping[int, int]
) -> dict[int, int]:
    """Record new log starts; a start that lies behind the present one changes nothing."""
    refuse_internal(topic)
    with session.locked():
        _topic(session, topic)
        state = session.state
        starts: dict[int, int] = {}
        for partition, offset in offsets.items():
            session.partition_path(topic, partition)  # raises for one that isn't there
            key = TopicPartition(topic, partition)
            if key in session.offline:
                raise session.offline[key]
            end = state.ends[key]
            start = state.starts.get(key, 0)
            wanted = end if offset == -1 else offset
            if not 0 <= wanted <= end:
                raise OffsetOutOfRangeError(
                    f"{topic}-{partition}: can't delete records before {wanted}, the high "
                    f"watermark is {end}; nothing was deleted",
                    offset=wanted,
                    start=start,
                    end=end,
                )
            starts[partition] = max(wanted, start)
        wanted_starts = {TopicPartition(topic, p): offset for p, offset in starts.items()}
        raised = {k: o for k, o in wanted_starts.items() if o > state.starts.get(k, 0)}
        if raised:
            snapshot_if_due(session, destructive=True)
            with session.step() as step:
                step.record = StartRecord(starts=raised)
            session.forget_writers()
        return starts


def reset_writers(session: "LogDirCommits", writer: str, batch: int) -> list[str]:
    """Record that `writer`, or all writers of that query, may commit again after `batch`.

    Returns the writers that had gone further; where there is none, nothing is written.
    """
    if batch < -1:
        raise InvalidRequestError(f"batch={batch}: want the last one that stays, -1 for none")
    with session.locked():
        known = session.state.writers
        ahead = sorted(w for w in known if is_writer_of(w, writer) and known[w].batch > batch)
        if ahead:
            snapshot_if_due(session, destructive=True)
            lasts = {w: _last(session, w, batch) for w in ahead}
            given = session.fs, session.home, session.ledger.end
            abandoned = abandoned_by(*given, ahead, batch)
            with session.step() as step:
                step.record = ResetRecord(
                    writer=writer, batch=batch, writers=lasts, abandoned=abandoned
                )
        return ahead


def _last(session: "LogDirCommits", writer: str, batch: int) -> LastMicroBatch | None:
    """What the state is to say of a writer that goes back to `batch`."""
    if batch < 0:
        return None
    found = find_commit(session.fs, session.home, session.ledger.end, {writer}, batch)
    if found is None:  # it expired, or there was none of that number
        return LastMicroBatch(batch, "", session.clock())
    _, record = found
    return LastMicroBatch(batch, record.fingerprint, record.time_ms, record.ends)
