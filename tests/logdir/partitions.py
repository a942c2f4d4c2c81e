"""Partitions for the tests of the engine: batches of records, logs made of them, what is read."""

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa

from sparklog.clock import Clock, ManualClock
from sparklog.config import TopicConfig
from sparklog.format.compression import Codec
from sparklog.format.records import encode
from sparklog.fs import LOCAL, FileSystem
from sparklog.log.partition_reader import PartitionReader
from sparklog.logdir.partition.partition_log import PartitionLog
from sparklog.logdir.partition.partition_segments import LogDirSegments
from tests.format.control_batches import encode_control

T0 = 1_700_000_000_000
TOPIC_ID = "AAAAAAAAAAAAAAAAAAAAAQ"


def config(**options: object) -> TopicConfig:
    """A topic's config; names with underscores, as `segment_bytes`, which may be tiny here."""
    small = {"segment_bytes": "internal.segment.bytes"}
    return TopicConfig.parse(
        {small.get(k, k.replace("_", ".")): str(v) for k, v in options.items()}
    )


def batch(
    *values: bytes | str | None,
    at: int | Sequence[int] = T0,
    key: bytes | None = None,
    producer: tuple[int, int, int] | None = None,
    one_each: bool = False,
) -> bytes:
    """Whole batches with offsets from 0: one of all `values`, or one each; times in ms."""
    raw = [v.encode() if isinstance(v, str) else v for v in values]
    times = [at] * len(raw) if isinstance(at, int) else list(at)
    rows = pa.RecordBatch.from_pydict(
        {
            "key": pa.array([key] * len(raw), pa.binary()),
            "value": pa.array(raw, pa.binary()),
            "timestamp": pa.array(times, pa.timestamp("ms")),
        }
    )
    encoded = encode(
        rows,
        codec=Codec.NONE,
        batch_size=1 if one_each else 1 << 30,
        max_message_bytes=1 << 30,
        timestamp_ms_default=T0,
        producer=producer,
    )
    return bytes(encoded.data)


def sized(size: int, *, at: int = T0) -> bytes:
    """One batch of exactly `size` bytes (80..16000)."""
    for length in range(size - 66, size - 80, -1):
        data = batch(b"x" * length, at=at)
        if len(data) == size:
            return data
    raise AssertionError(f"no batch of {size} bytes")


def transactional(data: bytes) -> bytes:
    """The same batch with the transactional bit."""
    from sparklog.format.batch import seal

    raw = bytearray(data)
    raw[22] |= 0x10
    seal(raw)
    return bytes(raw)


def marker(kind: int, *, producer_id: int, epoch: int = 0, at: int = T0) -> bytes:
    """A control batch: 0 aborts, 1 commits."""
    return encode_control(
        kind,
        base_offset=0,
        timestamp=at,
        producer_id=producer_id,
        producer_epoch=epoch,
        coordinator_epoch=0,
    )


def create(
    path: object,
    topic_config: TopicConfig | None = None,
    *,
    fs: FileSystem = LOCAL,
    clock: Clock | None = None,
    start: int = 0,
) -> PartitionLog:
    log = PartitionLog.create(
        fs,
        str(path),
        topic_id=TOPIC_ID,
        config=topic_config or config(),
        clock=clock or ManualClock(),
        start_offset=start,
    )
    log.sync()
    return log


def reopen(
    log: PartitionLog, *, end: int | None = None, fs: FileSystem = LOCAL, clock: Clock | None = None
) -> PartitionLog:
    """Open the same directory again, as another process would."""
    return PartitionLog(
        fs,
        log.path,
        log.config,
        clock or ManualClock(),
        end_offset=log.end_offset if end is None else end,
        start_offset=log.start_offset,
    )


def reader(path: object, *, fs: FileSystem = LOCAL, gaps: bool = False) -> PartitionReader:
    return PartitionReader(LogDirSegments(fs, str(path), gaps=gaps))


def records(found: Iterator[pa.RecordBatch]) -> list[tuple[int, bytes | None]]:
    """(offset, value) of all that was read."""
    rows: list[tuple[int, Any]] = []
    for part in found:
        rows += zip(
            part.column("offset").to_pylist(), part.column("value").to_pylist(), strict=True
        )
    return rows


def files(path: str, fs: FileSystem = LOCAL) -> dict[str, bytes]:
    """All files of a directory."""
    found = {}
    for name in fs.listdir(path):
        with fs.open(f"{path}/{name}") as file:
            found[name] = file.pread(file.size(), 0)
    return found


def flip(path: str, position: int, bit: int = 0) -> None:
    """Turn one bit of a file."""
    with LOCAL.open(path, write=True) as file:
        byte = file.pread(1, position)[0]
        file.pwrite(bytes([byte ^ (1 << bit)]), position)


def judged(log: PartitionLog, data: bytes) -> tuple[int, int] | None:
    """What an idempotent producer's append comes to, were it made now."""
    found = log.producer_appends().judge(log.scanned(data))
    return None if found is None else found[:2]
