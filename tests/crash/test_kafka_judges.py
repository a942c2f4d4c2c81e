"""Kafka's own load looks at what our recovery left, and finds nothing to do."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from sparklog.fs import LOCAL, read_bytes
from sparklog.testing.faults import Fault, SimulatedKill
from sparklog.testing.trees import copy_tree
from tests.crash.harness import CONFIG, ROOT, World, check, view_of
from tests.crash.test_every_cut import plan
from tests.oracle import Oracle

ROUNDS = 12
OPERATIONS = ("append", "roll", "commit", "adopt", "truncate")


def crashed_history(seed: int) -> World:
    """Some operations, a crash in each third one, recovery, a clean close."""
    world = World.started(seed)
    rng = random.Random(seed)
    for number in range(ROUNDS):
        planned = plan(world, rng.choice(OPERATIONS))
        if planned is None:
            continue
        if number % 3 == 2:
            world.fs.fail_at(rng.randint(1, 30), Fault.KILL)
        try:
            world.run(planned)
        except SimulatedKill:
            world.log = None
            cut = rng.random() < 0.7
            world.fs = world.fs.crash_clone(rng) if cut else world.fs.process()
            world.open()
            world.model = check(world.opened, world, planned)
        world.fs.heal()
    assert view_of(world.opened) == world.model.view()
    world.run(world.plan_close())
    return world


@pytest.mark.parametrize("seed", range(25))
def test_kafka_loads_what_was_recovered(seed: int, oracle: Oracle, tmp_path: Path) -> None:
    world = crashed_history(seed)
    copy_tree(world.fs, ROOT, LOCAL, str(tmp_path / "log"))
    marks = read_bytes(world.fs, f"{ROOT}/replication-offset-checkpoint").decode()
    for (topic, partition), (start, end, values) in world.model.view().items():
        assert f"{topic} {partition} {end}" in marks
        for clean in (True, False):
            opened = oracle.open(
                tmp_path / "log" / f"{topic}-{partition}", clean=clean, records=True,
                config=CONFIG, log_start=start, recovery_point=end if clean else 0,
            )  # fmt: skip
            assert (opened.start, opened.end) == (start, end)
            kept = [record.value for record in opened.records if record.offset >= start]
            assert tuple(kept) == values
            assert opened.untouched, (opened.changed, opened.created, opened.removed)
    ledger = oracle.open(tmp_path / "log" / "__sparklog_commits-0", clean=False)
    assert ledger.untouched
    assert ledger.count == ledger.end
