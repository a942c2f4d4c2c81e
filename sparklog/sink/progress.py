"""Metrics of Spark's streaming queries, beside the metrics of the log.

    sparklog.sink.watch_queries(spark)          # once per session
    with Service(path, metrics_port=9404): ...  # in the same process: both at one endpoint

The values are from a query's last progress (StreamingQueryProgress) and stay until it ends.
"""

import ast
import json
import logging
from datetime import datetime
from typing import Any, Final

from pyspark.sql import SparkSession
from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    SourceProgress,
    StreamingQueryListener,
    StreamingQueryProgress,
)

from sparklog.metrics import QUERIES, SECONDS, Kind, Metric, meters
from sparklog.storage.query_origin import ASIDE

_LOGGER: Final = logging.getLogger(__name__)


def _metric(name: str, kind: Kind, text: str, *labels: str, **more: Any) -> Metric:
    return Metric(f"sparklog_query_{name}", kind, text, ("query", *labels), **more)


ACTIVE: Final = _metric("active", Kind.GAUGE, "1 while the query runs; query: its name, or its id.")
FAILURES: Final = _metric("failures_total", Kind.COUNTER, "Ends of the query by an error.")
BATCH: Final = _metric("last_batch", Kind.GAUGE, "Number of the last micro-batch.")
PROGRESS_TIME: Final = _metric(
    "last_progress_timestamp_seconds", Kind.GAUGE, "When the last micro-batch began."
)
ROWS: Final = _metric("input_rows_total", Kind.COUNTER, "Rows that the query has read.")
INPUT_RATE: Final = _metric("input_rows_per_second", Kind.GAUGE, "Rate at which rows arrive.")
PROCESSED_RATE: Final = _metric(
    "processed_rows_per_second", Kind.GAUGE, "Rate at which rows are processed."
)
BATCH_SECONDS: Final = _metric(
    "batch_duration_seconds", Kind.HISTOGRAM, "Time of a micro-batch.", buckets=SECONDS
)
PHASE_SECONDS: Final = _metric(
    "phase_duration_seconds",
    Kind.GAUGE,
    "Time of each phase of the last trigger, by Spark's names (addBatch, walCommit, ...).",
    "phase",
)
STATE_ROWS: Final = _metric("state_rows", Kind.GAUGE, "Rows in a state operator.", "operator")
STATE_BYTES: Final = _metric(
    "state_memory_bytes", Kind.GAUGE, "Memory that a state operator uses.", "operator"
)
WATERMARK: Final = _metric(
    "watermark_timestamp_seconds", Kind.GAUGE, "The query's event-time watermark."
)
LAG: Final = _metric(
    "lag_records",
    Kind.GAUGE,
    "Offsets that the last micro-batch left unread; source: its place in the plan, from 0.",
    "source",
    "topic",
    "partition",
)
METRICS: Final = (
    ACTIVE, FAILURES, BATCH, PROGRESS_TIME, ROWS, INPUT_RATE, PROCESSED_RATE, BATCH_SECONDS,
    PHASE_SECONDS, STATE_ROWS, STATE_BYTES, WATERMARK, LAG,
)  # fmt: skip


class QueryMetrics(StreamingQueryListener):
    """Records the progress of a session's streaming queries as metrics of this process.

    Spark calls its methods in the driver's Python. `watch_queries` registers it.

    Source: Spark's StreamingQueryListener.

    Examples:
        >>> from sparklog.sink import watch_queries
        >>> listener = watch_queries(spark)
        >>> spark.streams.removeListener(listener)
    """

    def __init__(self) -> None:
        self._names: dict[str, str] = {}  # run id -> label
        self._counts = meters(QUERIES)

    def onQueryStarted(self, event: QueryStartedEvent) -> None:
        """Record that the query runs.

        Args:
            event: Spark's event, with the ids and the name of the query.
        """
        self._names[str(event.runId)] = label = event.name or str(event.id)
        self._counts.gauge(ACTIVE).set(1, label)
        self._counts.counter(FAILURES).add(0, label)
        self._counts.counter(ROWS).add(0, label)

    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        """Record the figures of a micro-batch.

        Args:
            event: Spark's event, with the progress of the query.
        """
        try:
            self._note(event.progress)
        except Exception:  # Spark would print any error at every micro-batch
            _LOGGER.exception(
                "query %s: the metrics of a micro-batch could not be updated", event.progress.id
            )

    def onQueryIdle(self, event: QueryIdleEvent) -> None:
        """Keep the last values, which are still valid without new data.

        Args:
            event: Spark's event.
        """

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
        """Clear the gauges of a query that ended. Its counters stay.

        Args:
            event: Spark's event, with the id of the run.
        """
        label = self._names.pop(str(event.runId), str(event.id))
        if event.exception is not None:
            self._counts.counter(FAILURES).add(1, label)
        # Counters stay: a restarted query of the same name continues them.
        for metric in METRICS:
            if metric.kind is Kind.GAUGE:
                self._counts.gauge(metric).clear(label)
        self._counts.gauge(ACTIVE).set(0, label)

    def _note(self, progress: StreamingQueryProgress) -> None:
        counts, label = self._counts, progress.name or str(progress.id)
        self._names[str(progress.runId)] = label  # it may have started before this listener
        counts.gauge(ACTIVE).set(1, label)
        counts.gauge(BATCH).set(progress.batchId, label)
        counts.gauge(PROGRESS_TIME).set(_seconds(progress.timestamp), label)
        counts.counter(ROWS).add(progress.numInputRows, label)
        counts.gauge(INPUT_RATE).set(_number(progress.inputRowsPerSecond), label)
        counts.gauge(PROCESSED_RATE).set(_number(progress.processedRowsPerSecond), label)
        counts.histogram(BATCH_SECONDS).observe(progress.batchDuration / 1000, label)
        # Phases, sources and partitions differ between triggers; old labels must not remain.
        counts.gauge(PHASE_SECONDS).clear(label)
        for phase, ms in progress.durationMs.items():
            counts.gauge(PHASE_SECONDS).set(ms / 1000, label, phase)
        for number, operator in enumerate(progress.stateOperators):
            name = f"{number}:{operator.operatorName}"
            counts.gauge(STATE_ROWS).set(operator.numRowsTotal, label, name)
            counts.gauge(STATE_BYTES).set(operator.memoryUsedBytes, label, name)
        if "watermark" in progress.eventTime:
            counts.gauge(WATERMARK).set(_seconds(progress.eventTime["watermark"]), label)
        counts.gauge(LAG).clear(label)
        for number, source in enumerate(progress.sources):
            for (topic, partition), lag in _behind(source).items():
                counts.gauge(LAG).set(lag, label, str(number), topic, partition)


def watch_queries(spark: SparkSession) -> QueryMetrics:
    """Count the work of the session's streaming queries from now on, and return the listener.

    The metrics appear at the endpoint of a `sparklog.service.Service` in the same process
    (docs/metrics.md). `spark.streams.removeListener(listener)` ends the counting.

    Args:
        spark: The session.

    Cost:
        About 0.1 ms per micro-batch, in a Spark thread.

    Examples:
        >>> from sparklog.sink import watch_queries
        >>> listener = watch_queries(spark)
        >>> spark.streams.removeListener(listener)
    """
    listener = QueryMetrics()
    spark.streams.addListener(listener)
    return listener


def offsets_behind_latest(progress: StreamingQueryProgress) -> list[dict[str, str]]:
    """Return the metrics that Spark's Kafka source adds to the `sources[].metrics` of a progress.

    Spark 4.3 does not let Python sources set them, so this function computes them.

    Args:
        progress: The progress of a query, such as `query.lastProgress`.

    Returns:
        A dict per source, such as {"minOffsetsBehindLatest": "0", "maxOffsetsBehindLatest": "7",
        "avgOffsetsBehindLatest": "3.5"}; empty for a source without offsets of topics.

    Source: KafkaMicroBatchStream.metrics (spark-sql-kafka-0-10).

    Examples:
        >>> from sparklog.sink import offsets_behind_latest
        >>> rows = spark.readStream.format("sparklog").option("path", log.path)
        >>> rows = rows.option("subscribe", "flights").option("startingOffsets", "earliest").load()
        >>> query = rows.writeStream.format("noop").trigger(availableNow=True).start()
        >>> query.awaitTermination()
        >>> offsets_behind_latest(query.lastProgress)[0]["maxOffsetsBehindLatest"]
        '0'
    """
    metrics = []
    for source in progress.sources:
        lags = list(_behind(source).values())
        figures = {
            "minOffsetsBehindLatest": str(min(lags, default=0)),
            "maxOffsetsBehindLatest": str(max(lags, default=0)),
            "avgOffsetsBehindLatest": str(sum(lags) / max(1, len(lags))),
        }
        metrics.append(figures if lags else {})
    return metrics


def _behind(source: SourceProgress) -> dict[tuple[str, str], int]:
    """Return {(topic, partition): number of offsets that a micro-batch left unread}."""
    read, latest = _offsets(source.endOffset), _offsets(source.latestOffset)
    return {key: max(0, end - read.get(key, 0)) for key, end in latest.items()}


def _seconds(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()


def _number(value: float) -> float:
    return value if value == value else 0.0  # NaN for a first, empty micro-batch


def _offsets(text: Any) -> dict[tuple[str, str], int]:
    """Parse offsets in the format of sparklog and Kafka, {"topic": {"0": 123}}; else return {}."""
    try:
        nested = _nested(text or "{}")
        return {
            (t, p): int(at) for t, by in nested.items() if ASIDE not in t for p, at in by.items()
        }
    except (ValueError, SyntaxError, AttributeError, TypeError):
        return {}


def _nested(text: Any) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        # PySpark 4.0 and 4.1 have the text of a Python dict in query.lastProgress.
        return ast.literal_eval(text)
