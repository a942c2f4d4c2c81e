"""State from a history: the query continues as if it had read the history itself."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from sparklog.checkpoint import bootstrap, history, verify
from sparklog.errors import InvalidRequestError
from sparklog.session.setup import MANAGER
from tests.depth import STATE_EVERY
from tests.spark.versions import since
from tests.state.operators import Counter, Output, session
from tests.waiting import until

pytestmark = pytest.mark.spark

Query = Callable[..., DataFrame]
SCHEMA = "value long, k long, time timestamp"
FORMAT_2 = "changelog, state format 2"


class Inputs:
    """Files of 60 rows each: keys 0 to 9, and an event time that goes on by 4 seconds a file."""

    def __init__(self, spark: SparkSession, directory: Path) -> None:
        self._spark, self._directory = spark, directory
        for number in range(4):
            self._write(number)

    def file(self, number: int) -> Path:
        return self._directory / "files" / str(number)

    def _write(self, number: int) -> None:
        first = number * 60
        start = 1_700_000_000_000 + number * 4_000
        rows = self._spark.range(first, first + 60, 1, 1).select(
            F.col("id").alias("value"),
            (F.col("id") * 7 % 10).alias("k"),
            F.timestamp_millis(start + F.col("id") * 61 % 4_000).alias("time"),
        )
        rows.write.parquet(str(self.file(number)))

    def show(self, directory: str, number: int) -> None:
        """Add a file to the input of a source."""
        (self._directory / directory).mkdir(exist_ok=True)
        (self._directory / directory / str(number)).symlink_to(self.file(number))

    def stream(self, spark: SparkSession, directory: str) -> DataFrame:
        """Read a file in each micro-batch, in the order in which they were written."""
        files = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1)
        return late(files.parquet(f"{self._directory / directory}/*"))


def late(rows: DataFrame) -> DataFrame:
    return rows.withWatermark("time", "5 seconds")


def aggregation(rows: DataFrame) -> DataFrame:
    return rows.groupBy("k").agg(F.count("*"), F.sum("value"), F.collect_set("k"), F.avg("k"))


def windows(rows: DataFrame) -> DataFrame:
    window = F.window("time", "2 seconds", "1 second")
    return rows.groupBy(window, "k").count().select("window.start", "k", "count")


def session_windows(rows: DataFrame) -> DataFrame:
    counted = rows.groupBy(F.session_window("time", "1 second"), "k").count()
    return counted.select("session_window.start", "session_window.end", "k", "count")


def drop_duplicates(rows: DataFrame) -> DataFrame:
    return rows.select("k", (F.col("value") / 70).cast("int").alias("v")).dropDuplicates()


def drop_duplicates_within(rows: DataFrame) -> DataFrame:
    keyed = rows.withColumn("k", F.col("value") % 75)
    return keyed.dropDuplicatesWithinWatermark(["k"]).select("k", "value")


def join(rows: DataFrame, others: DataFrame) -> DataFrame:
    near = F.expr(
        "a.k = b.k and a.value > b.value and b.time between a.time - interval 8 seconds "
        "and a.time + interval 8 seconds"
    )
    return rows.alias("a").join(others.alias("b"), near).select("a.value", "b.value")


def self_join(rows: DataFrame) -> DataFrame:
    return join(rows, rows)


def windows_of_windows(rows: DataFrame) -> DataFrame:
    seconds = rows.groupBy(F.window("time", "1 second")).count()
    wide = F.window(F.window_time("window"), "4 seconds")
    return seconds.groupBy(wide).agg(F.sum("count")).select("window.start", "sum(count)")


def transform_with_state(rows: DataFrame) -> DataFrame:
    return rows.groupBy("k").transformWithStateInPandas(
        Counter(), "k long, seen long, total long", "Update", "none"
    )


def run(query: DataFrame, mode: str, checkpoint: Path, last: int) -> Output:
    """Run a query until a batch is committed. Return the rows of each batch."""
    output: Output = {}

    def take(rows: DataFrame, batch: int) -> None:
        output[batch] = sorted(map(tuple, rows.collect()))

    running = (
        query.writeStream.foreachBatch(take)
        .outputMode(mode)
        .option("checkpointLocation", str(checkpoint))
        .start()
    )
    try:

        def is_done() -> bool:
            if running.exception() is not None:
                raise running.exception()  # type: ignore[misc]
            return running.lastProgress is not None and running.lastProgress["batchId"] >= last

        until(is_done, f"batch {last}", seconds=240, pause_s=0.02)
    finally:
        running.stop()
    return output


CASES = [
    (aggregation, "update", "hdfs", MANAGER),
]
DEEP_CASES = [  # CI runs every second one; test_rewrite.py has the operators of the others
    (session_windows, "append", "hdfs", None),
    (windows, "append", "rocksdb", None),
    (drop_duplicates_within, "append", "rocksdb", MANAGER),
    (drop_duplicates, "append", "changelog", None),
    (transform_with_state, "update", "rocksdb", MANAGER),
    (join, "append", "hdfs", None),
    (self_join, "append", "hdfs", None),
    (aggregation, "complete", "rocksdb", None),
    (windows_of_windows, "append", FORMAT_2, MANAGER),
]


@pytest.fixture
def inputs(spark: SparkSession, tmp_path: Path) -> Inputs:
    return Inputs(spark, tmp_path)


@pytest.mark.parametrize(
    ("query", "mode", "provider", "manager"),
    [*CASES, *(pytest.param(*case, marks=pytest.mark.deep) for case in DEEP_CASES[::STATE_EVERY])],
)
def test_the_history_of_a_table(
    spark: SparkSession,
    inputs: Inputs,
    tmp_path: Path,
    query: Query,
    mode: str,
    provider: str,
    manager: str | None,
) -> None:
    """A query goes on as the one that has read the history as its first micro-batch."""
    own = session(spark, provider.partition(",")[0], manager)
    if provider == FORMAT_2:
        own.conf.set("spark.sql.streaming.stateStore.checkpointFormatVersion", "2")
    sources = 2 if query is join else 1
    history_of = own.read.schema(SCHEMA).parquet(str(inputs.file(0)))
    made = bootstrap(
        tmp_path / "new",
        lambda *rows: query(*map(late, rows)),
        from_=[history_of] * sources,
        output_mode=mode,
    )
    assert sum(made.rows) > 0
    assert history(tmp_path / "new").is_log_backed == (manager is not None)
    assert verify(tmp_path / "new").findings == []
    inputs.show("seen", 0)
    seen = query(*(inputs.stream(own, "seen") for _ in range(sources)))
    run(seen, mode, tmp_path / "expected", made.batch)
    for number in (1, 2, 3):
        inputs.show("seen", number)
        inputs.show("later", number)
    later = query(*(inputs.stream(own, "later") for _ in range(sources)))
    expected = run(seen, mode, tmp_path / "expected", made.batch + 3)
    found = run(later, mode, tmp_path / "new", made.batch + 3)
    assert any(expected.values())
    assert found == expected
    assert sorted(p.name for p in tmp_path.iterdir()) == [
        "expected",
        "files",
        "later",
        "new",
        "seen",
    ]


def test_the_history_of_the_same_source(
    spark: SparkSession, inputs: Inputs, tmp_path: Path
) -> None:
    """The sources continue where the history ends."""
    own = session(spark, "hdfs", None)
    inputs.show("seen", 0)
    inputs.show("seen", 1)
    query = aggregation(inputs.stream(own, "seen"))
    made = bootstrap(tmp_path / "new", query, output_mode="update")
    assert made.batch == 2  # the micro-batch of each file, and one without rows
    assert str(made) == (
        f"{tmp_path / 'new'} has the state of the history (10 rows); its query continues with "
        "batch 3"
    )
    run(query, "update", tmp_path / "expected", 2)
    inputs.show("seen", 2)
    found = run(query, "update", tmp_path / "new", 3)
    assert found == run(query, "update", tmp_path / "expected", 3)
    assert found[3]


@pytest.mark.deep
def test_a_history_in_micro_batches(spark: SparkSession, inputs: Inputs, tmp_path: Path) -> None:
    """A streaming DataFrame keeps its micro-batches; the offsets of the last two are removed."""
    own = session(spark, "rocksdb", MANAGER)
    for number in (0, 1, 2):
        inputs.show("seen", number)
    inputs.show("later", 3)
    made = bootstrap(
        tmp_path / "new", aggregation, from_=inputs.stream(own, "seen"), output_mode="update"
    )
    assert made.batch == 3
    assert [each.batch for each in history(tmp_path / "new").batches] == [2, 3]
    found = run(aggregation(inputs.stream(own, "later")), "update", tmp_path / "new", 4)
    seen = aggregation(inputs.stream(own, "seen"))
    run(seen, "update", tmp_path / "expected", 3)
    inputs.show("seen", 3)
    assert found == run(seen, "update", tmp_path / "expected", 4)
    assert found[4]


def test_sources_of_the_history_are_forgotten(
    spark: SparkSession, inputs: Inputs, tmp_path: Path
) -> None:
    """A file source would take the files of the history for its own."""
    own = session(spark, "hdfs", None)
    inputs.show("seen", 0)
    made = bootstrap(
        tmp_path / "new", aggregation, from_=inputs.stream(own, "seen"), output_mode="update"
    )
    assert sorted(p.name for p in (tmp_path / "new").iterdir() if p.is_dir()) == [
        "commits",
        "offsets",
        "state",
    ]
    assert history(tmp_path / "new").batches[-1].batch == made.batch


def test_columns_of_the_history_may_be_null(spark: SparkSession, tmp_path: Path) -> None:
    """As those of a live source: older versions of Spark compare this with the state's schema."""
    row = spark.range(1).select("id", F.array("id"), F.struct("id"))
    found: list[DataFrame] = []
    with pytest.raises(InvalidRequestError, match="must return a streaming DataFrame"):
        bootstrap(tmp_path / "new", found.append, from_=row)  # type: ignore[arg-type]
    assert "false" in row.schema.json()
    assert "false" not in found[0].schema.json()


@pytest.mark.deep
def test_a_column_of_another_type(spark: SparkSession, inputs: Inputs, tmp_path: Path) -> None:
    """Spark refuses to start the query, and shows both schemas."""
    own = session(spark, "hdfs", None)
    table = own.read.schema(SCHEMA).parquet(str(inputs.file(0)))
    narrow = table.withColumn("k", F.col("k").cast("int"))
    bootstrap(tmp_path / "new", aggregation, from_=narrow, output_mode="update")
    inputs.show("later", 1)
    with pytest.raises(StreamingQueryException) as raised:
        run(aggregation(inputs.stream(own, "later")), "update", tmp_path / "new", 1)
    text = str(raised.value)
    assert "STATE_STORE_KEY_SCHEMA_NOT_COMPATIBLE" in text
    assert "k,IntegerType" in text
    assert "k,LongType" in text


@pytest.mark.deep
def test_the_file_sink(spark: SparkSession, inputs: Inputs, tmp_path: Path) -> None:
    """As docs/state.md says, it needs a log of all batches from 0 on."""
    own = session(spark, "hdfs", None)
    own.conf.set("spark.sql.streaming.fileSink.log.compactInterval", "3")
    table = own.read.schema(SCHEMA).parquet(str(inputs.file(0)))
    made = bootstrap(tmp_path / "new", lambda rows: windows(late(rows)), from_=table)
    for number in (1, 2, 3):
        inputs.show("later", number)
    log = tmp_path / "output" / "_spark_metadata"
    log.mkdir(parents=True)

    def write() -> None:
        writer = windows(inputs.stream(own, "later")).writeStream.format("parquet")
        writer = writer.option("checkpointLocation", str(tmp_path / "new"))
        running = writer.trigger(availableNow=True).start(str(tmp_path / "output"))
        running.awaitTermination(120)

    with pytest.raises(StreamingQueryException, match="/_spark_metadata/0"):
        write()
    for batch in range(made.batch + 1):
        (log / (f"{batch}.compact" if batch % 3 == 2 else str(batch))).write_text("v1")
    write()
    written = own.read.parquet(str(tmp_path / "output")).agg(F.min("start"), F.sum("count")).first()
    assert written is not None
    assert written[0].timestamp() < 1_700_000_000  # the first windows have rows of the history
    assert written[1] > 240


@since((4, 3), "names of sources")
@pytest.mark.deep
def test_named_sources(spark: SparkSession, inputs: Inputs, tmp_path: Path) -> None:
    """The source has a name that the history doesn't know."""
    own = session(spark, "hdfs", None)
    own.conf.set("spark.sql.streaming.queryEvolution.enableSourceEvolution", "true")
    table = own.read.schema(SCHEMA).parquet(str(inputs.file(0)))
    made = bootstrap(tmp_path / "new", drop_duplicates, from_=[table], output_mode="append")
    later = own.readStream.name("orders").schema(SCHEMA).parquet(str(inputs.file(1)))
    found = run(drop_duplicates(later), "append", tmp_path / "new", made.batch + 1)
    both = own.read.schema(SCHEMA).parquet(*(str(inputs.file(number)) for number in (0, 1)))
    assert made.rows[0] + len(found[made.batch + 1]) == drop_duplicates(both).count()


@pytest.mark.timeout(60)
def test_timers_of_processing_time(spark: SparkSession, inputs: Inputs, tmp_path: Path) -> None:
    """Such a query runs micro-batches without rows forever."""
    own = session(spark, "rocksdb", None)

    def counted(rows: DataFrame) -> DataFrame:
        return rows.groupBy("k").transformWithStateInPandas(
            Counter(), "k long, seen long, total long", "Update", "processingTime"
        )

    table = own.read.schema(SCHEMA).parquet(str(inputs.file(0)))
    made = bootstrap(tmp_path / "new", counted, from_=table, output_mode="update")
    inputs.show("later", 1)
    later = counted(inputs.stream(own, "later"))
    found = run(later, "update", tmp_path / "new", made.batch + 1)
    assert [row[:2] for row in found[made.batch + 1]] == [(k, 12) for k in range(10)]


def _without_state(rows: DataFrame) -> DataFrame:
    return rows.where("k = 1")


def _failing(rows: DataFrame) -> DataFrame:
    return aggregation(rows.withColumn("k", F.raise_error(F.lit("no such order")).cast("long")))


REFUSED: list[tuple[str, Any, str, str]] = [
    ("a batch", "table", "update", "without from_, query must be a streaming DataFrame"),
    ("a function alone", aggregation, "update", "without from_, query must be a streaming"),
    ("None", "none", "update", "without from_, query must be a streaming DataFrame"),
    ("None as history", (aggregation, "none"), "update", "from_ must have DataFrames; got None"),
    ("no function", ("stream", "table"), "update", "with from_, query must be a function that"),
    ("no history", (aggregation, "no"), "update", "from_ is an empty list, so there is no h"),
    ("nothing", (lambda rows: None, "table"), "update", "must return a streaming DataFrame, made"),
    ("another", (lambda rows: rows.sparkSession.range(1), "table"), "update", "must return a str"),
    ("no state", (_without_state, "table"), "append", "keeps no state, so it needs no bootstrap"),
    ("mode", (aggregation, "table"), "append", "can't read the history: .*[aA]ppend"),
    ("unknown mode", (aggregation, "table"), "some", "can't read the history: .*some"),
    ("failing", (_failing, "table"), "update", "can't read the history: .*no such order"),
    ("empty", "empty", "append", "the history is empty: the query had nothing to read"),
]


@pytest.mark.parametrize(
    ("given", "mode", "message"), [pytest.param(*case, id=name) for name, *case in REFUSED]
)
def test_what_is_refused(
    spark: SparkSession, inputs: Inputs, tmp_path: Path, given: Any, mode: str, message: str
) -> None:
    own = session(spark, "hdfs", None)
    (tmp_path / "nothing").mkdir()
    frames: dict[str, Any] = {
        "no": [],
        "table": own.read.schema(SCHEMA).parquet(str(inputs.file(0))),
        "stream": aggregation(inputs.stream(own, "files")),
        "empty": inputs.stream(own, "nothing").dropDuplicates(["k"]),
        "none": None,
    }
    before = sorted(tmp_path.iterdir())
    query, from_ = given if isinstance(given, tuple) else (given, None)
    query = query if callable(query) else frames[query]
    histories = None if from_ is None else [] if from_ == "no" else [frames[from_]]
    with pytest.raises(InvalidRequestError, match=message):
        bootstrap(tmp_path / "new", query, from_=histories, output_mode=mode)
    assert sorted(tmp_path.iterdir()) == before


def test_a_target_that_exists(spark: SparkSession, tmp_path: Path) -> None:
    """The query doesn't run in vain."""
    with pytest.raises(InvalidRequestError, match="exists already: choose a new directory"):
        bootstrap(tmp_path, spark.range(1))
