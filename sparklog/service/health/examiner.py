"""`examine`: the verdict on a log in any home. An `Examiner` repeats it at a lower cost."""

import contextlib
import os
import threading
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final, TypeVar

from sparklog.clock import Clock, monotonic_ms, system_clock
from sparklog.errors import InvalidRequestError, SparklogError, StorageUnavailableError
from sparklog.fs import LOCAL, FileSystem, check_reachable
from sparklog.logdir.detection import holds_log
from sparklog.logdir.ledger_end import ledger_fault
from sparklog.logdir.paths import split_path
from sparklog.opening import holds_home, url_of
from sparklog.service.health.checks import judge
from sparklog.service.health.formatting import duration_text
from sparklog.service.health.inputs import HealthInputs, ServiceStatus, store_inputs
from sparklog.service.health.limits import LIMITS, Limits
from sparklog.service.health.log_dir_inputs import log_dir_inputs
from sparklog.service.health.model import Health
from sparklog.service.health.needed_files import unreadable_files
from sparklog.service.metrics.observed import LogMetrics, LogObserver, PartitionMetrics
from sparklog.service.metrics.observer import Observer
from sparklog.service.metrics.store_observer import StoreObserver
from sparklog.tiered.archive.opening import open_archive
from sparklog.tiered.object_store.failures import Failure, failure_of
from sparklog.tiered.object_store.store import Store
from sparklog.tiered.reading.options import RemoteOptions
from sparklog.tiered.target import open_store

Path = str | os.PathLike[str]
PATIENCE_MS: Final = 2000
"""How long a store that does not answer is waited for, unless the options set a time."""
PATIENCE: Final = "remote.patience.ms"
STORE_CHECK_MS: Final = 15_000  # a log in a bucket needs a dozen requests in sequence
_ENTRIES: Final = 256  # ledger entries that are read for the rates of writers and partitions
_ASK_AGAIN_MS: Final = 60_000  # how often a tier is probed, and the entire ledger is read
_NEW: Final = ": is its disk mounted? (`sparklog topics create` makes a new log)"
_NOTHING_THERE: Final = "sparklog.health"  # an object that never exists in a tier

T = TypeVar("T")


def examine(
    path: Path,
    *,
    storage_options: Mapping[str, Any] | None = None,
    options: Mapping[str, object] | None = None,
    limits: Limits = LIMITS,
    fs: FileSystem = LOCAL,
    clock: Clock = system_clock,
) -> Health:
    """Return the health of a log.

    The function takes no lock, makes no changes and reads no records. Its checks report what cannot
    be read, and a missing log.

    Args:
        path: Log dirs joined by ",", or the URL of a bucket or an archive.
        storage_options: Options of fsspec for the store.
        options: Options of `sparklog.open`. Only offsets.retention.minutes and remote.patience.ms
            (2 s by default) have an effect.
        limits: Thresholds of the checks.
        fs: The file system of log dirs; for tests.
        clock: The current time in milliseconds since the epoch; for tests.

    Raises:
        InvalidRequestError: `path` is not a valid path.

    Cost:
        About 0.3 ms per partition, and the ledger's newest segment; a request to a tier, with a
        timeout of 2 s. For a log in a bucket: a dozen requests, another for each group and for each
        of the newest 256 entries, many at a time, and a conditional PUT that shows whether these
        credentials may write; 15 s at most.

    Examples:
        >>> from sparklog.service import examine
        >>> health = examine("log")
        >>> str(health.level), health.wrong
        ('green', [])
    """
    return Examiner(
        path, storage_options=storage_options, options=options, limits=limits, fs=fs, clock=clock
    ).examine()


class Examiner:
    """Examines a log repeatedly; results of earlier examinations reduce the cost.

    Thread-safe, like its observer.
    """

    def __init__(
        self,
        path: Path,
        *,
        storage_options: Mapping[str, Any] | None = None,
        options: Mapping[str, object] | None = None,
        limits: Limits = LIMITS,
        observer: LogObserver | None = None,
        fs: FileSystem = LOCAL,
        clock: Clock = system_clock,
        opening: Callable[[str, Mapping[str, Any] | None], Store] = open_store,
    ) -> None:
        """Create an examiner; see `examine`.

        Args:
            path: The log.
            storage_options: Options of fsspec for the store.
            options: Options of the log.
            limits: The limits of the checks.
            observer: The observer of a service, to share the cached state.
            fs: The file system.
            clock: The current time.
            opening: Creates the tier's store. The time that this takes does not count against the
                store's timeout.
        """
        self.path = os.fspath(path)
        self._storage_options = storage_options
        self._options = {PATIENCE: PATIENCE_MS, **(options or {})}
        self._remote, self._rest = RemoteOptions.parse(self._options)
        self._limits, self._observer, self._fs, self._clock = limits, observer, fs, clock
        self._opening = opening
        self._is_service = observer is not None
        self._refusal: tuple[float, tuple[bool, StorageUnavailableError | None]] | None = None
        self._is_owner = observer is not None or bool(storage_options)
        self._seen_faults: tuple[float, tuple[str | None, list[str]]] | None = None
        self._tier: tuple[float, str | None] | None = None  # (time of the probe, error)

    def examine(
        self, status: ServiceStatus | None = None, *, found: LogMetrics | None = None
    ) -> Health:
        """Examine the log, and return the verdict.

        Args:
            status: the service's own state.
            found: metrics that were just observed, if any.
        """
        inputs = self._inputs(found)
        inputs.service_status = status
        return Health(self.path, inputs.now_ms, inputs.kind, tuple(judge(inputs)))

    def _inputs(self, found: LogMetrics | None) -> HealthInputs:
        url = url_of(self.path, fs=self._fs)
        if url is not None:
            return self._in_store(url, found)
        directories = split_path(self.path)
        home = directories[0]
        if not self._fs.is_dir(home):
            if self._fs.exists(home):
                return self._nothing(f"{home} is a file; name the log's directory")
            try:
                check_reachable(self._fs, home)
            except StorageUnavailableError as error:
                return self._nothing(str(error))
            return self._nothing(f"{home} does not exist{_NEW}", is_mountable=True)
        if not any(holds_log(self._fs, directory) for directory in directories):
            held = f"{','.join(directories)} contains no log{_NEW}"
            return self._nothing(held, is_mountable=True)
        if self._observer is None:
            self._observer = Observer(
                self.path, batches=False, options=self._rest, fs=self._fs, clock=self._clock
            )
        found = found or self._observer.observe()
        inputs = log_dir_inputs(
            self.path, directories, found, self._limits, self._fs,
            faults=self._faults(directories, found),
        )  # fmt: skip
        if found.remote_url is not None:
            inputs.tier_error = self._asked(found.remote_url)
        return inputs

    def _faults(self, directories: list[str], found: LogMetrics) -> tuple[str | None, list[str]]:
        """Return why a writer can't open the ledger, and why reads fail; at most once a minute.

        After a fault both are checked at every call. Cost: reads the ledger's newest segment (16
        MiB at most), and the cost of `unreadable_files`.
        """
        known = self._seen_faults
        if known is not None and not any(known[1]) and monotonic_ms() - known[0] < _ASK_AGAIN_MS:
            return known[1]
        try:
            fault = ledger_fault(self._fs, directories[0])
            why = None if fault is None else str(fault)
        except (SparklogError, OSError) as error:  # newer than this sparklog, or on a failing disk
            why = str(error)
        faults = why, unreadable_files(self._fs, directories, found)
        self._seen_faults = monotonic_ms(), faults
        return faults

    def _nothing(self, why: str, *, is_mountable: bool = False) -> HealthInputs:
        found = LogMetrics(path=self.path, time_ms=self._clock())
        return HealthInputs(
            path=self.path, kind="nothing", limits=self._limits, found=found, nothing=why,
            is_mountable=is_mountable,
        )  # fmt: skip

    # --- stores --------------------------------------------------------------------------------

    def _asked(self, url: str) -> str | None:
        """Probe a tier with a GET of a missing object; return the error unless it answers."""
        known = self._tier
        if known is not None and monotonic_ms() - known[0] < _ASK_AGAIN_MS:
            return known[1]

        why: str | None = None
        try:
            # Opening sends no request. Importing the store's library may take seconds, which must
            # not count against the store's timeout.
            store = self._opening(url, self._storage_options)

            def ask() -> None:
                with contextlib.suppress(FileNotFoundError):
                    store.get(_NOTHING_THERE)

            call_with_timeout(ask, self._remote.patience_ms(following=False), "it")
            if url.startswith("file://") and not self._fs.is_dir(url.removeprefix("file://")):
                why = "there is no such directory"
        except InvalidRequestError:
            pass  # the store's library is not installed here; the service has its own
        except (SparklogError, OSError) as error:
            # A monitoring process may lack credentials, which is no fault of the log.
            if self._is_owner or failure_of(error) is not Failure.CREDENTIALS:
                why = _line(error)
        self._tier = monotonic_ms(), why
        return why

    def _in_store(self, url: str, found: LogMetrics | None) -> HealthInputs:
        try:
            if found is None:
                found = call_with_timeout(lambda: self._observed(url), STORE_CHECK_MS, url)
        except InvalidRequestError as error:
            return self._nothing(_line(error))
        except (SparklogError, OSError) as error:
            inputs = self._nothing(_line(error))
            inputs.kind, inputs.in_store = "log", True
            return inputs
        if found is None:
            return self._archive(url)
        inputs = store_inputs(self.path, found, self._limits)
        observer, refusal = self._observer, None
        inputs.is_write_tried = False
        if isinstance(observer, StoreObserver) and not self._is_service and not inputs.unwritable:
            inputs.is_write_tried, refusal = self._write_refusal(observer)
        if refusal is not None and failure_of(refusal) is Failure.CREDENTIALS:
            inputs.read_only = url
        elif refusal is not None:
            inputs.unwritable.append(_line(refusal))
        return inputs

    def _write_refusal(
        self, observer: StoreObserver
    ) -> tuple[bool, StorageUnavailableError | None]:
        """Return whether the store answered a write of this process, and the reason of a refusal.

        Cost: a request, once a minute.
        """
        known = self._refusal
        if known is None or monotonic_ms() - known[0] >= _ASK_AGAIN_MS:
            answer: tuple[bool, StorageUnavailableError | None] = False, None
            with contextlib.suppress(SparklogError, OSError):
                answer = True, call_with_timeout(observer.write_refusal, STORE_CHECK_MS, self.path)
            known = self._refusal = monotonic_ms(), answer
        return known[1]

    def _observed(self, url: str) -> LogMetrics | None:
        """Observe a log in a bucket; return None without a log at the URL (perhaps an archive)."""
        if self._observer is None:
            if not holds_home(url, self._storage_options, self._remote):
                return None
            self._observer = StoreObserver(
                self.path, url, trail_entries=_ENTRIES, batches=False, options=self._options,
                clock=self._clock, connect=partial(open_store, url, self._storage_options),
            )  # fmt: skip
        return self._observer.observe()

    def _archive(self, url: str) -> HealthInputs:
        try:
            view = open_archive(url, options=self._remote, storage_options=self._storage_options)
            topics = call_with_timeout(view.topics, STORE_CHECK_MS, url)
        except (SparklogError, OSError) as error:
            inputs = self._nothing(_line(error))
            inputs.kind, inputs.in_store = "archive", True
            return inputs
        if not topics:
            return self._nothing(f"{url} contains neither a log nor an archive")
        inputs = self._nothing("")
        inputs.kind, inputs.in_store = "archive", True
        inputs.found.partitions = [
            PartitionMetrics(name, partition, place, 0, 0, 0, 0)
            for name, info in topics.items()
            for partition, place in info.dirs.items()
        ]
        return inputs


def _line(error: Exception) -> str:
    return " ".join(str(error).split())


def call_with_timeout(call: Callable[[], T], timeout_ms: float, what: str) -> T:
    """Return the result of `call`, or raise the exception that `call` raises.

    A call that takes longer than `timeout_ms` continues in a daemon thread, because a request to a
    host that drops packets cannot be cancelled. `what` is the subject of the message.

    Raises:
        StorageUnavailableError: `call` took longer than `timeout_ms`.
    """
    results: list[T] = []
    errors: list[Exception] = []

    def run() -> None:
        try:
            results.append(call())
        except Exception as error:  # noqa: BLE001 - raised by the waiting thread
            errors.append(error)

    thread = threading.Thread(target=run, name="sparklog-health", daemon=True)
    thread.start()
    thread.join(timeout_ms / 1000)
    if results:
        return results[0]
    if errors:
        raise errors[0]
    raise StorageUnavailableError(
        f"{what} gave no answer within {duration_text(timeout_ms)}: is the store running, and does "
        "network reach it?"
    )
