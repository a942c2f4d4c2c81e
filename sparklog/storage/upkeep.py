"""Upkeep: the background work on a log, as the service calls it.

A home has up to four kinds of work, which run repeatedly and may run concurrently:

    tier     copies closed segments to remote storage, and deletes expired copies
    retain   rolls idle segments, deletes expired segments, and cleans up
    merge    merges extents into segments (in a bucket)
    clean    compacts topics with cleanup.policy=compact

`purge` unlinks the retired files after file.delete.delay.ms. Each step decides on the log's state
and is safe without the other steps, so work can be interrupted at any point and repeated. The
`lease` prevents two services from doing the same work. It only avoids waste; correctness does not
depend on it.

`work` returns when each kind of work is due next. The service manages the times, the threads, and
the leadership. Verification and repair are not part of upkeep; for a log dir see
`sparklog.service.verify`.
"""

import hashlib
import json
import os
import socket
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal, Protocol, get_args

from sparklog.common import TopicPartition
from sparklog.errors import InvalidRequestError
from sparklog.format.erasure import KeyPredicate, RecordPredicate
from sparklog.storage.deleted_topic import DeletedTopic
from sparklog.storage.erasure_report import ErasureReport, sha256_of
from sparklog.storage.lease import UpkeepLease
from sparklog.storage.round_report import Cleanable, Report
from sparklog.storage.unfinished_erasure import UnfinishedErasure

Work = Literal["tier", "retain", "merge", "clean"]
WORKS: Final[tuple[Work, ...]] = get_args(Work)
"""All kinds of work, in the order within a round."""

_NAME_DIGITS: Final = 4  # of a hash: enough to recognize a request, too few to guess its keys

Due = Mapping[Work, float]
"""When a kind of work is due next, in ms since the epoch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """A user's request for work.

    Attributes:
        at_once: Retention deletes segments without announcing the deletion a round before, and no
            segment is copied or merged.
        topics: The only topics to clean; None for all.
        every: Clean regardless of the dirty ratio.
    """

    at_once: bool = False
    topics: Collection[str] | None = None
    every: bool = False


AS_DUE: Final = Request()


@dataclass(frozen=True, slots=True, kw_only=True)
class ErasureRequest:
    """A request to erase records of a topic. The fields are parameters of `service.erase`."""

    topic: str
    keys: Collection[bytes] = ()
    predicate: RecordPredicate | None = None
    partitions: Collection[int] | None = None
    null_key: bool = False
    before: int | None = None
    before_ms: int | None = None
    dry_run: bool = False
    wait_ms: float = 0
    waiting: Callable[[str], None] = lambda who: None

    def check(self) -> None:
        """Raise InvalidRequestError for arguments that are wrong in any log."""
        if not all(isinstance(key, bytes) for key in self.keys):
            raise InvalidRequestError("keys must be a collection of bytes, as stored in the log")
        if self.partitions is not None and not self.partitions:
            raise InvalidRequestError("partitions is empty; leave it out for all partitions")
        with_keys = self.keys or self.null_key or self.before_ms is not None
        if self.predicate is not None and with_keys:
            raise InvalidRequestError("pass either keys (with null_key, before_ms) or a predicate")
        self.selection()

    def selection(self) -> RecordPredicate:
        """Return the predicate that selects the records.

        Raises:
            InvalidRequestError: The keys are invalid.
        """
        if self.predicate is not None:
            return self.predicate
        return KeyPredicate(self.keys, null_key=self.null_key, before_ms=self.before_ms)

    def bounded(self, end: int) -> int:
        """Return the end of the offsets to erase in a partition whose end offset is `end`.

        This is `end`, or a lower offset limit (`before`) of the request.
        """
        return end if self.before is None else min(end, self.before)

    @property
    def name(self) -> str:
        """Identifies equal requests; see `UnfinishedErasure`."""
        fields: list[object] = [
            sha256_of(self.keys), self.null_key, self.before, self.before_ms,
            self.partitions and sorted(self.partitions),
        ]  # fmt: skip
        fields += [] if self.predicate is None else [type(self.predicate).__qualname__]
        return hashlib.sha256(json.dumps(fields).encode()).hexdigest()[:_NAME_DIGITS]

    def begun(self, report: ErasureReport) -> UnfinishedErasure:
        """Return the log's record of the erasure, until the erasure is complete."""
        return UnfinishedErasure(
            request=self.name, topic=self.topic, topic_id=report.topic_id,
            since_ms=report.time_ms, pid=os.getpid(), host=socket.gethostname(),
        )  # fmt: skip

    def partitions_of(self, known: Collection[int]) -> list[int]:
        """Return the requested partitions, ascending.

        Raises:
            InvalidRequestError: A requested partition does not exist.
        """
        wanted = sorted(set(known if self.partitions is None else self.partitions))
        if missing := [p for p in wanted if p not in known]:
            raise InvalidRequestError(
                f"topic {self.topic} has no partitions {missing}; it has {sorted(known)}"
            )
        return wanted

    def deleted_topic_warnings(self, deleted: Mapping[str, DeletedTopic]) -> list[str]:
        """Return a warning for each deleted topic of this name that can still be restored."""
        return [
            f"topic {topic.name} with the id {topic.id} was deleted and can be restored, and its "
            "records are not erased: remove it by "
            f"`sparklog topics delete PATH --topic {topic.name} --now`, or "
            "restore it and erase its records too"
            for topic in deleted.values()
            if topic.name == self.topic
        ]


class Loan(Protocol):
    """The service's lease, which an erasure borrows for short periods.

    Between `end` and `begin` other processes may change the log.
    """

    def begin(self) -> bool:
        """Acquire the lease, or continue with a lease that has time left. Return True on success.

        The previous holder got time to finish, and none of its steps is in progress.
        """

    def is_over(self) -> bool:
        """Return True if the lease was used for so long that other work must continue first."""

    def end(self) -> None:
        """Return the lease for a while. Idempotent."""


class Upkeep(Protocol):
    """A log that is open for background work. Each kind of work runs in a single thread at a time.

    Damage or failure of a single partition or segment is added to the report's `errors`, and the
    round continues.
    """

    @property
    def lease(self) -> UpkeepLease:
        """The right to do the work; not acquired yet."""

    @property
    def works(self) -> tuple[Work, ...]:
        """The kinds of work of this log, in the order of WORKS."""

    @property
    def paused_while_lent(self) -> tuple[Work, ...]:
        """The kinds of work that must pause while another process has the lease.

        The other kinds continue: their steps are then rejected, and their progress is lost.
        """

    @property
    def uncleanable(self) -> Mapping[TopicPartition, str]:
        """{partition: reason} of partitions that are not cleaned until the service restarts."""

    @property
    def compacted(self) -> Sequence[Cleanable]:
        """The dirty ratios of compacted partitions when the cleaner last looked."""

    def is_replaced(self) -> bool:
        """Return True if the log was replaced (also by an earlier state) and must be reopened.

        Raises:
            LogReplacedError: The log is missing.
        """

    def take_up(self, now_ms: int) -> None:
        """Finish work that other processes left incomplete.

        Called after `acquire` and before a dry run.
        """

    def pressing(self, now_ms: int) -> Collection[Work]:
        """Return work that is urgent before it is due. Called every second, so must be cheap."""

    def work(self, work: Work, report: Report, request: Request = AS_DUE) -> Due:
        """Do (or, with `report.dry_run`, simulate) a kind of work; return when work is due next.

        Steps that the report contains are complete, even if an error is raised.

        Raises:
            LeaseLostError: Another service has taken over, or this service must stop.
        """

    @property
    def next_purge_ms(self) -> float:
        """When the next retired file can be unlinked; infinity if there is none."""

    def purge(self, report: Report) -> None:
        """Unlink retired files after their delay.

        Raises:
            LeaseLostError: Another process has taken over the lease.
        """

    def check_compacted(self, topics: Collection[str], report: Report) -> None:
        """Raise for topics that aren't compacted; report partitions that can't be checked.

        Args:
            topics: The topics; an empty collection stands for all compacted topics.
            report: The report to which partitions that can't be checked are added.

        Raises:
            UnknownTopicError: A topic does not exist.
            InvalidRequestError: A topic is not compacted.
        """

    def erase(self, request: ErasureRequest, report: ErasureReport, loan: Loan) -> None:
        """Erase records everywhere in this home, or with `dry_run` count the records.

        Errors of single partitions are added to the reports of the partitions.

        Args:
            request: The records to erase.
            report: The report to complete.
            loan: The lease, which is borrowed when a step needs the lease. If the lease is
                unavailable, the report lists such steps as pending.

        Raises:
            UnknownTopicError: The topic does not exist.
            InvalidRequestError: A partition does not exist.
        """

    def close(self) -> None:
        """Close the log, after the lease was released. Idempotent."""


OpenUpkeep = Callable[[], Upkeep]
"""Opens a log for background work. Raises: as `sparklog.open`."""
