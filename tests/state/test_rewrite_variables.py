"""State variables and timers of transformWithState that functions changed."""

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple
from uuid import uuid4

import pandas as pd
import pyarrow as pa
import pytest
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.stateful_processor import StatefulProcessor

from sparklog.checkpoint import rewrite
from sparklog.checkpoint.spark_files.state_schema import (
    ColumnFamily,
    KeyEncoder,
    StateStoreSchema,
)
from sparklog.errors import InvalidRequestError
from sparklog.state.functions import StateFunction
from sparklog.state.operators import Operator
from sparklog.state.tables import OperatorState
from sparklog.state.template import changed_columns
from sparklog.state.variables import variable_families, variable_rows
from tests.state import operators
from tests.state.operators import OTHERS, Counter, Output, run, session, source

pytestmark = pytest.mark.spark

AT, LAST = 2, 3
HOUR_MS = 3_600_000
START_MS = 1_700_000_000_000
"""The event time of the source's first row."""


class Keeper(StatefulProcessor):
    """Keeps the rows of a key in each kind of state variable, and registers a timer per batch."""

    def __init__(self, time_mode: str, swaps: bool = False) -> None:
        self._time_mode, self._swaps = time_mode, swaps

    def init(self, handle: Any) -> None:
        self._handle = handle
        # Spark lets values expire by processing time only.
        ttls = {"": None, "_ttl": HOUR_MS} if self._time_mode == "processingTime" else {"": None}
        self._values, self._lists, self._maps = [], [], []
        for name, ttl in ttls.items():
            other = HOUR_MS if ttl is None else None
            of_value = other if self._swaps else ttl
            self._values.append(handle.getValueState(f"value{name}", "v long", of_value))
            self._lists.append(handle.getListState(f"list{name}", "v long", ttl))
            self._maps.append(handle.getMapState(f"map{name}", "u string", "v long", ttl))

    def handleInputRows(
        self, key: Any, rows: Iterable[pd.DataFrame], timerValues: Any
    ) -> Iterator[pd.DataFrame]:
        given = [int(v) for frame in rows for v in frame["value"]]
        for value in self._values:
            value.update(((value.get()[0] if value.exists() else 0) + len(given),))
        for each in self._lists:
            each.appendList([(v,) for v in given])
        for each in self._maps:
            for v in given:
                each.updateValue((str(v % 3),), (v,))
        is_processing = self._time_mode == "processingTime"
        now = timerValues.getCurrentProcessingTimeInMs() if is_processing else START_MS
        self._handle.registerTimer(now + HOUR_MS + given[0])
        yield self._row(key, "rows")

    def handleExpiredTimer(
        self, key: Any, timerValues: Any, expiredTimerInfo: Any
    ) -> Iterator[pd.DataFrame]:
        yield self._row(key, f"timer {expiredTimerInfo.getExpiryTimeInMs()}")

    def _row(self, key: Any, what: str) -> pd.DataFrame:
        state = {
            "value": [each.get()[0] if each.exists() else 0 for each in self._values],
            "list": [[row[0] for row in each.get()] for each in self._lists],
            "map": [{u[0]: v[0] for u, v in each.iterator()} for each in self._maps],
        }
        return pd.DataFrame({"k": [key[0]], "what": [what], "state": [json.dumps(state)]})

    def close(self) -> None:
        pass


def kept(time_mode: str, swaps: bool = False) -> operators.Operator:
    """The query, whose second grouping column has the name of a column of Spark's families."""

    def query(spark: SparkSession) -> tuple[DataFrame, str]:
        rows = source(spark).withColumn("key", F.col("k") % 2)
        return rows.groupBy("k", "key").transformWithStateInPandas(
            Keeper(time_mode, swaps), "k long, what string, state string", "Update", time_mode
        ), "update"

    return query


for _mode in ("processingTime", "eventTime"):
    OTHERS[f"kept_{_mode}"] = kept(_mode)
# The value without expiration has one, and the value with expiration has none.
OTHERS["kept_swapped"] = kept("processingTime", swaps=True)


class Ran(NamedTuple):
    checkpoint: Path
    output: Output


@pytest.fixture(scope="module")
def ran(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Ran]:
    """Runs the query with a time mode until LAST; tests only read its checkpoint."""

    @cache
    def query(time_mode: str) -> Ran:
        found = Ran(tmp_path_factory.mktemp("variables") / "ckpt", {})
        own = session(spark, "rocksdb", None)
        run(own, f"kept_{time_mode}", found.checkpoint, found.output, LAST)
        return found

    return query


KINDS = ("value", "list", "map")
NAMES = {
    "processingTime": (*KINDS, *(f"{kind}_ttl" for kind in KINDS), "timers"),
    "eventTime": (*KINDS, "timers"),
}
OPERATOR = Operator(
    id=0,
    name="transformWithStateExec",
    lists=frozenset({"list", "list_ttl"}),
    maps=frozenset({"map", "map_ttl"}),
    variables={f"{kind}{ttl}": bool(ttl) for kind in KINDS for ttl in ("", "_ttl")},
    timers="$procTimers_keyToTimestamp",
)
KEY, MAP_KEY = "key struct<k string>", "key struct<key struct<k string>, userKey struct<u int>>"
ENTRY = "struct<value struct<v int>, ttlExpirationMs bigint>"
FOLLOWING: list[tuple[str, str, list[Any], dict[str, list[str]]]] = [
    ("value", f"{KEY}, value struct<v int>", [(("a",), (1,))], {"value": ["{a} {1}"]}),
    (
        "value_ttl",
        f"{KEY}, value {ENTRY}",
        [(("a",), ((1,), 20)), (("b",), ((2,), None)), (("c",), (None, 30))],
        {
            "value_ttl": ["{a} {{1}, 20}", "{b} None", "{c} None"],
            "$ttl_value_ttl": ["{20, {a}} {null}", "{null, {b}} {null}", "{null, {c}} {null}"],
        },
    ),
    (
        "list",
        f"{KEY}, value array<struct<v int>>",
        [(("a",), [(2,), (1,), None]), (("b",), []), (("c",), None)],
        {
            "list": ["{a} {2}", "{a} {1}", "{a} None", "{c} None"],
            "$rowCounter_list": ["{a} {3}"],
        },
    ),
    (
        "list_ttl",
        f"{KEY}, value array<{ENTRY}>",
        [(("a",), [((1,), 30), ((2,), 20), ((3,), None)]), (("b",), [])],
        {
            "list_ttl": ["{a} {{1}, 30}", "{a} {{2}, 20}", "{a} None"],
            "$ttl_list_ttl": ["{20, {a}} {null}"],
            "$min_list_ttl": ["{a} {20}"],
            "$count_list_ttl": ["{a} {3}"],
        },
    ),
    (
        "map",
        f"{MAP_KEY}, value struct<v int>",
        [((("a",), (7,)), (1,)), ((("b",), None), (2,)), ((None, (8,)), (3,))],
        {"map": ["{{a}, {7}} {1}", "None {2}", "None {3}"]},
    ),
    (
        "map_ttl",
        f"{MAP_KEY}, value {ENTRY}",
        [((("a",), (7,)), ((1,), 20))],
        {
            "map_ttl": ["{{a}, {7}} {{1}, 20}"],
            "$ttl_map_ttl": ["{20, {{a}, {7}}} {null}"],
        },
    ),
    (
        "timers",
        "key struct<key struct<k string>, expiryTimestampMs bigint>, value struct<n void>",
        [((("a",), 20), (None,)), ((("b",), None), (None,))],
        {
            "$procTimers_keyToTimestamp": ["{{a}, 20} {null}", "None {null}"],
            "$procTimers_timestampToKey": ["{20, {a}} {null}", "{null, null} {null}"],
        },
    ),
]


@pytest.mark.parametrize(
    ("name", "columns", "rows", "expected"), [pytest.param(*case, id=case[0]) for case in FOLLOWING]
)
def test_families_that_follow_from_a_variable(
    spark: SparkSession, name: str, columns: str, rows: list[Any], expected: dict[str, list[str]]
) -> None:
    """A null, which the jar refuses, is in the place of a key or a value with a missing part."""
    given = spark.createDataFrame(rows, columns).coalesce(1)
    found: dict[str, list[str]] = {}
    for (store, family), frame in variable_families(given, OPERATOR, name).items():
        assert store == "default"
        texts = frame.select(F.col("key").cast("string"), F.col("value").cast("string"))
        found[family] = [f"{key} {value}" for key, value in texts.collect()]
    assert found == expected


def test_families_follow_from_the_same_rows(spark: SparkSession) -> None:
    """A function may return other rows each time."""
    now = "bigint(java_method('java.lang.System', 'nanoTime'))"
    rows = spark.range(1).select(
        F.expr("struct('a' AS k) AS key"),
        F.expr(f"struct(struct(1 AS v) AS value, {now} AS ttlExpirationMs) AS value"),
    )
    value, expiration = variable_families(rows, OPERATOR, "value_ttl").values()
    assert value.collect()[0].value.ttlExpirationMs == expiration.collect()[0].key.expirationMs


class ListState:
    """State of a list, in place of the jar: its values are in order, for each key in each task."""

    operator = OPERATOR

    def __init__(self, spark: SparkSession) -> None:
        self._rows = spark.range(0, 40, numPartitions=4)

    def table(self, *_: object) -> DataFrame:
        columns = "1 AS partition_id", "struct(id % 2 AS k) AS key", "struct(-id AS v) AS value"
        return self._rows.selectExpr(*columns)


def test_the_values_of_a_list_are_an_array_in_their_order(spark: SparkSession) -> None:
    state: Any = ListState(spark)
    found = {
        row.key.k: [v for (v,) in row.value]
        for row in variable_rows(state, state, "list").collect()
    }
    assert found == {k: list(range(-k, -40, -2)) for k in (0, 1)}


def test_a_list_and_a_value_are_different() -> None:
    """Although the schema files give both the same columns."""
    columns = (pa.struct([("k", pa.int64())]), pa.struct([("v", pa.int64())]), KeyEncoder())
    schema = StateStoreSchema(0, "default", 1, True, {"list": ColumnFamily("list", *columns)})
    old = OperatorState(
        root="", operator=OPERATOR, version=1, partitions=1, conf={}, schemas=[schema], ids={},
        files={}, prefixes={},
    )  # fmt: skip
    new = replace(old, operator=replace(OPERATOR, lists=frozenset()))
    assert changed_columns(old, old, ()) == {}
    with pytest.raises(InvalidRequestError, match="list of struct<v: int64>, and in the template"):
        changed_columns(old, new, ())


def same(frame: DataFrame) -> DataFrame:
    return frame


def shuffled(frame: DataFrame) -> DataFrame:
    return frame.repartition(5)


def assert_consistent(
    spark: SparkSession, path: Path, time_mode: str, function: StateFunction = same
) -> None:
    """All families equal, byte by byte, those that follow from the variables and timers."""
    with_ = dict.fromkeys(NAMES[time_mode], function)
    new = path.parent / f"consistent-{uuid4()}"
    (each,) = rewrite(path, new, to=AT, with_=with_, spark=spark).operators
    assert sum(each.rows_after) > 20
    assert each.rows_before == each.rows_after
    assert each.hash_before == each.hash_after


@pytest.mark.deep
@pytest.mark.parametrize(
    ("time_mode", "function"),
    [("processingTime", same), ("eventTime", shuffled)],
)
def test_internal_families_are_those_of_spark(
    spark: SparkSession, ran: Callable[[str], Ran], time_mode: str, function: StateFunction
) -> None:
    assert_consistent(spark, ran(time_mode).checkpoint, time_mode, function)


def changed_list(frame: DataFrame) -> DataFrame:
    """Drop some values, append 1000, and reverse the order; some lists become empty."""
    some = F.filter("value", lambda row: row.v % 3 == 0)
    more = F.concat(some, F.array(F.struct(F.lit(1000).cast("long").alias("v"))))
    changed = F.when(F.col("key.k") < 8, F.reverse(more)).otherwise(F.array())
    return frame.withColumn("value", changed)


def expiring(value: Column, condition: Column) -> Column:
    """Return a value that expired in 1970 if the condition holds."""
    return value.withField("ttlExpirationMs", F.when(condition, 1).otherwise(value.ttlExpirationMs))


def expired_value(frame: DataFrame) -> DataFrame:
    return frame.withColumn("value", expiring(F.col("value"), F.col("key.k") < 5))


def expired_list(frame: DataFrame) -> DataFrame:
    some = F.transform("value", lambda row: expiring(row, row.value.v % 3 == 0))
    return frame.withColumn("value", some)


def expired_map(frame: DataFrame) -> DataFrame:
    return frame.withColumn("value", expiring(F.col("value"), F.col("key.userKey.u") == "0"))


def one_timer(frame: DataFrame) -> DataFrame:
    """Drop all timers but those of a key, for which one is due."""
    due = F.col("key").withField("expiryTimestampMs", F.lit(1).cast("long"))
    return frame.where("key.key.k = 3").withColumn("key", due).dropDuplicates(["key"])


def continued(spark: SparkSession, path: Path, time_mode: str) -> list[tuple[int, str, Any]]:
    """Return the output of batch LAST."""
    output: Output = {}
    run(session(spark, "rocksdb", None), f"kept_{time_mode}", path, output, LAST)
    return [(k, what, json.loads(state)) for k, what, state in output[LAST]]


def states(output: Output, batch: int) -> dict[int, Any]:
    return {k: json.loads(state) for k, _, state in output[batch]}


@pytest.mark.deep
def test_changed_lists_maps_and_expirations(
    spark: SparkSession, ran: Callable[[str], Ran], tmp_path: Path
) -> None:
    path, output = ran("processingTime")
    with_ = {
        "list": changed_list,
        "value_ttl": expired_value,
        "list_ttl": expired_list,
        "map_ttl": expired_map,
        "timers": one_timer,
    }
    rewrite(path, tmp_path / "new", to=AT, with_=with_, spark=spark, partitions=3)
    assert_consistent(spark, tmp_path / "new", "processingTime")
    before, expected = states(output, AT), states(output, LAST)
    for k, state in expected.items():
        old, new = before[k]["list"][0], state["list"][0][len(before[k]["list"][0]) :]
        assert len(new) == 2
        assert sum(v % 3 == 0 for v in old) == 2
        kept = [1000, *(v for v in reversed(old) if v % 3 == 0)] if k < 8 else []
        state["list"] = [kept + new, [v for v in old if v % 3] + new]
        state["value"][1] -= state["value"][1] - 2 if k < 5 else 0
        added = {str(v % 3): v for v in new}
        state["map"][1] = {u: v for u, v in before[k]["map"][1].items() if u != "0"} | added
    rows = [(k, "rows", state) for k, state in sorted(expected.items())]
    found = continued(spark, tmp_path / "new", "processingTime")
    assert found == sorted([*rows, (3, "timer 1", expected[3])], key=lambda row: row[:2])


@pytest.mark.deep
def test_timers_of_event_time(
    spark: SparkSession, ran: Callable[[str], Ran], tmp_path: Path
) -> None:
    path, output = ran("eventTime")
    rewrite(path, tmp_path / "new", to=AT, with_={"timers": one_timer}, spark=spark)
    assert_consistent(spark, tmp_path / "new", "eventTime")
    found = continued(spark, tmp_path / "new", "eventTime")
    assert [row for row in found if row[1] == "rows"] == [
        (k, "rows", state) for k, state in sorted(states(output, LAST).items())
    ]
    assert [row[:2] for row in found if row[1] != "rows"] == [(3, "timer 1")]


@pytest.mark.deep
def test_a_changed_query_with_other_expirations(
    spark: SparkSession, ran: Callable[[str], Ran], tmp_path: Path
) -> None:
    path, output = ran("processingTime")
    template = tmp_path / "template"
    run(session(spark, "rocksdb", None), "kept_swapped", template, {}, 0)
    later = "unix_millis(current_timestamp()) + 3600000"
    with_ = {
        "value": value_is(f"struct(value, {later} AS ttlExpirationMs)"),
        "value_ttl": value_is("value.value"),
    }
    new = tmp_path / "new"
    for dry_run in (True, False):
        done = rewrite(
            path, new, to=AT, with_=with_, template=template, spark=spark, dry_run=dry_run
        )
        assert set(done.operators[0].columns) == {"default/value", "default/value_ttl"}
    assert_consistent(spark, new, "processingTime")
    continued: Output = {}
    run(session(spark, "rocksdb", None), "kept_swapped", new, continued, LAST)
    assert continued[LAST] == output[LAST]


class LastValue(Counter):
    """Keeps a value under the name of the list of `Counter`."""

    def init(self, handle: Any) -> None:
        self._seen = handle.getValueState("seen", "seen long")
        self._last = handle.getValueState("last", "value long")

    def handleInputRows(
        self, key: Any, rows: Iterable[pd.DataFrame], timerValues: Any
    ) -> Iterator[pd.DataFrame]:
        before = self._last.get()[0] if self._last.exists() else -1
        self._last.update((max(int(v) for frame in rows for v in frame["value"]),))
        yield pd.DataFrame({"k": [key[0]], "seen": [0], "total": [before]})


def last_value(spark: SparkSession) -> tuple[DataFrame, str]:
    return source(spark).groupBy("k").transformWithStateInPandas(
        LastValue(), "k long, seen long, total long", "Update", "none"
    ), "update"


OTHERS["last_value"] = last_value


@pytest.mark.deep
def test_a_list_that_becomes_a_value_and_a_list_again(spark: SparkSession, tmp_path: Path) -> None:
    """The columns of both are the same, and Spark would read one as the other."""
    path, template, new = tmp_path / "ckpt", tmp_path / "template", tmp_path / "new"
    run(session(spark, "rocksdb", None), "transform_with_state", path, {}, AT)
    run(session(spark, "rocksdb", None), "last_value", template, {}, 0)
    with pytest.raises(InvalidRequestError, match=r"-> list of struct.* and in the template st"):
        rewrite(path, new, to=AT, template=template, spark=spark)
    newest = {"last": value_is("array_max(value)")}
    rewrite(path, new, to=AT, template=template, with_=newest, spark=spark)
    continued: Output = {}
    run(session(spark, "rocksdb", None), "last_value", new, continued, LAST)
    expected = {v * 7 % 10: v for v in range(20 * (AT + 1))}
    assert continued[LAST] == [(k, 0, expected[k]) for k in range(10)]
    again = {"last": value_is("array(value)")}
    rewrite(new, tmp_path / "again", to=AT, template=path, with_=again, spark=spark)
    same_rows = dict.fromkeys(("seen", "last"), same)
    done = rewrite(tmp_path / "again", tmp_path / "same", with_=same_rows, spark=spark)
    (each,) = done.operators
    assert sum(each.rows_after) == 10 * 3  # a counter, a list with a value, and its length
    assert each.hash_before == each.hash_after


def value_is(value: str) -> StateFunction:
    return lambda frame: frame.withColumn("value", F.expr(value))


def without(column: str, part: str) -> StateFunction:
    """Return a function that makes a part of the key or the value null in some rows."""

    def function(frame: DataFrame) -> DataFrame:
        given = F.col(column)
        some = F.when(F.hash("key") % 2 == 0, given[part])
        return frame.withColumn(column, given.withField(part, some))

    return function


def twice(frame: DataFrame) -> DataFrame:
    return frame.union(frame)


REFUSED: list[tuple[str, StateFunction, str]] = [
    ("list", value_is("nullif(value, value)"), "State of default/list, .*: the value of a row"),
    ("list", value_is("value[0]"), "state variable list must return value as array<struct<v:big"),
    ("list", twice, r"State of default/\$rowCounter_list, .*: two rows have the same key"),
    ("map_ttl", twice, "State of default/map_ttl, .*: two rows have the same key"),
    ("timers", without("key", "expiryTimestampMs"), "keyToTimestamp, .*: the key of a row is null"),
    ("timers", value_is("struct(1 AS n)"), "with_ of timers must return value as struct<__dummy"),
    ("last", same, "names last, which transformWithState doesn't have: use list, list_ttl, map, "),
]


@pytest.mark.deep
@pytest.mark.parametrize(("name", "function", "message"), REFUSED)
def test_what_is_refused(
    spark: SparkSession,
    ran: Callable[[str], Ran],
    tmp_path: Path,
    name: str,
    function: StateFunction,
    message: str,
) -> None:
    path = ran("processingTime").checkpoint
    with pytest.raises(InvalidRequestError, match=message):
        rewrite(path, tmp_path / "new", to=AT, with_={name: function}, spark=spark)
    assert list(tmp_path.iterdir()) == []
