"""The log dir's commits: sessions take turns, time goes on, a sync that failed is made up for."""

import logging
from pathlib import Path

import pyarrow as pa
import pytest

import sparklog
from sparklog.clock import ManualClock
from sparklog.common import TopicPartition
from sparklog.errors import (
    InvalidRequestError,
    OutOfOrderSequenceError,
    StorageUnavailableError,
)
from sparklog.log.log import home_of
from sparklog.log.producing import Outcome, Produced, produce
from sparklog.logdir.home import commits_of
from sparklog.logdir.lock import State
from sparklog.storage.commits import Chunk
from tests.logdir.partitions import T0, batch, create, marker, reopen, transactional

DAY_MS = 86_400_000
ROW = pa.table({"value": ["x"]})


def test_what_another_session_committed_is_taken_in_without_recovery(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with sparklog.open(tmp_path / "log", "rw") as one, sparklog.open(one.path, "rw") as two:
        one.create_topic("t")
        for n in range(6):
            assert (one, two)[n % 2].append("t", ROW) == {"t": {0: (n, n + 1)}}
    ours = [r for r in caplog.records if r.name.startswith("sparklog")]
    assert [r.getMessage() for r in ours if r.levelno >= logging.WARNING] == []


def test_open_transactions_are_left_to_the_broker(tmp_path: Path) -> None:
    """Nobody here could end them, and read_committed readers would never pass them."""
    log = create(tmp_path / "t-0")
    log.append(transactional(batch("undecided", producer=(7, 0, 0))), 0)
    log.close()
    (tmp_path / ".kafka_cleanshutdown").write_bytes(b'{"version":0,"brokerEpoch":-1}')
    with pytest.raises(InvalidRequestError, match=r"open transactions of producers \[7\]"):
        sparklog.open(tmp_path, "rw")
    broker = reopen(log)
    broker.append(marker(1, producer_id=7), 1)  # as a broker ends it
    broker.close()
    (tmp_path / ".kafka_cleanshutdown").write_bytes(b'{"version":0,"brokerEpoch":-1}')
    with sparklog.open(tmp_path, "rw") as opened:
        opened.append("t", ROW)
        assert opened.read("t").read_all().num_rows == 2


def test_a_step_is_announced_in_the_page_of_the_lock(tmp_path: Path) -> None:
    """A process that dies within the step leaves the page with the states to return to."""
    key = TopicPartition("t", 0)
    with sparklog.open(tmp_path / "log", "rw") as log:
        log.create_topic("t")
        log.append("t", ROW)
        commits = commits_of(log)
        with commits.exclusive():
            with pytest.raises(ZeroDivisionError), commits.step([key]):
                page = commits.lock.read()
                assert page is not None
                assert page.state is State.BUSY
                assert page.intent is not None
                assert page.intent.logs == {key: commits.partition_log(*key).state}
                raise ZeroDivisionError
            page = commits.lock.read()
            assert page is not None
            assert (page.state, page.intent) == (State.IDLE, None)


def sent(sequence: int, *, at: int = T0, size: int = 10, producer: int = 7) -> Chunk:
    """An idempotent producer's batch of one record."""
    data = batch("v" * size, at=at, producer=(producer, 0, sequence))
    return Chunk(
        topic="t", partition=0, data=data, size_bytes=len(data), records=1, min_timestamp=at,
        max_timestamp=at, idempotent=True,
    )  # fmt: skip


def spans(outcomes: list[Outcome]) -> list[int | type]:
    return [o.first if isinstance(o, Produced) else type(o) for o in outcomes]


def test_five_batches_of_a_producer_are_known_whoever_else_writes(tmp_path: Path) -> None:
    """A snapshot, which a roll leaves, has but the last one; and none that was written long ago."""
    options = {"internal.segment.bytes": 300}
    clock = ManualClock(T0 + 40 * DAY_MS)
    with (
        sparklog.open(tmp_path / "log", "rw", clock=clock) as one,
        sparklog.open(tmp_path / "log", "rw", clock=clock) as two,
    ):
        one.create_topic("t", config=options)
        one.create_topic("u")
        for n in range(8):
            assert spans(produce(home_of(one).commits, [sent(n, size=80)])) == [2 * n]
            two.append("t", pa.table({"value": ["x" * 80]}))
            two.append("u", ROW)
        assert len(list((tmp_path / "log" / "t-0").glob("*.log"))) > 5
        again = produce(home_of(one).commits, [sent(n, size=80) for n in range(8)])
        assert spans(again) == [*[OutOfOrderSequenceError] * 3, 6, 8, 10, 12, 14]
        two.alter_topic("t", config={"retention.ms": "-1"})
        one.delete_records("t", {0: 9})
        assert spans(produce(home_of(one).commits, [sent(4, size=80)])) == [8]
        two.delete_topic("t")
        two.create_topic("t")  # another topic: nothing is known of its producers
        assert spans(produce(home_of(one).commits, [sent(7), sent(3, producer=8)])) == [16, 17]


def test_what_was_undone_was_never_sent(tmp_path: Path) -> None:
    with sparklog.open(tmp_path / "log", "rw") as log:
        log.create_topic("t")
        commits = commits_of(log)
        assert spans(produce(commits, [sent(0)])) == [0]
        fail = StorageUnavailableError("disk")
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(type(commits.ledger), "append", lambda *a, **k: _raise(fail))
            assert produce(commits, [sent(1), sent(2)]) == [fail, fail]
        assert spans(produce(commits, [sent(0, producer=8)])) == [1]
        assert spans(produce(commits, [sent(2), sent(1), sent(2), sent(0)])) == [
            OutOfOrderSequenceError, 2, 3, 0,
        ]  # fmt: skip


def _raise(error: Exception) -> None:
    raise error
