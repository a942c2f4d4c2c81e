"""The log dir's commits: sessions take turns, time goes on, a sync that failed is made up for."""

import logging
from pathlib import Path

import pyarrow as pa
import pytest

import sparklog
from sparklog.clock import ManualClock
from sparklog.errors import InvalidRequestError
from tests.logdir.partitions import batch, create, transactional

ROW = pa.table({"value": ["x"]})


def test_what_another_session_committed_is_taken_in_without_recovery(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with sparklog.open(tmp_path / "log", "rw") as one, sparklog.open(one.path, "rw") as two:
        one.create_topic("t")
        for n in range(6):
            assert (one, two)[n % 2].append("t", ROW) == {"t": {0: (n, n + 1)}}
    assert [r.getMessage() for r in caplog.records if r.levelno >= logging.WARNING] == []


def test_the_ledgers_time_never_goes_back(tmp_path: Path, clock: ManualClock) -> None:
    with sparklog.open(tmp_path / "log", "rw", clock=clock) as log:
        log.create_topic("t")
        for step_ms in (5000, -60_000, 1000):
            clock.advance(step_ms)
            log.append("t", ROW)
        times = [row["time"] for row in log.commits().to_pylist()]
    assert times == sorted(times)


def test_open_transactions_are_left_to_the_broker(tmp_path: Path) -> None:
    """Nobody here could end them, and read_committed readers would never pass them."""
    log = create(tmp_path / "t-0")
    log.append(transactional(batch("undecided", producer=(7, 0, 0))), 0)
    log.close()
    (tmp_path / ".kafka_cleanshutdown").write_bytes(b'{"version":0,"brokerEpoch":-1}')
    with pytest.raises(InvalidRequestError, match=r"open transactions of producers \[7\]"):
        sparklog.open(tmp_path, "rw")
