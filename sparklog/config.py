"""Topic and log options under Kafka's names, defaults and valid ranges.

`TopicConfig` holds what Kafka calls topic configs, one field a key; the field's `_key(...)` line
is the only place where a key is described, and `KEYS`, parsing, checks and the generated docs
follow from it. Broker-level synonyms are read as Kafka reads them: a topic's own key wins over
its synonyms, and among these the finer unit (ms over minutes over hours).

Differences from a broker, on purpose:
- every commit is fsynced (`flush=commit`), so `flush.messages` and `flush.ms` change nothing;
- one log has no replicas: `min.insync.replicas` and `unclean.leader.election.enable` are kept
  with the topic for a broker that adopts it, throttled replica lists are refused;
- the limits on `local.retention.*` hold whether or not tiering is on.
Sources: LogConfig, TopicConfig, ServerTopicConfigSynonyms (Kafka 4.1).
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, Final, Self

from sparklog.errors import InvalidRequestError

INT_MAX: Final = 2**31 - 1
LONG_MAX: Final = 2**63 - 1
_LONG_MIN: Final = -(2**63)
_HOUR_MS: Final = 3_600_000
_MINUTE_MS: Final = 60_000
_WEEK_MS: Final = 7 * 24 * _HOUR_MS
_UNLIMITED: Final = "unlimited"

Value = int | float | bool | str | tuple[str, ...] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Key:
    """One option: `low`..`high` bound numbers, `choices` names, `also` is (synonym, factor)."""

    name: str
    field: str
    kind: type
    default: Value
    doc: str
    low: int | float | None = None
    high: int | float | None = None
    choices: tuple[str, ...] = ()
    extra: int | None = None
    also: tuple[tuple[str, int], ...] = ()

    @property
    def wanted(self) -> str:
        """The valid values, for people."""
        if self.kind is bool:
            return "true or false"
        if self.choices:
            return ("a list of " if self.kind is tuple else "one of ") + ", ".join(self.choices)
        high = {INT_MAX: "2^31-1", LONG_MAX: "2^63-1"}.get(self.high, self.high)  # type: ignore[arg-type]
        low = "-2^63" if self.low == _LONG_MIN else self.low
        return f"{low}..{high}" + ("" if self.extra is None else f" or {self.extra}")

    def parse(self, text: str, *, name: str | None = None) -> Value:
        """Turn `text` into a checked value, as ConfigDef.parseType does.

        Raises: InvalidRequestError with `name` (a synonym's; the key's own by default), the text
        and the valid values.
        """
        value: Value = None
        text = text.strip()
        if self.kind is bool:
            value = {"true": True, "false": False}.get(text.lower())
        elif self.kind is int and re.fullmatch(r"[+-]?[0-9]+", text):
            value = int(text)
        elif self.kind is float and re.fullmatch(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)(e-?\d+)?", text):
            value = float(text)
        elif self.kind is tuple:
            value = tuple(part.strip() for part in text.split(",")) if text else ()
        elif self.kind is str:
            value = text
        if value is None or not self._holds(value):
            raise InvalidRequestError(f"{name or self.name}={text}: want {self.wanted}")
        return value

    def check(self, value: Value) -> None:
        """Raise InvalidRequestError unless `value` has this key's type and lies in its range."""
        if not self._holds(value):
            raise InvalidRequestError(f"{self.name}={format_value(value)}: want {self.wanted}")

    def _holds(self, value: Value) -> bool:
        if value is None:
            return self.default is None and self.kind is not bool
        if self.kind is float and type(value) is int:
            value = float(value)
        if type(value) is not self.kind:
            return False
        if self.choices:
            names = value if isinstance(value, tuple) else (value,)
            return all(part in self.choices for part in names)
        if self.low is None or not isinstance(value, int | float):
            return True
        assert self.high is not None
        return self.low <= value <= self.high or value == self.extra


def format_value(value: Value) -> str:
    """Write a value as Kafka's files and tools do."""
    if isinstance(value, bool):
        return str(value).lower()
    return ",".join(value) if isinstance(value, tuple) else str(value)


def _key(name: str, default: Value, doc: str, **more: Any) -> Any:
    """Describe one option; `long` widens an int's upper bound, `also` lists its synonyms."""
    kind = more.pop("kind", type(default))
    if kind is int:
        top = LONG_MAX if more.pop("long", False) else INT_MAX
        more = {"low": 0, "high": top} | more
    also = tuple(s if isinstance(s, tuple) else (s, 1) for s in more.pop("also", ()))
    parts = {"name": name, "kind": kind, "default": default, "doc": doc, "also": also, **more}
    return field(default=default, metadata=parts)


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicConfig:
    """A topic's options. Fields are Kafka's keys in snake case; the unit is the last word."""

    cleanup_policy: tuple[str, ...] = _key(
        "cleanup.policy", ("delete",), choices=("compact", "delete"), also=["log.cleanup.policy"],
        doc="What happens to old segments: delete by age and size, compact by key, or both.",
    )
    segment_bytes: int = _key(
        "segment.bytes", 1 << 30, low=1 << 20, also=["log.segment.bytes"],
        doc="Size in bytes at which a segment is closed.",
    )
    internal_segment_bytes: int | None = _key(
        "internal.segment.bytes", None, kind=int, low=14,
        doc="For tests: overrides segment.bytes without its lower limit.",
    )
    segment_ms: int = _key(
        "segment.ms", _WEEK_MS, low=1, long=True,
        also=["log.roll.ms", ("log.roll.hours", _HOUR_MS)],
        doc="Age in record time (ms) at which a segment is closed though not full.",
    )
    segment_jitter_ms: int = _key(
        "segment.jitter.ms", 0, long=True,
        also=["log.roll.jitter.ms", ("log.roll.jitter.hours", _HOUR_MS)],
        doc="Up to so many ms are taken off segment.ms, so that segments don't all roll at once.",
    )
    segment_index_bytes: int = _key(
        "segment.index.bytes", 10 << 20, low=4, also=["log.index.size.max.bytes"],
        doc="Size in bytes at which an index is full; the segment then rolls.",
    )
    index_interval_bytes: int = _key(
        "index.interval.bytes", 4096, also=["log.index.interval.bytes"],
        doc="Bytes of log between two index entries.",
    )
    retention_ms: int = _key(
        "retention.ms", _WEEK_MS, low=-1, long=True,
        also=["log.retention.ms", ("log.retention.minutes", _MINUTE_MS),
              ("log.retention.hours", _HOUR_MS)],
        doc="Age in record time (ms) at which a closed segment may be deleted; -1 never. Topics "
        "that the sink makes by itself have -1.",
    )
    retention_bytes: int = _key(
        "retention.bytes", -1, low=_LONG_MIN, long=True, also=["log.retention.bytes"],
        doc="Size in bytes of a partition beyond which its oldest segments go; negative: no limit.",
    )
    max_message_bytes: int = _key(
        "max.message.bytes", (1 << 20) + 12, also=["message.max.bytes"],
        doc="Largest record batch in bytes, after compression, header included.",
    )
    compression_type: str = _key(
        "compression.type", "producer",
        choices=("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"),
        doc="Codec of the topic; producer keeps what the writer chose.",
    )
    compression_gzip_level: int = _key(
        "compression.gzip.level", -1, low=1, high=9, extra=-1, doc="Level for gzip."
    )
    compression_lz4_level: int = _key(
        "compression.lz4.level", 9, low=1, high=17, doc="Level for lz4."
    )
    compression_zstd_level: int = _key(
        "compression.zstd.level", 3, low=-131072, high=22, doc="Level for zstd."
    )
    message_timestamp_type: str = _key(
        "message.timestamp.type", "CreateTime", choices=("CreateTime", "LogAppendTime"),
        also=["log.message.timestamp.type"],
        doc="Whether records keep their own time or get that of the append.",
    )
    message_timestamp_before_max_ms: int = _key(
        "message.timestamp.before.max.ms", LONG_MAX, long=True,
        also=["log.message.timestamp.before.max.ms"],
        doc="How far (ms) a record's time may lie before the append; CreateTime only.",
    )
    message_timestamp_after_max_ms: int = _key(
        "message.timestamp.after.max.ms", _HOUR_MS, long=True,
        also=["log.message.timestamp.after.max.ms"],
        doc="How far (ms) a record's time may lie after the append; CreateTime only.",
    )
    flush_messages: int = _key(
        "flush.messages", LONG_MAX, low=1, long=True, also=["log.flush.interval.messages"],
        doc="Accepted, without effect: every commit is fsynced anyway (see flush).",
    )
    flush_ms: int = _key(
        "flush.ms", LONG_MAX, long=True,
        also=["log.flush.interval.ms", "log.flush.scheduler.interval.ms"],
        doc="Accepted, without effect: every commit is fsynced anyway (see flush).",
    )
    file_delete_delay_ms: int = _key(
        "file.delete.delay.ms", 60_000, long=True, also=["log.segment.delete.delay.ms"],
        doc="Time (ms) that a deleted segment's files stay for readers that hold them open.",
    )
    preallocate: bool = _key(
        "preallocate", False, also=["log.preallocate"],
        doc="Give a new segment its full size on disk at once.",
    )
    min_cleanable_dirty_ratio: float = _key(
        "min.cleanable.dirty.ratio", 0.5, low=0, high=1,
        also=["log.cleaner.min.cleanable.ratio"],
        doc="Share of uncompacted bytes from which the cleaner runs.",
    )
    delete_retention_ms: int = _key(
        "delete.retention.ms", 24 * _HOUR_MS, long=True,
        also=["log.cleaner.delete.retention.ms"],
        doc="Time (ms) that a tombstone stays after the cleaner first met it.",
    )
    min_compaction_lag_ms: int = _key(
        "min.compaction.lag.ms", 0, long=True, also=["log.cleaner.min.compaction.lag.ms"],
        doc="Time (ms) that a record stays uncompacted at least.",
    )
    max_compaction_lag_ms: int = _key(
        "max.compaction.lag.ms", LONG_MAX, low=1, long=True,
        also=["log.cleaner.max.compaction.lag.ms"],
        doc="Time (ms) after which a record is due for compaction.",
    )
    min_insync_replicas: int = _key(
        "min.insync.replicas", 1, low=1,
        doc="Kept for a broker that adopts the topic; without effect here.",
    )
    unclean_leader_election_enable: bool = _key(
        "unclean.leader.election.enable", False,
        doc="Kept for a broker that adopts the topic; without effect here.",
    )
    remote_storage_enable: bool = _key(
        "remote.storage.enable", False, doc="Whether closed segments are tiered to remote storage."
    )
    remote_log_copy_disable: bool = _key(
        "remote.log.copy.disable", False, doc="Stop copying; what is remote stays readable."
    )
    remote_log_delete_on_disable: bool = _key(
        "remote.log.delete.on.disable", False,
        doc="Delete what is remote when tiering is turned off.",
    )
    local_retention_ms: int = _key(
        "local.retention.ms", -2, low=-2, long=True, also=["log.local.retention.ms"],
        doc="Age (ms) at which a tiered segment's local copy may go; -2: as retention.ms.",
    )
    local_retention_bytes: int = _key(
        "local.retention.bytes", -2, low=-2, long=True, also=["log.local.retention.bytes"],
        doc="Local size in bytes beyond which tiered segments go; -2: as retention.bytes.",
    )

    def __post_init__(self) -> None:
        """Check every value and what must hold between them.

        Raises: InvalidRequestError. Source: LogConfig.validateValues and its remote checks.
        """
        for key in KEYS.values():
            key.check(getattr(self, key.field))
        if self.min_compaction_lag_ms > self.max_compaction_lag_ms:
            raise InvalidRequestError(
                f"min.compaction.lag.ms={self.min_compaction_lag_ms}: want at most "
                f"max.compaction.lag.ms={self.max_compaction_lag_ms}"
            )
        _check_local("ms", self.local_retention_ms, self.retention_ms)
        _check_local("bytes", self.local_retention_bytes, self.retention_bytes)
        if self.remote_storage_enable and self.compact:
            raise InvalidRequestError(
                "remote.storage.enable=true: want cleanup.policy=delete, for a compacted topic "
                "can't be tiered"
            )

    @classmethod
    def parse(cls, values: Mapping[str, object], *, base: Self | None = None) -> Self:
        """Read Kafka keys and their synonyms; what isn't named stays as in `base` (or default).

        Raises: InvalidRequestError for an unknown key, or with name, value and valid range.
        """
        found, rest = _read(KEYS.values(), values)
        if rest:
            raise InvalidRequestError(_unknown(rest, KEYS))
        return replace(base or cls(), **found)

    def to_dict(self) -> dict[str, str]:
        """Return Kafka key -> text of all that differs from the defaults."""
        pairs = ((key, getattr(self, key.field)) for key in KEYS.values())
        return {key.name: format_value(value) for key, value in pairs if value != key.default}

    @property
    def roll_bytes(self) -> int:
        """Size at which a segment rolls. Source: LogConfig.segmentSize."""
        return self.internal_segment_bytes or self.segment_bytes

    @property
    def roll_ms(self) -> int:
        """Age at which a segment rolls. Source: LogConfig.maxSegmentMs."""
        limit = self.max_compaction_lag_ms if self.compact else self.segment_ms
        return min(limit, self.segment_ms)

    @property
    def jitter_bound_ms(self) -> int:
        """Exclusive bound of the random jitter, 0 for none. Source: randomSegmentJitter."""
        return min(self.segment_jitter_ms, self.segment_ms)

    @property
    def compact(self) -> bool:
        """Whether the cleaner works on this topic."""
        return "compact" in self.cleanup_policy

    @property
    def delete(self) -> bool:
        """Whether retention works on this topic."""
        return "delete" in self.cleanup_policy

    @property
    def log_append_time(self) -> bool:
        """Whether the append's time replaces the records' own."""
        return self.message_timestamp_type == "LogAppendTime"


def _keys(owner: type[Any]) -> dict[str, Key]:
    made = (Key(field=f.name, **f.metadata) for f in fields(owner) if f.metadata)
    return {key.name: key for key in made}


KEYS: Final[dict[str, Key]] = _keys(TopicConfig)
"""Kafka's topic key -> its description, in the order of the docs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogOptions:
    """Options of a whole log; `topics` are the defaults of topics that are made in it.

    The log dirs are part of the path that a log is opened by, as `log.dirs`, split at commas.
    """

    flush: str = _key(
        "flush", "commit", choices=("commit", "none"),
        doc="commit: data and ledger are fsynced before a commit returns, so it survives a power "
        "cut. none: faster; a power cut may take the last commits, whole ones only.",
    )
    producer_id_expiration_ms: int = _key(
        "producer.id.expiration.ms", 24 * _HOUR_MS, low=1,
        doc="Time (ms) after which an idle idempotent producer is forgotten.",
    )
    recovery_threads: int = _key(
        "num.recovery.threads.per.data.dir", 2, low=1,
        doc="Threads that recover partitions after an unclean stop.",
    )
    lock_timeout_ms: int = _key(
        "lock.timeout.ms", 60_000,
        doc="Time (ms) to wait for another process's commit before LogLockedError.",
    )
    topics: TopicConfig = field(default_factory=TopicConfig)

    def __post_init__(self) -> None:
        for key in LOG_KEYS.values():
            key.check(getattr(self, key.field))

    @classmethod
    def parse(cls, values: Mapping[str, object]) -> Self:
        """Read log-wide keys, and broker-level names of topic keys as defaults for new topics.

        Raises: InvalidRequestError for an unknown key, or with name, value and valid range.
        """
        found, rest = _read(LOG_KEYS.values(), values)
        topic, unknown = _read(KEYS.values(), rest)
        if unknown:
            raise InvalidRequestError(_unknown(unknown, {**LOG_KEYS, **KEYS}))
        return cls(**found, topics=replace(TopicConfig(), **topic))


LOG_KEYS: Final[dict[str, Key]] = _keys(LogOptions)
"""Log-wide key -> its description."""


def markdown(keys: Iterable[Key]) -> str:
    """Return the table of options that the README prints."""
    lines = ["| key | default | valid | also | |", "|--|--|--|--|--|"]
    for key in keys:
        default = _UNLIMITED if key.default == LONG_MAX else format_value(key.default)
        also = ", ".join(name for name, _ in key.also)
        lines.append(f"| `{key.name}` | {default} | {key.wanted} | {also} | {key.doc} |")
    return "\n".join(lines) + "\n"


def _read(
    keys: Iterable[Key], values: Mapping[str, object]
) -> tuple[dict[str, Any], dict[str, object]]:
    """Take what belongs to `keys` out of `values`: ({field: value}, the rest)."""
    rest = dict(values)
    found: dict[str, Any] = {}
    for key in keys:
        # From the weakest to the strongest, so that the last one stands; all are checked.
        for name, factor in reversed(((key.name, 1), *key.also)):
            if name in rest:
                found[key.field] = _scaled(key, name, factor, _text(name, rest.pop(name)))
    return found, rest


def _scaled(key: Key, name: str, factor: int, text: str) -> Value:
    """Parse a key or a synonym in its own unit. Source: KafkaConfig.logRetentionTimeMillis."""
    own = key
    if name != key.name and key.name == "retention.ms":  # a broker refuses 0, a topic has it
        own = replace(own, low=1, extra=-1)
    if factor == 1:
        return own.parse(text, name=name)
    number = replace(own, low=min(1, own.low or 0), high=INT_MAX).parse(text, name=name)
    assert isinstance(number, int)
    return number if number == own.extra else number * factor


def _text(name: str, value: object) -> str:
    if isinstance(value, list | tuple):
        return ",".join(map(str, value))
    if isinstance(value, bool | int | float | str):
        return format_value(value)
    raise InvalidRequestError(f"{name}={value!r}: want text or a number")


def _unknown(names: Iterable[str], known: Iterable[str]) -> str:
    shown = ", ".join(sorted(map(str, names)))
    return f"unknown option {shown}; known are {', '.join(sorted(known))}"


def _check_local(unit: str, local: int, total: int) -> None:
    bounded = total >= 0
    if bounded and local != -2 and (local == -1 or local > total):
        raise InvalidRequestError(
            f"local.retention.{unit}={local}: want at most retention.{unit}={total}, "
            "or -2 to follow it"
        )
