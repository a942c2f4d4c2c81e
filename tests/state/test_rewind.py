"""Queries that go back, by fork and reset, compute again what they had computed."""

import random
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest import mock

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming import StreamingQuery

import sparklog
from sparklog.checkpoint import export, fork, history, import_, reset, verify
from sparklog.clock import system_clock
from sparklog.errors import LogLockedError
from sparklog.session.setup import MANAGER
from sparklog.sink import SegmentSink, close
from tests import depth
from tests.state.operators import OPERATORS, PROVIDERS, Output, run, session, source, start

pytestmark = pytest.mark.spark

LAST = 6
CASES = [
    ("aggregation", "changelog", None),
    pytest.param("join", "hdfs", MANAGER, marks=pytest.mark.deep),
    pytest.param("transform_with_state", "changelog", MANAGER, marks=pytest.mark.deep),
]


@contextmanager
def impatient() -> Iterator[None]:
    """Where a query runs: it doesn't let go of its lock."""
    with mock.patch("sparklog.checkpoint.log_backed.lock.RELEASE_MS", 100):
        yield


def later() -> int:
    """The machine's clock, past the time in which an uncommitted batch may be under way."""
    return system_clock() + 10_000


def go_back(
    spark: SparkSession, path: Path, operator: str, provider: str, manager: str | None, *, seed: int
) -> None:
    rng = random.Random(seed)
    own = session(spark, provider, manager)
    if provider == "changelog":
        own.conf.set("spark.sql.streaming.stateStore.rocksdb.minDeltasForSnapshot", "3")
    output: Output = {}
    run(own, operator, path / "ckpt", output, LAST)
    first = dict(output)
    assert any(first.values())
    at = rng.randint(0, LAST - 2)
    fork(path / "ckpt", path / "forked", to=at)
    for name, batch in (("ckpt", rng.randint(0, LAST - 2)), ("forked", 0)):
        if name == "ckpt":
            reset(path / name, to=batch, clock=later)
        assert verify(path / name).findings == []
        ends = [row.batch for row in history(path / name).batches]
        assert ends[-1] == (batch if name == "ckpt" else at)
        again = dict(first)  # every batch is to give the same
        run(own, operator, path / name, again, LAST)
        assert {n: again[n] for n in first} == first
        assert not [f for f in verify(path / name).findings if f.severity == "damage"]


@pytest.mark.parametrize(("operator", "provider", "manager"), CASES)
def test_back_to_a_batch(
    spark: SparkSession, tmp_path: Path, operator: str, provider: str, manager: str | None
) -> None:
    go_back(spark, tmp_path, operator, provider, manager, seed=1)


@pytest.mark.slow
@pytest.mark.parametrize("seed", depth.SLOW_REWIND_SEEDS)
@pytest.mark.parametrize("manager", [None, MANAGER], ids=["files", "records"])
@pytest.mark.parametrize("provider", PROVIDERS)
@pytest.mark.parametrize("operator", OPERATORS)
def test_back_to_random_batches(
    spark: SparkSession,
    tmp_path: Path,
    operator: str,
    provider: str,
    manager: str | None,
    seed: int,
) -> None:
    if (operator, provider) == ("transform_with_state", "hdfs"):
        pytest.skip("it wants RocksDB")
    go_back(spark, tmp_path, operator, provider, manager, seed=seed)


@pytest.mark.deep
def test_a_running_query_is_forked_but_not_reset(spark: SparkSession, tmp_path: Path) -> None:
    own = session(spark, "changelog", MANAGER)
    output: Output = {}
    run(own, "aggregation", tmp_path / "ckpt", output, 3)
    query = start(own, "aggregation", tmp_path / "ckpt", output)
    try:
        while query.lastProgress is None:  # it takes the lock with its first batch
            assert query.exception() is None
        with impatient(), pytest.raises(LogLockedError, match="a query runs"):
            reset(tmp_path / "ckpt", to=2)
        for number in range(3):
            fork(tmp_path / "ckpt", tmp_path / f"fork-{number}", to=2 + number % 2)
            assert query.exception() is None
    finally:
        query.stop()
    for number in range(3):
        again = dict(output)
        run(own, "aggregation", tmp_path / f"fork-{number}", again, 5)


@pytest.mark.deep
def test_a_query_that_waits_for_data_runs_as_well(spark: SparkSession, tmp_path: Path) -> None:
    """It has read where it is to go on, so that a reset now would be a gap in its plans."""
    own = session(spark, "changelog", MANAGER)
    files, path = tmp_path / "in", tmp_path / "ckpt"
    files.mkdir()
    for number in range(4):
        (files / f"{number}.csv").write_text(f"{number}\n")

    def begin() -> StreamingQuery:
        rows = own.readStream.schema("v int").option("maxFilesPerTrigger", 1).csv(str(files))
        writer = rows.groupBy("v").count().writeStream.format("noop").outputMode("update")
        return writer.option("checkpointLocation", str(path)).start()

    query = begin()
    query.processAllAvailable()
    query.stop()
    query = begin()
    try:
        query.processAllAvailable()  # nothing, but it is past its start
        with impatient(), pytest.raises(LogLockedError, match="a query runs"):
            reset(path, to=1)
        (files / "9.csv").write_text("9\n")
        query.processAllAvailable()
    finally:
        query.stop()
    assert [row.batch for row in history(path).batches] == [0, 1, 2, 3, 4]
    assert reset(path, to=1).batches == [2, 3, 4]


@pytest.mark.deep
def test_import_and_export_of_a_query(spark: SparkSession, tmp_path: Path) -> None:
    """Spark's own manager, then records, then files again."""
    output: Output = {}
    path = tmp_path / "ckpt"
    run(session(spark, "changelog", None), "aggregation", path, output, 2)
    import_(path, clock=later)
    run(session(spark, "changelog", MANAGER), "aggregation", path, output, 5)
    kept = [p for p in path.rglob("*") if p.is_file() and "sparklog" not in p.parts]
    assert {p.suffix for p in kept if p != path / "metadata"} <= {".zip", ".sst", ".crc", ".tmp"}
    export(path)
    run(session(spark, "changelog", None), "aggregation", path, output, 7)
    assert sorted(output)[:8] == list(range(8))
    assert verify(path).ok


@pytest.mark.deep
def test_the_log_goes_back_as_well(spark: SparkSession, tmp_path: Path) -> None:
    own = session(spark, "changelog", MANAGER)
    log, path = str(tmp_path / "log"), tmp_path / "ckpt"

    def go(path: Path, log: str, until: int) -> None:
        frame = source(own).groupBy("k").agg(F.sum("value").alias("sum"))
        rows = frame.select(
            F.concat_ws(" ", "k", "sum").alias("value"), F.lit(0).alias("partition")
        )
        sink = SegmentSink(log, "sums")
        batches: list[int] = []

        def write(batch_rows: DataFrame, batch: int) -> None:
            sink(batch_rows.orderBy("value"), batch)
            batches.append(batch)

        query = (
            rows.writeStream.foreachBatch(write)
            .outputMode("update")
            .option("checkpointLocation", str(path))
            .trigger(processingTime="0 seconds")
            .start()
        )
        try:
            while until not in batches:
                if query.exception() is not None:
                    raise query.exception()  # type: ignore[misc]
        finally:
            query.stop()
            close(log)

    def written(log: str) -> list[str]:
        with sparklog.open(log) as opened:
            return [str(v) for v in opened.read("sums").read_all().column("value").to_pylist()]

    go(path, log, 4)
    first = written(log)
    a_batch = 10
    new = str(tmp_path / "log2")
    fork(path, tmp_path / "ckpt2", to=2, log=log, new_log=new)
    assert written(new) == first[: 3 * a_batch]
    go(tmp_path / "ckpt2", new, 4)
    assert written(new)[: 5 * a_batch] == first[: 5 * a_batch]
    reset(path, to=2, log=log)
    go(path, log, 4)
    again = written(log)
    assert again[: len(first)] == first
    assert again[len(first) :][: 2 * a_batch] == first[3 * a_batch : 5 * a_batch]
