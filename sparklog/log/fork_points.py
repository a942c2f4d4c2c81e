"""Requests for a fork, and the reasons why a fork is impossible, for all homes."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from sparklog.common import TopicPartition
from sparklog.errors import InvalidRequestError, OffsetOutOfRangeError
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
            raise InvalidRequestError("writer and batch belong together: give both")

    @property
    def ends(self) -> dict[TopicPartition, int]:
        """`offsets` by partition."""
        given = self.offsets or {}
        return {TopicPartition(t, p): end for t, ends in given.items() for p, end in ends.items()}


def check_writers(state: LogState, writer: str, batch: int) -> None:
    """Raise InvalidRequestError if another sink of the query had already passed the batch.

    All sinks of a query must be at the batch, but a sink may be ahead of another sink.
    """
    ahead = {w: last.batch for w, last in state.writers.items() if is_writer_of(w, writer)}
    beyond = [name for name, reached in sorted(ahead.items()) if reached > batch]
    if beyond:
        raise InvalidRequestError(
            f"{beyond[0]} had committed batch {ahead[beyond[0]]} before another sink of {writer} "
            f"committed batch {batch}: there is no point at which both had this batch as their "
            "last; fork by the name of one writer, or by time_ms"
        )


def no_writer(home: str, writer: str, known: Iterable[str]) -> InvalidRequestError:
    """Return the error for a writer without commits."""
    held = ", ".join(sorted(known)) or "none"
    return InvalidRequestError(f"{writer} has committed nothing to {home}; its writers: {held}")


def no_commit(
    home: str, writer: str, batch: int, *, last: int, first: int | None
) -> InvalidRequestError:
    """Return the error for a batch without a commit in the ledger.

    Args:
        first: the writer's oldest batch in the ledger, None if it is unknown.
    """
    oldest = "" if first is None else f", the oldest in the ledger is {first}"
    return InvalidRequestError(
        f"{writer} has no commit of batch {batch} in the ledger of {home} (it never existed, was "
        f"undone by a reset, or has expired); its last batch is {last}{oldest}"
    )


def nothing_to_fork(home: str, why_not: str) -> InvalidRequestError:
    """Return the error if no entry of the ledger is early enough."""
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
    """Return the error for a partition that was compacted beyond the fork point."""
    return InvalidRequestError(
        f"{name} was to end at {end}, but was compacted up to a later offset since then: records "
        "that were the newest of their key were removed; fork at a later point"
    )


def batch_is_cut(where: str, first: int, last: int, end: int) -> InvalidRequestError:
    """Return the error for a fork point inside a record batch."""
    return InvalidRequestError(
        f"{where}: a record batch has offsets {first}...{last}, the end {end} would cut it"
    )
