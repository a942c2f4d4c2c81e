"""Records that keep their offsets (`commit_runs`), crashed at every call of a commit of them.

Several partitions and batches, gaps at both ends and in the middle, rolls within: a commit is
wholly there or not at all, `copied_ends` says which, and who does it again gets the same, once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa
import pytest

import sparklog
from sparklog.clock import ManualClock
from sparklog.errors import InvalidRequestError
from sparklog.storage.staging import Framing
from sparklog.testing.crashes import every_crash
from sparklog.testing.crashfs import CrashFS
from sparklog.tools.moving.preserved_offsets import Run, commit_runs, copied_ends
from tests import depth
from tests.crash.explore import Tally, digest, explore
from tests.crash.harness import (
    PARTITIONS,
    PLACED,
    TOPIC,
    Planned,
    World,
    check,
    open_log,
    quick,
    view_of,
)
from tests.crash.model import Model
from tests.crash.test_seeds import History, run_seeds

ONE, TWO = (PLACED, 0), (PLACED, 1)
STARTS = {0: 7, 1: 0}
WRITER = "import/x"
SMALL = Framing(batch_size=120)  # bytes: some three records

Values = Sequence[bytes | None]
"""Of the offsets that come next; None: no record is there."""


def run_of(start: int, values: Values, now_ms: int) -> Run:
    held = [(start + n, value) for n, value in enumerate(values) if value is not None]
    rows = pa.RecordBatch.from_pydict(
        {
            "value": pa.array([value for _, value in held], pa.binary()),
            "timestamp": pa.array([now_ms] * len(held), pa.timestamp("ms")),
            "offset": pa.array([offset for offset, _ in held], pa.int64()),
        }
    )
    return Run(start, start + len(values), [rows] if held else [])


def place(log: sparklog.Log, runs: Mapping[int, Run]) -> None:
    assert not commit_runs(log, PLACED, runs, writer=WRITER, framing=SMALL).replayed


def plan_topic(world: World, starts: Mapping[int, int] = STARTS) -> Planned:
    after = world.model.with_topic(PLACED, PARTITIONS)
    for p, start in starts.items():
        after.parts[PLACED, p].base = after.parts[PLACED, p].start = start

    def again(log: sparklog.Log, found: Model) -> Model:
        if PLACED not in log.topics():
            log.create_topic(PLACED, PARTITIONS, world.config, starts=starts)
        assert copied_ends(log, PLACED, WRITER, "it") == dict(starts)
        return after

    def act() -> object:
        return world.opened.create_topic(PLACED, PARTITIONS, world.config, starts=starts)

    return Planned("create placed", after, act, again=again)


def plan_runs(world: World, shapes: Mapping[tuple[str, int], str], size: int = 0) -> Planned:
    """Plan a commit; a shape has a letter an offset, "x" where a record is."""
    before = world.model
    values: dict[tuple[str, int], list[bytes | None]] = {
        key: [world.values(1, size)[0] if letter == "x" else None for letter in shape]
        for key, shape in shapes.items()
    }
    after = before.with_values(values)
    now = world.clock()
    runs = {key[1]: run_of(before.parts[key].end, some, now) for key, some in values.items()}

    def again(log: sparklog.Log, found: Model) -> Model:
        ends = {p: part.end for (topic, p), part in found.parts.items() if topic == PLACED}
        assert copied_ends(log, PLACED, WRITER, "it") == ends
        if found.view() == before.view():
            place(log, runs)
        with pytest.raises(InvalidRequestError, match="were to be appended"):
            place(log, runs)
        for p, run in runs.items():
            assert copied_ends(log, PLACED, WRITER, "it")[p] == run.end
        return after

    return Planned(f"place {shapes}", after, lambda: place(world.opened, runs), again=again)


def copying(**given: object) -> World:
    """A log with a copy, the first commit of which is there."""
    world = World.started(**given)  # type: ignore[arg-type]
    world.run(plan_topic(world))
    world.run(plan_runs(world, {ONE: "..xx.x..", TWO: "x"}))
    return world


BATCHES = (
    {ONE: "x.x", TWO: "xx"},
    {ONE: "....."},
    {TWO: "..x...xx.xxx"},
    {ONE: "xxxxxxxxxxx...", TWO: "x"},
)


def test_making_the_topic() -> None:
    world, tally = World.started(), Tally()
    explore(world, plan_topic(world), tally=tally)
    print(tally)
    assert tally.judged


@pytest.mark.parametrize("batch", [0, 3])
def test_one_commit(batch: int) -> None:
    world, tally = copying(), Tally()
    explore(world, plan_runs(world, BATCHES[batch]), tally=tally)
    print(BATCHES[batch], tally)
    assert tally.judged


@pytest.mark.slow
@pytest.mark.parametrize("batch", range(len(BATCHES)))
def test_one_commit_and_its_recovery(batch: int) -> None:
    """Deep: recovery from a crash is itself crashed at every call."""
    world, tally = copying(), Tally()
    explore(world, plan_runs(world, BATCHES[batch]), tally=tally, seeds=3, deep=6)
    print(BATCHES[batch], tally)
    assert tally.judged


@pytest.mark.slow
def test_commit_after_commit() -> None:
    """Between two of them another session, a close, a start that moves; the later ones roll."""
    world, tally = copying(), Tally()
    explore(world, plan_runs(world, {ONE: "x" * 12, TWO: "x"}), tally=tally)
    world.run(world.plan_append((TOPIC, 0), 1))
    world.run(world.plan_open())  # another process goes on
    explore(world, plan_runs(world, {ONE: "...", TWO: ".xxxx.x"}, size=90), tally=tally)
    world.run(world.plan_truncate(ONE, world.model.parts[ONE].end))
    explore(world, plan_runs(world, {ONE: ".x"}), tally=tally)
    explore(world, world.plan_close(), tally=tally)
    world.run(world.plan_open())
    explore(world, plan_runs(world, {ONE: "x.", TWO: "x."}), tally=tally)
    print(tally)


@pytest.mark.deep
def test_gaps_longer_than_a_segment_can_span() -> None:
    """Offsets of a segment are relative, in 31 bits: such a commit rolls several times."""
    clock, ends = ManualClock(), {0: 7 * 10**9, 1: 3}
    machine = CrashFS(clock=clock)
    places = [10, 3 * 10**9, 3 * 10**9 + 5, 6 * 10**9]
    rows = pa.RecordBatch.from_pydict(
        {
            "value": pa.array([b"%d" % n for n in places], pa.binary()),
            "offset": pa.array(np.array(places, np.int64)),
        }
    )

    def runs() -> dict[int, Run]:
        return {0: Run(7, ends[0], [rows]), 1: run_of(0, [b"a", None, b"b"], 0)}

    with open_log(machine, clock) as log:
        log.create_topic(PLACED, PARTITIONS, starts=STARTS)
    seen = set()

    def work(fs: CrashFS) -> None:
        with open_log(fs, clock) as log:
            place(log, runs())

    with quick():
        for crash in list(every_crash(work, fs=machine, seeds=0))[::2]:
            key = digest(crash.fs), crash.finished
            if key in seen:
                continue
            seen.add(key)
            with open_log(crash.fs, clock) as log:
                found = copied_ends(log, PLACED, WRITER, "it")
                assert found in ([ends] if crash.finished else [STARTS, ends]), crash.how
                there = log.read(PLACED, columns=["partition", "offset"]).read_all()
                assert there.num_rows == (6 if found == ends else 0), crash.how
                if found != ends:
                    place(log, runs())
                offsets = log.read(PLACED, [0], columns=["offset"]).read_all()["offset"]
                assert offsets.to_pylist() == places, crash.how
    assert len(seen) > 20


class Copying(History):
    """Random histories, half of whose operations are commits of placed records."""

    def __init__(self, seed: int, tally: Counter[str]) -> None:
        super().__init__(seed, tally)
        self.world.run(plan_topic(self.world))

    def _plan(self) -> Planned:
        rng, world = self.rng, self.world
        chance = rng.random()
        if chance < 0.5:
            keys = rng.sample([ONE, TWO], rng.randint(1, 2))
            shapes = {key: "".join(rng.choices("x.", (2, 1), k=rng.randint(1, 12))) for key in keys}
            self.tally["placed"] += 1
            return plan_runs(world, shapes, size=rng.choice((0, 0, 60)))
        if chance < 0.55:
            key = rng.choice([ONE, TWO])
            part = world.model.parts[key]
            return world.plan_truncate(key, rng.randint(part.start, part.end))
        return super()._plan()


@pytest.mark.deep
def test_seeds(crash_seed: int | None) -> None:
    first, count = (crash_seed, 1) if crash_seed else (1, depth.PLACING_SEEDS)
    run_seeds(range(first, first + count), Copying)


@pytest.mark.slow
@pytest.mark.parametrize("first", range(3, 1000, 100))
def test_many_seeds(first: int) -> None:
    run_seeds(range(first, first + depth.SLOW_PLACING_SEEDS), Copying)


@pytest.mark.slow
@pytest.mark.parametrize("reopen", [False, True])
def test_two_commits_of_all_kinds(reopen: bool) -> None:
    tally = Tally()
    for first in BATCHES:
        for second in BATCHES:
            world = copying(reopen=reopen)
            world.run(plan_runs(world, first))
            explore(world, plan_runs(world, second), tally=tally, seeds=3, deep=20)
    print(tally)


def test_the_judge_sees_a_record_that_is_gone() -> None:
    """What these tests rest on: a lost and a moved record are told from a gap."""
    world = copying()
    assert view_of(world.opened)[ONE][2] == world.model.view()[ONE][2]
    for wrong in ([None], [b"other"]):
        world.model.parts[ONE].values[2:3] = wrong
        with pytest.raises(AssertionError, match="allowed view 0, placed-0"):
            check(world.opened, world, None)
