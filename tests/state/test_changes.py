"""State as a topic equals what Spark's own `statestore` source says of the same checkpoint."""

import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.stateful_processor import StatefulProcessor

from sparklog import checkpoint
from sparklog.errors import InvalidRequestError
from sparklog.session.setup import MANAGER
from tests.state.operators import OPERATORS, run, session, source

pytestmark = pytest.mark.spark

LAST = 5
STORES = {
    "join": ["left-keyWithIndexToValue", "left-keyToNumValues", "right-keyWithIndexToValue"],
    "transform_with_state": ["seen", "last"],
}
CASES = [
    pytest.param("aggregation", "hdfs", MANAGER, marks=pytest.mark.deep),
    pytest.param("join", "hdfs", None, marks=pytest.mark.deep),
    pytest.param("transform_with_state", "changelog", MANAGER, marks=pytest.mark.deep),
]
MORE = [
    ("session_windows", "changelog", MANAGER),
    ("drop_duplicates", "changelog", None),
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


def as_spark_says(
    spark: SparkSession, path: Path, name: str, is_family: bool, last: int = LAST
) -> list[Change]:
    reader = spark.read.format("statestore").option("readChangeFeed", True)
    reader = reader.option("changeStartBatchId", 0).option("changeEndBatchId", last)
    frame = reader.option("stateVarName" if is_family else "storeName", name).load(str(path))
    return [
        (batch, partition, _NAMES[change], key, value)
        for batch, change, key, value, partition in frame.collect()
    ]


def ours(
    spark: SparkSession, path: Path, name: str, is_family: bool, last: int = LAST
) -> DataFrame:
    reader = spark.read.format("sparklog").option("stateOperator", 0)
    option = "stateColumnFamily" if is_family else "stateStore"
    reader = reader.option(option, name).option("endingOffsets", last + 1)
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


@pytest.mark.deep
def test_changes_of_rocksdb_begin_once_it_writes_changelogs(
    spark: SparkSession, tmp_path: Path
) -> None:
    path, own = tmp_path / "ckpt", session(spark, "rocksdb", None)
    run(own, "aggregation", path, {}, 2)
    with pytest.raises(InvalidRequestError, match="To read changes, set ") as caught:
        checkpoint.changes(path)
    key, _, value = str(caught.value).partition("changes, set ")[2].split()[0].partition("=")
    begun = checkpoint.history(path).batches[-1].batch + 1
    own.conf.set(key, value)
    run(own, "aggregation", path, {}, begun + 2)
    batches = checkpoint.changes(path).read_all().column("batch").to_pylist()
    assert min(batches) >= begun - 1  # its next batch, which may be the one that was cut off
    assert max(batches) >= begun + 2


TYPES = {
    "a": "cast(value - 9 as byte)",
    "b": "cast(value - 9 as short)",
    "c": "cast(value - 9 as int)",
    "d": "value - 9",
    "e": "cast(value / 7 as float)",
    "f": "-value / 7",
    "g": "value % 3 = 0",
    "h": "repeat('ö', int(value) % 9)",
    "i": "cast(repeat('x', int(value) % 9) as binary)",
    "j": "cast(value / -3 as decimal(12, 2))",
    "l": "cast(concat(value - 9, repeat('7', 20), '.5') as decimal(38, 10))",
    "m": "date_add(date'1969-12-30', int(value))",
    "n": "timestamp",
    "o": "cast(timestamp as timestamp_ntz)",
    "p": "make_dt_interval(0, 0, 0, value)",
    "q": "if(value % 3 = 0, null, string(value))",
    "r": "array(value, null, 3)",
    "s": "map(string(value), array(value), 'n', null)",
    "t": "named_struct('x', array(named_struct('y', string(value), 'z', value < 9)), 'w', null)",
}


@pytest.mark.parametrize("provider", ["hdfs", pytest.param("changelog", marks=pytest.mark.deep)])
@pytest.mark.deep
def test_types(spark: SparkSession, tmp_path: Path, provider: str) -> None:
    def typed(spark: SparkSession) -> tuple[DataFrame, str]:
        rows = source(spark).selectExpr(*(f"{text} as {name}" for name, text in TYPES.items()))
        firsts = [F.first(name) for name in TYPES]
        return rows.groupBy(F.struct("h", "j").alias("key"), F.col("q").alias("k")).agg(
            *firsts
        ), "update"

    path, own = tmp_path / "ckpt", session(spark, provider, None)
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(OPERATORS, "typed", typed)
        run(own, "typed", path, {}, 1)
    wanted = as_spark_says(own, path, "default", False, last=1)
    found = [tuple(row) for row in ours(spark, path, "default", False, last=1).collect()]
    assert in_order(found) == in_order(wanted)
    assert len(found) == 40


class Timed(StatefulProcessor):
    """A map, a value and a list that expire, a timer: families with keys of every layout."""

    def init(self, handle: Any) -> None:
        self._handle = handle
        self._sums = handle.getMapState("sums", "name string", "sum long")
        self._seen = handle.getValueState("seen", "n long", ttlDurationMs=3_600_000)
        self._last = handle.getListState("last", "v long", ttlDurationMs=3_600_000)

    def handleInputRows(
        self, key: Any, rows: Iterable[pd.DataFrame], timerValues: Any
    ) -> Iterator[pd.DataFrame]:
        values = [int(v) for frame in rows for v in frame["value"]]
        now = timerValues.getCurrentProcessingTimeInMs()
        self._handle.registerTimer(now + 3_600_000 + key[0])
        self._sums.updateValue((f"odd{values[0] % 2}",), (sum(values),))
        self._sums.updateValue((f"gone{values[0]}",), (0,))
        self._sums.removeKey((f"gone{values[0]}",))
        self._seen.update((len(values),))
        self._last.put([(v,) for v in values])
        yield pd.DataFrame({"k": [key[0]], "n": [len(values)]})

    def close(self) -> None:
        pass


def timed(spark: SparkSession) -> tuple[DataFrame, str]:
    return source(spark).groupBy("k").transformWithStateInPandas(
        Timed(), "k long, n long", "Update", "ProcessingTime"
    ), "update"


@pytest.mark.deep
def test_maps_timers_and_what_expires(spark: SparkSession, tmp_path: Path) -> None:
    path, own = tmp_path / "ckpt", session(spark, "changelog", MANAGER)
    before = int(time.time() * 1000)
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(OPERATORS, "timed", timed)
        run(own, "timed", path, {}, 2)
    reader = own.read.format("statestore").option("readChangeFeed", True)
    reader = reader.option("changeStartBatchId", 0).option("changeEndBatchId", 2)
    wanted = [
        (batch, partition, _NAMES[change], Row(key=key, userKey=name), value)
        for batch, change, key, name, value, partition in reader.option("stateVarName", "sums")
        .load(str(path))
        .collect()
    ]
    found = [tuple(row) for row in ours(spark, path, "sums", True, last=2).collect()]
    assert in_order(found) == in_order(wanted)
    assert {change for _, _, change, *_ in found} == {"put", "delete"}
    for name in ("seen", "last"):
        wanted = as_spark_says(own, path, name, True, last=2)
        found = [tuple(row) for row in ours(spark, path, name, True, last=2).collect()]
        assert in_order(found) == in_order(wanted)
        assert all(row[4].ttlExpirationMs >= before + 3_600_000 for row in found if row[4])
    whole = checkpoint.changes(path, end=3).read_all()
    whole.validate(full=True)
    by_family: dict[str, list[Any]] = {}
    for row in whole.to_pylist():
        name = row["column_family"]
        if row["change"] != "delete":
            value = row["value"][name]
            by_family.setdefault(name, []).append((row["batch"], row["key"][name], value))
    timers = [
        (b, k["key"], k["expiryTimestampMs"]) for b, k, _ in by_family["$procTimers_keyToTimestamp"]
    ]
    assert timers == [
        (b, k["key"], k["expiryTimestampMs"]) for b, k, _ in by_family["$procTimers_timestampToKey"]
    ]
    assert all(at > before + 3_600_000 + key["k"] - 1 for _, key, at in timers)
    assert [(b, k["elementKey"], k["expirationMs"]) for b, k, _ in by_family["$ttl_seen"]] == [
        (b, k, v["ttlExpirationMs"]) for b, k, v in by_family["seen"]
    ]


@pytest.mark.slow
@pytest.mark.parametrize("version", [3, 4])
def test_joins_with_column_families(spark: SparkSession, tmp_path: Path, version: int) -> None:
    """Version 4 puts the time before or behind the key, and merges lists."""
    path, own = tmp_path / "ckpt", session(spark, "changelog", MANAGER)
    own.conf.set("spark.sql.streaming.join.stateFormatVersion", str(version))
    run(own, "join", path, {}, LAST)
    names = checkpoint.changes(path, end=0).schema.field("key").type
    assert len(names) == 4
    for name in (field.name for field in names):
        wanted = as_spark_says(own, path, name, False)
        found = [tuple(row) for row in ours(spark, path, name, True).collect()]
        assert in_order(found) == in_order(wanted)
        assert found
