"""State that was rewritten: the query continues as if it had always had that state."""

import shutil
import threading
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import fsspec
import pandas as pd
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from sparklog.checkpoint import (
    Rewritten,
    diff,
    export,
    fork,
    history,
    import_,
    reset,
    rewrite,
    unfinished_reset,
    verify,
)
from sparklog.checkpoint.stored_copies import CopyInRuns
from sparklog.checkpoint.stored_runs import HOME
from sparklog.checkpoint.unfinished_reset import UnfinishedReset
from sparklog.clock import system_clock
from sparklog.errors import InvalidRequestError, LogLockedError
from sparklog.fs import LOCAL, LocalFileSystem
from sparklog.session.setup import MANAGER
from sparklog.tiered import open_store
from tests.depth import STATE_EVERY
from tests.state.operators import (
    OPERATORS,
    Counter,
    Operator,
    Output,
    rows_reported,
    run,
    session,
    source,
)

pytestmark = pytest.mark.spark

AT, LAST = 3, 6
FORMAT = "spark.sql.streaming.stateStore.checkpointFormatVersion"
Query = Callable[..., Path]


@pytest.fixture
def query(spark: SparkSession, tmp_path: Path) -> Query:
    """Runs a query until batch AT is committed, and returns its checkpoint."""

    def run_it(
        operator: str = "aggregation",
        provider: str = "hdfs",
        manager: str | None = None,
        format: str = "1",
        output: Output | None = None,
        last: int = AT,
    ) -> Path:
        own = session(spark, provider, manager)
        own.conf.set(FORMAT, format)
        given: Output = {} if output is None else output
        run(own, operator, tmp_path / "ckpt", given, last)
        return tmp_path / "ckpt"

    return run_it


def goes_on(
    spark: SparkSession,
    path: Path,
    operator: str,
    provider: str,
    output: Output,
    manager: str | None = None,
    format: str = "1",
) -> None:
    """Run the query of a new checkpoint; its batches must equal those in `output`."""
    own = session(spark, provider, manager)
    own.conf.set(FORMAT, format)
    run(own, operator, path, output, LAST)


CASES = [
    ("aggregation", "hdfs", "rocksdb", MANAGER, "1"),
    ("aggregation", "rocksdb", "hdfs", None, "1"),
]
DEEP_CASES = [
    ("join", "rocksdb", "hdfs", None, "1"),
    ("transform_with_state", "changelog", "rocksdb", MANAGER, "1"),
    ("transform_with_state", "rocksdb", "rocksdb", None, "2"),
    ("aggregation", "changelog", "rocksdb", None, "2"),
    ("windows", "rocksdb", "hdfs", MANAGER, "1"),
    ("session_windows", "hdfs", "rocksdb", None, "1"),
    ("drop_duplicates_within", "changelog", "hdfs", None, "1"),
    ("pandas_with_state", "hdfs", "rocksdb", None, "1"),
    ("drop_duplicates", "hdfs", "hdfs", MANAGER, "1"),
]


@pytest.mark.parametrize(
    ("operator", "before", "after", "manager", "format"),
    [*CASES, *(pytest.param(*case, marks=pytest.mark.deep) for case in DEEP_CASES[::STATE_EVERY])],
)
def test_moved_state(
    spark: SparkSession,
    query: Query,
    tmp_path: Path,
    operator: str,
    before: str,
    after: str,
    manager: str | None,
    format: str,
) -> None:
    expected: Output = {}
    path = query(operator, before, manager, format, expected, last=LAST)
    assert any(expected[batch] for batch in range(AT + 1, LAST + 1))
    report = rewrite(path, tmp_path / "moved", to=AT, provider=after, partitions=3, spark=spark)
    assert [len(each.rows_after) for each in report.operators] == [3]
    for each in report.operators:
        assert sum(each.rows_before) == sum(each.rows_after) > 0
    assert history(tmp_path / "moved").is_log_backed == (manager is not None)
    found = verify(tmp_path / "moved").findings
    assert [f.what for f in found if "no fork or reset can go back" not in f.what] == []
    goes_on(spark, tmp_path / "moved", operator, after, dict(expected), manager, format)


def more(frame: DataFrame) -> DataFrame:
    """Add 1000 to the sums."""
    total = (F.col("value.sum") + 1000).alias("sum")
    return frame.withColumn("value", F.struct("value.count", total))


def test_a_function(spark: SparkSession, query: Query, tmp_path: Path) -> None:
    before: Output = {}
    path = query(output=before, last=LAST)
    report = rewrite(path, tmp_path / "new", to=AT, with_=more, spark=spark)
    (each,) = report.operators
    assert each.rows_before == each.rows_after
    assert each.hash_before != each.hash_after
    expected = {
        batch: sorted((k, n, total + 1000 * (batch > AT)) for k, n, total in rows)
        for batch, rows in before.items()
    }
    goes_on(spark, tmp_path / "new", "aggregation", "hdfs", expected)
    goes_on(spark, path, "aggregation", "hdfs", before)  # the original is as it was


def test_keys_that_move(spark: SparkSession, query: Query, tmp_path: Path) -> None:
    """A key that a function changes gets into its partition."""

    def other(frame: DataFrame) -> DataFrame:
        return frame.withColumn("key", F.struct((9 - F.col("key.k")).alias("k")))

    path = query()
    rewrite(path, tmp_path / "new", with_=other, spark=spark)
    report = rewrite(tmp_path / "new", tmp_path / "again", with_=other, spark=spark)
    first = rewrite(path, tmp_path / "same", provider="hdfs", spark=spark)
    assert report.operators[0].hash_after == first.operators[0].hash_after


def test_the_rows_of_a_join(spark: SparkSession, query: Query, tmp_path: Path) -> None:
    """Rows that a function drops don't match any more; counts and indexes follow.

    They follow from the same rows, although the function returns other rows each time.
    """
    path = query("join")

    def some(frame: DataFrame) -> DataFrame:
        return frame.where("double(java_method('java.lang.Math', 'random')) < 0.5")

    report = rewrite(path, tmp_path / "new", with_={"left": some}, spark=spark, partitions=3)
    (each,) = report.operators
    assert 0 < sum(each.rows_after) < sum(each.rows_before)
    counted = spark.read.format("statestore").option("path", str(tmp_path / "new"))
    count = counted.option("storeName", "left-keyToNumValues").load().select("key.*", "value.*")
    rows = counted.option("storeName", "left-keyWithIndexToValue").load().groupBy("key.field0")
    assert sorted(map(tuple, count.collect())) == sorted(map(tuple, rows.count().collect()))
    given: Output = {}
    goes_on(spark, tmp_path / "new", "join", "hdfs", given)
    assert sorted(given) == [4, 5, 6]


@pytest.mark.deep
def test_a_state_variable(spark: SparkSession, query: Query, tmp_path: Path) -> None:
    before: Output = {}
    path = query("transform_with_state", "rocksdb", output=before, last=LAST)

    def more_seen(frame: DataFrame) -> DataFrame:
        return frame.withColumn("value", F.struct((F.col("value.seen") + 7).alias("seen")))

    rewrite(path, tmp_path / "new", to=AT, with_={"seen": more_seen}, spark=spark)
    expected = {
        batch: sorted((k, seen + 7 * (batch > AT), total) for k, seen, total in rows)
        for batch, rows in before.items()
    }
    goes_on(spark, tmp_path / "new", "transform_with_state", "rocksdb", expected)
    message = "names timers, which transformWithState with time mode None doesn't have: use last, s"
    with pytest.raises(InvalidRequestError, match=message):
        rewrite(path, tmp_path / "not", with_={"timers": more_seen}, spark=spark)
    with pytest.raises(InvalidRequestError, match="needs RocksDB"):
        rewrite(path, tmp_path / "not", provider="hdfs", spark=spark)


def with_keys(spark: SparkSession) -> tuple[DataFrame, str]:
    """The query `aggregation`, with one more sum."""
    rows = source(spark).withColumn("key", F.col("k"))
    return rows.groupBy("k").agg(F.count("*"), F.sum("value"), F.sum("key")), "update"


def with_sum_of_keys(frame: DataFrame) -> DataFrame:
    """Compute the buffer of the sum that `with_keys` adds."""
    added = (F.col("key.k") * F.col("value.count")).alias("sum")
    return frame.withColumn("value", F.struct("value.count", "value.sum", added))


@pytest.fixture
def template(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., Path]:
    """Runs a changed query for a batch, in a checkpoint of its own."""

    def make(operator: Operator, provider: str = "hdfs") -> Path:
        monkeypatch.setitem(OPERATORS, "changed", operator)
        path = tmp_path / f"template-{operator.__name__}"
        own = session(spark, provider, None)
        own.conf.set("spark.sql.shuffle.partitions", "1")
        run(own, "changed", path, {}, 0)
        return path

    return make


@pytest.mark.deep
@pytest.mark.parametrize(
    ("provider", "manager", "partitions"), [("hdfs", None, None), ("rocksdb", MANAGER, 3)]
)
def test_a_changed_query(
    spark: SparkSession,
    query: Query,
    template: Callable[..., Path],
    tmp_path: Path,
    provider: str,
    manager: str | None,
    partitions: int | None,
) -> None:
    """With another sum, the query gives what it would give if it had always had that sum."""
    model = template(with_keys, provider)
    expected: Output = {}
    run(session(spark, provider, None), "changed", tmp_path / "always", expected, LAST)
    path = query(provider=provider, manager=manager)
    with pytest.raises(InvalidRequestError, match="set with_ to a function that returns rows of"):
        rewrite(path, tmp_path / "new", to=AT, template=model, spark=spark)
    report = rewrite(
        path, tmp_path / "new", to=AT, template=model, with_=with_sum_of_keys,
        partitions=partitions, spark=spark,
    )  # fmt: skip
    before, after = report.operators[0].columns["default/default"]
    assert after.count("sum") == 2 > before.count("sum")
    goes_on(spark, tmp_path / "new", "changed", provider, expected, manager)
    again = rewrite(tmp_path / "new", tmp_path / "again", to=AT, provider="rocksdb", spark=spark)
    assert len(again.operators[0].rows_before) == (partitions or 2)


class OtherCounter(Counter):
    """Another state variable, and no list."""

    def init(self, handle: Any) -> None:
        self._seen = handle.getValueState("seen", "seen long")
        self._added = handle.getMapState("added", "k long", "n long")

    def handleInputRows(
        self, key: Any, rows: Iterable[pd.DataFrame], timerValues: Any
    ) -> Iterator[pd.DataFrame]:
        count = sum(map(len, rows))
        seen = (self._seen.get()[0] if self._seen.exists() else 0) + count
        self._seen.update((seen,))
        known = self._added.getValue((1,))[0] if self._added.containsKey((1,)) else 0
        self._added.updateValue((1,), (known + count,))
        yield pd.DataFrame({"k": [key[0]], "seen": [seen], "total": [known + count]})


def with_other_variables(spark: SparkSession) -> tuple[DataFrame, str]:
    return source(spark).groupBy("k").transformWithStateInPandas(
        OtherCounter(), "k long, seen long, total long", "Update", "none"
    ), "update"


@pytest.mark.deep
def test_other_state_variables(
    spark: SparkSession, query: Query, template: Callable[..., Path], tmp_path: Path
) -> None:
    """A variable that both queries have is kept; another begins empty, and another is dropped."""
    path = query("transform_with_state", "rocksdb")
    model = template(with_other_variables, "rocksdb")
    rewrite(path, tmp_path / "new", template=model, spark=spark, partitions=3)
    output: Output = {}
    goes_on(spark, tmp_path / "new", "changed", "rocksdb", output)
    # Each batch has two rows of each of ten keys.
    for batch in range(AT + 1, LAST + 1):
        assert output[batch] == [(k, 2 * (batch + 1), 2 * (batch - AT)) for k in range(10)]
    with pytest.raises(InvalidRequestError, match="with_ names last, which transformWithState"):
        rewrite(path, tmp_path / "x", template=model, with_={"last": more}, spark=spark)


@pytest.mark.deep
def test_another_query(
    spark: SparkSession, shared: Path, template: Callable[..., Path], tmp_path: Path
) -> None:
    with pytest.raises(InvalidRequestError, match="and in the template dedupe: only a query with"):
        model = template(OPERATORS["drop_duplicates"])
        rewrite(shared, tmp_path / "new", template=model, spark=spark)
    with pytest.raises(InvalidRequestError, match=r"has the stateful operators \[0, 1\]"):
        rewrite(shared, tmp_path / "new", template=template(counted_twice), spark=spark)


@pytest.fixture(scope="module")
def shared(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint that tests only read."""
    path = tmp_path_factory.mktemp("rewrite") / "ckpt"
    run(session(spark, "hdfs", None), "aggregation", path, {}, AT)
    return path


def _renamed(frame: DataFrame) -> DataFrame:
    return frame.withColumnRenamed("value", "wert")


def _other_type(frame: DataFrame) -> DataFrame:
    return frame.withColumn("value", F.struct(F.lit("1").alias("count"), F.lit(1).alias("sum")))


def _twice(frame: DataFrame) -> DataFrame:
    return frame.union(frame)


def _null(frame: DataFrame) -> DataFrame:
    return frame.withColumn("key", F.when(F.col("key.k") > 3, F.col("key")))


REFUSED: list[tuple[str, dict[str, Any], str]] = [
    ("no change", {}, "nothing would change: set with_, provider, partitions or template"),
    ("provider", {"provider": "redis"}, "provider must be hdfs or rocksdb; got 'redis'"),
    ("partitions", {"partitions": 0}, "partitions must be 1 or more; got 0"),
    ("batch", {"provider": "rocksdb", "to": 99}, "batch 99"),
    ("operator", {"with_": more, "operator": 3}, "no stateful operator 3: its operators are 0"),
    ("sides", {"with_": {"left": more}}, "with_ must be a function for operator 0"),
    ("column", {"with_": _renamed}, "must return the columns key and value; it returned"),
    ("type", {"with_": _other_type}, r"must return value as struct<count:bigint,sum:bigint>"),
    ("duplicate", {"with_": _twice}, "State of default/default, partition .*: two rows have"),
    ("null", {"with_": _null}, "State of default/default, partition .*: the key of a row is null"),
]


@pytest.mark.parametrize(
    ("given", "message"), [pytest.param(*case, id=name) for name, *case in REFUSED]
)
def test_what_is_refused(
    spark: SparkSession, shared: Path, tmp_path: Path, given: dict[str, Any], message: str
) -> None:
    before = _files(shared)
    with pytest.raises(InvalidRequestError, match=message):
        rewrite(shared, tmp_path / "new", spark=spark, **given)
    assert list(tmp_path.iterdir()) == []
    assert _files(shared) == before


def test_without_a_session(spark: SparkSession, shared: Path, tmp_path: Path) -> None:
    """The active session belongs to a thread; another thread passes one."""
    errors: list[Exception] = []

    def work() -> None:
        jvm: Any = spark._jvm
        jvm.org.apache.spark.sql.SparkSession.clearActiveSession()
        try:
            rewrite(shared, tmp_path / "new", provider="rocksdb")
        except InvalidRequestError as error:
            errors.append(error)
        rewrite(shared, tmp_path / "new", provider="rocksdb", spark=spark)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert [str(e) for e in errors] == ["there is no active Spark session: pass one as spark="]
    assert history(tmp_path / "new").batches


def test_without_metadata(spark: SparkSession, query: Query, tmp_path: Path) -> None:
    """Spark 3 wrote no metadata of operators; Spark 4 writes them with its next batch."""
    path = query()
    shutil.rmtree(path / "state/0/_metadata")
    with pytest.raises(InvalidRequestError, match="run a batch of the query with Spark 4"):
        rewrite(path, tmp_path / "new", partitions=3, spark=spark)
    run(session(spark, "hdfs", None), "aggregation", path, {}, AT + 1)
    rewrite(path, tmp_path / "new", partitions=3, spark=spark)


def test_an_unfinished_reset(spark: SparkSession, query: Query, tmp_path: Path) -> None:
    """The sink would drop the batches of the new checkpoint as replays."""
    path = query()
    note = UnfinishedReset(output=str(tmp_path / "output"), batch=AT, time_ms=0)
    unfinished_reset.write(LOCAL, str(path), note)
    with pytest.raises(InvalidRequestError, match="run the same reset again first"):
        rewrite(path, tmp_path / "new", partitions=3, spark=spark)
    reset(path, to=AT, clock=lambda: system_clock() + 10_000)  # no batch is running
    rewrite(path, tmp_path / "new", partitions=3, spark=spark)


def counted_twice(spark: SparkSession) -> tuple[DataFrame, str]:
    """Two stateful operators, the second over a window of the first."""
    window = F.window("timestamp", "4 seconds").alias("w")
    first = source(spark).groupBy(window, "k").agg(F.count("*").alias("n"))
    second = first.groupBy(F.window("w", "8 seconds").alias("w")).agg(F.sum("n").alias("n"))
    return second.select("w.start", "n"), "append"


def in_one(spark: SparkSession) -> tuple[DataFrame, str]:
    """A sum over everything, whose state is in a single partition."""
    return source(spark).agg(F.sum("value").alias("v")), "update"


@pytest.mark.deep
def test_the_number_of_rows(spark: SparkSession, query: Query, tmp_path: Path) -> None:
    """Spark does not count the rows of indexes and of the lengths of lists, before and after."""
    path = query("transform_with_state", "rocksdb")
    rewrite(path, tmp_path / "new", to=AT, partitions=3, spark=spark)
    fork(path, tmp_path / "old", to=AT)
    own = session(spark, "rocksdb", None)
    old, new = (
        rows_reported(own, "transform_with_state", tmp_path / each) for each in ("old", "new")
    )
    assert old == new > 0


@pytest.mark.deep
@pytest.mark.parametrize(("operator", "rows"), [(counted_twice, [3, 3]), (in_one, [1])])
def test_all_operators(
    spark: SparkSession,
    query: Query,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    operator: Operator,
    rows: list[int],
) -> None:
    monkeypatch.setitem(OPERATORS, "other", operator)
    expected: Output = {}
    path = query("other", output=expected, last=LAST)
    report = rewrite(path, tmp_path / "new", to=AT, partitions=3, provider="rocksdb", spark=spark)
    assert [len(each.rows_after) for each in report.operators] == rows
    goes_on(spark, tmp_path / "new", "other", "rocksdb", expected)


def test_a_target_that_exists(spark: SparkSession, shared: Path, tmp_path: Path) -> None:
    (tmp_path / "new").mkdir()
    with pytest.raises(InvalidRequestError, match="exists already: choose a new directory"):
        rewrite(shared, tmp_path / "new", provider="rocksdb", spark=spark)


def test_a_dry_run(spark: SparkSession, shared: Path, tmp_path: Path) -> None:
    before = _files(shared)
    report = rewrite(shared, tmp_path / "new", with_=more, dry_run=True, spark=spark)
    assert report.is_dry_run
    assert sum(report.operators[0].rows_after) == 10
    assert f"{tmp_path / 'new'} would continue after batch 3 of {shared}" in str(report)
    (found,) = report.operators[0].differences
    assert (found.only_first, found.only_second, found.changed) == (0, 0, 10)
    assert "0 keys only in the first, 0 only in the second, 10 with another value" in str(report)
    assert list(tmp_path.iterdir()) == []
    assert _files(shared) == before


def test_a_wrong_number_of_partitions(spark: SparkSession, shared: Path, tmp_path: Path) -> None:
    """Spark itself would begin most keys again, and report nothing."""
    damaged = tmp_path / "damaged"
    report = rewrite(shared, damaged, partitions=5, spark=spark)
    assert isinstance(report, Rewritten)
    plan = damaged / "offsets" / str(AT)
    plan.write_text(plan.read_text().replace('partitions":"5"', 'partitions":"3"'))
    for change in ({"provider": "rocksdb"}, {"partitions": 4}):
        with pytest.raises(InvalidRequestError, match="a row belongs to partition"):
            rewrite(damaged, tmp_path / "new", spark=spark, **change)


@pytest.mark.parametrize("damage", ["swapped", "duplicated"])
def test_files_of_another_partition(
    spark: SparkSession, shared: Path, tmp_path: Path, damage: str
) -> None:
    """Spark reads them without an error, and would begin the keys of the partition again."""
    damaged = tmp_path / "ckpt"
    shutil.copytree(shared, damaged)
    first, second = ({f.name: f for f in (damaged / f"state/0/{n}").glob("*.*")} for n in (0, 1))
    assert first.keys() == second.keys()
    for name, file in first.items():
        other = second[name].read_bytes()
        if damage == "swapped":
            second[name].write_bytes(file.read_bytes())
        file.write_bytes(other)
    for change in ({"provider": "rocksdb"}, {"partitions": 4}, {"with_": lambda rows: rows}):
        with pytest.raises(InvalidRequestError, match="a row belongs to partition"):
            rewrite(damaged, tmp_path / "new", spark=spark, **change)
    assert not (tmp_path / "new").exists()


def _files(path: Path) -> dict[str, bytes]:
    return {str(file): file.read_bytes() for file in sorted(path.rglob("*")) if file.is_file()}


def test_equal_and_other_state(spark: SparkSession, shared: Path, tmp_path: Path) -> None:
    rewrite(shared, tmp_path / "moved", provider="rocksdb", partitions=3, spark=spark)
    found = diff(shared, tmp_path / "moved", spark=spark)
    assert found.is_equal
    assert str(found) == "the state after batch 3 is equal: 10 rows"

    def changed(frame: DataFrame) -> DataFrame:
        some = frame.where("key.k < 8").withColumn(
            "key", F.struct(F.when(F.col("key.k") == 0, 100).otherwise(F.col("key.k")).alias("k"))
        )
        return more(some.where("key.k < 4")).union(some.where("key.k >= 4"))

    rewrite(shared, tmp_path / "changed", with_=changed, spark=spark)
    found = diff(shared, tmp_path / "changed", spark=spark, batch=AT)
    assert not found.is_equal
    (family,) = found.families
    assert family.rows == (10, 8)
    assert (family.only_first, family.only_second, family.changed) == (3, 1, 3)
    assert family.sample[0] == '{"k":0}'
    assert "3 keys only in the first, 1 only in the second, 3 with another value" in str(found)


def test_equal_rows_with_other_values(spark: SparkSession, shared: Path, tmp_path: Path) -> None:
    rewrite(shared, tmp_path / "more", with_=more, spark=spark)
    (family,) = diff(shared, tmp_path / "more", spark=spark).families
    assert (family.only_first, family.only_second, family.changed) == (0, 0, 10)


def test_what_can_not_be_compared(spark: SparkSession, shared: Path, query: Query) -> None:
    with pytest.raises(InvalidRequestError, match="batch 99"):
        diff(shared, shared, batch=99, spark=spark)
    with pytest.raises(InvalidRequestError, match="has other columns or types"):
        diff(shared, query("drop_duplicates"), spark=spark)


@pytest.mark.parametrize(
    ("operator", "provider", "manager"),
    [
        ("aggregation", "hdfs", None),
        pytest.param("aggregation", "rocksdb", MANAGER, marks=pytest.mark.deep),
        pytest.param("transform_with_state", "rocksdb", None, marks=pytest.mark.deep),
    ],
)
def test_in_place(
    spark: SparkSession,
    query: Query,
    tmp_path: Path,
    operator: str,
    provider: str,
    manager: str | None,
) -> None:
    """The query goes on at the same path, and the original at the restore point, moved back."""
    expected: Output = {}
    path = settled(query(operator, provider, manager, output=expected))
    batch = AT
    done = rewrite(path, in_place=True, partitions=3, spark=spark, clock=later)
    assert done.new_path == done.path == str(path)
    assert done.restore_point is not None
    assert f"the original is kept as {done.restore_point}" in str(done)
    assert sorted(map(str, tmp_path.iterdir())) == sorted([str(path), done.restore_point])
    assert len(done.operators[0].rows_after) == 3
    assert history(path).batches[-1].batch == batch
    assert history(path).is_log_backed == (manager is not None)
    undisturbed: Output = {}
    run(session(spark, provider, None), operator, tmp_path / "other", undisturbed, batch + 1)
    own = session(spark, provider, manager)
    found: Output = {}
    run(own, operator, path, found, batch + 1)
    assert found[batch + 1] == undisturbed[batch + 1]
    path.rename(tmp_path / "aside")
    Path(done.restore_point).rename(path)
    again: Output = {}
    run(own, operator, path, again, batch + 1)
    assert again[batch + 1] == undisturbed[batch + 1]


def settled(path: Path, batch: int = AT) -> Path:
    """Return a checkpoint without the batch that the query may have planned when it was stopped."""
    reset(path, to=batch, clock=later)
    return path


def later() -> int:
    """A time at which a batch that isn't committed counts as stopped."""
    return system_clock() + 20_000


class NoExchange(LocalFileSystem):
    """A file system that can't exchange two directories."""

    def exchange(self, first: str, second: str) -> bool:
        return False


class Mounted(LocalFileSystem):
    """A machine on which each directory is a mount point."""

    def identity(self, path: str) -> tuple[int, int]:
        return len(path), 0


def test_a_batch_without_a_commit(spark: SparkSession, query: Query, tmp_path: Path) -> None:
    """Its sink may have the output, so the query commits it before the state is changed."""
    path = settled(query())
    shutil.copy(path / f"offsets/{AT}", path / f"offsets/{AT + 1}")
    with pytest.raises(InvalidRequestError, match="batch 4 is planned and not committed"):
        rewrite(path, in_place=True, partitions=3, spark=spark, clock=later)
    frame, mode = OPERATORS["aggregation"](session(spark, "hdfs", None))
    writer = frame.writeStream.outputMode(mode).format("noop").trigger(availableNow=True)
    writer.option("checkpointLocation", str(path)).start().awaitTermination()
    assert AT + 1 in [row.batch for row in history(path).batches if row.committed_ms is not None]
    rewrite(path, in_place=True, partitions=3, spark=spark, clock=later)


def test_what_can_not_be_replaced(spark: SparkSession, query: Query, tmp_path: Path) -> None:
    path = settled(query())
    before = _files(path)

    def refused(message: str, source: Any = path, **given: Any) -> None:
        with pytest.raises((InvalidRequestError, LogLockedError), match=message):
            rewrite(source, spark=spark, clock=later, **{"partitions": 3, **given})
        assert _files(path) == before
        assert list(tmp_path.iterdir()) == [path]

    refused("name a target, or choose in_place")
    refused("name a target, or choose in_place", target=tmp_path / "new", in_place=True)
    refused("can't go back to batch 1. Reset the checkpoint to this", to=1, in_place=True)
    refused("is a mount point, .*: name a target, and start", in_place=True, fs=Mounted())
    plan = path / "offsets/99"

    def planned(frame: DataFrame) -> DataFrame:
        """The query plans a batch meanwhile."""
        plan.write_text("v1\n{}\n0")
        before[str(plan)] = plan.read_bytes()
        return frame

    refused("is running: stop it before the change in place", in_place=True, with_=planned)
    plan.unlink()
    del before[str(plan)]
    stored = f"memory://{tmp_path.name}-{id(path)}"
    fsspec.filesystem("memory").put(str(path), stored, recursive=True)
    refused("in a bucket can't be replaced together: import it first", stored, in_place=True)
    rewrite(stored, f"{stored}-new", partitions=3, spark=spark)
    import_(stored, clock=later)
    done = rewrite(stored, in_place=True, partitions=3, spark=spark, clock=later)
    assert len(done.operators[0].rows_after) == 3
    with pytest.raises(InvalidRequestError, match="can't exchange two directories"):
        rewrite(path, in_place=True, partitions=3, spark=spark, clock=later, fs=NoExchange())
    (changed,) = set(tmp_path.iterdir()) - {path}
    output: Output = {}
    run(session(spark, "hdfs", None), "aggregation", changed, output, AT + 1)
    reset(path, to=1, clock=later)
    rewrite(path, to=1, in_place=True, partitions=3, spark=spark, clock=later)


def test_in_place_in_runs(spark: SparkSession, shared: Path, tmp_path: Path) -> None:
    """The checkpoint gets another run; the original is copied to the restore point."""
    url = f"memory://{tmp_path.name}-{id(tmp_path)}"
    fork(shared, url, to=AT)
    options: Any = {"in_place": True, "partitions": 3, "spark": spark, "clock": later}
    with pytest.raises(InvalidRequestError, match="can't go back to batch 1"):
        rewrite(url, to=1, **options)
    dry = rewrite(url, dry_run=True, **options)
    assert dry.restore_point is None
    assert diff(shared, url, spark=spark).is_equal
    done = rewrite(url, **options)
    assert done.new_path == done.path == url
    assert done.restore_point is not None
    assert done.restore_point.startswith(f"{url}.restore-point-")
    for each, partitions in ((url, 3), (done.restore_point, 2)):
        found = diff(shared, each, spark=spark)
        assert found.is_equal
        assert history(each).batches[-1].batch == AT
        assert verify(each).ok
        again = rewrite(each, tmp_path / str(partitions), provider="rocksdb", spark=spark)
        assert len(again.operators[0].rows_before) == partitions


def test_a_query_that_runs_in_runs(spark: SparkSession, shared: Path, tmp_path: Path) -> None:
    """A driver, or another change, that writes meanwhile is not overtaken."""
    url = f"memory://{tmp_path.name}-{id(tmp_path)}"
    fork(shared, url, to=AT)

    def meanwhile(frame: DataFrame) -> DataFrame:
        if not changed:
            changed.append(True)
            rewrite(url, in_place=True, partitions=4, spark=spark, clock=later)
        return frame

    changed: list[bool] = []
    with pytest.raises(LogLockedError, match="the query is running, or another command changes"):
        rewrite(url, in_place=True, partitions=3, with_=meanwhile, spark=spark, clock=later)
    assert len(fsspec.filesystem("memory").glob(f"/{tmp_path.name}*.restore-point-*")) == 1
    again = rewrite(url, tmp_path / "again", provider="rocksdb", spark=spark)
    assert len(again.operators[0].rows_before) == 4


def test_another_run_that_begins_after_the_seal(
    spark: SparkSession, shared: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The change fails, and its restore point, which nobody needs, is deleted."""
    name = f"{tmp_path.name}-{id(tmp_path)}"
    fork(shared, f"memory://{name}", to=AT)
    publish, points = CopyInRuns.publish, list[str | None]()

    def publishing(self: CopyInRuns) -> None:
        publish(self)
        if not points:
            points.append("")
            other = rewrite(f"memory://{name}", in_place=True, partitions=4, spark=spark)
            points[0] = other.restore_point

    with monkeypatch.context() as patch:
        patch.setattr(CopyInRuns, "publish", publishing)
        with pytest.raises(LogLockedError, match="the query is running, or another command"):
            rewrite(f"memory://{name}", in_place=True, partitions=3, spark=spark, clock=later)
    left = fsspec.filesystem("memory").glob(f"/{name}.restore-point-*")
    assert [f"memory:/{each}" for each in left] == points
    again = rewrite(f"memory://{name}", tmp_path / "again", provider="rocksdb", spark=spark)
    assert len(again.operators[0].rows_before) == 4


def test_an_interrupted_conversion(spark: SparkSession, shared: Path, tmp_path: Path) -> None:
    """The files beside the runs would be taken for another history, and would keep erased rows."""
    url = f"memory://{tmp_path.name}-{id(tmp_path)}"
    fork(shared, url, to=AT)
    store = open_store(url)
    home = store.get(HOME)
    export(url, clock=later)
    files = {listed.name: store.get(listed.name) for listed in store.list()}
    import_(url, clock=later)
    for file, data in files.items():  # as of an export that was killed before the end
        store.put(file, data)
    assert store.get(HOME) != home
    with pytest.raises(InvalidRequestError, match="import or export of the checkpoint was interr"):
        rewrite(url, in_place=True, partitions=3, spark=spark, clock=later)
    import_(url, clock=later)
    rewrite(url, in_place=True, partitions=3, spark=spark, clock=later)
