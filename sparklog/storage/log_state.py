"""The log's state, folded from the commit ledger: topics, ends, starts, writers, epoch.

`LogState` is a pure fold of ledger records (`ledger_records`), so every process that reads the same
records has the same state.
"""

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import assert_never

from sparklog.common import TopicPartition
from sparklog.storage.deleted_topic import DeletedTopic
from sparklog.storage.ledger_records import (
    AdoptRecord,
    AppendRecord,
    CommitRecord,
    DropRecord,
    LastMicroBatch,
    LedgerRecord,
    LostCommits,
    PurgeRecord,
    ResetRecord,
    SnapshotRecord,
    StartRecord,
    TopicRecord,
    UndeleteRecord,
)
from sparklog.storage.offset_ranges import SpansByKey, clipped, merged
from sparklog.storage.query_origin import QueryOrigin
from sparklog.storage.topic_state import TopicState


def is_writer_of(writer: str, name: str) -> bool:
    """Return True if `writer` is `name`, or a sink of the query with that id."""
    return writer == name or writer.startswith(f"{name}/")


@dataclass(slots=True)
class LogState:
    """The state of a log after a number of ledger records. Change it only by `apply`."""

    topics: dict[str, TopicState] = field(default_factory=dict)
    ends: dict[TopicPartition, int] = field(default_factory=dict)
    starts: dict[TopicPartition, int] = field(default_factory=dict)
    local_starts: dict[TopicPartition, int] = field(default_factory=dict)  # above the start
    dropped: dict[TopicPartition, int] = field(default_factory=dict)  # ends of deleted topics
    writers: dict[str, LastMicroBatch] = field(default_factory=dict)
    origins: dict[str, QueryOrigin] = field(default_factory=dict)  # by writer, if known
    epoch: int = 0
    time_ms: int = 0
    unsynced: set[TopicPartition] = field(default_factory=set)  # written with flush=none
    idempotent: set[TopicPartition] = field(default_factory=set)  # may have producer ids
    abandoned: SpansByKey | None = field(default_factory=dict)  # by resets; None: not recorded
    deleted: dict[str, DeletedTopic] = field(default_factory=dict)  # by id: can be restored
    tails: dict[TopicPartition, int] = field(default_factory=dict)  # CRC fields of last batches
    lost: LostCommits | None = None  # offsets for which a ledger repair found no record

    def apply(self, record: LedgerRecord) -> None:
        """Apply a record.

        Raises:
            KeyError: The record contradicts the state.
        """
        self.epoch = record.epoch
        self.time_ms = max(self.time_ms, record.time_ms)
        match record:
            case AppendRecord():
                self._append(record)
            case TopicRecord():
                self._topic(record)
            case DropRecord():
                self._drop(record)
            case UndeleteRecord():
                self._undelete(record)
            case PurgeRecord():
                for topic_id in record.ids:
                    del self.deleted[topic_id]
            case StartRecord():
                self._start(record)
            case ResetRecord():
                self._reset(record)
            case SnapshotRecord():
                self._snapshot(record)
            case AdoptRecord():
                self._adopt(record)
            case _:
                assert_never(record)

    def _append(self, record: AppendRecord) -> None:
        ends = record.ends
        for key, span in ends.items():
            self.ends[key] = span.end
        if record.tails is not None:
            self.tails.update(record.tails)
        # Older versions and buckets write no CRC fields; the known fields are of earlier batches.
        elif self.tails:
            for key in ends:
                self.tails.pop(key, None)
        if record.idempotent:
            self.idempotent |= ends.keys()
        if not record.flushed:
            self.unsynced |= ends.keys()
        if isinstance(record, CommitRecord):
            last = LastMicroBatch(record.batch, record.fingerprint, record.time_ms, ends)
            self.writers[record.writer] = last
            if record.origin is not None:
                before = self.origins.get(record.writer, QueryOrigin())
                topics = before.topics | {key.topic for key in ends}
                self.origins[record.writer] = record.origin.written(topics)

    def _topic(self, record: TopicRecord) -> None:
        name = record.topic
        known = self.topics.get(name)
        bases = {partition: base for partition, base in record.bases.items() if base}
        if known is not None:  # the record has the bases of the partitions that it adds
            bases = known.bases if record.given_up is not None else known.bases | bases
        self.topics[name] = TopicState(
            record.id, dict(record.config), dict(record.dirs), record.adopted, bases,
            dict(record.left),
        )  # fmt: skip
        for partition, base in record.bases.items():
            key = TopicPartition(name, partition)
            self.dropped.pop(key, None)
            self.tails.pop(key, None)
            self.ends[key] = base
            if base:
                self.starts[key] = base
        # A topic whose lost partitions are given up starts higher than before.
        self._trim_local_starts()

    def _drop(self, record: DropRecord) -> None:
        name = record.topic
        if record.delay_ms:
            self.deleted[record.id] = self._deleted_topic(record)
        for partition in self.topics.pop(name).dirs:
            key = TopicPartition(name, partition)
            # A topic that is created again starts here: offsets are never assigned twice.
            self.dropped[key] = max(self.dropped.get(key, 0), self.ends.pop(key))
            self.starts.pop(key, None)
            self.local_starts.pop(key, None)
            self.tails.pop(key, None)
        self.unsynced &= self.ends.keys()
        self.idempotent &= self.ends.keys()
        self._forget_topics({name})

    def _deleted_topic(self, record: DropRecord) -> DeletedTopic:
        """Return the state that is needed to restore a topic after its deletion."""
        name, topic = record.topic, self.topics[record.topic]
        keys = {partition: TopicPartition(name, partition) for partition in topic.dirs}
        abandoned = self.abandoned
        return DeletedTopic(
            name=name,
            topic=topic,
            deleted_ms=self.time_ms,
            delay_ms=record.delay_ms,
            ends={p: self.ends[key] for p, key in keys.items()},
            starts={p: self.starts[key] for p, key in keys.items() if key in self.starts},
            local_starts={
                p: self.local_starts[key] for p, key in keys.items() if key in self.local_starts
            },
            idempotent=frozenset(p for p, key in keys.items() if key in self.idempotent),
            abandoned=None if abandoned is None else {
                p: abandoned[key] for p, key in keys.items() if key in abandoned
            },
            writers=frozenset(w for w, origin in self.origins.items() if name in origin.topics),
        )  # fmt: skip

    def _undelete(self, record: UndeleteRecord) -> None:
        deleted, name = self.deleted.pop(record.id), record.topic
        self.topics[name] = deleted.topic
        for p, end in deleted.ends.items():
            key = TopicPartition(name, p)
            self.dropped.pop(key, None)
            self.ends[key] = end
            if p in deleted.starts:
                self.starts[key] = deleted.starts[p]
            if p in deleted.local_starts:
                self.local_starts[key] = deleted.local_starts[p]
            if p in deleted.idempotent:
                self.idempotent.add(key)
            if deleted.abandoned and p in deleted.abandoned and self.abandoned is not None:
                self.abandoned[key] = [*deleted.abandoned[p]]
        if deleted.abandoned is None:  # not recorded when deleted: the ledger must be searched
            self.abandoned = None
        for writer in deleted.writers & self.origins.keys():
            origin = self.origins[writer]
            self.origins[writer] = origin.written(origin.topics | {name})

    def _forget_topics(self, names: Collection[str]) -> None:
        """Remove deleted topics from `abandoned` and from the writers' origins."""
        if self.abandoned:
            kept = {key: spans for key, spans in self.abandoned.items() if key.topic not in names}
            self.abandoned = kept
        for writer, origin in self.origins.items():
            self.origins[writer] = origin.without(frozenset(names))

    def _start(self, record: StartRecord) -> None:
        self.starts.update(record.starts)
        self.local_starts.update(record.local_starts or {})
        self._trim_local_starts()
        for key, spans in list((self.abandoned or {}).items()):
            if self.abandoned and spans[0].first < self.starts.get(key, 0):
                self.abandoned[key] = clipped(spans, self.starts[key], spans[-1].end)
                if not self.abandoned[key]:
                    del self.abandoned[key]

    def _trim_local_starts(self) -> None:
        """Remove the starts of local segments that are not above the log start."""
        for key, offset in list(self.local_starts.items()):
            if offset <= self.starts.get(key, 0):
                del self.local_starts[key]

    def local_start(self, topic: str, partition: int) -> int:
        """Return the first offset of a partition's local segments."""
        key = TopicPartition(topic, partition)
        return self.local_starts.get(key, self.starts.get(key, 0))

    def query_name(self, writer: str) -> str:
        """Return the name of the writer's query; "" for an unknown name."""
        origin = self.origins.get(writer)
        return "" if origin is None else origin.name

    def _reset(self, record: ResetRecord) -> None:
        if record.abandoned is None:
            self.abandoned = None
        elif self.abandoned is not None:
            for key, spans in record.abandoned.items():
                self.abandoned[key] = merged([*self.abandoned.get(key, ()), *spans])
        if record.writers is None:
            last = self.writers.get(record.writer)
            if last is not None and last.batch >= record.batch:
                self.writers[record.writer] = LastMicroBatch(record.batch - 1, "", record.time_ms)
            return
        for writer, now in record.writers.items():
            self.writers.pop(writer, None)
            if now is None:
                self.origins.pop(writer, None)
            else:
                self.writers[writer] = now

    def _adopt(self, record: AdoptRecord) -> None:
        for key, end in self.ends.items():
            if key not in record.ends:
                self.dropped[key] = max(self.dropped.get(key, 0), end)
        ids = {name: topic.id for name, topic in record.topics.items()}
        self._forget_topics({n for n, t in self.topics.items() if ids.get(n) != t.id})
        self._lay_out(record)
        self.tails = {}  # a broker's appends may be the last appends
        self.unsynced &= self.ends.keys()
        self.idempotent |= self.ends.keys()  # a broker's producers may have written them

    def _lay_out(self, record: AdoptRecord) -> None:
        self.topics, self.ends = dict(record.topics), dict(record.ends)
        self.starts, self.local_starts = dict(record.starts), dict(record.local_starts or {})

    def _snapshot(self, record: SnapshotRecord) -> None:
        self._lay_out(record)
        self.unsynced = set()  # all earlier records are durable before a snapshot is written
        self.dropped, self.writers = dict(record.dropped), dict(record.writers)
        self.origins, self.deleted = dict(record.origins or {}), dict(record.deleted)
        self.idempotent = set(record.idempotent or ())
        self.tails = dict(record.tails or {})
        self.lost = record.lost
        known = record.abandoned
        self.abandoned = None if known is None else {key: [*spans] for key, spans in known.items()}

    def snapshot(self) -> SnapshotRecord:
        """Return the record that restores this state when applied to an empty state."""
        known = self.abandoned
        return SnapshotRecord(
            time_ms=self.time_ms,
            epoch=self.epoch,
            topics=dict(self.topics),
            ends=dict(self.ends),
            starts=dict(self.starts),
            local_starts=dict(self.local_starts) or None,
            dropped=dict(self.dropped),
            writers=dict(self.writers),
            origins=dict(self.origins),
            idempotent=frozenset(self.idempotent),
            abandoned=None if known is None else {key: [*spans] for key, spans in known.items()},
            deleted=dict(self.deleted),
            tails=dict(self.tails) or None,
            lost=None if self.lost is None else self.lost.above(self.starts),
        )
