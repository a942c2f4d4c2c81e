"""A log with a bit of everything, for reports: codecs, tiers, compaction, retention, readers."""

import random
from pathlib import Path
from typing import Any

import pyarrow as pa

import sparklog
from sparklog.clock import ManualClock
from sparklog.format.compression import Codec
from sparklog.service import Service
from sparklog.storage.staging import Framing
from sparklog.testing.faultstore import FaultStore
from tests.micro_batches import commit_batch

HOUR = 3_600_000
DAY = 24 * HOUR
START = 1_700_000_000_000
SMALL = {"internal.segment.bytes": "24000", "index.interval.bytes": "1024"}
TOPICS: dict[str, tuple[int, dict[str, str]]] = {  # times in sixths of the demo's length
    "orders": (4, {
        "remote.storage.enable": "true", "retention.ms": "7", "local.retention.ms": "2",
    }),
    "clicks": (6, {"retention.bytes": "90000", "retention.ms": "30"}),
    "customers": (3, {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.3"}),
    "sensor.readings": (2, {"retention.ms": "4"}),
    "payments": (2, {"retention.ms": "3", "retention.respect.readers": "true"}),
    "audit": (1, {"retention.ms": "-1"}),
    "empty": (1, {}),
}  # fmt: skip
CODECS = {
    "orders": Codec.ZSTD, "clicks": Codec.LZ4, "customers": Codec.NONE, "payments": Codec.SNAPPY,
    "sensor.readings": Codec.GZIP, "audit": Codec.NONE,
}  # fmt: skip
WRITERS = {
    "orders": "9d1c5d1e-orders-enrich/sink", "clicks": "5c07fa10-clickstream/sink",
    "customers": "crm-sync", "payments": "payments", "audit": None, "sensor.readings": "gateway",
}  # fmt: skip


def _rows(rng: random.Random, topic: str, count: int, at_ms: int) -> pa.Table:
    keys = [f"{topic[:3]}-{rng.randrange(200):04d}".encode() for _ in range(count)]
    values = [rng.randbytes(rng.randrange(40, 90)).hex().encode() for _ in range(count)]
    times = sorted(at_ms - rng.randrange(4 * HOUR) for _ in range(count))
    return pa.table(
        {"key": keys, "value": values, "timestamp": pa.array(times, pa.timestamp("ms", tz="UTC"))}
    )


def make_demo(
    path: Path | str, *, days: int = 6, seed: int = 7, remote: str = "memory://bucket"
) -> tuple[ManualClock, FaultStore]:
    """Write `days` days of micro-batches, one in four hours; the service works once a day.

    Returns the clock as it stands then, and the bucket of memory://bucket.
    """
    clock, rng = ManualClock(START), random.Random(seed)
    store = FaultStore(clock=clock)
    log = sparklog.open(path, "rw", clock=clock, options={"flush": "none"})
    for name, (partitions, config) in TOPICS.items():
        unit = days * DAY // 6
        given = {k: str(int(v) * unit) if k.endswith("retention.ms") and int(v) > 0 else v
                 for k, v in config.items()}  # fmt: skip
        log.create_topic(name, partitions, {**SMALL, "file.delete.delay.ms": "0", **given})
    for batch in range(days * 6 + 5 if days > 1 else 10):
        clock.advance(4 * HOUR)
        for place, topic in enumerate(CODECS):
            busy = 6.0 if batch % 6 in (2, 3, 4) else 2.0
            _commit(log, topic, batch, _rows(rng, topic, int((90 - 12 * place) * busy), clock()))
        if batch % 6 == 5:
            serve(path, clock, store, remote)
    _readers(log)
    log.close()
    return clock, store


def serve(path: Path | str, clock: ManualClock, store: FaultStore, remote: str) -> None:
    """One round of the service, with its bucket in memory or at a real URL."""
    options: dict[str, object] = {"remote.log.manager.copier.thread.pool.size": "1"}
    given: dict[str, Any] = {"clock": clock}
    if remote.startswith("memory:"):
        given["opening"] = lambda url, options: store
    service = Service(str(path), remote=remote, options=options, **given)
    report = service.run_once()
    assert not report.errors, report.errors
    service.close()


def _commit(log: sparklog.Log, topic: str, batch: int, rows: pa.Table) -> None:
    framing, writer = Framing(codec=CODECS[topic], batch_size=6000), WRITERS[topic]
    if writer is None:
        log.append(topic, rows, framing=framing)
        return
    commit_batch(log, writer, batch, rows, topic=topic, framing=framing)


def _readers(log: sparklog.Log) -> None:
    """A reader that keeps up, one behind, and one far behind that holds retention back."""
    shares = {"fraud-scoring": ("orders", 1.0), "daily-report": ("clicks", 0.55),
              "settlement": ("payments", 0.15), "alerts": ("sensor.readings", 0.97)}  # fmt: skip
    for group, (topic, share) in shares.items():
        spans = log.offsets(topic)
        offsets = {p: int(start + (end - start) * share) for p, (start, end) in spans.items()}
        log.commit_offsets(group, {topic: offsets})
