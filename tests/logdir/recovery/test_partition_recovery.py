"""Strict recovery: everything below the end holds, or nothing is touched."""

import logging
import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from sparklog.clock import ManualClock
from sparklog.errors import DataCorruptionError
from sparklog.format.names import index_name, log_name, snapshot_name, timeindex_name
from sparklog.format.scan import scan
from sparklog.fs import LOCAL
from sparklog.logdir.partition.leader_epochs import read_epochs, write_epochs
from sparklog.logdir.partition.partition_log import PartitionLog
from sparklog.logdir.partition.producer_snapshots import load_producers, snapshot_offsets
from sparklog.logdir.recovery.leftover_files import remove_segment
from sparklog.logdir.recovery.partition_recovery import (
    CommittedState,
    RecoveryReport,
    recover,
    valid_end,
)
from sparklog.logdir.segment_files import segment_bases
from sparklog.testing.crashfs import CrashFS
from sparklog.testing.faults import Fault, SimulatedKill
from tests.logdir.partitions import (
    T0,
    batch,
    config,
    create,
    files,
    flip,
    judged,
    marker,
    reader,
    records,
    reopen,
    transactional,
)
from tests.oracle import Oracle

CONFIG = config(segment_bytes=600, index_interval_bytes=100)
OPTIONS = {"internal.segment.bytes": 600, "index.interval.bytes": 100}
DIR = "/log/t-0"


def filled(path: Path, count: int = 20) -> PartitionLog:
    """Segments of 6 batches of one record."""
    log = create(path, CONFIG)
    for n in range(count):
        log.append(batch("v" * 20, at=T0 + n, producer=(1, 0, n)), 0 if n < 9 else 2)
    log.close()
    return log


def run(
    log: PartitionLog, end: int, point: int = 0, start: int = 0, local_start: int = 0
) -> RecoveryReport:
    expected = CommittedState(
        end=end, recovery_point=point, start=start, local_start=local_start
    )
    return recover(LOCAL, log.path, CONFIG, ManualClock(), expected)


def test_a_whole_log_is_left_as_it_is(tmp_path: Path) -> None:
    log = filled(tmp_path / "t-0")
    before = files(log.path)
    run(log, 20)
    assert files(log.path) == before


def test_a_completed_swap_keeps_the_snapshot_at_its_base(tmp_path: Path) -> None:
    """An erasure rewrote one segment: its snapshot has the batches before, which did not change."""
    log = filled(tmp_path / "t-0")
    before = files(log.path)
    path = Path(log.path)
    for name in (log_name(6), index_name(6), timeindex_name(6)):
        shutil.copyfile(path / name, path / f"{name}.swap")
    run(log, 20, point=20)
    assert files(log.path) == before


@pytest.mark.parametrize("lost", [index_name, timeindex_name])
def test_what_a_power_cut_left_of_a_retired_segment_goes(
    tmp_path: Path, lost: Callable[[int], str], oracle: Oracle
) -> None:
    """It kept some of the renames to `.deleted`: below the log start half a segment is left."""
    log = filled(tmp_path / "t-0")
    _, second, third, *_ = segment_bases(LOCAL, log.path)
    os.unlink(f"{log.path}/{lost(second)}")
    run(log, 20, point=20, start=third)
    assert segment_bases(LOCAL, log.path)[0] == third
    reopen(log, end=20).close()
    opened = oracle.open(log.path, clean=True, config=OPTIONS, log_start=third)
    assert not {*opened.created, *opened.changed} & {index_name(second), timeindex_name(second)}
    assert (opened.start, opened.end) == (third, 20)


@pytest.mark.parametrize("undone", ["nothing", "the renames", "the renames, the snapshot is bad"])
def test_producers_stay_known_where_all_is_remote(tmp_path: Path, undone: str) -> None:
    """Local retention took all but an empty active segment; a power cut undid its renames."""
    log = filled(tmp_path / "t-0")
    run(log, 18, point=18)
    *retired, last = segment_bases(LOCAL, log.path)
    assert last == 18
    if undone == "nothing":
        for base in retired:
            remove_segment(LOCAL, log.path, base, "it has a copy")
    if "bad" in undone:
        flip(f"{log.path}/{snapshot_name(18)}", 7)
    for _ in range(2):
        report = run(log, 18, point=18, start=3, local_start=18)
        assert (report.start, report.end) == (3, 18)
        assert segment_bases(LOCAL, log.path) == [18]
        assert snapshot_offsets(os.listdir(log.path)) == [18]
        (known,) = load_producers(
            LOCAL, log.path, 18, log_start=17, now=T0, expiration_ms=10**9
        ).entries()
        assert known.last_sequence == 17


@pytest.mark.parametrize("end", range(21))
def test_what_lies_past_the_end_goes(tmp_path: Path, end: int, oracle: Oracle) -> None:
    log = filled(tmp_path / "t-0")
    run(log, end)
    assert records(reader(log.path).read(0, end)) == [(n, b"v" * 20) for n in range(end)]
    again = reopen(log, end=end)
    assert again.size_on_disk() == again.state.size
    opened = oracle.open(log.path, clean=False, config=OPTIONS)
    assert opened.untouched, (opened.changed, opened.created, opened.removed)
    assert opened.end == end
    data = batch("v" * 20, at=T0 + end - 1, producer=(1, 0, end - 1))
    if end:
        assert judged(again, data) == (end - 1, end)
    assert again.append(batch("n"), 3) == (end, end + 1)


@pytest.mark.parametrize("damage", ["flip", "cut", "middle gone", "first gone", "hole"])
def test_damage_below_the_end_changes_nothing(tmp_path: Path, damage: str) -> None:
    log = filled(tmp_path / "t-0")
    bases = segment_bases(LOCAL, log.path)
    path = Path(log.path)
    second = path / log_name(bases[1])
    size = second.stat().st_size // (bases[2] - bases[1])
    if damage == "flip":
        flip(str(second), size + 70)
        span = (bases[1] + 1, bases[2])
    elif damage == "cut":
        os.truncate(second, 3 * size - 1)
        span = (bases[1] + 2, bases[2])
    elif damage == "middle gone":
        second.unlink()
        span = (bases[1], bases[2])
    elif damage == "first gone":
        (path / log_name(0)).unlink()
        span = (0, bases[1])
    else:
        data = second.read_bytes()
        second.write_bytes(data[:size] + data[2 * size :])
        span = (bases[1] + 1, bases[2])
    before = files(log.path)
    with pytest.raises(DataCorruptionError) as caught:
        run(log, 20)
    assert (caught.value.first, caught.value.end) == span
    assert files(log.path) == before


def test_damage_past_the_end_is_no_damage(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    log = filled(tmp_path / "t-0")
    flip(os.path.join(log.path, log_name(segment_bases(LOCAL, log.path)[-1])), 30)
    end = segment_bases(LOCAL, log.path)[-1]
    with caplog.at_level(logging.INFO):
        run(log, end)
    assert "bytes [0," in caplog.text
    assert "recovered [0, " in caplog.text
    assert len(records(reader(log.path).read(0, end))) == end


def test_below_the_recovery_point_nothing_is_read(tmp_path: Path) -> None:
    log = filled(tmp_path / "t-0")
    bases = segment_bases(LOCAL, log.path)
    flip(os.path.join(log.path, log_name(0)), 70)
    run(log, 20, point=bases[1])
    with pytest.raises(DataCorruptionError, match="crc"):
        run(log, 20, point=bases[1] - 1)


@pytest.mark.parametrize("point", [0, 20])
@pytest.mark.parametrize("damage", ["missing", "zeros", "garbage", "torn"])
def test_indexes_are_rebuilt(tmp_path: Path, damage: str, point: int) -> None:
    log = filled(tmp_path / "t-0")
    before = files(log.path)
    for base in segment_bases(LOCAL, log.path)[:-1]:
        for name in (index_name(base), timeindex_name(base)):
            path = Path(log.path) / name
            path.unlink()
            if damage != "missing":
                path.write_bytes(
                    {"zeros": bytes(96), "garbage": b"\x7f" * 96, "torn": before[name][:-3]}[damage]
                )
    run(log, 20, point=point)
    assert files(log.path) == before


@pytest.mark.parametrize("damage", ["missing", "empty", "garbage", "later"])
def test_transaction_indexes_are_rebuilt(tmp_path: Path, damage: str, oracle: Oracle) -> None:
    """LogSegmentTest.testRecoverTransactionIndex, testFullTransactionIndexRecovery."""
    log = create(tmp_path / "t-0", CONFIG)
    for n in range(12):  # two transactions a round, over several segments; every third aborts
        for pid in (7, 8):
            log.append(transactional(batch("v" * 20, at=T0, producer=(pid, 0, n))), 0)
        for pid in (8, 7):
            log.append(marker(0 if n % 3 == 0 else 1, producer_id=pid, at=T0), 0)
    log.close()
    before = files(log.path)
    names = [name for name in before if name.endswith(".txnindex")]
    assert len(names) > 2
    for name in names:
        path = Path(log.path) / name
        changed = {
            "empty": b"", "garbage": b"\x7f" * 70, "later": before[name] + before[name][:34],
        }  # fmt: skip
        path.unlink() if damage == "missing" else path.write_bytes(changed[damage])
    aborted = reader(log.path).aborted(0, log.end_offset)
    run(log, log.end_offset)
    assert files(log.path) == before
    opened = oracle.open(log.path, clean=False, config=OPTIONS)
    assert opened.untouched, (opened.changed, opened.created, opened.removed)
    kept = reader(log.path).aborted(0, log.end_offset)
    assert kept == [(pid, first, last) for pid, first, last, _ in opened.aborted]
    assert len(kept) == 8 >= len(aborted)


@pytest.mark.parametrize("content", [None, b"", b"0\n1\nx y\n", b"\0" * 20])
def test_epochs_are_rebuilt(tmp_path: Path, content: bytes | None) -> None:
    log = filled(tmp_path / "t-0")
    path = Path(log.path) / "leader-epoch-checkpoint"
    assert path.read_bytes() == b"0\n2\n0 0\n2 9\n"
    path.unlink()
    if content is not None:
        path.write_bytes(content)
    run(log, 20)
    assert path.read_bytes() == b"0\n2\n0 0\n2 9\n"


@pytest.mark.parametrize("content", [b"0\n2\n0 0\n2 9\n", None, b"\0" * 20])
@pytest.mark.parametrize(("offset", "epoch"), [(0, 64), (3, 1), (8, 2), (9, 0), (12, 6), (19, 3)])
def test_a_flipped_epoch_is_not_believed(
    tmp_path: Path, offset: int, epoch: int, content: bytes | None
) -> None:
    """Neither beside the file, nor where the batches alone say which epochs there were."""
    log = filled(tmp_path / "t-0")
    path = Path(log.path) / "leader-epoch-checkpoint"
    before = path.read_bytes()
    path.unlink()
    expected = before
    if content != before:  # at a border either epoch can be right
        changed = {0: b"0\n2\n0 1\n2 9\n", 8: b"0\n2\n0 0\n2 8\n", 9: b"0\n2\n0 0\n2 10\n"}
        expected = changed.get(offset, before)
    if content is not None:
        path.write_bytes(content)
    for base in segment_bases(LOCAL, log.path):
        file = Path(log.path, log_name(base))
        for row in scan(file.read_bytes(), path=str(file)).table:
            if row["base_offset"] == offset:
                with file.open("r+b") as out:
                    out.seek(int(row["position"]) + 12)
                    out.write(epoch.to_bytes(4, "big"))
    recover(LOCAL, log.path, CONFIG, ManualClock(), CommittedState(end=20, epoch=2))
    assert path.read_bytes() == expected


def test_strays_go_and_snapshots_come_back(tmp_path: Path) -> None:
    log = filled(tmp_path / "t-0")
    wanted = files(log.path)
    path = Path(log.path)
    for name in list(wanted):
        if name.endswith(".snapshot"):
            (path / name).unlink()
    (path / f"{3:020d}.snapshot").write_bytes(b"torn")
    (path / f"{99:020d}.snapshot").write_bytes(b"")
    (path / f"{99:020d}.log.deleted").write_bytes(b"x")
    (path / f"{50:020d}.index").write_bytes(b"")
    run(log, 20)
    assert files(log.path) == wanted


def test_an_unlinked_segment_that_came_back(tmp_path: Path) -> None:
    # C5: the power cut undid the unlink of a segment that an undo had removed.
    log = filled(tmp_path / "t-0")
    path = Path(log.path)
    shutil.copy(path / log_name(0), path / log_name(20))
    shutil.copy(path / log_name(0), path / log_name(31))
    run(log, 20)
    assert (path / log_name(20)).stat().st_size == 0
    assert not (path / log_name(31)).exists()
    assert reopen(log).append(batch("n"), 2) == (20, 21)


def test_compacted_logs_may_have_gaps(tmp_path: Path) -> None:
    log = filled(tmp_path / "t-0")
    second = Path(log.path) / log_name(segment_bases(LOCAL, log.path)[1])
    data = second.read_bytes()
    size = len(data) // 6
    second.write_bytes(data[:size] + data[2 * size : 5 * size])
    compact = config(
        segment_bytes=600, index_interval_bytes=100, cleanup_policy="compact", segment_ms=10**9
    )
    recover(LOCAL, log.path, compact, ManualClock(), CommittedState(end=20))
    found = [o for o, _ in records(reader(log.path, gaps=True).read(0, 20))]
    base = segment_bases(LOCAL, log.path)[1]
    assert found == [n for n in range(20) if n not in (base + 1, base + 5)]


def test_power_cuts_at_every_point(oracle: Oracle) -> None:
    """Whatever a power cut left of an append behind a synced end, recovery finds that end."""
    base = CrashFS()
    base.mkdir("/log")
    log = create(DIR, CONFIG, fs=base)
    log.append(batch(*["v" * 20] * 8, one_each=True), 0)
    log.sync()
    base.sync_dir("/log")
    base.sync_dir("/")
    for cut in range(1, 60):
        fs = base.kill_clone()
        again = reopen(log, fs=fs)
        fs.fail_at(cut, Fault.KILL)
        through = False
        try:
            again.append(batch(*["w" * 20] * 12, one_each=True), 1)
            again.sync()
            through = True
        except SimulatedKill:
            pass
        for seed in range(3):
            after = fs.crash_clone(random.Random(seed * 100 + cut))
            recover(after, DIR, CONFIG, ManualClock(), CommittedState(end=8))
            found = records(reader(DIR, fs=after).read(0, 8))
            assert found == [(n, b"v" * 20) for n in range(8)]
            assert reopen(log, fs=after, end=8).append(batch("n"), 1) == (8, 9)
        if through:
            assert cut > 8
            return
    raise AssertionError("the append never ends")


def test_recovery_may_be_cut_itself() -> None:
    base = CrashFS()
    base.mkdir("/log")
    log = create(DIR, CONFIG, fs=base)
    log.append(batch(*["v" * 20] * 20, one_each=True), 0)
    log.sync()
    base.sync_dir("/log")
    base.sync_dir("/")
    for cut in range(1, 200):
        fs = base.kill_clone()
        fs.fail_at(cut, Fault.KILL)
        try:
            recover(fs, DIR, CONFIG, ManualClock(), CommittedState(end=9))
        except SimulatedKill:
            after = fs.crash_clone(random.Random(cut))
            recover(after, DIR, CONFIG, ManualClock(), CommittedState(end=9))
            assert len(records(reader(DIR, fs=after).read(0, 9))) == 9
        else:
            assert cut > 10
            return
    raise AssertionError("recovery never ends")


def test_valid_end_follows_whole_batches_only(tmp_path: Path) -> None:
    log = filled(tmp_path / "t-0")
    bases = segment_bases(LOCAL, log.path)
    assert valid_end(LOCAL, log.path, 3) == 20
    assert valid_end(LOCAL, log.path, 20) == 20
    last = os.path.join(log.path, log_name(bases[-1]))
    os.truncate(last, os.path.getsize(last) - 1)
    assert valid_end(LOCAL, log.path, 3) == 19
    flip(os.path.join(log.path, log_name(bases[1])), 70)
    assert valid_end(LOCAL, log.path, 3) == bases[1]


def test_an_epoch_that_begins_at_the_end_goes(tmp_path: Path) -> None:
    """It was written for records that were never committed."""
    log = filled(tmp_path / "t-0")
    known = read_epochs(LOCAL, log.path)
    assert len(known) == 2
    write_epochs(LOCAL, log.path, [*known, (7, 20)])
    run(log, 20)
    assert read_epochs(LOCAL, log.path) == known
