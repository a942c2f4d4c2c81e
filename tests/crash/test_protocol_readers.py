"""PROTOCOL, "Failure modes", by name: what readers see, without any lock (C9, C10, C12)."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

import sparklog
from sparklog.errors import SparklogError, TopicReplacedError, UnknownTopicError
from sparklog.fs import read_bytes
from sparklog.logdir.high_watermarks import published
from sparklog.testing.crashfs import CrashFS
from sparklog.testing.faults import Call, Fault, SimulatedKill
from tests.crash.harness import (
    ROOT,
    TOPIC,
    Planned,
    World,
    check,
    open_log,
    table,
    view_of,
)

ONE, TWO = (TOPIC, 0), (TOPIC, 1)
MARKS = f"{ROOT}/sparklog.watermarks"


def reader_of(world: World) -> sparklog.Log:
    return open_log(world.fs.process(), world.clock, "r")


def cut_and_rewrite(look: Callable[[sparklog.Log, World], None], *, calls: int = 200) -> int:
    """Kill a commit at each call; undo it; commit other rows; `look` with the same old reader.

    The reader also looks in mid-commit, right before the kill, when it can buffer what it may.
    """
    number = 0
    while number < calls:
        number += 1
        world = World.started(number)
        reader = reader_of(world)
        assert view_of(reader) == world.model.view()
        doomed = world.plan_commit({ONE: 8, TWO: 2})
        world.fs.fail_at(number, Fault.KILL)
        fs = world.fs

        def peek(call: Call, world: World = world, reader: sparklog.Log = reader) -> None:
            if call.number == len(world.fs.calls) + 1:
                look(reader, world)

        fs.on_call = peek
        try:
            world.run(doomed)
            return number
        except SimulatedKill:
            world.log = None
        fs.on_call = None
        world.fs = fs.process()
        world.open()
        world.model = check(world.opened, world, doomed, go_on=False)
        world.run(world.plan_append(ONE, 8))
        world.run(world.plan_commit({ONE: 1, TWO: 1}, writer="other"))
        assert view_of(reader) == world.model.view() == view_of(world.opened)
    raise AssertionError("the commit never ends")


def test_prefetch_across_undo() -> None:
    """Bytes past the watermark are never kept: cut and rewritten, they would be served."""

    def look(reader: sparklog.Log, world: World) -> None:
        found = view_of(reader)
        assert found[ONE][:2] == (0, len(found[ONE][2]))

    assert cut_and_rewrite(look) > 20


def test_truncate_under_reader() -> None:
    """A reader in mid-stream while the tail is cut: it gets its range, no SIGBUS, no error."""
    world = World.started()
    world.run(world.plan_append(ONE, 30))
    reader = reader_of(world)
    calls = 0
    while True:
        calls += 1
        expected = world.model.view()[ONE]
        stream = iter(reader.read(TOPIC, partitions=[0], columns=["offset", "value"]))
        doomed = world.plan_commit({ONE: 8, TWO: 2})
        world.fs.fail_at(calls, Fault.KILL)
        try:
            world.run(doomed)
            world.fs.heal()
            break
        except SimulatedKill:
            world.log = None
            world.fs = world.fs.process()
            world.open()
            world.model = check(world.opened, world, doomed, go_on=False)
        got = [value for batch in stream for value in batch.column("value").to_pylist()]
        assert tuple(got) == expected[2]
    assert calls > 20


def test_follow_never_shows_what_was_undone() -> None:
    world = World.started()
    reader = reader_of(world)
    stream = iter(reader.read(TOPIC, partitions=[0], columns=["value"], follow=True))
    got: list[bytes] = []

    def drain(count: int) -> None:
        while len(got) < count:
            got.extend(next(stream).column("value").to_pylist())

    for number in range(1, 30):
        drain(world.model.parts[ONE].end)
        doomed = world.plan_commit({ONE: 3, TWO: 1})
        world.fs.fail_at(number, Fault.KILL)
        try:
            world.run(doomed)
            world.fs.heal()
        except SimulatedKill:
            world.log = None
            world.fs = world.fs.process()
            world.open()
            world.model = check(world.opened, world, doomed, go_on=False)
        world.run(world.plan_append(ONE, 1))
    drain(world.model.parts[ONE].end)
    assert got == world.model.parts[ONE].values


def test_three_writers_watermarks_monotone() -> None:
    """Three processes take turns, some die: no published watermark ever goes back."""
    rng = random.Random(3)
    world = World.started()
    best: dict[tuple[str, int], int] = {}
    looks = 0

    def watch(_: Call) -> None:
        nonlocal looks
        marks = published(world.fs.process(), ROOT)
        assert marks is not None, "the file is there and whole at every moment"
        for key, end in marks.ends.items():
            assert end >= best.get(key, 0), f"{key} went back from {best[key]} to {end}"
            best[key] = end
        looks += 1

    writers = [world.fs.process() for _ in range(3)]
    logs = [open_log(fs, world.clock) for fs in writers]
    for number in range(60):
        at = rng.randrange(3)
        writers[at].on_call = watch
        if rng.random() < 0.3:
            writers[at].fail_at(rng.randint(1, 30), Fault.KILL)
        try:
            logs[at].append(TOPIC, table([b"%d" % number]), partition=rng.randrange(2))
        except SimulatedKill:
            writers[at] = world.fs.process()
            writers[at].on_call = watch
            logs[at] = open_log(writers[at], world.clock)
        writers[at].heal()
        writers[at].on_call = None
    assert looks > 600
    final = view_of(logs[0])
    for key in (ONE, TWO):
        assert best[key] == final[key][1]


DAMAGE: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda raw: b"",
    "zeros": lambda raw: bytes(len(raw)),
    "half": lambda raw: raw[: len(raw) // 2],
    "one digit": lambda raw: raw.replace(b" 0 6", b" 0 4") if b" 0 6" in raw else raw + b"x",
    "a line gone": lambda raw: b"\n".join(raw.split(b"\n")[:-2]) + b"\n",
    "foreign": lambda raw: b"\x89PNG",
}


@pytest.mark.parametrize("how", [*DAMAGE, "missing"])
@pytest.mark.usefixtures("impatient")
def test_empty_watermarks(how: str) -> None:
    """Without a readable watermark file the ledger's valid prefix tells the ends."""
    world = World.started()
    raw = read_bytes(world.fs, MARKS)
    if how == "missing":
        world.fs.unlink(MARKS)
    else:
        with world.fs.open(MARKS, write=True) as file:
            file.truncate(0)
            file.pwrite(DAMAGE[how](raw), 0)
        assert read_bytes(world.fs, MARKS) != raw
    assert view_of(reader_of(world)) == world.model.view()
    reader = reader_of(world)
    doomed = world.plan_commit({ONE: 3, TWO: 2})
    seen = []
    world.fs.on_call = lambda call: seen.append(view_of(reader))
    world.run(doomed)
    world.fs.on_call = None
    before = world.views[-2]
    assert all(view in (before, doomed.after.view()) for view in seen)
    assert seen[0] == before
    assert view_of(reader_of(world)) == world.model.view()
    assert published(world.fs, ROOT) is not None


def test_recreated_topic() -> None:
    """Deleted and made again, a topic goes on at its old end: no offset names two records."""
    world = World.started()
    world.run(world.plan_append(ONE, 5))
    reader = reader_of(world)
    stream = iter(reader.read(TOPIC, partitions=[0], columns=["offset", "value"]))
    ends = {key: part.end for key, part in world.model.parts.items()}
    world.run(world.plan_drop(TOPIC))
    with pytest.raises(UnknownTopicError):
        world.opened.offsets(TOPIC)
    world.run(world.plan_create(TOPIC))
    assert {k: (p.start, p.end) for k, p in world.model.parts.items()} == {
        key: (end, end) for key, end in ends.items()
    }
    assert view_of(world.opened) == world.model.view()
    world.run(world.plan_append(ONE, 5))
    assert view_of(world.opened) == world.model.view() == view_of(reader)
    with pytest.raises(TopicReplacedError):
        list(stream)
    for fs in (world.fs.kill_clone(), world.fs.crash_clone(mode="strict")):
        with open_log(fs, world.clock) as log:
            assert view_of(log) == world.model.view()


def test_a_recreated_topic_with_fewer_partitions_then_more() -> None:
    """The third partition comes back at its old end, too, though the second life had two."""
    world = World.started()
    world.opened.create_topic("wide", partitions=3)
    world.opened.append("wide", table([b"first life"]), partition=2)
    world.opened.delete_topic("wide")
    world.opened.create_topic("wide", partitions=1)
    world.opened.alter_topic("wide", partitions=3)
    assert world.opened.offsets("wide")[2] == (1, 1)


def test_a_reader_sees_each_topic_whole_or_not_at_all() -> None:
    """From the very first topic on: made, altered, dropped, at every call."""
    world = World()
    world.open()
    with_topic = world.plan_create(TOPIC)
    reader = reader_of(world)
    assert _seen(world, reader, with_topic) >= 5
    assert _seen(world, reader, world.plan_append(ONE, 3)) >= 5
    assert _seen(world, reader, world.plan_drop(TOPIC)) >= 5


def _seen(world: World, reader: sparklog.Log, planned: Planned) -> int:
    views = []

    def look(_: Call) -> None:
        try:
            views.append(view_of(reader))
        except UnknownTopicError:  # gone between two of the look's steps: it says so
            views.append({})
        except SparklogError as error:
            raise AssertionError(f"in mid-{planned.name}: {error!r}") from error

    before = world.model.view()
    world.fs.on_call = look
    world.run(planned)
    world.fs.on_call = None
    for view in views:
        assert view in (before, planned.after.view())
    assert view_of(reader) == planned.after.view()
    return len(views)


def test_nothing_of_a_reader_touches_the_disk() -> None:
    world = World.started()
    fs: CrashFS = world.fs.process()
    log = open_log(fs, world.clock, "r")
    assert view_of(log) == world.model.view()
    log.offsets_for_times(TOPIC, world.clock())
    log.commits()
    log.close()
    assert fs.calls == []


@pytest.mark.deep
def test_an_undone_roll_in_a_readers_listing() -> None:
    """A reader that listed a segment which was undone must not take the one before for closed.

    It would map that one's indexes, and the next undo would cut them under the map: SIGBUS.
    """
    mapped = 0
    for number in range(4, 40):
        world = World.started(number)
        world.run(world.plan_append(ONE, 1, size=250))  # a new segment
        reader = reader_of(world)
        doomed = world.plan_append(ONE, 1, size=250)  # another one
        fs = world.fs
        fs.fail_at(number, Fault.KILL)

        def peek(_: Call, reader: sparklog.Log = reader) -> None:
            view_of(reader)

        fs.on_call = peek
        try:
            world.run(doomed)
            break
        except SimulatedKill:
            world.log = None
        fs.on_call = None
        world.fs = fs.process()
        world.open()
        world.model = check(world.opened, world, doomed, go_on=False)
        for _ in range(3):
            world.run(world.plan_append(ONE, 1))
            for offset in range(world.model.parts[ONE].end):
                reader.read(TOPIC, [0], start={0: offset}, columns=["offset"]).read_all()
            reader.offsets_for_times(TOPIC, world.clock())
            world.fs.fail_at(9, Fault.KILL)
            doomed = world.plan_append(ONE, 1)
            try:
                world.run(doomed)
                world.fs.heal()
            except SimulatedKill:
                world.log = None
                world.fs = world.fs.process()
                world.open()
                world.model = check(world.opened, world, doomed, go_on=False)
            mapped += 1
        assert view_of(reader) == world.model.view()
    assert mapped > 30
