"""Options of the service: Kafka's broker keys and some of sparklog; and a service's arguments."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Self

from sparklog.clock import Clock
from sparklog.config import KEYS, LOG_KEYS
from sparklog.configdef import DOUBLE_MAX, LONG_MAX, Key, keys_of, option, read, refuse_unknown
from sparklog.fs import FileSystem
from sparklog.log.cleaner_options import CleanerOptions
from sparklog.quantities import SECOND_MS
from sparklog.tiered.keyring import Keyring
from sparklog.tiered.object_store.store import Store

Map = Callable[[Callable[[Any], Any], list[Any]], Iterable[Any]]
OpenStore = Callable[[str, Mapping[str, Any] | None], Store]


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceOptions:
    """Intervals and resources of the background work. Fields are the keys in snake case."""

    initial_task_delay_ms: int = option(
        "log.initial.task.delay.ms",
        30_000,
        doc="Time (ms) from the service's start to its first round.",
    )
    retention_check_interval_ms: int = option(
        "log.retention.check.interval.ms",
        300_000,
        low=1,
        long=True,
        doc="Time (ms) between two rounds of rolling, retention and clean-up.",
    )
    cleaner_enable: bool = option(
        "log.cleaner.enable", True, doc="Whether compacted topics are cleaned."
    )
    cleaner_threads: int = option(
        "log.cleaner.threads", 1, low=0, doc="Partitions that are cleaned at the same time."
    )
    cleaner_backoff_ms: int = option(
        "log.cleaner.backoff.ms",
        15 * SECOND_MS,
        long=True,
        doc="Time (ms) between two looks for something to clean when there was nothing.",
    )
    cleaner_dedupe_buffer_bytes: int = option(
        "log.cleaner.dedupe.buffer.size",
        128 << 20,
        low=1 << 20,
        long=True,
        doc="Memory (bytes) of the offset maps of all cleaner threads together.",
    )
    cleaner_load_factor: float = option(
        "log.cleaner.io.buffer.load.factor",
        0.9,
        low=0.01,
        high=0.99,
        doc="Share of an offset map that is filled.",
    )
    cleaner_bytes_per_second: float = option(
        "log.cleaner.io.max.bytes.per.second",
        DOUBLE_MAX,
        low=1,
        high=DOUBLE_MAX,
        doc="Reads and writes (bytes a second) of all cleaner threads together.",
    )
    cleaner_io_buffer_bytes: int = option(
        "log.cleaner.io.buffer.size",
        512 << 10,
        doc="Accepted, without effect: files are read in windows of 4 MiB.",
    )
    ledger_retention_ms: int = option(
        "ledger.retention.ms",
        7 * 24 * 3600 * SECOND_MS,
        low=-1,
        long=True,
        doc="Own option: age (ms) at which old segments of the commit ledger go; -1 never. The "
        "newest commit of each writer stays known.",
    )
    lock_budget_ms: int = option(
        "service.lock.budget.ms",
        20,
        low=1,
        doc="Own option: time (ms) under the write lock after which a step takes no more work.",
    )

    merge_interval_ms: int = option(
        "diskless.merge.interval.ms",
        600 * SECOND_MS,
        low=1,
        long=True,
        doc="Own option, of a log in a store: age (ms) at which the records of a commit become "
        "part of a segment. Sooner where they are segment.bytes.",
    )
    merge_max_extents: int = option(
        "diskless.merge.max.extents",
        1000,
        low=2,
        doc="Own option, of a log in a store: pieces of a partition, side by side, that become a "
        "segment whatever their age.",
    )
    stage_retention_ms: int = option(
        "diskless.stage.retention.ms",
        24 * 3600 * SECOND_MS,
        low=1,
        long=True,
        doc="Own option, of a log in a store: time (ms) that a task's rows may wait for their "
        "commit; then they are given up. Longer than the longest micro-batch.",
    )

    remote_interval_ms: int = option(
        "remote.log.manager.task.interval.ms",
        30 * SECOND_MS,
        low=1,
        long=True,
        doc="Time (ms) between two rounds of copying to remote storage and of deleting there.",
    )
    remote_copy_threads: int = option(
        "remote.log.manager.copier.thread.pool.size",
        4,
        low=1,
        doc="Segments that are copied at the same time; each takes some 40 MiB of memory. Kafka: "
        "10.",
    )
    remote_copy_bytes_per_second: int = option(
        "remote.log.manager.copy.max.bytes.per.second",
        LONG_MAX,
        low=1,
        long=True,
        doc="Bytes of log a second that all copies together read.",
    )
    remote_backoff_ms: int = option(
        "remote.log.manager.task.retry.backoff.ms",
        500,
        low=1,
        doc="Time (ms) until the next round after one that failed; doubled each time.",
    )
    remote_backoff_max_ms: int = option(
        "remote.log.manager.task.retry.backoff.max.ms",
        30 * SECOND_MS,
        low=1,
        doc="The longest time (ms) between two rounds that fail.",
    )
    remote_sweep_interval_ms: int = option(
        "service.remote.sweep.interval.ms",
        6 * 3600 * SECOND_MS,
        low=-1,
        long=True,
        doc="Own option: time (ms) between two comparisons of remote storage with what the log "
        "knows of it; also in the first round. -1 never.",
    )

    def __post_init__(self) -> None:
        for key in SERVICE_KEYS.values():
            key.check(getattr(self, key.field))

    @classmethod
    def parse(cls, values: Mapping[str, object]) -> tuple[Self, dict[str, object]]:
        """Read the options of the service; return the others, which are options of the log.

        Raises:
            InvalidRequestError: A key is unknown, or a value is out of range. The message names
                key, value and range.
        """
        found, rest = read(SERVICE_KEYS.values(), values)
        log_keys = [*KEYS.values(), *LOG_KEYS.values()]
        of_log = {name for key in log_keys for name in (key.name, *dict(key.also))}
        refuse_unknown(
            {name: value for name, value in rest.items() if name not in of_log},
            SERVICE_KEYS | LOG_KEYS,
        )
        return cls(**found), dict(rest)

    def cleaner(self) -> CleanerOptions:
        """Return the options of a cleaner thread. Threads share the map's memory, as in Kafka."""
        rate = self.cleaner_bytes_per_second
        return CleanerOptions(
            dedupe_buffer_bytes=self.cleaner_dedupe_buffer_bytes // max(self.cleaner_threads, 1),
            load_factor=self.cleaner_load_factor,
            io_max_bytes_per_second=None if rate == DOUBLE_MAX else rate,
        )


SERVICE_KEYS: Final[dict[str, Key]] = keys_of(ServiceOptions)
"""The service's keys with their descriptions."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TierOptions:
    """The location of copies, as given to `Service`.

    Attributes:
        url: The URL of the store; None for the URL in the log's settings.
        storage_options: Options of fsspec for the store.
        keyring: Encrypts the copies.
        plain: Whether to end the encryption of copies.
        take_over: Whether to make the copies at the URL this log's own.
        opening: Creates the store of a URL.
    """

    url: str | None
    storage_options: Mapping[str, Any] | None
    keyring: Keyring | None
    plain: bool
    take_over: bool
    opening: OpenStore


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceArguments:
    """The arguments of a service, for the modules that open the log.

    Attributes:
        path: Log dirs, or the URL of a bucket as given.
        url: The URL of the bucket that is the log's home; None for log dirs.
        stopping: Returns True if the service is stopping.
    """

    path: str
    url: str | None
    options: ServiceOptions
    log_options: Mapping[str, Any]
    tier: TierOptions
    map: Map | None
    stopping: Callable[[], bool]
    fs: FileSystem
    clock: Clock
