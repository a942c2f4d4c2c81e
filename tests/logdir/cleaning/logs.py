"""Compacted logs for the cleaner's tests: raw batches in, segments where the test wants them."""

from pathlib import Path
from typing import Any

import pyarrow as pa

import sparklog
from sparklog.clock import ManualClock
from sparklog.common import TopicPartition
from sparklog.format.compression import Codec
from sparklog.format.records import encode
from sparklog.logdir.cleaning.cleaner import clean_partition
from sparklog.logdir.commit_log import LogDirCommits
from sparklog.logdir.home import commits_of
from sparklog.storage.ledger_records import AppendRecord
from sparklog.storage.offset_ranges import OffsetRange
from sparklog.storage.round_report import CleanReport
from tests.format.control_batches import encode_control
from tests.logdir.partitions import T0

TOPIC = "t"
Record = tuple[str | None, str | None]


class CompactedLog:
    """A log with one compacted partition; offsets are those of Kafka's LogCleanerTest."""

    def __init__(self, path: Path, **config: object) -> None:
        self.clock = ManualClock(T0)
        options = {"producer.id.expiration.ms": str(2**31 - 1)}
        self.log = sparklog.open(path, "rw", clock=self.clock, options=options)
        wanted = {"cleanup.policy": "compact", "delete.retention.ms": 1000}
        wanted |= {"internal.segment.bytes": 1 << 20, "index.interval.bytes": 100}
        wanted |= {name.replace("_", "."): value for name, value in config.items()}
        self.log.create_topic(TOPIC, config={k: str(v) for k, v in wanted.items()})
        self.directory = path / f"{TOPIC}-0"

    @property
    def commits(self) -> LogDirCommits:
        return commits_of(self.log)

    def write(self, *batches: bytes, roll: bool = False) -> int:
        """Append whole batches; returns the log's end."""
        with self.commits.exclusive(), self.commits.step([TopicPartition(TOPIC, 0)]) as step:
            log = self.commits.partition_log(TOPIC, 0)
            first = log.end_offset
            for data in batches:
                log.append(data, 0)
            if roll:
                log.roll()
            log.sync()
            ends = {TopicPartition(TOPIC, 0): OffsetRange(first, log.end_offset)}
            step.record = AppendRecord(ends=ends, idempotent=True)
        return int(log.end_offset)

    def segment(self, *records: Record, **how: Any) -> int:
        """A closed segment of one batch a record."""
        return self.write(*(batch(record, **how) for record in records), roll=True)

    def clean(self, **how: Any) -> CleanReport:
        return clean_partition(self.commits, TOPIC, 0, **how)

    def rows(self, isolation: str = "read_uncommitted") -> list[tuple[int, str | None, str | None]]:
        table = self.log.read(TOPIC, isolation=isolation, columns=["offset", "key", "value"])
        return [
            (r["offset"], *(None if r[c] is None else r[c].decode() for c in ("key", "value")))
            for r in table.read_all().to_pylist()
        ]

    def keys(self, isolation: str = "read_uncommitted") -> list[str | None]:
        return [key for _, key, _ in self.rows(isolation)]

    def offsets(self) -> list[int]:
        return [offset for offset, _, _ in self.rows()]

    def bases(self) -> list[int]:
        return sorted(int(p.name[:20]) for p in self.directory.glob("*.log"))


def batch(
    *records: Record,
    at: int = T0,
    producer: int = -1,
    sequence: int = 0,
    transactional: bool = False,
) -> bytes:
    """One batch, offsets from 0."""
    table = pa.table(
        {
            "key": pa.array([r[0] for r in records], pa.string()),
            "value": pa.array([r[1] for r in records], pa.string()),
            "timestamp": pa.array([at] * len(records), pa.timestamp("ms")),
        }
    )
    made = encode(
        table,
        codec=Codec.NONE,
        timestamp_ms_default=at,
        producer=(producer, 0, sequence) if producer >= 0 else None,
        transactional=transactional,
    )
    return bytes(made.data)


def marker(kind: int, producer: int) -> bytes:
    """ABORT (0) or COMMIT (1)."""
    return encode_control(
        kind, base_offset=0, timestamp=T0, producer_id=producer, producer_epoch=0,
        coordinator_epoch=0,
    )  # fmt: skip
