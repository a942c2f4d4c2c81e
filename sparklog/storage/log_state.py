"""What the ledger says, folded: topics, ends, starts, writers, leader epoch.

`LogState` is a pure fold over ledger records, so any process that reads the same records holds
the same state. Record kinds (JSON, field `kind`; all carry `v`, `time`, `epoch`):

    commit    a micro-batch: writer, batch, fp, ends {topic: {partition: [first, end]}}
    append    the same without an identity. Both tell those who watch the log `bytes`, the size of
              the batches, and `ms`, the time from asking for the lock to this record; older
              sparklogs wrote neither
    topic     a topic was made or altered: topic, id, config, bases {partition: base}, dirs;
              or a partition begins anew at its old end: `given_up` says what was lost
    drop      a topic was deleted: topic, id
    start     log start offsets were raised: starts {topic: {partition: offset}}; `local`, in the
              same form, where only local segments go: their copies in remote storage stay;
              `given_up`, where segments were missing
    reset     writers (`writer`: a query's id, or one writer) may commit again what came after
              `batch`: writers {writer: its last batch now, as in a snapshot, or null}. Without
              `writers`: this one `writer` may commit again from `batch` on. `abandoned`: what they
              had committed after it, {topic: {partition: [[first, end], ...]}}; older sparklogs
              wrote none, and no snapshot with it
    adopt     a broker's directory was taken over: topics, ends, starts
    snapshot  the whole state; the first record of every ledger segment

A commit's `origin` says which query this was and how far it read (`origins.py`); the snapshot
has each writer's last one, and the topics that it wrote to.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Final, Self

from sparklog.config import TopicConfig
from sparklog.errors import UnsupportedVersionError
from sparklog.storage.offset_ranges import (
    SpansByKey,
    clipped,
    merged,
    spans_from_json,
    spans_to_json,
)
from sparklog.storage.query_origin import QueryOrigin

FORMAT_VERSION: Final = 1
TIERED_VERSION: Final = 2
"""Of records that name local starts: older sparklogs would miss the segments below them."""

Record = dict[str, Any]


@dataclass(slots=True)
class TopicState:
    """A topic as the ledger knows it. `dirs` is the log dir's number of each partition.

    `adopted`: a broker wrote part of it, so offsets may be missing (its cleaner was at work).
    `bases`: where partitions begin that a former topic of this name had, which is its old end:
    a lower offset is that topic's, whatever the log start is by now.
    """

    id: str
    config: dict[str, str]
    dirs: dict[int, int]
    adopted: bool = False
    bases: dict[int, int] = field(default_factory=dict)

    @classmethod
    def from_json(cls, fields: dict[str, Any]) -> Self:
        """Rebuild a topic from what `to_json` gave."""
        dirs = {int(p): number for p, number in fields["dirs"].items()}
        bases = {int(p): base for p, base in fields.get("bases", {}).items() if base}
        return cls(fields["id"], dict(fields["config"]), dirs, fields.get("adopted", False), bases)

    def to_json(self) -> Record:
        """Return the form that records and the topics file carry."""
        dirs = {str(p): number for p, number in sorted(self.dirs.items())}
        extra: Record = {"adopted": True} if self.adopted else {}
        if self.bases:
            extra["bases"] = {str(p): base for p, base in sorted(self.bases.items())}
        return {"id": self.id, "dirs": dirs, **extra, "config": self.config}

    def parsed(self) -> TopicConfig:
        """Return the config, checked."""
        return _parsed(frozenset(self.config.items()))


@lru_cache(maxsize=1024)
def _parsed(config: frozenset[tuple[str, str]]) -> TopicConfig:
    """Every append and every listing asks; to check all keys costs as much as a small append."""
    return TopicConfig.parse(dict(config))


Spans = dict[str, dict[int, tuple[int, int]]]
"""{topic: {partition: (first offset, end offset)}}"""


@dataclass(slots=True)
class Last:
    """A writer's newest committed micro-batch."""

    batch: int
    fingerprint: str
    time_ms: int
    ends: Spans | None = None  # None: look it up in the ledger

    @classmethod
    def from_json(cls, values: list[Any]) -> Self:
        """Rebuild it from what `to_json` gave."""
        batch, fingerprint, time_ms, ends = values
        return cls(batch, fingerprint, time_ms, None if ends is None else _spans(ends))

    def to_json(self) -> list[Any]:
        """Return the form that records carry."""
        return [self.batch, self.fingerprint, self.time_ms, _spans_json(self.ends)]


def is_writer_of(writer: str, name: str) -> bool:
    """Tell whether `writer` is `name`, or one of the sinks of the query with that id."""
    return writer == name or writer.startswith(f"{name}/")


@dataclass(slots=True)
class LogState:
    """The fold. Change it only by `apply`."""

    topics: dict[str, TopicState] = field(default_factory=dict)
    ends: dict[tuple[str, int], int] = field(default_factory=dict)
    starts: dict[tuple[str, int], int] = field(default_factory=dict)
    local_starts: dict[tuple[str, int], int] = field(default_factory=dict)  # where above the start
    dropped: dict[str, dict[int, int]] = field(default_factory=dict)  # topic -> partition -> end
    writers: dict[str, Last] = field(default_factory=dict)
    origins: dict[str, QueryOrigin] = field(default_factory=dict)  # of writers whose query is known
    epoch: int = 0
    time_ms: int = 0
    unsynced: set[tuple[str, int]] = field(default_factory=set)  # written with flush=none
    idempotent: set[tuple[str, int]] = field(default_factory=set)  # may hold producers' batches
    abandoned: SpansByKey | None = field(default_factory=dict)  # by resets; None: nobody noted it

    def apply(self, record: Record) -> None:
        """Fold one record in. Raises UnsupportedVersionError for a newer format's record."""
        check_version(record, "the commit ledger", newest=TIERED_VERSION)
        self.epoch = record.get("epoch", self.epoch)
        self.time_ms = max(self.time_ms, record.get("time", 0))
        getattr(self, f"_{record['kind']}")(record)
        if record.get("flush") == "none":
            self.unsynced |= _flatten(record.get("ends", {})).keys()
            self.unsynced &= self.ends.keys()

    def _append(self, record: Record) -> None:
        if record.get("idempotent"):
            self.idempotent |= _flatten(record["ends"]).keys()
        for topic, ends in record["ends"].items():
            for partition, (_, end) in ends.items():
                self.ends[topic, int(partition)] = end

    def _commit(self, record: Record) -> None:
        self._append(record)
        ends = _spans(record["ends"])
        writer = record["writer"]
        self.writers[writer] = Last(record["batch"], record["fp"], record["time"], ends)
        if "origin" in record:
            before = self.origins.get(writer, QueryOrigin())
            origin = QueryOrigin.from_json(record["origin"])
            self.origins[writer] = origin.written(before.topics | ends.keys())

    def _topic(self, record: Record) -> None:
        name = record["topic"]
        known, topic = self.topics.get(name), TopicState.from_json(record)
        if known is not None:  # the record has the bases of the partitions that it adds
            topic.bases = known.bases if "given_up" in record else known.bases | topic.bases
        self.topics[name] = topic
        before = self.dropped.get(name, {})
        for partition in record["bases"]:
            before.pop(int(partition), None)
        if not before:
            self.dropped.pop(name, None)
        for partition, base in record["bases"].items():
            self.ends[name, int(partition)] = base
            if base:
                self.starts[name, int(partition)] = base
        self._trim_local_starts()

    def _drop(self, record: Record) -> None:
        name = record["topic"]
        gone = self.topics.pop(name)
        ends = self.dropped.setdefault(name, {})
        for partition in gone.dirs:
            ends[partition] = max(ends.get(partition, 0), self.ends.pop((name, partition)))
            self.starts.pop((name, partition), None)
            self.local_starts.pop((name, partition), None)
        self.unsynced &= self.ends.keys()
        self.idempotent &= self.ends.keys()
        self._forget_topics({name})

    def _forget_topics(self, names: Collection[str]) -> None:
        """Nothing is abandoned in topics that are gone, and nothing there can come twice."""
        if self.abandoned:
            self.abandoned = {k: some for k, some in self.abandoned.items() if k[0] not in names}
        for writer, origin in self.origins.items():
            self.origins[writer] = origin.without(frozenset(names))

    def _start(self, record: Record) -> None:
        for topic, starts in record["starts"].items():
            for partition, offset in starts.items():
                self.starts[topic, int(partition)] = offset
        self.local_starts |= _flatten(record.get("local", {}))
        self._trim_local_starts()
        for key, some in list((self.abandoned or {}).items()):
            if self.abandoned and some[0][0] < self.starts.get(key, 0):
                self.abandoned[key] = clipped(some, self.starts[key], some[-1][1])
                if not self.abandoned[key]:
                    del self.abandoned[key]

    def _trim_local_starts(self) -> None:
        """Keep those that say more than the log starts."""
        for key, offset in list(self.local_starts.items()):
            if offset <= self.starts.get(key, 0):
                del self.local_starts[key]

    def local_start(self, topic: str, partition: int) -> int:
        """The offset from which on a partition's records lie in local segments."""
        key = topic, partition
        return self.local_starts.get(key, self.starts.get(key, 0))

    def _reset(self, record: Record) -> None:
        if "abandoned" not in record:
            self.abandoned = None
        elif self.abandoned is not None:
            for key, some in spans_from_json(record["abandoned"]).items():
                self.abandoned[key] = merged([*self.abandoned.get(key, ()), *some])
        if "writers" in record:
            for writer, last in record["writers"].items():
                self.writers.pop(writer, None)
                if last is None:
                    self.origins.pop(writer, None)
                else:
                    self.writers[writer] = Last.from_json(last)
            return
        last = self.writers.get(record["writer"])
        if last is not None and last.batch >= record["batch"]:
            self.writers[record["writer"]] = Last(record["batch"] - 1, "", record["time"])

    def _adopt(self, record: Record) -> None:
        whole = LogState()
        whole._snapshot({**record, "dropped": {}, "writers": {}})
        for name, partition in self.ends.keys() - whole.ends.keys():
            ends = self.dropped.setdefault(name, {})
            ends[partition] = max(ends.get(partition, 0), self.ends[name, partition])
        ids = {name: topic.id for name, topic in whole.topics.items()}
        self._forget_topics({n for n, t in self.topics.items() if ids.get(n) != t.id})
        self.topics, self.ends, self.starts = whole.topics, whole.ends, whole.starts
        self.local_starts = whole.local_starts
        self.unsynced &= self.ends.keys()
        self.idempotent |= self.ends.keys()  # a broker's producers may have written them

    def _snapshot(self, record: Record) -> None:
        self.unsynced = set()  # a snapshot is only written once all before it is durable
        self.topics = {name: TopicState.from_json(t) for name, t in record["topics"].items()}
        self.ends = _flatten(record["ends"])
        self.starts = _flatten(record["starts"])
        self.local_starts = _flatten(record.get("local", {}))
        self.dropped = {
            name: {int(p): end for p, end in ends.items()}
            for name, ends in record["dropped"].items()
        }
        self.writers = {w: Last.from_json(last) for w, last in record["writers"].items()}
        self.origins = {w: QueryOrigin.from_json(o) for w, o in record.get("origins", {}).items()}
        self.idempotent = {(t, p) for t, p in record.get("idempotent", ())}
        known = record.get("abandoned")
        self.abandoned = None if known is None else spans_from_json(known)

    def snapshot(self) -> Record:
        """Return the record that gives this state when folded into an empty one."""
        known = self.abandoned
        return {
            "kind": "snapshot",
            **self.layout(),
            "dropped": {
                name: {str(p): end for p, end in ends.items()}
                for name, ends in self.dropped.items()
            },
            "writers": {w: last.to_json() for w, last in self.writers.items()},
            "origins": {w: origin.to_json() for w, origin in self.origins.items()},
            "idempotent": sorted(self.idempotent),
            **({} if known is None else {"abandoned": spans_to_json(known)}),
        }

    def layout(self) -> Record:
        """Return topics, ends and starts in the form that records carry them."""
        topics = {name: topic.to_json() for name, topic in self.topics.items()}
        whole: Record = {"topics": topics, "ends": nested(self.ends), "starts": nested(self.starts)}
        return whole | local_to_json(self.local_starts)


def local_to_json(starts: Mapping[tuple[str, int], int]) -> Record:
    """Return what a record says of local starts; nothing if there are none."""
    return {"v": TIERED_VERSION, "local": nested(starts)} if starts else {}


def _spans(nested: dict[str, dict[str, Any]]) -> Spans:
    return {t: {int(p): (s[0], s[1]) for p, s in by.items()} for t, by in nested.items()}


def _spans_json(spans: Spans | None) -> Record | None:
    if spans is None:
        return None
    return {t: {str(p): list(span) for p, span in by.items()} for t, by in spans.items()}


def check_version(record: Record, what: str, *, newest: int = FORMAT_VERSION) -> None:
    """Raise UnsupportedVersionError if a newer sparklog wrote `record`."""
    if record.get("v", 1) > newest:
        raise UnsupportedVersionError(
            f"{what} has format version {record['v']}, this sparklog reads up to "
            f"{newest}: open the log with the sparklog that wrote it, or a newer one"
        )


def nested(offsets: Mapping[tuple[str, int], int]) -> dict[str, dict[str, int]]:
    """Return {topic: {partition: offset}}, as records carry it, of {(topic, partition): offset}."""
    by_topic: dict[str, dict[str, int]] = {}
    for (topic, partition), offset in offsets.items():
        by_topic.setdefault(topic, {})[str(partition)] = offset
    return by_topic


def _flatten(nested: dict[str, dict[str, Any]]) -> dict[tuple[str, int], Any]:
    return {(t, int(p)): offset for t, by in nested.items() for p, offset in by.items()}
