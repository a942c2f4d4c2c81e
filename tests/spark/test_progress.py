"""What Spark knows of its queries, at the endpoint of a service in the same process."""

from __future__ import annotations

import math
import urllib.request
import uuid
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import col, window

import sparklog
from sparklog.metrics import QUERIES, Metric, meters
from sparklog.service import Service
from sparklog.sink import SegmentSink, offsets_behind_latest, watch_queries
from sparklog.sink.progress import (
    ACTIVE,
    BATCH,
    FAILURES,
    INPUT_RATE,
    LAG,
    METRICS,
    QueryMetrics,
)
from tests.waiting import until

Found = dict[tuple[str, tuple[tuple[str, str], ...]], float]


@pytest.fixture
def watched(spark: SparkSession) -> Iterator[None]:
    listener = watch_queries(spark)
    yield
    spark.streams.removeListener(listener)


def scrape(service: Service) -> Found:
    assert service.metrics_url is not None
    with urllib.request.urlopen(service.metrics_url) as answer:
        families = text_string_to_metric_families(answer.read().decode())
    return {(s.name, tuple(sorted(s.labels.items()))): s.value for f in families for s in f.samples}


def wait(service: Service, ready: Callable[[Found], object]) -> Found:
    """Scrape until it is so: Spark tells its listeners a little later."""

    def found() -> Found | None:
        now = scrape(service)
        return now if ready(now) else None

    return until(found, state=lambda: scrape(service), pause_s=0.05) or {}


@pytest.mark.usefixtures("watched")
@pytest.mark.deep
def test_queries_at_the_endpoint(
    spark: SparkSession,
    path: str,
    checkpoint: str,
    numbers: Callable[..., DataFrame],
    run_batches: Callable[..., int],
) -> None:
    odd = 'wri"ter\\ \n'
    me = ("query", odd)
    with sparklog.open(path, "rw") as log:
        log.create_topic("t", partitions=2, config={"retention.ms": "-1"})  # the rows are of 1970
    with Service(path, metrics_port=0) as service:
        scrape(service)
        writer = (
            numbers(rows=100).writeStream.queryName(odd).foreachBatch(SegmentSink(path, "t"))
            .option("checkpointLocation", f"{checkpoint}-w")
        )  # fmt: skip
        run_batches(writer, 2)
        found = wait(
            service,
            lambda f: (
                f.get(("sparklog_query_input_rows_total", (me,))) == 200
                and f.get(("sparklog_query_active", (me,))) == 0
            ),
        )
        assert found["sparklog_query_batch_duration_seconds_count", (me,)] == 2
        assert found["sparklog_query_failures_total", (me,)] == 0
        assert found["sparklog_commits_total", (("kind", "commit"),)] == 2
        assert found["sparklog_commit_records_total", (("topic", "t"),)] == 200
        assert found["sparklog_process_commit_duration_seconds_count", ()] >= 2
        reading(spark, path, checkpoint, service)


def reading(spark: SparkSession, path: str, checkpoint: str, service: Service) -> None:
    """A query with state and a watermark that takes 30 offsets a trigger, of 200."""
    counted = (
        spark.readStream.format("sparklog").option("path", path).option("subscribe", "t")
        .option("startingOffsets", "earliest").option("maxOffsetsPerTrigger", 30).load()
        .withWatermark("timestamp", "1 hour")
        .groupBy(window(col("timestamp"), "1 minute"), col("key")).count()
    )  # fmt: skip
    query = (
        counted.writeStream.queryName("reader").format("noop").outputMode("update")
        .trigger(processingTime="2 seconds")
        .option("checkpointLocation", f"{checkpoint}-r").start()
    )  # fmt: skip
    me = ("query", "reader")
    operator = ("operator", "0:stateStoreSave"), me

    def lags(found: Found) -> list[float]:
        return [v for (name, labels), v in found.items()
                if name == "sparklog_query_lag_records" and me in labels]  # fmt: skip

    try:

        def ready(found: Found) -> object:
            assert query.exception() is None
            done = found.get(("sparklog_query_input_rows_total", (me,)))
            # One may ask between two numbers of one progress.
            return (
                found.get(("sparklog_query_state_rows", operator))
                and done and sum(lags(found)) == 200 - done
            )  # fmt: skip

        found = wait(service, ready)
    finally:
        query.stop()
    done = found["sparklog_query_input_rows_total", (me,)]
    assert done % 30 == 0 or done == 200
    assert lags(found) and sum(lags(found)) == 200 - done
    assert found["sparklog_query_active", (me,)] == 1
    assert found["sparklog_query_phase_duration_seconds", (("phase", "addBatch"), me)] > 0
    assert found["sparklog_query_state_memory_bytes", operator] > 0
    names = {name for name, labels in found if me in labels}
    for metric in METRICS:
        assert any(name.startswith(metric.name) for name in names), metric.name
    ended = wait(service, lambda f: f["sparklog_query_active", (me,)] == 0)
    assert not lags(ended)
    assert ended["sparklog_query_input_rows_total", (me,)] >= done


def progressed(name: str, **fields: object) -> Any:
    """The event of a micro-batch's end."""
    run, query = uuid.UUID(int=1), uuid.UUID(int=2)
    given = {
        "id": query, "runId": run, "name": name, "batchId": 7, "batchDuration": 10,
        "timestamp": "2026-01-01T00:00:00.000Z", "numInputRows": 3, "inputRowsPerSecond": 1.0,
        "processedRowsPerSecond": 1.0, "durationMs": {"addBatch": 5}, "stateOperators": [],
        "eventTime": {}, "sources": [],
    }  # fmt: skip
    return SimpleNamespace(progress=SimpleNamespace(**{**given, **fields}))


def test_numbers_of_the_last_progress(caplog: pytest.LogCaptureFixture) -> None:
    def source(topic: str) -> SimpleNamespace:
        return SimpleNamespace(endOffset="{}", latestOffset=f'{{"{topic}":{{"0":9}}}}')

    listener = QueryMetrics()
    listener.onQueryProgress(progressed("q", sources=[source("t")], inputRowsPerSecond=math.nan))
    assert told(INPUT_RATE, "q") == 0.0
    assert told(LAG, "q", "0", "t", "0") == 9
    listener.onQueryProgress(progressed("q", sources=[source("u")]))
    assert told(LAG, "q", "0", "t", "0") is None
    assert told(LAG, "q", "0", "u", "0") == 9
    listener.onQueryProgress(progressed("q", batchId=8, batchDuration=None))
    assert "the metrics of a micro-batch could not be updated" in caplog.text
    ended: Any = SimpleNamespace(id=uuid.UUID(int=2), runId=uuid.UUID(int=1), exception=None)
    listener.onQueryTerminated(ended)
    assert told(FAILURES, "q") is None, "it was stopped"


def test_a_query_that_ran_before_anyone_watched() -> None:
    """Its name comes with its progress; nothing of the moment is left when it ends."""
    said = progressed("early bird")
    run, query = said.progress.runId, said.progress.id
    listener = QueryMetrics()
    listener.onQueryProgress(said)
    assert (told(ACTIVE, "early bird"), told(BATCH, "early bird")) == (1, 7)
    ended: Any = SimpleNamespace(id=query, runId=run, exception="it broke")
    listener.onQueryTerminated(ended)
    assert (told(ACTIVE, "early bird"), told(FAILURES, "early bird")) == (0, 1)
    assert told(BATCH, "early bird") is None
    assert told(ACTIVE, str(query)) is None


def test_kafkas_metrics_of_a_source() -> None:
    def source(end: str | None, latest: str | None) -> SimpleNamespace:
        return SimpleNamespace(endOffset=end, latestOffset=latest)

    progress: Any = SimpleNamespace(
        sources=[
            source('{"t":{"0":3,"1":9},"t#epoch":{"0":70000}}', '{"t":{"0":10,"1":9}}'),
            source('{"batch": 3}', '{"batch": 4}'),
            source('{"t":{"0":4}}', '{"t":{"0":3}}'),
        ]
    )
    assert offsets_behind_latest(progress) == [
        {
            "minOffsetsBehindLatest": "0",
            "maxOffsetsBehindLatest": "7",
            "avgOffsetsBehindLatest": "3.5",
        },
        {},
        {
            "minOffsetsBehindLatest": "0",
            "maxOffsetsBehindLatest": "0",
            "avgOffsetsBehindLatest": "0.0",
        },
    ]


def told(metric: Metric, *labels: str) -> object:
    wanted = (metric, *labels)
    found = [s.value for s in meters(QUERIES).samples() if (s.metric, *s.labels) == wanted]
    return found[0] if found else None
