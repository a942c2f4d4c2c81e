"""Features of newer versions of Spark, from topic to topic, with a log-backed checkpoint.

Each query is stopped and started again, and its output must have each row exactly once. The offline
repartition that is refused is tested in tests/state/test_unfinished_repartition.py, tables of the
catalog in test_datasource.py.
"""

import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyspark.errors import IllegalArgumentException, StreamingQueryException
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F

import sparklog
from sparklog.checkpoint import fork, history, reset, verify
from sparklog.session.setup import MANAGER, MANAGER_KEY
from sparklog.sink import SegmentSink
from sparklog.spark_versions import PYSPARK
from tests.spark.versions import since
from tests.state.operators import PROVIDERS

try:
    from pyspark.sql.streaming.stateful_processor import StatefulProcessor
except ImportError:  # pragma: no cover - not in Spark 3.5
    StatefulProcessor = object  # type: ignore[assignment,misc]

pytestmark = pytest.mark.spark
OFFSETS_BY_NAME = {
    "spark.sql.streaming.queryEvolution.enableSourceEvolution": "true",
    "spark.sql.streaming.offsetLog.formatVersion": "2",
}
SINK_OUTSIDE_OF_LIST = "OPERATOR_OR_SINK_NOT_IN_ALLOWLIST"
SOURCE_NOT_SUPPORTED = r"INPUT_STREAM_NOT_SUPPORTED.*The input stream sparklog\.datasource\.Log"


@dataclass(frozen=True)
class Topics:
    """Topics of one log, as sources and sinks of queries in a session of their own."""

    spark: SparkSession
    path: str
    checkpoint: str

    def append(self, topic: str, values: dict[str, str]) -> None:
        """Append a record for each key."""
        with sparklog.open(self.path, mode="rw") as log:
            log.create_topic(topic, partitions=2, if_not_exists=True)
            log.append(topic, pa.table({"key": list(values), "value": list(values.values())}))

    def values(self, topic: str) -> list[str]:
        with sparklog.open(self.path) as log:
            found = log.read(topic, columns=["value"]).read_all()["value"].to_pylist()
        return sorted(bytes(value).decode() for value in found)

    def source(self, topic: str, name: str | None = None) -> DataFrame:
        reader = self.spark.readStream
        reader = reader if name is None else reader.name(name)
        return (
            reader.format("sparklog")
            .option("path", self.path)
            .option("subscribe", topic)
            .option("startingOffsets", "earliest")
            .load()
            .selectExpr("string(key) key", "string(value) value", "timestamp")
        )

    def writer(self, rows: DataFrame, *, foreach_batch: bool = False) -> Any:
        """Return the writer of a query that appends to the topic `out`."""
        writer = rows.writeStream.option("checkpointLocation", self.checkpoint)
        if foreach_batch:
            return writer.outputMode("update").foreachBatch(SegmentSink(self.path, "out"))
        return writer.format("sparklog").option("path", self.path).option("topic", "out")

    def run(
        self, rows: DataFrame, *, foreach_batch: bool = False, trigger: str = "availableNow"
    ) -> list[str]:
        """Run a query until it has read all, and return the values in the topic `out`."""
        writer = self.writer(rows, foreach_batch=foreach_batch)
        query = writer.trigger(**{trigger: True}).start()
        assert query.awaitTermination(240), "the query did not finish in time"
        assert verify(self.checkpoint).ok
        return self.values("out")


@pytest.fixture
def topics(spark: SparkSession, path: str, checkpoint: str) -> Topics:
    own = spark.newSession()
    conf = {MANAGER_KEY: MANAGER, "spark.sql.shuffle.partitions": "1", **PROVIDERS["changelog"]}
    for key, value in conf.items():
        own.conf.set(key, value)
    return Topics(own, path, checkpoint)


class Visits(StatefulProcessor):
    """Counts the records of a key; a timer reports the count once."""

    def init(self, handle: Any) -> None:
        self._handle = handle
        self._lasting = handle.getValueState("lasting", "n long", 3_600_000)
        self._brief = handle.getValueState("brief", "n long", 1)

    def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: Any) -> Iterator[Any]:
        count = sum(1 for _ in rows) + (self._lasting.get()[0] if self._lasting.exists() else 0)
        is_known = self._brief.exists()
        if not self._lasting.exists():
            self._handle.registerTimer(timerValues.getCurrentProcessingTimeInMs() + 1)
        self._lasting.update((count,))
        self._brief.update((count,))
        yield Row(key=key[0], value=f"{key[0]} has {count}" + " of late" * is_known)

    def handleExpiredTimer(
        self, key: Any, timerValues: Any, expiredTimerInfo: Any
    ) -> Iterator[Any]:
        yield Row(key=key[0], value=f"{key[0]} had {self._lasting.get()[0]}")

    def close(self) -> None:
        pass


class VisitsInPandas(Visits):
    """The same with data frames of Pandas."""

    def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: Any) -> Iterator[Any]:
        values = iter([value for frame in rows for value in frame["value"]])
        for row in super().handleInputRows(key, values, timerValues):
            yield pd.DataFrame([row.asDict()])

    def handleExpiredTimer(
        self, key: Any, timerValues: Any, expiredTimerInfo: Any
    ) -> Iterator[Any]:
        for row in super().handleExpiredTimer(key, timerValues, expiredTimerInfo):
            yield pd.DataFrame([row.asDict()])


@pytest.mark.deep
@pytest.mark.parametrize(
    "method",
    [
        pytest.param("transformWithState", marks=since((4, 1), "transformWithState of rows")),
        pytest.param(
            "transformWithStateInPandas", marks=[pytest.mark.deep] if PYSPARK >= (4, 1) else []
        ),
    ],
)
def test_transform_with_state(topics: Topics, method: str) -> None:
    processor = Visits() if method == "transformWithState" else VisitsInPandas()

    def query() -> DataFrame:
        grouped = topics.source("in").groupBy("key")
        transformed: DataFrame = getattr(grouped, method)(
            processor, "key string, value string", "Append", "ProcessingTime"
        )
        return transformed

    # With processing time as time mode, a query with the trigger availableNow never ends.
    topics.append("in", {"a": "1", "b": "1"})
    assert topics.run(query(), trigger="once") == ["a has 1", "b has 1"]
    topics.append("in", {"b": "2", "c": "2"})
    assert topics.run(query(), trigger="once") == [
        "a had 1", "a has 1", "b had 2", "b has 1", "b has 2", "c has 1",
    ]  # fmt: skip


@pytest.mark.deep
def test_join_of_two_topics(topics: Topics) -> None:
    within = "key = k and at between timestamp - interval 1 hour and timestamp + interval 1 hour"

    def query() -> DataFrame:
        left = topics.source("left").withWatermark("timestamp", "1 minute")
        right = topics.source("right").selectExpr("key k", "value v", "timestamp at")
        joined = left.join(right.withWatermark("at", "1 minute"), F.expr(within))
        return joined.selectExpr("key", "concat(value, v) value")

    topics.append("left", {"a": "a1", "b": "b1"})
    topics.append("right", {"a": "x1", "c": "z1"})
    assert topics.run(query()) == ["a1x1"]
    topics.append("left", {"a": "a2"})
    topics.append("right", {"b": "y2"})
    assert topics.run(query()) == ["a1x1", "a2x1", "b1y2"]


def _named(topics: Topics, *, foreach_batch: bool) -> Callable[[], list[str]]:
    for key, value in OFFSETS_BY_NAME.items():
        topics.spark.conf.set(key, value)

    def run() -> list[str]:
        return topics.run(topics.source("in", "flights"), foreach_batch=foreach_batch)

    return run


@pytest.mark.parametrize("foreach_batch", [False, True])
@since((4, 2), "named sources")
@pytest.mark.deep
def test_named_sources(topics: Topics, tmp_path: Path, foreach_batch: bool) -> None:
    """The offset log has the names: the history, a fork and a reset read them."""
    run = _named(topics, foreach_batch=foreach_batch)
    topics.append("in", {"a": "1"})
    assert run() == ["1"]
    topics.append("in", {"a": "2"})
    assert run() == ["1", "2"]
    batches = list(history(topics.checkpoint).batches)
    assert [list(batch.sources) for batch in batches] == [["flights"]] * len(batches)
    fork(topics.checkpoint, tmp_path / "fork", to=0, sources={"flights": topics.path})
    assert verify(tmp_path / "fork").latest == 0
    reset(topics.checkpoint, to=0, log=topics.path)
    assert run() == ["1", "2", "2"]  # as the reset says: batch 1 runs again, and is appended


@pytest.mark.parametrize("foreach_batch", [False, True])
@since((4, 2), "named sources")
@pytest.mark.deep
def test_a_query_with_named_sources_that_lost_its_checkpoint(
    topics: Topics, foreach_batch: bool
) -> None:
    run = _named(topics, foreach_batch=foreach_batch)
    topics.append("in", {"a": "1"})
    assert run() == ["1"]
    shutil.rmtree(topics.checkpoint)
    with pytest.raises(StreamingQueryException, match=r"BatchConflictError.*checkpoint location"):
        run()
    assert topics.values("out") == ["1"]


@pytest.mark.deep
def test_state_checkpoint_format_2(topics: Topics) -> None:
    """State files with the id of their batch; since Spark 4.2 repartitioned as well."""
    topics.spark.conf.set("spark.sql.streaming.stateStore.checkpointFormatVersion", "2")

    def run() -> list[str]:
        counts = topics.source("in").groupBy("key").count()
        rows = counts.selectExpr("key", "concat(key, count) value")
        return topics.run(rows, foreach_batch=True)

    topics.append("in", {"a": "1", "b": "1"})
    assert run() == ["a1", "b1"]
    topics.append("in", {"b": "2"})
    assert run() == ["a1", "b1", "b2"]
    state = topics.spark.read.format("sparklog").option("stateOperator", 0)
    changes = state.load(topics.checkpoint).select("batch", "key.key", "value.count").collect()
    assert sorted(map(tuple, changes)) == [(0, "a", 1), (0, "b", 1), (1, "b", 2)]
    if PYSPARK >= (4, 2):
        streams: Any = topics.spark._jsparkSession  # type: ignore[attr-defined]
        streams.streamingCheckpointManager().repartition(topics.checkpoint, 2, True)
        topics.append("in", {"a": "3"})
        assert run() == ["a1", "a2", "b1", "b2"]


@pytest.mark.deep
def test_arrow_udf(topics: Topics) -> None:
    """An Arrow UDF; in Spark 4.0, which has none, a Pandas UDF."""
    if PYSPARK >= (4, 1):

        def upper(values: pa.Array) -> pa.Array:
            return pc.utf8_upper(values)

        udf = F.arrow_udf(upper, "string")
    else:

        def upper_in_pandas(values: pd.Series) -> pd.Series:
            return values.str.upper()

        udf = F.pandas_udf(upper_in_pandas, "string")  # type: ignore[call-overload]

    def query() -> DataFrame:
        return topics.source("in").select("key", udf("value").alias("value"))

    topics.append("in", {"a": "one"})
    assert topics.run(query()) == ["ONE"]
    topics.append("in", {"a": "two"})
    assert topics.run(query()) == ["ONE", "TWO"]


def test_asynchronous_progress_is_refused(topics: Topics) -> None:
    topics.append("in", {"a": "1"})
    for foreach_batch, message in (
        (False, "option asyncProgressTrackingEnabled .* Remove the option"),
        (True, "Sink ForeachBatchSink does not support async progress tracking"),  # Spark's own
    ):
        writer = topics.writer(topics.source("in"), foreach_batch=foreach_batch)
        with pytest.raises(IllegalArgumentException, match=message):
            writer.option("asyncProgressTrackingEnabled", "true").start()
    with sparklog.open(topics.path) as log:
        assert list(log.topics()) == ["in"]


def test_asynchronous_progress_of_a_source(topics: Topics) -> None:
    """With a sink that Spark supports, the log is read, and a query continues after a restart."""
    options = {
        "checkpointLocation": topics.checkpoint,
        "asyncProgressTrackingEnabled": "true",
        "asyncProgressTrackingCheckpointIntervalMs": "0",
    }
    rows = []
    for run in range(3):
        query = topics.source("in").writeStream.format("noop").options(**options).start()
        for _ in range(2):
            topics.append("in", {"a": str(run)})
            query.processAllAvailable()
        query.stop()
        assert query.exception() is None
        rows.append(sum(progress["numInputRows"] for progress in query.recentProgress))
    assert rows == [2, 2, 2]
    assert verify(topics.checkpoint).ok


@since((4, 1), "real-time trigger")
def test_the_real_time_trigger_is_refused(topics: Topics) -> None:
    """By Spark, which supports only sources and sinks of its own."""
    topics.append("in", {"a": "1"})
    rows = topics.source("in")
    console = rows.writeStream.format("console").outputMode("update")
    console = console.option("checkpointLocation", topics.checkpoint)
    for writer, message in (
        (topics.writer(rows), SINK_OUTSIDE_OF_LIST),
        (topics.writer(rows, foreach_batch=True), SINK_OUTSIDE_OF_LIST),
        (console, SOURCE_NOT_SUPPORTED),
    ):
        jvm: Any = topics.spark._jvm  # type: ignore[attr-defined]
        trigger = jvm.org.apache.spark.sql.execution.streaming.RealTimeTrigger
        writer._jwrite.trigger(trigger.apply("5 minutes"))  # Spark 4.1 has no Python for it
        with pytest.raises((IllegalArgumentException, StreamingQueryException), match=message):
            writer.start().awaitTermination(60)
    with sparklog.open(topics.path) as log:
        assert list(log.topics()) == ["in"]
