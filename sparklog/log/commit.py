"""Commit staged chunks: they become visible in all their partitions together, exactly once.

Source: sparklog/logdir/PROTOCOL.md, "COMMIT" and "Identity of a micro-batch".
"""

import json
import logging
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, replace
from typing import Any, Final

from sparklog.clock import iso, monotonic_ms
from sparklog.common import TopicPartition
from sparklog.errors import (
    BatchConflictError,
    CommitUnknownError,
    InvalidRequestError,
    SparklogError,
    UnknownTopicError,
)
from sparklog.log.timeline import find_commit
from sparklog.log.topic_names import refuse_brokers_own
from sparklog.storage.commits import Change, Chunk, CommitLog, change
from sparklog.storage.ledger_records import COMMITTED_BEFORE, AppendRecord, CommitRecord, Ranges
from sparklog.storage.log_state import LogState
from sparklog.storage.offset_ranges import OffsetRange
from sparklog.storage.query_origin import QueryOrigin, predecessor
from sparklog.text_checks import check_text

_LOGGER: Final = logging.getLogger(__name__)

Ends = dict[str, dict[int, tuple[int, int]]]
"""{topic: {partition: (first offset, end offset)}}"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """The micro-batch that a commit belongs to. The log accepts a micro-batch only once.

    A commit whose writer and batch number are in the log already is a replay. Equal fingerprints
    mean equal rows: a replay with another fingerprint raises BatchConflictError.

    Attributes:
        writer: The name of the writer, unique in the log.
        batch: The number of the micro-batch, which increases with each micro-batch.
        fingerprint: Text that identifies the input, such as a digest of its source offsets.

    Examples:
        >>> july = sparklog.Identity(writer="loader", batch=7, fingerprint="flights-2013-07.csv")
        >>> log.commit([], identity=july).replayed, log.commit([], identity=july).replayed
        (False, True)
    """

    writer: str
    batch: int
    fingerprint: str

    def __post_init__(self) -> None:
        """Raise InvalidRequestError for text that has no UTF-8 form."""
        check_text("the writer's name", self.writer)
        check_text("the fingerprint", self.fingerprint)


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryIdentity(Identity):
    """The identity of a micro-batch of a Spark query.

    `origin` has the query's checkpoint, name, plan and sources, by which the log recognizes the
    query if its checkpoint was lost.
    """

    origin: QueryOrigin


@dataclass(frozen=True, slots=True)
class CommitResult:
    """The outcome of a commit.

    Attributes:
        replayed: Whether the micro-batch had been committed before; in that case this commit wrote
            no records.
        time_ms: When the commit was made, in milliseconds since the epoch.
        ends: {topic: {partition: (first offset, end offset)}} of the records of the commit.

    Examples:
        >>> stager = log.stager(sparklog.Framing())
        >>> stager.add(log.topic("flights"), pa.record_batch({"value": ["1", "2"]}), partition=0)
        >>> result = log.commit(stager.finish())
        >>> first, end = result.ends["flights"][0]
        >>> end - first, result.replayed
        (2, False)
    """

    replayed: bool
    time_ms: int
    ends: Ends


def commit(
    commits: CommitLog,
    chunks: Sequence[Chunk],
    *,
    identity: Identity | None = None,
    app: str = "",
    source: Mapping[str, Any] | None = None,
    at: Mapping[tuple[str, int], int] | None = None,
) -> CommitResult:
    """Append all chunks, in their order, as a single atomic commit. A replay appends no records.

    Args:
        commits: The log's commits.
        chunks: The chunks.
        identity: The micro-batch that the chunks belong to.
        app: The application that commits.
        source: The position in the source, as a JSON object.
        at: {(topic, partition): end offset that the partition must have before the commit}.

    Raises:
        BatchConflictError: The batch number was committed with another fingerprint.
        InvalidRequestError: A partition does not end at `at`, or `app` or `source` has no UTF-8
            form.
        UnknownTopicError: A topic or partition does not exist.
        StorageUnavailableError: The disk is full or fails. The log was not changed.
        DataCorruptionError: A partition is offline.

    Cost:
        In a log dir, an fdatasync per partition, the ledger and the watermark file.
    """
    check_text("app", app)
    if source:
        check_text("source", json.dumps(source, ensure_ascii=False))
    began_ms = monotonic_ms()
    with commits.meters.committing():
        result = _commit(commits, chunks, identity, app=app, source=source, at=at or {})
    if result.replayed:
        commits.meters.replayed()
    else:
        commits.meters.committed(began_ms, (chunk.size_bytes for chunk in chunks))
    return result


def _commit(
    commits: CommitLog,
    chunks: Sequence[Chunk],
    identity: Identity | None,
    *,
    app: str,
    source: Mapping[str, Any] | None,
    at: Mapping[tuple[str, int], int],
) -> CommitResult:
    # Before the lock: a record's duration includes the wait, which shows how busy the log is.
    asked_ms, asked_at = commits.clock(), commits.position
    known: CommitResult | None = None

    def decide(state: LogState) -> Change | None:
        nonlocal known
        known = _known(commits, chunks, identity)
        if known is not None:
            return None
        # The checks that need no disk come first. The producer state is checked last, because
        # loading it can read a part of the log.
        _check(commits, state, chunks, at)
        commits.check(chunks)
        known = _duplicate(commits, chunks)
        if known is not None:
            return None
        if identity is not None:
            _warn_of_gap(commits, identity.writer, identity.batch)
        record = record_of(state, chunks, identity, app=app, source=source)
        return Change(record=record, chunks=chunks, asked_ms=asked_ms, asked_at=asked_at)

    written = change(commits, decide)
    if known is not None:
        return known
    assert isinstance(written, AppendRecord)
    commits.release_staged(chunks)
    return CommitResult(False, written.time_ms, _by_topic(written.ends))


def _known(
    commits: CommitLog, chunks: Sequence[Chunk], identity: Identity | None
) -> CommitResult | None:
    """Return the result of a commit that need not write anything, else None.

    That is a replay, or a commit without chunks and identity. The contents of the chunks don't
    matter.

    Raises:
        BatchConflictError: The batch was committed with another fingerprint, or its rows may be in
            the log already.
    """
    if commits.sync:
        commits.make_durable()  # "committed already" must mean durable
    if identity is None:
        return None if chunks else CommitResult(False, commits.clock(), {})
    earlier = committed(commits, identity)
    if earlier is None:
        _check_lost(commits, identity, {chunk.topic for chunk in chunks})
        _check_origin(commits, identity, {chunk.topic for chunk in chunks})
    return earlier


def _duplicate(commits: CommitLog, chunks: Sequence[Chunk]) -> CommitResult | None:
    """Check an idempotent producer's append; return the first result of a repeated append.

    Returns None if the append is new, or has no producer id.
    """
    # Copied batches keep sequences that their first log has checked.
    if not any(chunk.idempotent and not chunk.copied for chunk in chunks):
        return None
    if len(chunks) > 1 or chunks[0].data is None:
        raise InvalidRequestError(
            "an append with `producer` must fit into a single segment (segment.bytes) of a single "
            "partition; append smaller tables"
        )
    (duplicate,) = commits.check_producers(chunks)
    if isinstance(duplicate, SparklogError):
        raise duplicate
    if duplicate is None:
        return None
    span = OffsetRange(duplicate.first, duplicate.end)
    return CommitResult(True, commits.state.time_ms, _by_topic({chunks[0].key: span}))


def record_of(
    state: LogState,
    chunks: Sequence[Chunk],
    identity: Identity | None = None,
    *,
    app: str,
    source: Mapping[str, Any] | None = None,
) -> AppendRecord:
    """Return the ledger record of a commit, without offsets, time and leader epoch.

    The home sets these when it appends the record.

    Args:
        state: The log's state.
        chunks: The chunks of the commit.
        identity: The micro-batch, if any.
        app: The application that commits.
        source: The position in the source, as a JSON object.
    """
    topics = state.topics
    fields: dict[str, Any] = {
        "ends": {},
        "source": dict(source) if source else None,
        "app": app,
        "size_bytes": sum(chunk.size_bytes for chunk in chunks),
        "idempotent": any(chunk.idempotent for chunk in chunks),
        "stamped": any(
            not chunk.copied and topics[chunk.topic].parsed().log_append_time for chunk in chunks
        ),
    }
    if identity is None:
        return AppendRecord(**fields)
    origin = identity.origin if isinstance(identity, QueryIdentity) else None
    return CommitRecord(
        writer=identity.writer,
        batch=identity.batch,
        fingerprint=identity.fingerprint,
        origin=None if origin is None else replace(origin, look=None, is_meant=False),
        **fields,
    )


def _warn_of_gap(commits: CommitLog, writer: str, batch: int) -> None:
    """Warn, once per writer and open log, if micro-batches before `batch` are missing in the log.

    The log can't distinguish batches that foreachBatch skipped from batches that a restore lost.
    The caller must have acquired the lock.
    """
    last = commits.state.writers.get(writer)
    if last is None or batch <= last.batch + 1:
        return
    warned_writers = commits.reported_gaps
    if writer not in warned_writers:
        warned_writers.add(writer)
        _LOGGER.warning(
            "%s: writer %s continues with micro-batch %d, but its last batch in this log is %d: "
            "either it wrote nothing in between, or the log was restored to an earlier state and "
            "those rows are lost. With `sparklog checkpoint reset CHECKPOINT --to %d --log LOG`, "
            "its query computes them again, and also repeats what it has written since",
            commits.home, writer, batch, last.batch, last.batch,
        )  # fmt: skip


def _by_topic(ranges: Ranges) -> Ends:
    """Return {(topic, partition): range} as {topic: {partition: (first offset, end offset)}}."""
    ends: Ends = {}
    for (topic, partition), span in ranges.items():
        ends.setdefault(topic, {})[partition] = span
    return ends


def committed(commits: CommitLog, identity: Identity) -> CommitResult | None:
    """Return the result of this micro-batch's commit, or None if the batch is not committed.

    The caller must have acquired the lock.

    Raises:
        BatchConflictError: The batch number was committed with another fingerprint.
    """
    last = commits.state.writers.get(identity.writer)
    if last is None or identity.batch > last.batch:
        return None
    fingerprint, time_ms, ends = last.fingerprint, last.time_ms, last.ends
    # The state has only the last batch of each writer; the ledger has the earlier ones.
    if identity.batch < last.batch or ends is None:
        hit = find_commit(commits, commits.position, {identity.writer}, identity.batch)
        found = hit[1] if hit else None
        if found is not None:
            fingerprint, time_ms, ends = found.fingerprint, found.time_ms, found.ends
        elif identity.batch != last.batch:
            fingerprint, ends = "", None  # the record has expired: the contents are unknown
    # After a repair of the ledger, a user declares a batch as committed without its contents.
    if fingerprint in (identity.fingerprint, COMMITTED_BEFORE):
        return CommitResult(True, time_ms, _by_topic(ends or {}))
    if not fingerprint:
        raise BatchConflictError(
            f"writer {identity.writer} has committed up to batch {last.batch} of {commits.home}; "
            f"batch {identity.batch} is no longer in the ledger, so a replay can't be "
            "distinguished from new rows; no row was written. The query's checkpoint was restored "
            "or rewound: restore a newer one, give the restarted query another sink name (option "
            "`name` or `writerId`), or reset the writer in the log to the batch before "
            "(Log.reset)"
        )
    raise BatchConflictError(
        f"writer {identity.writer} committed batch {identity.batch} of {commits.home} at "
        f"{iso(time_ms)} with another plan (last batch {last.batch}); nothing was "
        "written. Its checkpoint was lost, copied or rewound: give the restarted query another "
        "sink name (option `name` or `writerId`) to append its rows again, restore the "
        "checkpoint that belongs to this log, or reset the writer in the log to the batch before "
        "(Log.reset)"
    )


def _check_lost(commits: CommitLog, identity: Identity, topics: Set[str]) -> None:
    """Reject rows that a commit with a lost ledger record may have appended already.

    A repair of the ledger lists the offsets of such commits.

    Raises:
        BatchConflictError: The writer has not committed since the repair, and a topic of `topics`
            has such offsets.
    """
    lost, writer, batch = commits.state.lost, identity.writer, identity.batch
    # Rows below the log start were deleted, so they can't be duplicated.
    lost = None if lost is None else lost.above(commits.state.starts)
    spans = [] if lost is None else [
        f"{key} [{span.first}, {span.end})"
        for key, spans in sorted(lost.offsets.items())
        if key.topic in topics
        for span in spans
    ]  # fmt: skip
    last = commits.state.writers.get(writer)
    if lost is None or not spans or (last is not None and last.time_ms >= lost.time_ms):
        return
    raise BatchConflictError(
        f"the ledger of {commits.home} was repaired at {iso(lost.time_ms)}, and the records of "
        f"the commits that wrote {', '.join(spans)} are lost. Writer {writer} has not committed "
        f"since, so these offsets may contain the rows of its batch {batch}; no row was "
        f"written. Read those offsets. If the rows of batch {batch} are missing there, call "
        f"Log.reset({writer!r}, {batch - 1}); if they are there, call Log.reset({writer!r}, "
        f"{batch}). Then start the query again"
    )


def _check_origin(commits: CommitLog, identity: Identity, topics: Set[str]) -> None:
    """Reject rows that the same query has written before under another query id.

    A query gets a new id if its checkpoint was deleted.

    Raises:
        BatchConflictError: Another writer has read the same source and written to these topics.
    """
    if not isinstance(identity, QueryIdentity):
        return
    state = commits.state
    ends = {key: end for key, end in state.ends.items() if key.topic in topics}
    # A topic without records can't get duplicates.
    held = {key.topic for key, end in ends.items() if end > state.starts.get(key, 0)}
    found = predecessor(state.origins, identity.writer, identity.origin, held)
    if found is None:
        return
    raise BatchConflictError(
        f"writer {identity.writer} is new to {', '.join(sorted(found.topics))} of {commits.home}, "
        f"but has the {found.evidence} of {found.writer}, which has read up to "
        f"{', '.join(str(end) for end in found.ends)} and written those rows there; batch "
        f"{identity.batch} starts before that, so its rows would be duplicated; no row was "
        "written. The checkpoint was deleted or replaced: restore it, or begin at those offsets "
        "(startingOffsets). If it is another query, or the rows should be appended again, set "
        f"option `name` or `writerId`, or forget the old writer: Log.reset({found.writer!r}, -1)"
    )


def outcome(
    commits: CommitLog, unknown: CommitUnknownError | tuple[int, str]
) -> CommitResult | None:
    """Return the result of a commit that ended with CommitUnknownError; None for a failed commit.

    See `Log.outcome`.
    """
    if isinstance(unknown, CommitUnknownError):
        unknown = unknown.position, unknown.attempt
    record = commits.outcome(*unknown)
    if record is None:
        return None
    ends = record.ends if isinstance(record, AppendRecord) else {}
    return CommitResult(False, record.time_ms, _by_topic(ends))


def check_known(commits: CommitLog, key: TopicPartition) -> None:
    """Raise UnknownTopicError if the log does not have this partition."""
    topic = commits.state.topics.get(key.topic)
    if topic is None or key.partition not in topic.dirs:
        held = "no such topic" if topic is None else f"it has partitions {sorted(topic.dirs)}"
        raise UnknownTopicError(f"{key.topic}-{key.partition} is not in {commits.home}: {held}")


def _check(
    commits: CommitLog,
    state: LogState,
    chunks: Sequence[Chunk],
    at: Mapping[tuple[str, int], int],
) -> None:
    """Reject chunks that can't be appended to a log in this state, before anything is written.

    Raises:
        UnknownTopicError: A partition does not exist.
        InvalidRequestError: Timestamps are outside of the topic's limits, or a partition does not
            end at the offset in `at`.
    """
    now = commits.clock()
    for chunk in chunks:
        refuse_brokers_own(chunk.topic)
        check_known(commits, chunk.key)
        config = state.topics[chunk.topic].parsed()
        late = now - config.message_timestamp_before_max_ms
        early = now + config.message_timestamp_after_max_ms
        if not (chunk.copied or config.log_append_time) and not (
            late <= chunk.min_timestamp and chunk.max_timestamp <= early
        ):
            raise InvalidRequestError(
                f"{chunk.topic}-{chunk.partition}: timestamps "
                f"{chunk.min_timestamp}..{chunk.max_timestamp} ms are outside of {late}..{early}, "
                "which the topic's message.timestamp.before.max.ms and "
                "message.timestamp.after.max.ms allow"
            )
    for (topic, partition), offset in at.items():
        end = state.ends.get(TopicPartition(topic, partition), 0)
        if end != offset:
            raise InvalidRequestError(
                f"{topic}-{partition} ends at {end}, but records were to be appended at offset "
                f"{offset}: another process writes to the partition; no record was written"
            )
