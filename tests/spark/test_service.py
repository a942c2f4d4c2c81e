"""The service beside Spark: cleaning as a Spark job, while queries write and read."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from collections import Counter

import pytest

import sparklog
from sparklog.service import Service
from sparklog.sink import SegmentSink, spark_map
from tests.waiting import until

COMPACT = {"cleanup.policy": "compact", "internal.segment.bytes": "2000"}


def test_cleaning_is_a_spark_job(spark, path):
    with sparklog.open(path, "rw") as log:
        log.create_topic("t", partitions=3, config=COMPACT)
        table = (
            spark.range(3000)
            .selectExpr("cast(id % 7 as string) as key", "cast(id as string) as value")
            .toArrow()
        )
        for at in range(0, 3000, 100):
            log.append("t", table.slice(at, 100))
        report = Service(path, map=spark_map(spark)).run_once()
        cleaned = [c for c in report.cleaned if c.keys]
        assert not report.errors
        assert cleaned
        last: dict[bytes, bytes] = {}
        for batch in log.read("t"):
            last |= dict(zip(batch["key"].to_pylist(), batch["value"].to_pylist(), strict=True))
        assert last == {str(n % 7).encode(): str(n).encode() for n in range(2993, 3000)}


@pytest.mark.deep
def test_a_query_reads_and_another_writes_while_it_works(spark, path, checkpoint, numbers):
    """Each key's newest value arrives, nothing twice; the service compacts all the time."""
    options = {"log.initial.task.delay.ms": "0", "log.cleaner.backoff.ms": "10"}
    with sparklog.open(path, "rw") as log:
        log.create_topic("t", partitions=2, config=COMPACT)
    seen: Counter[tuple[int, int]] = Counter()

    def take(df, _):
        seen.update((r.partition, r.offset) for r in df.select("partition", "offset").collect())

    with Service(path, options=options) as service:
        writer = (
            numbers(rows=200).writeStream.foreachBatch(SegmentSink(path, "t"))
            .option("checkpointLocation", f"{checkpoint}-w").start()
        )  # fmt: skip
        reader = (
            spark.readStream.format("sparklog").option("path", path).option("subscribe", "t")
            .option("startingOffsets", "earliest").load()
            .writeStream.foreachBatch(take).option("checkpointLocation", f"{checkpoint}-r").start()
        )  # fmt: skip

        def has_written():
            writer.awaitTermination(0.1)  # raises what it failed by
            return writer.lastProgress and writer.lastProgress["batchId"] >= 12

        until(has_written, "batch 12", state=lambda: writer.status)
        writer.stop()
        reader.processAllAvailable()
        reader.stop()
        assert service.last_report is not None
        assert not service.last_report.errors
    assert seen
    assert max(seen.values()) == 1
    with sparklog.open(path) as log:
        ends = {p: end for p, (_, end) in log.offsets("t").items()}
        assert {p: max(o for q, o in seen if q == p) + 1 for p in ends} == ends


@pytest.mark.deep
def test_it_stops_with_the_spark_session(path):
    """A forgotten service neither keeps the process alive nor the log open."""
    code = f"""
        import threading, time, sparklog
        from sparklog.service import Service
        from tests.spark.conftest import build_session
        from tests.waiting import until
        sparklog.open({path!r}, "rw").close()
        spark = build_session()
        service = Service({path!r}); service.start()
        assert any(t.name.startswith("sparklog-") for t in threading.enumerate())
        spark.stop()
        until(lambda: not any(t.name.startswith("sparklog-") for t in threading.enumerate()))
        other = Service({path!r}); other.start()
    """
    subprocess.run([sys.executable, "-c", textwrap.dedent(code)], check=True, timeout=240)
    with sparklog.open(path) as log:
        assert log.topics() == {}
