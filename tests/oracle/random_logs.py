"""Random compacted logs: every codec, tombstones, null keys, idempotent producers, transactions.

A `Writer` appends raw batches through a session as a broker would have, several rounds of them;
the same seed gives the same log.
"""

import random
import struct
from typing import Any

import pyarrow as pa

import sparklog
from sparklog.clock import ManualClock
from sparklog.common import TopicPartition
from sparklog.format.batch import seal
from sparklog.format.columns import HEADERS_TYPE
from sparklog.format.compression import Codec
from sparklog.format.records import encode
from sparklog.logdir.commit_log import LogDirCommits
from sparklog.storage.ledger_records import AppendRecord
from sparklog.storage.offset_ranges import OffsetRange
from tests.format.control_batches import encode_control

TOPIC = "t"
KEY = TopicPartition(TOPIC, 0)
DELETE_RETENTION_MS = 1000


class Writer:
    """Appends to partition 0 of the topic."""

    def __init__(self, commits: LogDirCommits, clock: ManualClock, rng: random.Random) -> None:
        self.commits, self.clock, self.rng = commits, clock, rng
        self.sequences: dict[int, int] = {}
        self.epochs: dict[int, int] = {}
        self.open: set[int] = set()  # producers with an open transaction
        self.codec = rng.choice([Codec.NONE, Codec.NONE, *Codec])
        self.keys = rng.randint(2, 12)

    def write(self, segments: int) -> None:
        """Append so many segments' worth of batches; transactions end before the last roll."""
        for number in range(segments):
            batches = [self.batch() for _ in range(self.rng.randint(1, 6))]
            if number == segments - 1:
                batches += [self.marker(p) for p in sorted(self.open)]
            self.append(batches, roll=True)

    def append(self, batches: list[bytes], *, roll: bool = False) -> None:
        """Commit raw batches, in order, each an append of its own; then close the segment."""
        commits = self.commits
        with commits.exclusive(), commits.step([KEY]) as step:
            log = commits.partition_log(*KEY)
            first = log.end_offset
            for data in batches:
                log.append(data, commits.state.epoch)
            if roll:
                log.roll()
            log.sync()
            ends = {KEY: OffsetRange(first, log.end_offset)}
            step.record = AppendRecord(ends=ends, idempotent=True)

    def batch(self) -> bytes:
        """One batch, of data or (rarely) a marker."""
        rng = self.rng
        self.clock.advance(rng.randint(0, 30))
        if self.open and rng.random() < 0.3:
            return self.marker(rng.choice(sorted(self.open)))
        kind = rng.random()
        if kind < 0.5:
            return self.data()
        if kind < 0.65:
            return self.data(producer=rng.randint(100, 102))
        if kind < 0.7:  # a transaction without data
            return self.marker(rng.randint(3, 5))
        producer = rng.randint(1, 3)
        self.open.add(producer)
        return self.data(producer=producer, transactional=True)

    def marker(self, producer: int) -> bytes:
        self.open.discard(producer)
        return encode_control(
            self.rng.randint(0, 1),
            base_offset=0,
            timestamp=self.clock(),
            producer_id=producer,
            producer_epoch=self.epochs.get(producer, 0),
            coordinator_epoch=0,
        )

    def rows(self) -> pa.Table:
        rng = self.rng
        made = []
        for _ in range(rng.randint(1, 8)):
            key = b"key-%d" % rng.randrange(self.keys) if rng.random() > 0.04 else None
            value = b"v" * rng.randint(0, 60) if rng.random() > 0.25 else None
            headers = [{"key": "h", "value": rng.choice([None, b"", b"x"])}] * rng.choice([0, 0, 2])
            made.append((key, value, headers, self.clock() + rng.randint(-50, 50)))
        return pa.table(
            {
                "key": pa.array([r[0] for r in made], pa.binary()),
                "value": pa.array([r[1] for r in made], pa.binary()),
                "headers": pa.array([r[2] for r in made], HEADERS_TYPE),
                "timestamp": pa.array([r[3] for r in made], pa.timestamp("ms")),
            }
        )

    def data(self, *, producer: int = -1, transactional: bool = False) -> bytes:
        rows = self.rows()
        sequence = self.sequences.get(producer, 0)
        if producer >= 0:
            self.sequences[producer] = sequence + rows.num_rows
        return bytes(
            encode(
                rows,
                codec=self.codec if self.rng.random() < 0.8 else self.rng.choice(list(Codec)),
                timestamp_ms_default=self.clock(),
                producer=(producer, self.epochs.get(producer, 0), sequence)
                if producer >= 0
                else None,
                transactional=transactional,
                log_append_time=self.clock() if self.rng.random() < 0.1 else None,
            ).data
        )


def config(rng: random.Random) -> dict[str, str]:
    """A compacted topic's config, segments small enough that groups form and don't."""
    return {
        "cleanup.policy": "compact",
        "internal.segment.bytes": str(rng.choice([1500, 3000, 20_000])),
        "index.interval.bytes": str(rng.choice([1, 200, 4096])),
        "delete.retention.ms": str(DELETE_RETENTION_MS),
        "min.cleanable.dirty.ratio": "0",
    }


def opened(path: Any, clock: ManualClock) -> sparklog.Log:
    options = {"producer.id.expiration.ms": str(2**31 - 1)}
    return sparklog.open(path, "rw", clock=clock, options=options)


def reseal(batch: bytes, **fields: tuple[int, str, int]) -> bytes:
    """The batch with header fields changed: name=(position, struct code, value)."""
    raw = bytearray(batch)
    for at, code, value in fields.values():
        struct.pack_into(">" + code, raw, at, value)
    seal(raw)
    return bytes(raw)
