"""Partitions that are to move between log dirs: what was asked for, and how far it is."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, Protocol

from sparklog.common import TopicPartition
from sparklog.errors import InvalidRequestError, SparklogError
from sparklog.progress import Progress

MoveState = Literal["waiting", "moving", "failed"]


@dataclass(frozen=True, slots=True, kw_only=True)
class MovedPartition:
    """A partition that was moved between log dirs.

    Attributes:
        topic: The name of the topic.
        partition: The number of the partition.
        source: The log dir that the partition was in.
        target: The log dir that the partition is in now.
        bytes: The size of its records.
        took_ms: The duration of the move.
        locked_ms: How long writers had to wait.
    """

    topic: str
    partition: int
    source: str
    target: str
    bytes: int
    took_ms: int
    locked_ms: int


class MoveRequest(NamedTuple):
    """A partition is to move to the log dir `to`, with at most so many bytes a second."""

    topic: str
    partition: int
    to: str
    bytes_per_second: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MoveStatus:
    """A requested move of a partition between log dirs that is not finished.

    Attributes:
        id: The id of the request.
        topic: The name of the topic.
        partition: The number of the partition.
        source: The log dir that the partition is in.
        target: The log dir that it moves to.
        state: "waiting" (for other moves, or for a process that carries it out), "moving", or
            "failed" (it is tried again).
        copied_bytes: The bytes of records that were copied.
        total_bytes: The bytes of records in the partition.
        offset_lag: The number of offsets that are missing in the target.
        asked_ms: When the move was requested, in milliseconds since the epoch.
        bytes_per_second: The present rate; None unless the partition is moving.
        left_ms: The estimated time left; None unless the partition is moving.
        limit: The maximum rate in bytes per second; None for no limit.
        error: Why the move failed.
    """

    id: str
    topic: str
    partition: int
    source: str
    target: str
    state: MoveState
    copied_bytes: int
    total_bytes: int
    offset_lag: int
    asked_ms: int
    bytes_per_second: float | None = None
    left_ms: int | None = None
    limit: float | None = None
    error: str | None = None


def never() -> bool:
    """Tell that nobody wants it to stop."""
    return False


def no_log_dirs(path: str) -> InvalidRequestError:
    """Return the error of a move in a log that has one place."""
    return InvalidRequestError(
        f"{path} has no log dirs between which a partition could be moved: all of it lies in one "
        "store"
    )


class Moves(Protocol):
    """The moves of a log that are asked for. What changes them raises in mode "r"."""

    def status(self) -> list[MoveStatus]:
        """Return what isn't done, in the order in which it is done. Cost: listings, some stats."""

    def ask(self, requests: Sequence[MoveRequest]) -> list[str]:
        """Ask for moves, all or none; returns the ids of those that there are to do now.

        One that is asked for already goes on; another target takes its place; the place where the
        partition lies ends it. Somebody has to carry them out. Raises: see `Log.move_partition`.
        """

    def cancel(self, keys: Sequence[TopicPartition] | None = None) -> list[TopicPartition]:
        """Forget the moves of these partitions, None: all; returns those that were to move."""

    def limit(self, bytes_per_second: float | None) -> None:
        """Hold all moves of the log together to a rate, from now on; None: to none."""

    def limited(self) -> float | None:
        """Return what `limit` was told last."""

    def is_due(self) -> bool:
        """Tell whether there is one to carry out, and nobody at it. Cost: a stat, as a rule."""

    def carry_out(
        self,
        *,
        stopping: Callable[[], bool] = never,
        progress: Progress | None = None,
        done: Callable[[MovedPartition], None] | None = None,
        failed: Callable[[str, SparklogError], None] | None = None,
    ) -> None:
        """Do what is asked for, one after the other, until nothing is left, or `stopping()`.

        What fails is noted in its status, and tried again later. `done`: is told of each;
        `failed`: of the id of each that can't be carried out, and why.
        Raises: LogLockedError: somebody else is at it.
        """


class UnmovableHome:
    """The `Moves` of where nothing can be moved: there are none, and `refusal` says why."""

    def __init__(self, refusal: Callable[[], InvalidRequestError]) -> None:
        self._refusal = refusal

    def status(self) -> list[MoveStatus]:
        """Return nothing."""
        return []

    def ask(self, requests: Sequence[MoveRequest]) -> list[str]:
        """Raise InvalidRequestError."""
        raise self._refusal()

    def cancel(self, keys: Sequence[TopicPartition] | None = None) -> list[TopicPartition]:
        """Raise InvalidRequestError."""
        raise self._refusal()

    def limit(self, bytes_per_second: float | None) -> None:
        """Raise InvalidRequestError."""
        raise self._refusal()

    def limited(self) -> float | None:
        """Return None."""
        return None

    def is_due(self) -> bool:
        """Return False."""
        return False

    def carry_out(
        self,
        *,
        stopping: Callable[[], bool] = never,
        progress: Progress | None = None,
        done: Callable[[MovedPartition], None] | None = None,
        failed: Callable[[str, SparklogError], None] | None = None,
    ) -> None:
        """Do nothing: there is nothing to do."""
