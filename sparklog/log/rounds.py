"""The parts of the service's round that all homes share: retention and the log cleaner.

A home finds the due segments (`DueDeletions`) and the compacted partitions (`CleanerSteps`), and
changes its files or objects. The rules of a single partition are in `due_segments` and
`dirty_ratio`.
"""

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, Generic, Protocol, TypeVar

from sparklog.common import TopicPartition
from sparklog.log.deletion_announcements import DeletionAnnouncements
from sparklog.log.due_segments import NO_CONSTRAINTS, DueSegments, RetentionConstraints
from sparklog.storage.round_report import Cleanable, CleanReport, Deleted, Report
from sparklog.storage.topic_state import TopicState
from sparklog.storage.upkeep import Due, Request

_LOGGER: Final = logging.getLogger("sparklog.service")

Terms = Mapping[TopicPartition, RetentionConstraints]


@dataclass(frozen=True, slots=True)
class DueDeletions:
    """The segments of a log that retention would delete, and the functions to delete them.

    Attributes:
        ids: {topic: topic id} of all topics.
        terms: The constraints on retention by which the segments were chosen.
        due: {partition: due segments}. None: unknown, because the files change at this moment or
            are damaged.
        sizes: Returns {topic: size in bytes} of some topics.
        delete: Deletes the due segments that the constraints permit, and reports them; see
            `report_deleted`.
    """

    ids: Mapping[str, str]
    terms: Terms
    due: Mapping[TopicPartition, DueSegments | None]
    sizes: Callable[[Collection[str]], Mapping[str, int]]
    delete: Callable[[dict[TopicPartition, RetentionConstraints], Report], None]


def delete_expired(
    deletions: DueDeletions,
    announcements: DeletionAnnouncements,
    report: Report,
    *,
    at_once: bool = False,
) -> None:
    """Delete the due segments, or report them in a dry run.

    A topic's first deletion is announced, and done in the next round, unless `at_once`. Local
    segments with a remote copy need no announcement, because their records remain readable.
    """
    due = {key: segments for key, segments in deletions.due.items() if segments is not None}
    final = {key: d.expired for key, d in due.items() if d.expired and not d.local}
    postponed = announcements.unannounced(
        final,
        deletions.ids,
        report,
        sizes=deletions.sizes({key.topic for key in final}),
        unsure={key.topic for key in deletions.due.keys() - due.keys()},
        at_once=at_once,
    )
    if report.dry_run:
        report_deleted(due, report)
        return
    terms: dict[TopicPartition, RetentionConstraints] = {}
    for key in deletions.due:
        known = deletions.terms.get(key, NO_CONSTRAINTS)
        terms[key] = replace(known, announcing=key.topic in postponed and not known.local)
    if terms:
        deletions.delete(terms, report)


def report_deleted(due: Mapping[TopicPartition, DueSegments], report: Report) -> None:
    """Add deleted segments to the report, or in a dry run the segments that are due."""
    verb = "would be" if report.dry_run else "is"
    for key, segments in due.items():
        if segments.expired or segments.held_back:
            report.deleted.append(
                Deleted(
                    topic=key.topic, partition=key.partition, segments=segments.expired,
                    log_start=segments.log_start, held_back_bytes=segments.held_back,
                    local=segments.local,
                )
            )  # fmt: skip
        if segments.rolls and segments.local:
            report.notes.append(
                f"{key}: the active segment {verb} closed, so that it can be copied and deleted"
            )


class QuarantinedPartitions:
    """Damaged partitions that the rounds skip until the service restarts. Thread-safe.

    Source: Kafka's uncleanable partitions.
    """

    def __init__(self) -> None:
        self._reasons: dict[TopicPartition, tuple[str, str]] = {}  # -> (topic id, reason)

    def __contains__(self, key: TopicPartition) -> bool:
        return key in self._reasons

    @property
    def reasons(self) -> dict[TopicPartition, str]:
        """{partition: reason} of the skipped partitions."""
        return {key: why for key, (_, why) in list(self._reasons.items())}

    def add(self, key: TopicPartition, topic_id: str, error: Exception, report: Report) -> None:
        """Skip a partition from now on, and report the error."""
        self._reasons[key] = topic_id, str(error)
        report_failed(key, error, report)

    def release_replaced_topics(self, topics: Mapping[str, TopicState]) -> None:
        """Do not skip the partitions of deleted topics any more.

        A topic that was created again under the same name has another id.
        """
        for key, (topic_id, _) in list(self._reasons.items()):  # other threads may add keys
            if key.topic not in topics or topics[key.topic].id != topic_id:
                self._reasons.pop(key, None)


def report_failed(key: TopicPartition, error: Exception, report: Report) -> None:
    """Add the error of a partition to the report, and log it.

    The round then continues with the other partitions.
    """
    report.errors.append(f"{key}: {error}")
    _LOGGER.error("%s: %s", key, error)


PartitionT = TypeVar("PartitionT", bound=Cleanable)


class CleanerSteps(Protocol[PartitionT]):
    """The steps of the log cleaner that depend on the home."""

    def compacted(self, now_ms: int) -> Sequence[PartitionT]:
        """Return the partitions of compacted topics with their dirty ratios."""

    def topics(self) -> Mapping[str, TopicState]:
        """Return {name: state} of the topics, at least as new as at the last `compacted`."""

    def clean(self, partitions: Sequence[PartitionT], report: Report) -> None:
        """Clean partitions, in this order, and add the results to the report.

        Errors of a single partition are reported.

        Raises:
            LeaseLostError: Another service has taken over.
            StorageUnavailableError: The store or the disk fails.
        """


class LogCleaner(Generic[PartitionT]):
    """Cleans the dirty partitions of compacted topics, in the rounds of the service.

    Source: LogCleaner, LogCleanerManager.

    Attributes:
        quarantined: The partitions that are skipped; the home adds damaged partitions.
        compacted: The compacted partitions at the last check, the dirtiest first.
    """

    def __init__(
        self,
        steps: CleanerSteps[PartitionT],
        quarantined: QuarantinedPartitions,
        *,
        enabled: bool,
        backoff_ms: int,
    ) -> None:
        """Create a cleaner.

        `enabled` and `backoff_ms` are log.cleaner.enable and log.cleaner.backoff.ms.
        """
        self._steps, self.quarantined = steps, quarantined
        self._enabled, self._backoff_ms = enabled, backoff_ms
        self.compacted: Sequence[Cleanable] = ()

    def work(self, report: Report, request: Request) -> Due:
        """Clean the partitions that are dirty enough; return when cleaning is due again.

        That is now if any partition was dirty, else after log.cleaner.backoff.ms.
        """
        is_dirty = self.clean(report, request.topics, every=request.every)
        return {"clean": report.time_ms + (0 if is_dirty else self._backoff_ms)}

    def clean(
        self, report: Report, topics: Collection[str] | None = None, *, every: bool = False
    ) -> bool:
        """Clean the partitions that are dirty enough, dirtiest first; return True if any was.

        Args:
            report: The report of the round, to which the work is added.
            topics: The topics to clean; None: all.
            every: Clean all partitions with any dirty records, however small their share.
        """
        if not self._enabled:
            return False
        compacted = sorted(self._steps.compacted(report.time_ms), key=lambda c: -c.dirt.ratio)
        self.compacted = compacted
        if self.quarantined.reasons:
            self.quarantined.release_replaced_topics(self._steps.topics())
        dirty = [
            each
            for each in compacted
            if (each.wanted or (every and each.dirt.cleanable_bytes))
            and each.key not in self.quarantined
            and (topics is None or each.topic in topics)
        ]
        if report.dry_run:
            report.cleaned += [
                CleanReport(topic=c.topic, partition=c.partition, dirt=c.dirt, dry_run=True)
                for c in dirty
            ]
        elif dirty:
            self._steps.clean(dirty, report)
        return bool(dirty)
