"""The sink on a log in a store: what its tasks staged goes only where that is certain."""

import pickle
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

import sparklog
from sparklog.errors import BatchConflictError, CommitUnknownError, StorageUnavailableError
from sparklog.log.log import Log
from sparklog.sink import open_logs
from sparklog.sink.options import parse
from sparklog.sink.segment_sink import commit_chunks, plan_tasks
from sparklog.sink.task import TaskPlan
from sparklog.storage.commits import Chunk
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
    log = open_logs.opened(options)
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
    log = open_logs.opened(options)
    plan = plan_tasks(options, log, "label-0", ["value"])
    chunks = [chunk for task in range(3) for chunk in in_a_task(plan, task)]
    commit_chunks(log, options, plan, chunks, None, {})
    assert len(staged(url)) == 3
    assert log.read("t").read_all().num_rows == 3 * LARGE.num_rows


def test_one_handle_however_the_url_is_spelled(url: str, tmp_path: Path) -> None:
    log = open_logs.opened(parse({"path": url}))
    for spelled in (f"{url}/", str(tmp_path / "home"), f"file:{tmp_path}/home"):
        assert open_logs.opened(parse({"path": spelled})) is log
    other = open_logs.opened(parse({"path": url, "storageOptions": '{"a": 1}'}))
    assert other is not log
    assert other.home.identity == log.home.identity
    open_logs.close(f"{url}/")
    assert open_logs.opened(parse({"path": url})) is not log


def test_who_else_makes_a_topic_counts(url: str) -> None:
    """This process doesn't know of it yet, and asks for no news before it writes."""
    options = parse({"path": url, "topic": "t", "partitions": 3})
    log = open_logs.opened(options)
    with sparklog.open(url, "rw") as other:
        other.create_topic("t", 5)
    plan = plan_tasks(options, log, "label-0", ["value"])
    assert plan.topics["t"].partitions == 5


def test_a_plan_tells_no_secret_when_it_is_shown(url: str) -> None:
    options = parse({"path": url, "topic": "t", "storageOptions": {"secret": "hush"}})
    plan = plan_tasks(options, open_logs.opened(options), "label-0", ["value"])
    assert "hush" not in repr(plan)
    assert "hush" not in repr(plan.staging)
