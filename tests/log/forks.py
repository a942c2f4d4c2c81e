"""Logs of several writers to be forked, and checks of the forks, in every home."""

from pathlib import Path
from typing import Any, TypeAlias

import pyarrow as pa

import sparklog
from sparklog import Log
from sparklog.clock import ManualClock
from sparklog.diskless.import_objects import BucketTarget
from sparklog.diskless.log_creation import fork as fork_in_store
from sparklog.log.commit import CommitResult, Identity
from sparklog.log.fork_points import ForkPointRequest
from sparklog.logdir.forking.fork import fork as fork_log_dir
from sparklog.service import verify
from sparklog.storage.staging import Framing
from sparklog.tiered.target import open_store

CONFIG: dict[str, object] = {
    "internal.segment.bytes": 700,
    "index.interval.bytes": 100,
    "retention.ms": "-1",
}
Rows: TypeAlias = dict[tuple[str, int], list[tuple[int, bytes | None]]]


POINT = ("writer", "batch", "time_ms", "offsets", "leave_remote")


def fork(path: str | Path, new_path: str | Path, **given: Any) -> Any:
    """Fork a log of either kind of home; returns `Forked`, or `MadeLog` for a store."""
    point = ForkPointRequest(**{name: given.pop(name) for name in POINT if name in given})
    if "://" not in str(path):
        return fork_log_dir(path, new_path, point, **given)
    options = given.pop("options", None)
    target = BucketTarget(store=open_store(str(new_path)), **given)
    return fork_in_store(open_store(str(path)), target, point, options=options)


def commit(log: Log, writer: str, batch: int, *, count: int = 3, keys: int = 0) -> CommitResult:
    """A micro-batch of `count` records for each partition of each topic."""
    chunks = []
    for topic in log.topics():
        values = [f"{writer} {batch} {n}".ljust(40) for n in range(count)]
        for p in log.topic(topic).dirs:
            columns: dict[str, Any] = {"value": values, "partition": pa.array([p] * count, "int32")}
            if keys:
                columns["key"] = [f"{(batch * count + n) % keys}" for n in range(count)]
            stager = log.stager(Framing())
            stager.add(log.topic(topic), pa.table(columns).to_batches()[0])
            chunks += stager.finish()
    identity = Identity(writer=writer, batch=batch, fingerprint=f"{writer}{batch}")
    return log.commit(chunks, identity=identity)


def held(log: Log) -> Rows:
    """All records of all topics, whose offsets must be dense unless a topic is compacted."""
    found: Rows = {}
    for topic in log.topics():
        for p, (start, end) in log.offsets(topic).items():
            rows = log.read(topic, [p], columns=["offset", "value"]).read_all().to_pylist()
            offsets = [row["offset"] for row in rows]
            if not log.topic(topic).config.compact:
                assert offsets == list(range(start, end))
            found[topic, p] = [(row["offset"], row["value"]) for row in rows]
    return found


def filled(log: Log, clock: ManualClock, batches: int = 9) -> dict[int, Rows]:
    """Two writers take turns; what the log held after each batch of q."""
    after = {}
    for batch in range(batches):
        clock.advance(1000)
        commit(log, "q", batch)
        after[batch] = held(log)
        commit(log, "other", batch, count=2)
    return after


def check(path: str | Path, wanted: Rows) -> None:
    """It holds just that, nothing is wrong with it, and it goes on where that ends."""
    with sparklog.open(path) as reader:
        assert held(reader) == wanted
    report = verify(str(path))
    assert not report.findings, report.findings
    with sparklog.open(path, "rw") as writer:
        ends = {t: {p: end for p, (_, end) in writer.offsets(t).items()} for t in writer.topics()}
        for topic, by_partition in ends.items():
            for p, end in by_partition.items():
                one = pa.table({"key": ["k"], "value": ["more"]})
                assert writer.append(topic, one, partition=p) == {topic: {p: (end, end + 1)}}
                rows = wanted[topic, p] + [(end, b"more")]
                read = writer.read(topic, [p], columns=["offset", "value"]).read_all().to_pylist()
                assert [(row["offset"], row["value"]) for row in read] == rows
    report = verify(str(path))
    assert not report.findings, report.findings
