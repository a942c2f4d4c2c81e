"""Topic and log options under Kafka's names, defaults and valid ranges.

`TopicConfig` has a field per Kafka topic config. The field's `option(...)` is the only description
of the key; `KEYS`, parsing, checks and the generated docs use it. Broker-level synonyms are read as
in Kafka: a topic's own key takes precedence over its synonyms, and the finer unit over coarser ones
(ms, minutes, hours).

Differences from a broker:
- every commit is fsynced (`flush=commit`), so `flush.messages` and `flush.ms` have no effect;
- a log has no replicas: `min.insync.replicas` and `unclean.leader.election.enable` are stored for a
  broker that adopts the log, and throttled replica lists are rejected;
- the limits of `local.retention.*` apply whether or not tiering is on.

Sources: LogConfig, TopicConfig, ServerTopicConfigSynonyms (Kafka 4.1).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final, Self

from sparklog.configdef import (
    LONG_MAX,
    LONG_MIN,
    Key,
    format_value,
    keys_of,
    markdown,
    option,
    read,
    refuse_unknown,
)
from sparklog.errors import InvalidRequestError
from sparklog.quantities import DAY_MS, HOUR_MS, MINUTE_MS

__all__ = [
    "KEYS", "LOG_KEYS", "OWN_KEYS", "TIERED_KEYS", "Key", "LogOptions", "TopicConfig", "markdown",
]  # fmt: skip

_WEEK_MS: Final = 7 * DAY_MS


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicConfig:
    """A topic's options. Fields are Kafka's option names in snake case; the unit is the last word.

    docs/options.md describes each option. `explicit` contains the options that were set explicitly
    to Kafka's default.

    Source: Kafka's LogConfig and TopicConfig.

    Examples:
        >>> config = sparklog.TopicConfig.parse({"retention.ms": 86_400_000})
        >>> config.retention_ms, config.compact
        (86400000, False)
    """

    # fmt: off

    cleanup_policy: tuple[str, ...] = option(
        "cleanup.policy", ("delete",), choices=("compact", "delete"), also=["log.cleanup.policy"],
        doc="Policy for old segments: delete them by age and size, compact them by key, or both.",
    )
    segment_bytes: int = option(
        "segment.bytes", 1 << 30, low=1 << 20, also=["log.segment.bytes"],
        doc="Size in bytes at which a segment is closed.",
    )
    internal_segment_bytes: int | None = option(
        "internal.segment.bytes", None, kind=int, low=14,
        doc="For tests: overrides segment.bytes without its lower limit.",
    )
    segment_ms: int = option(
        "segment.ms", _WEEK_MS, low=1, long=True,
        also=["log.roll.ms", ("log.roll.hours", HOUR_MS)],
        doc="Age in record time (ms) at which a segment is closed although it is not full.",
    )
    segment_jitter_ms: int = option(
        "segment.jitter.ms", 0, long=True,
        also=["log.roll.jitter.ms", ("log.roll.jitter.hours", HOUR_MS)],
        doc="Maximum random time (ms) subtracted from segment.ms, so that segments don't all roll "
        "at once.",
    )
    segment_idle_ms: int = option(
        "segment.idle.ms", -1, low=-1, long=True,
        doc="Option of sparklog: time (ms) without an append after which the service closes the "
        "active segment, so that it can expire, be compacted or tiered; -1: never. Kafka rolls "
        "by time only when the next record arrives.",
    )
    segment_index_bytes: int = option(
        "segment.index.bytes", 10 << 20, low=4, also=["log.index.size.max.bytes"],
        doc="Size in bytes at which an index is full; the segment then rolls.",
    )
    index_interval_bytes: int = option(
        "index.interval.bytes", 4096, also=["log.index.interval.bytes"],
        doc="Bytes of log between two index entries.",
    )
    retention_ms: int = option(
        "retention.ms", _WEEK_MS, low=-1, long=True,
        also=["log.retention.ms", ("log.retention.minutes", MINUTE_MS),
              ("log.retention.hours", HOUR_MS)],
        doc="Age in record time (ms) at which a closed segment may be deleted; -1: never. New "
        "topics have -1 unless the option is set for the topic or the log: Kafka's default of a "
        "week would delete the records of a backfill, which are older.",
    )
    retention_bytes: int = option(
        "retention.bytes", -1, low=LONG_MIN, long=True, also=["log.retention.bytes"],
        doc="Size in bytes of a partition beyond which its oldest segments are deleted; negative: "
        "no limit.",
    )
    max_message_bytes: int = option(
        "max.message.bytes", (1 << 20) + 12, also=["message.max.bytes"],
        doc="Largest record batch in bytes, after compression, header included.",
    )
    compression_type: str = option(
        "compression.type", "producer",
        choices=("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"),
        aliases=(("none", "uncompressed"),),
        doc="Codec of the topic; producer keeps the writer's codec. none, the spelling of "
        "producers, is stored as uncompressed.",
    )
    compression_gzip_level: int = option(
        "compression.gzip.level", -1, low=1, high=9, extra=-1, doc="Compression level for gzip."
    )
    compression_lz4_level: int = option(
        "compression.lz4.level", 9, low=1, high=17, doc="Compression level for lz4."
    )
    compression_zstd_level: int = option(
        "compression.zstd.level", 3, low=-131072, high=22, doc="Compression level for zstd."
    )
    message_timestamp_type: str = option(
        "message.timestamp.type", "CreateTime", choices=("CreateTime", "LogAppendTime"),
        also=["log.message.timestamp.type"],
        doc="Whether records keep their own timestamp or get the time of the append.",
    )
    message_timestamp_before_max_ms: int = option(
        "message.timestamp.before.max.ms", LONG_MAX, long=True,
        also=["log.message.timestamp.before.max.ms"],
        doc="Maximum time (ms) from a record's timestamp to a later append; CreateTime only.",
    )
    message_timestamp_after_max_ms: int = option(
        "message.timestamp.after.max.ms", HOUR_MS, long=True,
        also=["log.message.timestamp.after.max.ms"],
        doc="Maximum time (ms) from the append to a later record timestamp; CreateTime only.",
    )
    flush_messages: int = option(
        "flush.messages", LONG_MAX, low=1, long=True, also=["log.flush.interval.messages"],
        doc="Accepted, without effect: every commit is fsynced anyway (see flush).",
    )
    flush_ms: int = option(
        "flush.ms", LONG_MAX, long=True,
        also=["log.flush.interval.ms", "log.flush.scheduler.interval.ms"],
        doc="Accepted, without effect: every commit is fsynced anyway (see flush).",
    )
    file_delete_delay_ms: int = option(
        "file.delete.delay.ms", 60_000, long=True, also=["log.segment.delete.delay.ms"],
        doc="How long (ms) the renamed files of a deleted segment stay, unless a disk is nearly "
        "full. Also how long a deleted topic can be restored, with its remote copies: set it to a "
        "day, for example, for a topic that must not be lost by mistake.",
    )
    preallocate: bool = option(
        "preallocate", False, also=["log.preallocate"],
        doc="Stored for a broker that adopts the topic; without effect in sparklog, where the size "
        "of a segment's file is the size of its records.",
    )
    min_cleanable_dirty_ratio: float = option(
        "min.cleanable.dirty.ratio", 0.5, low=0, high=1,
        also=["log.cleaner.min.cleanable.ratio"],
        doc="Share of uncompacted bytes from which the cleaner runs.",
    )
    delete_retention_ms: int = option(
        "delete.retention.ms", 24 * HOUR_MS, long=True,
        also=["log.cleaner.delete.retention.ms"],
        doc="How long (ms) a tombstone stays after the cleaner first read it.",
    )
    min_compaction_lag_ms: int = option(
        "min.compaction.lag.ms", 0, long=True, also=["log.cleaner.min.compaction.lag.ms"],
        doc="Minimum time (ms) that a record stays uncompacted.",
    )
    max_compaction_lag_ms: int = option(
        "max.compaction.lag.ms", LONG_MAX, low=1, long=True,
        also=["log.cleaner.max.compaction.lag.ms"],
        doc="Time (ms) after which a record is due for compaction.",
    )
    min_insync_replicas: int = option(
        "min.insync.replicas", 1, low=1,
        doc="Stored for a broker that adopts the topic; without effect in sparklog.",
    )
    unclean_leader_election_enable: bool = option(
        "unclean.leader.election.enable", False,
        doc="Stored for a broker that adopts the topic; without effect in sparklog.",
    )
    remote_storage_enable: bool = option(
        "remote.storage.enable", False,
        doc="Whether closed segments are copied to remote storage. Local segments of a compacted "
        "topic stay.",
    )
    remote_log_copy_disable: bool = option(
        "remote.log.copy.disable", False, doc="Stop copying; remote segments stay readable."
    )
    remote_log_delete_on_disable: bool = option(
        "remote.log.delete.on.disable", False,
        doc="Delete remote segments when tiering is turned off.",
    )
    local_retention_ms: int = option(
        "local.retention.ms", -2, low=-2, long=True, also=["log.local.retention.ms"],
        doc="Age (ms) at which the local copy of a tiered segment may be deleted; -2: as "
        "retention.ms.",
    )
    local_retention_bytes: int = option(
        "local.retention.bytes", -2, low=-2, long=True, also=["log.local.retention.bytes"],
        doc="Size in bytes of the local segments beyond which tiered segments are deleted; -2: as "
        "retention.bytes.",
    )

    retention_respect_readers: bool = option(
        "retention.respect.readers", False,
        doc="Option of sparklog: whether retention keeps the records that the slowest registered "
        "reader (a query or a group) has not read, until its offsets expire "
        "(offsets.retention.minutes). It does not wait for readers that never registered.",
    )

    explicit: frozenset[str] = field(default=frozenset(), compare=False)
    """Keys that were set explicitly to Kafka's default."""

    def __post_init__(self) -> None:
        """Check all values and the conditions between values.

        Source: LogConfig.validateValues and its remote checks.

        Raises:
            InvalidRequestError: A value is invalid.
        """
        for key in KEYS.values():
            key.check(getattr(self, key.field))
        if self.min_compaction_lag_ms > self.max_compaction_lag_ms:
            raise InvalidRequestError(
                f"min.compaction.lag.ms={self.min_compaction_lag_ms}: expected at most "
                f"max.compaction.lag.ms={self.max_compaction_lag_ms}"
            )
        _check_local("ms", self.local_retention_ms, self.retention_ms)
        _check_local("bytes", self.local_retention_bytes, self.retention_bytes)

    @classmethod
    def parse(cls, values: Mapping[str, object], *, base: Self | None = None) -> Self:
        """Parse options by their Kafka names and the names' synonyms.

        Args:
            values: {option: value}; values can be text.
            base: The options that `values` leaves out have the values of `base`; by default Kafka's
                defaults.

        Raises:
            InvalidRequestError: An option is unknown, or its value is outside of the valid range.
        """
        found, rest = read(KEYS.values(), values)
        refuse_unknown(rest, KEYS)
        # A value equal to Kafka's default must be stored, because the log's default can differ.
        explicit = frozenset(
            key.name for key in KEYS.values()
            if key.name in values and found[key.field] == key.default
        )  # fmt: skip
        return replace(base or cls(), **found, explicit=explicit)

    def to_dict(self) -> dict[str, str]:
        """Return {Kafka key: text} of options that were set or differ from Kafka's defaults."""
        return {
            key.name: format_value(getattr(self, key.field))
            for key in KEYS.values() if is_explicit(self, key)
        }  # fmt: skip

    @property
    def roll_bytes(self) -> int:
        """The size at which a segment rolls. Source: LogConfig.segmentSize."""
        return self.internal_segment_bytes or self.segment_bytes

    @property
    def roll_ms(self) -> int:
        """The age at which a segment rolls. Source: LogConfig.maxSegmentMs."""
        # The cleaner never reads the active segment, so it must roll before records are due.
        limit = self.max_compaction_lag_ms if self.compact else self.segment_ms
        return min(limit, self.segment_ms)

    @property
    def jitter_bound_ms(self) -> int:
        """The exclusive bound of the random jitter; 0 for none. Source: randomSegmentJitter."""
        return min(self.segment_jitter_ms, self.segment_ms)

    @property
    def compact(self) -> bool:
        """Whether the topic is compacted."""
        return "compact" in self.cleanup_policy

    @property
    def delete(self) -> bool:
        """Whether retention deletes segments of the topic."""
        return "delete" in self.cleanup_policy

    @property
    def log_append_time(self) -> bool:
        """Whether records get the time of the append as timestamp."""
        return self.message_timestamp_type == "LogAppendTime"


def is_explicit(config: TopicConfig, key: Key) -> bool:
    """Return whether an option of a topic was set, even if to Kafka's default."""
    return getattr(config, key.field) != key.default or key.name in config.explicit


KEYS: Final[dict[str, Key]] = keys_of(TopicConfig)
"""Kafka's topic key -> description, in the order of the docs."""

def _check_local(unit: str, local: int, total: int) -> None:
    bounded = total >= 0
    if bounded and local != -2 and (local == -1 or local > total):
        raise InvalidRequestError(
            f"local.retention.{unit}={local}: expected at most retention.{unit}={total}, or -2 "
            f"for the value of retention.{unit}"
        )


NEW_TOPICS: Final = TopicConfig(retention_ms=-1)
"""Default options of new topics. Because they differ from Kafka's defaults, they are stored in the
topic's config and also apply in a broker that adopts the log."""

OWN_KEYS: Final = frozenset({"retention.respect.readers", "segment.idle.ms"})
"""Topic keys that Kafka does not have; a broker that adopts the log ignores them."""

TIERED_KEYS: Final = frozenset(
    {
        "remote.storage.enable",
        "remote.log.copy.disable",
        "remote.log.delete.on.disable",
        "local.retention.ms",
        "local.retention.bytes",
    }
)
"""Topic keys without effect in a broker that has no plugin for remote storage."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogOptions:
    """Options of a log. `topics` are the default options of new topics.

    The log dirs are part of the path of the log, separated by commas like `log.dirs`.
    """

    flush: str = option(
        "flush",
        "commit",
        choices=("commit", "none"),
        doc="commit: data and ledger are fsynced before a commit returns, so it survives a power "
        "cut. none: faster; a power cut may lose the last commits, but never part of a commit.",
    )
    producer_id_expiration_ms: int = option(
        "producer.id.expiration.ms",
        24 * HOUR_MS,
        low=1,
        doc="Time (ms) after which the state of an idle idempotent producer is deleted.",
    )
    recovery_threads: int = option(
        "num.recovery.threads.per.data.dir",
        2,
        low=1,
        doc="Threads that recover partitions after an unclean stop.",
    )
    lock_timeout_ms: int = option(
        "lock.timeout.ms",
        60_000,
        doc="Time (ms) to wait for another process's commit before LogLockedError.",
    )
    min_free_bytes: int = option(
        "log.min.free.bytes",
        0,
        long=True,
        doc="Option of sparklog: bytes that commits leave free on each disk of the log. A commit "
        "that needs more is rejected before it starts, and the service runs retention at once. 0: "
        "only the space for the commit itself and 4 MiB.",
    )
    diskless_backpressure_max_extents: int = option(
        "diskless.backpressure.max.extents",
        2000,
        low=2,
        doc="Option of sparklog, for a log in a bucket: number of unmerged extents of a partition "
        "at which writers merge the extents themselves, because no service does. This slows the "
        "writers down. Set it above the service's diskless.merge.max.extents.",
    )
    offsets_retention_minutes: int = option(
        "offsets.retention.minutes",
        7 * 24 * 60,
        low=1,
        doc="Time after its last commit at which a registered reader is deleted, so that retention "
        "does not wait for it any more.",
    )
    topics: TopicConfig = NEW_TOPICS

    def __post_init__(self) -> None:
        for key in LOG_KEYS.values():
            key.check(getattr(self, key.field))

    @property
    def offsets_retention_ms(self) -> int:
        """offsets.retention.minutes in ms."""
        return self.offsets_retention_minutes * MINUTE_MS

    @classmethod
    def parse(cls, values: Mapping[str, object]) -> Self:
        """Parse log-wide keys, and broker-level names of topic keys as defaults for new topics.

        Raises InvalidRequestError for an unknown key, or with name, value and valid range.
        """
        found, rest = read(LOG_KEYS.values(), values)
        topic, rest = read(KEYS.values(), rest)
        refuse_unknown(rest, LOG_KEYS | KEYS)
        return cls(**found, topics=replace(NEW_TOPICS, **topic))


LOG_KEYS: Final[dict[str, Key]] = keys_of(LogOptions)
"""Log-wide key -> description."""
