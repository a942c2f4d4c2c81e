"""Rows that were erased from the state of a query, wherever they are."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from sparklog.checkpoint import archive, erase, fork, reset, verify
from sparklog.errors import InvalidRequestError
from sparklog.session.setup import MANAGER
from sparklog.state.erase import Search
from tests.state.operators import Output, run, session
from tests.state.test_rewrite import later
from tests.state.test_rewrite_variables import ENTRY, KEY, KINDS, MAP_KEY, OPERATOR

pytestmark = pytest.mark.spark

AT, LAST = 3, 5
Query = Callable[..., Path]


@pytest.fixture
def query(spark: SparkSession, tmp_path: Path) -> Query:
    """Runs a query until a batch is committed, and returns its checkpoint."""

    def run_it(
        operator: str,
        provider: str,
        output: Output,
        last: int = AT,
        manager: str | None = MANAGER,
    ) -> Path:
        run(session(spark, provider, manager), operator, tmp_path / "ckpt", output, last)
        return tmp_path / "ckpt"

    return run_it


@pytest.fixture(scope="module")
def shared(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint that tests only read."""
    path = tmp_path_factory.mktemp("erase") / "ckpt"
    run(session(spark, "hdfs", None), "aggregation", path, {}, AT)
    return path


def test_a_key_of_an_aggregation(spark: SparkSession, query: Query, tmp_path: Path) -> None:
    """The key begins again, and the others go on."""
    expected: Output = {}
    path = query("aggregation", "hdfs", expected, LAST)
    archive(path, f"file://{tmp_path}/archive")
    done = erase(
        path, tmp_path / "new", "key.k = 3", to=AT, archives=[f"file://{tmp_path}/archive"],
        spark=spark,
    )  # fmt: skip
    assert done.rows == {"operator 0": (1, 9)}
    assert done.not_examined == []
    first, second = done.still_there
    assert first == f"{path} (state after batches 0 to {LAST})"
    assert second.startswith(f"file://{tmp_path}/archive (snapshot ")
    assert "operator 0: 1 row erased, 9 left" in str(done)
    findings = verify(tmp_path / "new").findings
    assert all("no fork or reset can go back" in found.what for found in findings)
    found: Output = {}
    run(session(spark, "hdfs", MANAGER), "aggregation", tmp_path / "new", found, LAST)
    ((_, count, _),) = (row for row in expected[AT] if row[0] == 3)
    for batch in range(AT + 1, LAST + 1):
        others = [row for row in expected[batch] if row[0] != 3]
        assert [row for row in found[batch] if row[0] != 3] == others
        (before,) = (row for row in expected[batch] if row[0] == 3)
        (after,) = (row for row in found[batch] if row[0] == 3)
        assert after[1] == before[1] - count


@pytest.mark.deep
def test_values_of_a_join(spark: SparkSession, query: Query, tmp_path: Path) -> None:
    """A value matches on the side that has it."""
    path = query("join", "hdfs", {})
    done = erase(path, tmp_path / "new", "value.value % 4 = 0", spark=spark)
    assert done.rows.keys() == {"operator 0, left", "operator 0, right"}
    assert all(gone > 0 and left > 0 for gone, left in done.rows.values())
    again = erase(tmp_path / "new", tmp_path / "again", "value.value % 4 = 0", spark=spark)
    assert [gone for gone, _ in again.rows.values()] == [0, 0]
    found: Output = {}
    run(session(spark, "hdfs", MANAGER), "join", tmp_path / "new", found, LAST)


@pytest.mark.deep
def test_all_that_a_processor_knows(spark: SparkSession, query: Query, tmp_path: Path) -> None:
    """A condition on the key reaches values, lists, maps, expirations and timers."""
    path = query("kept_processingTime", "rocksdb", {}, 1, None)
    done = erase(path, tmp_path / "new", "key.k = 3", spark=spark)
    names = [*KINDS, *(f"{kind}_ttl" for kind in KINDS), "timers"]
    assert done.rows.keys() == {f"operator 0, {name}" for name in names}
    assert all(gone > 0 and left > 0 for gone, left in done.rows.values())
    assert done.not_examined == []
    rows = spark.read.format("statestore").option("path", str(tmp_path / "new"))
    assert rows.option("stateVarName", "list_ttl").load().where("key.k = 3").count() == 0
    found: Output = {}
    run(session(spark, "rocksdb", None), "kept_processingTime", tmp_path / "new", found, 2)
    (state,) = (json.loads(row[2]) for row in found[2] if row[0] == 3)
    assert state["value"] == [2, 2]  # the two rows of the batch
    (other,) = (json.loads(row[2]) for row in found[2] if row[0] == 4)
    assert other["value"] == [6, 6]


@pytest.mark.deep
def test_values_and_entries_of_a_processor(
    spark: SparkSession, query: Query, tmp_path: Path
) -> None:
    """Each value of a list is examined, with an expiration or without; so are a map's keys."""
    path = query("kept_processingTime", "rocksdb", {}, 1, None)
    conditions = ["value.v % 2 = 0", "userKey.u = '1'"]
    done = erase(path, tmp_path / "new", conditions, spark=spark)
    assert done.not_examined == ["operator 0, timers"]
    assert "operator 0, timers: not examined, no condition fits" in str(done)
    assert done.rows["operator 0, list"] == done.rows["operator 0, list_ttl"] == (20, 20)
    for name in ("list", "list_ttl", "map", "map_ttl"):
        rows = spark.read.format("statestore").option("path", str(tmp_path / "new"))
        found = rows.option("stateVarName", name).load()
        for row in found.collect():
            text = json.dumps(row.asDict(recursive=True), default=str)
            (value,) = re.findall(r'"v": (\d+)', text)
            assert int(value) % 2 == 1
            assert '"u": "1"' not in text


A, B = ("a",), ("b",)
TIMER_KEY = "key struct<key struct<k string>, expiryTimestampMs bigint>"
MATCHING: list[tuple[str, str, str, list[Any], list[Any]]] = [
    (
        "value",
        f"{KEY}, value struct<v int>",
        "value.v = 1",
        [(A, (1,)), (B, (2,)), (("c",), (None,))],
        [(B, (2,)), (("c",), (None,))],
    ),
    (
        "value_ttl",
        f"{KEY}, value {ENTRY}",
        "value.v = 1 AND ttlExpirationMs < 25",
        [(A, ((1,), 20)), (B, ((1,), 30)), (("c",), ((2,), 20))],
        [(B, ((1,), 30)), (("c",), ((2,), 20))],
    ),
    (
        "list",
        f"{KEY}, value array<struct<v int>>",
        "value.v = 1 AND key.k = 'a'",
        [(A, [(2,), (1,), None, (1,), (None,)]), (B, [(1,)]), (("c",), None)],
        [(A, [(2,), None, (None,)]), (B, [(1,)]), (("c",), None)],
    ),
    (
        "list_ttl",
        f"{KEY}, value array<{ENTRY}>",
        "value.v = 1 AND ttlExpirationMs < 25",
        [(A, [((1,), 20), ((1,), 30), ((2,), 20), (None, 20)]), (B, [((1,), 20)])],
        [(A, [((1,), 30), ((2,), 20), (None, 20)]), (B, [])],
    ),
    (
        "map",
        f"{MAP_KEY}, value struct<v int>",
        "key.k = 'a' AND userKey.u = 7",
        [((A, (7,)), (1,)), ((A, (8,)), (1,)), ((B, (7,)), (1,))],
        [((A, (8,)), (1,)), ((B, (7,)), (1,))],
    ),
    (
        "map_ttl",
        f"{MAP_KEY}, value {ENTRY}",
        "userKey.u = 7 AND value.v = 1 AND ttlExpirationMs < 25",
        [((A, (7,)), ((1,), 20)), ((A, (7,)), ((1,), 30))],
        [((A, (7,)), ((1,), 30))],
    ),
    (
        "timers",
        f"{TIMER_KEY}, value struct<n void>",
        "key.k = 'a' AND expiryTimestampMs < 25",
        [((A, 20), (None,)), ((A, 30), (None,)), ((B, 20), (None,))],
        [((A, 30), (None,)), ((B, 20), (None,))],
    ),
]


@pytest.mark.parametrize(
    ("name", "columns", "condition", "rows", "left"),
    [pytest.param(*case, id=case[0]) for case in MATCHING],
)
def test_rows_that_match(
    spark: SparkSession, name: str, columns: str, condition: str, rows: list[Any], left: list[Any]
) -> None:
    """Each kind of row is examined by its own columns; a NULL is no match."""
    given = spark.createDataFrame(rows, columns).coalesce(1)
    search = Search([condition])
    functions = search.functions(OPERATOR, [])
    assert isinstance(functions, dict)
    found = functions[name](given)
    assert found.schema.simpleString() == given.schema.simpleString()
    assert found.collect() == spark.createDataFrame(left, columns).coalesce(1).collect()
    search.check()
    assert search.not_examined == []


@pytest.mark.parametrize(
    ("name", "columns", "expected"),
    [
        ("list", f"{KEY}, value array<struct<v int>>", "key struct<k:string>, value struct<v:int>"),
        (
            "list_ttl",
            f"{KEY}, value array<{ENTRY}>",
            "key struct<k:string>, value struct<v:int>, ttlExpirationMs bigint",
        ),
        (
            "timers",
            f"{TIMER_KEY}, value struct<n void>",
            "key struct<k:string>, expiryTimestampMs bigint, value struct<n:void>",
        ),
    ],
)
def test_rows_that_no_condition_fits(
    spark: SparkSession, name: str, columns: str, expected: str
) -> None:
    """They stay, and the report names them; if no rows fit, the message has the columns."""
    given = spark.createDataFrame([], columns)
    search = Search(["value.name = 'ada'"])
    functions = search.functions(OPERATOR, [])
    assert isinstance(functions, dict)
    assert functions[name](given) is given
    assert search.not_examined == [f"operator 0, {name}"]
    with pytest.raises(InvalidRequestError) as caught:
        search.check()
    assert str(caught.value) == (
        "no rows have the columns of the condition value.name = 'ada'. Use a condition on these "
        f"columns: operator 0, {name} ({expected})"
    )


REFUSED = [
    (
        "key.user = 1",
        "no rows have the columns of the condition key.user = 1. Use a condition on these "
        r"columns: operator 0 \(key struct<k:bigint>, value struct<count:bigint,sum:bigint>\)",
    ),
    ("key.k ==== 1", "the condition key.k ==== 1 is no SQL"),
    ("key.k", "no rows have the columns of the condition key.k"),
    ([], "no condition is given: where must have at least one"),
]


@pytest.mark.parametrize(("where", "message"), REFUSED)
def test_what_is_refused(
    spark: SparkSession, shared: Path, tmp_path: Path, where: str | list[str], message: str
) -> None:
    with pytest.raises(InvalidRequestError, match=message):
        erase(shared, tmp_path / "new", where, spark=spark)
    assert list(tmp_path.iterdir()) == []


def test_columns_of_a_message(spark: SparkSession, shared: Path, tmp_path: Path) -> None:
    """The message names the columns, and a condition on them is examined."""
    with pytest.raises(InvalidRequestError) as caught:
        erase(shared, tmp_path / "new", "key.user = 1", spark=spark)
    columns = re.findall(r"(key|value) struct<(\w+):", str(caught.value))
    assert columns == [("key", "k"), ("value", "count")]
    for struct, name in columns:
        where = f"{struct}.{name} = 2"
        done = erase(shared, tmp_path / "new", where, dry_run=True, spark=spark)
        assert done.not_examined == []


def test_a_dry_run(spark: SparkSession, shared: Path, tmp_path: Path) -> None:
    done = erase(shared, tmp_path / "new", ["key.k = 3", "key.k > 7"], dry_run=True, spark=spark)
    assert done.rows == {"operator 0": (3, 7)}
    assert str(done).startswith(f"{tmp_path / 'new'} would continue after batch {AT} of {shared}")
    assert list(tmp_path.iterdir()) == []


def test_in_place(spark: SparkSession, query: Query, tmp_path: Path) -> None:
    """The report names the restore point, which still has the rows."""
    path = query("aggregation", "hdfs", {})
    reset(path, to=AT, clock=later)
    done = erase(path, None, "key.k = 3", in_place=True, spark=spark)
    assert done.rows == {"operator 0": (1, 9)}
    assert done.new_path == str(path)
    assert done.still_there == [f"{done.restore_point} (state after batches 0 to {AT})"]
    again = erase(path, tmp_path / "again", "key.k = 3", spark=spark)
    assert again.rows == {"operator 0": (0, 9)}


def test_in_place_in_runs(spark: SparkSession, shared: Path, tmp_path: Path) -> None:
    """The rows are also in the run before, until a query deletes its objects."""
    url = f"memory://{tmp_path.name}-{id(tmp_path)}"
    fork(shared, url, to=AT)
    done = erase(url, None, "key.k = 3", in_place=True, spark=spark)
    assert done.rows == {"operator 0": (1, 9)}
    assert done.still_there == [
        f"{done.restore_point} (state after batches 0 to {AT})",
        f"{url} (older runs, which the query's next start deletes)",
    ]
