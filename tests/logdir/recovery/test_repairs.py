"""Recovery, loading and undo say, file by file, what was cut from where and how long it took."""

import logging
import os
import re
from pathlib import Path

import pytest

from sparklog.clock import ManualClock
from sparklog.format.names import EPOCH_CHECKPOINT, index_name, log_name, snapshot_name
from sparklog.format.names import timeindex_name as time_name
from sparklog.format.names import txnindex_name as txn_name
from sparklog.fs import LOCAL
from sparklog.logdir.partition.partition_log import PartitionLog
from sparklog.logdir.recovery.log_loader import load
from sparklog.logdir.recovery.partition_recovery import CommittedState, recover
from tests.logdir.partitions import T0, batch, config, create, flip

CONFIG = config(segment_bytes=600, index_interval_bytes=100)


@pytest.fixture
def log(tmp_path: Path) -> PartitionLog:
    """Segments 0, 6, 12 and 18 of six records each; the last has two."""
    log = create(tmp_path / "t-0", CONFIG)
    for n in range(20):
        log.append(batch("v" * 20, at=T0 + n, producer=(1, 0, n)), 0 if n < 9 else 2)
    log.close()
    return log


def lines(caplog: pytest.LogCaptureFixture) -> dict[str, tuple[str, str]]:
    """{file name: (level, what was done)} of the lines that end in a duration."""
    found = {}
    for record in caplog.records:
        text = re.fullmatch(r"(.*/t-0/([\w.-]+)): (.*), in \d+ ms", record.getMessage())
        if text is not None:
            assert text[2] not in found, f"two lines for {text[2]}"
            found[text[2]] = record.levelname, text[3]
    return found


def test_full_recovery(log: PartitionLog, caplog: pytest.LogCaptureFixture) -> None:
    sizes = {name: os.path.getsize(f"{log.path}/{name}") for name in os.listdir(log.path)}
    batch_bytes = sizes[log_name(0)] // 6
    flip(f"{log.path}/{index_name(6)}", 5)
    os.unlink(f"{log.path}/{time_name(6)}")
    Path(log.path, txn_name(6)).write_bytes(bytes(34))
    Path(log.path, snapshot_name(15)).write_bytes(b"rubbish")
    Path(log.path, EPOCH_CHECKPOINT).write_bytes(b"0\n3\n0 0\n2 9\n7 19\n")
    with caplog.at_level(logging.DEBUG):
        expected = CommittedState(end=14, recovery_point=6)
        recover(LOCAL, log.path, CONFIG, ManualClock(), expected)
    found = lines(caplog)
    cut = 2 * batch_bytes
    past = "past the committed end 14"
    assert found[log_name(18)] == (
        "WARNING", f"removed all {2 * batch_bytes} bytes, {past}"
    )  # fmt: skip
    assert found[index_name(18)] == ("INFO", f"removed all {sizes[index_name(18)]} bytes, {past}")
    assert found[log_name(12)] == (
        "WARNING",
        f"cut bytes [{cut}, {sizes[log_name(12)]}), offsets from 14 on, past the committed end",
    )
    assert found[log_name(6)] == ("INFO", f"all {sizes[log_name(6)]} bytes kept")
    assert found[index_name(6)] == (
        "INFO", f"cut bytes [5, {sizes[index_name(6)]}), wrote [5, {sizes[index_name(6)]})"
    )  # fmt: skip
    assert found[time_name(6)] == ("INFO", f"created, {sizes[time_name(6)]} bytes")
    assert found[txn_name(6)] == ("INFO", "removed all 34 bytes, no transaction was aborted")
    assert found[snapshot_name(15)] == ("INFO", "removed all 7 bytes, no segment starts there")
    assert found[snapshot_name(6)] == ("DEBUG", f"all {sizes[snapshot_name(6)]} bytes kept")
    assert found[EPOCH_CHECKPOINT] == ("INFO", "cut bytes [2, 17), wrote [2, 12)")
    assert log_name(0) not in found  # below the recovery point nothing was looked at
    assert re.search(r"recovered \[0, 14\) in \d+ ms", caplog.text)


def test_loading_as_a_broker(log: PartitionLog, caplog: pytest.LogCaptureFixture) -> None:
    sizes = {name: os.path.getsize(f"{log.path}/{name}") for name in os.listdir(log.path)}
    at = sizes[log_name(12)] // 6 * 3
    flip(f"{log.path}/{log_name(12)}", at + 70)
    with caplog.at_level(logging.INFO):
        report = load(
            LOCAL, log.path, CONFIG, ManualClock(), clean=False, recovery_point=12, log_start=0
        )
    assert report.end == 15
    found = lines(caplog)
    level, what = found[log_name(12)]
    assert level == "WARNING"
    assert what.startswith(f"cut bytes [{at}, {sizes[log_name(12)]}), offsets from 15 on, ")
    assert "crc" in what.lower()
    assert found[log_name(18)] == (
        "WARNING", f"removed all {sizes[log_name(18)]} bytes, it follows the cut"
    )  # fmt: skip
    assert found[index_name(12)][1].startswith("cut bytes [")
    assert report.removed == [
        f"{log_name(12)}: bytes [{at}, {sizes[log_name(12)]})", log_name(18)
    ]  # fmt: skip


def test_undo(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    log = create(tmp_path / "t-0", CONFIG)
    log.append(batch("v" * 20, at=T0), 0)
    state = log.state
    for n in range(1, 9):
        log.append(batch("v" * 20, at=T0 + n), 3)
    with caplog.at_level(logging.INFO):
        log.truncate_to(state)
    found = lines(caplog)
    why = "of a commit that was undone"
    assert found[log_name(0)] == (
        "WARNING", f"cut bytes [{state.size}, {state.size * 6}), offsets from 1 on, {why}"
    )  # fmt: skip
    assert found[log_name(6)] == ("WARNING", f"removed all {state.size * 3} bytes, {why}")
    assert found[index_name(0)][1].startswith("cut bytes [0, ")
    assert found[time_name(0)][1].startswith("cut bytes [")
    assert found[EPOCH_CHECKPOINT][1].startswith("cut bytes [")
