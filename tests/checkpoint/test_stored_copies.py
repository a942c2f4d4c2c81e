"""Checkpoints in runs that Python writes: forks, resets, imports and exports in a bucket."""

import importlib
import itertools
import json
import re
import uuid
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import sparklog
from sparklog.checkpoint import (
    CheckpointKind,
    archive,
    export,
    fork,
    history,
    import_,
    list_points,
    reset,
    restore,
    run_writer,
    stored_copies,
    verify,
)
from sparklog.checkpoint.files import Checkpoint
from sparklog.checkpoint.log_backed.metadata_marker import MARKER_OF_RUNS, MARKER_START
from sparklog.checkpoint.stored_runs import HOME, RunFiles, run_files
from sparklog.checkpoint.truncation import Truncation
from sparklog.cli.app import run
from sparklog.clock import ManualClock, system_clock
from sparklog.errors import (
    DataCorruptionError,
    InvalidRequestError,
    LogLockedError,
    StorageUnavailableError,
)
from sparklog.fs import LOCAL
from sparklog.state.plain_copy import edit_metadata_log, plain_fork
from sparklog.testing import Faults, FaultStore
from sparklog.testing.faults import SimulatedKill
from sparklog.testing.faultstore import Bucket
from sparklog.tiered import open_store
from tests.checkpoint.conftest import Golden
from tests.checkpoint.shared_disk import Shared
from tests.checkpoint.simulated_driver import add_entries, listed_runs
from tests.checkpoint.test_stored_files import (
    COPIED,
    Keep,
    keep,
    kept,
    many_batches,
    put_all,
    shown,
)
from tests.checkpoint.views import commit, read
from tests.depth import by_depth
from tests.jvm.conftest import probe
from tests.jvm.probe import Probe, pack, unpack

__all__ = ["keep", "kept", "probe"]

_SCHEMAS = re.compile(rb'"[^"]*(/state/[0-9]+/_stateSchema)')


@pytest.fixture(autouse=True)
def long_ago(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was uploaded a moment ago is no batch in progress."""
    monkeypatch.setattr("sparklog.checkpoint.running_query.QUIET_MS", 0)


def new_url() -> str:
    return f"memory://{uuid.uuid4().hex}/copy"


def newest(path: str | Path) -> int:
    """The newest batch to which a query can go back."""
    return max(row.batch for row in history(path).batches if row.obstacle is None)


def content(path: str | Path) -> dict[str, bytes]:
    """Every path and its content, without the place of the checkpoint and Hadoop's checksums."""
    checkpoint = Checkpoint.open(path, storage_options={})
    return {
        name: _SCHEMAS.sub(rb'"\1', checkpoint.read(name)) for name in checkpoint.paths()
    }


@pytest.mark.parametrize("name", ["hdfs", "processed"])
def test_a_log_backed_checkpoint_on_a_shared_disk(
    name: str, golden: Golden, tmp_path: Path
) -> None:
    """It is kept in runs there, as the manager would; files of Spark stay files."""
    path, shared = golden(name), Shared()
    batch = newest(path)
    done = fork(path, tmp_path / "files", to=batch, fs=shared)
    assert history(done.new_path).kind is CheckpointKind.FILES
    import_(path)
    expected = content(path)
    points = f"memory://{uuid.uuid4().hex}/points"
    archive(path, points)
    done = fork(path, tmp_path / "fork", to=batch, fs=shared)
    assert done.new_path == str(tmp_path / "fork")
    restored = restore(points, tmp_path / "restored", fs=shared)
    for each in (done.new_path, restored.path):
        assert history(each).kind is CheckpointKind.IN_RUNS
        assert verify(each).ok
        assert content(each).keys() <= expected.keys()
        assert newest(each) == batch
        schemas = [data for data in content(each).values() if b"_stateSchema/" in data]
        assert (name == "processed") == bool(schemas)


@pytest.mark.parametrize("name", COPIED)
def test_forks_between_homes(name: str, golden: Golden, tmp_path: Path, probe: Probe) -> None:
    """From files, records and runs to a bucket and back, each fork is the same."""
    path, url, again, back = golden(name), new_url(), new_url(), tmp_path / "back"
    batch = newest(path)
    fork(path, tmp_path / "expected", to=batch)
    done = fork(path, url, to=batch)
    assert (done.new_path, done.linked_files) == (url, 0)
    copy = Checkpoint.open(url, storage_options={})
    assert done.copied_bytes == sum(len(copy.read(file)) for file in copy.paths())
    fork(url, again, to=batch)
    fork(again, back, to=batch)
    expected = content(tmp_path / "expected")
    assert content(url) == content(again) == content(back) == expected
    assert verify(url).ok
    times = {row.batch: row.committed_ms for row in history(path).batches}
    assert history(url).batches[-1].committed_ms == times[batch]
    import_(path)
    from_records = new_url()
    fork(path, from_records, to=batch)
    assert content(from_records) == expected
    assert open_store(url).get("metadata") == MARKER_OF_RUNS


@pytest.mark.parametrize("name", ["hdfs", "ids", "join"])
def test_the_manager_reads_a_fork(
    name: str, golden: Golden, tmp_path: Path, probe: Probe, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The code of the driver finds the files, begins a run and ends it. Python reads that again."""
    monkeypatch.setattr(run_writer, "INDEX_BYTES", 2_000)
    monkeypatch.setattr(run_writer, "PACK_BYTES", 3_000)
    path, url = golden(name), new_url()
    fork(path, url, to=newest(path))
    reset(url, to=newest(url) - 1)
    expected, store, directory = content(url), open_store(url), tmp_path / "objects"
    assert any("/pack-" in listed.name for listed in store.list())
    for listed in store.list():
        target = directory / listed.name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(store.get(listed.name))
    fields = list(unpack(probe.call("files of runs", pack([str(directory).encode()]))))
    files = dict(zip(map(bytes.decode, fields[::2]), fields[1::2], strict=True))
    assert {path: _SCHEMAS.sub(rb'"\1', data) for path, data in files.items()} == expected
    other = f"memory://{uuid.uuid4().hex}/copy"
    put_all(open_store(other), directory)
    assert content(other) == expected
    assert run_ends(other) == (2, 1)


def run_ends(url: str) -> tuple[int, int] | None:
    """The newest run, and the number of its next entry."""
    end = listed_runs(open_store(url)).end
    return None if end is None else (end.run, end.number)


@pytest.mark.parametrize("name", ["hdfs", "ids", "join"])
def test_a_reset(name: str, golden: Golden, kept: Keep, tmp_path: Path) -> None:
    path = golden(name)
    url = kept(path)
    batch = newest(path) - 1
    if run_files(open_store(url)) is None:
        assert run(["checkpoint", "import", url]) == 0
    before = content(url)
    plan = reset(url, to=batch, dry_run=True)
    assert content(url) == before
    done = reset(url, to=batch)
    assert (done.path, done.batches, done.files) == (url, plan.batches, plan.files)
    fork(path, tmp_path / "expected", to=batch)
    assert content(url) == content(tmp_path / "expected")
    assert verify(url).ok
    assert shown(url) == shown(tmp_path / "expected")


def test_a_reset_with_its_log(
    golden: Golden, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The log takes the batches again, also if the reset was interrupted after the checkpoint."""

    def lost(*given: Any, **named: Any) -> None:
        raise InvalidRequestError("lost")

    path, url, log_dir = golden("stateless"), new_url(), tmp_path / "log"
    last = newest(path)
    fork(path, url, to=last)
    writer = history(url).query_id
    assert writer is not None
    with sparklog.open(log_dir, "rw") as log:
        log.create_topic("t")
        for batch in range(last + 1):
            commit(log, writer, batch)
    with pytest.raises(InvalidRequestError, match="has no commits of the writer"):
        reset(url, to=last - 2, log=log_dir, writer="another")
    assert reset(url, to=last - 1, log=log_dir).log == str(log_dir)
    with sparklog.open(log_dir, "rw") as log:
        assert not commit(log, writer, last, "again").replayed
    with monkeypatch.context() as patch:
        patch.setattr(stored_copies, "reset_sink", lost)
        with pytest.raises(InvalidRequestError, match="lost"):
            reset(url, to=last - 2, log=log_dir)
    assert history(url).batches[-1].batch == last - 2  # the checkpoint went back, the log waits
    assert Checkpoint.open(url, storage_options={}).exists("sparklog.reset")
    reset(url, to=last - 2, sink="other")
    with sparklog.open(log_dir, "rw") as log:
        assert not commit(log, writer, last - 1, "again").replayed
        assert len(read(log)) == 3 * (last + 3)  # two batches came again
    assert not Checkpoint.open(url, storage_options={}).exists("sparklog.reset")


@pytest.mark.parametrize("name", COPIED)
def test_import_and_export(name: str, golden: Golden, keep: Keep) -> None:
    path = golden(name)
    expected, rows = content(path), shown(path)
    url = keep(path)
    store = open_store(url)
    done = import_(url)
    assert (done.path, done.files) == (url, len(expected))
    assert done.bytes >= sum(map(len, expected.values()))
    assert content(url) == expected
    assert (shown(url), verify(url).ok) == (rows, verify(path).ok)
    assert store.get("metadata") == MARKER_OF_RUNS
    assert {n.name.partition("/")[0] for n in store.list()} == {"metadata", "sparklog"}
    assert import_(url).files == 0
    again = export(url)
    assert again.files == len(expected)
    assert content(url) == expected
    assert verify(url).ok == verify(path).ok
    assert store.get("metadata") == (path / "metadata").read_bytes()
    assert not [n for n in store.list() if n.name.startswith("sparklog/")]
    assert export(url).files == 0


def test_archives_and_restores(golden: Golden, tmp_path: Path) -> None:
    path, url, repository = golden("ids"), new_url(), new_url()
    restored = new_url()
    fork(path, url, to=newest(path))
    assert archive(url, repository).batch == newest(path)
    assert [point.batch for point in list_points(repository)] == [newest(path)]
    assert restore(repository, restored).path == restored
    assert content(restored) == content(url)
    with pytest.raises(InvalidRequestError, match="exists already: choose a new location"):
        restore(repository, restored)
    log_dir = tmp_path / "log"
    writer = history(url).query_id
    assert writer is not None
    with sparklog.open(log_dir, "rw") as log:
        log.create_topic("t")
        for batch in range(newest(path) + 1):
            commit(log, writer, batch)
    archive(url, repository, log=log_dir)
    both = new_url()
    restore(repository, both, log=tmp_path / "restored-log")
    assert content(both) == content(url)
    with sparklog.open(tmp_path / "restored-log", "rw") as log:
        assert len(read(log)) == 3 * (newest(path) + 1)
        assert commit(log, writer, newest(path)).replayed


def test_a_place_that_is_taken(golden: Golden) -> None:
    path = golden("stateless")
    batch = newest(path)
    for objects in ({"offsets/0": b""}, {"metadata": b"{}"}, {"table/part-0": b"rows"}):
        url = new_url()
        for name, data in objects.items():
            open_store(url).put(name, data)
        with pytest.raises(InvalidRequestError, match="exists already: choose a new location"):
            fork(path, url, to=batch)
        assert {n.name: open_store(url).get(n.name) for n in open_store(url).list()} == objects
    url = new_url()  # as the message advises
    fork(path, url, to=batch)
    for target in (url, f"{url}/inside"):
        with pytest.raises(InvalidRequestError, match=r"exists already|overlap"):
            fork(url, target, to=batch)


def test_the_urls_of_spark() -> None:
    for url, expected in (
        ("s3://bucket/a", "sparklog-s3a://bucket/a"), ("gcs://b/a", "sparklog-gs://b/a"),
        ("hdfs://host:8020/a", "sparklog-hdfs://host:8020/a"),
        ("abfss://c@x.dfs.core.windows.net/a", "sparklog-abfss://c@x.dfs.core.windows.net/a"),
        ("file:///mnt/a", "sparklog-file:///mnt/a"),
    ):  # fmt: skip
        assert stored_copies.spark_url(url) == expected
    assert stored_copies.spark_url("az://c@x.dfs.core.windows.net/a").startswith("sparklog-abfss:")
    for url in ("webhdfs://host:9870/a", "abfs://container/a", "hdfs:///a"):
        with pytest.raises(InvalidRequestError, match="Spark uses another URL of this place"):
            stored_copies.spark_url(url)


# -- with interruptions ------------------------------------------------------------------------


@pytest.fixture
def place(store: FaultStore, monkeypatch: pytest.MonkeyPatch) -> FaultStore:
    use(monkeypatch, store)
    return store


def use(
    monkeypatch: pytest.MonkeyPatch,
    store: FaultStore,
    points: Callable[[str], FaultStore] | None = None,
) -> FaultStore:
    """Open this store for every URL, or for every URL that is no restore point."""

    def opened(url: str, options: object) -> FaultStore:
        return store if points is None or ".restore-point-" not in url else points(url)

    for module in ("sparklog.checkpoint.stored_files", "sparklog.checkpoint.stored_copies"):
        monkeypatch.setattr(f"{module}.open_store", opened)
    return store


URL = "s3://b/checkpoint"
Change = tuple[Callable[[FaultStore, Path], None], Callable[[Path], object]]


def as_files(store: FaultStore, path: Path) -> None:
    put_all(store, path)


def in_runs(store: FaultStore, path: Path) -> None:
    fork(path, URL, to=newest(path))


CHANGES: dict[str, Change] = {
    "fork": (lambda store, path: None, lambda path: fork(path, URL, to=newest(path))),
    "reset": (in_runs, lambda path: reset(URL, to=newest(path) - 2)),
    "import": (as_files, lambda path: import_(URL)),
    "export": (in_runs, lambda path: export(URL)),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_that_is_killed(
    change: str, golden: Golden, place: FaultStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The checkpoint is the old or the new one, and the same call again does the rest."""
    path = golden("stateless")
    prepare, apply = CHANGES[change]

    def reopened(store: FaultStore) -> FaultStore:
        return use(monkeypatch, store.reopen())

    def state() -> Any:
        try:
            return content(URL)
        except (InvalidRequestError, DataCorruptionError):
            return None

    store = FaultStore()
    reopened(store)
    prepare(store, path)
    before = state()
    apply(path)
    after = state()
    assert change in ("import", "export") or after != before
    seen = []
    for number, is_after in itertools.product(range(1, 100), (False, True)):
        store = FaultStore()
        reopened(store)
        prepare(store, path)
        crashing = reopened(store)
        crashing.crash_at(number, after=is_after)
        try:
            apply(path)
            break
        except SimulatedKill:
            reopened(crashing)
        found = state()
        assert found in (before, after), number
        assert found is not None or change == "fork"
        seen.append(found == after)
        if change == "fork" and found == after:
            with pytest.raises(InvalidRequestError, match="exists already"):
                apply(path)
        else:
            apply(path)
        assert state() == after, number
        left = {n.name for n in crashing.reopen().list()}
        assert change != "export" or not any(name.startswith("sparklog/") for name in left)
        ids = {name.split("/")[1] for name in left if name.startswith("sparklog/")} - {"home"}
        assert len(ids) <= 1, number
    assert len(seen) > 4
    assert change in ("import", "export") or {True, False} == set(seen)


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_through_a_bad_network(
    change: str, golden: Golden, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Lost requests and answers: the change is made once, or fails and can be repeated."""
    path = golden("stateless")
    prepare, apply = CHANGES[change]
    outcomes = set()

    for seed in range(by_depth(small=16, ci=30, all=1000)):
        good = FaultStore(seed=seed)
        use(monkeypatch, good)
        prepare(good, path)
        faults = Faults(lost=0.1, busy=0.1, again=0.05, reset=0.05, late=0.05, late_ms=2_000)
        bad = FaultStore(good.bucket, seed=seed, faults=faults)
        use(monkeypatch, bad)
        try:
            apply(path)
            outcomes.add("done")
        except (StorageUnavailableError, LogLockedError):
            outcomes.add("failed")
            use(monkeypatch, FaultStore(good.bucket))
            apply(path)
        bad.clock.advance(2_000)  # what is late arrives now
        use(monkeypatch, FaultStore(good.bucket, bad.clock))
        expected = newest(path) - (2 if change == "reset" else 0)
        assert newest(URL) == expected, seed
    assert "done" in outcomes


class InPlace:
    """A checkpoint in runs whose newest plan is changed in place, and its restore points."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, path: Path) -> None:
        self.monkeypatch, self.store = monkeypatch, FaultStore()
        self.points: dict[str, FaultStore] = {}
        self.use(self.store)
        in_runs(self.store, path)
        self.before = content(URL)

    def use(self, store: FaultStore, new_point: Callable[[], FaultStore] = FaultStore) -> None:
        use(self.monkeypatch, store, lambda url: self.points.setdefault(url, new_point()))

    def reopen(self) -> None:
        self.points = {url: store.reopen() for url, store in self.points.items()}
        self.use(self.store.reopen())

    def apply(self) -> None:
        change = plain_fork(
            URL, None, to=None, in_place=True, scratch=None, storage_options={}, fs=LOCAL,
            clock=system_clock,
        )  # fmt: skip
        with change as (_, batch, copy):
            edit_metadata_log(
                copy.checkpoint,
                f"offsets/{batch}",
                lambda plan: plan._replace(metadata={**plan.metadata, "conf": {"changed": "1"}}),
            )
            copy.publish()

    def check(self, where: object) -> bool:
        """Check that all is old, or all new with a restore point; return whether it is new."""
        found, plan = content(URL), f"offsets/{newest(URL)}"
        is_new = found != self.before
        assert found == {**self.before, plan: found[plan]}, where
        assert is_new == (b'"changed":"1"' in found[plan]), where
        kept = [url for url, store in self.points.items() if HOME in store.bucket.names()]
        assert all(content(url) == self.before for url in kept), where
        assert kept or not is_new, where
        return is_new


@pytest.mark.parametrize("killed", ["the checkpoint", "the restore point"])
def test_a_change_in_place_that_is_killed(
    killed: str, golden: Golden, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The checkpoint is the old or the new one, which has a restore point; a retry succeeds."""
    path, seen = golden("stateless"), []
    for number, is_after in itertools.product(range(1, 100), (False, True)):
        one = InPlace(monkeypatch, path)

        def crashing(bucket: Bucket | None = None, at: Any = (number, is_after)) -> FaultStore:
            store = FaultStore(bucket)
            store.crash_at(at[0], after=at[1])
            return store

        if killed == "the checkpoint":
            one.use(crashing(one.store.bucket))
        else:
            one.use(one.store, crashing)
        try:
            one.apply()
            break
        except SimulatedKill:
            one.reopen()
        seen.append(one.check((number, is_after)))
        if not seen[-1]:
            one.apply()
        assert one.check((number, is_after))
    assert len(seen) > 4
    assert False in seen
    assert (True in seen) == (killed == "the checkpoint")


def test_a_change_in_place_through_a_bad_network(
    golden: Golden, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, outcomes = golden("stateless"), set()
    faults = Faults(lost=0.1, busy=0.1, again=0.05, reset=0.05, late=0.05, late_ms=2_000)
    for seed in range(by_depth(small=16, ci=20, all=1000)):
        one, clock = InPlace(monkeypatch, path), ManualClock()
        bad = partial(FaultStore, clock=clock, seed=seed, faults=faults, attempts=2)
        one.use(bad(one.store.bucket), bad)
        try:
            one.apply()
            outcomes.add("done")
        except (StorageUnavailableError, LogLockedError):
            outcomes.add("failed")
        clock.advance(2_000)  # what is late arrives now
        one.reopen()
        if not one.check(seed):
            one.apply()
        assert one.check(seed)
    assert outcomes == {"done", "failed"}


# -- with a query that runs --------------------------------------------------------------------


def test_a_query_that_writes_meanwhile(
    golden: Golden, place: FaultStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An entry that the query adds after the reset has read the checkpoint is kept."""
    path = golden("stateless")
    in_runs(place, path)
    before = content(URL)
    files = listed_runs(place)
    other = run_writer.RunWriter(place, files.id, files.end, "another", lambda: 1)
    module = importlib.import_module("sparklog.checkpoint.reset")
    plan = module.plan_truncation

    def planned(*given: Any, **named: Any) -> Truncation:
        other.seal()
        return plan(*given, **named)  # type: ignore[no-any-return]

    monkeypatch.setattr(module, "plan_truncation", planned)
    with pytest.raises(LogLockedError, match="stop the query, and try again"):
        reset(URL, to=newest(path) - 2)
    assert content(URL) == before
    monkeypatch.setattr(module, "plan_truncation", plan)
    reset(URL, to=newest(path) - 2)
    assert newest(URL) == newest(path) - 2


def test_a_batch_in_progress(place: FaultStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """The newest batch began a moment ago, and is not committed."""
    monkeypatch.setattr("sparklog.checkpoint.running_query.QUIET_MS", 10_000)
    many_batches(place, 4)
    place.delete(["commits/3"])
    place.put("offsets/3", place.get("offsets/3"))
    at = max(listed.time_ms for listed in place.list())
    with pytest.raises(LogLockedError, match="began"):
        import_(URL, clock=lambda: at + 1_000)
    import_(URL, clock=lambda: at + 20_000)
    assert [row.batch for row in history(URL).batches] == [0, 1, 2, 3]


def with_two_histories(golden: Golden, place: FaultStore) -> int:
    """A session without the manager wrote a plan beside the runs. Return the runs' last batch."""
    path = golden("stateless")
    put_all(place, path)
    import_(URL)
    last = newest(path)
    place.put("metadata", (path / "metadata").read_bytes())
    place.put(f"offsets/{last + 7}", b"")
    return last


def test_two_histories(golden: Golden, place: FaultStore) -> None:
    """A session without the manager ran on between the steps of an import."""
    last = with_two_histories(golden, place)
    before = content(URL)
    for change in (import_, export):
        with pytest.raises(DataCorruptionError, match="two histories") as error:
            change(URL)
        assert error.value.path == f"{place.url}/offsets/{last + 7}"
    assert content(URL) == before
    place.delete([f"offsets/{last + 7}"])  # as the message advises
    import_(URL)
    assert place.get("metadata").startswith(MARKER_START)


@pytest.mark.parametrize("conversion", ["import", "export"])
def test_a_reset_after_a_killed_conversion(
    conversion: str, golden: Golden, place: FaultStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The files beside the runs are no second history, though they have later batches."""
    path = golden("stateless")
    prepare, apply = CHANGES[conversion]
    wanted, seen = newest(path) - 2, 0
    for number in range(1, 100):
        store = FaultStore()
        use(monkeypatch, store)
        prepare(store, path)
        crashing = store.reopen()
        use(monkeypatch, crashing)
        crashing.crash_at(number, after=True)
        try:
            apply(path)
            break
        except SimulatedKill:
            left = crashing.reopen()
            use(monkeypatch, left)
        if run_files(left) is None:
            continue
        seen += left.get("metadata").startswith(b"{")
        reset(URL, to=wanted)
        assert newest(URL) == wanted
        expected = content(URL)
        for change in (import_, export, import_):
            change(URL)
            assert content(URL) == expected, number
    assert seen


def test_a_reset_does_not_hide_two_histories(golden: Golden, place: FaultStore) -> None:
    """A session without the manager ran on between the steps of an import."""
    last = with_two_histories(golden, place)
    before = content(URL)
    with pytest.raises(DataCorruptionError, match="two histories"):
        reset(URL, to=last - 2)
    assert content(URL) == before
    assert place.get(f"offsets/{last + 7}") == b""


def test_a_query_that_runs_on_during_an_import(
    golden: Golden, place: FaultStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = golden("stateless")
    put_all(place, path)
    before, last = content(URL), newest(path)
    write = stored_copies.CopyInRuns.write

    def writing(*given: Any) -> int:
        place.put(f"offsets/{last + 5}", place.get(f"offsets/{last}"))
        return write(*given)

    with monkeypatch.context() as patch, pytest.raises(LogLockedError, match="stop it before the"):
        patch.setattr(stored_copies.CopyInRuns, "write", writing)
        import_(URL)
    place.delete([f"offsets/{last + 5}"])
    assert content(URL) == before
    assert run_files(place) is None
    import_(URL)
    assert content(URL) == before


def test_a_query_that_plans_after_the_check_of_an_import(
    golden: Golden, place: FaultStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its plan is no file that the import has read, so it is not deleted."""
    path = golden("stateless")
    put_all(place, path)
    plan = f"offsets/{newest(path) + 5}"
    create = stored_copies.CopyInRuns.create_home

    def creating(self: stored_copies.CopyInRuns) -> None:
        create(self)
        place.put(plan, b"later")

    monkeypatch.setattr(stored_copies.CopyInRuns, "create_home", creating)
    import_(URL)
    assert place.get(plan) == b"later"
    with pytest.raises(DataCorruptionError, match="two histories"):
        place.put("metadata", (path / "metadata").read_bytes())
        export(URL)


@pytest.mark.parametrize("moment", ["a file is read", "HOME is deleted"])
def test_a_query_that_starts_during_an_export(
    golden: Golden, place: FaultStore, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    """Its batches are in runs only, which therefore stay."""
    path = golden("stateless")
    in_runs(place, path)
    last, read_it, delete_it = newest(path), Checkpoint.read, FaultStore.delete
    before = content(URL)

    def start() -> None:
        add_entries(place, {f"offsets/{last + 1}": before[f"offsets/{last}"]})

    def reading(self: Checkpoint, name: str) -> bytes:
        if moment == "a file is read" and name == f"commits/{last}":
            start()
        return read_it(self, name)

    def deleting(self: FaultStore, names: Sequence[str]) -> None:
        if list(names) == [HOME]:
            assert moment == "HOME is deleted"
            start()
        delete_it(self, names)

    with monkeypatch.context() as patch:
        patch.setattr(Checkpoint, "read", reading)
        patch.setattr(FaultStore, "delete", deleting)
        with pytest.raises(LogLockedError, match="the query was started during the export"):
            export(URL)
    assert place.get("metadata") == MARKER_OF_RUNS
    assert {n.name.partition("/")[0] for n in place.list()} == {"metadata", "sparklog"}
    expected = {**before, f"offsets/{last + 1}": before[f"offsets/{last}"]}
    assert content(URL) == expected
    export(URL)  # as the message advises
    assert content(URL) == expected
    assert place.get("metadata") == (path / "metadata").read_bytes()


def test_a_reset_is_completed_after_the_seal(
    golden: Golden, place: FaultStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A query that has begun cannot write any more when its log is reset. A fork resets nothing."""
    path = golden("stateless")
    in_runs(place, path)
    note = json.dumps({"log": "/nowhere", "writer": "w", "batch": 1, "time": 1}).encode()
    add_entries(place, {"sparklog.reset": note})
    seen = []

    def resetting(*given: Any, **named: Any) -> None:
        end = listed_runs(place).end
        assert end is not None
        seen.append(end.is_sealed)

    monkeypatch.setattr(stored_copies, "reset_sink", resetting)
    fork(URL, tmp_of(path), to=newest(path))
    assert seen == []
    reset(URL, to=newest(path) - 2)
    assert seen == [True]
    assert place.get("metadata") == MARKER_OF_RUNS


def tmp_of(path: Path) -> Path:
    return path.with_name("fork")


def test_a_lost_home(golden: Golden, place: FaultStore) -> None:
    """Nothing is read or begun anew until the object is restored, as the message advises."""
    path = golden("stateless")
    in_runs(place, path)
    before, home = content(URL), place.get(HOME)
    place.delete([HOME])
    for read_it in (history, export, import_):
        with pytest.raises(DataCorruptionError, match="its object sparklog/home is missing"):
            read_it(URL)
    place.put(HOME, home)
    assert content(URL) == before


def test_a_large_checkpoint(golden: Golden, place: FaultStore, monkeypatch: Any) -> None:
    """What does not fit into the index is in packs, which a later fork reads by ranges."""
    monkeypatch.setattr(run_writer, "INDEX_BYTES", 1000)
    monkeypatch.setattr(run_writer, "PACK_BYTES", 5000)
    path = golden("hdfs")
    in_runs(place, path)
    packs = [listed for listed in place.list() if "/pack-" in listed.name]
    assert len(packs) > 2
    assert content(URL) == {**content(path), **content(URL)}
    files = run_files(place)
    assert isinstance(files, RunFiles)
    names = [listed.name for listed in files.list()]
    gets = place.counts.gets
    assert all(isinstance(data, bytes) for data in files.get_many(names, limit=1 << 20))
    assert place.counts.gets - gets <= len(names)
    assert place.get(HOME)


def test_damaged_packs_of_many(golden: Golden, place: FaultStore, monkeypatch: Any) -> None:
    monkeypatch.setattr(run_writer, "INDEX_BYTES", 1000)
    in_runs(place, golden("hdfs"))
    pack_name = next(listed.name for listed in place.list() if "/pack-" in listed.name)
    data = bytearray(place.get(pack_name))
    data[-5] ^= 1
    place.put(pack_name, bytes(data))
    files = run_files(place)
    assert files is not None
    names = [listed.name for listed in files.list()]
    answers = files.get_many(names, limit=1 << 20)
    assert [type(a) for a in answers].count(DataCorruptionError) == 1
    assert not verify(URL).ok


def damaged(place: FaultStore, name: str, at: float) -> bytes:
    """Change a byte of an object. Return the sound bytes."""
    data = place.get(name)
    bad = bytearray(data)
    bad[int(len(data) * at)] ^= 1
    place.put(name, bytes(bad))
    return data


@pytest.mark.parametrize("what", ["entry", "missing", "pack"])
def test_a_repair(
    what: str, golden: Golden, place: FaultStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What can't be read is removed; everything else stays, and the query goes back a batch."""
    monkeypatch.setattr(run_writer, "INDEX_BYTES", 1000 if what == "pack" else 64 << 20)
    path = golden("stateless")
    in_runs(place, path)
    last = newest(path)
    before = content(URL)
    plan, done = before[f"offsets/{last}"], before[f"commits/{last}"]
    names = add_entries(
        place,
        {f"offsets/{last + 1}": plan, "sources/0/one": b"x" * 100},
        {f"commits/{last + 1}": done},
    )
    if what == "entry":
        damaged(place, names[0], 0.99)
        expected = {**before, f"offsets/{last + 1}": plan, f"commits/{last + 1}": done}
    elif what == "missing":
        place.delete([names[1]])
        place.put(names[1].replace("0000000002", "0000000003"), place.get(names[0]))
        expected = None
    else:
        pack_name = next(listed.name for listed in place.list() if "/pack-" in listed.name)
        damaged(place, pack_name, 0.999)
        expected = None
    report = verify(URL)
    assert not report.ok
    if what != "pack":
        with pytest.raises(DataCorruptionError, match="restore the object"):
            history(URL)
    repaired = verify(URL, repair=True)
    assert [finding for finding in repaired.findings if finding.repaired]
    if expected is not None:
        assert content(URL) == expected
        assert repaired.ok
    found = [row.batch for row in history(URL).batches if row.obstacle is None]
    assert max(found) >= last - 1
    assert verify(URL, repair=True).counts() == verify(URL).counts()


def test_a_damaged_query_id_is_not_removed(
    golden: Golden, place: FaultStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_writer, "INDEX_BYTES", 0)  # all files are in packs
    in_runs(place, golden("stateless"))
    before, file = content(URL), listed_runs(place).locate("metadata")
    sound = place.get(file.object)
    bad = bytearray(sound)
    bad[file.position + file.batch_bytes - 2] ^= 1
    place.put(file.object, bytes(bad))
    with pytest.raises(DataCorruptionError, match="restore the object from a copy"):
        verify(URL, repair=True)
    place.put(file.object, sound)
    assert content(URL) == before


def test_a_damaged_index_is_not_repaired(golden: Golden, place: FaultStore) -> None:
    in_runs(place, golden("stateless"))
    before = content(URL)
    name = next(listed.name for listed in place.list() if "/index-" in listed.name)
    sound = damaged(place, name, 0.5)
    for repair in (True, False):
        if repair:
            with pytest.raises(DataCorruptionError, match="a repair would lose the state"):
                verify(URL, repair=True)
        else:
            assert not verify(URL).ok
    place.put(name, sound)  # as the message advises
    assert content(URL) == before
    assert verify(URL, repair=True).ok


def test_two_forks_to_one_place(
    golden: Golden, place: FaultStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The one that is visible first deletes the objects of the other, which says so."""
    path = golden("stateless")
    write = stored_copies.CopyInRuns.write

    def writing(self: stored_copies.CopyInRuns, *given: Any) -> int:
        size = write(self, *given)
        monkeypatch.setattr(stored_copies.CopyInRuns, "write", write)
        fork(path, URL, to=newest(path) - 1)
        return size

    monkeypatch.setattr(stored_copies.CopyInRuns, "write", writing)
    with pytest.raises(InvalidRequestError, match="exists already: choose a new location"):
        fork(path, URL, to=newest(path))
    assert newest(URL) == newest(path) - 1
