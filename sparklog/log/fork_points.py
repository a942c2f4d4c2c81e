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

    Raises InvalidRequestError unless exactly one of these is given.
    """

    writer: str | None = None
    batch: int | None = None
    time_ms: int | None = None
    offsets: Wanted | None = None

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


def topic_deleted(topic: str) -> InvalidRequestError:
    """Return the error for a topic that was deleted or re-created since the fork point."""
    return InvalidRequestError(
        f"topic {topic} was deleted since then, with its records. Fork at a point before it was "
        "created, or after it was deleted"
    )


def records_gone(name: str, start: int, wanted_end: int, end: int) -> OffsetOutOfRangeError:
    """Return the error for a partition with a log start offset behind the fork point."""
    return OffsetOutOfRangeError(
        f"{name}: the records below offset {start} were deleted by retention or delete_records, "
        f"and the fork was to end at {wanted_end}; fork at a later point",
        offset=wanted_end, start=start, end=end,
    )  # fmt: skip


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
