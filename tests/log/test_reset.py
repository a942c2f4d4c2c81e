"""A writer that is set back commits again what came after, once."""

import os
from collections.abc import Iterator

import pyarrow as pa
import pytest

import sparklog
from sparklog import BatchConflictError, InvalidRequestError, Log
from sparklog.clock import ManualClock
from sparklog.common import TopicPartition
from sparklog.log.commit import CommitResult
from sparklog.logdir import ledger
from sparklog.logdir.home import commits_of
from sparklog.logdir.ledger import LEDGER_DIR
from sparklog.service import verify
from sparklog.storage.ledger_records import CommitRecord, ResetRecord
from sparklog.storage.log_state import LogState
from sparklog.storage.offset_ranges import OffsetRange
from tests.log.homes import IN_LOG_DIR
from tests.micro_batches import commit_batch


@pytest.fixture
def log(log_path: str, clock: ManualClock) -> Iterator[Log]:
    with sparklog.open(log_path, "rw", clock=clock) as log:
        log.create_topic("t")
        yield log


def commit(log: Log, batch: int, run: str = "", writer: str = "q") -> CommitResult:
    """Commit one record as `writer`; `run` makes it another plan of the same number."""
    rows = pa.table({"value": [f"{writer} {batch}{run}"]})
    return commit_batch(log, writer, batch, rows, fingerprint=f"{batch}{run}")


def values(log: Log) -> list[str]:
    column = log.read("t", columns=["value"]).read_all().column("value")
    return [value.decode() for value in column.to_pylist()]


def test_batches_after_it_are_appended_anew_and_once(log: Log) -> None:
    for batch in range(5):
        commit(log, batch)
    assert log.reset("q", 2) == ["q"]
    assert commit(log, 2).replayed  # what stays is still known
    assert not commit(log, 3, "b").replayed
    assert commit(log, 3, "b").replayed
    assert not commit(log, 4).replayed  # the same plan as before is new as well
    assert commit(log, 4).replayed
    with pytest.raises(BatchConflictError, match="another plan"):
        commit(log, 3)
    assert values(log) == [f"q {n}" for n in (0, 1, 2, 3, 4, "3b", 4)]
    assert log.offsets("t") == {0: (0, 7)}


def test_a_replay_of_the_last_batch_that_stays_returns_its_offsets(log: Log) -> None:
    for batch in range(3):
        commit(log, batch)
    log.reset("q", 1)
    assert commit(log, 1).ends == {"t": {0: (1, 2)}}


@IN_LOG_DIR
def test_it_is_idempotent(log: Log) -> None:
    for batch in range(3):
        commit(log, batch)
    assert log.reset("q", 0) == ["q"]
    end = commits_of(log).ledger.end
    assert log.reset("q", 0) == []
    assert log.reset("q", 7) == []
    assert log.reset("nobody", 0) == []
    assert commits_of(log).ledger.end == end


def test_back_to_before_the_first_batch(log: Log) -> None:
    commit(log, 0)
    commit(log, 1)
    assert log.reset("q", -1) == ["q"]
    assert not commit(log, 0).replayed
    assert commit(log, 0).replayed
    with pytest.raises(InvalidRequestError, match="batch=-2"):
        log.reset("q", -2)


def test_all_sinks_of_a_query_and_nobody_else(log: Log) -> None:
    for writer in ("q", "q/a", "q/b", "q2", "other/q"):
        for batch in range(3 if writer != "q/b" else 1):
            commit(log, batch, writer=writer)
    assert log.reset("q", 0) == ["q", "q/a"]
    for writer in ("q", "q/a", "q/b"):
        assert commit(log, 0, writer=writer).replayed
        assert not commit(log, 1, writer=writer).replayed
    for writer in ("q2", "other/q"):
        assert commit(log, 1, writer=writer).replayed
    assert log.reset("q/a", 0) == ["q/a"]
    assert commit(log, 1, writer="q").replayed


def test_a_batch_that_was_taken_back_and_left_out_is_no_replay(log: Log) -> None:
    """Its record is in the ledger, but it was taken back: nobody can say what it is now."""
    for batch in range(4):
        commit(log, batch)
    log.reset("q", 1)
    commit(log, 3, "b")
    with pytest.raises(BatchConflictError, match="no longer in the ledger"):
        commit(log, 2)


@pytest.mark.parametrize("again", ["open", "crash", "snapshot"])
@IN_LOG_DIR
def test_it_outlives_the_process(log: Log, again: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for batch in range(4):
        commit(log, batch)
    log.reset("q", 1)
    if again == "snapshot":
        monkeypatch.setattr(commits_of(log).ledger, "segment_bytes", 0)
        commit(log, 0, writer="v")
    if again == "crash":
        os.unlink(os.path.join(log.path, "sparklog.lock"))  # full recovery
    if again == "open":
        log.close()
    with sparklog.open(log.path, "rw") as later:
        assert commit(later, 1).replayed
        assert not commit(later, 2, "b").replayed
        assert commit(later, 2, "b").replayed


def test_the_table_of_commits_shows_it(log: Log) -> None:
    for batch in range(3):
        commit(log, batch, writer="q/a")
        commit(log, batch, writer="q/b")
    log.reset("q", 0)
    log.reset("q/a", -1)
    table = log.commits()
    resets = [row for row in table.to_pylist() if row["kind"] == "reset"]
    shown = [(row["writer"], row["batch"], row["topic"], row["first"]) for row in resets]
    assert shown == [("q/a", 0, None, None), ("q/b", 0, None, None), ("q/a", -1, None, None)]
    assert log.commits("q/b").column("kind").to_pylist() == ["commit"] * 3 + ["reset"]


@IN_LOG_DIR
def test_verify_finds_nothing_wrong(log: Log) -> None:
    for batch in range(3):
        commit(log, batch)
    log.reset("q", 0)
    commit(log, 1, "b")
    log.close()
    report = verify(log.path)
    assert report.ok
    assert not report.findings


def test_records_of_before_are_still_understood() -> None:
    """They named one writer and the first batch that may come again."""
    state = LogState()
    ends = {TopicPartition("t", 0): OffsetRange(0, 1)}
    state.apply(CommitRecord(writer="w", batch=7, fingerprint="f", ends=ends, time_ms=1))
    state.apply(ResetRecord(writer="w", batch=9, time_ms=1))
    assert state.writers["w"].batch == 7
    state.apply(ResetRecord(writer="w", batch=5, time_ms=1))
    assert state.writers["w"].batch == 4


@IN_LOG_DIR
def test_an_expired_batch_is_kept_by_number(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    """The ledger has no record of it any more: what it was can't be told, what comes is new."""
    monkeypatch.setattr(ledger.LedgerWriter, "wants_snapshot", property(lambda self: True))
    for batch in range(9):
        commit(log, batch)
    log.close()
    for name in sorted(os.listdir(os.path.join(log.path, LEDGER_DIR)))[:12]:
        if not name.endswith(("metadata", "checkpoint")):
            os.unlink(os.path.join(log.path, LEDGER_DIR, name))
    with sparklog.open(log.path, "rw") as later:
        assert later.reset("q", 1) == ["q"]
        with pytest.raises(BatchConflictError, match="no longer in the ledger"):
            commit(later, 1)
        assert not commit(later, 2).replayed
