"""State that was lost, and that the query has rebuilt from its sources."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from sparklog.checkpoint import diff, export, rebuild, unfinished_reset, verify
from sparklog.checkpoint.log_backed.layout import RESET
from sparklog.checkpoint.unfinished_reset import UnfinishedReset
from sparklog.errors import DataCorruptionError, InvalidRequestError
from sparklog.fs import LOCAL
from sparklog.session.setup import MANAGER
from tests.depth import STATE_EVERY
from tests.state.operators import session
from tests.state.test_bootstrap import (
    SCHEMA,
    Inputs,
    aggregation,
    drop_duplicates,
    join,
    late,
    run,
    session_windows,
    transform_with_state,
    windows,
)

pytestmark = pytest.mark.spark

AT = 2
Query = Callable[..., DataFrame]
UNMARKED = (aggregation, drop_duplicates)
"""Queries that read without a watermark."""
AT_ONCE, RECORDED = "in one micro-batch", f"in the recorded micro-batches 0 to {AT}"
CASES = [(aggregation, "update", "hdfs", MANAGER, AT_ONCE)]
DEEP_CASES: list[tuple[Query, str, str, str | None, str]] = [
    (windows, "append", "rocksdb", None, RECORDED),
    (session_windows, "append", "hdfs", None, RECORDED),
    (drop_duplicates, "append", "changelog", MANAGER, AT_ONCE),
    (join, "append", "hdfs", None, RECORDED),
    (transform_with_state, "update", "rocksdb", MANAGER, RECORDED),
]


@pytest.fixture
def inputs(spark: SparkSession, tmp_path: Path) -> Inputs:
    return Inputs(spark, tmp_path)


def reading(own: SparkSession, tmp_path: Path, query: Query) -> DataFrame:
    """The query over the files that are shown, a micro-batch for each."""
    files = own.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1)
    sources = [files.parquet(f"{tmp_path}/seen/*") for _ in range(2 if query is join else 1)]
    return query(*(sources if query in (*UNMARKED, first_seen) else map(late, sources)))


def quiet(spark: SparkSession, provider: str, manager: str | None) -> SparkSession:
    """A session without micro-batches that have no rows, so that tests know their number."""
    own = session(spark, provider, manager)
    own.conf.set("spark.sql.streaming.noDataMicroBatches.enabled", "false")
    return own


@pytest.mark.parametrize(
    ("query", "mode", "provider", "manager", "how"),
    [*CASES, *(pytest.param(*case, marks=pytest.mark.deep) for case in DEEP_CASES[::STATE_EVERY])],
)
def test_a_lost_partition(
    spark: SparkSession,
    inputs: Inputs,
    tmp_path: Path,
    query: Query,
    mode: str,
    provider: str,
    manager: str | None,
    how: str,
) -> None:
    own = quiet(spark, provider, manager)
    for number in range(AT + 1):
        inputs.show("seen", number)
    run(reading(own, tmp_path, query), mode, tmp_path / "ckpt", AT)
    shutil.copytree(tmp_path / "ckpt", tmp_path / "expected", symlinks=True)
    if manager is not None:
        export(tmp_path / "ckpt")  # a damaged record loses more than a partition
    shutil.rmtree(tmp_path / "ckpt/state/0/1")
    before = sorted(tmp_path.iterdir())
    done = rebuild(
        tmp_path / "ckpt", tmp_path / "new", reading(own, tmp_path, query), output_mode=mode,
        scratch=tmp_path,
    )  # fmt: skip
    assert sorted(tmp_path.iterdir()) == sorted([*before, tmp_path / "new"])
    assert done.lost == {0: [1]}
    assert (done.equal, done.how) == (1, how)
    inputs.show("seen", AT + 1)
    expected = run(reading(own, tmp_path, query), mode, tmp_path / "expected", AT + 1)
    found = run(reading(own, tmp_path, query), mode, tmp_path / "new", AT + 1)
    assert found == expected
    assert found[AT + 1]


@pytest.fixture
def ran(spark: SparkSession, inputs: Inputs, tmp_path: Path) -> Callable[..., Path]:
    """Runs an aggregation until a batch is committed."""

    def run_it(last: int = 1, query: Query = aggregation, mode: str = "update") -> Path:
        for number in range(last + 1):
            inputs.show("seen", number)
        own = quiet(spark, "hdfs", None)
        run(reading(own, tmp_path, query), mode, tmp_path / "ckpt", last)
        return tmp_path / "ckpt"

    return run_it


def truncate(path: Path) -> None:
    delta = path / "state/0/1/2.delta"
    delta.write_bytes(delta.read_bytes()[:-40])


def remove_all_state(path: Path) -> None:
    for directory in ("0", "1"):
        shutil.rmtree(path / "state/0" / directory)


def remove_the_schema(path: Path) -> None:
    """Remove partition 0, which has the schema file of the store."""
    shutil.rmtree(path / "state/0/0")


def duplicate(path: Path) -> None:
    """Give partition 1 the files of partition 0."""
    for file in (path / "state/0/0").glob("*.delta"):
        shutil.copy(file, path / "state/0/1")


@pytest.mark.parametrize(
    ("damage", "lost", "equal"),
    [
        (truncate, [1], 1),
        (remove_the_schema, [0], 1),
        pytest.param(remove_all_state, [0, 1], 0, marks=pytest.mark.deep),
        pytest.param(duplicate, [1], 1, marks=pytest.mark.deep),
    ],
)
def test_damage(
    spark: SparkSession,
    ran: Callable[..., Path],
    tmp_path: Path,
    damage: Callable[[Path], None],
    lost: list[int],
    equal: int,
) -> None:
    path = ran()
    shutil.copytree(path, tmp_path / "whole")
    damage(path)
    query = reading(quiet(spark, "hdfs", None), tmp_path, aggregation)
    done = rebuild(path, tmp_path / "new", query, output_mode="update")
    assert (done.lost, done.equal) == ({0: lost}, equal)
    assert str(done).endswith(
        f"partitions {', '.join(map(str, lost))} of operator 0 were rebuilt in one micro-batch; "
        f"the {equal} partitions that were left are equal"
    )
    assert diff(tmp_path / "whole", tmp_path / "new", spark=spark).is_equal


@pytest.mark.deep
def test_a_damaged_record(spark: SparkSession, inputs: Inputs, tmp_path: Path) -> None:
    """The repair of a log-backed checkpoint removes the record, and the query computes it again."""
    own, path = quiet(spark, "hdfs", MANAGER), tmp_path / "ckpt"
    for number in range(AT + 1):
        inputs.show("seen", number)
    query = reading(own, tmp_path, aggregation)
    run(query, "update", path, AT)
    shutil.copytree(path, tmp_path / "whole")
    (log,) = path.glob("sparklog/state.0.default-1/*.log")
    data = log.read_bytes()
    middle = len(data) // 2
    log.write_bytes(data[:middle] + bytes(60) + data[middle + 60 :])
    with pytest.raises(DataCorruptionError, match="verify PATH --repair"):
        rebuild(path, tmp_path / "new", query, output_mode="update")
    verify(path, repair=True)
    done = rebuild(path, tmp_path / "new", query, output_mode="update")
    assert done.lost == {0: [1]}
    assert diff(tmp_path / "whole", tmp_path / "new", spark=own).is_equal


def first_seen(rows: DataFrame) -> DataFrame:
    timed = rows.withColumn("at", F.current_timestamp())
    return timed.groupBy("k").agg(F.min("at"), F.collect_list("value"))


@pytest.mark.deep
def test_times_of_micro_batches(
    spark: SparkSession, ran: Callable[..., Path], tmp_path: Path
) -> None:
    """State without a watermark that depends on micro-batches: the recorded ones run again."""
    path = ran(1, first_seen)
    shutil.copytree(path, tmp_path / "whole")
    shutil.rmtree(path / "state/0/1")
    query = reading(quiet(spark, "hdfs", None), tmp_path, first_seen)
    done = rebuild(path, tmp_path / "new", query, output_mode="update")
    assert (done.equal, done.how) == (1, "in the recorded micro-batches 0 to 1")
    assert diff(tmp_path / "whole", tmp_path / "new", spark=spark).is_equal


@pytest.mark.deep
def test_plans_that_spark_has_removed(
    spark: SparkSession, ran: Callable[..., Path], tmp_path: Path
) -> None:
    """A micro-batch without a watermark stands for the first ones."""
    path = ran(AT, windows, "append")
    shutil.copytree(path, tmp_path / "whole")
    for name in ("offsets/0", "commits/0"):
        (path / name).unlink()
    shutil.rmtree(path / "state/0/1")
    query = reading(quiet(spark, "hdfs", None), tmp_path, windows)
    done = rebuild(path, tmp_path / "new", query)
    assert done.how == "in one micro-batch up to batch 1, and in the recorded ones after it"
    assert diff(tmp_path / "whole", tmp_path / "new", spark=spark).is_equal


def test_what_is_refused(
    spark: SparkSession, ran: Callable[..., Path], inputs: Inputs, tmp_path: Path
) -> None:
    path = ran()
    own = quiet(spark, "hdfs", None)
    query = reading(own, tmp_path, aggregation)

    def refused(message: str, query: DataFrame = query, **given: Any) -> None:
        with pytest.raises(InvalidRequestError, match=message):
            rebuild(path, tmp_path / "new", query, output_mode="update", **given)
        assert not (tmp_path / "new").exists()

    refused("all state after batch 1 can be read, so there is nothing to rebuild")
    note = UnfinishedReset(output=str(tmp_path / "output"), batch=1, time_ms=0)
    unfinished_reset.write(LOCAL, str(path), note)
    refused("a reset of the checkpoint is unfinished: run the same reset again first")
    (path / RESET).unlink()
    refused("scratch must be a directory here; got s3a://bucket", scratch="s3a://bucket")
    refused("batch 7 is not committed; committed batches: 0 to 1", to=7)
    shutil.rmtree(path / "state/0/1")
    other = aggregation(
        own.readStream.schema(SCHEMA).parquet(f"{tmp_path}/seen/*").where("value % 2 = 0")
    )
    refused(
        "the rebuilt state of operator 0 differs from the state that is left, in partitions 0",
        other,
    )
    stateless = own.readStream.schema(SCHEMA).parquet(f"{tmp_path}/seen/*")
    refused(r"has the stateful operators \[\], and the checkpoint has \[0\]: use the", stateless)
    (tmp_path / "seen/0").unlink()
    inputs.file(0).rename(tmp_path / "gone")
    refused("operator 0 differs from the state that is left, in partitions 0")
