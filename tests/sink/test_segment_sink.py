"""`SegmentSink` as foreachBatch calls it, without a Spark session: the tasks' code runs here."""

import logging
import os
import pickle
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import IntegerType, StringType, StructField, StructType

import sparklog
from sparklog.errors import (
    BatchConflictError,
    InvalidRequestError,
    LogReplacedError,
    SparklogError,
    StorageUnavailableError,
    UnknownTopicError,
)
from sparklog.jvm.gateway import NO_JAR
from sparklog.log.log import Log, home_of
from sparklog.logdir.chunk_files import CHUNK_PREFIX, new_chunk_path
from sparklog.lru_cache import LruCache
from sparklog.sink import SegmentSink, open_logs, row_staging, segment_sink
from sparklog.sink.query import Query
from sparklog.sink.row_staging import StagingTask
from sparklog.sink.task import TaskPlan
from sparklog.storage.commits import StagingExpiredError
from sparklog.storage.staging import chunk_label

LARGE = pa.RecordBatch.from_pydict({"value": ["x" * 1000] * 1000})  # goes to a chunk file
GOOD, BAD = (
    LARGE.append_column("partition", pa.array([number] * 1000, pa.int32())) for number in (0, 7)
)


@dataclass
class Frame:
    """A micro-batch; each of `tasks` gets one record batch. `is_large`: Spark knows so."""

    tasks: Sequence[pa.RecordBatch] = (LARGE, LARGE)
    is_large: bool = True
    jobs: int = 0  # that have run
    before: list[Callable[[], object]] = field(default_factory=list)  # done when a job begins

    @property
    def schema(self) -> StructType:
        kinds = {"partition": IntegerType()}
        names = self.tasks[0].schema.names
        return StructType([StructField(name, kinds.get(name, StringType())) for name in names])

    @property
    def sparkSession(self) -> None:
        return None

    def select(self, *_: str) -> "Frame":
        return self

    def toArrow(self) -> pa.Table:
        self.jobs += 1
        for action in self.before:
            action()
        return pa.Table.from_batches(self.tasks)


def run_job(df: Frame, plan: TaskPlan) -> list[Any]:
    """Do what Spark does with the tasks of a job, one after the other."""
    df.jobs += 1
    for action in df.before:
        action()
    task = pickle.loads(pickle.dumps(StagingTask(plan)))
    parts = [part for rows in df.tasks for part in task(iter([rows]))]
    return [row["answer"] for part in parts for row in part.to_pylist()]


@dataclass
class Runs:
    """Runs of one query, whose checkpoint is in `root`."""

    root: Path
    now: Query

    @property
    def log(self) -> str:
        return str(self.root / "log")

    def sink(self, topic: str | None = "t", **options: Any) -> Any:
        return SegmentSink(self.log, topic, compression_type="none", **options)

    def restart(self) -> None:
        self.now = query(self.root, run=self.now.run + "'")

    def staged(self) -> list[str]:
        return [name for name in os.listdir(self.log) if name.startswith(CHUNK_PREFIX)]

    def offsets(self, topic: str = "t") -> dict[int, tuple[int, int]]:
        with sparklog.open(self.log) as log:
            return log.offsets(topic)


def query(root: Path, *, run: str = "run", id: str = "query") -> Query:
    jvm: Any = SimpleNamespace(active={})
    return Query(id, run, str(root / "checkpoint"), "app", jvm)


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Runs]:
    """Ten planned micro-batches, and Spark's part of the work replaced."""
    offsets = tmp_path / "checkpoint" / "offsets"
    offsets.mkdir(parents=True)
    for batch in range(10):
        (offsets / str(batch)).write_text(f"v1\n{{}}\n{batch}")
    (tmp_path / "checkpoint" / "metadata").write_text('{"id":"query"}')
    (tmp_path / "log").mkdir()
    runs = Runs(tmp_path, query(tmp_path))
    monkeypatch.setattr(segment_sink, "running_query", lambda df: runs.now)
    monkeypatch.setattr(segment_sink, "plan_digest", lambda query, df: "")
    monkeypatch.setattr(row_staging, "find_gateway", lambda spark, wanted: NO_JAR)
    monkeypatch.setattr(row_staging, "stage_in_tasks", run_job)
    monkeypatch.setattr(row_staging, "is_surely_large", lambda df: df.is_large)
    monkeypatch.setattr(segment_sink, "RUNS", LruCache(8))
    yield runs
    open_logs.close()


def test_a_replay_is_dropped_before_its_rows_are_staged(
    runs: Runs, caplog: pytest.LogCaptureFixture
) -> None:
    first, again = Frame(), Frame()
    runs.sink()(first, 0)
    runs.restart()
    with caplog.at_level(logging.WARNING, "sparklog.sink"):
        runs.sink()(again, 0)
    assert (first.jobs, again.jobs) == (1, 0)
    assert runs.offsets() == {0: (0, 2000)}
    assert "micro-batch 0 of writer query is a replay" in caplog.text


def test_a_replay_that_only_the_commit_notices_leaves_no_files(
    runs: Runs, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another driver may have committed the micro-batch while this one staged it."""
    runs.sink()(Frame(), 0)
    runs.restart()
    monkeypatch.setattr(Log, "committed", lambda *_: None)
    again = Frame()
    swept: list[object] = []
    sink = runs.sink()
    home = type(home_of(open_logs.shared_log(sink._options)))
    monkeypatch.setattr(home, "sweep_staged", lambda *a, **_: swept.append(a))
    sink(again, 0)
    assert again.jobs == 1
    assert runs.offsets() == {0: (0, 2000)}
    assert runs.staged() == []


def test_a_second_sink_of_a_query_needs_a_name(runs: Runs) -> None:
    runs.sink()(Frame(), 0)
    with pytest.raises(InvalidRequestError, match=r"already written micro-batch 0 .* option name"):
        runs.sink()(Frame(), 0)
    runs.sink(name="second")(Frame(), 0)
    assert runs.offsets() == {0: (0, 4000)}


def test_the_offsets_of_another_plan_are_another_micro_batch(runs: Runs) -> None:
    runs.sink()(Frame(), 0)
    (runs.root / "checkpoint" / "offsets" / "0").write_text("v1\n{}\n7")
    runs.restart()
    with pytest.raises(BatchConflictError, match="another plan"):
        runs.sink()(Frame(), 0)


def test_a_micro_batch_that_failed_may_be_written_by_the_same_run(runs: Runs) -> None:
    sink = runs.sink()
    sink(Frame([GOOD, GOOD]), 0)
    with pytest.raises(InvalidRequestError, match="no partition 7"):
        sink(Frame([GOOD, BAD]), 1)
    assert runs.staged() == [], "what the other task staged"
    assert runs.offsets() == {0: (0, 2000)}
    sink(Frame([GOOD, GOOD]), 1)
    assert runs.offsets() == {0: (0, 4000)}


def test_files_of_lost_attempts_go_at_the_first_micro_batch_of_a_run(runs: Runs) -> None:
    lost, alive = (new_chunk_path(runs.log, chunk_label("query", batch) + "-0") for batch in (3, 4))
    for path in (lost, alive):
        Path(path).write_bytes(b"")
    runs.sink()(Frame(), 3)
    assert runs.staged() == [os.path.basename(alive)]


def test_what_took_too_long_to_stage_is_staged_once_more(
    runs: Runs, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An object that waited for its commit beyond its age may be gone."""
    commit = Log.commit
    failures = [StagingExpiredError("too old"), None, *[StagingExpiredError("too old")] * 2]

    def failing(self: Log, *args: Any, **named: Any) -> Any:
        error = failures.pop(0)
        if error is not None:
            raise error
        return commit(self, *args, **named)

    monkeypatch.setattr(Log, "commit", failing)
    sink, once, never = runs.sink(), Frame(), Frame()
    sink(once, 0)
    assert once.jobs == 2
    assert runs.offsets() == {0: (0, 2000)}
    with pytest.raises(StagingExpiredError):
        sink(never, 1)
    assert never.jobs == 2
    assert failures == []


def test_a_topic_that_another_writer_made_meanwhile(runs: Runs) -> None:
    """Its rows were spread over the partitions that the sink would have made."""
    rows = pa.RecordBatch.from_pydict({"value": ["a", "b"], "topic": ["new", "new"]})

    def made_by_another() -> None:
        with sparklog.open(runs.log, "rw") as log:
            log.create_topic("new", 5)

    frame = Frame([rows], before=[made_by_another])
    with pytest.raises(SparklogError, match="another writer created topic new with 5 partitions"):
        runs.sink(None, partitions=2)(frame, 0)
    assert sum(end for _, end in runs.offsets("new").values()) == 0
    frame.before.clear()
    runs.restart()
    runs.sink(None, partitions=2)(frame, 0)
    assert sum(end for _, end in runs.offsets("new").values()) == 2


@pytest.mark.parametrize("topic", ["t", None])
def test_no_topic_is_made_where_that_is_switched_off(runs: Runs, topic: str | None) -> None:
    rows = pa.RecordBatch.from_pydict({"value": ["a"], "topic": ["t"]})
    sink = runs.sink(topic, **{"auto.create.topics.enable": False})
    with pytest.raises(UnknownTopicError, match="topic t"):
        sink(Frame([rows]), 0)
    with sparklog.open(runs.log) as log:
        assert list(log.topics()) == []


@pytest.mark.parametrize(("name", "words"), [("x/y", "x/y"), (None, "null topic")])
def test_rows_with_a_topic_that_cannot_be_are_refused(
    runs: Runs, name: str | None, words: str
) -> None:
    rows = pa.RecordBatch.from_pydict({"value": ["a", "b"], "topic": ["t", name]})
    with pytest.raises(InvalidRequestError, match=words):
        runs.sink(None)(Frame([rows]), 0)
    with sparklog.open(runs.log) as log:
        assert list(log.topics()) == []


def test_a_topic_that_a_small_micro_batch_names_first_is_made(runs: Runs) -> None:
    """The driver stages it, with the topics that it knows at hand."""
    small = {"value": ["a", "b"]}
    sink = runs.sink(None, partitions=2)
    for batch, names in enumerate((["t", "t"], ["t", "t"], ["t", "new"], ["t", "new"])):
        frame = Frame([pa.RecordBatch.from_pydict({**small, "topic": names})], is_large=False)
        sink(frame, batch)
    assert sum(end for _, end in runs.offsets("new").values()) == 2


def test_a_task_that_fails_leaves_no_files(runs: Runs) -> None:
    log = open_logs.shared_log(runs.sink()._options)
    plan = segment_sink.plan_tasks(runs.sink()._options, log, "label-0", ["value", "partition"])
    with pytest.raises(InvalidRequestError, match="no partition 7"):
        plan.run([GOOD, GOOD, BAD], task=0)
    assert runs.staged() == []


def test_a_task_stages_nothing_in_a_log_that_took_the_place_of_the_drivers(runs: Runs) -> None:
    def replaced() -> None:
        shutil.rmtree(runs.log)
        with sparklog.open(runs.log, "rw"):
            pass

    with pytest.raises(LogReplacedError, match="since this micro-batch was planned"):
        runs.sink()(Frame(before=[replaced]), 0)


def test_a_task_that_can_not_write_now_is_left_to_spark_to_try_again(
    runs: Runs, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All other errors are of the rows, and travel to the driver as a row."""
    log = open_logs.shared_log(runs.sink()._options)
    plan = segment_sink.plan_tasks(runs.sink()._options, log, "label-0", ["value"])

    def fail(_: object) -> None:
        raise StorageUnavailableError("the disk is away")

    monkeypatch.setattr(type(plan.staging), "check", fail)
    with pytest.raises(StorageUnavailableError):
        list(StagingTask(plan)(iter([LARGE])))


def test_large_strings_and_binaries_are_rows_as_others(runs: Runs) -> None:
    """Spark sends such types with spark.sql.execution.arrow.useLargeVarTypes."""
    plain = {"value": [b"a", b"b"], "key": ["k", "l"], "topic": ["t", "u"]}
    kinds = {"value": pa.large_binary(), "key": pa.large_string(), "topic": pa.large_string()}
    rows = [
        pa.RecordBatch.from_pydict(columns)
        for columns in (plain, {name: pa.array(plain[name], kinds[name]) for name in plain})
    ]
    for batch, (part, is_large) in enumerate(product(rows, (True, False))):
        runs.sink(None, partitions=5, name=str(batch))(Frame([part], is_large=is_large), 0)
    with sparklog.open(runs.log) as log:
        read = log.read("u").read_all().select(["key", "value", "partition"]).to_pylist()
        assert [(row["key"], row["value"]) for row in read] == [(b"l", b"b")] * 4
        assert len({row["partition"] for row in read}) == 1
