"""A fork that is cut anywhere leaves all of it or none, and the old log as it was."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import sparklog
from sparklog.errors import InvalidRequestError, LogLockedError, SparklogError
from sparklog.testing.crashes import Crash, every_crash
from sparklog.testing.crashfs import CrashFS
from sparklog.testing.faults import Call, Fault
from tests import depth
from tests.crash import harness
from tests.crash.explore import digest
from tests.crash.harness import OPTIONS, TOPIC, World, judge, open_log, quick, table, view_of
from tests.crash.model import View
from tests.log.forks import fork

NEW = "/new"
QUICK = OPTIONS | {"lock.timeout.ms": "0"}


def prepared(**given: object) -> tuple[World, View]:
    """A log with several segments, and what it held after batch 1 of writer w."""
    world = World.started(**given)  # type: ignore[arg-type]
    world.run(world.plan_commit({(TOPIC, 0): 2, (TOPIC, 1): 1}))
    wanted = world.model.view()
    world.run(world.plan_append((TOPIC, 0), 1))
    world.run(world.plan_commit({(TOPIC, 0): 3, (TOPIC, 1): 3}))
    return world, wanted


def make(fs: CrashFS, world: World, new: str = NEW) -> None:
    given = {"fs": fs, "clock": world.clock, "options": OPTIONS, "threads": 1}
    fork(harness.ROOT, new, writer="w", batch=1, **given)  # type: ignore[arg-type]


def check(fs: CrashFS, world: World, wanted: View, *, finished: bool, new: str = NEW) -> None:
    """The old log is whole; the new one is there, whole, or it can be made."""
    there = fs.exists(new.split(",")[0])
    assert there or not finished, "the fork is gone"
    if not there:
        make(fs, world, new)
    home = new.split(",")[0]
    if not there:
        left = [name for name in fs.listdir("/") if name.startswith(".new")]
        assert not left, left
    with sparklog.open(new, fs=fs, clock=world.clock) as reader:
        assert view_of(reader) == wanted
    with sparklog.open(new, "rw", fs=fs, clock=world.clock, options=OPTIONS) as log:
        assert view_of(log) == wanted
        for (topic, p), (_, end, _) in wanted.items():
            assert log.append(topic, table([b"x"]), partition=p) == {topic: {p: (end, end + 1)}}
    assert fs.exists(f"{home}/.kafka_cleanshutdown")
    judge(fs, world, None, go_on=True)


def cuts(world: World, new: str, *, seeds: int) -> Iterator[Crash]:
    """Every machine that a crash at a call of one fork may leave, each once."""
    seen = set()
    for image in every_crash(lambda fs: make(fs, world, new), fs=world.fs, seeds=seeds, seed=7):
        key = digest(image.fs), image.finished
        if key not in seen:
            seen.add(key)
            yield image


def explored(world: World, wanted: View, new: str, *, seeds: int = 1, every: int = 1) -> int:
    count = 0
    for image in cuts(world, new, seeds=seeds):
        count += 1
        if count % every:
            continue
        try:
            check(image.fs, world, wanted, finished=image.finished, new=new)
        except Exception as error:
            error.add_note(f"crash: {image.how}")
            raise
    return count


@pytest.mark.parametrize(
    "closed",
    [pytest.param(False, id="open", marks=pytest.mark.deep), pytest.param(True, id="closed")],
)
@quick()
def test_every_cut(closed: bool) -> None:
    world, wanted = prepared()
    if closed:
        world.run(world.plan_close())
    assert explored(world, wanted, NEW, every=(5 if closed else 2) * depth.CUT_EVERY) > 100


@quick()
@pytest.mark.deep
def test_every_cut_with_two_log_dirs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(harness, "ROOT", "/log,/log2")
    world, wanted = prepared()
    assert explored(world, wanted, "/new,/new2", every=5 * depth.CUT_EVERY) > 100


@pytest.mark.parametrize("fault", [Fault.IO_ERROR, Fault.NO_SPACE], ids=lambda fault: fault.name)
@quick()
def test_a_call_that_fails_leaves_nothing(fault: Fault) -> None:
    """Each call fails once, as on a broken or full disk: the fork says so, or it is all there."""
    world, wanted = prepared()
    count = 0
    while True:
        fs = world.fs.kill_clone()
        with open_log(fs, world.clock):  # another session, which goes on in any case
            before = len(fs.calls)
            fs.fail_at(count + 1, fault)
            try:
                make(fs, world)
                failed = False
            except SparklogError:
                failed = True
            fs.heal()
        if len(fs.calls) - before <= count:
            break
        check(fs, world, wanted, finished=not failed)
        count += 3 * depth.CUT_EVERY
    assert count > 50


@quick()
def test_two_of_one_name_at_a_time() -> None:
    """Whoever comes second is told, or finds it done; never a mixture."""
    world, wanted = prepared()
    outcomes = set()
    for number in range(1, 300, 11):
        fs = world.fs.kill_clone()
        outcomes.add(_interrupted(fs, world, number))
        check(fs, world, wanted, finished=True)
    assert {"", "LogLockedError", "made, then mine failed"} <= outcomes
    assert outcomes <= {"", "LogLockedError", "made, then mine failed", "InvalidRequestError"}


def _interrupted(fs: CrashFS, world: World, number: int) -> str:
    """Fork, and at the call `number` let another process do so; return how that ended."""
    found = []

    def interrupt(call: Call) -> None:
        if call.number != number:
            return
        other = fs.process()
        try:
            given = {"fs": other, "clock": world.clock, "options": QUICK, "threads": 1}
            fork(harness.ROOT, NEW, writer="w", batch=1, **given)  # type: ignore[arg-type]
        except (LogLockedError, InvalidRequestError) as error:
            found.append(type(error).__name__)
        else:
            found.append("made")

    fs.on_call = interrupt
    try:
        make(fs, world)
    except InvalidRequestError:
        assert found == ["made"]
        found = ["made, then mine failed"]
    fs.on_call = None
    return "".join(found)
