"""What the JVM is told to read by itself, and what it leaves to Python."""

import json
import os
import pickle
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.datasource import InputPartition

import sparklog
from sparklog import Log
from sparklog.common import TopicPartition
from sparklog.format.names import log_name
from sparklog.fs import LOCAL
from sparklog.jvm.plans import PLAN_VERSION
from sparklog.log.aborted_transactions import TransactionIndexes
from sparklog.log.log import home_of
from sparklog.logdir import segment_files
from sparklog.logdir.view import LogDirView
from sparklog.source.batch import BatchReader
from sparklog.source.input_partitions import PlannedRange
from sparklog.source.jvm_plan import pieces_of, task_of
from sparklog.source.jvm_plan import values as jvm_values
from sparklog.source.options import parse
from sparklog.source.schema import full_schema
from tests import paths
from tests.source.test_replaced import ALL, append, log, path, stream
from tests.source.test_replaced import values as rows_of

__all__ = ["log", "path"]
ASKED = {"sparklog.jvm.plan": str(PLAN_VERSION)}
T0 = TopicPartition("t", 0)


def batch(path: str, **more: str) -> BatchReader:
    options = parse({"path": path, "subscribe": "t", **ASKED, **more}, streaming=False)
    return BatchReader(options, full_schema(headers=False))


def plan_of(partition: InputPartition) -> dict[str, Any]:
    return dict(json.loads(partition.value[0]))


def test_a_plan_says_all_that_a_reader_needs(log: Log) -> None:
    (planned,) = batch(log.path).partitions()
    lock = os.path.join(log.path, "sparklog.lock")
    assert plan_of(planned) == {
        "version": PLAN_VERSION,
        "standing": [[lock, *LOCAL.identity(lock)]],
        "pieces": [
            {
                "topic": "t", "partition": 0, "start": 0, "end": 10,
                "directory": os.path.join(log.path, "t-0"),
                "topicId": log.topics()["t"].id, "gaps": False,
                "segments": [0], "next": None, "without": [], "aborted": [],
            }
        ],
    }  # fmt: skip
    (piece,) = pieces_of(task_of(planned.value))
    assert (piece.start, piece.end) == (0, 10)


@pytest.mark.parametrize("isolation", ["read_committed", "read_uncommitted"])
def test_a_plan_says_what_is_left_out(
    log: Log, isolation: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Offsets of abandoned micro-batches, and for read_committed aborted transactions."""
    monkeypatch.setattr(TransactionIndexes, "aborted", lambda self, start, end: [[7, start, end]])
    given = {"path": log.path, "subscribe": "t", "kafka.isolation.level": isolation, **ASKED}
    options = parse(given, streaming=False)
    piece = PlannedRange("t", 0, 2, 9, log.topics()["t"].id, without=((0, 4), (6, 20)))
    (value,) = jvm_values(home_of(log).view, [(piece,)], options)
    (planned,) = json.loads(value[0])["pieces"]
    assert planned["without"] == [[2, 4], [6, 9]]
    assert planned["aborted"] == ([[7, 2, 9]] if isolation == "read_committed" else [])


@pytest.mark.parametrize("options", [{}, {"jvm": "false"}])
def test_who_did_not_ask_gets_no_plan(log: Log, options: dict[str, str]) -> None:
    given = {"path": log.path, "subscribe": "t"} | (ASKED if "jvm" in options else {}) | options
    reader = BatchReader(parse(given, streaming=False), full_schema(headers=False))
    (planned,) = reader.partitions()
    assert planned.value == pieces_of(planned.value)
    assert len(rows_of(reader, [planned])) == 10


def test_who_reads_other_plans_gets_one_that_says_so(log: Log) -> None:
    reader = batch(log.path, **{"sparklog.jvm.plan": "0,99"})
    (planned,) = reader.partitions()
    assert plan_of(planned) == {"version": PLAN_VERSION}
    assert len(rows_of(reader, [planned])) == 10


@pytest.mark.parametrize("at", [0, 3, 9, 10])
def test_python_goes_on_where_the_jvm_left(log: Log, at: int) -> None:
    reader = batch(log.path, maxRecordsPerPartition="4")
    plans = reader.partitions()
    assert [n for n, _ in rows_of(reader, plans)] == list(range(10))
    whole = batch(log.path)
    (planned,) = whole.partitions()
    rest = InputPartition((*planned.value, 0, at))
    assert [n for n, _ in rows_of(whole, [rest])] == list(range(at, 10))


def test_two_histories_are_not_mixed(log: Log, path: str) -> None:
    """What the JVM has read, and what Python would, are of two logs."""
    reader = batch(path)
    (first,) = reader.partitions()
    plan, task = first.value
    values = [(plan, task, 0, 0), (plan, task, 0, 1)]
    for found, value in zip((10, 9), values, strict=True):
        assert len(rows_of(reader, [InputPartition(value)])) == found
    os.rename(path, f"{path}.away")
    shutil.copytree(f"{path}.away", path)
    assert len(rows_of(reader, [InputPartition(values[0])])) == 10  # none was given out yet
    with pytest.raises(sparklog.LogReplacedError, match="start over"):
        rows_of(reader, [InputPartition(values[1])])
    again = batch(path)
    assert [n for n, _ in rows_of(again, again.partitions())] == list(range(10))
    shutil.rmtree(path)
    with pytest.raises(sparklog.LogReplacedError, match="start over"):
        rows_of(reader, [InputPartition(values[1])])


def test_python_goes_on_up_to_the_next_piece_of_the_jvms(log: Log) -> None:
    reader = batch(log.path)
    (piece,) = pieces_of(task_of(reader.partitions()[0].value))
    part = type(piece)
    pieces = tuple(part("t", 0, n, n + 2, piece.topic_id) for n in range(0, 10, 2))
    kinds = [{}, {"python": ""}, {"python": ""}, {}, {"python": ""}]
    plan = json.dumps({"standing": [], "pieces": kinds}).encode()

    def read(piece: int, at: int) -> list[int]:
        value = InputPartition((plan, pickle.dumps(pieces), piece, at))
        return [n for n, _ in rows_of(reader, [value])]

    assert read(0, 1) == [1, 2, 3, 4, 5]
    assert read(1, 2) == [2, 3, 4, 5]
    assert read(2, 5) == [5]
    assert read(3, 6) == [6, 7, 8, 9]


def test_segments_that_are_not_local_are_pythons(log: Log, path: str) -> None:
    log.create_topic("s", config={"segment.bytes": 1 << 20})
    for _ in range(9):
        log.append("s", pa.table({"value": ["x" * (600 << 10)]}))
    os.unlink(os.path.join(path, "s-0", log_name(0)))
    os.unlink(os.path.join(path, "s-0", log_name(1)))

    def cut(start: int, end: int) -> list[tuple[int, int, Any, Any]]:
        bounds = {
            "startingOffsets": json.dumps({"s": {"0": start}}),
            "endingOffsets": json.dumps({"s": {"0": end}}),
        }
        options = parse({"path": path, "subscribe": "s", **ASKED, **bounds}, streaming=False)
        (planned,) = BatchReader(options, full_schema(headers=False)).partitions()
        pieces = plan_of(planned)["pieces"]
        spans = [(piece.start, piece.end) for piece in pieces_of(task_of(planned.value))]
        assert spans == [(each["start"], each["end"]) for each in pieces]
        return [(*s, e.get("segments"), e.get("next")) for s, e in zip(spans, pieces, strict=True)]

    assert cut(0, 2) == [(0, 2, None, None)]
    assert cut(0, 5) == [(0, 2, None, None), (2, 5, [2, 3, 4], 5)]
    assert cut(4, 9) == [(4, 9, [4, 5, 6, 7, 8], None)]
    assert cut(4, 6) == [(4, 6, [4, 5], 6)]


def test_a_broker_s_directory(tmp_path: Path) -> None:
    home = str(tmp_path / "broker")
    shutil.copytree(paths.GOLDEN / "kafka-4.1" / "logdir", home)
    topics = sparklog.open(home).topics()
    name = next(iter(topics))
    given = {"path": home, "subscribe": name, "kafka.isolation.level": "read_committed", **ASKED}
    plans = BatchReader(parse(given, streaming=False), full_schema(headers=False)).partitions()
    for planned in plans:
        plan = plan_of(planned)
        assert plan["standing"] == [[home, *LOCAL.identity(home)]]
        assert all(piece["gaps"] for piece in plan["pieces"])


def test_a_stream_s_first_task_registers_it_unless_the_jvm_says_which_query_it_is(
    log: Log,
) -> None:
    start, end = {"t": {"0": 0}}, {"t": {"0": 10}}
    (unnamed,) = stream(log.path, **ASKED).partitions(start, end)
    (piece,) = plan_of(unnamed)["pieces"]
    assert piece["python"] == "its task registers the query"
    named = stream(log.path, **ASKED, **{"sparklog.jvm.query": "q-1"})
    (planned,) = named.partitions(start, end)
    (piece,) = plan_of(planned)["pieces"]
    assert piece["segments"] == [0]
    assert rows_of(named, [planned]) == rows_of(named, [unnamed])
    assert log.readers().select(["group", "offset"]).to_pylist() == [{"group": "q-1", "offset": 0}]
    assert named.latestOffset(end, ALL) == end
    assert log.readers()["offset"].to_pylist() == [10]


class TestLocalFiles:
    """`View.local_files` of a log dir: listed again only where something may have changed."""

    def test_it_lists_again_after_a_roll(
        self, log: Log, path: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        log.alter_topic("t", config={"segment.bytes": 1 << 20})
        view = LogDirView(LOCAL, [path])
        listed: list[str] = []
        bases_of = segment_files.segment_bases

        def counted(fs: Any, directory: str) -> list[int]:
            listed.append(directory)
            return bases_of(fs, directory)

        monkeypatch.setattr(segment_files, "segment_bases", counted)
        monkeypatch.setattr(segment_files, "SETTLED_MS", -60_000)
        for turn in range(4):
            os.utime(os.path.join(path, "t-0"), (turn, turn))  # however coarse the disk's times are
            before = len(listed)
            for _ in range(3):
                files = view.local_files(T0)
                assert files is not None
                assert list(files.bases) == bases_of(LOCAL, files.directory)
            assert len(listed) == before + 1
            for _ in range(2):  # the second rolls
                append(log, "x" * (600 << 10), 1)

    def test_a_directory_that_just_changed_is_listed_each_time(
        self, log: Log, path: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Its time stamp may not tell the next change."""
        view = LogDirView(LOCAL, [path])
        monkeypatch.setattr(LOCAL, "changed_ms", lambda path: sparklog.clock.system_clock() - 1000)
        assert view.local_files(T0).bases == [0]  # type: ignore[union-attr]
        open(os.path.join(path, "t-0", log_name(10)), "w").close()
        assert view.local_files(T0).bases == [0, 10]  # type: ignore[union-attr]

    def test_what_is_not_there(self, log: Log, path: str) -> None:
        view = LogDirView(LOCAL, [path])
        with pytest.raises(sparklog.UnknownTopicError):
            view.local_files(TopicPartition("nowhere", 0))
        for name in os.listdir(os.path.join(path, "t-0")):
            if name.endswith(".log"):
                os.unlink(os.path.join(path, "t-0", name))
        assert view.local_files(T0) is None
        shutil.rmtree(os.path.join(path, "t-0"))
        assert view.local_files(T0) is None
