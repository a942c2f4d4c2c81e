"""Queries with log-backed checkpoints, forked and reset to random batches: they compute the same."""

import random
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from sparklog import checkpoint
from sparklog.errors import LogLockedError
from sparklog.state.session import MANAGER
from tests.state.operators import OPERATORS, Output, run, session, start

pytestmark = pytest.mark.spark

LAST = 7


def check(spark: SparkSession, home: Path, operator: str, provider: str, rounds: int) -> None:
    """`run` itself asserts that a batch which is computed again gives the rows it gave."""
    rng = random.Random(f"{operator}/{provider}")
    ours = session(spark, provider, MANAGER)
    output: Output = {}
    path, last = home / "ckpt", LAST
    run(ours, operator, path, output, last)
    for turn in range(rounds):
        reachable = [row.batch for row in checkpoint.history(path).batches if row.obstacle is None]
        assert reachable, checkpoint.history(path)
        batch = rng.choice(reachable)
        if turn % 2:
            checkpoint.reset(path, to=batch)
        else:
            made = checkpoint.fork(path, home / f"fork{turn}", to=batch)
            path = Path(made.new_path)
        assert checkpoint.verify(path).ok, checkpoint.verify(path)
        last = batch + rng.randrange(1, LAST)
        run(ours, operator, path, output, last)
    expected: Output = {}
    run(session(spark, provider, None), operator, home / "expected", expected, max(output))
    assert output == {batch: expected[batch] for batch in output}


@pytest.mark.parametrize(
    ("operator", "provider"),
    [("aggregation", "hdfs"), ("join", "changelog"), ("transform_with_state", "changelog")],
)
def test_forks_and_resets(
    spark: SparkSession, tmp_path: Path, operator: str, provider: str
) -> None:
    check(spark, tmp_path, operator, provider, 2)


@pytest.mark.slow
@pytest.mark.parametrize("provider", ["hdfs", "rocksdb", "changelog"])
@pytest.mark.parametrize("operator", OPERATORS)
def test_many_forks_and_resets(
    spark: SparkSession, tmp_path: Path, operator: str, provider: str
) -> None:
    if (operator, provider) == ("transform_with_state", "hdfs"):
        pytest.skip("Spark's transformWithState takes the RocksDB provider alone")
    check(spark, tmp_path, operator, provider, 8)


def test_not_while_it_runs(spark: SparkSession, tmp_path: Path) -> None:
    """A reset would pull the checkpoint from under the query; a fork leaves it alone."""
    output: Output = {}
    query = start(session(spark, "hdfs", MANAGER), "aggregation", tmp_path / "ckpt", output)
    try:
        while len(output) < 4:
            assert query.isActive, query.exception()
        with pytest.raises(LogLockedError):
            checkpoint.reset(tmp_path / "ckpt", to=1)
        checkpoint.fork(tmp_path / "ckpt", tmp_path / "fork", to=1)
    finally:
        query.stop()
    assert checkpoint.history(tmp_path / "fork").batches[-1].batch == 1
    assert checkpoint.reset(tmp_path / "ckpt", to=1).batch == 1
