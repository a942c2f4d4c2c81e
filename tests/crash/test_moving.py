"""A partition that moves to another log dir, crashed at every file-system call.

The partition is in the old place or in the new one, whole, never in both and never in none. The
copy of a move that a crash stopped goes when the log is opened next. Readers continue meanwhile.
"""

from __future__ import annotations

import itertools

import pyarrow as pa
import pytest

import sparklog
from sparklog.clock import ManualClock
from sparklog.errors import StorageUnavailableError
from sparklog.service import verify
from sparklog.testing.crashes import every_crash
from sparklog.testing.crashfs import CrashFS
from sparklog.testing.faults import Call, Fault
from tests import depth
from tests.crash.explore import digest
from tests.crash.harness import CONFIG, OPTIONS, quick, table, view_of
from tests.crash.model import View

PATH = "/one,/two"
T0 = ("t", 0)


def opened(fs: CrashFS, clock: ManualClock, mode: str = "rw") -> sparklog.Log:
    return sparklog.open(PATH, mode, fs=fs, clock=clock, options=OPTIONS)


def filled(clock: ManualClock) -> CrashFS:
    """A log whose topic t has partition 0 in the first log dir, of three segments."""
    fs = CrashFS(clock=clock)
    with opened(fs, clock) as log:
        log.create_topic("t", 2, CONFIG)
        for number in range(7):
            clock.advance(10)
            log.append("t", table([b"%d" % number]), 0)
        log.append("t", pa.table({"value": [b"p"]}), 0, producer=(7, 0, 0))
        log.append("t", table([b"other"]), 1)
        log.delete_records("t", {0: 1})
    return fs


def places(fs: CrashFS) -> list[str]:
    """Every directory of partition t-0, whatever its name."""
    found = [(d, name) for d in ("/one", "/two") for name in fs.listdir(d)]
    return sorted(f"{d}/{name}" for d, name in found if name.startswith("t-0"))


def judge(fs: CrashFS, clock: ManualClock, wanted: list[View]) -> str:
    """Open it, look at all of it, and write on; returns where t-0 is."""
    with opened(fs.process(), clock, "r") as reader:
        assert view_of(reader) in wanted
    with opened(fs, clock) as log:
        view = view_of(log)
        assert view in wanted
        (place,) = places(fs)
        assert log.topic("t").dirs[0] == place
        log.append("t", pa.table({"value": [b"p"]}), 0, producer=(7, 0, 0))  # a replay
        assert view_of(log) == view
        start, end, values = view[T0]
        log.append("t", table([b"on"]), 0)
        assert view_of(log)[T0] == (start, end + 1, (*values, b"on"))
    assert verify(PATH, fs=fs, clock=clock).ok
    return place


def test_a_move_is_cut_anywhere() -> None:
    clock = ManualClock()
    machine = filled(clock)
    with opened(machine.process(), clock, "r") as log:
        before = view_of(log)

    def work(fs: CrashFS) -> None:
        with opened(fs, clock) as log:
            log.move_partition("t", 0, "/two")

    ends: dict[str, int] = {"/one/t-0": 0, "/two/t-0": 0}
    seen = set()
    with quick():
        for crash in list(every_crash(work, fs=machine, seeds=1))[::depth.MOVE_CUTS]:
            key = digest(crash.fs), crash.finished
            if key in seen:
                continue
            seen.add(key)
            try:
                place = judge(crash.fs, clock, [before])
                assert place == "/two/t-0" or not crash.finished
            except Exception as error:
                error.add_note(crash.how)
                raise
            ends[place] += 1
    print(ends)
    assert min(ends.values()) > 5


def test_a_power_cut_right_behind_a_move() -> None:
    """All of the partition is durable in its new place, before its old directory goes."""
    clock = ManualClock()
    fs = filled(clock)
    with opened(fs, clock) as log:
        log.move_partition("t", 0, "/two")
        before = view_of(log)
        assert judge(fs.crash_clone(mode="strict"), clock, [before]) == "/two/t-0"


def test_the_first_log_dir_fails_for_a_moment() -> None:
    """What can't be undone at once may be completed later: the copy must be there then."""
    clock = ManualClock()
    machine = filled(clock)
    with opened(machine.process(), clock, "r") as log:
        before = view_of(log)

    def is_ledgers(call: Call) -> bool:
        return call.path.startswith("/one/__sparklog_commits") or call.path == "/one/sparklog.lock"

    ends = set()
    with quick():
        for number in itertools.count(1):
            fs = machine.kill_clone()
            failed = False
            with opened(fs, clock) as log:
                fs.calls.clear()
                fs.fail_at(number, Fault.IO_ERROR, times=2, when=is_ledgers)
                try:
                    log.move_partition("t", 0, "/two")
                except StorageUnavailableError:
                    failed = True
                met = sum(map(is_ledgers, fs.calls)) >= number
                fs.heal()
                assert view_of(log) == before
            place = judge(fs, clock, [before])
            if failed:
                ends.add(place)
            if not met:
                break
    assert ends == {"/one/t-0", "/two/t-0"}


@pytest.mark.parametrize("is_mended", [True, False])
def test_what_was_left_is_out_of_the_way_before_it_comes_back(is_mended: bool) -> None:
    clock = ManualClock()
    fs = filled(clock)
    with opened(fs, clock) as log, quick():
        fs.fail_at(
            1, Fault.DENIED, ops={"rename"}, times=99,
            when=lambda call: call.path.startswith("/one/t-0"),
        )  # fmt: skip
        log.move_partition("t", 0, "/two")
        assert places(fs) == ["/one/t-0", "/two/t-0"]
        log.append("t", table([b"after"]), 0)
        before = view_of(log)
        if is_mended:
            fs.heal()
            log.move_partition("t", 0, "/one")
            assert places(fs) == ["/one/t-0"]
        else:
            with pytest.raises(StorageUnavailableError, match="/one/t-0"):
                log.move_partition("t", 0, "/one")
            assert places(fs) == ["/one/t-0", "/two/t-0"]
            fs.heal()
        assert view_of(log) == before
    judge(fs, clock, [before])


def test_readers_see_it_whole_at_every_moment() -> None:
    """One that knows the old place, and one that begins just now."""
    clock = ManualClock()
    fs = filled(clock)
    log = opened(fs, clock)
    reader = opened(fs.process(), clock, "r")
    before = view_of(reader)
    looks = 0

    def look(_: Call) -> None:
        nonlocal looks
        assert view_of(reader) == before
        with opened(fs.process(), clock, "r") as fresh:
            assert view_of(fresh) == before
            assert fresh.offline() == {}
        looks += 1

    with quick():
        fs.on_call = look
        log.move_partition("t", 0, "/two")
        fs.on_call = None
    assert looks > 30
    assert view_of(reader) == before
    log.append("t", table([b"on"]), 0)
    assert view_of(reader)[T0][1] == before[T0][1] + 1
