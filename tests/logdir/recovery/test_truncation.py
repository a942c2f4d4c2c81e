"""Undo from every cut point of every step: the directory is as if the step had never begun."""

from collections.abc import Callable

import pytest

from sparklog.clock import ManualClock
from sparklog.errors import DataCorruptionError, StorageUnavailableError
from sparklog.logdir.partition.leader_epochs import read_epochs
from sparklog.logdir.partition.partition_log import PartitionLog, SegmentState
from sparklog.logdir.partition.truncation import truncate_to
from sparklog.testing.crashfs import CrashFS
from sparklog.testing.faults import Fault, SimulatedKill
from tests.logdir.partitions import (
    T0,
    batch,
    config,
    create,
    files,
    marker,
    reader,
    records,
    reopen,
    transactional,
)

DIR = "/log/t-0"
CHUNK = "/log/sparklog-chunk-1"
CONFIG = config(segment_bytes=400, index_interval_bytes=1)
Step = Callable[[PartitionLog], object]


def append_across_rolls(log: PartitionLog) -> None:
    log.append(batch(*"abcdefgh", at=range(T0, T0 + 8), one_each=True), 1)
    log.sync()


def append_in_place(log: PartitionLog) -> None:
    log.append(batch("a"), 0)


def adopt(log: PartitionLog) -> None:
    log.adopt(CHUNK, leader_epoch=1)
    log.sync()


def adopt_then_append(log: PartitionLog) -> None:
    log.adopt(CHUNK, leader_epoch=1)
    log.append(batch("tail"), 1)
    log.sync()


def roll(log: PartitionLog) -> None:
    log.roll()
    log.sync()


def abort_a_transaction(log: PartitionLog) -> None:
    log.append(transactional(batch("t", producer=(7, 0, 0))), 0)
    log.append(marker(0, producer_id=7), 0)
    log.sync()


def close(log: PartitionLog) -> None:
    log.close()


STEPS = [
    append_across_rolls,
    append_in_place,
    adopt,
    adopt_then_append,
    roll,
    abort_a_transaction,
    close,
]


def machine(*, closed: bool, empty_active: bool) -> tuple[CrashFS, PartitionLog]:
    fs = CrashFS()
    fs.mkdir("/log")
    log = create(DIR, CONFIG, fs=fs)
    for n in range(6):
        log.append(batch(f"old{n}", at=T0 - n), 0)
    if empty_active:
        log.roll()
    log.sync()
    if closed:
        log.close()
    with fs.open(CHUNK, create=True) as file:
        file.pwrite(batch("x", "y", "z", one_each=True), 0)
        file.sync()
    return fs, log


def run(fs: CrashFS, end: int, step: Step, cut: int) -> bool:
    """Run a step that dies before its `cut`th change; tell whether it got through."""
    log = PartitionLog(fs, DIR, CONFIG, ManualClock(), end_offset=end)
    _ = log.state
    fs.fail_at(cut, Fault.KILL)
    try:
        step(log)
    except SimulatedKill:
        return False
    fs.heal()
    return True


def undone(fs: CrashFS, state: SegmentState) -> dict[str, bytes]:
    truncate_to(fs, DIR, state)
    # A snapshot at the very end is as true before as after; a roll may leave it.
    return {k: v for k, v in files(DIR, fs).items() if k != f"{state.end:020d}.snapshot"}


@pytest.mark.parametrize("closed", [False, True], ids=["open", "closed"])
@pytest.mark.parametrize("empty_active", [False, True], ids=["filled", "empty"])
@pytest.mark.parametrize("step", STEPS, ids=lambda s: s.__name__)
def test_undo_restores_from_every_cut(step: Step, empty_active: bool, closed: bool) -> None:
    base, log = machine(closed=closed, empty_active=empty_active)
    state = log.state
    wanted = undone(base.kill_clone(), state)
    before = records(reader(DIR, fs=base).read(0, state.end))
    for cut in range(1, 200):
        fs = base.kill_clone()
        through = run(fs, state.end, step, cut)
        after = fs.kill_clone()
        assert undone(after, state) == wanted, f"cut {cut}"
        again = PartitionLog(after, DIR, CONFIG, ManualClock(), end_offset=state.end)
        assert again.state == state
        assert again.size_on_disk() == state.size
        first, end = again.append(batch("new"), 1)
        assert (first, end) == (state.end, state.end + 1)
        assert records(reader(DIR, fs=after).read(0, end)) == [*before, (first, b"new")]
        if through:
            assert cut > 1
            return
    raise AssertionError("the step never ends")


@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
def test_an_index_is_whole_on_the_disk_after_an_fsync_of_it_failed(suffix: str) -> None:
    """The page cache calls it clean then, so that the next fsync would write nothing."""
    fs = CrashFS()
    fs.mkdir("/log")
    log = create(DIR, CONFIG, fs=fs)
    for n in range(3):
        log.append(batch(f"old{n}", at=T0 + n), 0)
    log.sync()
    fs.sync_dir("/log")
    fs.sync_dir("/")
    state = log.state
    log.roll()
    fs.fail_at(1, Fault.IO_ERROR, ops={"sync"}, when=lambda call: call.path.endswith(suffix))
    with pytest.raises(StorageUnavailableError):
        log.sync()
    fs.heal()
    log.truncate_to(state)
    log.roll()
    log.sync()
    name = f"{state.base:020d}{suffix}"
    assert files(DIR, fs.crash_clone(mode="strict"))[name] == files(DIR, fs)[name] != b""


@pytest.mark.parametrize("step", [append_across_rolls, adopt], ids=lambda s: s.__name__)
def test_undo_may_be_cut_itself(step: Step) -> None:
    base, log = machine(closed=False, empty_active=False)
    state = log.state
    wanted = undone(base.kill_clone(), state)
    run(base, state.end, step, 1000)
    for cut in range(1, 100):
        fs = base.kill_clone()
        fs.fail_at(cut, Fault.KILL)
        try:
            truncate_to(fs, DIR, state)
        except SimulatedKill:
            assert undone(fs.kill_clone(), state) == wanted
        else:
            assert cut > 3
            return
    raise AssertionError("undo never ends")


def test_undo_in_the_process_that_failed() -> None:
    fs, log = machine(closed=False, empty_active=False)
    log = reopen(log, fs=fs)
    state = log.state
    log.append(batch(*"abcdef", one_each=True), 3)
    log.truncate_to(state)
    assert log.state == state
    assert read_epochs(fs, log.path)[-1][0] == 0
    assert log.append(batch("n"), 1) == (6, 7)


def test_undo_refuses_a_log_that_is_shorter_than_it_was() -> None:
    fs, log = machine(closed=False, empty_active=False)
    state = log.state
    with fs.open(f"{DIR}/{state.base:020d}.log", write=True) as file:
        file.truncate(state.size - 1)
    before = files(DIR, fs)
    with pytest.raises(DataCorruptionError, match="had"):
        truncate_to(fs, DIR, state)
    assert files(DIR, fs) == before


def test_the_highest_segment_goes_first() -> None:
    """Cut in the midst of it, what is left has no hole."""
    fs = CrashFS()
    fs.mkdir("/log")
    log = create(DIR, CONFIG, fs=fs)
    before = log.state
    log.append(batch(*"abcdefghijkl", at=range(T0, T0 + 12), one_each=True), 0)
    log.close()
    gone: list[str] = []
    fs.on_call = lambda call: gone.append(call.path) if call.op == "unlink" else None
    truncate_to(fs, DIR, before)
    fs.on_call = None
    bases = [int(path.rpartition("/")[2].partition(".")[0]) for path in gone if ".log" in path]
    assert len(bases) > 1
    assert bases == sorted(bases, reverse=True)
