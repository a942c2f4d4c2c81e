"""Erase records of a topic wherever a log stores them.

An `Erasure` runs these steps on an `ErasureHome`:

    check      the topic and the partitions exist; of each partition, the records below its end at
               the start (or below `before`) are erased
    begin      the log lists the erasure as unfinished, before the first change
    erase      the home erases the records, and reports the remaining ones as pending
    versions   older versions of objects that remain in a bucket are pending, too
    end        the log no longer lists the erasure if it is complete; otherwise the list names
               the records and objects that are left

The erasure is also ended if it failed, because readers must reopen the files that it rewrote. A dry
run neither begins nor ends.
"""

import contextlib
from contextlib import AbstractContextManager
from typing import Final, Protocol

from sparklog.common import TopicPartition
from sparklog.errors import InvalidRequestError, SparklogError
from sparklog.log.admin import unknown
from sparklog.log.topic_names import INTERNAL
from sparklog.storage.erasure_report import ErasureReport, PartitionErasure, sha256_of
from sparklog.storage.log_state import LogState
from sparklog.storage.topic_state import TopicState
from sparklog.storage.unfinished_erasure import UnfinishedErasure
from sparklog.storage.upkeep import ErasureRequest, Loan

_OF_KEYS: Final = "records with other keys, whatever their values and headers say"
_NOT_COVERED: Final = (
    "copies that this log doesn't know of: backups and snapshots, forks, what was exported or "
    "replicated, what queries and consumers made of the records",
    "Spark's checkpoints and state, those that are kept as logs too",
    "what writers stage and commit from now on",
)
"""What no erasure can reach, wherever the log is kept; each home adds what is its own."""


def erasure_report(request: ErasureRequest, path: str, now_ms: int) -> ErasureReport:
    """Check the arguments of a request, and return an empty report for it.

    Raises:
        InvalidRequestError: An argument is invalid.
    """
    if request.topic in INTERNAL:
        raise InvalidRequestError(
            f"topic {request.topic} belongs to sparklog and has no records of users"
        )
    request.check()
    bounds = [] if request.before is None else [f"offset {request.before}"]
    bounds += [] if request.before_ms is None else [f"timestamp {request.before_ms} ms"]
    return ErasureReport(
        path=path, log_id="", topic=request.topic, topic_id="", time_ms=now_ms,
        dry_run=request.dry_run, keys_sha256=sha256_of(request.keys), null_key=request.null_key,
        before=", ".join(bounds),
        not_covered=[*([_OF_KEYS] if request.predicate is None else []), *_NOT_COVERED],
    )  # fmt: skip


class ErasureHome(Protocol):
    """The operations of a log's home that an `Erasure` needs."""

    not_covered: tuple[str, ...]
    """Places with records that an erasure in this home can't reach."""

    @property
    def path(self) -> str:
        """The first log dir, or the URL of the bucket."""

    @property
    def log_id(self) -> str:
        """The log's id."""

    def now_ms(self) -> int:
        """Return the current time in milliseconds since the epoch."""

    def locked_state(self) -> AbstractContextManager[LogState]:
        """Return a context with the current state, which does not change within the context."""

    def alone(self) -> AbstractContextManager[str | None]:
        """Return a context in which no other erasure runs.

        The value of the context is None, or an error message if another erasure is running.
        """

    def begin(self, begun: UnfinishedErasure) -> UnfinishedErasure:
        """Record durably that an erasure starts.

        Returns:
            The given record, or the existing record if the same erasure began before and is
            incomplete.
        """

    def end(self, ended: UnfinishedErasure, report: ErasureReport) -> None:
        """Record durably that an erasure has ended, and list the remaining records and objects.

        The record of a complete erasure is removed from the list of unfinished ones.
        """

    def erase(self, topic: TopicState, report: ErasureReport, loan: Loan) -> None:
        """Erase the records of the report's partitions, or in a dry run count them.

        Errors of partitions, and places that still contain such records, are added to the report.
        `loan` is the service's lease, which the erasure borrows for short periods.
        """

    def older_versions(self, report: ErasureReport, until_ms: int) -> list[str]:
        """Return messages about older versions of objects that may contain erased records.

        Args:
            until_ms: Versions that were written after this time contain no erased records.

        Raises:
            SparklogError, OSError: The store can't be listed.
        """


class Erasure:
    """Erases the records that a request selects, in any home. For a single use."""

    def __init__(
        self, home: ErasureHome, request: ErasureRequest, report: ErasureReport, loan: Loan
    ) -> None:
        self._home, self._request, self._report, self._loan = home, request, report, loan

    def run(self) -> None:
        """Erase the records (in a dry run: count the records), and complete the report.

        See `Upkeep.erase`.
        """
        home, request, report = self._home, self._request, self._report
        with home.locked_state() as state:
            restorable = request.deleted_topic_warnings(state.deleted)
            topic = state.topics.get(request.topic)
            if topic is None:
                raise (
                    InvalidRequestError(restorable[0])
                    if restorable
                    else unknown(request.topic, home.path, state.topics)
                )
            parts = [
                PartitionErasure(
                    topic=request.topic, partition=partition,
                    end=request.bounded(state.ends[TopicPartition(request.topic, partition)]),
                )
                for partition in request.partitions_of(topic.dirs)
            ]  # fmt: skip
        report.log_id, report.topic_id = home.log_id, topic.id
        alone: AbstractContextManager[str | None] = (
            contextlib.nullcontext() if request.dry_run else home.alone()
        )
        with alone as refused:
            if refused is not None:
                report.errors.append(refused)
                return
            report.partitions += parts
            report.pending += restorable
            report.not_covered += home.not_covered
            begun = request.begun(report)
            if request.dry_run:
                self._erase(topic, begun)
            else:
                self._erase_noted(topic, begun)

    def _erase_noted(self, topic: TopicState, begun: UnfinishedErasure) -> None:
        """Erase the records, between the log's notes that the erasure has begun and has ended."""
        home, report = self._home, self._report
        try:
            begun = home.begin(begun)
        except (SparklogError, OSError) as error:
            report.errors.append(f"{home.path}: {error}")
            return
        try:
            self._erase(topic, begun)
        except BaseException as error:
            # After Ctrl-C too, the log must list the erasure as unfinished, with this report.
            report.errors.append(f"the erasure did not finish: {error!r}")
            raise
        finally:
            try:
                home.end(begun.ended(report, home.now_ms()), report)
            except (SparklogError, OSError) as error:
                report.errors.append(f"{home.path}: {error}")

    def _erase(self, topic: TopicState, begun: UnfinishedErasure) -> None:
        home, report = self._home, self._report
        home.erase(topic, report, self._loan)
        try:
            until_ms = begun.copied_until(report, home.now_ms())
            report.pending += home.older_versions(report, until_ms)
        except (SparklogError, OSError) as error:
            report.errors.append(f"{home.path}: {error}")
