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
from sparklog.logdir.ledger import SEGMENT_BYTES, LedgerWriter
from sparklog.service import verify
from sparklog.testing.disk import Mode
from sparklog.testing.faults import Fault, SimulatedKill
from tests import depth
from tests.crash.harness import (
    ROOT,
    TOPIC,
    Planned,
    World,
    check,
    drawn_by,
    look,
    open_log,
    quick,
    view_of,
)
from tests.crash.housekeeping_plans import plan_erase, plan_move
from tests.crash.model import KEYS as RECORD_KEYS
from tests.crash.whereabouts import check_directories, is_due

STEPS = 150
KEYS = [(TOPIC, 0), (TOPIC, 1)]
LOG_DIRS = f"{ROOT},/two,/three"
OPERATIONS = {
    "append": 24, "roll": 6, "commit": 24, "adopt": 10, "replay": 5, "truncate": 8, "retain": 3,
    "topic": 9, "move": 7, "erase": 5, "close": 3, "open": 3,
}  # fmt: skip


class History:
    """One seed's run."""

    def __init__(self, seed: int, tally: Counter[str]) -> None:
        self.seed, self.tally = seed, tally
        config = {"internal.segment.bytes": "1000"} if seed % 2 else {}
        config |= {"file.delete.delay.ms": "300"} if seed % 7 < 3 else {}
        path = ROOT if seed % 4 == 1 else LOG_DIRS
        self.world = World.started(seed, reopen=seed % 3 == 0, config=config, path=path, keyed=True)
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
        commits = commits_of(self.world.opened)
        assert commits is not None
        with commits.exclusive():
            pass
        check(self.world.opened, self.world, None)
        self._verify()

    def _step(self) -> None:
        world, rng = self.world, self.rng
        if world.log is None:
            self._open()
        planned, times = self._plan(), 1
        chance, is_long = rng.random(), bool(planned.in_steps or planned.midway)
        if is_long:  # and rare, in many calls
            chance /= 4
        if chance < 0.05:
            fault = rng.choice((Fault.KILL, Fault.KILL, Fault.TORN_KILL))
            calls = (120 if is_long else 40) if fault is Fault.KILL else 12
            world.fs.fail_at(rng.randint(1, calls), fault)
        elif chance < 0.08:
            fault = rng.choice((Fault.NO_SPACE, Fault.IO_ERROR, Fault.DENIED))
            times = rng.choice((1, 1, 3))
            world.fs.fail_at(rng.randint(1, 25), fault, times=times)
        try:
            world.run(planned)
        except SimulatedKill:
            self._crash(planned)
        except StorageUnavailableError:
            self._failed(planned, undone=times == 1 and not planned.in_steps)
        world.fs.heal()
        if rng.random() < 0.02:
            self._read()

    def _plan(self) -> Planned:
        name = self.rng.choices(list(OPERATIONS), list(OPERATIONS.values()))[0]
        self.tally[name] += 1
        planned: Planned = getattr(self, f"_plan_{name}")()
        return planned

    def _key(self) -> tuple[str, int]:
        """A partition, mostly of the topic that is always there."""
        others = [key for key in sorted(self.world.model.parts) if key[0] in self._others()]
        return self.rng.choice(others if others and self.rng.random() < 0.3 else KEYS)

    def _others(self) -> list[str]:
        return [topic for topic in self.world.model.topics() if topic.startswith("u")]

    def _plan_append(self) -> Planned:
        return self.world.plan_append(self._key(), self.rng.randint(1, 3))

    def _plan_roll(self) -> Planned:
        return self.world.plan_append(self._key(), 1, size=250)

    def _plan_commit(self, *, stage: bool = False) -> Planned:
        keys = {self._key() for _ in range(self.rng.randint(1, 2))}
        counts = {key: self.rng.randint(1, 3) for key in sorted(keys)}
        return self.world.plan_commit(counts, stage=stage, writer=self.rng.choice("wx"))

    def _plan_adopt(self) -> Planned:
        return self._plan_commit(stage=True)

    def _plan_replay(self) -> Planned:
        return self.world.plan_replay(self.rng.choice(sorted(self.world.model.writers)))

    def _plan_truncate(self) -> Planned:
        key = self._key()
        part = self.world.model.parts[key]
        return self.world.plan_truncate(key, self.rng.randint(part.start, part.end))

    def _plan_retain(self) -> Planned:
        return self.world.plan_retain(self._key(), self.world.clock())

    def _plan_topic(self) -> Planned:
        """Topics that come and go: made, deleted, given back, given up."""
        world, rng = self.world, self.rng
        model, there = world.model, self._others()
        newest = {one.name: model.newest(one.name) for one in model.deleted.values()}
        gone = sorted(n for n, life in newest.items() if not is_due(world, model.deleted[life]))
        if gone and rng.random() < 0.6:
            name = rng.choice(gone)
            if rng.random() < 0.15 and name not in there:
                return world.plan_purge(name)
            if model.can_have_its_name(newest[name]):
                return world.plan_undelete(name)
            if len(there) < 3:
                return world.plan_undelete(name, new_name=f"u-{len(world.history)}")
        if "u" not in there:
            return world.plan_create("u")
        return world.plan_drop(rng.choice(there), now=rng.random() < 0.1)

    def _plan_move(self) -> Planned:
        key = self._key()
        places = [p for p in self.world.path.split(",") if p != self.world.model.parts[key].place]
        if not places:
            return self._plan_append()
        return plan_move(self.world, key, self.rng.choice(places))

    def _plan_erase(self) -> Planned:
        return plan_erase(self.world, self._key()[0], self.rng.choice(RECORD_KEYS))

    def _plan_close(self) -> Planned:
        return self.world.plan_close()

    def _plan_open(self) -> Planned:
        return self.world.plan_open()

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
        check_directories(world.opened, world.fs, world.path)
        world.model = check(world.opened, world, planned, go_on=rng.random() < 0.3)
        world.views.append(world.model.view())
        if rng.random() < 0.1:
            self._verify()

    def _verify(self) -> None:
        """Closed, the log is found to be whole by who looks at all of it."""
        world = self.world
        world.opened.close()
        world.log = None
        found = verify(world.path, fs=world.fs, clock=world.clock)
        assert found.ok, found.findings

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
            planned = Planned(planned.name, world.model, planned.act, midway=planned.midway)
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
            self.reader = open_log(world.fs.process(), world.clock, "r", path=world.path)
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
    with patch.object(LedgerWriter, "segment_bytes", ledger_bytes), drawn_by(seed):
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
