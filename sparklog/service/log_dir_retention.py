"""The retention step of a round in log dirs: idle and expired segments, and housekeeping."""

import contextlib
from collections.abc import Collection, Iterator, Mapping
from functools import partial

from sparklog.clock import monotonic_ms
from sparklog.common import TopicPartition
from sparklog.errors import DataCorruptionError, PartitionOfflineError
from sparklog.log.deletion_announcements import DeletionAnnouncements
from sparklog.log.due_segments import RetentionConstraints
from sparklog.log.group_lag import forget_silent_readers, group_retention_floors
from sparklog.log.rounds import DueDeletions, QuarantinedPartitions, delete_expired, report_deleted
from sparklog.logdir.commit_log import LogDirCommits
from sparklog.logdir.housekeeping import expire_ledger, expire_producers, prune_snapshots, sweep
from sparklog.logdir.retention.due_partitions import DuePartitions
from sparklog.logdir.retention.partition_retention import PartitionRetention, retention_by_partition
from sparklog.logdir.retention.segment_deletion import delete_due, roll_if_active
from sparklog.pluralize import pluralize
from sparklog.service.announcement_file import AnnouncementFile
from sparklog.service.log_dir_cleaner import attempt
from sparklog.service.options import ServiceOptions
from sparklog.service.retired_files import RetiredFiles
from sparklog.service.tiering.copy_confirmation import CopyConfirmation
from sparklog.service.tiering.remote_log_manager import RemoteLogManager
from sparklog.storage.group_store import Groups
from sparklog.storage.lease import Lease
from sparklog.storage.round_report import Report
from sparklog.tiered.remote_log_metadata.metadata_cache import RemoteLogMetadataCache


class LogDirRetention:
    """Closes idle segments and deletes expired segments. Not thread-safe."""

    def __init__(
        self,
        commits: LogDirCommits,
        groups: Groups,
        lease: Lease,
        options: ServiceOptions,
        manager: RemoteLogManager | None,
        retired: RetiredFiles,
        quarantined: QuarantinedPartitions,
    ) -> None:
        self._commits, self._groups, self._lease, self._options = commits, groups, lease, options
        self._manager, self._retired, self._quarantined = manager, retired, quarantined
        self._due_partitions = DuePartitions(commits.fs)
        self._announcements = DeletionAnnouncements(AnnouncementFile(commits.fs, commits.home))

    def retain(self, report: Report, *, at_once: bool = False) -> None:
        """Delete expired segments, roll idle segments, and do the housekeeping of the log dirs.

        A topic's first deletion is announced, and done in the next round, unless `at_once`.
        """
        commits, now = self._commits, report.time_ms
        with commits.exclusive():
            began = monotonic_ms()
            partitions = retention_by_partition(commits)
            floors = group_retention_floors(
                commits.state, self._groups, now_ms=now,
                retention_ms=commits.options.offsets_retention_ms,
            )  # fmt: skip
            ids = {name: topic.id for name, topic in commits.state.topics.items()}
            report.errors += offline_partitions(commits, ids)
            report.locked_ms.append(monotonic_ms() - began)
        if self._manager is not None:
            remote_log = self._manager.remote_log
            partitions = remote_log.with_planned_starts(partitions, dry_run=report.dry_run)
        # Reading copies takes long, so it comes before the lock on the metadata. Within the lock
        # the copies are only listed again: in between, an expiration may have deleted some.
        confirmation = self._read_copies(partitions, floors, report)
        with self._terms(partitions, floors, report) as (cache, terms):
            due = self._due_partitions.due(partitions, terms, now_ms=now)
            if confirmation is not None and cache is not None:
                checked = confirmation.confirm(cache, partitions, due, terms)
                # Segments whose copies are missing must stay, so the due segments are selected
                # again.
                if checked != terms:
                    terms = checked
                    due = self._due_partitions.due(partitions, terms, now_ms=now)
            deletions = DueDeletions(ids, terms, due, self._due_partitions.sizes, self._delete)
            delete_expired(deletions, self._announcements, report, at_once=at_once)
        for key, base in self._due_partitions.idle(partitions, now_ms=now).items():
            roll = partial(self._roll, key, base, report)
            attempt(roll, key, ids[key.topic], commits, self._quarantined, report)
        report.notes += self._housekeeping(report)

    def _read_copies(
        self,
        partitions: Mapping[TopicPartition, PartitionRetention],
        floors: Mapping[TopicPartition, int],
        report: Report,
    ) -> CopyConfirmation | None:
        """Read the copies that local retention is about to rely on, without a lock."""
        manager = self._manager
        if manager is None:
            return None
        confirmation = manager.confirmation(report)
        with contextlib.suppress(DataCorruptionError):  # `_terms` reports it
            with manager.remote_log.locked_cache() as cache:
                terms = manager.remote_log.terms(cache, partitions, floors)
                due = self._due_partitions.due(partitions, terms, now_ms=report.time_ms)
                copies = confirmation.relied_upon(cache, partitions, due, terms)
            confirmation.read(copies)
        return confirmation

    @contextlib.contextmanager
    def _terms(
        self,
        partitions: Mapping[TopicPartition, PartitionRetention],
        floors: Mapping[TopicPartition, int],
        report: Report,
    ) -> Iterator[tuple[RemoteLogMetadataCache | None, dict[TopicPartition, RetentionConstraints]]]:
        """Provide retention's constraints; within the context no thread deletes a copy."""
        if self._manager is None:
            yield None, {key: RetentionConstraints(floor) for key, floor in floors.items()}
            return
        remote_log, stack = self._manager.remote_log, contextlib.ExitStack()
        with stack:
            cache = None
            try:
                cache = stack.enter_context(remote_log.locked_cache())
            except DataCorruptionError as error:
                report.errors.append(
                    "no local segments of tiered topics are deleted, because the metadata of "
                    f"their copies can't be read: {error}"
                )
            yield cache, remote_log.terms(cache, partitions, floors)

    def _delete(self, left: dict[TopicPartition, RetentionConstraints], report: Report) -> None:
        """Delete the segments that are still due under the lock, in several short steps."""
        # Writers wait for the lock, so a step takes no more segments after service.lock.budget.ms.
        now = report.time_ms
        while left:
            self._lease.check()
            done = delete_due(
                self._commits, left, now_ms=now, budget_ms=self._options.lock_budget_ms
            )
            report.locked_ms.append(done.locked_ms)
            report_deleted(done.taken, report)
            report.errors += [f"{key}: {error}" for key, error in done.failed.items()]
            for path, delay_ms in done.waiting.items():
                self._retired.schedule([path], now + delay_ms)
            seen = done.taken.keys() | done.failed.keys()
            if not seen:
                return  # the finished part isn't published yet: the next round continues
            left = {key: terms for key, terms in left.items() if key not in seen}

    def _roll(self, key: TopicPartition, base: int, report: Report) -> None:
        if not report.dry_run:
            self._lease.check()
            with self._commits.exclusive():
                began = monotonic_ms()
                roll_if_active(self._commits, key, base)
                report.locked_ms.append(monotonic_ms() - began)
        report.rolled.append((*key, base))

    def _housekeeping(self, report: Report) -> Iterator[str]:
        """Expire ledger segments, idle producers and silent readers, and remove dead staged files.

        Yields:
            A sentence for each kind of thing that was removed, or would be removed without
            `dry_run`.
        """
        commits, now_ms, dry_run = self._commits, report.time_ms, report.dry_run
        retention_ms = self._options.ledger_retention_ms
        would = "would be " if dry_run else ""
        if retention_ms >= 0:
            old = expire_ledger(commits, retention_ms=retention_ms, now_ms=now_ms, dry_run=dry_run)
            if old:
                yield f"{pluralize(len(old), 'segment')} of the commit ledger {would}removed"
        if not dry_run:
            idle_producers = expire_producers(commits, now_ms=now_ms)
            if idle_producers:
                yield f"{pluralize(idle_producers, 'idle producer')} forgotten"
        stray = prune_snapshots(commits, dry_run=dry_run)
        if stray:
            yield f"{pluralize(len(stray), 'producer snapshot')} without a segment {would}removed"
        staged = sweep(commits, now_ms=now_ms, dry_run=dry_run)
        if staged:
            yield f"{pluralize(len(staged), 'staged file')} of uncommitted attempts {would}removed"
        yield from forget_silent_readers(
            self._groups, now_ms=now_ms, dry_run=dry_run,
            retention_ms=commits.options.offsets_retention_ms,
        )  # fmt: skip


def offline_partitions(commits: LogDirCommits, topics: Collection[str]) -> list[str]:
    """Return a message for each offline partition of these topics. Requires the write lock."""
    return [
        f"{topic}-{p}: {error}"
        for (topic, p), error in commits.offline.items()
        if isinstance(error, PartitionOfflineError) and topic in topics
    ]
