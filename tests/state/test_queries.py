"""Stateful queries on checkpoints that are logs give what they give on Spark's own managers."""

from functools import cache
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from sparklog.session.setup import MANAGER
from tests.state.operators import OPERATORS, PROVIDERS, Output, run, session

pytestmark = pytest.mark.spark

LAST = 5
QUICK = {
    **dict.fromkeys(OPERATORS, "hdfs"),
    "aggregation": "rocksdb",
    "join": "changelog",
    "pandas_with_state": "changelog",
    "transform_with_state": "changelog",
}


def case(operator: str, provider: str) -> object:
    """A quick one, or one of the slow suite."""
    # The others are like it, or have their state looked at (test_changes).
    deep = operator != "aggregation"
    kind = pytest.mark.deep if deep else ()
    marks = kind if QUICK[operator] == provider else pytest.mark.slow
    return pytest.param(operator, provider, marks=marks)


CASES = [
    case(operator, provider)
    for operator in OPERATORS
    for provider in PROVIDERS
    if (operator, provider) != ("transform_with_state", "hdfs")  # Spark takes RocksDB alone for it
]


@pytest.fixture(scope="module")
def expected(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> object:
    """What an operator gives with Spark's own manager, batch by batch."""

    @cache
    def by(operator: str) -> Output:
        output: Output = {}
        provider = "changelog" if operator == "transform_with_state" else "hdfs"
        checkpoint = tmp_path_factory.mktemp("expected") / "ckpt"
        run(session(spark, provider, None), operator, checkpoint, output, LAST)
        return output

    return by


@pytest.mark.parametrize(("operator", "provider"), CASES)
def test_same_output(
    spark: SparkSession, tmp_path: Path, expected: object, operator: str, provider: str
) -> None:
    output: Output = {}
    ours = session(spark, provider, MANAGER)
    for until in (2, LAST):
        run(ours, operator, tmp_path / "ckpt", output, until)
    wanted = expected(operator)  # type: ignore[operator]
    assert {n: output[n] for n in range(LAST + 1)} == {n: wanted[n] for n in range(LAST + 1)}
    assert any(wanted[n] for n in range(LAST + 1))
    stray = [p for p in (tmp_path / "ckpt").rglob("*") if p.is_file() and "sparklog" not in p.parts]
    marks = [p for p in stray if p.name == "metadata" and p.parent == tmp_path / "ckpt"]
    assert len(marks) == 1
    kept = [p for p in stray if p not in marks]
    assert all(p.suffix in (".zip", ".sst", ".crc", ".log") for p in kept), kept
