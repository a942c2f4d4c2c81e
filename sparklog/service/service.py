"""`Service`: a log's background work, in daemon threads or as a single round."""

import atexit
import contextlib
import logging
import os
import sys
import threading
import weakref
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Any, Final, Self

from sparklog.clock import Clock, monotonic_ms, system_clock
from sparklog.errors import LogReplacedError, SparklogError, StorageUnavailableError
from sparklog.format.erasure import RecordPredicate
from sparklog.fs import LOCAL, FileSystem
from sparklog.log.erasure import erasure_report
from sparklog.metrics import Sample
from sparklog.opening import resolved, url_of
from sparklog.service.backend import service_backend
from sparklog.service.health import Examiner, ServiceStatus, health_samples
from sparklog.service.health.examiner import PATIENCE, call_with_timeout
from sparklog.service.leadership import Leadership
from sparklog.service.metrics.endpoint import Endpoint
from sparklog.service.metrics.observed import DirectoryMetrics, LogMetrics
from sparklog.service.metrics.offline_directories import faults
from sparklog.service.metrics.samples import process_samples, samples
from sparklog.service.metrics.service_meters import WorkMeters
from sparklog.service.options import (
    Map,
    OpenStore,
    ServiceArguments,
    ServiceOptions,
    TierOptions,
)
from sparklog.storage.erasure_report import ErasureReport
from sparklog.storage.lease import LeaseLostError
from sparklog.storage.round_report import Report
from sparklog.storage.upkeep import AS_DUE, WORKS, ErasureRequest, Request, Upkeep, Work
from sparklog.tiered.encryption.policy import check_keyring
from sparklog.tiered.keyring import Keyring
from sparklog.tiered.settings import RemoteSettings
from sparklog.tiered.target import open_store

_LOGGER: Final = logging.getLogger("sparklog.service")
CHECK_MS: Final = 10_000  # how long /healthz waits for a log that does not answer
_STANDBY_MS: Final = 1000  # how often a service that stands by tries to acquire the lease
WAIT_MS: Final = 300_000
"""How long an erasure waits for a service that leads in another process."""
_POLL_MS: Final = 1000  # how often a running service checks its stop conditions


class Service:
    """The background work on a log: closes idle segments, expires, compacts, unlinks, copies.

    A service runs beside any number of writers and readers, in this process or others, and takes
    the write lock for short steps only. One service at a time works on a log. Another service logs
    which process leads, stands by, and takes over when this process ends. The service stops at the
    end of the `with` block, with the Spark session that was active when it started, or with the
    interpreter.

    Source: Kafka's LogManager, LogCleaner and RemoteLogManager.

    Examples:
        >>> from sparklog.service import Service
        >>> with Service("log", options={"log.retention.hours": 24}) as service:
        ...     report = service.run_once(dry_run=True)
        >>> report.errors
        []
    """

    on_round: Callable[[Report], None] | None = None
    """Called with the report of each round, by the thread that did the round."""

    _users, _passing = 0, False  # current users of the log; whether to close it after the last

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        remote: str | None = None,
        storage_options: Mapping[str, Any] | None = None,
        keyring: Keyring | None = None,
        plain: bool = False,
        take_over: bool = False,
        options: Mapping[str, object] | None = None,
        map: Map | None = None,
        metrics_port: int | None = None,
        metrics_address: str = "127.0.0.1",
        fs: FileSystem = LOCAL,
        clock: Clock = system_clock,
        opening: OpenStore = open_store,
    ) -> None:
        """Check the options; does not open the log yet.

        Args:
            path: Log dirs joined by ",", or the URL of the bucket that is the log's home.
            remote: Where closed segments of topics with remote.storage.enable are copied: an fsspec
                URL such as s3://bucket/prefix. The log stores the URL, so it is needed only once.
            storage_options: Options of fsspec (credentials, endpoint) for the store; never stored.
            keyring: Encrypts copies; for a log in a bucket, decrypts staged objects and encrypts
                segments. The log stores that it is encrypted; without a keyring it makes no copies.
            plain: Ends the encryption of copies.
            take_over: Makes the copies at the URL this log's own, for a log dir that was restored
                or copied. The log that wrote the copies must have stopped for good.
            options: Kafka's broker keys, and the options of `sparklog.open` (docs/options.md).
            map: Runs a function over cleaning jobs elsewhere; `sparklog.sink.spark_map` runs each
                as a Spark task. By default, threads of this process clean.
            metrics_port: The port of /metrics and /healthz (extra `metrics`); 0 selects a free
                port.
            metrics_address: The address to listen on; "0.0.0.0" allows connections from other
                hosts.
            fs: The file system of log dirs; for tests.
            clock: The current time in milliseconds since the epoch; for tests.
            opening: Creates the store of a URL; for tests.

        Raises:
            InvalidRequestError: An option is unknown, a value is invalid, or a URL contains
                credentials.
        """
        self.path = resolved(path)
        url = url_of(path, mode="rw", fs=fs)
        check_keyring(keyring, plain=plain)
        self._options, log_options = ServiceOptions.parse(options or {})
        self._clock = clock
        self._work_locks = {work: threading.Lock() for work in WORKS}
        self._stop, self._using = threading.Event(), threading.Lock()
        self._threads: list[threading.Thread] = []
        self._due = dict.fromkeys(WORKS, 0.0)
        tier = TierOptions(
            url=None if remote is None else RemoteSettings(remote).url,
            storage_options=storage_options, keyring=keyring, plain=plain, take_over=take_over,
            opening=opening,
        )  # fmt: skip
        arguments = ServiceArguments(
            path=self.path, url=url, options=self._options, log_options=log_options, tier=tier,
            map=map, stopping=self._stop.is_set, fs=fs, clock=clock,
        )  # fmt: skip
        home = service_backend(arguments)
        self._leadership = Leadership(self.path, home.open_upkeep, clock)
        self.last_report: Report | None = None
        self._serving = None if metrics_port is None else (metrics_address, metrics_port)
        self._endpoint: Endpoint | None = None
        self._observer = home.observer
        self._meters = WorkMeters(self._observer.directories)
        self._examiner = Examiner(
            self.path, storage_options=storage_options,
            options={name: at for name, at in log_options.items() if name != PATIENCE},
            observer=home.observer, fs=fs, clock=clock,
        )  # fmt: skip

    # --- in the background ---------------------------------------------------------------------

    def start(self) -> None:
        """Start a daemon thread for each kind of work, because cleaning may take long.

        Raises:
            SparklogError: The log cannot be opened; see `sparklog.open`.
        """
        if self._threads:
            return
        self._leadership.lend(True)
        if self._serving is not None and self._endpoint is None:  # also while the log recovers
            self._endpoint = Endpoint(*self._serving, read=self._samples, health=self._health)
        try:
            with self._using:
                upkeep, _ = self._open()
                self._passing = False
        except BaseException:
            self._stop_serving()
            raise
        if self._endpoint is not None:
            self._endpoint.prepare()
        first = self._clock() + self._options.initial_task_delay_ms
        self._due = dict.fromkeys(WORKS, float(first))
        self._stop.clear()
        alive = _spark_session_check()
        self._threads = [
            threading.Thread(
                target=self._run, args=(work, alive), name=f"sparklog-{work}", daemon=True
            )
            for work in upkeep.works
        ]
        for thread in self._threads:
            thread.start()
        # The interpreter stops daemon threads abruptly at its exit. `_close_all` lets their current
        # steps end before that.
        _STARTED.add(self)

    def close(self) -> None:
        """Finish the current step, stop, and close the log.

        Closing a closed service has no effect.
        """
        self._stop.set()
        threads, self._threads = self._threads, []
        for thread in threads:
            # At the end of a Spark session a thread of the service closes the service (`_run`).
            if thread is not threading.current_thread():
                thread.join()
        self._leadership.close()
        self._leadership.lend(False)
        self._stop_serving()
        _STARTED.discard(self)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def _run(self, work: Work, alive: Callable[[], bool]) -> None:
        waits = False  # for a log that was deleted, and may be created again
        while not self._stop.is_set() and alive():
            try:
                self._hand_over()
                wait = self._run_due_work(work)
                waits = False
            except LogReplacedError as error:
                if not waits:  # log once, not at every attempt
                    waits = True
                    _LOGGER.warning("%s: %s waits for the log: %s", self.path, work, error)
                    self._meters.failed(work)
                wait = _POLL_MS
            except Exception as error:  # the thread must not end silently
                if self._stop.is_set():  # requests fail while the interpreter exits
                    _LOGGER.info("%s: %s was stopped: %s", self.path, work, error)
                    break
                _LOGGER.exception("%s: %s failed; trying again later", self.path, work)
                self._meters.failed(work)
                wait = _POLL_MS
            # Short waits, because work may become due earlier (a full disk, a request of the
            # lease), and because no event reports the end of a Spark session.
            self._stop.wait(min(wait, _POLL_MS) / 1000)
        if not self._stop.is_set():
            _LOGGER.info("%s: the service stops because the Spark session ended", self.path)
            self._stop.set()
            self.close()

    def tick(self) -> float:
        """Do the work that is due now. Return the time (ms) until more work is due.

        The threads do the same; tests and simulations call this method instead.
        """
        self._hand_over()
        return min(self._run_due_work(work) for work in self._work_locks)

    def _hand_over(self) -> None:
        """Hand the lease over if another process requests it, for example for an erasure."""
        upkeep = self._leadership.requested_upkeep()
        if upkeep is not None:
            # Other threads may be in a step that relies on the lease: wait for its end.
            with contextlib.ExitStack() as turns:
                for work in upkeep.paused_while_lent:
                    turns.enter_context(self._work_locks[work])
                self._leadership.hand_over()

    def _run_due_work(self, work: Work) -> float:
        with self._work_locks[work]:
            now = self._clock()
            upkeep = self._leadership.leading()
            if upkeep is None:
                return _STANDBY_MS
            # A log that has replaced the former log may have no tier, and `tick` asks for all kinds
            # of work.
            if work not in upkeep.works:
                return float("inf")
            wanted: set[Work] = set()
            purging = False
            if work == "retain":
                # A full disk does not wait for the interval: the work becomes due at once.
                for pressing in upkeep.pressing(now):
                    self._due[pressing] = now
                purging = upkeep.next_purge_ms <= now
            if self._due[work] <= now:
                wanted.add(work)
            if wanted or purging:
                self._work(upkeep, wanted, Report(path=self.path, time_ms=now), purging=purging)
            following = self._due[work]
            if work == "retain":
                following = min(following, upkeep.next_purge_ms)
            return max(0.0, following - self._clock())

    # --- a single round ------------------------------------------------------------------------

    def run_once(self, now_ms: int | None = None, dry_run: bool = False) -> Report:
        """Run a round of all background work, without starting the service.

        Args:
            now_ms: The time of the round in milliseconds since the epoch; by default the current
                time. Retention and compaction decide by this time.
            dry_run: Report what a round would do, and make no changes.

        Returns:
            The completed work. `Report.errors` lists the steps that failed.

        Raises:
            SparklogError: The log cannot be opened; see `sparklog.open`.
        """
        return self._run_round(set(WORKS), now_ms=now_ms, dry_run=dry_run)

    def compact(
        self,
        topics: Collection[str] | None = None,
        now_ms: int | None = None,
        dry_run: bool = False,
    ) -> Report:
        """Compact topics without regard to min.cleanable.dirty.ratio.

        The active segment, and records younger than min.compaction.lag.ms, are not compacted.

        Args:
            topics: The topics to compact; by default all compacted topics.
            now_ms: The time of the round; see `run_once`.
            dry_run: Report what would be compacted, and make no changes.

        Raises:
            InvalidRequestError: A topic is not compacted.
            UnknownTopicError: A topic does not exist.
        """
        request = Request(topics=topics, every=True)
        return self._run_round({"clean"}, request, now_ms=now_ms, dry_run=dry_run)

    def retain(self, now_ms: int | None = None, dry_run: bool = False) -> Report:
        """Roll idle segments and delete expired segments.

        Expired segments of a topic are deleted in this call. A running service, by contrast,
        announces the first deletion in a topic, and deletes in a later round. In tiered topics,
        expired copies are deleted, and local segments that have a copy; no segments are copied.

        Args:
            now_ms: The time of the round; see `run_once`.
            dry_run: Report what would be deleted, and make no changes.
        """
        return self._run_round({"retain"}, Request(at_once=True), now_ms=now_ms, dry_run=dry_run)

    def erase(
        self,
        topic: str,
        keys: Collection[bytes] = (),
        *,
        predicate: RecordPredicate | None = None,
        partitions: Collection[int] | None = None,
        null_key: bool = False,
        before: int | None = None,
        before_ms: int | None = None,
        dry_run: bool = False,
        wait_ms: float = WAIT_MS,
        waiting: Callable[[str], None] = lambda who: None,
    ) -> ErasureReport:
        """Erase a topic's records for good, wherever this log stores them; offsets stay.

        This method is `sparklog.service.erase` with the service's own options. Each time that
        copies are to be replaced, the method waits for the current step of the round.

        Args:
            topic: As for `sparklog.service.erase`.
            keys: As for `sparklog.service.erase`.
            predicate: As for `sparklog.service.erase`.
            partitions: As for `sparklog.service.erase`.
            null_key: As for `sparklog.service.erase`.
            before: As for `sparklog.service.erase`.
            before_ms: As for `sparklog.service.erase`.
            dry_run: As for `sparklog.service.erase`.
            wait_ms: As for `sparklog.service.erase`.
            waiting: As for `sparklog.service.erase`.
        """
        request = ErasureRequest(
            topic=topic, keys=keys, predicate=predicate, partitions=partitions, null_key=null_key,
            before=before, before_ms=before_ms, dry_run=dry_run, wait_ms=wait_ms, waiting=waiting,
        )  # fmt: skip
        report = erasure_report(request, self.path, self._clock())
        began = monotonic_ms()
        with self._opened_log() as upkeep:
            turns = [self._work_locks[work] for work in upkeep.paused_while_lent]
            with self._leadership.borrowing(upkeep, turns, request) as loan:
                upkeep.erase(request, report, loan)
        report.took_ms = monotonic_ms() - began
        return report

    def _run_round(
        self, wanted: set[Work], request: Request = AS_DUE, *, now_ms: int | None, dry_run: bool
    ) -> Report:
        with contextlib.ExitStack() as turns:
            # Always in this order, or two threads could wait for each other's lock.
            for turn in self._work_locks.values():
                turns.enter_context(turn)
            upkeep = turns.enter_context(self._opened_log())
            report = Report(
                path=self.path, time_ms=self._clock() if now_ms is None else now_ms, dry_run=dry_run
            )
            # A dry run changes nothing, so it needs no lease and runs beside another service.
            leading = upkeep if dry_run else self._leadership.leading()
            if leading is None:
                report.standing_by = upkeep.lease.describe()
                return report
            upkeep = leading
            if dry_run:
                upkeep.take_up(self._clock())
            if request.every:
                upkeep.check_compacted(request.topics or (), report)
            self._work(upkeep, wanted, report, request)
            return report

    def _work(
        self,
        upkeep: Upkeep,
        wanted: set[Work],
        report: Report,
        request: Request = AS_DUE,
        *,
        purging: bool = True,
    ) -> None:
        began = monotonic_ms()
        try:
            for work in upkeep.works:
                if work in wanted:
                    with self._meters.round(work, report):
                        self._due |= upkeep.work(work, report, request)
                    if work == "clean" and self._options.cleaner_enable:
                        self._meters.record_dirty(upkeep.compacted)
            if purging or "retain" in wanted:
                upkeep.purge(report)
        except LeaseLostError as error:
            report.standing_by = str(error)
            _LOGGER.warning("%s", error)
        except (SparklogError, OSError) as error:
            report.errors.append(str(error))
            _LOGGER.warning(
                "%s: a round of the service failed and is repeated later: %s", self.path, error
            )
            # Without a later due time the threads would repeat a failing round at every poll.
            for name in wanted:
                self._due[name] = report.time_ms + self._options.cleaner_backoff_ms
        report.took_ms = monotonic_ms() - began
        self.last_report = report
        if self.on_round is not None:
            self.on_round(report)
        if report.worked:
            _LOGGER.info("%s", report)

    # --- metrics -------------------------------------------------------------------------------

    @property
    def metrics_url(self) -> str | None:
        """The URL for Prometheus, if the service is started with `metrics_port`."""
        return None if self._endpoint is None else self._endpoint.url

    def _samples(self) -> Iterable[Sample]:
        """Return all metrics as of now, for the endpoint. Takes no lock of the log."""
        found = self._observer.observe()
        upkeep, lease = self._leadership.upkeep, self._leadership.lease
        given_up = {} if upkeep is None else upkeep.uncleanable
        self._meters.uncleanable(given_up, found)
        self._meters.refresh(
            now_ms=self._clock(), leading=lease is not None and lease.held,
            dead=self._dead_threads(),
        )  # fmt: skip
        checks = health_samples(self._examiner.examine(self._status(), found=found))
        return [*samples(found), *checks, *process_samples()]

    def _status(self) -> ServiceStatus:
        upkeep = self._leadership.upkeep
        dead = tuple(work for work, is_dead in self._dead_threads().items() if is_dead)
        uncleanable = {} if upkeep is None else dict(upkeep.uncleanable)
        return ServiceStatus(dead=dead, uncleanable=uncleanable)

    def _dead_threads(self) -> dict[str, bool]:
        """Return {kind of work: whether the thread of this work died}."""
        # `_run` catches every error of the work, but not an error of its own handling of errors.
        stopped = self._stop.is_set()
        return {
            thread.name.removeprefix("sparklog-"): not (stopped or thread.is_alive())
            for thread in self._threads
        }

    def _health(self) -> tuple[list[str], dict[str, object]]:
        """Return the content of /healthz: faults, and the verdict. Takes at most ten seconds."""
        home = self._observer.directories[0]
        # A hung NFS mount or store must turn the check red, not make it hang as well.
        try:
            found = call_with_timeout(self._observer.observe, CHECK_MS, home)
        except StorageUnavailableError as error:
            found = LogMetrics(path=self.path, time_ms=self._clock(), errors=[str(error)])
            found.directories = [DirectoryMetrics(home, None, str(error))]
        verdict = self._examiner.examine(self._status(), found=found)
        return faults(home, found.directories, self._dead_threads()), verdict.to_dict()

    def _stop_serving(self) -> None:
        endpoint, self._endpoint = self._endpoint, None
        if endpoint is not None:
            endpoint.close()

    # --- opening and closing -------------------------------------------------------------------

    def _open(self) -> tuple[Upkeep, bool]:
        """Return the background work, and whether this call opened the log."""
        upkeep, opened = self._leadership.open()
        if opened:
            self._meters.started(upkeep.works, self._clock())
        return upkeep, opened

    @contextlib.contextmanager
    def _opened_log(self) -> Iterator[Upkeep]:
        """Provide the background work. Closes a log that no thread of the service has opened."""
        # Several rounds may run at once, from several threads: the last user closes the log.
        with self._using:
            upkeep, opened = self._open()
            self._users += 1
            self._passing = self._passing or opened
        try:
            yield upkeep
        finally:
            with self._using:
                self._users -= 1
                if self._passing and not self._users:
                    self._passing = False
                    self._leadership.close()


def _spark_session_check() -> Callable[[], bool]:
    """Return a function that returns True while the present Spark session is active."""
    # Not imported: a process that hasn't loaded pyspark has no session, and may not have pyspark.
    pyspark = sys.modules.get("pyspark")
    context: Any = getattr(pyspark, "SparkContext", None)
    active = getattr(context, "_active_spark_context", None)
    if active is None:
        return lambda: True
    return lambda: getattr(context, "_active_spark_context", None) is active


_STARTED: Final["weakref.WeakSet[Service]"] = weakref.WeakSet()


@atexit.register
def _close_all() -> None:
    for service in list(_STARTED):
        service.close()
