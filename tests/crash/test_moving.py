"""A partition that moves to another log dir, crashed at every file-system call.

It is in the old place or in the new one, whole, never in both and never in none; what is left of a
move that was cut is wanted, and gone on with, or goes when the log is opened next. Writers,
retention and a cleaner go on beside it: whatever they did is in the new place.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from unittest import mock

import pyarrow as pa
import pytest

import sparklog
from sparklog.clock import ManualClock
from sparklog.errors import StorageUnavailableError
from sparklog.log.log import home_of
from sparklog.logdir import partition_move
from sparklog.service import Service, erase, verify
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


def judge(
    fs: CrashFS, clock: ManualClock, wanted: list[View], *, goes_on: bool = True
) -> str:
    """Open it, look at all of it, and write on; returns where t-0 is."""
    with opened(fs.process(), clock, "r") as reader:
        assert view_of(reader) in wanted
    with opened(fs, clock) as log:
        view = view_of(log)
        assert view in wanted
        copies = [place for place in places(fs) if place.endswith("-future")]
        (place,) = [place for place in places(fs) if place not in copies]
        assert log.topic("t").dirs[0] == place
        assert len(copies) <= len(log.moves())
        if goes_on and log.moves():
            home_of(log).moves.carry_out()
            assert places(fs) == ["/two/t-0"] == [log.topic("t").dirs[0]]
            place = "/one/t-0, then /two/t-0"
            assert view_of(log) == view
        elif log.moves():
            log.cancel_moves()
            assert places(fs) == [place]
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

    ends: dict[str, int] = {"/one/t-0": 0, "/two/t-0": 0, "/one/t-0, then /two/t-0": 0}
    seen = set()
    with quick():
        for crash in list(every_crash(work, fs=machine, seeds=1))[::depth.MOVE_CUTS]:
            key = digest(crash.fs), crash.finished
            if key in seen:
                continue
            seen.add(key)
            try:
                place = judge(crash.fs, clock, [before], goes_on=len(seen) % 4 > 0)
                assert place == "/two/t-0" or not crash.finished
            except Exception as error:
                error.add_note(crash.how)
                raise
            ends[place] += 1
    print(ends)
    assert min(ends.values()) > 5


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
            with opened(fs, clock) as log:
                fs.calls.clear()
                fs.fail_at(number, Fault.IO_ERROR, times=2, when=is_ledgers)
                try:
                    log.move_partition("t", 0, "/two")
                except StorageUnavailableError:
                    ends.add(log.topic("t").dirs[0])
                met = sum(map(is_ledgers, fs.calls)) >= number
                fs.heal()
                assert view_of(log) == before
            judge(fs, clock, [before])
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


@contextmanager
def meanwhile(act: Callable[[int], None]) -> Iterator[None]:
    """Call `act` with the number of the round after each of the first rounds of a move."""
    real = partition_move._Move.follow
    rounds = 0

    def follow(self: partition_move._Move) -> int:
        nonlocal rounds
        copied = real(self)
        rounds += 1
        act(rounds)
        return partition_move.TAIL_BYTES + 1 if rounds < 5 else copied

    with mock.patch.object(partition_move._Move, "follow", follow):
        yield


@pytest.mark.parametrize("how", ["another process", "this one"])
def test_what_writers_and_retention_do_meanwhile_moves_too(how: str) -> None:
    clock = ManualClock()
    fs = filled(clock)
    log = opened(fs, clock)
    other = opened(fs.process(), clock) if how == "another process" else log

    def act(number: int) -> None:
        clock.advance(10)
        for _ in range(3):
            other.append("t", table([b"%d" % number * 60]), 0)
        if number == 2:
            other.delete_records("t", {0: 5})
        if number == 3:
            rounds = [Service(PATH, fs=fs.process(), clock=clock).run_once() for _ in range(2)]
            assert [one.log_start for report in rounds for one in report.deleted] == [5]

    with meanwhile(act):
        moved = log.move_partition("t", 0, "/two")
    assert (moved.source, moved.target) == ("/one", "/two")
    for each in (log, other):
        start, end, values = view_of(each)[T0]
        assert (start, end, len(values)) == (5, 23, 18)
    other.append("t", table([b"on"]), 0)
    assert places(fs) == ["/two/t-0"]
    other.close()
    if other is not log:
        log.close()
    assert verify(PATH, fs=fs, clock=clock).ok
    judge(fs.crash_clone(mode="strict"), clock, [view_of(opened(fs.process(), clock, "r"))])


@pytest.mark.deep
@pytest.mark.parametrize("is_moving", [True, False], ids=["while it moves", "then it moves"])
def test_an_erasure_beside_a_move(is_moving: bool) -> None:
    """Whichever comes in between, wherever nobody holds the lock: complete is what it says."""
    clock = ManualClock()
    machine = CrashFS(clock=clock)
    with opened(machine, clock) as log:
        log.create_topic("t", 1, CONFIG | {"compression.type": "uncompressed"})
        for _ in range(6):
            log.append("t", pa.table({"key": ["alice", "bob"], "value": ["secret", "kept"]}), 0)

    def erased(fs: CrashFS) -> bool:
        return erase(PATH, "t", [b"alice"], fs=fs, clock=clock).complete

    def move(fs: CrashFS) -> None:
        with opened(fs, clock) as log:
            log.move_partition("t", 0, "/two")

    claims = 0
    for number in itertools.count(1):
        fs, calls, said = machine.kill_clone(), itertools.count(1), list[bool]()
        other = fs.process()

        def between(_: Call) -> None:
            if other.is_locked("/one/sparklog.lock", 0, 1) or next(calls) != number:  # noqa: B023
                return
            fs.on_call = None  # noqa: B023
            said.append(erased(other) if is_moving else move(other) is None)  # noqa: B023

        with quick():
            fs.on_call = between
            is_complete = move(fs) is None if is_moving else erased(fs)
            fs.on_call = None
            if not said:
                break
            is_complete = said[0] if is_moving else is_complete
            with opened(fs.process(), clock, "r") as reader:
                keys = reader.read("t").read_all().column("key").to_pylist()
            assert keys.count(b"bob") == 6
            if is_complete:
                claims += 1
                assert b"alice" not in keys
                assert not holding(fs, b"secret")
            assert erased(fs.process())
            assert not holding(fs, b"secret")
            assert verify(PATH, fs=fs, clock=clock).ok
    assert claims > 1


def holding(fs: CrashFS, raw: bytes) -> list[str]:
    """The files of partitions that hold some bytes."""
    found = []
    for path in ("/one", "/two"):
        for name in fs.listdir(path):
            where = f"{path}/{name}"
            for each in fs.listdir(where) if fs.is_dir(where) else ():
                with fs.open(f"{where}/{each}") as file:
                    found += [file.path] if raw in file.pread(file.size(), 0) else []
    return found
