"""`DisklessUpkeep`: the background work on a log in a bucket, in rounds.

    retain   raise log starts by retention; delete old state objects and unreferenced inline data;
             every few hours delete all other garbage
    merge    merge extents of commits into segments
    clean    compact topics

Each step is decided on the log's state, made effective by an entry, and safe on its own.
"""

import contextlib
import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import Final

from sparklog.clock import monotonic_ms
from sparklog.common import TopicPartition
from sparklog.diskless.cleaning import DisklessCleaner
from sparklog.diskless.commit_log import DisklessCommits
from sparklog.diskless.erasure import DisklessErasure
from sparklog.diskless.garbage import Garbage
from sparklog.diskless.groups import GroupObjects
from sparklog.diskless.home_object import read_home
from sparklog.diskless.lease import ServiceNotes, Tenure, TermLease
from sparklog.diskless.merge_plan import Merge, due_merges
from sparklog.diskless.merging import Merged, Merger
from sparklog.diskless.options import UpkeepOptions
from sparklog.diskless.retention import due_extents, raise_log_starts, topic_sizes
from sparklog.diskless.segment_healing import SegmentHealer
from sparklog.diskless.service_log import ConflictError, ServiceLog
from sparklog.diskless.state import DisklessState
from sparklog.errors import (
    DataCorruptionError,
    InvalidRequestError,
    LogReplacedError,
    SparklogError,
    StorageUnavailableError,
)
from sparklog.log.admin import check_compacted
from sparklog.log.deletion_announcements import Announced, DeletionAnnouncements
from sparklog.log.due_segments import DueSegments, RetentionConstraints
from sparklog.log.erasure import Erasure
from sparklog.log.group_lag import forget_silent_readers, group_retention_floors
from sparklog.log.rounds import (
    DueDeletions,
    LogCleaner,
    QuarantinedPartitions,
    delete_expired,
    report_deleted,
)
from sparklog.storage import round_report
from sparklog.storage.erasure_report import ErasureReport
from sparklog.storage.group_store import Groups
from sparklog.storage.lease import LeaseLostError
from sparklog.storage.round_report import Cleanable, Report
from sparklog.storage.segment_store import SourceChangedError
from sparklog.storage.upkeep import AS_DUE, Due, ErasureRequest, Loan, Request, Work
from sparklog.tiered.keyring import Keyring
from sparklog.tiered.layout.manifest import log_object

_LOGGER: Final = logging.getLogger("sparklog.service")
CHECK_MS: Final = 5_000
"""How often a standby service tries to acquire the lease (ms); each try is two GETs."""
_HOME_MS: Final = 60_000
"""How often to check that the log was not replaced (ms)."""


class DisklessUpkeep:
    """A `sparklog.storage.upkeep.Upkeep` of a log in a bucket.

    Args:
        groups: Returns the registered readers, which may delay retention.
        close: Closes the log.
        stopping: Returns True if the service is stopping.
        timer: Returns a monotonic time in ms.
        tenure: The identity with which the service resumes its term after reopening the log.
    """

    works: tuple[Work, ...] = ("retain", "merge", "clean")
    paused_while_lent: tuple[Work, ...] = works

    def __init__(
        self,
        commits: DisklessCommits,
        groups: Callable[[], Groups],
        options: UpkeepOptions,
        *,
        keyring: Keyring | None = None,
        stopping: Callable[[], bool] = lambda: False,
        close: Callable[[], None] = lambda: None,
        timer: Callable[[], float] = monotonic_ms,
        tenure: Tenure | None = None,
    ) -> None:
        self.log = ServiceLog(commits)
        self.lease = TermLease(
            self.log, timeout_ms=options.lease_timeout_ms, look_ms=CHECK_MS, timer=timer,
            tenure=tenure,
        )  # fmt: skip
        self._groups, self._options, self._close = groups, options, close
        self._keyring = keyring
        self._stopping, self._timer = stopping, timer
        self.merger = Merger(
            self.log, term=lambda: self.lease.term, keyring=keyring, check=self._check,
            threads=options.threads,
        )  # fmt: skip
        self.healer = SegmentHealer(self.log, keyring)
        self.garbage = Garbage(self.log, self.lease, self.merger, options, self.healer)
        self.quarantined = QuarantinedPartitions()
        cleaner = DisklessCleaner(
            self.log, self.lease, self.merger, self.garbage, self.quarantined, options,
            throttle=options.cleaner.throttle(), check=self._check,
        )  # fmt: skip
        self._cleaner = LogCleaner(
            cleaner, self.quarantined, enabled=options.cleaner_enable,
            backoff_ms=options.cleaner_backoff_ms,
        )  # fmt: skip
        self._announcements = DeletionAnnouncements(_LeaseNotes(self.lease))
        self._next_sweep_ms = float("-inf")
        self._looked_at = timer()

    # --- the lease -----------------------------------------------------------------------------

    @property
    def uncleanable(self) -> Mapping[TopicPartition, str]:
        """{partition: reason} of partitions that are skipped until the service starts again."""
        return self.quarantined.reasons

    @property
    def compacted(self) -> Sequence[Cleanable]:
        """The dirty ratios of compacted partitions at the cleaner's last check."""
        return self._cleaner.compacted

    def is_replaced(self) -> bool:
        """Return True if another log is stored at the URL.

        Cost: a GET per minute.

        Raises:
            LogReplacedError: No log is stored there.
        """
        now = self._timer()
        if now - self._looked_at < _HOME_MS:
            return False
        self._looked_at = now
        with contextlib.suppress(StorageUnavailableError):  # then unknown; checked again later
            home = read_home(self.log.store)
            if home is None:
                raise LogReplacedError(f"{self.log.store.url} no longer contains a log")
            return home.log_id != self.log.log_id
        return False

    def take_up(self, now_ms: int) -> None:
        """Fold new ledger entries. The sweep finishes the incomplete work of earlier services."""
        self.log.follow()

    def pressing(self, now_ms: int) -> Collection[Work]:
        """Return no work, because a store never gets full. Writes the heartbeat."""
        with contextlib.suppress(LeaseLostError, StorageUnavailableError):
            self.lease.check()
        return ()

    def _check(self) -> None:
        if self._stopping():
            raise LeaseLostError("the service is stopping; maintenance resumes at its next start")
        self.lease.check()

    # --- a round -------------------------------------------------------------------------------

    def work(self, work: Work, report: Report, request: Request = AS_DUE) -> Due:
        """Do a kind of work, or only report the work; return when the work is due again."""
        now, options = report.time_ms, self._options
        if work == "retain":
            self.retain(report, at_once=request.at_once)
            return {"retain": now + options.retention_check_interval_ms}
        if work == "merge":
            self.merge(report)
            return {"merge": now + options.merge_backoff_ms}
        if work == "clean":
            return self._cleaner.work(report, request)
        return {}

    @property
    def next_purge_ms(self) -> float:
        """When the next scheduled deletion is due."""
        return self.garbage.next_ms

    def purge(self, report: Report) -> None:
        """Delete segments that were replaced or expired, once their delay has passed."""
        self.garbage.tidy(report)

    def merge(self, report: Report) -> None:
        """Run the due merges. A dry run only reports the merges."""
        state = self.log.follow()
        self.quarantined.release_replaced_topics(state.log.topics)
        merges = [
            merge
            for merge in due_merges(
                state, self._options, now_ms=report.time_ms,
                time_of=partial(self.log.age_time_of, now_ms=report.time_ms),
            )
            if merge.key not in self.quarantined
        ]
        if report.dry_run:
            report.merged += [_reported(merge) for merge in merges]
            return
        # A single reader, because the merges of several partitions read the same staged objects.
        reader = self.merger.reader(state, [e for merge in merges for e in merge.sources])
        for merge in merges:
            self._check()
            try:
                done = self.merger.merge(merge, state, reader)
            except (ConflictError, SourceChangedError) as error:
                self._missed(merge, error, report)
            except (DataCorruptionError, InvalidRequestError) as error:
                if not self._healed(merge, report):
                    self.quarantined.add(merge.key, merge.topic_id, error, report)
            else:
                self._done(merge, done, report)

    def _done(self, merge: Merge, done: Merged, report: Report) -> None:
        self.garbage.schedule_deletion(
            merge.key, merge.topic_id, merge.sources, kind="replaced", now_ms=report.time_ms,
            made=map(log_object, done.segments),
        )  # fmt: skip
        report.merged.append(_reported(merge, done))

    def _healed(self, merge: Merge, report: Report) -> bool:
        """Rewrite the damaged segments among the sources of a merge.

        Returns:
            True if a source was damaged, and all damaged sources were rewritten.
        """
        try:
            damaged = [e for e in merge.sources if e.segment and self.healer.is_damaged(e)]
        except InvalidRequestError:  # a key is missing in the key ring
            return False
        tried = [self.healer.tried(merge.key, extent, report) for extent in damaged]
        return bool(tried) and all(tried)

    def _missed(self, merge: Merge, error: SparklogError, report: Report) -> None:
        """Handle the error of a merge.

        If the extents were changed by another process, the error is only logged. Otherwise damaged
        segments among the sources are rewritten; if that fails, the partition is skipped from then
        on.
        """
        state = self.log.follow()
        topic = state.log.topics.get(merge.key.topic)
        known = {extent.place for extent in state.extents.get(merge.key, ())}
        is_unchanged = all(extent.place in known for extent in merge.sources)
        is_deleted = topic is None or topic.id != merge.topic_id
        if isinstance(error, ConflictError) or is_deleted or not is_unchanged:
            _LOGGER.info("%s: %s", merge.key, error)
        elif not self._healed(merge, report):
            self.quarantined.add(merge.key, merge.topic_id, error, report)

    # --- retention and garbage -----------------------------------------------------------------

    def retain(self, report: Report, *, at_once: bool = False) -> None:
        """Raise log starts by retention.

        A topic's first deletion waits for a round, unless `at_once`.

        Without `at_once`, also look for garbage.
        """
        self._retain(report, at_once=at_once)
        self.garbage.give_up_topics(report)
        if at_once:
            return
        self.garbage.states(report)
        self.garbage.cut(report, delay_ms=self._options.delete_delay_ms)
        interval_ms = self._options.sweep_interval_ms
        if interval_ms >= 0 and (report.dry_run or report.time_ms >= self._next_sweep_ms):
            report.notes += forget_silent_readers(
                Groups(GroupObjects(self.log.store)), now_ms=report.time_ms,
                retention_ms=self._options.offsets_retention_ms, dry_run=report.dry_run,
            )  # fmt: skip
            if self.garbage.is_due(report):
                self.garbage.raise_floor(report)
                self.garbage.sweep(report)
            if not report.dry_run:
                waiting_ms = self.garbage.waiting_ms(report.time_ms)
                self._next_sweep_ms = min(report.time_ms + interval_ms, waiting_ms)

    def _retain(self, report: Report, *, at_once: bool) -> None:
        state, now_ms = self.log.follow(), report.time_ms
        floors = group_retention_floors(
            state.log, self._groups(), now_ms=now_ms,
            retention_ms=self._options.offsets_retention_ms,
        )  # fmt: skip
        terms = {key: RetentionConstraints(floor) for key, floor in floors.items()}
        due = due_extents(state, terms, now_ms=now_ms, time_of=self.log.time_of)
        ids = {name: topic.id for name, topic in state.log.topics.items()}
        sizes, delete = partial(topic_sizes, state), partial(self._delete, state, due)
        deletions = DueDeletions(ids, terms, due, sizes, delete)
        delete_expired(deletions, self._announcements, report, at_once=at_once)

    def _delete(
        self,
        state: DisklessState,
        due: Mapping[TopicPartition, DueSegments],
        terms: Mapping[TopicPartition, RetentionConstraints],
        report: Report,
    ) -> None:
        """Raise log starts by an entry, and schedule the deletion of the extents below them.

        Args:
            state: The state on which the deletion was decided.
            due: The extents that retention may delete.
            terms: The constraints of retention. Partitions whose deletion is only announced are
                skipped.
            report: The report to which the deletions are added.
        """
        due = {key: segments for key, segments in due.items() if not terms[key].announcing}
        starts = {key: segments.log_start for key, segments in due.items() if segments.expired}
        if starts:
            self._check()
            taken = raise_log_starts(self.log, state, starts, term=self.lease.term)
            for key, gone in taken.items():
                topic_id = state.log.topics[key.topic].id
                self.garbage.schedule_deletion(
                    key, topic_id, gone, kind="expired", now_ms=report.time_ms
                )
            due = {key: d for key, d in due.items() if key in taken or not d.expired}
        report_deleted(due, report)

    # --- erasing -------------------------------------------------------------------------------

    def erase(self, request: ErasureRequest, report: ErasureReport, loan: Loan) -> None:
        """Erase records; see `Upkeep.erase`."""
        home = DisklessErasure(
            self.log, self.lease, self.merger, self.garbage, request, check=self._check
        )
        Erasure(home, request, report, loan).run()

    def check_compacted(self, topics: Collection[str], report: Report) -> None:
        """Check that all topics exist and are compacted.

        Raises:
            UnknownTopicError: A topic does not exist.
            InvalidRequestError: A topic is not compacted.
        """
        check_compacted(topics, self.log.store.url, self.log.follow().log.topics)

    def close(self) -> None:
        """Close the log."""
        self._close()


class _LeaseNotes:
    """Stores the deletions that retention has announced, in the lease's heartbeat.

    Implements `deletion_announcements.AnnouncementStore`.
    """

    def __init__(self, lease: TermLease) -> None:
        self._lease = lease

    def read(self) -> Announced:
        """Return the announcements."""
        notes: ServiceNotes = self._lease.notes
        return notes.announced

    def write(self, found: Announced) -> None:
        """Store announcements with the next heartbeat."""
        self._lease.notes.announced = {what: dict(known) for what, known in found.items()}


def _reported(merge: Merge, done: Merged | None = None) -> round_report.Merged:
    return round_report.Merged(
        topic=merge.key.topic,
        partition=merge.key.partition,
        base=merge.sources[0].base,
        end=merge.sources[-1].end,
        extents=len(merge.sources),
        bytes=merge.size,
        stored_bytes=0 if done is None else done.stored_bytes,
    )
