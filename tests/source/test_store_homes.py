"""The source on a log in a store: tasks go by their plan, and by the log when that is old."""

import json
import pickle
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

import sparklog
from sparklog.errors import InvalidRequestError
from sparklog.source import open_homes
from sparklog.source.batch import BatchReader
from sparklog.source.options import parse
from sparklog.source.schema import full_schema
from sparklog.tiered.object_store.object_store import ObjectStore

Names = list[str]


@pytest.fixture
def url(tmp_path: Path) -> str:
    url = f"file://{tmp_path}/home"
    with sparklog.open(url, "rw") as log:
        log.create_topic("t", 2)
        for first in range(0, 100, 10):
            values = [b"%d" % number for number in range(first, first + 10)]
            log.append("t", pa.table({"value": values}), partition=first // 10 % 2)
    return url


@pytest.fixture
def got(monkeypatch: pytest.MonkeyPatch) -> Iterator[Names]:
    """The names of the objects that are asked for."""
    names: Names = []
    get = ObjectStore.get

    def counted(
        self: ObjectStore, name: str, start: int = 0, end: int | None = None, **given: int
    ) -> bytes:
        names.append(name)
        return get(self, name, start, end, **given)

    monkeypatch.setattr(ObjectStore, "get", counted)
    open_homes.HOMES.clear()
    yield names
    open_homes.HOMES.clear()


def planned(url: str, **given: str) -> list[bytes]:
    """The tasks of a batch query, as Spark sends them, with their reader."""
    reader = BatchReader(parse({"path": url, "subscribe": "t", **given}, streaming=False),
                         full_schema(headers=False))  # fmt: skip
    return [pickle.dumps((reader, task)) for task in reader.partitions()]


def read(task: bytes) -> list[int]:
    """What a task reads in a process that knows nothing of the log yet."""
    open_homes.HOMES.clear()
    reader, piece = pickle.loads(task)
    return [int(v) for batch in reader.read(piece) for v in batch["value"].to_pylist()]


def test_a_task_asks_for_its_bytes_alone(url: str, got: Names) -> None:
    tasks = planned(url, maxRecordsPerPartition="25")
    assert len(tasks) == 4
    found = []
    for task in tasks:
        del got[:]
        found += read(task)
        assert got
        assert all(name.startswith("ledger-") for name in got), got  # inline data, no home, no head
        assert len(got) <= 4
    assert sorted(found) == list(range(100))


def test_the_key_of_an_open_log_shows_no_secret(url: str) -> None:
    given = {"path": url, "subscribe": "t"}
    options = [
        parse({**given, "storage_options": json.dumps(more)}, streaming=False)
        for more in ({}, {"note": "hush"}, {"note": "hush"})
    ]
    open_homes.HOMES.clear()
    first, second, again = (open_homes.cached_home(each) for each in options)
    assert second is again is not first
    assert len(open_homes.HOMES) == 2
    assert "hush" not in str(open_homes.HOMES.keys())


def test_what_was_planned_in_one_process_is_read_while_the_log_goes_on(url: str) -> None:
    tasks = planned(url)
    with sparklog.open(url, "rw") as log:
        log.append("t", pa.table({"value": [b"1000"]}), partition=0)
        log.delete_records("t", {1: 10})
    first, second = (read(task) for task in tasks)
    assert len(first) == 50
    assert second[-1] == 99
    assert 1000 not in first


def test_a_plan_tells_no_secret_and_is_not_shown(url: str) -> None:
    options = parse(
        {"path": url, "subscribe": "t", "storageOptions": '{"secret": "hush"}'}, streaming=False
    )
    assert "hush" not in repr(options)
    reader = BatchReader(options, full_schema(headers=False))
    for task in reader.partitions():
        assert b"hush" not in pickle.dumps(task)
        assert "hush" not in repr(task)
        assert "plan=" not in repr(task.value)


def test_a_place_without_a_log_is_said_so(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequestError, match="does not exist"):
        planned(f"file://{tmp_path}/nowhere")
