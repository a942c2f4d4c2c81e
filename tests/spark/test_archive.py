"""Spark on an archive: executors read the store themselves, in pieces by size; tiers by format."""

import json
import time
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

import sparklog
from sparklog.clock import system_clock
from sparklog.fs import LOCAL
from sparklog.logdir.home import commits_of
from sparklog.logdir.segment_files import segment_bases
from sparklog.tiered.remote_log_metadata.topic import ensure_topic, publish
from sparklog.tiered.settings import RemoteSettings, write_settings
from sparklog.tiered.target import open_store
from tests.logdir.partitions import T0
from tests.service.logs import SMALL, fill
from tests.tiered.buckets import DictStore, copy_partition
from tests.tiered.proxy import Proxy
from tests.tiered.s3 import S3Server
from tests.waiting import until

pytestmark = [pytest.mark.spark, pytest.mark.s3]


def tier(s3: S3Server, path: Path) -> tuple[str, dict[int, int]]:
    """Write a log and copy its closed segments: (URL, {partition: end of what is remote})."""
    store = DictStore()
    with sparklog.open(path, "rw") as log:
        log.create_topic("t", partitions=2, config={**SMALL, "remote.storage.enable": True})
        fill(log, "t", 0, 30)
        fill(log, "t", 1, 17)
    copied = [s for p in (0, 1) for s in copy_partition(path / f"t-{p}", store)]
    url = s3.bucket() + "/logs"
    bucket = open_store(url, s3.options())
    for name, data in store.objects.items():
        bucket.put(name, data)
    with sparklog.open(path, "rw") as log:
        ensure_topic(commits_of(log))
        publish(commits_of(log), system_clock, copied, found=True)
        write_settings(LOCAL, str(path), RemoteSettings(url))
    return url, {p: max(s.end for s in copied if s.partition == p) for p in (0, 1)}


@pytest.mark.deep
@pytest.mark.one_path  # all of it is read in Python
def test_an_archive_in_batches_and_streams(
    spark: SparkSession, s3: S3Server, tmp_path: Path
) -> None:
    url, ends = tier(s3, tmp_path / "log")
    options = {"path": url, "subscribe": "t", "storage_options": json.dumps(s3.options())}
    whole = spark.read.format("sparklog").options(**options).load()
    rows = whole.select("partition", "offset", "value").collect()
    assert sorted((r.partition, r.offset) for r in rows) == [
        (p, offset) for p in (0, 1) for offset in range(ends[p])
    ]
    split = spark.read.format("sparklog").options(**options, maxBytesPerPartition=800).load()
    assert split.rdd.getNumPartitions() > 4
    assert split.count() == sum(ends.values())
    timed = spark.read.format("sparklog").options(**options, startingTimestamp=T0 + 5000).load()
    assert timed.count() == sum(end - 10 for end in ends.values())
    stream = spark.readStream.format("sparklog").options(**options, startingOffsets="earliest")
    query = (
        stream.load().writeStream.format("memory").queryName("archived")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True).start()
    )  # fmt: skip
    query.awaitTermination(240)
    assert spark.sql("select * from archived").count() == sum(ends.values())


@pytest.mark.deep  # tests/tiered reads them in Python
@pytest.mark.also_python("remote segments")
def test_a_query_does_not_care_where_segments_lie(
    spark: SparkSession, s3: S3Server, tmp_path: Path
) -> None:
    path = tmp_path / "log"
    tier(s3, path)
    options = {"path": str(path), "subscribe": "t", "storage_options": json.dumps(s3.options())}
    reader = spark.read.format("sparklog").options(**options)
    before = sorted((r.partition, r.offset) for r in reader.load().collect())
    for p in (0, 1):
        directory = path / f"t-{p}"
        for base in segment_bases(LOCAL, str(directory))[:-2]:
            for file in directory.glob(f"{base:020d}.*"):
                file.unlink()
    assert sorted((r.partition, r.offset) for r in reader.load().collect()) == before


@pytest.mark.deep
@pytest.mark.one_path
def test_a_query_outlives_a_store_that_is_away(
    spark: SparkSession, s3: S3Server, tmp_path: Path
) -> None:
    """Its tasks wait, its planner has no news; and it stops at once while they do."""
    url, ends = tier(s3, tmp_path / "log")
    with Proxy(s3.port) as proxy:
        options = {
            "path": url, "subscribe": "t", "startingOffsets": "earliest",
            "storage_options": json.dumps(s3.options(port=proxy.port)), "remote.refresh.ms": "0",
            "remote.cache.memory.bytes": "0",  # else a worker that read it before asks for nothing
        }  # fmt: skip
        stream = spark.readStream.format("sparklog").options(**options).load()

        def start() -> StreamingQuery:
            return (
                stream.writeStream.format("memory").queryName("away")
                .trigger(processingTime="100 milliseconds").start()
            )  # fmt: skip

        query = start()
        query.processAllAvailable()
        rows = spark.sql("select * from away")
        assert rows.count() == sum(ends.values())
        proxy.spoil(b"", "refuse", times=10**9)
        time.sleep(2)
        assert query.isActive
        assert query.exception() is None
        proxy.heal()
        query.processAllAvailable()
        query.stop()

        proxy.spoil(b".log", "refuse", times=10**9)  # the planner sees all, tasks nothing
        _stops_at_once(start(), proxy)
        proxy.heal()
        proxy.spoil(b"", "refuse", times=10**9)  # from the start on
        _stops_at_once(start(), proxy)


def _stops_at_once(query: StreamingQuery, proxy: Proxy) -> None:
    enough = proxy.spoiled + 10  # the store's own retries: 5
    until(lambda: proxy.spoiled >= enough, state=lambda: proxy.spoiled, pause_s=0.1)
    assert query.isActive
    query.stop()
