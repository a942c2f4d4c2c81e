"""PROTOCOL, "Failure modes", by name: undo, recovery, disk errors (C5-C8, H1, H3, H4, H9, H12)."""

from __future__ import annotations

import contextlib
import random
from typing import Any

import pytest

import sparklog
from sparklog.errors import (
    BatchConflictError,
    DataCorruptionError,
    StorageUnavailableError,
)
from sparklog.format.scan import scan
from sparklog.fs import read_bytes
from sparklog.log.commit import Identity
from sparklog.logdir.ledger import LedgerWriter
from sparklog.testing.crashfs import CrashFS
from sparklog.testing.faults import Call, Fault, SimulatedKill
from sparklog.testing.trees import contents, copy_tree
from tests import depth
from tests.crash.harness import (
    OPTIONS,
    ROOT,
    TOPIC,
    Planned,
    World,
    check,
    chunk,
    judge,
    open_log,
    table,
    view_of,
)

ONE, TWO = (TOPIC, 0), (TOPIC, 1)


def segments(fs: CrashFS, partition: int = 0, topic: str = TOPIC) -> list[str]:
    """Paths of a partition's .log files, oldest first."""
    directory = f"{ROOT}/{topic}-{partition}"
    return [f"{directory}/{name}" for name in fs.listdir(directory) if name.endswith(".log")]


def tree(fs: CrashFS) -> dict[str, bytes]:
    return contents(fs, ROOT)


def killed(world: World, planned: Planned, number: int, fault: Fault = Fault.KILL) -> bool:
    """Run `planned` in a process that dies at its `number`th call; False if it lived."""
    world.fs.fail_at(number, fault)
    try:
        world.run(planned)
    except SimulatedKill:
        world.log = None
        world.fs = world.fs.process()
        return True
    world.fs.heal()
    return False


@pytest.mark.deep
def test_undo_roll_cut() -> None:
    """A segment that an undone commit rolled never comes back, not even by a power cut."""
    number = rounds = 0
    while True:
        number += 1
        world = World.started(number)
        planned = world.plan_commit({ONE: 8, TWO: 1})  # rolls twice
        if not killed(world, planned, number):
            break
        world.open()
        world.model = check(world.opened, world, planned, go_on=False)
        world.run(world.plan_append(ONE, 1))
        world.run(world.plan_append(TWO, 1))
        for seed in range(1 + depth.POWER_CUTS):
            rounds += 1
            judge(world.fs.crash_clone(random.Random(seed)), world, None)
    assert rounds > 16 * (1 + depth.POWER_CUTS)


@pytest.mark.parametrize("which", [0, -1], ids=["closed segment", "active segment"])
@pytest.mark.usefixtures("impatient")
def test_bitflip_below_end(which: int) -> None:
    """Damage below the committed end: named, nothing cut, the other partitions go on."""
    world = World.started()
    world.run(world.plan_append(ONE, 6))
    world.run(world.plan_append(ONE, 1, size=250))
    world.run(world.plan_append(ONE, 2))
    path = segments(world.fs)[which]
    fs = world.fs.crash_clone(mode="all")
    for name in ("recovery-point-offset-checkpoint",):  # scan all, as without a checkpoint
        with contextlib.suppress(FileNotFoundError):
            fs.unlink(f"{ROOT}/{name}")
    with fs.open(path, write=True) as file:
        at = file.size() // 2
        file.pwrite(bytes([file.pread(1, at)[0] ^ 4]), at)
    before = {name: data for name, data in tree(fs).items() if name.startswith(f"{ROOT}/{TOPIC}-")}
    log = open_log(fs, world.clock)
    with pytest.raises(DataCorruptionError) as caught:
        log.append(TOPIC, table([b"x"]), partition=0)
    assert caught.value.path == path
    assert caught.value.first is not None
    assert caught.value.end is not None
    assert caught.value.first < caught.value.end <= world.model.parts[ONE].end
    with pytest.raises(DataCorruptionError) as read:
        view_of(log)
    assert read.value.path == path
    log.append(TOPIC, table([b"x"]), partition=1)
    log.close()
    after = tree(fs)
    for name, data in before.items():
        if name.startswith(f"{ROOT}/{TOPIC}-0/") and name.endswith(".log"):
            assert after[name] == data, f"{name} was changed"


def history_with(world: World, count: int) -> None:
    for _ in range(count):
        key = world.rng.choice((ONE, TWO))
        choice = world.rng.random()
        if choice < 0.5:
            world.run(world.plan_append(key, world.rng.randint(1, 3)))
        elif choice < 0.6:
            world.run(world.plan_append(key, 1, size=250))
        else:
            world.run(world.plan_commit({ONE: 1, TWO: 1}))


@pytest.mark.parametrize("seed", range(40))
def test_flush_none_prefix(seed: int) -> None:
    """flush=none: a power cut takes whole commits off the end, never a part, never the middle."""
    world = World.started(seed, options={"flush": "none"})
    history_with(world, 12)
    for number in range(4):
        fs = world.fs.crash_clone(random.Random(number))
        log = sparklog.open(
            ROOT, "rw", fs=fs, clock=world.clock, options={**OPTIONS, "flush": "none"}
        )
        found = view_of(log)
        assert found == {} or found in world.views, "no prefix of the commits"
        if found:
            log.append(TOPIC, table([b"after"]), partition=0)
            assert view_of(log)[ONE][2][-1] == b"after"
        log.close()
        with open_log(fs, world.clock) as again:
            assert not found or view_of(again)[ONE][1] == found[ONE][1] + 1
    judge(world.fs.kill_clone(), world, None)  # a kill takes nothing


def test_kill_after_ledger_write_then_cut() -> None:
    """A record that only the page cache has is made durable before anybody relies on it."""
    tried = 0
    for number in range(1, 200):
        world = World.started()
        planned = world.plan_commit({ONE: 2, TWO: 2})
        if not killed(world, planned, number):
            break
        world.open()
        known = world.opened.committed(planned.identity)  # type: ignore[arg-type]
        if known is None:
            continue
        tried += 1
        result = world.opened.commit(planned.chunks, identity=planned.identity)
        assert result.replayed
        world.fs = world.fs.crash_clone(mode="strict")
        world.open()
        assert world.opened.committed(planned.identity) is not None  # type: ignore[arg-type]
        assert view_of(world.opened) == planned.after.view()
    assert tried >= 3


SYNCS = {"sync", "sync_dir"}


@pytest.mark.parametrize(
    "stage",
    [pytest.param(False, id="data"), pytest.param(True, id="adopted", marks=pytest.mark.deep)],
)
def test_io_error_at_each_fsync(stage: bool) -> None:
    """A failed fsync fails the commit; the repeated commit is durable without that fsync."""
    failures = 0
    for number in range(1, 100):
        world = World.started()
        planned = world.plan_commit({ONE: 8, TWO: 2}, stage=stage)
        world.fs.fail_at(number, Fault.IO_ERROR, ops=SYNCS)
        try:
            world.run(planned)
        except StorageUnavailableError:
            failures += 1
            world.fs.heal()
            assert view_of(world.opened) == world.model.view()
            for seed in range(depth.POWER_CUTS):  # it may not have happened after all, wholly
                judge(world.fs.crash_clone(random.Random(seed)), world, planned)
            world.run(planned)
        world.settle()
        assert view_of(world.opened) == planned.after.view()
        for seed in range(depth.POWER_CUTS):
            judge(world.fs.crash_clone(random.Random(seed)), world, planned, finished=True)
        judge(world.fs.crash_clone(mode="strict"), world, planned, finished=True)
        if len([call for call in world.fs.calls if call.op in SYNCS]) < number:
            break
    assert failures >= 4


@pytest.mark.deep
def test_io_error_then_kill_in_the_undo() -> None:
    """The undo of a commit whose fsync failed is itself cut, by kill and by power cut."""
    world = World.started()
    first = len(world.fs.calls)
    world.run(world.plan_commit({ONE: 8, TWO: 2}))
    syncs = [call.number - first for call in world.fs.calls[first:] if call.op in SYNCS]
    cuts = 0
    for error_at in syncs:
        for kill_at in range(error_at + 1, error_at + 60, depth.CUT_EVERY):
            world = World.started()
            planned = world.plan_commit({ONE: 8, TWO: 2})
            world.fs.fail_at(error_at, Fault.IO_ERROR)
            world.fs.fail_at(kill_at, Fault.KILL)
            with contextlib.suppress(StorageUnavailableError, SimulatedKill):
                world.run(planned)
            finished = world.model is planned.after
            judge(world.fs.kill_clone(), world, planned, finished=finished)
            for seed in range(min(3, depth.POWER_CUTS)):
                image = world.fs.crash_clone(random.Random(seed))
                judge(image, world, planned, finished=finished)
            if not world.fs.dead:
                break
            cuts += 1
    assert cuts > 20 // depth.CUT_EVERY


def test_two_apps_alternate() -> None:
    """Two applications take turns; no epoch fences either, none is raised."""
    world = World.started()
    epochs = set()
    for _ in range(10):
        world.run(world.plan_open())  # another process, the others stay open
        world.run(world.plan_commit({ONE: 1, TWO: 1}))
    logs = [world.opened, *world.others]
    for number in range(30):
        value = b"turn-%d" % number
        logs[number % len(logs)].append(TOPIC, table([value]), partition=0)
        world.model = world.model.with_values({ONE: [value]})
    for log in logs:
        assert view_of(log) == world.model.view()
    for path in segments(world.fs):
        epochs |= set(scan(read_bytes(world.fs, path), path=path).table["leader_epoch"].tolist())
    assert epochs == {0}


def test_expired_ledger_replay(monkeypatch: pytest.MonkeyPatch) -> None:
    """A writer's last batch is known though the ledger segment that records it is gone."""
    small = property(lambda self: self.log.state.size >= 1500)
    monkeypatch.setattr(LedgerWriter, "wants_snapshot", small)
    world = World.started()
    world.run(world.plan_commit({ONE: 1}, writer="old"))
    batch, fingerprint = world.model.writers["old"]
    for _ in range(30):
        world.run(world.plan_commit({ONE: 1, TWO: 1}))
    directory = f"{ROOT}/__sparklog_commits-0"
    bases = [name for name in world.fs.listdir(directory) if name.endswith(".log")]
    assert len(bases) > 3
    for name in world.fs.listdir(directory):
        if name[:20].isdigit() and name < bases[-1][:20]:
            world.fs.unlink(f"{directory}/{name}")
    world.fs.sync_dir(directory)
    for fs in (world.fs, world.fs.process(), world.fs.crash_clone(mode="strict")):
        log = world.opened if fs is world.fs else open_log(fs, world.clock)
        again = Identity(writer="old", batch=batch, fingerprint=fingerprint)
        chunks = [chunk(TOPIC, 0, [b"never"], world.clock())]
        assert log.commit(chunks, identity=again).replayed
        with pytest.raises(BatchConflictError, match="old"):
            log.commit(chunks, identity=Identity(writer="old", batch=batch, fingerprint="other"))
        assert view_of(log) == world.model.view()


def test_torn_body() -> None:
    """An intent larger than a page is written in part: the header still says IDLE."""
    world = World.started()
    wide = {f"wide{n}": 8 for n in range(8)}
    for topic, partitions in wide.items():
        world.opened.create_topic(topic, partitions=partitions)
        world.model = world.model.with_topic(topic, partitions)
    values = {(t, p): [b"x"] for t, count in wide.items() for p in range(count)}
    chunks = [chunk(t, p, v, world.clock()) for (t, p), v in values.items()]
    identity = Identity(writer="w", batch=9, fingerprint="f")
    after = world.model.with_values(values)
    planned = Planned("wide", after, lambda: None, identity, chunks)
    world.fs.page_bytes = 512
    seen: list[CrashFS] = []

    def cut(call: Call) -> None:
        if call.path.endswith("sparklog.lock"):
            seen.append(world.fs.kill_clone(call))
            assert call.at != 0 or call.size < 512, "a header that a kill can tear"

    world.fs.on_call = cut
    world.opened.commit(chunks, identity=identity)
    world.fs.on_call = None
    bodies = [call for call in world.fs.calls if call.at == 4096]
    assert max(call.size for call in bodies) > 1024, "the body isn't torn at all"
    for fs in seen:
        judge(fs, world, planned)


def test_disk_full_at_each_write() -> None:
    """A full disk fails the call and leaves the log as it was; with room again it goes on."""
    failures = 0
    for number in range(1, 100):
        world = World.started()
        planned = world.plan_commit({ONE: 8, TWO: 2}, stage=number % 2 == 0)
        world.fs.fail_at(number, Fault.NO_SPACE, times=1000)
        try:
            world.run(planned)
        except StorageUnavailableError as error:
            failures += 1
            assert "No space left" in str(error)  # noqa: PT017
            assert view_of(world.opened) == world.model.view()
            judge(world.fs.kill_clone(), world, planned)
            world.fs.heal()
            assert view_of(world.opened) == world.model.view()
            world.run(planned)
            judge(world.fs.crash_clone(random.Random(number)), world, planned, finished=True)
            continue
        world.fs.heal()
        judge(world.fs.crash_clone(random.Random(number)), world, planned, finished=True)
        if number > 40:
            break
    assert failures >= 10


def test_disk_full_is_seen_before_anything_is_touched() -> None:
    world = World.started()
    world.fs.disk.free_bytes = 100
    before = tree(world.fs)
    with pytest.raises(StorageUnavailableError, match="free"):
        world.run(world.plan_commit({ONE: 1, TWO: 1}))
    assert tree(world.fs) == before
    world.fs.disk.free_bytes = 1 << 40
    world.run(world.plan_commit({ONE: 1, TWO: 1}))


@pytest.mark.deep
def test_permission_denied_at_each_call() -> None:
    for number in range(1, 100):
        world = World.started()
        planned = world.plan_commit({ONE: 8, TWO: 2})
        world.fs.fail_at(number, Fault.DENIED)
        try:
            world.run(planned)
        except StorageUnavailableError as error:
            assert "Permission denied" in str(error)  # noqa: PT017
            world.fs.heal()
            assert view_of(world.opened) == world.model.view()
            world.run(planned)
        world.settle()
        assert view_of(world.opened) == planned.after.view()
        judge(world.fs.crash_clone(random.Random(number)), world, planned, finished=True)


def test_live_copy_same_boot() -> None:
    """A copy taken in mid-commit carries our boot id; dev and inode tell that it is a copy."""
    world = World.started()
    planned = world.plan_commit({ONE: 8, TWO: 2})
    images: list[CrashFS] = []
    world.fs.on_call = lambda call: images.append(world.fs.kill_clone())
    world.run(planned)
    world.fs.on_call = None
    images.append(world.fs.kill_clone())
    allowed = world.views[-2:]
    for fs in images:
        copy_tree(fs, ROOT, fs, "/copy")
        original = tree(fs)
        options: dict[str, Any] = {"fs": fs, "clock": world.clock, "options": OPTIONS}
        with sparklog.open("/copy", "rw", **options) as log:
            assert view_of(log) in allowed
            log.append(TOPIC, table([b"to the copy"]), partition=0)
        assert tree(fs) == original, "opening the copy touched the original"
