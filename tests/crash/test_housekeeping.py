"""Housekeeping, crashed at every call: nothing committed is lost, replays are still recognised."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from sparklog.log.commit import Identity
from sparklog.logdir.chunk_files import CHUNK_PREFIX
from sparklog.logdir.home import commits_of
from sparklog.logdir.housekeeping import expire_ledger, prune_snapshots, sweep
from sparklog.logdir.ledger import LedgerWriter, ledger_bases
from sparklog.storage.staging import chunk_label
from tests.crash.explore import Tally, explore
from tests.crash.harness import ROOT, TOPIC, Planned, World, chunk, staged

ONE, TWO = (TOPIC, 0), (TOPIC, 1)
DAY_MS = 24 * 3_600_000


@pytest.fixture(autouse=True)
def small_ledger(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        LedgerWriter, "wants_snapshot", property(lambda x: x.log.state.size >= 1500)
    )


def plan(world: World, name: str, act: Callable[[], object], writer: str) -> Planned:
    """A step that must change nothing that a user sees; a replay of `writer`'s last is one."""
    batch, fingerprint = world.model.writers[writer]
    identity = Identity(writer=writer, batch=batch, fingerprint=fingerprint)
    chunks = [chunk(TOPIC, 0, [b"never"], world.clock())]
    return Planned(name, world.model.copy(), act, identity, chunks)


def grown(days: int) -> World:
    """A log with a commit of writer w a day; `old` made its last at the beginning."""
    world = World.started()
    world.run(world.plan_commit({ONE: 1}, writer="old"))
    for _ in range(days):
        world.clock.advance(DAY_MS)
        world.run(world.plan_commit({ONE: 1, TWO: 1}))
    return world


def test_an_expiry_of_the_ledger_is_cut_anywhere() -> None:
    world, tally = grown(16), Tally()
    before = ledger_bases(world.fs, ROOT)
    assert len(before) >= 4

    def expire() -> None:
        commits = commits_of(world.opened)
        gone = expire_ledger(commits, retention_ms=3 * DAY_MS, now_ms=world.clock())
        assert [s.base for s in gone] == before[: len(gone)]
        assert len(gone) >= 2

    explore(world, plan(world, "expire the ledger", expire, "old"), tally=tally, seeds=3)
    print(tally)
    assert tally.judged > 10
    world.run(world.plan_commit({ONE: 1, TWO: 1}))
    world.run(world.plan_close())
    world.run(world.plan_open())
    assert ledger_bases(world.fs, ROOT)[0] > 0


def test_a_ledger_that_was_cut_in_its_expiry_expires_on() -> None:
    """Whatever a crash left of a segment goes in the next round; then a clean close works."""
    world = grown(16)
    images = []
    world.fs.on_call = lambda call: images.append(world.fs.kill_clone())
    expire_ledger(commits_of(world.opened), retention_ms=0, now_ms=world.clock())
    world.fs.on_call = None
    prune_snapshots(commits_of(world.opened))
    left = sorted(world.fs.listdir(f"{ROOT}/__sparklog_commits-0"))
    assert len(images) > 8
    for fs in images:
        other = World()
        other.fs, other.clock, other.model = fs, world.clock, world.model
        other.open()
        expire_ledger(commits_of(other.opened), retention_ms=0, now_ms=world.clock())
        prune_snapshots(commits_of(other.opened))  # the last of a segment's files to go
        assert set(fs.listdir(f"{ROOT}/__sparklog_commits-0")) == set(left)
        other.opened.close()


def test_pruning_of_snapshots_is_cut_anywhere() -> None:
    world, tally = World.started(), Tally()
    world.run(world.plan_commit({ONE: 1, TWO: 1}, writer="old"))
    world.run(world.plan_close())
    world.run(world.plan_open())
    for _ in range(4):
        world.run(world.plan_commit({ONE: 2, TWO: 2}))

    def prune() -> None:
        assert len(prune_snapshots(commits_of(world.opened))) >= 2

    explore(world, plan(world, "prune snapshots", prune, "old"), tally=tally, seeds=3)
    print(tally)
    assert tally.judged


def test_a_sweep_is_cut_anywhere() -> None:
    world, tally = World.started(), Tally()
    world.run(world.plan_commit({ONE: 1, TWO: 1}, writer="old"))
    for name in (
        f"{chunk_label('old', 0)}-a",
        f"{chunk_label('w', 0)}-b",
        f"{chunk_label('w', 9)}-c",
    ):
        staged(world.fs, chunk(TOPIC, 0, [b"x"], world.clock()), name)
    world.clock.advance(3_600_000)

    def clean() -> None:
        assert len(sweep(commits_of(world.opened), now_ms=world.clock())) == 2

    explore(world, plan(world, "sweep", clean, "old"), tally=tally, seeds=3)
    left = [name for name in world.fs.listdir(ROOT) if name.startswith(CHUNK_PREFIX)]
    assert left == [f"{CHUNK_PREFIX}{chunk_label('w', 9)}-c"]
    assert tally.judged
