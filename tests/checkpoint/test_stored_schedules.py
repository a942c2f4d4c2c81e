"""The tools for checkpoints in runs beside drivers of the query, by random schedules.

Requests are lost, unseen, late and done twice; drivers and tools pause at any request, die, and go
on as zombies. After each effect on the store, the files that a reader would see are compared with
those before: only an entry of the newest run adds files, and only a reset removes batches, from a
certain batch on. So no acknowledged micro-batch is lost, doubled or replaced by another history.
"""

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import pytest

from sparklog.checkpoint import fork, import_, reset, verify
from sparklog.checkpoint.run_writer import RunWriter
from sparklog.checkpoint.stored_runs import HOME, RunFiles, entry_name, run_files
from sparklog.errors import (
    DataCorruptionError,
    InvalidRequestError,
    LogLockedError,
    StorageUnavailableError,
)
from sparklog.testing import FaultStore
from sparklog.testing.scheduled_store import Effect, ScheduledBucket, ScheduledStore
from sparklog.testing.schedules import FaultRates, Process, Schedule
from sparklog.tiered.object_store.store import StoredObject
from tests.checkpoint.simulated_driver import entry_bytes
from tests.checkpoint.test_stored_files import many_batches
from tests.depth import TOOL_SEEDS, TOOL_SEEDS_A_TEST
from tests.diskless.model.virtual import taken_over

URL: Final = "s3://b/checkpoint"
FORK: Final = "s3://b/fork"
KEPT: Final = 6  # batches that a driver keeps
Contents = dict[str, bytes]
RATES: Final = FaultRates(
    writes=0.12, reads=0.01, naps=0.01, kills=0.01, nap_steps=(20, 200), zombie_steps=(0, 50, 200)
)


@dataclass(slots=True)
class Snapshot:
    """The objects of a bucket as they are now, for a reader without faults."""

    objects: dict[str, tuple[bytes, int]]
    url: str = "snapshot://"

    def get(self, name: str, start: int = 0, end: int | None = None, **_: int) -> bytes:
        if name not in self.objects:
            raise FileNotFoundError(2, "there is no such object", name)
        return self.objects[name][0][start:end]

    def get_many(self, names: Sequence[str], *, limit: int) -> list[bytes | Exception]:
        return [
            self.get(n) if n in self.objects else FileNotFoundError(2, "missing", n) for n in names
        ]

    def list(self, prefix: str = "", **_: str) -> list[StoredObject]:
        return [StoredObject(n, len(self.objects[n][0]), 0)
                for n in sorted(self.objects) if n.startswith(prefix)]  # fmt: skip


def seen(bucket: ScheduledBucket) -> Contents | None:
    """Return all files that a reader sees; None without a checkpoint."""
    runs = run_files(Snapshot(bucket.objects))  # type: ignore[arg-type]
    if runs is None:
        return None
    return {listed.name: runs.get(listed.name) for listed in runs.list()}


def truncated(contents: Contents, batch: int) -> Contents:
    """Return what a reset or fork to a batch leaves."""
    return {
        path: data for path, data in contents.items()
        if path == "metadata" or int(path.partition("/")[2]) <= batch
    }  # fmt: skip


def batches_of(contents: Contents, directory: str) -> list[int]:
    """Return the batches with a plan or a commit, ascending."""
    found = re.findall(rf"^{directory}/(\d+)$", "\n".join(contents), re.MULTILINE)
    return sorted(map(int, found))


def base_objects() -> dict[str, tuple[bytes, int]]:
    """Return the objects of a checkpoint in runs with three batches."""
    store = FaultStore()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sparklog.checkpoint.stored_files.open_store", lambda url, options: store)
        many_batches(store, 3)
        import_(URL)
    return {listed.name: (store.get(listed.name), 0) for listed in store.list()}


@dataclass(slots=True)
class World:
    """A checkpoint, its drivers and tools, and what must be true of each effect."""

    schedule: Schedule
    bucket: ScheduledBucket = field(init=False)
    forks: ScheduledBucket = field(init=False)
    history: list[Contents] = field(default_factory=list)
    targets: list[int] = field(default_factory=list)  # batches of all resets that took effect
    acknowledged: int = 0

    def __post_init__(self) -> None:
        self.bucket = ScheduledBucket(self.schedule, url=URL, objects=base_objects())
        self.forks = ScheduledBucket(self.schedule, url=FORK)
        first = seen(self.bucket)
        assert first is not None
        self.history.append(first)
        self.bucket.watch.append(self._check)
        self.forks.watch.append(self._check_fork)

    def store(self, url: str, options: object) -> ScheduledStore:
        process = self.schedule.running
        assert process is not None
        return (self.forks if url == FORK else self.bucket).store(process)

    @property
    def now(self) -> Contents:
        return self.history[-1]

    def _check(self, effect: Effect) -> None:
        before, after = self.now, seen(self.bucket)
        assert after is not None
        if after == before:
            return
        self.history.append(after)
        header = header_of(effect)
        kind = header["kind"]
        if kind == "files":
            changed = {p for p in before.keys() | after.keys() if before.get(p) != after.get(p)}
            assert not {p for p in changed if p in before and p in after}, f"replaced: {changed}"
            return
        assert kind == "begin", header
        assert "reset" in header["owner"]["application"], f"a {kind} changed the files"
        target = max(batches_of(after, "commits"))
        assert after == truncated(before, target), "a reset to no batch"
        self.targets.append(target)

    def _check_fork(self, effect: Effect) -> None:
        if effect.name == HOME:
            made = seen(self.forks)
            assert made
            target = max(batches_of(made, "commits"))
            assert any(made == truncated(old, target) for old in self.history), "a mixed fork"

    # -- the driver --------------------------------------------------------------------------------

    def driver(self, process: Process) -> None:
        """Begin runs and write batches, until another one does."""
        store = self.bucket.store(process)
        while True:
            try:
                self._drive(process, store)
            # A missing file: a later run deleted it since the listing.
            except (LogLockedError, StorageUnavailableError, FileNotFoundError):
                process.idle(5)

    def _drive(self, process: Process, store: ScheduledStore) -> None:
        runs = run_files(store)
        assert runs is not None
        files = begun(runs, process)
        run, number = runs_end(runs), 1
        for _ in range(self.schedule.rng.randrange(1, 12)):
            what = self.schedule.rng.random()
            if what < 0.7:
                changes = next_changes(files, process)
                name = entry_name(f"sparklog/{runs.id}", run, number)
                patient = self.schedule.chance(0.9)
                if not written(store, name, entry_bytes("files", run, number, changes), patient):
                    return  # another driver, or a tool
                self._acknowledge(runs.id, run, number)
                for path, data in changes.items():
                    if data is None:
                        del files[path]
                    else:
                        files[path] = data
                number += 1
            elif what < 0.85:
                deleted(store, runs.id, run)
            else:
                return

    def _acknowledge(self, checkpoint_id: str, run: int, number: int) -> None:
        """Check that an entry counts that was told to be written."""
        for before in range(1, number):
            name = entry_name(f"sparklog/{checkpoint_id}", run, before)
            if name in self.bucket.objects:
                header = header_of(Effect("create", name, None, self.bucket.objects[name][0]))
                assert header["kind"] != "seal", f"{name} seals a run that goes on"
        self.acknowledged += 1

    # -- tools -------------------------------------------------------------------------------------

    def tool(self, change: Callable[["World", Process], None]) -> Callable[[Process], None]:
        """Return the role that calls a tool again and again."""

        def run(process: Process) -> None:
            while True:
                process.idle(self.schedule.rng.choice((20, 60, 200)))
                try:
                    change(self, process)
                except (LogLockedError, StorageUnavailableError, InvalidRequestError):
                    continue

        run.__name__ = change.__name__
        return run


def header_of(effect: Effect) -> dict[str, Any]:
    """Return the header of an entry."""
    assert effect.after is not None, effect.name
    text = effect.after.decode(errors="replace")
    header, _ = json.JSONDecoder().raw_decode(text, text.index('{"kind"'))
    return dict(header)


def begun(runs: RunFiles, process: Process) -> Contents:
    """Begin a run as a driver does, with the contents of all files in its index."""
    listed = runs.list()
    files = {each.name: runs.get(each.name) for each in listed}
    writer = RunWriter(runs.store, runs.id, runs.end, "driver", process.clock)
    for path, data in files.items():
        writer.add(path, data, process.clock())
    writer.publish()
    runs.end = None if runs.end is None else type(runs.end)(writer.run, 1, is_sealed=False)
    return files


def runs_end(runs: RunFiles) -> int:
    assert runs.end is not None
    return runs.end.run


def next_changes(files: Contents, process: Process) -> dict[str, bytes | None]:
    """Return the next plan or commit, and what is removed with it."""
    plans, commits = batches_of(files, "offsets"), batches_of(files, "commits")
    batch, tag = plans[-1], process.rng.getrandbits(64)
    if batch not in commits:
        done = f'v1\n{{"nextBatchWatermarkMs":0,"of":{tag}}}'
        return {f"commits/{batch}": done.encode()}
    batch += 1
    plan = f'v1\n{{"batchWatermarkMs":0,"batchTimestampMs":{batch + 1},"conf":{{}}}}\n{tag}'
    gone = [f"{name}/{old}" for name in ("offsets", "commits") for old in plans[:-KEPT]]
    return {f"offsets/{batch}": plan.encode(), **dict.fromkeys(g for g in gone if g in files)}


def written(store: ScheduledStore, name: str, data: bytes, patient: bool) -> bool:
    """Create an entry, until it is known whose it is. False: another's."""
    while True:
        try:
            return store.create(name, data) or store.get(name) == data
        except StorageUnavailableError:
            if not patient:
                raise


def deleted(store: ScheduledStore, checkpoint_id: str, run: int) -> None:
    """Delete what older runs have left, except for first entries and seals."""
    directory = f"sparklog/{checkpoint_id}/"
    names = [listed.name.removeprefix(directory) for listed in store.list(directory)]
    entries = [match for name in names if (match := re.fullmatch(r"run-(\d+)/(\d+)", name))]
    ends = {match[1]: match[2] for match in entries}
    old = [m[0] for m in entries if int(m[1]) < run and int(m[2]) and ends[m[1]] != m[2]]
    old += [n for n in names if (m := re.match(r"(?:index|pack)-(\d+)", n)) and int(m[1]) < run]
    store.delete([directory + name for name in old])


def resetting(world: World, process: Process) -> None:
    """Go back some batches."""
    began = len(world.history) - 1
    target = world.schedule.rng.choice(batches_of(world.now, "commits")[-3:])
    reset(URL, to=target, sink="other", clock=process.clock)
    assert any(batches_of(each, "offsets")[-1] == target for each in world.history[began:])


def repairing(world: World, process: Process) -> None:
    """Repair what is not damaged."""
    try:
        report = verify(URL, repair=True)
    except DataCorruptionError as error:
        raise AssertionError("a sound checkpoint is reported as damaged") from error
    assert not [finding for finding in report.findings if finding.repaired]


def forking(world: World, process: Process) -> None:
    """Make a fork, at the place of interrupted ones."""
    target = batches_of(world.now, "commits")[-2:][0]
    if HOME not in world.forks.objects:
        fork(URL, FORK, to=target, sink="other", clock=process.clock)


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    monkeypatch.setattr("sparklog.checkpoint.running_query.QUIET_MS", 0)
    return monkeypatch


def play(seed: int, patch: pytest.MonkeyPatch) -> World:
    """Run a schedule, and then everything that is still under way."""
    schedule = Schedule(seed, RATES)
    world = World(schedule)
    for module in ("stored_files", "stored_copies"):
        patch.setattr(f"sparklog.checkpoint.{module}.open_store", world.store)
    schedule.spawn(world.driver)
    schedule.spawn(world.driver)
    for change in (resetting, repairing, forking):
        schedule.spawn(world.tool(change))
    try:
        with taken_over(schedule):
            schedule.run(schedule.rng.randrange(200, 1500))
            schedule.clear()
            for bucket in (world.bucket, world.forks):
                bucket.land()
    except Exception as error:
        error.add_note(f"seed {seed}\n{world.bucket.format_trace(60)}")
        raise
    return world


@pytest.mark.parametrize("first", range(0, TOOL_SEEDS, TOOL_SEEDS_A_TEST))
def test_schedules(first: int, quick: pytest.MonkeyPatch) -> None:
    """No batch is lost, doubled or of another history; a change is made completely, or not."""
    worlds = [play(seed, quick) for seed in range(first, first + TOOL_SEEDS_A_TEST)]
    assert sum(world.acknowledged for world in worlds) > 5 * TOOL_SEEDS_A_TEST
    assert sum(len(world.targets) for world in worlds) > 0
    assert any(HOME in world.forks.objects for world in worlds)
