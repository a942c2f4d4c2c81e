"""A log in a store, entry by entry as a test wants it, and views that count their requests."""

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import crc32c
import numpy as np
import pyarrow as pa

from sparklog.common import TopicPartition
from sparklog.diskless import extent_tables
from sparklog.diskless.entries import (
    Entry,
    EntryRecord,
    MergeRecord,
    ObjectKey,
    TermRecord,
    decode,
    encode,
    new_attempt_id,
)
from sparklog.diskless.extent_logs import Concatenated
from sparklog.diskless.extent_objects import ExtentObjects
from sparklog.diskless.extents import PIECE_DTYPE, Extent, Extents
from sparklog.diskless.ledger import EntryReader, Head
from sparklog.diskless.names import HOME, entry_name, new_staged_name
from sparklog.diskless.segments import DisklessSegments
from sparklog.diskless.view import DisklessView
from sparklog.format import records
from sparklog.format.checkpoint_files import Epochs
from sparklog.format.compression import Codec
from sparklog.log.arrow_reads import read_partition, schema_of
from sparklog.log.read_retry import PartitionRead
from sparklog.storage.ledger_records import AppendRecord, DropRecord, StartRecord, TopicRecord
from sparklog.storage.offset_ranges import OffsetRange
from sparklog.storage.segment_store import SegmentPut
from sparklog.storage.segments import SegmentLog
from sparklog.tiered.copying.segment_objects import put_log
from sparklog.tiered.encryption.envelope import new_data_key
from sparklog.tiered.keyring import Keyring
from sparklog.tiered.layout.manifest import log_object
from sparklog.tiered.object_store.store import Store
from sparklog.tiered.reading.block_cache import BlockCache
from sparklog.tiered.reading.remote_objects import RemoteObjects
from sparklog.tiered.remote_segment import RemoteSegment, SegmentState
from sparklog.tiered.target import open_store
from tests.tiered.copies import segment_id

LOG_ID = "L" * 32
TOPIC_ID = "T" * 21 + "A"
T0 = TopicPartition("t", 0)
T1 = TopicPartition("t", 1)
RING = Keyring({"one": bytes(range(32))}, "one")
START_MS = 1_700_000_000_000


def chunk(
    first: int, count: int, *, batch_size: int = 400, ms: int | None = None, width: int = 20
) -> bytes:
    """Batches of `count` records that count from 0; record k has the value `value(first + k)`."""
    rows = pa.table(
        {
            "key": [f"k{first + n}".encode() for n in range(count)],
            "value": [value(first + n, width) for n in range(count)],
            "timestamp": pa.array(
                [START_MS + first + n if ms is None else ms for n in range(count)],
                pa.timestamp("ms", tz="UTC"),
            ),
        }
    )
    found = records.encode(
        rows, codec=Codec.NONE, batch_size=batch_size, timestamp_ms_default=START_MS
    )
    return bytes(found.data)


def value(offset: int, width: int = 20) -> bytes:
    return f"v{offset}-".encode().ljust(width, b"x")


@dataclass
class Part:
    """What one partition gets in a commit: `count` records in one chunk, or a stamp for them."""

    key: TopicPartition
    count: int
    stamp_ms: int = -1
    batch_size: int = 400
    width: int = 20


@dataclass
class Merged:
    """The contents of extents in a row, as a merge puts them."""

    segments: DisklessSegments
    extents: Extents

    @property
    def where(self) -> str:
        return self.segments.where

    def version(self) -> object:
        return None

    @contextmanager
    def log(self) -> Iterator[SegmentLog]:
        logs = [self.segments.log(each.base) for each in self.extents]
        yield Concatenated(self.where, logs)

    def transaction_index(self) -> bytes:
        return b"".join(self.segments.transactions(each.base) for each in self.extents)

    def producer_snapshot(self) -> bytes:
        return self.segments.producer_snapshot(self.extents[-1].end)

    def leader_epochs(self) -> Epochs:
        return self.segments.leader_epochs()


@dataclass
class BucketLog:
    """Writes a log. Values say the offsets that they have."""

    url: str
    topics: dict[str, int] = field(default_factory=lambda: {"t": 2})
    keyring: Keyring | None = None

    def __post_init__(self) -> None:
        self.store = open_store(self.url)
        self.store.put(HOME, json.dumps({"log_id": LOG_ID}).encode())
        self.head = Head(EntryReader(self.store, LOG_ID))
        for name, partitions in self.topics.items():
            self.topic(name, partitions)

    @property
    def state(self) -> Any:
        return self.head.state

    def add(self, record: EntryRecord, data: bytes = b"", **given: Any) -> Entry:
        state = self.head.follow()
        number = state.next_number
        entry = Entry(id=new_attempt_id(), prev=state.entry_id, record=record, **given)
        raw = encode(number, entry, data)
        self.store.put(entry_name(LOG_ID, number), raw)
        found = decode(raw, number=number, path="p")
        self.head.advance(number, found)
        return found

    def topic(self, name: str, partitions: int, topic_id: str = TOPIC_ID, **config: str) -> None:
        dropped = self.head.follow().log.dropped
        bases = {p: dropped.get(TopicPartition(name, p), 0) for p in range(partitions)}
        dirs = dict.fromkeys(range(partitions), 0)
        self.add(TopicRecord(topic=name, id=topic_id, dirs=dirs, config=config, bases=bases))

    def drop(self, name: str = "t") -> None:
        self.add(DropRecord(topic=name, id=self.state.log.topics[name].id))

    def start(self, key: TopicPartition, offset: int) -> None:
        self.add(StartRecord(starts={key: offset}))

    def end(self, key: TopicPartition = T0) -> int:
        found: int = self.head.follow().log.ends[key]
        return found

    def commit(
        self,
        parts: Sequence[Part],
        *,
        how: str = "inline",
        epoch: int = 3,
        gap: int = 0,
        ms: int = 0,
    ) -> Entry:
        """Commit chunks: "inline", "staged" in one object, or "table" of an object each.

        `gap`: bytes of nobody's between two chunks. `ms`: all records' time.
        """
        ends = {part.key: self.end(part.key) for part in parts}
        firsts = dict(ends)
        raws, extents = [], []
        for part in parts:
            first = ends[part.key]
            raws.append(
                chunk(
                    first, part.count, batch_size=part.batch_size, ms=ms or None, width=part.width
                )
            )
            ends[part.key] += part.count
            latest = ms or START_MS + first + part.count - 1
            latest = part.stamp_ms if part.stamp_ms >= 0 else latest
            extents.append(
                Extent(first, first + part.count, "", 0, len(raws[-1]), latest, epoch, -1,
                       "", part.stamp_ms, 0, crc32c.crc32c(raws[-1]))
            )  # fmt: skip
        record = AppendRecord(
            time_ms=START_MS, epoch=epoch,
            ends={key: OffsetRange(firsts[key], end) for key, end in ends.items()},
        )  # fmt: skip
        data, places = self._laid(raws, gap)
        keys: dict[str, ObjectKey] = {}
        if how == "table":
            placed = self._table(parts, raws, extents)
            return self.add(record, extents=tuple(placed))
        name = "" if how == "inline" else new_staged_name(LOG_ID, self.state.number, "task")
        if self.keyring is not None:
            data_key, wrapped = new_data_key(self.keyring, "sealed", chunk_bytes=512)
            keys = {name: ObjectKey("sealed", wrapped, len(data), 0)}
            data = b"".join(data_key.seal([data], len(data)))
        if name:
            self.store.put(name, data)
        placed = [
            (part.key, extent._replace(object=name, start=at))
            for part, extent, at in zip(parts, extents, places, strict=True)
        ]
        return self.add(record, b"" if name else data, extents=tuple(placed), keys=keys)

    @staticmethod
    def _laid(raws: Sequence[bytes], gap: int) -> tuple[bytes, list[int]]:
        data, places = bytearray(), []
        for raw in raws:
            places.append(len(data))
            data += raw + b"#" * gap
        return bytes(data), places

    def _table(
        self, parts: Sequence[Part], raws: Sequence[bytes], extents: Sequence[Extent]
    ) -> list[tuple[TopicPartition, Extent]]:
        names = [new_staged_name(LOG_ID, self.state.number, "task") for _ in raws]
        for name, raw in zip(names, raws, strict=True):
            self.store.put(name, b"@@@" + raw)
        keys = list(dict.fromkeys(part.key for part in parts))
        blocks, found = [], []
        for key in keys:
            mine = [n for n, part in enumerate(parts) if part.key == key]
            rows = [
                (n, 3, len(raws[n]), extents[n].end - extents[n].base, extents[n].max_timestamp,
                 extents[n].crc)
                for n in mine
            ]  # fmt: skip
            blocks.append(np.array(rows, PIECE_DTYPE))
            first, last = extents[mine[0]], extents[mine[-1]]
            whole = first._replace(
                end=last.end,
                size=sum(row[2] for row in rows),
                max_timestamp=max(extents[n].max_timestamp for n in mine),
                pieces=len(rows),
            )
            found.append((key, whole))
        raw, places = extent_tables.encode(extent_tables.TableHead(names, {}), blocks)
        table = new_staged_name(LOG_ID, self.state.number, "table")
        self.store.put(table, raw)
        return [
            (key, extent._replace(object=table, start=place.start, crc=place.crc))
            for (key, extent), place in zip(found, places, strict=True)
        ]

    def merge(self, key: TopicPartition, first: int, last: int, *, manifest: bool = True) -> Extent:
        """Merge the extents [first, last] of a partition, by their numbers, as a service does."""
        if not self.state.term:
            self.add(TermRecord(term=1))
        view = self.view()
        segments = view.of_partition(*key, lambda found: found)
        assert isinstance(segments, DisklessSegments)
        old = self.state.extents[key][first : last + 1]
        data = Merged(segments, old)
        topic_id = self.state.log.topics[key.topic].id
        segment = RemoteSegment(
            topic=key.topic, topic_id=topic_id, partition=key.partition,
            id=segment_id(self.state.number), base=old[0].base, end=old[-1].end,
            max_timestamp=max(each.max_timestamp for each in old),
            size=sum(each.size for each in old), epochs=self.state.epochs[key],
            state=SegmentState.COPY_STARTED, time_ms=0,
        )  # fmt: skip
        put = SegmentPut(segment=segment, data=data, config={}, interval_bytes=100)
        made = put_log(self.store, put, keyring=self.keyring)
        name = log_object(segment)
        extent = Extent(
            segment.base, segment.end, name, 0, segment.size, segment.max_timestamp,
            old[-1].epoch, -1, segment.id, -1, 0, made.crc32c,
        )  # fmt: skip
        keys = {}
        if made.wrapped is not None:
            keys = {name: ObjectKey(segment.id, made.wrapped, segment.size, 0)}
        record = MergeRecord(
            time_ms=START_MS, term=1, topic=key.topic, topic_id=topic_id, partition=key.partition,
            sources=tuple(each.place for each in old),
        )  # fmt: skip
        self.add(record, extents=((key, extent),), keys=keys)
        if manifest:
            found, raw = made.manifest(START_MS)
            self.store.put(found.name, raw)
        return extent

    def view(self, *, threads: int = 4, memory_bytes: int = 64 << 20) -> DisklessView:
        """A view of another process."""
        store = open_store(self.url)
        return view_of(store, threads=threads, memory_bytes=memory_bytes, keyring=self.keyring)


def view_of(
    store: Store,
    *,
    threads: int = 4,
    memory_bytes: int = 64 << 20,
    keyring: Keyring | None = None,
    log_id: str = LOG_ID,
    **given: Any,
) -> DisklessView:
    remote = RemoteObjects(lambda: store, BlockCache(memory_bytes), keyring, threads=threads)
    objects = ExtentObjects(remote)

    def open_state() -> Head:
        head = Head(EntryReader(store, log_id))
        head.follow()
        return head

    # Its clock stands still: the home object, which is looked at now and then, costs a request.
    return DisklessView(store.url, objects, open_state, **({"timer": lambda: 0.0} | given))


@contextmanager
def counting(view: DisklessView) -> Any:
    """Yields what counts the requests within: `.gets`, `.lists`, ..., once it is over."""
    counts = view.objects.store.counts  # type: ignore[attr-defined]
    before, found = counts.as_dict(), SimpleNamespace()
    yield found
    for name, number in counts.as_dict().items():
        setattr(found, name, number - before[name])


def read_all(
    view: Any, key: TopicPartition = T0, start: int = 0, end: int | None = None
) -> list[tuple[int, bytes]]:
    """(offset, value) of the records of a partition."""
    first, mark = view.spans([key])[key]
    rows: list[tuple[int, bytes]] = []
    read = PartitionRead(
        view, *key, max(start, first), mark if end is None else end, topic_id=view.topic_id(*key)
    )
    for batch in read_partition(read, schema_of(["offset", "value"])):
        rows += zip(batch["offset"].to_pylist(), batch["value"].to_pylist(), strict=True)
    return rows


def expected(start: int, end: int, width: int = 20) -> list[tuple[int, bytes]]:
    return [(offset, value(offset, width)) for offset in range(start, end)]
