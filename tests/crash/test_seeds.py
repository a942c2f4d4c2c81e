"""Long random histories with crashes, faults and readers in them; each seed can be replayed.

A failure names its seed: `pytest tests/crash -k seeds --crash-seed SEED` runs that one again.
Rules as RocksDB's db_crashtest: what was acknowledged is there, nothing else is, no hole.
"""

from __future__ import annotations

import gc
import random
import time
from collections import Counter
from unittest.mock import patch

import pytest

import sparklog
from sparklog.errors import StorageUnavailableError
from sparklog.logdir.home import commits_of
from sparklog.logdir.ledger import SEGMENT_BYTES, Ledger
from sparklog.testing.disk import Mode
from sparklog.testing.faults import Fault, SimulatedKill
from tests import depth
from tests.crash.harness import TOPIC, Planned, World, check, look, open_log, quick, view_of

STEPS = 200
KEYS = [(TOPIC, 0), (TOPIC, 1)]


class History:
    """One seed's run."""

    def __init__(self, seed: int, tally: Counter[str]) -> None:
        self.seed, self.tally = seed, tally
        config = {"internal.segment.bytes": "1000"} if seed % 2 else {}
        self.world = World.started(seed, reopen=seed % 3 == 0, config=config)
        self.rng = random.Random(seed)
        self.reader: sparklog.Log | None = None

    def run(self) -> None:
        for _ in range(STEPS):
            self.tally["steps"] += 1
            self._step()
        self.world.fs.heal()
        if self.world.log is None:
            self._open()
        # A commit whose publishing failed shows when the log is locked next.
        session = commits_of(self.world.opened)
        assert session is not None
        with session.exclusive():
            pass
        check(self.world.opened, self.world, None)
        self.world.opened.close()

    def _step(self) -> None:
        world, rng = self.world, self.rng
        if world.log is None:
            self._open()
        planned, times = self._plan(), 1
        chance = rng.random()
        if chance < 0.05:
            fault = rng.choice((Fault.KILL, Fault.KILL, Fault.TORN_KILL))
            world.fs.fail_at(rng.randint(1, 40 if fault is Fault.KILL else 12), fault)
        elif chance < 0.08:
            fault = rng.choice((Fault.NO_SPACE, Fault.IO_ERROR, Fault.DENIED))
            times = rng.choice((1, 1, 3))
            world.fs.fail_at(rng.randint(1, 25), fault, times=times)
        try:
            world.run(planned)
        except SimulatedKill:
            self._crash(planned)
        except StorageUnavailableError:
            self._failed(planned, undone=times == 1)
        world.fs.heal()
        if rng.random() < 0.02:
            self._read()

    def _plan(self) -> Planned:
        world, rng = self.world, self.rng
        key = rng.choice(KEYS)
        name = rng.choices(
            ("append", "roll", "commit", "adopt", "replay", "truncate", "topic", "close", "open"),
            (24, 6, 24, 10, 5, 10, 3, 3, 3),
        )[0]
        if name == "append":
            return world.plan_append(key, rng.randint(1, 3))
        if name == "roll":
            return world.plan_append(key, 1, size=250)
        if name in ("commit", "adopt"):
            counts = {k: rng.randint(1, 3) for k in rng.sample(KEYS, rng.randint(1, 2))}
            return world.plan_commit(counts, stage=name == "adopt", writer=rng.choice("wx"))
        if name == "replay":
            return world.plan_replay(rng.choice(sorted(world.model.writers)))
        if name == "truncate":
            part = world.model.parts[key]
            return world.plan_truncate(key, rng.randint(part.start, part.end))
        if name == "topic":
            there = "u" in world.model.topics()
            return world.plan_drop("u") if there else world.plan_create("u")
        return world.plan_close() if name == "close" else world.plan_open()

    def _crash(self, planned: Planned) -> None:
        world, rng = self.world, self.rng
        self._machine_dies()
        while True:
            if rng.random() < 0.3:
                world.fs.fail_at(rng.randint(1, 30), Fault.KILL)
            try:
                world.open()
                break
            except SimulatedKill:
                self.tally["crashes in recovery"] += 1
                self._machine_dies()
        world.fs.heal()
        world.model = check(world.opened, world, planned, go_on=rng.random() < 0.3)
        world.views.append(world.model.view())

    def _machine_dies(self) -> None:
        world, rng = self.world, self.rng
        world.log = None
        if rng.random() < 0.6:
            mode: Mode = rng.choice(("random", "random", "random", "strict", "all"))
            self.tally[f"power cuts ({mode})"] += 1
            world.fs = world.fs.crash_clone(rng, mode)
            world.others.clear()
            self.reader = None
        else:
            self.tally["kills"] += 1
            world.fs = world.fs.process()

    def _failed(self, planned: Planned, *, undone: bool) -> None:
        """An error of the disk leaves the log as it was; here and now, and for who comes next.

        If the undo met an error, too, nobody can tell; but it is all or nothing.
        """
        world = self.world
        self.tally["disk errors"] += 1
        world.fs.heal()
        if planned.name in ("open", "close"):
            world.log = None
            self._open()
        if undone:
            planned = Planned(planned.name, world.model, planned.act)
        world.settle()
        world.model = check(world.opened, world, planned, go_on=False)
        world.views.append(world.model.view())

    def _open(self) -> None:
        self.world.run(self.world.plan_open())

    def _read(self) -> None:
        world = self.world
        self.tally["reads"] += 1
        if world.log is None:
            self._open()
        world.settle()
        if self.reader is None:
            self.reader = open_log(self.world.fs.process(), self.world.clock, "r")
        assert view_of(self.reader) == self.world.model.view()
        look(self.world.fs, self.world, [self.world.model.view()])


def run_seeds(seeds: range, kind: type[History] = History) -> None:
    tally: Counter[str] = Counter()
    started = time.process_time()
    with quick():
        for seed in seeds:
            run_seed(seed, tally, kind)
            gc.collect()  # what a crash left: disks, held by the frames of its traceback
    seconds = time.process_time() - started
    print(f"seeds {seeds.start}..{seeds.stop - 1} in {seconds:.0f} CPU s: {dict(tally)}")


def run_seed(seed: int, tally: Counter[str], kind: type[History] = History) -> None:
    """Run one history. In every fifth the ledger rolls, too, about every tenth commit."""
    ledger_bytes = 4000 if seed % 5 == 0 else SEGMENT_BYTES
    with patch.object(Ledger, "segment_bytes", ledger_bytes):
        history = kind(seed, tally)
        try:
            history.run()
        except (Exception, SimulatedKill) as error:
            error.add_note(f"crash seed {seed}; history: {history.world.history[-12:]}")
            raise


def test_one_seed(crash_seed: int | None) -> None:
    """The seed that was asked for, or the first; with all that is logged."""
    run_seed(crash_seed or 0, Counter())


@pytest.mark.parametrize("first", range(1, depth.CRASH_SEEDS + 1, depth.CRASH_SEEDS_A_TEST))
def test_seeds(first: int, crash_seed: int | None) -> None:
    if crash_seed is not None:
        pytest.skip("one seed was asked for")
    run_seeds(range(first, first + depth.CRASH_SEEDS_A_TEST))
