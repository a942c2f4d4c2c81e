"""Records committed at offsets of their own: after a crash, beside others, in a deleted place."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import sparklog
from sparklog.errors import InvalidRequestError, UnknownTopicError
from sparklog.service import verify
from sparklog.tools.moving.preserved_offsets import Run, commit_runs, copied_ends
from tests.oracle import Oracle


def run(start: int, end: int, offsets: list[int]) -> Run:
    rows = pa.RecordBatch.from_pydict(
        {
            "value": pa.array([b"%d" % n for n in offsets], pa.binary()),
            "timestamp": pa.array([10**12 + n for n in offsets], pa.timestamp("ms")),
            "offset": pa.array(np.array(offsets, np.int64)),
        }
    )
    return Run(start, end, [rows] if offsets else [])


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Offsets [7, 120), most of them missing; at both ends, too."""
    with sparklog.open(tmp_path / "log", "rw") as log:
        log.create_topic("t", 2, starts={0: 7, 1: 0})
        commit_runs(log, "t", {0: run(7, 50, [9, 10, 30]), 1: run(0, 3, [])}, writer="w")
        commit_runs(log, "t", {0: run(50, 90, [])}, writer="w")
        commit_runs(log, "t", {0: run(90, 120, [90, 91, 92, 111])}, writer="w")
    return tmp_path / "log"


def offsets(path: Path) -> list[int]:
    with sparklog.open(path) as log:
        found: list[int] = log.read("t", [0], columns=["offset"]).read_all()["offset"].to_pylist()
    return found


def test_what_is_there(path: Path, oracle: Oracle) -> None:
    assert offsets(path) == [9, 10, 30, 90, 91, 92, 111]
    with sparklog.open(path) as log:
        assert log.offsets("t") == {0: (7, 120), 1: (0, 3)}
        for start, first in ((7, 9), (11, 30), (31, 90), (60, 90), (112, None)):
            found = log.read("t", [0], {0: start}).read_all()
            assert (found["offset"][0].as_py() if found.num_rows else None) == first
        assert log.offsets_for_times("t", {0: 10**12 + 31}) == {0: 90}
    assert verify(path).ok
    judged = oracle.open(path / "t-0", clean=True)
    assert (judged.start, judged.end, judged.count, judged.untouched) == (7, 120, 7, True)


def test_a_full_recovery_knows_of_the_gaps(path: Path, oracle: Oracle) -> None:
    (path / "sparklog.lock").write_bytes(b"")  # as a power cut leaves it: nothing is known
    (path / ".kafka_cleanshutdown").unlink()
    for index in (path / "t-0").glob("*index"):
        index.unlink()
    with sparklog.open(path, "rw") as log:
        assert copied_ends(log, "t", "w", "x") == {0: 120, 1: 3}
        commit_runs(log, "t", {0: run(120, 125, [124])}, writer="w")
    assert offsets(path) == [9, 10, 30, 90, 91, 92, 111, 124]
    assert verify(path).ok
    assert oracle.open(path / "t-0", clean=False).end == 125


def test_no_two_records_at_one_offset(path: Path) -> None:
    with sparklog.open(path, "rw") as log:
        with pytest.raises(InvalidRequestError, match=r"ends at 120, but .* at offset 119:"):
            commit_runs(log, "t", {0: run(119, 121, [120])}, writer="w")
        log.append("t", pa.table({"value": ["own"]}), partition=1)
        with pytest.raises(InvalidRequestError, match="t-1 contains records that were not copied"):
            copied_ends(log, "t", "w", "Kafka")
        with pytest.raises(InvalidRequestError, match="t-0 contains records that were not copied"):
            copied_ends(log, "t", "another", "Kafka")
        log.delete_topic("t")
        with pytest.raises(InvalidRequestError, match="an offset must not be used for two records"):
            log.create_topic("t", 2, starts={0: 7, 1: 0})
        log.create_topic("plain")
        advice = "not created as a copy.*; choose the name of a new topic"
        with pytest.raises(InvalidRequestError, match=advice):
            commit_runs(log, "plain", {0: run(0, 1, [0])}, writer="w")
        log.create_topic("new", 1, starts={0: 0})
        commit_runs(log, "new", {0: run(0, 1, [0])}, writer="w")
        assert log.offsets("new") == {0: (0, 1)}
        with pytest.raises(InvalidRequestError, match=r"partitions 0\.\.0"):
            log.create_topic("bad", 1, starts={3: 7})
    assert verify(path).ok


def test_a_stranger_is_not_taken_for_the_copy(tmp_path: Path) -> None:
    """Who writes to another partition meanwhile isn't vouched for by the next commit."""
    with sparklog.open(tmp_path / "log", "rw") as log:
        log.create_topic("t", 2, starts={0: 7, 1: 5})
        commit_runs(log, "t", {0: run(7, 50, [9])}, writer="w")
        log.append("t", pa.table({"value": ["own"]}), partition=1)
        with pytest.raises(InvalidRequestError, match=r"t-1 ends at 6, but .* at offset 5:"):
            commit_runs(log, "t", {0: run(50, 60, [])}, writer="w")
        with pytest.raises(InvalidRequestError, match="t-1 contains records that were not copied"):
            copied_ends(log, "t", "w", "Kafka")
        assert log.offsets("t") == {0: (7, 50), 1: (5, 6)}


def test_a_copy_that_is_begun_anew(tmp_path: Path) -> None:
    """What the writer did in a former topic of this name says nothing about the new one."""
    with sparklog.open(tmp_path / "log", "rw") as log:
        log.create_topic("t", 2, starts={0: 7, 1: 5})
        commit_runs(log, "t", {0: run(7, 50, [9]), 1: run(5, 9, [])}, writer="w")
        log.delete_topic("t")
        log.create_topic("t", 2, starts={0: 80, 1: 9})
        assert copied_ends(log, "t", "w", "Kafka") == {0: 80, 1: 9}
        commit_runs(log, "t", {1: run(9, 12, [11])}, writer="w")
        assert copied_ends(log, "t", "w", "Kafka") == {0: 80, 1: 12}
        log.append("t", pa.table({"value": ["own"]}), partition=0)
        log.delete_records("t", {0: 81})
        with pytest.raises(InvalidRequestError, match="t-0 contains records that were not copied"):
            copied_ends(log, "t", "w", "Kafka")


def test_a_copy_whose_topic_is_deleted_meanwhile_is_made_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with sparklog.open(tmp_path / "log", "rw") as log:
        log.create_topic("t", 1, starts={0: 7})
        with monkeypatch.context() as patch:

            def offsets(topic: str) -> dict[int, tuple[int, int]]:
                found = sparklog.Log.offsets(log, topic)
                log.delete_topic(topic)  # by somebody else, right after this look
                return found

            patch.setattr(log, "offsets", offsets)
            with pytest.raises(UnknownTopicError, match="deleted during the copy; repeat the copy"):
                copied_ends(log, "t", "w", "Kafka")
        log.create_topic("t", 1, starts={0: 7})
        assert copied_ends(log, "t", "w", "Kafka") == {0: 7}
        commit_runs(log, "t", {0: run(7, 50, [9])}, writer="w")
        assert copied_ends(log, "t", "w", "Kafka") == {0: 50}
