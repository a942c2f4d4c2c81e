"""A query that lost its id with its checkpoint: known again by what else it shows."""

import contextlib
import dataclasses
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import sparklog
from sparklog.errors import BatchConflictError
from sparklog.log.commit import Identity, QueryIdentity
from sparklog.log.log import Log
from sparklog.logdir.home import commits_of
from sparklog.storage.query_origin import BatchStart, QueryOrigin, positions
from sparklog.storage.staging import Framing


def kafka(*ends: int, topic: str = "in") -> str:
    return json.dumps({topic: {str(p): end for p, end in enumerate(ends)}})


OLD = QueryOrigin(checkpoint="/c", name="q", plan="filter A", ends=(kafka(100, 100),))


def origin(start: str | None = kafka(0, 0), alive: Any = (), **fields: Any) -> QueryOrigin:
    given = {"checkpoint": "/c", "plan": "filter A", "ends": (kafka(10, 10),), **fields}
    return QueryOrigin(**given, look=lambda: BatchStart((start,), frozenset(alive)))


def write(
    log: Log, writer: str, origin: QueryOrigin | None, *, batch: int = 0, topic: str = "t"
) -> Any:
    stager = log.stager(Framing())
    stager.add(log.topic(topic), pa.record_batch({"value": ["v"]}))
    known: dict[str, Any] = {"writer": writer, "batch": batch, "fingerprint": f"fp{batch}"}
    identity = Identity(**known) if origin is None else QueryIdentity(**known, origin=origin)
    return log.commit(stager.finish(), identity=identity)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "log"
    with sparklog.open(path, "rw") as log:
        log.create_topic("t", partitions=2)
        log.create_topic("u")
        log.append("u", pa.table({"value": ["v"]}))
        write(log, "old", OLD)
    return path


REFUSED = {
    "the same checkpoint location": origin(plan="filter B"),
    "the same name": origin(checkpoint="/d", name="q", plan="filter B"),
    "the same plan": origin(checkpoint="/d"),
    "one partition goes further, one begins anew": origin(kafka(100, 99)),
    "a source that doesn't say where it begins": origin(None),
}
ACCEPTED = {
    "another application with another filter": origin(checkpoint="/d", plan="filter B"),
    "it begins where the other ended": origin(kafka(100, 100), ends=(kafka(120, 130),)),
    "another source": origin(kafka(0, topic="x"), ends=(kafka(5, topic="x"),)),
    "the other one runs": origin(alive=["old"]),
    "a name that was chosen": dataclasses.replace(origin(), is_meant=True),
    "nothing is known": None,
}


@pytest.mark.parametrize("case", REFUSED)
def test_refused(path: Path, case: str) -> None:
    with sparklog.open(path, "rw") as log:
        with pytest.raises(BatchConflictError, match=r"new to t of .* of old, .*100.*`name`"):
            write(log, "new", REFUSED[case])
        assert sum(end for _, end in log.offsets("t").values()) == 1
        with pytest.raises(BatchConflictError):  # whichever micro-batch has its first rows
            write(log, "new", dataclasses.replace(REFUSED[case]), batch=7)


@pytest.mark.parametrize("case", ACCEPTED)
def test_accepted(path: Path, case: str) -> None:
    with sparklog.open(path, "rw") as log:
        write(log, "new", ACCEPTED[case])
        assert sum(end for _, end in log.offsets("t").values()) == 2


@pytest.mark.parametrize(
    ("read", "is_refused"),
    [
        pytest.param('{"logOffset":0}', True, id="the file source numbers its batches from 0"),
        pytest.param("3", False, id="the rate source counts from its own start"),
    ],
)
def test_sources_that_begin_anew(path: Path, read: str, *, is_refused: bool) -> None:
    with sparklog.open(path, "rw") as log:
        write(log, "before", dataclasses.replace(OLD, plan="other", checkpoint="/x", ends=(read,)))
        again = origin(None, ends=(read,), plan="other", checkpoint="/x")
        refused = pytest.raises(BatchConflictError, match="of before,")
        with refused if is_refused else contextlib.nullcontext():
            write(log, "new", again)


def test_ways_out(path: Path) -> None:
    with sparklog.open(path, "rw") as log:
        write(log, "new/again", origin())  # another sink name
        write(log, "new/again", origin(), batch=1)
        log.reset("old", -1)
        write(log, "new", origin())


def test_another_sink_of_the_same_query_is_no_predecessor(path: Path) -> None:
    with sparklog.open(path, "rw") as log:
        write(log, "old/second", origin())
        with pytest.raises(BatchConflictError, match="of old/second,"):
            write(log, "new/second", origin())


def test_rows_that_are_gone_are_not_written_twice(path: Path) -> None:
    with sparklog.open(path, "rw") as log:
        log.delete_records("t", {0: -1, 1: -1})
        write(log, "purged", origin())
    with sparklog.open(path, "rw") as log:
        log.delete_topic("t")
        log.create_topic("t")
        write(log, "new", origin())
        write(log, "new", origin(), topic="u", batch=1)  # where the old one never wrote


def test_it_outlives_the_ledgers_segments(path: Path) -> None:
    with sparklog.open(path, "rw") as log:
        write(log, "old", dataclasses.replace(OLD, ends=(kafka(300, 300),)), batch=1)
        with commits_of(log).exclusive():
            commits_of(log).write_snapshot()
    with sparklog.open(path, "rw") as log:
        with pytest.raises(BatchConflictError, match="300"):
            write(log, "new", origin(kafka(200, 200)))
        assert commits_of(log).state.origins["old"].topics == {"t"}


def test_positions() -> None:
    assert positions(kafka(3, 4)) == {("in", "0"): 3, ("in", "1"): 4}
    assert positions('{"logOffset":3}') == {("logOffset",): 3}
    assert positions('{"in":{"0":3},"in#epoch":{"0":9}}') == {("in", "0"): 3}
    assert positions("17") == {(): 17}
    assert positions(None) == positions("no json") == positions('{"a": true, "b": "7"}') == {}
