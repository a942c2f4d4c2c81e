"""Every sequence of up to three operations, crashed at every file-system call of its last one.

The calls of the earlier operations are the last ones of shorter sequences. As ACE (CrashMonkey,
OSDI 2018), which found 24 of 26 known crash bugs with three operations or fewer.
"""

from __future__ import annotations

import itertools

import pytest

from tests import depth
from tests.crash.explore import Tally, explore
from tests.crash.harness import TOPIC, Planned, World

ONE, TWO = (TOPIC, 0), (TOPIC, 1)
OPERATIONS = (
    "append", "roll", "commit", "adopt", "replay", "reset", "truncate", "create", "drop",
    "undelete", "purge", "close", "open",
)  # fmt: skip
CORE = ("append", "roll", "commit", "truncate", "close", "open")
FIRST = depth.by_depth(small=("commit", "create"), ci=OPERATIONS, all=OPERATIONS)
SECOND = depth.by_depth(small=("roll", "commit", "open"), ci=OPERATIONS, all=OPERATIONS)


def plan(world: World, name: str) -> Planned | None:
    """Plan one operation; None where it makes no sense."""
    if world.log is None and name != "open":
        return None
    if name == "append":
        return world.plan_append(ONE, 1)
    if name == "roll":
        return world.plan_append(ONE, 1, size=250)
    if name in ("commit", "adopt"):
        return world.plan_commit({ONE: 2, TWO: 2}, stage=name == "adopt")
    if name in ("replay", "reset"):
        if "w" not in world.model.writers:  # reset to its beginning
            return None
        return world.plan_replay() if name == "replay" else world.plan_reset()
    if name == "truncate":
        part = world.model.parts[ONE]
        return world.plan_truncate(ONE, part.start + 3) if part.start + 3 <= part.end else None
    if name in ("create", "drop"):
        there = "u" in world.model.topics()
        if there == (name == "create"):
            return None
        return world.plan_create("u") if name == "create" else world.plan_drop("u")
    if name == "fill":  # several segments, of which one is appended to
        return world.plan_commit({("u", 0): 8, ("u", 1): 1})
    if name in ("undelete", "purge"):
        if not world.model.deleted or "u" in world.model.topics():
            return None
        return world.plan_undelete("u") if name == "undelete" else world.plan_purge("u")
    return world.plan_close() if name == "close" else world.plan_open()


def run(sequence: tuple[str, ...], tally: Tally, **options: object) -> None:
    world = World.started()
    for name in sequence[:-1]:
        planned = plan(world, name)
        if planned is None:
            return
        world.run(planned)
    last = plan(world, sequence[-1])
    if last is not None:
        tally.ops[sequence[-1]] += 1
        explore(world, last, tally=tally, **options)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", OPERATIONS)
def test_one_operation_and_its_recovery(name: str) -> None:
    """Recovery from a crash is itself crashed at every call, after some of the crashes."""
    tally = Tally()
    setup = {"replay": (), "open": ("close",)}.get(name, before(name))
    several = name in ("undelete", "purge")  # its crashes are many, and alike
    run((*setup, name), tally, seeds=1, deep=depth.RECRASH_EVERY * (8 if several else 1))
    print(name, tally)
    assert tally.judged


def test_making_a_log() -> None:
    world, tally = World(), Tally()
    deep = depth.RECRASH_EVERY
    explore(world, world.plan_open(), tally=tally, seeds=1, deep=deep, readers=False)
    explore(world, world.plan_create(TOPIC), tally=tally, seeds=1, deep=deep)
    explore(world, world.plan_close(), tally=tally, seeds=1, deep=deep)
    print(tally)


def before(first: str) -> tuple[str, ...]:
    """What makes `first` possible on a log that was just started."""
    return {
        "drop": ("create", "fill"), "undelete": ("create", "fill", "drop"),
        "purge": ("create", "fill", "drop"),
    }.get(first, ())  # fmt: skip


@pytest.mark.parametrize("first", FIRST)
@pytest.mark.deep
def test_two_operations(first: str) -> None:
    tally = Tally()
    for second in SECOND:
        run((*before(first), first, second), tally)
    print(first, tally)
    assert tally.judged


@pytest.mark.deep
@pytest.mark.parametrize("first", CORE)
def test_three_operations(first: str) -> None:
    tally = Tally()
    for rest in itertools.product(CORE, CORE):
        run((first, *rest), tally, every=depth.CUT_EVERY_OF_THREE)
    print(first, tally)
    assert tally.judged


@pytest.mark.slow
@pytest.mark.parametrize("first", OPERATIONS)
def test_three_of_all_operations(first: str) -> None:
    tally = Tally()
    for rest in itertools.product(OPERATIONS, OPERATIONS):
        run((*before(first), first, *rest), tally, seeds=3)
    print(first, tally)
    assert tally.judged
