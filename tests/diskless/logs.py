"""Logs in a store for tests of their background work: written, read back and looked at."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import crc32c
import numpy as np

from sparklog.clock import ManualClock
from sparklog.common import TopicPartition
from sparklog.config import LogOptions
from sparklog.diskless import extent_tables
from sparklog.diskless.commit_log import DisklessCommits
from sparklog.diskless.entries import Entry, new_attempt_id
from sparklog.diskless.entry_creation import RetryPolicy
from sparklog.diskless.extents import PIECE_DTYPE, Extent
from sparklog.diskless.garbage import Garbage
from sparklog.diskless.lease import TermLease
from sparklog.diskless.ledger import EntryReader, Head
from sparklog.diskless.merge_plan import Merge, due_merges
from sparklog.diskless.merge_source import Slice, SourceLog, SourceReader
from sparklog.diskless.merging import Merged, Merger
from sparklog.diskless.names import new_staged_name
from sparklog.diskless.options import UpkeepOptions
from sparklog.diskless.segment_healing import SegmentHealer
from sparklog.diskless.service_log import ServiceLog
from sparklog.diskless.state import DisklessState
from sparklog.format.scan import scan
from sparklog.log.admin import create_topic
from sparklog.log.batch_windows import walk
from sparklog.storage.commits import Change, Chunk, change
from sparklog.storage.ledger_records import AppendRecord
from sparklog.storage.offset_ranges import OffsetRange
from sparklog.storage.round_report import Report
from sparklog.testing.faultstore import Bucket, FaultStore
from sparklog.tiered.keyring import Keyring
from sparklog.tiered.layout.manifest import Manifest, log_object, parse
from tests.logdir.partitions import T0 as BEGAN_MS
from tests.logdir.partitions import batch

LOG_ID = "AAAAAAAAAAAAAAAAAAAAAQ"
T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
RING = Keyring({"k": bytes(range(32))}, "k")
OPTIONS = UpkeepOptions(threads=1, delete_delay_ms=0)


class Timer:
    """A monotonic clock by a manual one."""

    def __init__(self, clock: ManualClock) -> None:
        self.clock = clock

    def __call__(self) -> float:
        return float(self.clock())


@dataclass
class Home:
    """One process's handle on the log in a bucket, as writer and as service."""

    bucket: Bucket = field(default_factory=Bucket)
    clock: ManualClock = field(default_factory=ManualClock)
    keyring: Keyring | None = None
    options: UpkeepOptions = OPTIONS

    def __post_init__(self) -> None:
        self.store = FaultStore(self.bucket, self.clock)
        retry_policy = RetryPolicy(timeout_ms=500, sleep=lambda ms: None, draw=lambda: 0.5)
        head = Head(EntryReader(self.store, LOG_ID))
        head.follow()
        self.commits = DisklessCommits(self.store.url, head, LogOptions(), self.clock, retry_policy)
        self.log = ServiceLog(self.commits)
        self.lease = TermLease(self.log, timer=Timer(self.clock))
        self.merger = Merger(
            self.log, term=lambda: self.lease.term, keyring=self.keyring, check=self.lease.check
        )
        healer = SegmentHealer(self.log, self.keyring)
        self.garbage = Garbage(self.log, self.lease, self.merger, self.options, healer)

    def another(self, **given: Any) -> "Home":
        """Another process on the same bucket, by the same clock."""
        return Home(self.bucket, self.clock, given.get("keyring", self.keyring), self.options)

    @property
    def state(self) -> DisklessState:
        return self.log.follow()

    def topic(self, name: str = "t", partitions: int = 1, **config: str) -> str:
        named = {key.replace("_", "."): value for key, value in config.items()}
        create_topic(self.commits, name, partitions, named, False)
        return self.state.log.topics[name].id

    def commit(self, *values: str, topic: str = "t", partition: int = 0, **given: Any) -> None:
        """Commit inline: a batch of each value, with `key=`, `at=` as `batch` takes them."""
        data = batch(*values, one_each=True, **given)
        self._append([_chunk(topic, partition, data)])

    def stage(self, rows: dict[int, Sequence[str]], *, topic: str = "t", **given: Any) -> str:
        """Commit {partition: values} of one task: one object with all of them."""
        parts = {p: batch(*values, one_each=True, **given) for p, values in rows.items()}
        name = new_staged_name(LOG_ID, max(self.state.number, 0), "task")
        self.store.put(name, b"".join(parts.values()))
        chunks, at = [], 0
        for p, data in parts.items():
            crc = crc32c.crc32c(data)
            chunks.append(_chunk(topic, p, data, path=name, position=at, crc=crc))
            at += len(data)
        self._append(chunks)
        return name

    def _append(self, chunks: Sequence[Chunk]) -> None:
        change(self.commits, lambda _: Change(record=AppendRecord(ends={}), chunks=chunks))

    # --- the service --------------------------------------------------------------------------

    def lead(self) -> "Home":
        """Take the lease; the one before, if any, has ended."""
        while not self.lease.acquire():
            self.clock.advance(70_000)
        return self

    def due(self, **options: Any) -> list[Merge]:
        given = UpkeepOptions(**{"threads": 1, **options})
        state = self.state
        now = max(self.clock(), state.log.time_ms)  # entries' times always grow
        return list(due_merges(state, given, now_ms=now, time_of=self.log.time_of))

    def merge_all(self) -> list[Merged]:
        """Merge whatever is in pieces, whatever its age."""
        done = []
        for merge in self.due(merge_interval_ms=0):
            done.append(self.merger.merge(merge, self.log.state))
            self.garbage.schedule_deletion(
                merge.key, merge.topic_id, done[-1].sources, kind="replaced",
                now_ms=self.clock(), made=map(log_object, done[-1].segments),
            )  # fmt: skip
        return done

    def report(self, **given: Any) -> Report:
        return Report(path=self.store.url, time_ms=self.clock(), **given)

    # --- what is there ------------------------------------------------------------------------

    def read(self, key: TopicPartition = T0) -> list[tuple[int, bytes]]:
        """(offset, bytes of the records) of each batch, by what the state says and nothing else."""
        state = self.state
        reader = SourceReader(self.store, state.keys, self.keyring)
        found = []
        pieces = [p for e in state.extents.get(key, ()) for p in reader.pieces(e)]
        for extent in pieces:
            log = SourceLog("read", [Slice.of(extent)], reader)
            for window in walk(log):
                assert window.batches.error is None
                for row in window.batches.table:
                    at = int(row["position"]) - window.position
                    end = at + int(row["size"])
                    found.append((int(row["base_offset"]), window.data[at + 61 : end]))
        return found

    def names(self, beginning: str = "") -> list[str]:
        return [each.name for each in self.store.list(beginning)]

    def manifests(self) -> Iterator[Manifest]:
        for name in self.names():
            if name.endswith(".manifest"):
                yield parse(self.store.get(name), path=name)[0]


def _chunk(topic: str, partition: int, data: bytes, **given: Any) -> Chunk:
    table = scan(data, path="chunk").table
    return Chunk(
        topic=topic,
        partition=partition,
        data=None if "path" in given else data,
        size_bytes=len(data),
        records=int(table["last_offset"][-1]) + 1,
        min_timestamp=int(table["base_timestamp"].min()),
        max_timestamp=int(table["max_timestamp"].max()),
        **given,
    )


def commit_by_table(home: Home, rows: dict[int, Sequence[str]], *, objects: int = 2) -> list[str]:
    """Commit {partition: values} as very many tasks would: by an extent table.

    Value n of a partition lies in object n % objects. Returns the objects, the table last.
    """
    state = home.state
    names = [new_staged_name(LOG_ID, state.number, f"task{n}") for n in range(objects)]
    contents = [bytearray() for _ in names]
    blocks, parts = [], []
    for p, values in rows.items():
        block = np.zeros(len(values), PIECE_DTYPE)
        for at, value in enumerate(values):
            number, data = at % objects, batch(value)
            block[at] = number, len(contents[number]), len(data), 1, BEGAN_MS, crc32c.crc32c(data)
            contents[number] += data
        blocks.append(block)
        parts.append((TopicPartition("t", p), len(values), int(block["size"].sum())))
    for name, content in zip(names, contents, strict=True):
        home.store.put(name, bytes(content))
    table = new_staged_name(LOG_ID, state.number, "table")
    raw, places = extent_tables.encode(extent_tables.TableHead(names, {}), blocks)
    home.store.put(table, raw)
    extents, ends = [], {}
    for (key, count, size), (start, crc) in zip(parts, places, strict=True):
        base = state.log.ends[key]
        ends[key] = OffsetRange(base, base + count)
        extents.append(
            (
                key,
                Extent(
                    base, base + count, table, start, size, BEGAN_MS, 0, -1, pieces=count, crc=crc
                ),
            )
        )  # fmt: skip
    record = AppendRecord(ends=ends, time_ms=max(home.clock(), state.log.time_ms))
    with home.commits.exclusive():
        known = home.commits.known
        entry = Entry(
            id=new_attempt_id(), prev=known.entry_id, record=record, extents=tuple(extents)
        )
        home.commits.create((entry, b""), expected=known.next_number)
    return [*names, table]
