"""The sink on a log in a store: what its tasks staged goes only where that is certain."""

import pickle
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

import sparklog
from sparklog.diskless.home import DisklessHome
from sparklog.diskless.staged_chunks import objects_of
from sparklog.errors import BatchConflictError, CommitUnknownError, StorageUnavailableError
from sparklog.log.admin import reset_writers
from sparklog.log.commit import Identity
from sparklog.log.log import Log, home_of
from sparklog.sink import open_logs
from sparklog.sink.options import parse
from sparklog.sink.segment_sink import commit_chunks, plan_tasks
from sparklog.sink.task import TaskPlan
from sparklog.storage.chunk_table import ChunkTable
from sparklog.storage.commits import Chunk
from sparklog.storage.staging import chunk_label
from sparklog.tiered.object_store.object_store import ObjectStore
from sparklog.tiered.target import open_store

LARGE = pa.RecordBatch.from_pydict({"value": [bytes([n % 251]) * 1000 for n in range(2000)]})


@pytest.fixture
def url(tmp_path: Path) -> Iterator[str]:
    url = f"file://{tmp_path}/home"
    yield url
    open_logs.close(url)


def staged(url: str) -> list[str]:
    return [one.name for one in open_store(url).list() if one.name.startswith("staged-")]


def in_a_task(plan: TaskPlan, task: int = 0) -> list[Chunk]:
    """What a task stages that was sent to another process, as it is sent back."""
    return list(pickle.loads(pickle.dumps(plan)).run([LARGE], task=task).chunks())


@pytest.mark.parametrize(
    ("cause", "left"),
    [
        (CommitUnknownError("nobody knows", position=7), 1),
        (KeyboardInterrupt(), 1),
        (StorageUnavailableError("the store is away"), 1),
        (BatchConflictError("another fingerprint"), 0),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, BaseException) else "",
)
def test_what_a_commit_may_have_taken_stays(
    url: str, monkeypatch: pytest.MonkeyPatch, cause: BaseException, left: int
) -> None:
    options = parse({"path": url, "topic": "t"})
    log = open_logs.shared_log(options)
    plan = plan_tasks(options, log, "label-0", ["value"])
    chunks = in_a_task(plan)
    assert len(staged(url)) == 1

    def fail(*_: object, **__: object) -> None:
        raise cause

    monkeypatch.setattr(Log, "commit", fail)
    with pytest.raises(type(cause)):
        commit_chunks(log, options, plan, chunks, None, {})
    assert len(staged(url)) == left


def test_what_tasks_staged_is_read_where_it_lies(url: str) -> None:
    options = parse({"path": url, "topic": "t", "partitions": 2})
    log = open_logs.shared_log(options)
    plan = plan_tasks(options, log, "label-0", ["value"])
    chunks = [chunk for task in range(3) for chunk in in_a_task(plan, task)]
    commit_chunks(log, options, plan, chunks, None, {})
    assert len(staged(url)) == 3
    assert log.read("t").read_all().num_rows == 3 * LARGE.num_rows


def test_one_handle_however_the_url_is_spelled(url: str, tmp_path: Path) -> None:
    log = open_logs.shared_log(parse({"path": url}))
    for spelled in (f"{url}/", str(tmp_path / "home"), f"file:{tmp_path}/home"):
        assert open_logs.shared_log(parse({"path": spelled})) is log
    other = open_logs.shared_log(parse({"path": url, "storageOptions": '{"a": 1}'}))
    assert other is not log
    assert home_of(other).identity == home_of(log).identity
    open_logs.close(f"{url}/")
    assert open_logs.shared_log(parse({"path": url})) is not log


def test_who_else_makes_a_topic_counts(url: str) -> None:
    """This process doesn't know of it yet, and asks for no news before it writes."""
    options = parse({"path": url, "topic": "t", "partitions": 3})
    log = open_logs.shared_log(options)
    with sparklog.open(url, "rw") as other:
        other.create_topic("t", 5)
    plan = plan_tasks(options, log, "label-0", ["value"])
    assert plan.topics["t"].partitions == 5


def test_a_plan_tells_no_secret_when_it_is_shown(url: str) -> None:
    options = parse({"path": url, "topic": "t", "storageOptions": {"secret": "hush"}})
    plan = plan_tasks(options, open_logs.shared_log(options), "label-0", ["value"])
    assert "hush" not in repr(plan)
    assert "hush" not in repr(plan.staging)


# --- what lost attempts staged ------------------------------------------------------------------

WRITER = "query-1"


def planned(log: Log, batch: int) -> TaskPlan:
    options = parse({"path": log.path, "topic": "t"})
    return plan_tasks(options, log, chunk_label(WRITER, batch), ["value"])


def committed(log: Log, plan: TaskPlan, batch: int, chunks: list[Chunk]) -> bool:
    """Commit a micro-batch; tells whether it was a replay."""
    identity = Identity(writer=WRITER, batch=batch, fingerprint=f"f{batch}")
    return log.commit(chunks, identity=identity).replayed


def lists(log: Log) -> int:
    assert isinstance(home_of(log), DisklessHome)
    store = home_of(log).objects.store
    assert isinstance(store, ObjectStore)
    return store.counts.lists


def values(log: Log) -> int:
    return log.read("t").read_all().num_rows


def test_lost_attempts_of_a_micro_batch_go_at_its_commit(url: str) -> None:
    log = open_logs.shared_log(parse({"path": url, "topic": "t"}))
    for batch in range(3):
        plan = planned(log, batch)
        lost, chunks = in_a_task(plan), in_a_task(plan)
        other = in_a_task(planned(log, 10 + batch), task=1)
        assert not committed(log, plan, batch, chunks)
        before = lists(log)
        home = home_of(log)
        assert home.sweep_staged(WRITER, batch, committed=chunks, is_retried=batch > 0) == 1
        assert lists(log) == before + 1
        names = staged(url)
        assert not objects_of(lost) & set(names)
        assert objects_of(chunks) | objects_of(other) <= set(names)
    assert values(log) == 3 * LARGE.num_rows


def test_without_a_lost_attempt_nothing_is_asked(url: str) -> None:
    log = open_logs.shared_log(parse({"path": url, "topic": "t"}))
    for batch in range(3):
        plan = planned(log, batch)
        chunks = in_a_task(plan)
        committed(log, plan, batch, chunks)
        before = lists(log)
        home_of(log).sweep_staged(WRITER, batch, committed=chunks)
        assert lists(log) == before + (batch == 0)


def test_a_killed_run_of_the_micro_batch_goes_when_the_query_begins_again(url: str) -> None:
    options = parse({"path": url, "topic": "t"})
    log = open_logs.shared_log(options)
    killed = in_a_task(planned(log, 1))
    log.append("t", pa.table({"value": [b"another writer's"]}))
    open_logs.close(url)
    log = open_logs.shared_log(options)
    plan = planned(log, 1)
    chunks = in_a_task(plan)
    committed(log, plan, 1, chunks)
    assert len(staged(url)) == 2
    assert home_of(log).sweep_staged(WRITER, 1, committed=chunks) == 1
    assert set(staged(url)) == objects_of(chunks) and not objects_of(killed) & set(staged(url))


def test_a_replay_deletes_nothing(url: str) -> None:
    log = open_logs.shared_log(parse({"path": url, "topic": "t"}))
    plan = planned(log, 1)
    first, second = in_a_task(plan), in_a_task(plan)
    assert not committed(log, plan, 1, first)
    assert committed(log, plan, 1, second)
    assert home_of(log).sweep_staged(WRITER, 1, is_retried=True) == 0
    assert values(log) == LARGE.num_rows


def test_records_of_before_a_reset_of_the_writer_stay(url: str) -> None:
    """Both commits have the label of the same micro-batch."""
    options = parse({"path": url, "topic": "t"})
    log = open_logs.shared_log(options)
    plan = planned(log, 1)
    before = in_a_task(plan)
    committed(log, plan, 1, before)
    reset_writers(home_of(log).commits, WRITER, 0)
    open_logs.close(url)
    log = open_logs.shared_log(options)
    plan = planned(log, 1)
    after = in_a_task(plan)
    assert not committed(log, plan, 1, after)
    assert home_of(log).sweep_staged(WRITER, 1, committed=after, is_retried=True) == 0
    assert values(log) == 2 * LARGE.num_rows


def test_what_is_staged_after_the_commit_stays(url: str) -> None:
    """After a reset another driver stages the micro-batch again, before the first one looks."""
    log = open_logs.shared_log(parse({"path": url, "topic": "t"}))
    plan = planned(log, 1)
    chunks = in_a_task(plan)
    committed(log, plan, 1, chunks)
    reset_writers(home_of(log).commits, WRITER, 0)
    again = in_a_task(planned(log, 1))
    assert home_of(log).sweep_staged(WRITER, 1, committed=chunks, is_retried=True) == 0
    assert objects_of(again) <= set(staged(url))


def test_objects_of_an_extent_table_stay(url: str) -> None:
    log = open_logs.shared_log(parse({"path": url, "topic": "t"}))
    plan = planned(log, 1)
    chunks = [chunk for task in range(3) for chunk in in_a_task(plan, task)]
    staging = plan.staging
    tables = [ChunkTable.of([chunk]) for chunk in chunks]
    together = list(staging.gathered(tables))
    committed(log, plan, 1, together)
    assert home_of(log).sweep_staged(WRITER, 1, committed=together, is_retried=True) == 0
    assert values(log) == 3 * LARGE.num_rows
    reset_writers(home_of(log).commits, WRITER, 0)
    plan = planned(log, 1)
    again = in_a_task(plan)
    committed(log, plan, 1, again)
    home_of(log).sweep_staged(WRITER, 1, committed=again, is_retried=True)
    assert values(log) == 4 * LARGE.num_rows
