"""The rounds of tiering. Their failures never stop the other background work.

While the store is down, no copies are made or deleted, and no local segments of tiered topics are
deleted. Rounds are retried with growing pauses.
"""

import contextlib
import itertools
import logging
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Final

from sparklog.common import TopicPartition
from sparklog.errors import (
    DataCorruptionError,
    InvalidRequestError,
    SparklogError,
    StorageUnavailableError,
)
from sparklog.log.cleaner_options import RateLimit, Throttle, unthrottled
from sparklog.log.group_lag import group_retention_floors
from sparklog.log.log import Log
from sparklog.logdir.home import commits_of
from sparklog.service.options import ServiceArguments
from sparklog.service.tiering.copy_confirmation import CopyConfirmation
from sparklog.service.tiering.copy_task import CopyTask
from sparklog.service.tiering.erasure_task import CopyErasure, ErasableCopies
from sparklog.service.tiering.expiration_task import ExpirationTask
from sparklog.service.tiering.remote_log import DryRunState, RemoteLog, TieredPartition
from sparklog.storage.lease import Lease, LeaseLostError
from sparklog.storage.round_report import Report, Uploaded
from sparklog.tiered.copying.content_check import damaged_copies, forget_damaged
from sparklog.tiered.copying.orphans import is_lost
from sparklog.tiered.copying.plan import CandidateSegment
from sparklog.tiered.copying.remote_storage_manager import RemoteStorageManager
from sparklog.tiered.encryption.policy import key_id_in, refusal, with_key_id
from sparklog.tiered.layout.manifest import log_object, manifest_object
from sparklog.tiered.layout.object_names import Directory
from sparklog.tiered.layout.topic_owners import TopicOwners, is_owned
from sparklog.tiered.object_store.store import Store, versions_left
from sparklog.tiered.reading.block_cache import BlockCache
from sparklog.tiered.reading.remote_objects import RemoteObjects
from sparklog.tiered.remote_log_metadata.topic import ensure_topic
from sparklog.tiered.remote_segment import RemoteSegment
from sparklog.tiered.settings import RemoteSettings, read_settings, write_settings

_LOGGER: Final = logging.getLogger("sparklog.service")
_BATCH: Final = 16
"""Segments per thread that one commit marks as started."""
_BLOCKS: Final = 32 << 20
"""Bytes of copies that an erasure caches in memory."""
_SAMPLE: Final = 16
"""Copies that are looked up before a store is rejected as a wrong one."""


class RemoteLogManager:
    """Does the rounds of tiering. Not thread-safe; `remote_log` is shared."""

    def __init__(self, log: Log, lease: Lease, arguments: ServiceArguments) -> None:
        """Open the store of a URL in `arguments`.

        Raises:
            InvalidRequestError: The URL is invalid.
        """
        self.remote_log = RemoteLog(log, lease, arguments.clock)
        self._options, self._clock = arguments.options, arguments.clock
        self._tier, self._stopping = arguments.tier, arguments.stopping
        self._topic_owners: TopicOwners | None = None
        self._store: Store | None = None
        self._copy_task: CopyTask | None = None
        self._expiration_task: ExpirationTask
        self._prepared = False
        self._next_reconciliation_ms = float("-inf")  # when the next is due
        self._failures = 0
        if self._tier.url is not None:
            self._store = self._tier.opening(self._tier.url, self._tier.storage_options)

    @staticmethod
    def wanted(log: Log, url: str | None) -> bool:
        """Return True if a log has remote storage, or if `url` gives the log remote storage."""
        commits = commits_of(log)
        return url is not None or read_settings(commits.fs, commits.home) is not None

    @property
    def store(self) -> Store | None:
        """The store; None before a round has opened the store."""
        return self._store

    @property
    def log_id(self) -> str:
        """The log's id in the store; "" before the first round has chosen an id."""
        settings = self._stored_settings()
        return "" if settings is None else settings.log_id

    def confirmation(self, report: Report) -> CopyConfirmation:
        """Return the check of copies for a round, before local segments are deleted."""
        return CopyConfirmation(
            self.remote_log, self._store, self.log_id, report, keyring=self._tier.keyring,
            threads=self._options.remote_copy_threads, stopping=self._stopping,
        )  # fmt: skip

    @property
    def is_failing(self) -> bool:
        """Whether the last round failed."""
        return self._failures > 0

    @property
    def pause_ms(self) -> float:
        """The time until the next round; after failures, with exponential backoff."""
        options = self._options
        if not self._failures:
            return options.remote_interval_ms
        longer = options.remote_backoff_ms * 2.0 ** min(self._failures - 1, 40)
        return min(longer, options.remote_backoff_max_ms)

    def work(self, report: Report, *, copying: bool = True) -> None:
        """Do a round: copy, delete, reconcile; without `copying` only delete.

        Other errors than a lost lease are added to the report.

        Raises:
            LeaseLostError: Another service leads now.
        """
        self.remote_log.preview = DryRunState() if report.dry_run else None
        try:
            self._work(report, copying=copying)
            self._failures = 0
        except LeaseLostError:
            raise
        except (SparklogError, OSError) as error:
            if self.remote_log.foreign_topics is None:
                # Without an answer of the store, local retention relies on the log's metadata, or
                # a store that is down would stop the deletion of local segments for its duration.
                self.remote_log.foreign_topics = {}
            self._failures += 1
            report.errors.append(f"remote storage: {error}")
            _LOGGER.warning("remote storage: %s; trying again in %d ms", error, self.pause_ms)

    def _work(self, report: Report, *, copying: bool) -> None:
        store = self._prepare(dry_run=report.dry_run)
        if self._copy_task is None:
            segment_store = self._segment_store(store)
            self._copy_task = CopyTask(
                self.remote_log,
                segment_store,
                batch=_BATCH * self._options.remote_copy_threads,
                stopping=self._stopping,
            )
            self._expiration_task = ExpirationTask(self.remote_log, store, segment_store)
        copy_task, expiration_task = self._copy_task, self._expiration_task
        self._find_foreign_topics(store, report)
        if copying:
            self._reconcile(expiration_task, report)
            self._copy(copy_task, report)
            self._replace_damaged(copy_task, report)
        else:
            copy_task.plan(self.remote_log.partitions(), report)  # only to report the lag
        commits = self.remote_log.commits
        with commits.exclusive():
            floors = group_retention_floors(
                commits.state, self.remote_log.groups, now_ms=report.time_ms,
                retention_ms=commits.options.offsets_retention_ms,
            )  # fmt: skip
        expiration_task.expire(self.remote_log.partitions(), floors, report, at_once=not copying)
        expiration_task.remove_deleted_topics(report)

    def scan(self, erasure: CopyErasure) -> None:
        """Read a partition's copies in preparation of `erase`. Requires no lease.

        Raises the errors of `ErasableCopies.scan`.
        """
        self._erasable(erasure, self._prepare(dry_run=True), self._check_running).scan()

    def erase(
        self, erasure: CopyErasure, is_over: Callable[[], bool] = lambda: False
    ) -> list[str] | None:
        """Erase records from a partition's copies, after they were erased from local segments.

        Returns:
            Messages on copies that remain. None if `is_over` returned True before the end; the
            method must then be called again.

        Raises:
            InvalidRequestError: The store can't be used, or the keyring is missing. Also raises the
                errors of `ErasableCopies.erase`.
        """
        key, dry_run = erasure.key, erasure.dry_run
        self.remote_log.preview = None
        store = self._prepare(dry_run=dry_run)
        refused = self._refusal()
        if refused is not None and not dry_run:
            raise InvalidRequestError(refused)
        self._find_foreign_topics(store, Report(path="", time_ms=self._clock(), dry_run=dry_run))
        with self.remote_log.commits.exclusive():
            topic_id = self.remote_log.commits.state.topics[key.topic].id
        if not self.remote_log.is_ours(topic_id):
            return [f"{key}: {(self.remote_log.foreign_topics or {})[topic_id]}"]
        check = (lambda: None) if dry_run else self.remote_log.lease.check
        return self._erasable(erasure, store, check).erase(is_over)

    def _erasable(
        self, erasure: CopyErasure, store: Store, check: Callable[[], None]
    ) -> ErasableCopies:
        segment_store = self._segment_store(store)
        copy_task = CopyTask(self.remote_log, segment_store, batch=_BATCH, stopping=self._stopping)
        objects = RemoteObjects(lambda: store, BlockCache(_BLOCKS), self._tier.keyring)
        return ErasableCopies(
            erasure, self.remote_log, store, segment_store, copy_task, objects, check=check,
            together=self._options.remote_copy_threads,
        )  # fmt: skip

    def _check_running(self) -> None:
        if self._stopping():
            raise LeaseLostError("the service is stopping")

    def older_versions(
        self, keys: Iterable[TopicPartition], topic_id: str, before_ms: int
    ) -> list[str]:
        """Return messages on older object versions of deleted copies that remain in the bucket."""
        prefixes = [Directory(*key, topic_id).prefix for key in keys]
        return versions_left(self._prepare(dry_run=True), prefixes, before_ms)

    def _copy(self, copy_task: CopyTask, report: Report) -> None:
        known = self.remote_log.partitions()
        refused = self._refusal()
        if refused is not None:
            report.errors.append(f"remote storage: {refused}")
            _LOGGER.error("%s", refused)
            copy_task.plan(known, report)  # only to report the lag
            return
        if self.remote_log.preview is not None:
            for copy in copy_task.planned_copies(copy_task.plan(known, report), report):
                self.remote_log.preview.copies.setdefault(copy.key, []).append(copy)
                report.uploaded.append(
                    Uploaded(
                        topic=copy.topic, partition=copy.partition, base=copy.base, end=copy.end,
                        bytes=copy.size,
                    )
                )  # fmt: skip
            return
        # First: a started copy that can't be resumed would count as a copy that is under way.
        if copy_task.resume(known, report):
            known = self.remote_log.partitions()
        wanted = copy_task.plan(known, report)
        if wanted:
            copy_task.run(wanted, report)

    def _replace_damaged(self, copy_task: CopyTask, report: Report) -> None:
        """Replace damaged copies if local segments contain all of their records."""
        commits = self.remote_log.commits
        damaged = damaged_copies(commits.fs, commits.home)
        if not damaged or self._refusal() is not None:
            return
        for key, tiered in self.remote_log.partitions().items():
            for copy in [c for c in tiered.valid_copies if c.id in damaged]:
                segments = self._local_segments(key, tiered, copy)
                first, end = max(copy.base, tiered.place.log_start), copy.end
                if not segments:
                    report.errors.append(
                        f"{key}: the copy of offsets [{first}, {end}) is damaged, and local "
                        f"segments do not contain all of these offsets: restore "
                        f"{manifest_object(copy)} and {log_object(copy)} from a copy of the bucket"
                    )
                    continue
                report.notes.append(f"{key}: the damaged copy of [{first}, {end}) is replaced")
                if not report.dry_run:
                    copy_task.copy_again(key, tiered, segments, report)
        if not report.dry_run:
            self._forget_damaged(damaged)

    def _local_segments(
        self, key: TopicPartition, tiered: TieredPartition, copy: RemoteSegment
    ) -> list[CandidateSegment]:
        """Return closed local segments with which a damaged copy can be replaced.

        Empty if there are none.
        """
        # A new copy replaces all copies with which it overlaps, so the segments must contain the
        # records of all of these copies.
        with contextlib.suppress(FileNotFoundError):
            held = self.remote_log.segments(key, tiered.place)
            closed = [
                CandidateSegment(s.base, following.base, s.size)
                for s, following in itertools.pairwise(held)
                if s.base < copy.end and following.base > max(copy.base, tiered.place.log_start)
            ]
            if not closed or closed[-1].end > tiered.place.end:
                return []
            first, end = closed[0].base, closed[-1].end
            replaced = [c for c in tiered.valid_copies if c.base < end and c.end > first]
            low = max(min(c.base for c in replaced), tiered.place.log_start)
            if first <= low and end >= max(c.end for c in replaced):
                return closed
        return []

    def _forget_damaged(self, damaged: set[str]) -> None:
        """Forget damaged copies that no reader uses any more."""
        commits = self.remote_log.commits
        with self.remote_log.locked_cache() as cache:
            readable = {s.id for key in cache.keys() for s in cache.readable(key)}  # noqa: SIM118
        for segment_id in damaged - readable:
            forget_damaged(commits.fs, commits.home, segment_id)

    def _reconcile(self, expiration_task: ExpirationTask, report: Report) -> None:
        # Before copying, because this may find copies that the metadata has lost.
        if self._is_reconciliation_due(report):
            expiration_task.reconcile_bucket(self.remote_log.partitions(), report)
            if not report.dry_run:
                assert self._topic_owners is not None
                self._topic_owners.forget(self.remote_log.topics(now_ms=report.time_ms))
                self._next_reconciliation_ms = (
                    report.time_ms + self._options.remote_sweep_interval_ms
                )

    def _is_reconciliation_due(self, report: Report) -> bool:
        wanted = self._options.remote_sweep_interval_ms >= 0
        return wanted and (report.time_ms >= self._next_reconciliation_ms or report.dry_run)

    def _find_foreign_topics(self, store: Store, report: Report) -> None:
        """Find topics with copies that another log owns. The round does not change such copies."""
        if report.dry_run and self._stored_settings() is None:
            return  # the log has no id in the store yet
        if self._topic_owners is None:
            self._topic_owners = TopicOwners(
                self.remote_log.fs,
                self.remote_log.commits.home,
                store,
                self._clock,
                take_over=self._tier.take_over,
                check=self.remote_log.lease.check,
                missing=lambda: self._check_store_is_ours(store, "", strict=True),
            )
        found = self._topic_owners.foreign(
            self.remote_log.topics(now_ms=report.time_ms),
            fresh=self._is_reconciliation_due(report),
            dry_run=report.dry_run,
        )
        for key in found.keys() - (self.remote_log.foreign_topics or {}).keys():
            _LOGGER.error("%s", found[key])
        self.remote_log.foreign_topics = found
        report.errors += found.values()

    def _segment_store(self, store: Store) -> RemoteStorageManager:
        options, rate = self._options, self._options.remote_copy_bytes_per_second
        brake: Throttle = unthrottled if rate >= 2**63 - 1 else RateLimit(rate)
        return RemoteStorageManager(
            store,
            self._clock,
            keyring=self._tier.keyring,
            throttle=brake,
            threads=options.remote_copy_threads,
        )

    def _prepare(self, *, dry_run: bool) -> Store:
        """Open the store, write the URL to the log's settings, and create the metadata topic."""
        commits = self.remote_log.commits
        settings = self._stored_settings()
        url = self._tier.url or (settings.url if settings is not None else None)
        assert url is not None
        if self._store is None:
            self._store = self._tier.opening(url, self._tier.storage_options)
        if self._prepared:
            return self._store
        if settings is not None and settings.url != url:
            self._check_moved(self._store, settings.url)
        elif settings is not None and not self._tier.take_over:
            self._check_store_is_ours(self._store, settings.log_id)
        if dry_run:
            return self._store
        self.remote_log.lease.check()
        kept = RemoteSettings(url) if settings is None else replace(settings, url=url)
        if kept != settings:  # before the first request, because the URL is given only once
            write_settings(commits.fs, commits.home, kept)
        fresh = with_key_id(
            kept, self._tier.keyring, plain=self._tier.plain, look=self._find_key_id
        )
        if fresh != kept:
            write_settings(commits.fs, commits.home, fresh)
        ensure_topic(commits)
        self._prepared = True
        return self._store

    def _refusal(self) -> str | None:
        """Return why no copies can be made with the given keyring, or None."""
        tier = self._tier
        return None if tier.plain else refusal(self._stored_settings(), tier.keyring)

    def _stored_settings(self) -> RemoteSettings | None:
        """Return the log's settings, unless they are damaged and a new URL was given."""
        commits = self.remote_log.commits
        try:
            return read_settings(commits.fs, commits.home)
        except DataCorruptionError:
            if self._tier.url is None:
                raise
            return None

    def _check_store_is_ours(self, store: Store, log_id: str, *, strict: bool = False) -> None:
        """Raise StorageUnavailableError if the store lacks the owner object and copies of this log.

        Then the endpoint or the account is probably wrong. With `strict`, the oldest copies are
        sampled, and all of them must exist.

        Cost: a GET; without the owner object two more for each sampled copy.
        """
        if log_id and is_owned(store, log_id):
            return
        # The newest copies may have been written to the wrong store since the mistake.
        asked = self._sample_copies(oldest=strict)
        lost = (is_lost(store, copy) for copy in asked)
        if asked and (any(lost) if strict else all(lost)):
            raise StorageUnavailableError(
                f"{store.url} contains neither this log's owner object nor its copies, so the "
                "copies are probably in another store: correct endpoint_url and credentials "
                "(storage_options, or the environment). If it is the right store, but was emptied, "
                "start again there, once: sparklog serve PATH --take-over, or Service(path, "
                "take_over=True)",
                path=store.url,
            )

    def _find_key_id(self) -> str:
        """Return the key id of encrypted copies in the bucket, in case the settings were lost."""
        store = self._store
        assert store is not None
        names = [manifest_object(copy) for copy in self._sample_copies()]
        for (topic, p), one in () if names else self.remote_log.partitions().items():
            prefix = Directory(topic, p, one.topic_id).prefix
            names += [o.name for o in store.list(prefix) if o.name.endswith(".manifest")][-1:]
        return key_id_in(store, names[:_SAMPLE])

    def _sample_copies(self, *, oldest: bool = False) -> list[RemoteSegment]:
        """Return the newest (or the oldest) copies of some partitions."""
        at = 0 if oldest else -1
        with self.remote_log.locked_cache() as cache:
            keys = cache.keys()
            newest = [copies[at] for key in keys if (copies := cache.readable(key))]
        return sorted(newest, key=lambda s: -s.time_ms)[:_SAMPLE]

    def _check_moved(self, store: Store, before: str) -> None:
        """Raise InvalidRequestError for another URL unless all copies exist there."""
        with self.remote_log.locked_cache() as cache:
            copies = [s for key in list(cache.keys()) for s in cache.readable(key)]
        missing = [s for s in copies if is_lost(store, s)]
        if missing:
            raise InvalidRequestError(
                f"the copies of this log are at {before}, and {len(missing)} of {len(copies)} are "
                f"not at {store.url}: copy its objects there first, or start the service with "
                "that URL",
                path=store.url,
            )
