"""Retention and idle rolls, crashed at every file-system call: the log before, or the log after."""

from __future__ import annotations

import pytest

from tests import depth
from tests.crash.explore import Tally, explore
from tests.crash.harness import TOPIC, World

KEY = (TOPIC, 0)
WEEK_MS = 7 * 24 * 3_600_000


def grown(appends: int = 4) -> World:
    """Some three closed segments, and an active one that holds records."""
    world = World.started()
    for _ in range(appends):
        world.run(world.plan_append(KEY, 1, size=100))
    return world


@pytest.mark.parametrize("part", ["some", "all"])
def test_retention_by_age(part: str) -> None:
    """With `all`, the active segment expires too: it is rolled first, as one more step."""
    world, tally = grown(), Tally()
    now = world.clock() + (1_000_000 - 25 if part == "some" else WEEK_MS)
    planned = world.plan_retain(KEY, now)
    assert world.model.parts[KEY].start < planned.after.parts[KEY].start
    assert (planned.after.parts[KEY].start == world.model.parts[KEY].end) == (part == "all")
    deep = 2 * depth.RECRASH_EVERY if part == "some" else 0
    explore(world, planned, tally=tally, seeds=1, deep=deep)
    assert tally.judged > 20


def test_what_lies_below_the_log_start_goes() -> None:
    world, tally = grown(), Tally()
    world.run(world.plan_truncate(KEY, world.model.parts[KEY].end - 1))
    explore(world, world.plan_retain(KEY, world.clock()), tally=tally, seeds=1)
    assert tally.judged > 10


def test_idle_roll() -> None:
    world, tally = grown(1), Tally()
    explore(world, world.plan_idle_roll(KEY), tally=tally, seeds=1, deep=12)
    assert tally.judged > 10


def test_the_log_goes_on_after_all_of_it_expired() -> None:
    world = grown()
    world.run(world.plan_retain(KEY, world.clock() + WEEK_MS))
    tally = Tally()
    explore(world, world.plan_append(KEY, 2), tally=tally, seeds=1)
    world.run(world.plan_append(KEY, 1))
    explore(world, world.plan_close(), tally=tally, seeds=1)
    assert tally.judged
