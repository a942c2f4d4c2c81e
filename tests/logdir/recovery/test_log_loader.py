"""Kafka's own loading, beside Kafka's own code."""

import os
import shutil
from pathlib import Path

import pytest

from sparklog.clock import ManualClock
from sparklog.errors import DataCorruptionError
from sparklog.format.names import index_name, log_name, snapshot_name, timeindex_name
from sparklog.fs import LOCAL
from sparklog.logdir.partition.partition_log import PartitionLog
from sparklog.logdir.recovery.log_loader import LoadReport, load
from sparklog.logdir.segment_files import segment_bases
from tests import paths
from tests.logdir.partitions import (
    T0,
    batch,
    config,
    create,
    files,
    flip,
    marker,
    reader,
    records,
    transactional,
)
from tests.oracle import Oracle

CONFIG = config(segment_bytes=600, index_interval_bytes=100)
OPTIONS = {"internal.segment.bytes": 600, "index.interval.bytes": 100}
GOLDEN = paths.GOLDEN / "kafka-4.1" / "logdir"


def filled(path: Path, count: int = 20) -> PartitionLog:
    log = create(path, CONFIG)
    for n in range(count):
        log.append(batch("v" * 20, at=T0 + n, producer=(1, 0, n)), n // 9)
    log.close()
    return log


def run(path: object, *, clean: bool = True, point: int = 0, start: int = 0) -> LoadReport:
    return load(
        LOCAL, str(path), CONFIG, ManualClock(), clean=clean, recovery_point=point, log_start=start
    )


def agree(path: object, report: LoadReport, oracle: Oracle, start: int = 0) -> None:
    """What was loaded is what Kafka would load, and Kafka has nothing to add."""
    opened = oracle.open(str(path), clean=False, config=OPTIONS, log_start=start)
    assert (report.start, report.end, report.lso) == (opened.start, opened.end, opened.lso)
    assert report.epoch == max([e for e, _ in opened.epochs], default=-1)


@pytest.mark.parametrize("clean", [True, False])
def test_nothing_to_do(tmp_path: Path, oracle: Oracle, clean: bool) -> None:
    log = filled(tmp_path / "t-0")
    before = files(log.path)
    report = run(log.path, clean=clean)
    assert files(log.path) == before
    assert [(p.producer_id, p.last_sequence) for p in report.producers] == [(1, 19)]
    agree(log.path, report, oracle)


def test_corrupt_log_keeps_the_valid_prefix(tmp_path: Path, oracle: Oracle) -> None:
    log = filled(tmp_path / "t-0")
    size = os.path.getsize(os.path.join(log.path, log_name(6))) // 6
    flip(os.path.join(log.path, log_name(6)), 2 * size + 70)
    expected = oracle.open(log.path, clean=False, config=OPTIONS)
    report = run(log.path, clean=False)
    assert (report.end, expected.end) == (8, 8)
    assert segment_bases(LOCAL, log.path) == [0, 6]
    assert report.removed[0].startswith(log_name(6))
    assert oracle.open(log.path, clean=False, config=OPTIONS).untouched
    agree(log.path, report, oracle)


def test_below_the_recovery_point_nothing_is_checked(tmp_path: Path) -> None:
    log = filled(tmp_path / "t-0")
    flip(os.path.join(log.path, log_name(0)), 70)
    assert run(log.path, clean=False, point=6).end == 20
    assert run(log.path, clean=True).end == 20


@pytest.mark.parametrize("name", [index_name, timeindex_name])
def test_missing_indexes(tmp_path: Path, oracle: Oracle, name: object) -> None:
    log = filled(tmp_path / "t-0")
    os.unlink(os.path.join(log.path, name(6)))  # type: ignore[operator]
    report = run(log.path)
    assert os.path.exists(os.path.join(log.path, name(6)))  # type: ignore[operator]
    agree(log.path, report, oracle)


def test_orphans_and_temporary_files_go(tmp_path: Path) -> None:
    log = filled(tmp_path / "t-0")
    before = files(log.path)
    for name in (index_name(77), timeindex_name(77), log_name(3) + ".deleted"):
        (Path(log.path) / name).write_bytes(b"x" * 24)
    (Path(log.path) / (log_name(6) + ".cleaned")).write_bytes(b"x")
    (Path(log.path) / (log_name(6) + ".swap")).write_bytes(b"x")
    run(log.path)
    assert files(log.path) == before


def test_an_interrupted_swap_is_completed(tmp_path: Path, oracle: Oracle) -> None:
    log = filled(tmp_path / "t-0")
    path = Path(log.path)
    merged = (path / log_name(0)).read_bytes() + (path / log_name(6)).read_bytes()
    (path / (log_name(0) + ".swap")).write_bytes(merged)
    expected = oracle.open(log.path, config=OPTIONS)
    report = run(log.path)
    assert segment_bases(LOCAL, log.path) == expected.segments
    assert (path / log_name(0)).read_bytes() == merged
    assert not (path / snapshot_name(6)).exists()
    assert len(records(reader(log.path).read(0, 20))) == 20
    agree(log.path, report, oracle)


PHASES = {
    # old files of segment 6, and those of the new segments 6 and 9, as a crash leaves them
    "1: one is cleaned": ("", {6: ".cleaned"}),
    "1: both are cleaned": ("", {6: ".cleaned", 9: ".cleaned"}),
    "2: the later one is a swap": ("", {6: ".cleaned", 9: ".swap"}),
    "3: both are swaps": ("", {6: ".swap", 9: ".swap"}),
    "4: the old one is deleted": (".deleted", {6: ".swap", 9: ".swap"}),
    "5: the later one is in place": (".deleted", {6: ".swap", 9: ""}),
    "done": (".deleted", {6: "", 9: ""}),
}


@pytest.mark.parametrize("phase", PHASES)
def test_a_split_is_cut_at_each_phase(tmp_path: Path, oracle: Oracle, phase: str) -> None:
    """LogLoaderTest.testRecoveryAfterCrashDuringSplitPhase1..5: segment 6 becomes 6 and 9."""
    log = filled(tmp_path / "t-0")
    path = Path(log.path)
    data = (path / log_name(6)).read_bytes()
    half = len(data) // 2
    old, new = PHASES[phase]
    if old:
        for name in (log_name(6), index_name(6), timeindex_name(6)):
            (path / name).rename(path / (name + old))
    for base, suffix in new.items():
        part = data[:half] if base == 6 else data[half:]
        (path / (log_name(base) + suffix)).write_bytes(part)
        (path / (index_name(base) + suffix)).write_bytes(b"")
        (path / (timeindex_name(base) + suffix)).write_bytes(b"")
    expected = oracle.open(log.path, clean=False, config=OPTIONS)
    report = run(log.path, clean=False)
    split = old or ".cleaned" not in new.values()
    assert expected.segments == segment_bases(LOCAL, log.path)
    assert segment_bases(LOCAL, log.path) == ([0, 6, 9, 12, 18] if split else [0, 6, 12, 18])
    assert not [n for n in os.listdir(path) if n.endswith((".swap", ".cleaned", ".deleted"))]
    assert records(reader(log.path).read(0, 20)) == [(n, b"v" * 20) for n in range(20)]
    assert (path / log_name(6)).read_bytes() == (data[:half] if split else data)
    agree(log.path, report, oracle)


def test_an_end_before_the_start_begins_anew(tmp_path: Path, oracle: Oracle) -> None:
    log = filled(tmp_path / "t-0")
    expected = oracle.open(log.path, config=OPTIONS, log_start=30)
    report = run(log.path, start=30)
    assert (report.start, report.end) == (expected.start, expected.end) == (30, 30)
    assert segment_bases(LOCAL, log.path) == [30]


@pytest.mark.parametrize("clean", [True, False])
def test_an_empty_active_segment(tmp_path: Path, oracle: Oracle, clean: bool) -> None:
    log = filled(tmp_path / "t-0", 6)
    log.roll()
    log.close()
    report = run(log.path, clean=clean)
    assert report.end == 6
    agree(log.path, report, oracle)


def test_preallocated_indexes_are_trimmed(tmp_path: Path) -> None:
    log = filled(tmp_path / "t-0")
    before = files(log.path)
    active = segment_bases(LOCAL, log.path)[-1]
    for name in (index_name(active), timeindex_name(active)):
        with (Path(log.path) / name).open("ab") as file:
            file.write(bytes(4800))
    assert run(log.path, clean=False, point=20).end == 20
    assert files(log.path) == before


@pytest.mark.parametrize("clean", [True, False])
def test_open_transactions_are_reported(tmp_path: Path, oracle: Oracle, clean: bool) -> None:
    log = create(tmp_path / "t-0", CONFIG)
    log.append(batch("plain"), 0)
    log.append(transactional(batch("a", producer=(7, 0, 0))), 0)
    log.append(transactional(batch("b", producer=(8, 0, 0))), 0)
    log.append(marker(0, producer_id=7), 0)
    log.close()
    report = run(log.path, clean=clean)
    assert report.open_transactions == {8: 2}
    assert (report.lso, report.end) == (2, 4)
    agree(log.path, report, oracle)


def test_without_snapshots_the_state_comes_from_the_log(tmp_path: Path) -> None:
    log = filled(tmp_path / "t-0")
    for name in os.listdir(log.path):
        if name.endswith(".snapshot"):
            os.unlink(os.path.join(log.path, name))
    report = run(log.path)
    assert [p.last_sequence for p in report.producers] == [19]


def test_an_unreadable_epoch_checkpoint_is_an_error(tmp_path: Path) -> None:
    log = filled(tmp_path / "t-0")
    (Path(log.path) / "leader-epoch-checkpoint").write_bytes(b"1\n")
    with pytest.raises(DataCorruptionError, match="leader-epoch"):
        run(log.path)


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("name", ["plain.none-0", "txn-0", "compacted-0", "trimmed-0"])
def test_a_brokers_own_directories(tmp_path: Path, oracle: Oracle, name: str, clean: bool) -> None:
    path = tmp_path / name
    shutil.copytree(GOLDEN / name, path)
    start = 1900 if name == "trimmed-0" else 0
    expected = oracle.open(path, clean=clean, log_start=start)
    report = load(
        LOCAL, str(path), config(), ManualClock(), clean=clean, recovery_point=0, log_start=start
    )
    assert (report.start, report.end) == (expected.start, expected.end)
    assert report.lso == expected.lso
    assert segment_bases(LOCAL, str(path)) == expected.segments
    assert oracle.open(path, clean=False, log_start=start).untouched or clean


def test_a_flipped_epoch_is_not_believed(tmp_path: Path) -> None:
    """Kafka would take the epoch of that batch over, and drop those that follow."""
    log = filled(tmp_path / "t-0")
    epochs = Path(log.path) / "leader-epoch-checkpoint"
    before = epochs.read_bytes()
    file = Path(log.path) / log_name(segment_bases(LOCAL, log.path)[-1])
    with file.open("r+b") as out:  # of the first batch, outside the CRC
        out.seek(12)
        out.write((2 ^ 64).to_bytes(4, "big"))
    assert run(log.path, clean=False).epoch == 2
    assert epochs.read_bytes() == before


def test_a_segment_whose_offsets_overflow_is_split_by_a_broker(
    tmp_path: Path, oracle: Oracle
) -> None:
    log = create(tmp_path / "t-0", CONFIG)
    log.append(batch("a"), 0)
    log.append(batch("b"), 0)
    log.close()
    file, far = tmp_path / "t-0" / log_name(0), 2**31 + 5
    raw = file.read_bytes()
    second = 12 + int.from_bytes(raw[8:12])  # where the first batch ends
    # A batch's base offset isn't covered by its checksum.
    file.write_bytes(raw[:second] + far.to_bytes(8) + raw[second + 8 :])
    with pytest.raises(DataCorruptionError, match="Let a broker split this segment first"):
        run(log.path, clean=False)
    split = oracle.open(log.path, clean=False, config=OPTIONS)  # it works on a copy
    assert split.segments == [0, far]
    by_segment = {batch["segment"]: (batch["position"], batch["size"]) for batch in split.batches}
    assert by_segment == {0: (0, second), far: (0, len(raw) - second)}
    (tmp_path / "t-0" / log_name(far)).write_bytes(file.read_bytes()[second:])
    file.write_bytes(raw[:second])
    report = run(log.path, clean=False)
    assert (report.start, report.end) == (0, far + 1)
    agree(log.path, report, oracle)
