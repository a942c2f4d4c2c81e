"""The steps of a round: rolling, retention, compaction, unlinking.

Idle segments are closed, expired segments deleted, compacted topics cleaned, and retired files
unlinked when their delay has passed. Each step is safe without the others.
"""

import contextlib
import logging
import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any, Final

from sparklog.clock import monotonic_ms
from sparklog.common import TopicPartition
from sparklog.errors import DataCorruptionError, InvalidRequestError, PartitionOfflineError
from sparklog.fs import LOCAL
from sparklog.log.admin import purge_topics, unknown
from sparklog.log.cleaner_options import Throttle
from sparklog.log.deletion_announcements import DeletionAnnouncements
from sparklog.log.due_segments import LOG_START, NO_CONSTRAINTS, DueSegments, RetentionConstraints
from sparklog.logdir.cleaning.cleaner import clean_partition, cleanable, finish, plan_job
from sparklog.logdir.cleaning.plan import CleanJob
from sparklog.logdir.cleaning.rewrite import Rewritten, rewrite
from sparklog.logdir.commit_log import LogDirCommits
from sparklog.logdir.deleted_files import deleted_files, unlink, waiting
from sparklog.logdir.free_space import below_floor
from sparklog.logdir.paths import is_within
from sparklog.logdir.recovery.redo import settle_directories
from sparklog.logdir.retention.due_partitions import DuePartitions
from sparklog.logdir.retention.idle_rolling import idle, roll_if_active
from sparklog.logdir.retention.partition_retention import PartitionRetention, retention_by_partition
from sparklog.logdir.retention.segment_deletion import delete_due
from sparklog.pluralize import pluralize
from sparklog.service.announcement_file import AnnouncementFile
from sparklog.service.disk_probe import DiskProbe
from sparklog.service.housekeeping import group_retention_floors, run_housekeeping
from sparklog.service.metrics.service_meters import WorkMeters
from sparklog.service.options import ServiceOptions
from sparklog.service.quarantined_partitions import QuarantinedPartitions
from sparklog.service.tiering.copy_confirmation import CopyConfirmation
from sparklog.service.tiering.remote_log_manager import RemoteLogManager
from sparklog.storage.lease import Lease, LeaseLostError
from sparklog.storage.round_report import Cleanable, CleanReport, Deleted, Report
from sparklog.tiered.remote_log_metadata.metadata_cache import RemoteLogMetadataCache

Map = Callable[[Callable[[Any], Any], list[Any]], Iterable[Any]]
_LOGGER: Final = logging.getLogger("sparklog.service")
_HURRY_EVERY_MS: Final = 10_000


class Rounds:
    """The background work on log dirs. A thread may clean while another does the rest.

    `spread`, if given, maps the long part of cleaning over jobs elsewhere, for example as Spark
    tasks.
    """

    def __init__(
        self,
        commits: LogDirCommits,
        lease: Lease,
        options: ServiceOptions,
        spread: Map | None,
        *,
        stopping: Callable[[], bool],
        remote_log_manager: RemoteLogManager | None = None,
    ) -> None:
        self._commits, self._lease, self._options, self._spread = commits, lease, options, spread
        self._due_partitions = DuePartitions(commits.fs)
        self._brake: Throttle = options.cleaner().throttle()
        self._stopping, self.remote_log_manager = stopping, remote_log_manager
        self._pending: dict[str, int] = {}  # retired file -> when it may be unlinked (ms)
        self._quarantined = QuarantinedPartitions(commits)
        self._announcements = DeletionAnnouncements(AnnouncementFile(commits.fs, commits.home))
        self._hurried_ms = 0
        self.probe = DiskProbe(
            commits.fs, commits.directories, WorkMeters(commits.directories),
            absent=lambda: commits.dirs.absent,
        )  # fmt: skip
        self.compacted: Sequence[Cleanable] = ()
        """How dirty the compacted partitions were at the cleaner's last look."""

    # --- roll and retention ------------------------------------------------------------------

    def is_short_of_space(self, now_ms: int) -> bool:
        """Return True if a disk is nearly full and retention must run now; at most every 10 s."""
        if now_ms - self._hurried_ms < _HURRY_EVERY_MS:
            return False
        short = below_floor(self._commits)
        if short:
            self._hurried_ms = now_ms
            _LOGGER.warning(
                "%s: %d bytes free, %d wanted (log.min.free.bytes): retention runs now",
                short[0].directory, short[0].free_bytes, short[0].floor_bytes,
            )  # fmt: skip
        return bool(short)

    def note_offline(self, report: Report, topics: Collection[str]) -> None:
        """Report compacted partitions (of `topics`, or all) that are offline."""
        with self._commits.exclusive():
            names = {
                name for name, topic in self._commits.state.topics.items()
                if topic.parsed().compact and (not topics or name in topics)
            }  # fmt: skip
            report.errors += self._offline(names)

    def _offline(self, topics: Collection[str]) -> list[str]:
        return [
            f"{topic}-{p}: {error}"
            for (topic, p), error in self._commits.offline.items()
            if isinstance(error, PartitionOfflineError) and topic in topics
        ]

    def retain(self, report: Report, *, at_once: bool = False) -> None:
        """Close idle segments and delete expired segments.

        A topic's first deletion is announced, and done in the next round, unless `at_once`.
        """
        commits, now = self._commits, report.time_ms
        with commits.exclusive():
            began = monotonic_ms()
            known = retention_by_partition(commits)
            wanted = group_retention_floors(commits, now_ms=now)
            ids = {name: topic.id for name, topic in commits.state.topics.items()}
            report.errors += self._offline(ids)
            report.locked_ms.append(monotonic_ms() - began)
        if self.remote_log_manager is not None:
            known = self.remote_log_manager.remote_log.with_planned_starts(
                known, dry_run=report.dry_run
            )
        confirmation = self._read_copies(known, wanted, report)
        with self._terms(known, wanted, report) as (cache, terms):
            due = self._due_partitions.due(known, terms, now_ms=now)
            if confirmation is not None and cache is not None:
                checked = confirmation.confirm(cache, known, due, terms)
                if checked != terms:
                    terms = checked
                    due = self._due_partitions.due(known, terms, now_ms=now)
            self._retain(due, self._announced(due, terms, ids, report, at_once), report)
        for key, base in idle(commits.fs, known, self._due_partitions.held, now_ms=now).items():
            with self._quarantined.catching(report, key):
                if not report.dry_run:
                    self._roll(key, base, report)
                report.rolled.append((*key, base))
        report.notes += run_housekeeping(
            commits, now_ms=now,
            ledger_retention_ms=self._options.ledger_retention_ms, dry_run=report.dry_run,
        )  # fmt: skip

    def _read_copies(
        self,
        known: Mapping[TopicPartition, PartitionRetention],
        wanted: Mapping[TopicPartition, int],
        report: Report,
    ) -> CopyConfirmation | None:
        """Read the copies that local retention is about to rely on, without a lock."""
        manager = self.remote_log_manager
        if manager is None:
            return None
        confirmation = manager.confirmation(report)
        with contextlib.suppress(DataCorruptionError):  # `_terms` reports it
            with manager.remote_log.locked_cache() as cache:
                terms = manager.remote_log.terms(cache, known, wanted)
                due = self._due_partitions.due(known, terms, now_ms=report.time_ms)
                copies = confirmation.relied_upon(cache, known, due, terms)
            confirmation.read(copies)
        return confirmation

    @contextlib.contextmanager
    def _terms(
        self,
        known: Mapping[TopicPartition, PartitionRetention],
        wanted: Mapping[TopicPartition, int],
        report: Report,
    ) -> Iterator[tuple[RemoteLogMetadataCache | None, dict[TopicPartition, RetentionConstraints]]]:
        """Provide retention's constraints; within the context no thread deletes a copy."""
        if self.remote_log_manager is None:
            yield None, {key: RetentionConstraints(floor) for key, floor in wanted.items()}
            return
        remote_log, stack = self.remote_log_manager.remote_log, contextlib.ExitStack()
        with stack:
            cache = None
            try:
                cache = stack.enter_context(remote_log.locked_cache())
            except DataCorruptionError as error:
                report.errors.append(f"local segments stay: {error}")
            yield cache, remote_log.terms(cache, known, wanted)

    def _announced(
        self,
        due: Mapping[TopicPartition, DueSegments | None],
        terms: Mapping[TopicPartition, RetentionConstraints],
        ids: Mapping[str, str],
        report: Report,
        at_once: bool,
    ) -> dict[TopicPartition, RetentionConstraints]:
        """Return the constraints of due partitions, which delay a topic's first deletion."""
        final = {key: d.expired for key, d in due.items() if d is not None and not d.local}
        unsure = {key.topic for key, found in due.items() if found is None}
        sizes = self._due_partitions.sizes({key.topic for key in final})
        held = self._announcements.unannounced(
            final, ids, sizes=sizes, unsure=unsure, now=at_once, dry_run=report.dry_run
        )
        if not report.dry_run:
            report.notes += [
                f"{t}-{p}: {pluralize(len(found), 'segment')} due, announced; go in the next round"
                for (t, p), found in final.items()
                if t in held and any(one.rule != LOG_START for one in found)
            ]
        known = {key: terms.get(key, NO_CONSTRAINTS) for key in due}
        return {
            key: replace(one, announcing=key.topic in held and not one.local)
            for key, one in known.items()
        }

    def _retain(
        self,
        due: Mapping[TopicPartition, DueSegments | None],
        terms: dict[TopicPartition, RetentionConstraints],
        report: Report,
    ) -> None:
        sure = {key: found for key, found in due.items() if found is not None}
        if report.dry_run:
            report.deleted += [_deleted(key, found) for key, found in sure.items() if found.expired]
            report.notes += _rolls(sure, "would be ")
        else:
            self._delete(terms, report)

    def _delete(self, left: dict[TopicPartition, RetentionConstraints], report: Report) -> None:
        now = report.time_ms
        while left:
            self._lease.check()
            done = delete_due(
                self._commits, left, now_ms=now, budget_ms=self._options.lock_budget_ms
            )
            report.locked_ms.append(done.locked_ms)
            report.deleted += [_deleted(k, d) for k, d in done.taken.items() if d.expired]
            report.notes += _rolls(done.taken, "is ")
            report.errors += [f"{t}-{p}: {error}" for (t, p), error in done.failed.items()]
            for path in done.waiting:
                self._pending[path] = now + done.delay_ms[path]
            seen = done.taken.keys() | done.failed.keys()
            if not seen:
                return  # the finished part isn't published yet: the next round continues
            left = {k: terms for k, terms in left.items() if k not in seen}

    def _roll(self, key: TopicPartition, base: int, report: Report) -> None:
        self._lease.check()
        with self._commits.exclusive():
            began = monotonic_ms()
            roll_if_active(self._commits, key, base)
            report.locked_ms.append(monotonic_ms() - began)

    # --- cleaning ------------------------------------------------------------------------------

    def check_compacted(self, topics: Collection[str]) -> None:
        """Raise UnknownTopicError or InvalidRequestError unless all topics are compacted."""
        with self._commits.exclusive():
            known = dict(self._commits.state.topics)
        for name in topics:
            if name not in known:
                raise unknown(name, self._commits.home, known)
            if not known[name].parsed().compact:
                raise InvalidRequestError(
                    f"topic {name} is not compacted: its cleanup.policy is "
                    f"{','.join(known[name].parsed().cleanup_policy)}"
                )

    def clean(
        self, report: Report, topics: Collection[str] | None = None, *, every: bool = False
    ) -> bool:
        """Clean the partitions that are dirty enough, dirtiest first.

        `topics`: only these. `every`: all partitions with anything to clean, however small its
        share. Returns whether there was anything to clean.
        """
        options = self._options
        if not options.cleaner_enable:
            return False
        compacted = cleanable(self._commits, now_ms=report.time_ms, every=True)
        self._quarantined.release_replaced_topics()
        self.compacted = compacted
        due = [
            one
            for one in compacted
            if (one.wanted or (every and one.dirt.cleanable_bytes))
            and TopicPartition(one.topic, one.partition) not in self._quarantined
            and (topics is None or one.topic in topics)
        ]
        if report.dry_run:
            report.cleaned += [
                CleanReport(topic=c.topic, partition=c.partition, dirt=c.dirt, dry_run=True)
                for c in due
            ]
        elif due:
            self._lease.check()
            done = self._cleaned_elsewhere(due, report) if self._spread else None
            for cleaned in done if done is not None else self._cleaned_here(due, report):
                report.cleaned.append(cleaned)
                report.locked_ms.append(cleaned.locked_ms_max)
                delay = self._delay_ms(cleaned.topic)
                for path in cleaned.retired:
                    self._pending[path] = report.time_ms + delay
        return bool(due)

    def _cleaned_here(self, found: list[Cleanable], report: Report) -> Iterator[CleanReport]:
        options = self._options

        def one(which: Cleanable) -> CleanReport | None:
            key = TopicPartition(which.topic, which.partition)
            with self._quarantined.catching(report, key):
                return clean_partition(
                    self._commits,
                    *key,
                    options=options.cleaner(),
                    throttle=self._throttle,
                    now_ms=report.time_ms,
                )
            return None

        if options.cleaner_threads <= 1:
            yield from filter(None, map(one, found))
            return
        with ThreadPoolExecutor(options.cleaner_threads, "sparklog-cleaner") as pool:
            yield from filter(None, pool.map(one, found))

    def _cleaned_elsewhere(self, found: list[Cleanable], report: Report) -> Iterator[CleanReport]:
        assert self._spread is not None
        jobs: list[CleanJob] = []
        for which in found:
            key = TopicPartition(which.topic, which.partition)
            with self._quarantined.catching(report, key):
                options = self._options.cleaner()
                job = plan_job(self._commits, *key, options=options, now_ms=report.time_ms)
                jobs.append(job)
        for job, made in zip(jobs, self._spread(rewrite_all, jobs), strict=True):
            with self._quarantined.catching(report, TopicPartition(job.topic, job.partition)):
                self._lease.check()
                yield finish(self._commits, job, made)

    @property
    def uncleanable(self) -> dict[TopicPartition, str]:
        """{(topic, partition): reason} of partitions that are skipped until the service restarts.
        """
        return self._quarantined.reasons

    def _throttle(self, size: int) -> None:
        if self._stopping():
            raise LeaseLostError("the service is stopping; cleaning continues at its next start")
        self._brake(size)

    def _delay_ms(self, topic: str) -> int:
        known = self._commits.state.topics.get(topic)
        return known.parsed().file_delete_delay_ms if known is not None else 0

    # --- unlinking -----------------------------------------------------------------------------

    def adopt_deleted_files(self, now_ms: int) -> None:
        """Schedule the deletion of `.deleted` files that any process has left."""
        with self._commits.exclusive():
            self._pending |= waiting(self._commits, now_ms=now_ms)
            settle_directories(self._commits)  # the process that was to remove them may have died

    def purge(self, report: Report) -> None:
        """Unlink retired segments after their file.delete.delay.ms, or at once on a full disk."""
        pending = list(self._pending.items())  # a copy: the cleaner's thread adds to it
        full = [one.directory for one in below_floor(self._commits)]
        due = sorted(
            path
            for path, when in pending
            if when <= report.time_ms or any(is_within(path, directory) for directory in full)
        )
        for path in due:
            if not report.dry_run:
                self._lease.check()
            with contextlib.suppress(FileNotFoundError):  # opening a log removes such files, too
                report.purged_bytes += unlink(self._commits.fs, path, dry_run=report.dry_run)
            if not report.dry_run:
                del self._pending[path]
            report.purged.append(path)
        self._purge_topics(report)

    def _purge_topics(self, report: Report) -> None:
        """Remove deleted topics for good after their file.delete.delay.ms."""
        commits, now_ms = self._commits, report.time_ms
        known = list(commits.state.deleted.values())  # a copy: other threads may change it
        due = [one for one in known if one.until_ms <= now_ms]
        if not due:
            return
        held = {one.id: deleted_files(commits, one) for one in due}
        if not report.dry_run:
            self._lease.check()
            due = purge_topics(commits, lambda one: one.until_ms <= now_ms)
        for one in due:
            files = held.get(one.id, {})
            report.purged += sorted({os.path.dirname(path) for path in files})
            report.purged_bytes += sum(files.values())
            would = "would be removed" if report.dry_run else "is removed for good"
            report.notes.append(
                f"topic {one.name} (id {one.id}), which was deleted, {would}: "
                f"file.delete.delay.ms={one.delay_ms} is over"
            )

    @property
    def next_purge_ms(self) -> float:
        """When the next retired segment or deleted topic may be removed."""
        topics = [one.until_ms for one in list(self._commits.state.deleted.values())]
        return min([*list(self._pending.values()), *topics], default=float("inf"))


def _rolls(found: Mapping[TopicPartition, DueSegments], verb: str) -> list[str]:
    return [
        f"{t}-{p}: the active segment {verb}closed, to be copied and then to go"
        for (t, p), due in found.items()
        if due.rolls and due.local
    ]


def rewrite_all(job: CleanJob) -> list[Rewritten]:
    """Do the long part of cleaning a partition.

    May run in another process that sees the log dir.
    """
    return list(rewrite(LOCAL, job, job.options.throttle()))


def _deleted(key: TopicPartition, found: DueSegments) -> Deleted:
    return Deleted(
        topic=key.topic,
        partition=key.partition,
        segments=found.expired,
        log_start=found.log_start,
        held_back_bytes=found.held_back,
        local=found.local,
    )
