"""State as a topic equals what Spark's own `statestore` source says of the same checkpoint."""

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from sparklog import checkpoint
from sparklog.state.session import MANAGER
from tests.state.operators import run, session

pytestmark = pytest.mark.spark

LAST = 5
STORES = {
    "join": ["left-keyWithIndexToValue", "left-keyToNumValues", "right-keyWithIndexToValue"],
    "transform_with_state": ["seen", "last"],
}
CASES = [
    ("aggregation", "hdfs", MANAGER),
    ("session_windows", "changelog", MANAGER),
    ("join", "hdfs", None),
    ("drop_duplicates", "changelog", None),
    ("transform_with_state", "changelog", MANAGER),
]
MORE = [
    ("aggregation", "changelog", None),
    ("windows", "changelog", None),
    ("session_windows", "hdfs", None),
    ("join", "changelog", MANAGER),
    ("drop_duplicates_within", "hdfs", MANAGER),
    ("pandas_with_state", "changelog", MANAGER),
    ("transform_with_state", "changelog", None),
]
_NAMES = {"update": "put", "delete": "delete", "append": "merge"}
Change = tuple[Any, ...]


def as_spark_says(spark: SparkSession, path: Path, name: str, is_family: bool) -> list[Change]:
    reader = spark.read.format("statestore").option("readChangeFeed", True)
    reader = reader.option("changeStartBatchId", 0).option("changeEndBatchId", LAST)
    frame = reader.option("stateVarName" if is_family else "storeName", name).load(str(path))
    return [
        (batch, partition, _NAMES[change], key, value)
        for batch, change, key, value, partition in frame.collect()
    ]


def ours(spark: SparkSession, path: Path, name: str, is_family: bool) -> DataFrame:
    reader = spark.read.format("sparklog").option("stateOperator", 0)
    option = "stateColumnFamily" if is_family else "stateStore"
    reader = reader.option(option, name).option("endingOffsets", LAST + 1)
    return reader.load(str(path)).select("batch", "partition", "change", "key", "value")


def in_order(changes: list[Change]) -> list[Change]:
    return sorted(changes, key=lambda c: (c[1], c[0]))  # stable: within a file as it is


@pytest.mark.parametrize(
    ("operator", "provider", "manager"),
    [*CASES, *(pytest.param(*case, marks=pytest.mark.slow) for case in MORE)],
)
def test_it_says_what_sparks_change_feed_says(
    spark: SparkSession, tmp_path: Path, operator: str, provider: str, manager: str | None
) -> None:
    path = tmp_path / "ckpt"
    own = session(spark, provider, manager)
    run(own, operator, path, {}, LAST)
    is_family = operator == "transform_with_state"
    total = 0
    for name in STORES.get(operator, ["default"]):
        wanted = as_spark_says(own, path, name, is_family)
        found = [tuple(row) for row in ours(spark, path, name, is_family).collect()]
        assert in_order(found) == in_order(wanted)
        by_arrow = checkpoint.changes(
            path,
            store="default" if is_family else name,
            column_family=name if is_family else None,
            end=LAST + 1,
        ).read_all()
        by_arrow.validate(full=True)
        in_turn = sorted(found, key=lambda c: c[:2])
        assert by_arrow.column("change").to_pylist() == [c[2] for c in in_turn]
        total += len(found)
    assert total
