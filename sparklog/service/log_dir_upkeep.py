"""`LogDirUpkeep`: the background work on log dirs, with their tier if any."""

import contextlib
import logging
from collections.abc import Collection, Mapping, Sequence
from typing import Final

from sparklog.common import TopicPartition
from sparklog.errors import LogReplacedError, StorageUnavailableError
from sparklog.log.admin import check_compacted
from sparklog.log.erasure import Erasure
from sparklog.log.log import Log, home_of
from sparklog.log.rounds import LogCleaner, QuarantinedPartitions
from sparklog.logdir.free_space import below_floor
from sparklog.logdir.home import commits_of, open_log
from sparklog.logdir.ledger import has_ledger
from sparklog.service.disk_probe import DiskProbe
from sparklog.service.log_dir_cleaner import LogDirCleaner
from sparklog.service.log_dir_erasure import LogDirErasure
from sparklog.service.log_dir_retention import LogDirRetention, offline_partitions
from sparklog.service.metrics.service_meters import WorkMeters
from sparklog.service.options import ServiceArguments
from sparklog.service.retired_files import RetiredFiles
from sparklog.service.tiering.remote_log_manager import RemoteLogManager
from sparklog.storage.erasure_report import ErasureReport
from sparklog.storage.lease import UpkeepLease
from sparklog.storage.round_report import Cleanable, Report
from sparklog.storage.upkeep import AS_DUE, Due, ErasureRequest, Loan, Request, Work

_WITH_TIER: Final[tuple[Work, ...]] = ("tier", "retain", "clean")
_HURRY_EVERY_MS: Final = 10_000  # a disk that stays full must not cause a round every second
_LOGGER: Final = logging.getLogger("sparklog.service")


def open_log_dirs(arguments: ServiceArguments) -> "LogDirUpkeep":
    """Open log dirs for background work. Raises the errors of `sparklog.open`."""
    log = open_log(
        arguments.path, mode="rw", options=arguments.log_options, fs=arguments.fs,
        clock=arguments.clock, tidy=False,
    )  # fmt: skip
    try:
        lease, manager = home_of(log).service_lease(), None
        if RemoteLogManager.wanted(log, arguments.tier.url):
            manager = RemoteLogManager(log, lease, arguments)
    except BaseException:
        log.close()
        raise
    return LogDirUpkeep(log, lease, manager, arguments)


class LogDirUpkeep:
    """A `sparklog.storage.upkeep.Upkeep` of log dirs, with their tier if any.

    A thread may clean while another thread does the other work.
    """

    def __init__(
        self,
        log: Log,
        lease: UpkeepLease,
        manager: RemoteLogManager | None,
        arguments: ServiceArguments,
    ) -> None:
        self.log, self.lease, self.remote_log_manager = log, lease, manager
        self._options, self._fs, self._hurried_ms = arguments.options, arguments.fs, 0
        self._commits = commits = commits_of(log)
        self._retired, quarantined = RetiredFiles(commits, lease), QuarantinedPartitions()
        self._retention = LogDirRetention(
            commits, home_of(log).groups, lease, arguments.options, manager, self._retired,
            quarantined,
        )  # fmt: skip
        steps = LogDirCleaner(commits, lease, arguments, self._retired, quarantined)
        options = arguments.options
        self._cleaner = LogCleaner(
            steps, quarantined, enabled=options.cleaner_enable,
            backoff_ms=options.cleaner_backoff_ms,
        )  # fmt: skip
        self._probe = DiskProbe(
            commits.fs, commits.directories, WorkMeters(commits.directories),
            absent=lambda: commits.offline.dirs.absent,
        )  # fmt: skip

    @property
    def works(self) -> tuple[Work, ...]:
        """The kinds of work; "tier" only if the log has a tier."""
        return ("retain", "clean") if self.remote_log_manager is None else _WITH_TIER

    @property
    def paused_while_lent(self) -> tuple[Work, ...]:
        """The kinds of work that change copies, and so must stop while the lease is lent."""
        # The cleaner may continue: a swap is rejected if an erasure rewrote the segment first.
        return ("tier", "retain")

    @property
    def uncleanable(self) -> Mapping[TopicPartition, str]:
        """{partition: reason} of partitions that are skipped until the service restarts."""
        return self._cleaner.quarantined.reasons

    @property
    def compacted(self) -> Sequence[Cleanable]:
        """The compacted partitions with their dirty ratios, as of the cleaner's last round."""
        return self._cleaner.compacted

    def is_replaced(self) -> bool:
        """Return True if another log has replaced these log dirs.

        Raises:
            LogReplacedError: The log was deleted, and there is no new log.
        """
        commits = self._commits
        if commits.lost is None:
            commits.lock.check_exists()
            return False
        if not has_ledger(self._fs, commits.home):  # opening would create a log, in a wrong place
            raise LogReplacedError(commits.lost)
        return True

    def take_up(self, now_ms: int) -> None:
        """Schedule the deletion of retired files that any process has left."""
        self._retired.adopt(now_ms)

    def pressing(self, now_ms: int) -> Collection[Work]:
        """Return urgent work. If a disk is nearly full, retention and the copies for retention."""
        self._probe.probe_if_due(now_ms)
        with contextlib.suppress(StorageUnavailableError):  # the probe reports it
            self.lease.heartbeat()
        if not self._is_short_of_space(now_ms):
            return ()
        manager = self.remote_log_manager
        # Retention deletes local segments of tiered topics only if they have been copied.
        copies = manager is not None and not manager.is_failing
        return ["tier", "retain"] if copies else ["retain"]

    def _is_short_of_space(self, now_ms: int) -> bool:
        """Return True, at most every 10 s, if a disk is nearly full and retention must run now."""
        if now_ms - self._hurried_ms < _HURRY_EVERY_MS:
            return False
        short = below_floor(self._commits.manager)
        if short:
            self._hurried_ms = now_ms
            _LOGGER.warning(
                "%s: %d bytes are free, but log.min.free.bytes is %d; retention runs now",
                short[0].directory, short[0].free_bytes, short[0].floor_bytes,
            )  # fmt: skip
        return bool(short)

    def work(self, work: Work, report: Report, request: Request = AS_DUE) -> Due:
        """Do a kind of work. Return {kind of work: when it is due again}."""
        now, manager = report.time_ms, self.remote_log_manager
        if work == "tier" and manager is not None:
            manager.work(report)
            due: dict[Work, float] = {"tier": now + manager.pause_ms}
            # Retention deletes only local segments that have been copied, so new copies make
            # retention due at once.
            return due | ({"retain": now} if report.uploaded else {})
        if work == "retain":
            if request.at_once and manager is not None:
                # Expired copies first: local segments below the new log start then go as well.
                manager.work(report, copying=False)
            self._retention.retain(report, at_once=request.at_once)
            return {"retain": now + self._options.retention_check_interval_ms}
        if work == "clean":
            return self._cleaner.work(report, request)
        return {}

    @property
    def next_purge_ms(self) -> float:
        """When the next retired segment may be unlinked."""
        return self._retired.next_ms

    def purge(self, report: Report) -> None:
        """Unlink retired segments after their file.delete.delay.ms, or at once on a full disk."""
        self._retired.purge(report)

    def check_compacted(self, topics: Collection[str], report: Report) -> None:
        """Raise an error unless all topics are compacted; report their offline partitions."""
        commits = self._commits
        with commits.exclusive():
            known = commits.state.topics
            check_compacted(topics, commits.home, known)
            compacted = {name for name, topic in known.items() if topic.parsed().compact}
            report.errors += offline_partitions(commits, compacted & set(topics or compacted))

    def erase(self, request: ErasureRequest, report: ErasureReport, loan: Loan) -> None:
        """Erase records for good, in local and remote storage; see `Upkeep.erase`."""
        home = LogDirErasure(self._commits, self.remote_log_manager, request)
        Erasure(home, request, report, loan).run()

    def close(self) -> None:
        """Close the log. Idempotent."""
        self.log.close()
