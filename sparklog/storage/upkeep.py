"""Upkeep: the background work on a log, as a service asks its home for it.

A home has up to four kinds of work, which may go on side by side, each again and again:

    tier     closed segments get copies elsewhere, and copies that are due go
    retain   idle segments are closed, what is due is deleted, and the house is kept
    merge    small pieces become segments (a home whose commits are objects)
    clean    compacted topics are cleaned

What they take from readers is unlinked later, when file.delete.delay.ms is over: `purge`. Each step
is decided on the log's state and safe by itself, so that work may end anywhere and be done again;
that one service at a time does it is the `lease`'s business, and only saves the waste.

When which work is due is said by the home: `work` returns it. The service keeps the times, the
threads, and who leads. Checking a log and mending it is no upkeep: `sparklog.service.verify` does
that for a log dir.
"""

import os
import socket
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal, Protocol, get_args

from sparklog.common import TopicPartition
from sparklog.errors import InvalidRequestError
from sparklog.format.erasure import RecordPredicate
from sparklog.storage.deleted_topic import DeletedTopic
from sparklog.storage.erasure_report import ErasureReport
from sparklog.storage.lease import UpkeepLease
from sparklog.storage.round_report import Cleanable, Report
from sparklog.storage.unfinished_erasure import UnfinishedErasure

Work = Literal["tier", "retain", "merge", "clean"]
WORKS: Final[tuple[Work, ...]] = get_args(Work)
"""All kinds of work, in the order in which one round does them."""

Due = Mapping[Work, float]
"""When a kind of work is due next: ms since the epoch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What somebody asked for beside what is due.

    `at_once`: retention deletes what it would only announce, and copies or merges nothing.
    `topics`: these alone are cleaned. `every`: however dirty they are.
    """

    at_once: bool = False
    topics: Collection[str] | None = None
    every: bool = False


AS_DUE: Final = Request()


@dataclass(frozen=True, slots=True, kw_only=True)
class ErasureRequest:
    """Records of a topic that are to go: what `predicate` chooses, below offset `before` if given.

    `partitions`: these alone. `name`: the same of the same request; see `UnfinishedErasure`.
    `wait_ms`: how long to wait for other processes that are in the way; `waiting` is called once
    with a description of them.
    """

    topic: str
    predicate: RecordPredicate
    partitions: Collection[int] | None = None
    before: int | None = None
    name: str = ""
    wait_ms: float = 0
    waiting: Callable[[str], None] = lambda who: None

    def begun(self, report: ErasureReport) -> UnfinishedErasure:
        """Return what the log tells of it while it isn't complete."""
        return UnfinishedErasure(
            request=self.name, topic=self.topic, topic_id=report.topic_id,
            since_ms=report.time_ms, pid=os.getpid(), host=socket.gethostname(),
        )  # fmt: skip

    def partitions_of(self, known: Collection[int]) -> list[int]:
        """Return the partitions that are meant, ascending. Raises: InvalidRequestError."""
        wanted = sorted(set(known if self.partitions is None else self.partitions))
        if missing := [p for p in wanted if p not in known]:
            raise InvalidRequestError(
                f"topic {self.topic} has no partitions {missing}; it has {sorted(known)}"
            )
        return wanted

    def deleted_topic_warnings(self, deleted: Mapping[str, DeletedTopic]) -> list[str]:
        """Say of deleted topics of this name, which can be given back, that they hold records."""
        return [
            f"topic {each.name} with the id {each.id} was deleted and can be given back; it isn't "
            f"looked at: `sparklog topics delete PATH --topic {each.name} --now` gives it up, or "
            "give it back and erase there too"
            for each in deleted.values()
            if each.name == self.topic
        ]


class Loan(Protocol):
    """The lease as an erasure borrows it: for a while at a time, so that other work gets on, too.

    What was seen before `begin` may have changed by then, unless it was ours all the time.
    """

    def begin(self) -> bool:
        """Take the lease, or keep it if there is time left; false: it isn't to be had.

        Who works with it was given his time before, and none of his steps is under way.
        """

    def is_over(self) -> bool:
        """Tell whether we have had it for so long that others are to get on first."""

    def end(self) -> None:
        """Give it back for a while. Idempotent."""


class Upkeep(Protocol):
    """A log that is open for its background work. Each kind of work has one thread at a time.

    What is damaged or fails alone (a partition, a segment) goes into the report's `errors`, and
    the round goes on.
    """

    @property
    def lease(self) -> UpkeepLease:
        """The right to do the work; not taken yet."""

    @property
    def works(self) -> tuple[Work, ...]:
        """The kinds of work that this log has, in the order of WORKS."""

    @property
    def paused_while_lent(self) -> tuple[Work, ...]:
        """The kinds of work that must stand still while another leads for a while.

        The others find their steps refused then, and lose what they were at.
        """

    @property
    def uncleanable(self) -> Mapping[TopicPartition, str]:
        """{partition: why} of what is left alone until the service starts again."""

    @property
    def compacted(self) -> Sequence[Cleanable]:
        """How dirty the compacted partitions were when the cleaner looked last."""

    def is_replaced(self) -> bool:
        """Tell whether another log, or an earlier state, took this one's place: open it anew.

        Raises: LogReplacedError: it is gone, and none is there.
        """

    def take_up(self, now_ms: int) -> None:
        """Take up what others left half done: once the lease is ours, and before a dry run."""

    def pressing(self, now_ms: int) -> Collection[Work]:
        """Return what can't wait until it is due. Asked every second, so it is to be cheap."""

    def work(self, work: Work, report: Report, request: Request = AS_DUE) -> Due:
        """Do one kind of work, or say what it would do (`report.dry_run`); returns what is due.

        Raises: LeaseLostError: another service has taken over, or this one is to stop; what else
            keeps it from beginning. What it has reported is done nevertheless.
        """

    @property
    def next_purge_ms(self) -> float:
        """When the next of what was retired may be unlinked; infinity: nothing waits."""

    def purge(self, report: Report) -> None:
        """Unlink what was retired and whose delay is over. Raises: LeaseLostError."""

    def check_compacted(self, topics: Collection[str], report: Report) -> None:
        """Refuse to clean topics that aren't compacted; report partitions that can't be looked at.

        Args: topics: none stands for all that are compacted.
        Raises: UnknownTopicError, InvalidRequestError.
        """

    def erase(self, request: ErasureRequest, report: ErasureReport, loan: Loan) -> None:
        """Erase records for good, wherever this home keeps them, or count them (`dry_run`).

        Args: loan: begun when the lease is needed; where it isn't to be had, what only its holder
        may do is pending.
        Raises: UnknownTopicError, InvalidRequestError: no such partition. What fails in one
        partition is in its report.
        """

    def close(self) -> None:
        """Close the log; the lease is given back before. Idempotent."""


OpenUpkeep = Callable[[], Upkeep]
"""Opens a log for its background work. Raises what `sparklog.open` raises."""
