"""Changes of topics and writers: create, alter, delete, restore, delete records, reset writers.

Each change is a single ledger record.
"""

from collections.abc import Callable, Collection, Iterable, Mapping

from sparklog.common import TopicPartition
from sparklog.config import NEW_TOPICS, TopicConfig
from sparklog.errors import InvalidRequestError, OffsetOutOfRangeError, UnknownTopicError
from sparklog.log.arguments import refused
from sparklog.log.commit import check_known
from sparklog.log.timeline import abandoned_by, find_commit
from sparklog.log.topic_names import INTERNAL, check_new, new_topic_id
from sparklog.storage.commits import Change, CommitLog, change
from sparklog.storage.deleted_topic import DeletedTopic
from sparklog.storage.ledger_records import (
    COMMITTED_BEFORE,
    CommitRecord,
    DropRecord,
    LastMicroBatch,
    LedgerRecord,
    PurgeRecord,
    ResetRecord,
    StartRecord,
    TopicRecord,
    UndeleteRecord,
)
from sparklog.storage.log_state import LogState, is_writer_of
from sparklog.storage.topic_state import TopicState


def unknown(name: str, path: str, topics: Collection[str]) -> UnknownTopicError:
    """Return the error for an unknown topic; `topics` are the topics that exist."""
    held = ", ".join(sorted(topics)) or "none"
    return UnknownTopicError(f"topic {name} is not in {path}; its topics: {held}")


def check_compacted(names: Iterable[str], path: str, topics: Mapping[str, TopicState]) -> None:
    """Raise UnknownTopicError or InvalidRequestError unless all topics exist and are compacted."""
    for name in names:
        if name not in topics:
            raise unknown(name, path, topics)
        config = topics[name].parsed()
        if not config.compact:
            raise InvalidRequestError(
                f"topic {name} is not compacted: its cleanup.policy is "
                f"{','.join(config.cleanup_policy)}"
            )


def create_topic(
    commits: CommitLog,
    name: str,
    partitions: int,
    config: Mapping[str, object],
    if_not_exists: bool,
    starts: Mapping[int, int] | None = None,
) -> None:
    """Create a topic and all of its partitions in a single change. See `Log.create_topic`."""
    if partitions < 1:
        raise refused("partitions", partitions, "at least 1")
    parsed = TopicConfig.parse(config, base=commits.topic_defaults)

    def decide(state: LogState) -> Change | None:
        if if_not_exists and name in state.topics:
            return None
        check_new(name, state.topics)
        # A deleted topic of this name has used the offsets below these: continue after them.
        bases = {p: state.dropped.get(TopicPartition(name, p), 0) for p in range(partitions)}
        if starts is not None:
            bases = _started(name, starts, bases)
        topic = TopicState(
            new_topic_id(), parsed.to_dict(), commits.placement(range(partitions)),
            adopted=starts is not None,
        )  # fmt: skip
        return Change(record=TopicRecord.of(name, topic, bases))

    change(commits, decide)


def _started(name: str, starts: Mapping[int, int], bases: Mapping[int, int]) -> dict[int, int]:
    """Return {partition: base offset} of a new topic: from `starts`, else from `bases`.

    `bases` has the offsets after the records of a deleted topic with the same name, else 0.

    Raises:
        InvalidRequestError: A start is below the end offset of the deleted topic, or invalid.
    """
    for p, start in starts.items():
        if p not in bases or start < 0:
            raise InvalidRequestError(
                f"starts={dict(starts)}: expected {{partition: offset}} with partitions "
                f"0..{len(bases) - 1} and offsets from 0"
            )
        if start < bases[p]:
            raise InvalidRequestError(
                f"{name}-{p} was to begin at offset {start}, but a deleted topic of this name "
                f"ended at {bases[p]}, and an offset must not be used for two records: choose "
                "another name"
            )
    return {p: starts.get(p, base) for p, base in bases.items()}


def create_internal(commits: CommitLog, name: str, config: Mapping[str, object]) -> bool:
    """Create an internal topic with a single partition. Return False if the topic exists.

    Raises:
        InvalidRequestError: A broker's directory with this name contains records.
    """
    assert name in INTERNAL
    parsed = TopicConfig.parse(config)

    def decide(state: LogState) -> Change | None:
        if name in state.topics:
            return None
        topic = TopicState(new_topic_id(), parsed.to_dict(), {0: 0})  # with the ledger
        bases = {0: state.dropped.get(TopicPartition(name, 0), 0)}
        return Change(record=TopicRecord.of(name, topic, bases))

    return change(commits, decide) is not None


def alter_topic(
    commits: CommitLog,
    name: str,
    partitions: int | None,
    config: Mapping[str, object | None],
) -> None:
    """Change configs (None resets a config) or add partitions."""
    refuse_internal(name)

    def decide(state: LogState) -> Change:
        topic = _topic(commits, name)
        parsed = altered_config(name, topic.config, config, commits.topic_defaults)
        count = max(topic.dirs) + 1  # a number that was assigned once is never assigned again
        wanted = count if partitions is None else partitions
        if wanted < count:
            raise InvalidRequestError(
                f"topic {name} has {count} partitions and can't have {wanted}: the number of "
                "partitions can't be reduced; create a new topic instead"
            )
        fresh = commits.placement(range(count, wanted))
        gaps = topic.adopted or topic.parsed().compact  # gaps stay when compaction is turned off
        altered = TopicState(
            topic.id, parsed.to_dict(), {**topic.dirs, **fresh}, gaps, left=topic.left
        )
        before = state.dropped  # a deleted topic of this name may have had more partitions
        bases = {p: before.get(TopicPartition(name, p), 0) for p in fresh}
        return Change(record=TopicRecord.of(name, altered, bases))

    change(commits, decide)


def altered_config(
    name: str,
    before: Mapping[str, str],
    config: Mapping[str, object | None],
    defaults: TopicConfig = NEW_TOPICS,
) -> TopicConfig:
    """Return a topic's config after a change. A value of None resets a key to the log's default.

    Raises:
        InvalidRequestError: A key is unknown, or a value is invalid.
    """
    merged: dict[str, object] = {k: v for k, v in before.items() if k not in config}
    reset = defaults.to_dict()
    merged |= {key: reset[key] for key, value in config.items() if value is None and key in reset}
    merged |= {key: value for key, value in config.items() if value is not None}
    parsed = TopicConfig.parse(merged)
    _check_tiering(name, TopicConfig.parse(before), parsed)
    return parsed


def _check_tiering(name: str, before: TopicConfig, after: TopicConfig) -> None:
    """Reject turning tiering off while remote copies of the topic would be left behind.

    `before` and `after` are the topic's configs. A topic without copies can set
    remote.log.delete.on.disable too, although it has no copies to delete. Source:
    LogConfig.validateTurningOffRemoteStorageWithDelete.
    """
    turned_off = before.remote_storage_enable and not after.remote_storage_enable
    if turned_off and not after.remote_log_delete_on_disable:
        raise InvalidRequestError(
            f"topic {name}: remote.storage.enable=false would leave its remote copies behind. To "
            "delete them, set remote.log.delete.on.disable=true as well; to keep them readable "
            "and stop copying, set remote.log.copy.disable=true instead"
        )


def refuse_internal(name: str) -> None:
    """Raise InvalidRequestError for an internal topic, which users can only read."""
    if name in INTERNAL:
        raise InvalidRequestError(f"topic {name} is internal to sparklog; leave it unchanged")


def _topic(commits: CommitLog, name: str) -> TopicState:
    if name not in commits.state.topics:
        raise unknown(name, commits.home, commits.state.topics)
    return commits.state.topics[name]


def delete_topic(
    commits: CommitLog, name: str, topic_id: str | None = None, *, now: bool = False
) -> int:
    """Record a deletion and return for how long (ms) the topic can be restored.

    See `Log.delete_topic`.
    """
    refuse_internal(name)
    if now:  # this also applies to a topic that was deleted before and can still be restored
        gone = purge_topics(commits, lambda one: one.name == name and topic_id in (None, one.id))
        if gone and name not in commits.state.topics:
            return 0
    return drop_topic(commits, name, topic_id, now=now)


def drop_topic(
    commits: CommitLog, name: str, topic_id: str | None = None, *, now: bool = True
) -> int:
    """Delete a topic, internal topics included, by a ledger record.

    With `topic_id`, the topic is deleted only if it has this id. Returns how long (ms) the topic
    can be restored: its file.delete.delay.ms, or 0 with `now`.
    """
    delay_ms = 0

    def decide(_: LogState) -> Change:
        nonlocal delay_ms
        topic = _topic(commits, name)
        if topic_id not in (None, topic.id):
            raise UnknownTopicError(
                f"topic {name} with id {topic_id} is not in {commits.home}: it was deleted and "
                f"created again with id {topic.id}; no topic was deleted"
            )
        delay_ms = 0 if now else topic.parsed().file_delete_delay_ms
        return Change(record=DropRecord(topic=name, id=topic.id, delay_ms=delay_ms))

    change(commits, decide)
    return delay_ms


def undelete_topic(
    commits: CommitLog, name: str, topic_id: str | None = None, new_name: str | None = None
) -> str:
    """Restore a deleted topic and return the name of the restored topic.

    See `Log.undelete_topic`.
    """
    target = name if new_name is None else new_name

    def decide(state: LogState) -> Change:
        deleted = _deleted(commits, name, topic_id)
        if target in state.topics:
            raise _made_since(deleted, f"topic {target} exists")
        check_new(target, state.topics)
        if target != name:
            _check_new_name(state, deleted, target)
        # A later topic of this name, deleted since, began at these ends and moved them.
        elif any(
            state.dropped.get(TopicPartition(name, p)) != end for p, end in deleted.ends.items()
        ):
            raise _made_since(deleted, (
                f"a topic {name} that was created later has used its offsets"
            ))
        return Change(record=UndeleteRecord(topic=target, id=deleted.id))

    change(commits, decide)
    return target


def _deleted(commits: CommitLog, name: str, topic_id: str | None) -> DeletedTopic:
    """Return the newest deleted topic with this name, and with this id if given.

    Raises:
        UnknownTopicError: No such topic can be restored any more.
    """
    known = commits.state.deleted.values()
    found = [one for one in known if one.name == name and topic_id in (None, one.id)]
    if found:
        return max(found, key=lambda one: one.deleted_ms)
    held = ", ".join(sorted({one.name for one in known})) or "none"
    raise UnknownTopicError(
        f"no deleted topic {name}{f' with id {topic_id}' if topic_id else ''} can be restored in "
        f"{commits.home}: none was deleted, or its file.delete.delay.ms is over. Topics that can "
        f"be restored: {held}"
    )


def _made_since(held: DeletedTopic, why: str) -> InvalidRequestError:
    return InvalidRequestError(
        f"topic {held.name} (id {held.id}) can't be restored under its name: {why}, and an offset "
        "must not be used for two records. Delete that topic first, if it never contained a "
        "record; or, in log dirs, restore this topic under another name: sparklog topics "
        f"undelete PATH --topic {held.name} --topic-id {held.id} --as NEW-NAME"
    )


def _check_new_name(state: LogState, held: DeletedTopic, name: str) -> None:
    if any(key.topic == name and end for key, end in state.dropped.items()):
        raise InvalidRequestError(
            f"a topic {name} was deleted, and its offsets must not be used again: choose a name "
            "that no topic had"
        )
    if held.topic.parsed().remote_storage_enable:
        raise InvalidRequestError(
            f"topic {held.name} has remote copies, which are stored under its name: it can only "
            "be restored under that name"
        )


def purge_topics(
    commits: CommitLog, is_due: Callable[[DeletedTopic], bool]
) -> list[DeletedTopic]:
    """Remove the deleted topics for good for which `is_due` returns True; return these topics.

    They can't be restored any more. Cost: a change, if any topic is due.
    """
    gone: list[DeletedTopic] = []

    def decide(state: LogState) -> Change | None:
        # `change` may call this again with a newer state: replace the earlier result.
        gone[:] = [one for one in state.deleted.values() if is_due(one)]
        return Change(record=PurgeRecord(ids=tuple(one.id for one in gone))) if gone else None

    change(commits, decide)
    return gone


def delete_records(commits: CommitLog, topic: str, offsets: Mapping[int, int]) -> dict[int, int]:
    """Raise log start offsets to `offsets` by a ledger record; return {partition: log start}.

    An offset below the present log start has no effect.
    """
    refuse_internal(topic)
    starts: dict[TopicPartition, int] = {}

    def decide(state: LogState) -> Change | None:
        _topic(commits, topic)
        starts.clear()  # `change` may call this again with a newer state
        for partition, offset in offsets.items():
            key = TopicPartition(topic, partition)
            starts[key] = _new_start(commits, key, offset)
        raised = {key: at for key, at in starts.items() if at > state.starts.get(key, 0)}
        return Change(record=StartRecord(starts=raised)) if raised else None

    change(commits, decide)
    return {key.partition: offset for key, offset in starts.items()}


def _new_start(commits: CommitLog, key: TopicPartition, offset: int) -> int:
    """Return a partition's log start after the deletion of the records before `offset`.

    An offset of -1 means the high watermark.

    Raises:
        OffsetOutOfRangeError: The offset is above the high watermark.
        DataCorruptionError: The partition is offline.
    """
    check_known(commits, key)
    if key in commits.offline:
        raise commits.offline[key]
    end, start = commits.state.ends[key], commits.state.starts.get(key, 0)
    wanted = end if offset == -1 else offset
    if not 0 <= wanted <= end:
        raise OffsetOutOfRangeError(
            f"{key.topic}-{key.partition}: the records before offset {wanted} can't be deleted, "
            f"because the partition has offsets up to its high watermark {end}; no record was "
            "deleted",
            offset=wanted,
            start=start,
            end=end,
        )
    return max(wanted, start)


def reset_writers(commits: CommitLog, writer: str, batch: int) -> list[str]:
    """Record that `writer`, or each writer of query `writer`, may commit again after `batch`.

    Returns the writers that had committed a later batch. If no writer had, the ledger is not
    changed.
    """
    if batch < -1:
        raise InvalidRequestError(
            f"batch={batch}: expected the number of the last batch to keep, or -1 for none"
        )
    ahead: list[str] = []

    def decide(state: LogState) -> Change | None:
        known = state.writers
        if (declared := _declared(state, writer, batch)) is not None:
            ahead[:] = [writer]
            return Change(record=declared)
        ahead[:] = sorted(w for w in known if is_writer_of(w, writer) and known[w].batch > batch)
        if not ahead:
            return None
        lasts = {w: _last(commits, w, batch) for w in ahead}
        abandoned = abandoned_by(commits, commits.position, ahead, batch)
        return Change(
            record=ResetRecord(writer=writer, batch=batch, writers=lasts, abandoned=abandoned)
        )

    change(commits, decide)
    return ahead


def _declared(state: LogState, writer: str, batch: int) -> LedgerRecord | None:
    """Return the record that declares a writer's last batch after a repair of the ledger.

    Needed only if the repair lost commits (`state.lost`). Returns None otherwise, or if the writer
    has since committed or been reset.
    """
    last = state.writers.get(writer)
    if state.lost is None or (last is not None and last.time_ms >= state.lost.time_ms):
        return None
    if last is None and any(is_writer_of(known, writer) for known in state.writers):
        return None  # `writer` is a query's id; its sinks are the writers
    if last is not None and batch == last.batch:
        return ResetRecord(writer=writer, batch=batch, writers={writer: _now(last, state)})
    if last is not None and batch < last.batch:
        return None
    return CommitRecord(ends={}, writer=writer, batch=batch, fingerprint=COMMITTED_BEFORE)


def _now(last: LastMicroBatch, state: LogState) -> LastMicroBatch:
    """Return a writer's last micro-batch with a time at or after the repair of the ledger.

    A writer whose last commit is not older than the repair is not checked again for rows of lost
    commits (`state.lost`).
    """
    assert state.lost is not None
    return last._replace(time_ms=max(state.time_ms, state.lost.time_ms))


def _last(commits: CommitLog, writer: str, batch: int) -> LastMicroBatch | None:
    """Return the micro-batch `batch`, to which a writer is reset; None for a batch below 0.

    Only the number and the present time are known if the ledger does not contain the commit any
    more.
    """
    if batch < 0:
        return None
    commit = find_commit(commits, commits.position, {writer}, batch)
    if commit is None:  # the record has expired, or the batch was never committed
        return LastMicroBatch(batch, "", commits.clock())
    _, record = commit
    return LastMicroBatch(batch, record.fingerprint, record.time_ms, record.ends)
