"""Kafka's file of log starts has no checksum: what we left is checked, what a broker did counts."""

import os
from pathlib import Path

import pyarrow as pa
import pytest

import sparklog
from sparklog import DataCorruptionError
from sparklog.common import TopicPartition
from sparklog.format.checkpoint_files import CLEAN_SHUTDOWN, format_partition_metadata
from sparklog.fs import LOCAL
from sparklog.log.log import view_of
from sparklog.log.topic_names import new_topic_id
from sparklog.logdir.offset_checkpoints import (
    HIGH_WATERMARK,
    LOG_START,
    RECOVERY_POINT,
    read_offsets,
    write_offsets,
)


@pytest.fixture
def home(tmp_path: Path) -> str:
    """Topic t, closed: partition 0 holds [3, 10), partition 1 [0, 10)."""
    home = str(tmp_path / "log")
    with sparklog.open(home, "rw") as log:
        log.create_topic("t", 2)
        for p in (0, 1):
            log.append("t", pa.table({"value": [str(n) for n in range(10)]}), partition=p)
        log.delete_records("t", {0: 3})
    return home


STOPS = {"clean": b'{"version":0,"brokerEpoch":17}', "killed": None}


def broker_ran(home: str, stop: str, starts: dict[tuple[str, int], int]) -> None:
    """What a broker that only moved log starts leaves: its own mark or none, its own file."""
    mark = STOPS[stop]
    path = Path(home, CLEAN_SHUTDOWN)
    path.unlink() if mark is None else path.write_bytes(mark)
    write_offsets(LOCAL, home, LOG_START, starts)


def starts(home: str, mode: str) -> list[int]:
    with sparklog.open(home, mode) as log:
        spans = log.offsets("t")
        for p, (first, end) in spans.items():
            assert log.read("t", [p]).read_all().column("offset").to_pylist() == [
                *range(first, end)
            ]
        return [first for first, _ in spans.values()]


def test_checkpoints_of_a_closed_log(home: str) -> None:
    """The files have the contents that a broker expects. Computed without the package's rule."""
    both = {TopicPartition("t", 0): 10, TopicPartition("t", 1): 10}
    assert read_offsets(LOCAL, home, LOG_START) == {TopicPartition("t", 0): 3}
    for name in (HIGH_WATERMARK, RECOVERY_POINT):
        offsets = read_offsets(LOCAL, home, name)
        assert {key: offsets[key] for key in both} == both


@pytest.mark.parametrize("mode", ["r", "rw"])
@pytest.mark.parametrize("stop", STOPS)
def test_a_brokers_higher_start_counts(home: str, stop: str, mode: str) -> None:
    broker_ran(home, stop, {("t", 0): 5, ("t", 1): 2})
    assert starts(home, mode) == [5, 2]


@pytest.mark.parametrize("mode", ["r", "rw"])
@pytest.mark.parametrize("stop", STOPS)
@pytest.mark.parametrize("left", [{}, {("t", 0): 1}, {("t", 0): 0, ("t", 1): 0}])
def test_a_start_never_goes_back(
    home: str, stop: str, mode: str, left: dict[tuple[str, int], int]
) -> None:
    """Whoever was here last: deleted records don't come back because a file was lost."""
    broker_ran(home, stop, left)
    assert starts(home, mode) == [3, 0]


@pytest.mark.parametrize("wrong", [{("t", 0): 7}, {("t", 0): 3, ("t", 1): 1}])
def test_a_higher_start_with_our_own_mark_is_damage(
    home: str, wrong: dict[tuple[str, int], int]
) -> None:
    write_offsets(LOCAL, home, LOG_START, wrong)
    with sparklog.open(home) as log:
        with pytest.raises(DataCorruptionError, match=r"but had \d when the log was closed"):
            log.offsets("t")
        right = [p for p in (0, 1) if wrong.get(("t", p)) == (3, 0)[p] or ("t", p) not in wrong]
        assert all(view_of(log).spans([TopicPartition("t", p)]) for p in right)
    assert starts(home, "rw") == [3, 0]  # the ledger knows
    assert starts(home, "r") == [3, 0]


def test_a_topic_that_a_broker_made_again_has_its_own_start(home: str) -> None:
    metadata = format_partition_metadata(new_topic_id(), None)
    for p in (0, 1):
        Path(home, f"t-{p}", "partition.metadata").write_bytes(metadata)
    broker_ran(home, "clean", {})
    marks = read_offsets(LOCAL, home, HIGH_WATERMARK)
    write_offsets(
        LOCAL, home, HIGH_WATERMARK, {**marks, TopicPartition("t", 0): 8}
    )  # lower than ours was
    with sparklog.open(home) as log:
        assert log.offsets("t") == {0: (0, 8), 1: (0, 10)}


def test_the_file_lost_with_its_directory_entry(home: str) -> None:
    os.unlink(os.path.join(home, LOG_START))
    assert starts(home, "r") == [3, 0]
    assert starts(home, "rw") == [3, 0]
