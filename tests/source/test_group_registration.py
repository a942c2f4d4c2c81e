"""What a query's tasks register, seen without Spark: where, under which name, and when not."""

import logging
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import sparklog
from sparklog.clock import ManualClock
from sparklog.errors import StorageUnavailableError
from sparklog.fs import LOCAL
from sparklog.logdir import group_offsets
from sparklog.logdir.group_offsets import GroupFiles
from sparklog.source import group_registration
from sparklog.source.group_registration import RENEW_MS, batch_start_offsets, query_name, register
from sparklog.source.input_partitions import FirstTask
from sparklog.source.offsets import from_json
from sparklog.source.options import parse
from sparklog.source.schema import full_schema
from sparklog.source.stream import StreamReader
from sparklog.spark_versions import ReadAllAvailable
from sparklog.storage.group_store import Groups
from sparklog.testing.groups_contract import offsets_of
from tests.source.test_replaced import GOLDEN, stream

QUERY = "11111111-2222-3333-4444-555555555555"


class Task:
    """A TaskContext of one micro-batch."""

    def __init__(
        self,
        batch: int | None,
        query: str | None = QUERY,
        run: str = "run-1",
        description: str | None = None,
    ) -> None:
        self.known = {"sql.streaming.queryId": query, "spark.app.id": "app-1"}
        self.known["spark.job.description"] = description
        self.known["spark.jobGroup.id"] = run
        self.known["streaming.sql.batchId"] = None if batch is None else str(batch)

    def getLocalProperty(self, name: str) -> str | None:
        return self.known[name]


def groups_in(home: str | Path) -> Groups:
    return Groups(GroupFiles(LOCAL, str(home)))


@pytest.fixture
def task(monkeypatch: pytest.MonkeyPatch) -> Any:
    def run_in(found: Task | None) -> None:
        context = type("T", (), {"get": lambda: found})
        monkeypatch.setattr(group_registration, "TaskContext", context)

    return run_in


@pytest.fixture
def path(tmp_path: Path) -> str:
    path = str(tmp_path / "log")
    with sparklog.open(path, "rw") as log:
        log.create_topic("t", 2)
        log.append("t", pa.table({"value": ["x"] * 10}), partition=0)
        log.append("t", pa.table({"value": ["x"] * 10}), partition=1)
        log.delete_records("t", {0: 4})
    return path


def test_it_begins_where_all_before_is_committed() -> None:
    held = {("t", 0): (4, 10), ("t", 1): (0, 10), ("t", 2): (5, 9), ("other", 0): (0, 1)}
    start = {("t", 0): 2, ("t", 1): 3, ("gone", 0): 7}
    end = {("t", 0): 9, ("t", 1): 3, ("t", 2): 9, ("gone", 0): 7}
    assert batch_start_offsets(start, end, held) == {("t", 0): 4, ("t", 1): 3, ("t", 2): 5}


def test_the_first_task_registers_the_whole_micro_batch(path: str, task: Any) -> None:
    reader = stream(path, maxRecordsPerPartition="3")
    planned = reader.partitions({"t": {"0": 6, "1": 9}}, {"t": {"0": 10, "1": 10}})
    task(Task(7))
    for piece in reversed(planned[1:]):
        list(reader.read(piece))
    assert groups_in(path).readers().groups == []
    rows = list(reader.read(planned[0]))
    assert rows[0]["offset"][0].as_py() == 6
    (found,) = groups_in(path).readers().groups
    assert (found.group, found.kind, found.app, found.batch) == (QUERY, "query", "app-1", 7)
    assert offsets_of(groups_in(path), QUERY) == {("t", 0): 6, ("t", 1): 9}
    assert reader.partitions({"t": {"0": 10, "1": 10}}, {"t": {"0": 10, "1": 10}}) == []


def run(reader: Any, start: Any, task: Any, batch: int, **named: str) -> Any:
    """One micro-batch as Spark runs it; returns where it ended."""
    end = reader.latestOffset(start, ReadAllAvailable())
    if end == start:
        return end
    task(Task(batch, **named))
    for piece in reader.partitions(start, end):
        list(reader.read(piece))
    task(None)
    return end


def lag(path: str) -> list[int]:
    return sparklog.open(path).readers()["lag"].to_pylist()


def described(name: str, run: str = "run-1", batch: str = "7") -> str:
    """The description of a query's jobs as Spark 4.3 makes it."""
    return f"{name}\nid = {QUERY}\nrunId = {run}\nbatch = {batch}"


@pytest.mark.parametrize(
    ("description", "name"),
    [
        (described("orders"), "orders"),
        (described(""), ""),
        (described("a\nid = 1\nrunId = 2\nbatch = 3"), "a\nid = 1\nrunId = 2\nbatch = 3"),
        (described("\x1b[2J", batch="init"), "\x1b[2J"),
        (described("x" * 249), "x" * 249),
        (described("x" * 250), "x" * 248 + "\u2026"),
        ("my own job", ""),
        ("", ""),
        (None, ""),
    ],
)
def test_the_name_of_a_query(description: str | None, name: str) -> None:
    assert query_name(description, QUERY) == name
    assert query_name(description, None) == ""


def test_the_name_of_a_query_is_registered(path: str, task: Any) -> None:
    """By its tasks or by its planner; another run may have another name, or none."""
    begin, names = {"t": {"0": 4, "1": 0}}, []
    for number, name in enumerate(("orders", "", "bills")):
        reader, run_id = stream(path), f"run-{number}"
        run(reader, begin, task, number, run=run_id, description=described(name, run_id))
        names += sparklog.open(path).readers()["query"].to_pylist()
    said = {**CALLED, "sparklog.jvm.description": described("planned", batch="init")}
    reader = stream(path, **said)
    reader.partitions(of_batch(begin, 3), reader.latestOffset(begin, ReadAllAvailable()))
    names += sparklog.open(path).readers()["query"].to_pylist()
    assert names == ["orders"] * 2 + [None] * 2 + ["bills"] * 2 + ["planned"] * 2


def test_a_query_that_has_read_all_has_no_lag(path: str, task: Any) -> None:
    reader = stream(path)
    end = run(reader, {"t": {"0": 4, "1": 0}}, task, 0)
    assert lag(path) == [6, 10]  # Spark may not have committed it
    assert run(reader, end, task, 1) == end
    assert lag(path) == [0, 0]
    (found,) = groups_in(path).readers().groups
    assert (found.group, found.kind, found.app, found.batch) == (QUERY, "query", "app-1", 0)
    with sparklog.open(path, "rw") as log:
        log.append("t", pa.table({"value": ["x"]}), partition=0)
    failed = reader.latestOffset(end, ReadAllAvailable())
    reader.partitions(end, failed)
    assert lag(path) == [1, 0]  # its micro-batch ran, and isn't committed
    # the next run: another process plans, and says nothing before it knows whose planner it is
    again = stream(path)
    assert run(again, end, task, 1, run="run-2") == failed
    assert lag(path) == [1, 0]
    again.latestOffset(failed, ReadAllAvailable())
    assert lag(path) == [0, 0]


def test_a_task_writes_nothing_that_its_planner_has_said(
    path: str, task: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    reader = stream(path, maxOffsetsPerTrigger="5")
    written: list[object] = []
    write = group_offsets.write_durably
    noted = lambda *a, **k: (written.append(a), write(*a, **k))  # noqa: E731
    monkeypatch.setattr(group_offsets, "write_durably", noted)
    at: Any = {"t": {"0": 4, "1": 0}}
    for batch in range(5):
        begin, at = at, reader.latestOffset(at, reader.getDefaultReadLimit())
        task(Task(batch))
        for piece in reader.partitions(begin, at):
            list(reader.read(piece))
        assert len(written) == batch + 1


def test_an_idle_query_does_not_expire(path: str, task: Any, clock: ManualClock) -> None:
    given = parse({"path": path, "subscribe": "t"}, streaming=True)
    reader = StreamReader(given, full_schema(headers=False), clock)
    end = run(reader, {"t": {"0": 4, "1": 0}}, task, 0)
    for ms in (0, RENEW_MS - 1, 1):
        clock.advance(ms)
        run(reader, end, task, 1)
    (found,) = groups_in(path).readers().groups
    assert {at.time_ms for at in found.offsets.values()} == {clock()}


CALLED = {"sparklog.jvm.query": QUERY, "sparklog.jvm.run": "run-1", "sparklog.jvm.app": "app-1"}


def of_batch(start: Any, batch: int) -> Any:
    """Where a micro-batch begins, as the JVM says it."""
    return {**start, "#query": {"batch": batch}}


def test_a_planner_that_knows_the_query_needs_no_task(path: str, task: Any) -> None:
    begin: Any = {"t": {"0": 4, "1": 0}}
    reader = stream(path, **CALLED)
    end = reader.latestOffset(begin, ReadAllAvailable())
    planned = reader.partitions(of_batch(begin, 3), end)
    assert not any(isinstance(piece.value, FirstTask) for piece in planned)
    assert lag(path) == [6, 10]
    (found,) = groups_in(path).readers().groups
    said = (found.group, found.kind, found.app, found.batch, found.run)
    assert said == (QUERY, "query", "app-1", 3, "run-1")
    assert reader.latestOffset(end, ReadAllAvailable()) == end  # nothing of it is kept
    assert lag(path) == [0, 0]


@pytest.mark.parametrize("called", [{}, CALLED], ids=["tasks", "planners"])
@pytest.mark.parametrize("first", [0, 1])
def test_of_two_sources_of_one_topic_the_lower_offset_stands(
    path: str, task: Any, first: int, called: dict[str, str]
) -> None:
    """Also where the second has its first records later, and whoever comes first."""
    quick, slow = stream(path, **called), stream(path, maxOffsetsPerTrigger="2", **called)
    at = run(quick, {"t": {"0": 4, "1": 0}}, task, 0)
    assert run(quick, at, task, 1) == at
    assert lag(path) == [0, 0]
    behind: Any = {"t": {"0": 4, "1": 5}}
    with sparklog.open(path, "rw") as log:
        log.append("t", pa.table({"value": ["x"] * 3}), partition=0)
    for batch in range(1, 5):
        plans = []
        for reader, begin in ((quick, at), (slow, behind)):
            end = reader.latestOffset(begin, reader.getDefaultReadLimit())
            planned = reader.partitions(of_batch(begin, batch) if called else begin, end)
            assert not (called and any(isinstance(p.value, FirstTask) for p in planned))
            plans.append((reader, planned, end))
        at, wanted, behind = plans[0][2], from_json(behind), plans[1][2]
        task(Task(batch))
        for reader, planned, _ in plans[::-1] if first else plans:
            for piece in planned:
                list(reader.read(piece))
        task(None)
        assert offsets_of(groups_in(path), QUERY) == wanted


NAMES = [
    ({}, QUERY),
    ({"groupIdPrefix": "etl"}, f"etl-{QUERY}"),
    ({"kafka.group.id": "mine", "groupIdPrefix": "etl"}, "mine"),
]


@pytest.mark.parametrize(("options", "name"), NAMES)
def test_names(path: str, task: Any, options: dict[str, str], name: str) -> None:
    task(Task(0))
    given = {"path": path, "subscribe": "t", **options}
    register(parse(given, streaming=True), {("t", 0): 5})
    assert offsets_of(groups_in(path), name) == {("t", 0): 5}


@pytest.mark.parametrize("where", ["outside of a task", "without an id", "a broker's directory"])
def test_nothing_is_registered(path: str, task: Any, where: str, tmp_path: Path) -> None:
    home = path
    if where == "a broker's directory":
        home = str(tmp_path / "broker")
        shutil.copytree(GOLDEN, home)
    task(None if where == "outside of a task" else Task(0, None if "id" in where else QUERY))
    given = {"path": home, "subscribe": "t"}
    register(parse(given, streaming=True), {("t", 0): 5})
    assert groups_in(home).readers().groups == []
    if where == "without an id":  # asked for by name it is
        register(parse(given | {"kafka.group.id": "g"}, streaming=True), {("t", 0): 5})
        assert offsets_of(groups_in(home), "g") == {("t", 0): 5}


def test_a_named_query_of_a_brokers_directory(
    task: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """No file of ours belongs there: it reads, and is told once that nothing keeps its name."""
    home = tmp_path / "broker"
    shutil.copytree(GOLDEN / "plain.none-0", home / "t-0")
    before = sorted(str(file) for file in home.rglob("*"))
    task(Task(0))
    asked = {"until": "log-end", "startingOffsets": "earliest", "kafka.group.id": "g"}
    reader = stream(str(home), **asked)
    with caplog.at_level(logging.WARNING, "sparklog.source"):
        at = reader.initialOffset()
        for _ in range(2):
            end = reader.latestOffset(at, reader.getDefaultReadLimit())
            for called in (at, of_batch(at, 0)):
                planned = reader.partitions(called, end)
                assert sum(rows.num_rows for piece in planned for rows in reader.read(piece))
            reader.latestOffset(end, reader.getDefaultReadLimit())
    assert sorted(str(file) for file in home.rglob("*")) == before
    assert caplog.text.count("option kafka.group.id has no effect") == 1
    said = "stores no readers: in a broker's directory groups are stored by the broker"
    assert said in caplog.text


def test_a_query_reads_on_where_nothing_can_be_written(
    path: str, task: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise StorageUnavailableError("Read-only file system")

    monkeypatch.setattr(type(LOCAL), "open_lock", refuse)
    task(Task(0))
    reader = stream(path)
    planned = reader.partitions({"t": {"0": 6, "1": 9}}, {"t": {"0": 10, "1": 10}})
    with caplog.at_level(logging.WARNING, "sparklog.source"):
        assert sum(rows.num_rows for piece in planned for rows in reader.read(piece)) == 5
    assert "Read-only file system: the query reads on" in caplog.text


def test_a_query_plans_on_where_nothing_can_be_written(
    path: str, task: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The planner registers the offsets behind the last micro-batch."""

    def refuse(*_: object, **__: object) -> None:
        raise StorageUnavailableError("Read-only file system")

    reader = stream(path)
    end = run(reader, {"t": {"0": 4, "1": 0}}, task, 0)
    monkeypatch.setattr(type(LOCAL), "open_lock", refuse)
    with caplog.at_level(logging.WARNING, "sparklog.source"):
        assert reader.latestOffset(end, ReadAllAvailable()) == end
    assert "Read-only file system: the query reads on" in caplog.text


@pytest.mark.parametrize("name", ["", "a\tb", "g" * 250])
def test_bad_names_are_refused_at_the_start(name: str) -> None:
    with pytest.raises(sparklog.InvalidRequestError, match="expected a string of 1 to 249"):
        parse({"path": "p", "subscribe": "t", "kafka.group.id": name}, streaming=True)
