"""Joins whose state has column families: formats 3 (since Spark 4.1) and 4 (since 4.3)."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from sparklog.checkpoint import diff, erase, fork, rewrite
from sparklog.errors import InvalidRequestError
from tests.state.operators import OTHERS, Output, rows_reported, run, session, source

pytestmark = pytest.mark.spark

AT, LAST = 3, 6
FORMAT = "spark.sql.streaming.join.stateFormatVersion"
IDS = "spark.sql.streaming.stateStore.checkpointFormatVersion"
Query = Callable[..., Output]


def _outer(spark: SparkSession) -> tuple[DataFrame, str]:
    """A join whose state has matched and unmatched rows, several for a key, and is evicted."""
    left = source(spark).withColumn("v", F.expr("value % 50")).alias("a")
    right = source(spark, 13).where("value % 3 = 0").withColumn("v", F.expr("value % 50"))
    near = F.expr(
        "a.v = b.v and b.timestamp between a.timestamp - interval 4 seconds "
        "and a.timestamp + interval 4 seconds"
    )
    joined = left.join(right.alias("b"), near, "left_outer")
    return joined.select("a.value", "a.v", "b.value", "b.k"), "append"


def _skewed(spark: SparkSession) -> tuple[DataFrame, str]:
    """A full join with rows of a single key, rows with a null key, and a side without rows."""
    skewed = source(spark).withColumn("v", F.expr("if(value % 4 = 0, null, -0.0D)")).alias("a")
    # A condition on the event time comes after the watermark, which goes on with the dropped rows.
    empty = source(spark).where("year(timestamp) < 2000").withColumn("v", F.lit(0.0)).alias("b")
    near = F.expr(
        "a.v = b.v and b.timestamp between a.timestamp - interval 4 seconds "
        "and a.timestamp + interval 4 seconds"
    )
    return skewed.join(empty, near, "full_outer").select("a.value", "a.v", "b.value"), "append"


def same(rows: DataFrame) -> DataFrame:
    return rows


def timed(rows: DataFrame) -> DataFrame:
    time = F.unix_micros("value.timestamp")
    return rows.withColumn("key", F.col("key").withField("__event_time", time))


@pytest.fixture
def query(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> Query:
    """Runs the join in a checkpoint, with a state format, until a batch, and returns its output."""
    monkeypatch.setitem(OTHERS, "outer", _outer)
    monkeypatch.setitem(OTHERS, "skewed", _skewed)

    def run_it(
        path: Path, format: str, last: int, output: Output | None = None, of: str = "outer"
    ) -> Output:
        own = session(spark, "rocksdb", None)
        given: Output = {} if output is None else output
        try:
            own.conf.set(FORMAT, format)
            if format == "4":  # state files whose names have ids, and which commits name
                own.conf.set(IDS, "2")
            run(own, of, path, given, last)
        except Exception as error:
            if "Valid versions are" in str(error) or "is under development" in str(error):
                pytest.skip(f"this Spark has no join with state format {format}")
            raise
        return given

    return run_it


def _counts(spark: SparkSession, path: Path, side: str) -> list[Any]:
    own = session(spark, "rocksdb", None)
    own.conf.set(IDS, "2")
    reader = own.read.format("statestore").option("path", str(path)).option("joinSide", side)
    return sorted(map(tuple, reader.load().groupBy("value.v").count().collect()))


@pytest.mark.deep
@pytest.mark.parametrize(
    ("format", "functions"), [("3", None), ("4", {"left": same, "right": same})]
)
def test_joins_with_column_families(
    spark: SparkSession, query: Query, tmp_path: Path, format: str, functions: Any
) -> None:
    """The query continues as if it had always had 3 partitions, or rows of a function."""
    path = tmp_path / "ckpt"
    expected = query(path, format, LAST)
    assert any(row[2] is None for rows in expected.values() for row in rows)
    report = rewrite(path, tmp_path / "new", to=AT, partitions=3, with_=functions, spark=spark)
    (each,) = report.operators
    assert len(each.rows_after) == 3
    assert sum(each.rows_after) == sum(each.rows_before) > 0
    assert diff(path, tmp_path / "new", batch=AT, spark=spark).is_equal
    query(tmp_path / "new", format, LAST, expected)


@pytest.mark.deep
@pytest.mark.parametrize("format", ["2", "4"])
def test_a_key_with_all_rows(
    spark: SparkSession, query: Query, tmp_path: Path, format: str
) -> None:
    """Null keys, a negative zero as key, and a side without rows."""
    path = tmp_path / "ckpt"
    expected = query(path, format, LAST, of="skewed")
    assert any(row[1] is None for rows in expected.values() for row in rows), expected
    both = {"left": same, "right": same}
    done = rewrite(path, tmp_path / "new", to=AT, partitions=3, with_=both, spark=spark)
    rows = list(done.operators[0].families.values())
    assert all(before == after for before, after in rows)
    assert {after > 0 for _, after in rows} == {True, False}
    assert diff(path, tmp_path / "new", batch=AT, spark=spark).is_equal
    query(tmp_path / "new", format, LAST, expected, of="skewed")


@pytest.mark.deep
@pytest.mark.parametrize("format", ["4"])
def test_rows_are_erased(spark: SparkSession, query: Query, tmp_path: Path, format: str) -> None:
    path = tmp_path / "ckpt"
    query(path, format, AT)
    done = erase(path, tmp_path / "new", "value.v % 2 = 0", spark=spark)
    assert done.not_examined == []
    assert set(done.rows) == {"operator 0, left", "operator 0, right"}
    for side in ("left", "right"):
        gone, left = done.rows[f"operator 0, {side}"]
        kept = [row for row in _counts(spark, path, side) if row[0] % 2 == 1]
        assert gone > 0
        assert _counts(spark, tmp_path / "new", side) == kept
        assert sum(row[1] for row in kept) == left
    later = query(tmp_path / "new", format, LAST)
    assert sorted(later) == [4, 5, 6]


@pytest.mark.parametrize(
    ("format", "function"), [("3", same), pytest.param("4", timed, marks=pytest.mark.deep)]
)
def test_another_state_format(
    spark: SparkSession, query: Query, tmp_path: Path, format: str, function: Any
) -> None:
    """Functions move the rows to the template's format; without them the rows would be lost."""
    path, template = tmp_path / "ckpt", tmp_path / "template"
    expected = query(path, "2", LAST)
    query(template, format, 0)
    for functions in (None, {"left": function}):
        with pytest.raises(InvalidRequestError, match="another state format: set with_ to functio"):
            rewrite(
                path, tmp_path / "new", to=AT, template=template, with_=functions, spark=spark
            )
    both: Any = {"left": function, "right": function}
    done = rewrite(path, tmp_path / "new", to=AT, template=template, with_=both, spark=spark)
    for before, after in done.operators[0].families.values():
        assert before == after > 0
    assert len(done.operators[0].families) == 2
    query(tmp_path / "new", "2", LAST, expected)
    assert (tmp_path / "new/state/0/_stateSchema/default").is_dir()


@pytest.mark.deep
@pytest.mark.parametrize("format", ["3", "4"])
def test_the_number_of_rows(
    spark: SparkSession, query: Query, tmp_path: Path, format: str
) -> None:
    """Spark does not count the rows of an index, before and after."""
    path = tmp_path / "ckpt"
    query(path, format, AT)
    rewrite(path, tmp_path / "new", to=AT, with_={"left": same, "right": same}, spark=spark)
    fork(path, tmp_path / "old", to=AT)
    own = session(spark, "rocksdb", None)
    old, new = (rows_reported(own, "outer", tmp_path / each) for each in ("old", "new"))
    assert old == new > 0
