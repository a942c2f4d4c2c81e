"""Stateful queries on checkpoints that are logs give what they give on Spark's own, restarts too."""

from functools import cache
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from sparklog.state.session import MANAGER
from tests.state.operators import OPERATORS, Output, run, session

pytestmark = pytest.mark.spark

LAST = 7
CASES = [
    *((operator, "changelog") for operator in OPERATORS),
    *((o, "hdfs") for o in OPERATORS if o != "transform_with_state"),
    ("aggregation", "rocksdb"),
    ("transform_with_state", "rocksdb"),
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
    for until in (3, LAST):
        run(ours, operator, tmp_path / "ckpt", output, until)
    wanted = expected(operator)  # type: ignore[operator]
    assert {n: output[n] for n in range(LAST + 1)} == {n: wanted[n] for n in range(LAST + 1)}
    assert any(wanted[n] for n in range(LAST + 1))
    stray = [p for p in (tmp_path / "ckpt").rglob("*") if p.is_file() and "sparklog" not in p.parts]
    assert all(p.suffix in (".zip", ".sst", ".crc", ".log") for p in stray), stray
