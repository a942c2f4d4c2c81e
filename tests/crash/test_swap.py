"""Swaps, cut at every file-system call: before or after, never a mix, for recovery and readers."""

from __future__ import annotations

import random
import zlib
from pathlib import Path

import pyarrow as pa
import pytest

from sparklog.fs import LOCAL
from sparklog.log import partition_reader
from sparklog.testing.crashes import Crash, crashes_now
from sparklog.testing.crashfs import CrashFS
from sparklog.testing.faults import Call, Fault, SimulatedKill
from sparklog.testing.trees import copy_tree
from tests import depth
from tests.crash.explore import digest
from tests.crash.harness import ROOT, open_log
from tests.crash.swaps import SCENARIOS, TOPIC, Rows, Scenario, World, clean, names, seen
from tests.oracle import Oracle

Allowed = list[tuple[Rows, Rows]]
scenarios = pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda s: s.name)
some_scenarios = pytest.mark.parametrize(  # `scenarios` tells of the others in the small suite
    "scenario",
    [pytest.param(s, marks=pytest.mark.deep if n % 2 else ()) for n, s in enumerate(SCENARIOS)],
    ids=lambda s: s.name,
)


def cut_everywhere(world: World, seeds: int) -> list[Crash]:
    """Clean, and return the machines that a crash at any of its calls leaves."""
    rng = random.Random(zlib.crc32(world.scenario.name.encode()))
    images: list[Crash] = []
    known: set[bytes] = set()

    def cut(call: Call | None) -> None:
        for image in crashes_now(world.fs, call, rng, seeds):
            key = digest(image.fs)
            if key not in known:
                known.add(key)
                images.append(image)

    world.fs.on_call = cut
    report = clean(world.log)
    assert report.next_dirty is not None
    world.fs.on_call = None
    cut(None)
    return images


def judge(image: Crash, world: World, allowed: Allowed) -> None:
    """Recover: one of the allowed states, and another cleaning leads to the last of them."""
    with open_log(image.fs, world.clock) as log:
        assert seen(log) in allowed
        assert not [name for name in names(image.fs) if name.endswith(".swap")]
        clean(log)
        assert seen(log) == allowed[-1]
        assert not [name for name in names(image.fs) if name.endswith((".cleaned", ".swap"))]
    if len(image.how) % 4 == 0:
        with open_log(image.fs, world.clock) as log:
            assert seen(log) == allowed[-1]


def rows_of(batch: pa.RecordBatch) -> list[tuple[int, bytes, bytes]]:
    columns = (batch.column(name).to_pylist() for name in ("offset", "key", "value"))
    return list(zip(*columns, strict=True))


def look(fs: CrashFS, world: World, allowed: Allowed) -> None:
    partition_reader = fs.process()
    with open_log(partition_reader, world.clock, "r") as log:
        assert seen(log) in allowed
        for start in range(1, world.end):
            rest = log.read(TOPIC, start={0: start}, columns=["offset"]).read_all()
            offsets = rest.column("offset").to_pylist()
            assert offsets in [[r[0] for r in rows if r[0] >= start] for rows, _ in allowed]
    assert not partition_reader.calls


@scenarios
def test_every_cut_of_a_swap(scenario: Scenario) -> None:
    world = World.of(scenario)
    allowed = world.allowed()
    assert seen(world.log) == allowed[0]
    assert allowed[-1] != allowed[0]
    images = cut_everywhere(world, seeds=1)
    assert seen(world.log) == allowed[-1]
    for image in images:
        try:
            judge(image, world, allowed)
        except BaseException as error:
            error.add_note(image.how)
            raise
    print(len(images), "crashed machines")


def cut_recovery(scenario: Scenario, sample: int, step: int) -> None:
    world = World.of(scenario)
    allowed = world.allowed()
    rng = random.Random(5)
    images = cut_everywhere(world, seeds=1)
    for image in rng.sample(images, min(sample, len(images))):
        number = 0
        while True:
            number += rng.randint(1, step)
            fs = image.fs.kill_clone()
            fs.fail_at(number, Fault.KILL)
            try:
                open_log(fs, world.clock).close()
            except SimulatedKill:
                again = rng.choice([fs.kill_clone(), fs.crash_clone(rng)])
                judge(Crash(f"{image.how}, {number}th call of recovery", again), world, allowed)
            else:
                break


@some_scenarios
def test_recovery_of_a_swap_is_cut_as_well(scenario: Scenario) -> None:
    cut_recovery(scenario, sample=depth.SWAP_RECOVERIES, step=16)


def test_recovery_forgets_a_swap_only_after_its_sources_are_durably_gone() -> None:
    """A power cut could else keep that last step and bring a source back, over the new records."""
    world = World.of(next(s for s in SCENARIOS if s.name == "four segments become one"))
    machines: list[CrashFS] = []  # the new log has both names, all sources are there

    def before_the_indexes(call: Call) -> None:
        if call.op == "rename" and call.path.endswith(".timeindex.swap"):
            machines.append(world.fs.crash_clone(mode="all"))

    world.fs.on_call = before_the_indexes
    clean(world.log)
    fs = machines[0].kill_clone()
    durable: list[list[str]] = []

    def before_the_last_step(call: Call) -> None:
        if call.path.endswith(".log.swap"):
            durable.append(logs(fs.crash_clone(mode="strict")))

    fs.on_call = before_the_last_step
    open_log(fs, world.clock).close()
    assert set(durable[-1]) <= set(logs(fs))


def logs(fs: CrashFS) -> list[str]:
    return sorted(name for name in names(fs) if name.endswith(".log"))


@pytest.mark.slow
@scenarios
def test_recovery_of_a_swap_is_cut_as_well_at_length(scenario: Scenario) -> None:
    cut_recovery(scenario, sample=depth.SLOW_SWAP_RECOVERIES, step=2)


@some_scenarios
@pytest.mark.parametrize("reopen", [False, True], ids=["kept", "reopened"])
def test_kill_mid_swap_reader_only(scenario: Scenario, reopen: bool) -> None:
    """H6: at no call, and after a kill there, is a reader without its segments; nobody recovers.

    Neither one that comes then, nor one that has files and listings from before.
    """
    world = World.of(scenario, reopen=reopen)
    allowed = world.allowed()
    with open_log(world.fs.process(), world.clock, "r") as old:
        seen(old)

        def at_every_call(call: Call) -> None:
            look(world.fs if call.number % 2 else world.fs.kill_clone(), world, allowed)
            assert seen(old) in allowed, call

        world.fs.on_call = at_every_call
        clean(world.log)
        world.fs.on_call = None
        assert seen(old) == allowed[-1]


@scenarios
@pytest.mark.parametrize("reopen", [False, True], ids=["kept", "reopened"])
def test_a_read_goes_on_across_swaps(
    scenario: Scenario, reopen: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A read that stands still at any place finishes: old up to some place, from there on new."""
    # It can stand still behind each segment.
    monkeypatch.setattr(partition_reader, "GATHERED_BYTES", 1)
    world = World.of(scenario, reopen=reopen)
    allowed = world.allowed()
    (before, _), (after, _) = allowed[0], allowed[-1]
    logs = [open_log(world.fs.process(), world.clock, "r") for _ in scenario.segments]
    reads = [log.read(TOPIC, columns=["offset", "key", "value"]) for log in logs]
    found: list[list[tuple[int, bytes, bytes]]] = []
    for number, read in enumerate(reads):
        found.append([row for _ in range(number) for row in rows_of(read.read_next_batch())])
    clean(world.log)
    for part, read in zip(found, reads, strict=True):
        for batch in read:
            part += rows_of(batch)
    mixed = [
        [r for r in before if r[0] < bound] + [r for r in after if r[0] >= bound]
        for bound in range(world.end + 1)
    ]
    assert all(part in mixed for part in found)
    for log in logs:
        log.close()


@pytest.mark.parametrize("fault", [Fault.IO_ERROR, Fault.NO_SPACE, Fault.DENIED])
def test_errors_at_each_call(fault: Fault) -> None:
    """A cleaning that fails leaves one of the states, no rubbish, and a log that goes on."""
    number = 0
    while True:
        number += 1 if fault is Fault.IO_ERROR else 3
        world = World.of(SCENARIOS[1])
        allowed = world.allowed()
        world.fs.fail_at(number, fault)
        try:
            clean(world.log)
        except Exception:
            world.fs.heal()
            assert seen(world.log) in allowed
            clean(world.log)
            assert seen(world.log) == allowed[-1]
            continue
        break
    assert number > 10


@some_scenarios
@pytest.mark.deep
def test_kafkas_own_load_of_what_a_kill_left(
    scenario: Scenario, oracle: Oracle, tmp_path: Path
) -> None:
    """The files alone tell a broker, too: the old records or the new ones."""
    world = World.of(scenario)
    allowed = [rows for rows, _ in world.allowed()]
    images: list[Crash] = []
    world.fs.on_call = lambda call: images.append(Crash(str(call), world.fs.kill_clone()))
    clean(world.log)
    # Before the last two thirds lie the old ones and .cleaned files.
    for number, image in enumerate(images[len(images) // 3 :: depth.CUT_EVERY]):
        path = tmp_path / str(number)
        path.mkdir()
        copy_tree(image.fs, f"{ROOT}/{TOPIC}-0", LOCAL, str(path / f"{TOPIC}-0"))
        for is_clean in (True, False):
            loaded = oracle.open(path / f"{TOPIC}-0", clean=is_clean, records=True)
            control = {b["base"] for b in loaded.batches if b["control"]}
            found = tuple(
                (r.offset, r.key, r.value) for r in loaded.records if r.offset not in control
            )
            assert found in allowed, image.how
