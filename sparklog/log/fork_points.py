"""Requests for a fork, and the reasons why a fork is impossible, for all homes."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Final

from sparklog.common import TopicPartition
from sparklog.errors import InvalidRequestError, OffsetOutOfRangeError
from sparklog.log.timeline import find_commit
from sparklog.storage.commits import Ledger
from sparklog.storage.ledger_records import CommitRecord, LastMicroBatch, SnapshotRecord
from sparklog.storage.log_state import LogState, is_writer_of

Wanted = Mapping[str, Mapping[int, int]]
"""{topic: {partition: end}}"""
_ONE: Final = "give a fork point: by writer and batch, by time_ms, or by offsets"


@dataclass(frozen=True, slots=True, kw_only=True)
class ForkPointRequest:
    """The requested fork point, given by writer and batch, by time, or by offsets.

    Args:
        writer, batch: Fork right after this commit. `writer` is a single writer, or a query's id
            for all of its sinks.
        time_ms: Fork right after the last commit at or before this time.
        offsets: {topic: {partition: end}}: fork right after the last commit that exceeds no end.
        leave_remote: Start at the local log start if offsets are only in remote storage. For log
            dirs.

    Raises:
        InvalidRequestError: None or several of writer, time_ms and offsets are given.
    """

    writer: str | None = None
    batch: int | None = None
    time_ms: int | None = None
    offsets: Wanted | None = None
    leave_remote: bool = False

    def __post_init__(self) -> None:
        if [self.writer is None, self.time_ms is None, self.offsets is None].count(False) != 1:
            raise InvalidRequestError(_ONE)
        if (self.writer is None) != (self.batch is None):
            raise InvalidRequestError("writer and batch must be passed together: pass both")

    @property
    def ends(self) -> dict[TopicPartition, int]:
        """The requested `offsets`, as {partition: end}."""
        given = self.offsets or {}
        return {TopicPartition(t, p): end for t, ends in given.items() for p, end in ends.items()}


def after_commit(
    ledger: Ledger, end: int, known: Mapping[str, LastMicroBatch], wanted: ForkPointRequest
) -> int:
    """Return the position after the commit of `wanted.batch` in the ledger below `end`.

    Args:
        ledger: The ledger of the log.
        end: The end of the ledger.
        known: The last micro-batches of all writers.
        wanted: The writer and the batch.

    Raises:
        InvalidRequestError: The ledger does not contain the commit.

    Cost: as `find_commit`, twice if the commit is missing.
    """
    writer, batch = wanted.writer, wanted.batch
    assert writer is not None
    assert batch is not None
    names = sorted(name for name in known if is_writer_of(name, writer))
    if not names:
        held = ", ".join(sorted(known)) or "none"
        raise InvalidRequestError(
            f"writer {writer} has made no commit in {ledger.home}; the log's writers: {held}"
        )
    commit = find_commit(ledger, end, names, batch)
    if commit is not None:
        return commit[0] + 1
    last = max(known[name].batch for name in names)
    if batch <= last and _starts_at(ledger, names, batch):
        return 1
    oldest = _oldest_batch(ledger, end, names, batch)
    suffix = "" if oldest is None else f", the oldest in the ledger is {oldest}"
    raise InvalidRequestError(
        f"{writer} has no commit of batch {batch} in the ledger of {ledger.home} (it never "
        f"existed, was undone by a reset, or has expired); its last batch is {last}{suffix}"
    )


def _starts_at(ledger: Ledger, names: Collection[str], batch: int) -> bool:
    """Return True if the log is a fork in which the writers `names` start at batch `batch`."""
    _, first = (0, None) if ledger.oldest else next(ledger.records(0, 1), (0, None))
    if not isinstance(first, SnapshotRecord) or first.fork is None:
        return False
    lasts = [first.writers[name].batch for name in names if name in first.writers]
    return max(lasts, default=-1) == batch


def _oldest_batch(ledger: Ledger, end: int, names: Collection[str], batch: int) -> int | None:
    """Return the writers' oldest micro-batch in the ledger below `end`.

    Returns None if there is none, or if one is below `batch`.
    """
    oldest = None
    for _, record in ledger.commits_of(end, names):
        if isinstance(record, CommitRecord) and record.writer in names:
            if record.batch < batch:
                return None
            oldest = record.batch
    return oldest


def check_writers(state: LogState, wanted: ForkPointRequest) -> None:
    """Raise InvalidRequestError if another sink of the query had already passed the batch.

    All sinks of a query must be at the batch, but a sink may be ahead of another sink.
    """
    writer, batch = wanted.writer, wanted.batch
    if writer is None or batch is None:
        return
    ahead = {w: last.batch for w, last in state.writers.items() if is_writer_of(w, writer)}
    beyond = [name for name, reached in sorted(ahead.items()) if reached > batch]
    if beyond:
        raise InvalidRequestError(
            f"{beyond[0]} had committed batch {ahead[beyond[0]]} before another sink of {writer} "
            f"committed batch {batch}: at no point was this batch the last batch of both sinks; "
            "fork by the name of one writer, or by time_ms"
        )


def nothing_to_fork(home: str, why_not: str) -> InvalidRequestError:
    """Return the error if no record of the ledger is early enough; `why_not` is the reason."""
    return InvalidRequestError(
        f"all commits in the ledger of {home} {why_not}: there is nothing to fork"
    )


def forked_start(now: LogState, topic_id: str, key: TopicPartition, end: int) -> int:
    """Return the log start of a partition in a fork: the current log start of the old log.

    Args:
        now: The current state of the old log.
        topic_id: The id of the topic at the fork point.
        key: The partition.
        end: The end of the partition at the fork point.

    Raises:
        InvalidRequestError: The topic was deleted or re-created since the fork point.
        OffsetOutOfRangeError: The log start has passed the fork point.
    """
    topic = now.topics.get(key.topic)
    if topic is None or topic.id != topic_id:
        raise InvalidRequestError(
            f"topic {key.topic} was deleted since then, with its records. Fork at a point before "
            "it was created, or after it was deleted"
        )
    start = now.starts.get(key, 0)
    if start > end:
        raise OffsetOutOfRangeError(
            f"{key}: the records below offset {start} were deleted by retention or "
            f"delete_records, and the fork was to end at {end}; fork at a later point",
            offset=end, start=start, end=now.ends[key],
        )  # fmt: skip
    return start


def compacted(name: str, end: int) -> InvalidRequestError:
    """Return the error for a partition that was compacted up to an offset after the fork point."""
    return InvalidRequestError(
        f"{name} was to end at offset {end}, but was compacted up to a later offset since then: "
        "records that were the newest of their key were removed; fork at a later point"
    )


def batch_is_cut(where: str, first: int, last: int, end: int) -> InvalidRequestError:
    """Return the error for a fork point `end` within the record batch of offsets [first, last]."""
    return InvalidRequestError(
        f"{where}: the requested end {end} is inside a record batch with the offsets {first} to "
        f"{last}, and a batch can't be cut"
    )
