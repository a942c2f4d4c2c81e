"""Archives of checkpoints, alone and with their log: what goes, what comes back."""

import contextlib
import hashlib
import json
import os
import random
import shutil
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import sparklog
from sparklog.checkpoint import import_, verify
from sparklog.checkpoint.backup import archiving, pruning, repository, restoring, snapshots, upload
from sparklog.checkpoint.backup.archiving import Archived, archive
from sparklog.checkpoint.backup.pruning import list_points, prune
from sparklog.checkpoint.backup.restoring import restore
from sparklog.checkpoint.batches import Batches
from sparklog.checkpoint.files import Checkpoint
from sparklog.checkpoint.log_backed.layout import address_of
from sparklog.checkpoint.log_backed.partition import CheckpointPartition
from sparklog.checkpoint.log_backed.partition_writer import Record, append, clean, create
from sparklog.clock import ManualClock
from sparklog.errors import (
    DataCorruptionError,
    InvalidRequestError,
    LogLockedError,
    StorageUnavailableError,
    UnsupportedVersionError,
)
from sparklog.fs import LOCAL, LocalFileSystem
from sparklog.fs.files import LocalFile
from sparklog.log.commit import Identity
from sparklog.logdir.forking.fork import fork
from sparklog.service import verify as verify_log
from sparklog.service.verification.findings import Severity
from sparklog.storage.staging import Framing
from sparklog.testing.faults import SimulatedKill
from sparklog.testing.faultstore import Bucket, Faults, FaultStore
from sparklog.tiered.keyring import Keyring
from sparklog.tiered.object_store.object_store import ObjectStore
from sparklog.tiered.target import open_store
from tests.checkpoint.conftest import GAPS, NAMES, Golden
from tests.checkpoint.views import tree, view
from tests.tiered.s3 import S3Server

OLD, NEW = {"old": bytes(range(32))}, {"old": bytes(range(32)), "new": bytes(range(32, 64))}


@pytest.fixture(params=["file", "memory"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "file":
        return f"file://{tmp_path}/archive"
    return f"memory://archive-{hashlib.sha256(str(tmp_path).encode()).hexdigest()[:12]}"


@pytest.fixture
def file_url(tmp_path: Path) -> str:
    return f"file://{tmp_path}/archive"


def query_of(path: Path) -> str:
    return str(json.loads(view(path)["metadata"])["id"])


def write_log(path: Path, query: str, batches: int, clock: ManualClock) -> dict[int, list[bytes]]:
    """A sink's log: a record for each batch; what it held after each."""
    after: dict[int, list[bytes]] = {}
    with sparklog.open(path, "rw", clock=clock) as log:
        log.create_topic("out", config={"internal.segment.bytes": 400})
        for batch in range(batches):
            stager = log.stager(Framing())
            rows = pa.table({"value": [f"{batch}".ljust(90)]}).to_batches()[0]
            stager.add(log.topic("out"), rows)
            identity = Identity(writer=query, batch=batch, fingerprint=f"{batch}")
            log.commit(stager.finish(), identity=identity)
            after[batch] = log.read("out").read_all().column("value").to_pylist()
    return after


def contents(root: Path) -> dict[str, bytes]:
    return {
        str(file.relative_to(root)): file.read_bytes() for file in root.rglob("*") if file.is_file()
    }


def blocks(tmp_path: Path) -> list[Path]:
    """The files of a file:// archive's blocks."""
    return sorted(f for f in (tmp_path / "archive" / "blocks").rglob("*") if f.is_file())


@pytest.mark.parametrize("backed", [False, True], ids=["files", "records"])
@pytest.mark.parametrize("name", NAMES)
def test_a_checkpoint_comes_back(golden: Golden, url: str, name: str, backed: bool) -> None:
    path = golden(name)
    if backed:
        import_(path)
    original = tree(path)
    made = archive(path, url)
    assert tree(path) == original
    assert sorted(os.listdir(path.parent)) in ([name], ["archive", name])
    back = path.with_name("back")
    done = restore(url, back)
    assert (done.batch, done.point) == (made.batch, made.point)
    before, after = view(path), view(back)
    assert after.keys() <= before.keys()
    changed = {p for p in after if after[p] != before[p]}
    assert changed <= {"state/0/_metadata/v2/0"}
    report = verify(back)
    assert (report.findings, report.latest) == ([], made.batch), str(report)


@pytest.mark.parametrize("name", sorted(GAPS))
def test_a_checkpoint_that_left_batches_out(golden: Golden, file_url: str, name: str) -> None:
    path = golden(name)
    made = archive(path, file_url)
    assert made.batch == max(Batches(Checkpoint.open(path)).committed)
    restore(file_url, path.with_name("back"))
    report = verify(path.with_name("back"))
    assert {f.severity for f in report.findings} == {Severity.WARNING}
    assert (report.ok, report.latest) == (True, made.batch)


def test_the_newest_batch_or_an_error(golden: Golden, file_url: str, tmp_path: Path) -> None:
    """A backup of an old batch that looks like one of now is worse than none."""
    path = golden("hdfs")
    (path / "state/0/1/14.delta").unlink()
    with pytest.raises(InvalidRequestError, match=r"newest batch, 13, can't.*that can be is 12"):
        archive(path, file_url)
    assert not list_points(file_url)
    assert archive(path, file_url, batch=12).batch == 12


def test_a_checkpoint_without_a_committed_batch(
    golden: Golden, file_url: str, tmp_path: Path
) -> None:
    path = golden("stateless")
    shutil.rmtree(path / "commits")
    first, *later = sorted((path / "offsets").glob("[0-9]*"), key=lambda file: int(file.name))
    for plan in later:
        plan.unlink()
    first.rename(path / "offsets" / "0")
    with pytest.raises(InvalidRequestError, match="committed batch: let its query finish one"):
        archive(path, file_url)
    (path / "commits").mkdir()
    (path / "commits" / "0").write_text("v1\n{}")  # as its query does
    made = archive(path, file_url)
    assert restore(file_url, tmp_path / "back").batch == made.batch == 0


def test_a_query_that_runs_while_its_newest_batch_is_chosen(
    golden: Golden, file_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """State that was listed before it was written is there at the second look."""
    path = golden("hdfs")
    hidden = (path / "state/0/1/14.delta").rename(path.parent / "14.delta")
    real = Checkpoint.refresh

    def refresh(self: Checkpoint) -> None:
        real(self)
        if hidden.exists():
            hidden.rename(path / "state/0/1/14.delta")

    monkeypatch.setattr(Checkpoint, "refresh", refresh)
    assert archive(path, file_url).batch == 13


@pytest.mark.parametrize("url", ["hdfs:/backup", "s3:/bucket", "C:\\backup", "dbfs:/x"])
def test_what_is_no_url_makes_no_directory_of_that_name(
    golden: Golden, url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """fsspec takes them for paths below the working directory."""
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InvalidRequestError, match="with two slashes"):
        archive(golden("stateless"), url)
    assert os.listdir(tmp_path) == ["stateless"]


class Growing:
    """A query with state of its own size, as Spark and the manager write it, batch by batch."""

    def __init__(self, path: Path, *, backed: bool, parts: int, delta: int) -> None:
        self.path, self.backed, self.parts, self.delta = path, backed, parts, delta
        self.random, self.batch = random.Random(7), 0
        path.mkdir()
        (path / "metadata").write_text('{"id":"query"}')
        if backed:
            (path / "sparklog").mkdir()
            (path / "sparklog" / "sparklog.lock").touch()

    def write(self, files: dict[str, bytes | None]) -> None:
        if not self.backed:
            for name, data in files.items():
                if data is None:
                    (self.path / name).unlink()
                else:
                    (self.path / name).parent.mkdir(parents=True, exist_ok=True)
                    (self.path / name).write_bytes(data)
            return
        by_partition: dict[str, list[Record]] = {}
        for name, data in files.items():
            place = address_of(name)
            by_partition.setdefault(place.partition, []).append(Record(place.key, data, 0))
        for partition, records in by_partition.items():
            directory = str(self.path / "sparklog" / partition)
            create(LOCAL, directory)
            held = CheckpointPartition(LOCAL, directory)
            append(held, records)
            clean(held)

    def run(self, batches: int, *, kept: int, every: int = 5) -> None:
        for number in range(self.batch, self.batch + batches):
            plan = b'v1\n{"conf":{"spark.sql.shuffle.partitions":"%d"}}\n%d' % (self.parts, number)
            files: dict[str, bytes | None] = {f"offsets/{number}": plan}
            for part in range(self.parts):
                at = f"state/0/{part}/"
                files[f"{at}{number + 1}.delta"] = self.random.randbytes(self.delta)
                if number % every == 0:
                    files[f"{at}{number + 1}.snapshot"] = self.random.randbytes(4 * self.delta)
                if number >= kept:
                    files[f"{at}{number + 1 - kept}.delta"] = None
                    if (number - kept) % every == 0:
                        files[f"{at}{number + 1 - kept}.snapshot"] = None
            if number >= kept:
                files[f"offsets/{number - kept}"] = files[f"commits/{number - kept}"] = None
            self.write(files)
            self.write({f"commits/{number}": b'v1\n{"nextBatchWatermarkMs":0}'})
        self.batch += batches


@pytest.mark.deep
def test_a_point_of_records_costs_what_one_of_files_does(tmp_path: Path) -> None:
    """Through growing, cleaning and resets of what is archived: the new records go, and no more."""
    sent: dict[bool, list[Archived]] = {}
    for backed in (False, True):
        query = Growing(tmp_path / f"query-{backed}", backed=backed, parts=2, delta=9_000)
        sent[backed] = []
        for _ in range(4):
            query.run(9, kept=12)
            sent[backed].append(archive(query.path, f"file://{tmp_path}/archive-{backed}"))
    logs = tmp_path / "query-True" / "sparklog"
    partition = CheckpointPartition(LOCAL, str(logs / "state.0.default-0"))
    assert len(partition.entries) < 36  # it was cleaned
    for files, records in zip(*sent.values(), strict=True):
        assert records.batch == files.batch
        assert records.new_bytes < 1.15 * files.new_bytes + 20_000
    url = f"file://{tmp_path}/archive-True"
    for made in sent[True]:
        back = tmp_path / f"back-{made.batch}"
        restore(url, back, point=made.point)
        now, then = view(back), view(tmp_path / "query-True")
        assert made.batch == max(Batches(Checkpoint.open(back)).committed)
        assert all(now[name] == then[name] for name in now.keys() & then.keys())
    head = (tmp_path / "archive-True" / "points" / made.point).read_bytes().partition(b"\n")[0]
    assert json.loads(head)["version"] == 2
    prune(url, keep=1)
    restore(url, tmp_path / "last")
    assert view(tmp_path / "last") == view(tmp_path / f"back-{made.batch}")


def test_a_lost_query_id_makes_no_tree_of_a_checkpoint(
    golden: Golden, url: str, tmp_path: Path, clock: ManualClock
) -> None:
    """Its query may run: what is archived is of one batch, still."""
    path = golden("hdfs")
    query = query_of(path)
    (path / "metadata").unlink()
    assert archive(path, url).batch == 13
    write_log(tmp_path / "log", query, 14, clock)
    with pytest.raises(InvalidRequestError, match="has no query id: give writer="):
        archive(path, url, log=tmp_path / "log", clock=clock)
    assert archive(path, url, log=tmp_path / "log", writer=query, clock=clock).log


def test_urls_as_hadoop_writes_them(golden: Golden, tmp_path: Path) -> None:
    path = golden("stateless")
    made = archive(f"file:{path}/", f"file:{tmp_path}/archive")
    assert [p.name for p in list_points(f"file://{tmp_path}/archive/")] == [made.point]
    assert restore(f"file:{tmp_path}/archive", f"file:{tmp_path}/back/").path == f"{tmp_path}/back"
    assert sorted(os.listdir(tmp_path)) == ["archive", "back", "stateless"]


def test_checkpoint_and_log_of_one_batch(
    golden: Golden, url: str, tmp_path: Path, clock: ManualClock
) -> None:
    path = golden("changelog")
    query = query_of(path)
    after = write_log(tmp_path / "log", query, 14, clock)
    made = archive(path, url, batch=11, log=tmp_path / "log", clock=clock)
    assert (made.batch, made.log) == (11, True)
    for number in (1, 2):  # as often as one likes
        home = tmp_path / f"machine{number}"
        home.mkdir()
        done = restore(url, home / "checkpoint", log=home / "log", clock=clock)
        assert (done.batch, done.log) == (11, str(home / "log"))
        assert verify(home / "checkpoint").latest == 11
        assert verify_log(str(home / "log")).ok
        with sparklog.open(home / "log", "rw", clock=clock) as log:
            assert log.read("out").read_all().column("value").to_pylist() == after[11]
            assert log.committed(Identity(writer=query, batch=11, fingerprint="11")) is not None
            assert log.committed(Identity(writer=query, batch=12, fingerprint="12")) is None
        assert sorted(os.listdir(home)) == ["checkpoint", "log"]
    ids = {sparklog.open(tmp_path / n / "log").topic("out").id for n in ("machine1", "machine2")}
    assert len(ids) == 2
    alone = restore(url, tmp_path / "alone")
    assert alone.log is None


def test_what_was_archived_is_neither_read_nor_sent_again(
    tmp_path: Path, file_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "tree"
    (root / "deep" / "empty").mkdir(parents=True)
    (root / "large").write_bytes(os.urandom(5 << 20))
    (root / "deep" / "small").write_bytes(os.urandom(9000))
    (root / "deep" / "tiny").write_bytes(b"tiny")
    (root / "deep" / "nothing").write_bytes(b"")
    for file in ("large", "deep/small"):
        os.utime(root / file, (1, 1))
    first = archive(root, file_url)
    assert (first.files, first.bytes) == (4, (5 << 20) + 9004)
    assert first.new_bytes == first.read_bytes == (5 << 20) + 9000
    again = archive(root, file_url)
    assert (again.new_bytes, again.read_bytes) == (0, 9000)
    os.link(root / "large", root / "deep" / "linked")
    (root / "copied").write_bytes((root / "large").read_bytes())
    third = archive(root, file_url)
    assert (third.new_bytes, third.read_bytes) == (0, (5 << 20) + 9000)
    restore(file_url, tmp_path / "back")
    assert contents(tmp_path / "back") == contents(root)
    assert (tmp_path / "back" / "deep" / "empty").is_dir()


def test_of_a_file_that_grew_only_the_end_goes(
    tmp_path: Path, file_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (upload, snapshots):
        monkeypatch.setattr(module, "BLOCK_BYTES", 1000)
    root = tmp_path / "tree"
    root.mkdir()
    data = os.urandom(3500)
    (root / "log").write_bytes(data)
    assert archive(root, file_url).new_bytes == 3500
    (root / "log").write_bytes(data + b"more")
    assert archive(root, file_url).new_bytes == 504
    restore(file_url, tmp_path / "back")
    assert (tmp_path / "back" / "log").read_bytes() == data + b"more"


def test_a_file_with_the_same_time_but_another_inode_is_read(tmp_path: Path, file_url: str) -> None:
    root = tmp_path / "tree"
    root.mkdir()
    (root / "a").write_bytes(bytes(2 << 20))
    os.utime(root / "a", (1, 1))
    archive(root, file_url)
    (root / "b").write_bytes(b"x" * (2 << 20))
    os.utime(root / "b", (1, 1))
    os.replace(root / "b", root / "a")
    assert archive(root, file_url).new_bytes == 2 << 20
    restore(file_url, tmp_path / "back")
    assert (tmp_path / "back" / "a").read_bytes() == b"x" * (2 << 20)


def test_a_file_that_changes_meanwhile(
    tmp_path: Path, file_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "tree"
    root.mkdir()
    (root / "a").write_bytes(b"x" * 1000)
    pread = LocalFile.pread

    def changing(file: LocalFile, size: int, at: int) -> bytes:
        if file.path == str(root / "a"):
            (root / "a").write_bytes(b"y" * 1001)
        return pread(file, size, at)

    with monkeypatch.context() as patch:
        patch.setattr(LocalFile, "pread", changing)
        with pytest.raises(StorageUnavailableError, match="changed while it was archived: stop"):
            archive(root, file_url)
    assert list_points(file_url) == []
    archive(root, file_url)  # now that nothing writes to it
    restore(file_url, tmp_path / "back")
    assert contents(tmp_path / "back") == {"a": b"y" * 1001}


class TestPoints:
    def test_of_batches(self, golden: Golden, url: str, clock: ManualClock) -> None:
        path = golden("changelog")
        for batch in (9, 11, 9):
            clock.advance(1000)
            archive(path, url, batch=batch, clock=clock)
        found = list_points(url)
        assert [(p.batch, p.has_log) for p in found] == [(9, False), (11, False), (9, False)]
        assert found[0].time_ms == clock() - 2000
        assert restore(url, path.with_name("a")).point == found[2].name
        assert restore(url, path.with_name("b"), batch=11).point == found[1].name
        assert restore(url, path.with_name("c"), point=found[0].name).point == found[0].name
        assert verify(path.with_name("c")).latest == 9

    def test_that_are_not_there(self, golden: Golden, url: str, tmp_path: Path) -> None:
        path = golden("hdfs")
        with pytest.raises(InvalidRequestError, match="has no archived point: give the URL"):
            restore(url, path.with_name("back"))
        made = archive(path, url)
        with pytest.raises(InvalidRequestError, match="give the URL that `sparklog checkpoint"):
            restore(f"{url}/other", path.with_name("back"))
        for how, match in {
            "batch": (77, f"no point of batch 77; its batches: {made.batch}"),
            "point": ("x", "no point x"),
            "log": (tmp_path / "log", "has no log"),
        }.items():
            with pytest.raises(InvalidRequestError, match=match[1]):
                restore(url, path.with_name("back"), **{how: match[0]})  # type: ignore[arg-type]
        with pytest.raises(InvalidRequestError, match="exists"):
            restore(url, path)
        assert not path.with_name("back").exists()
        assert restore(url, path.with_name("back")).log is None  # as advised, without `log`
        assert verify(path.with_name("back")).latest == made.batch

    def test_of_a_point_that_was_pruned_since_it_was_chosen(
        self, golden: Golden, url: str, tmp_path: Path
    ) -> None:
        path = golden("hdfs")
        first, second = (archive(path, url, batch=n) for n in (11, 12))
        (chosen, _) = list_points(url)
        prune(url, keep=1)
        with pytest.raises(InvalidRequestError, match="is gone; see which points there are"):
            snapshots.read(open_store(url), chosen, None)
        (left,) = list_points(url)
        assert (chosen.name, left.name) == (first.point, second.point)
        assert restore(url, tmp_path / "back", point=left.name).batch == 12

    def test_of_two_queries(self, golden: Golden, url: str, tmp_path: Path) -> None:
        """Restore would take the other one's newest, and prune count both ones' points."""
        mine, others = golden("changelog"), golden("hdfs")
        archive(mine, url)
        kept = {one.name for one in open_store(url).list("")}
        with pytest.raises(InvalidRequestError, match="give each query a URL of its own"):
            archive(others, url)
        assert {one.name for one in open_store(url).list("")} == kept
        made = archive(others, f"{url}-of-others")
        assert [restore(*each).batch for each in (
            (url, tmp_path / "mine"), (f"{url}-of-others", tmp_path / "others"),
        )] == [list_points(url)[0].batch, made.batch]  # fmt: skip
        moved = shutil.copytree(mine, tmp_path / "moved")
        assert archive(moved, url).new_blocks == 0  # the same query, wherever it runs

    def test_a_batch_that_is_gone(self, golden: Golden, url: str) -> None:
        with pytest.raises(InvalidRequestError, match="can't go back to batch 999"):
            archive(golden("hdfs"), url, batch=999)
        assert list_points(url) == []


class TestPruning:
    def test_the_newest_stay_and_can_be_restored(
        self, golden: Golden, url: str, clock: ManualClock
    ) -> None:
        path = golden("changelog")
        for batch in (9, 9, 10, 11):
            clock.advance(1000)
            archive(path, url, batch=batch, clock=clock)
        names = [point.name for point in list_points(url)]
        planned = prune(url, keep=2, dry_run=True)
        assert (planned.points, planned.kept) == (names[:2], 2)
        assert len(list_points(url)) == 4
        before = clock() - 2000
        assert prune(url, keep=1, before_ms=before, dry_run=True).points == names[:1]
        late = clock() + 10**6
        assert prune(url, before_ms=late, dry_run=True).points == names[:3]  # the newest stays
        assert prune(url, keep=2) == planned
        assert prune(url, keep=2).blocks == 0
        assert [point.name for point in list_points(url)] == names[2:]
        store = open_store(url)
        left = {one.name for one in store.list("blocks/")}
        kept = [snapshots.read(store, each, None) for each in list_points(url)]
        needed = {
            repository.name(digest)
            for repository, trees in kept
            for tree in trees.values()
            for file in tree.files
            for digest in file.blocks
        }
        assert left == needed
        for batch in (10, 11):
            restore(url, path.with_name(f"back{batch}"), batch=batch)
        assert prune(url, keep=1, before_ms=0).points == []

    @pytest.mark.parametrize("how", [{}, {"keep": 0}])
    def test_wrong_use(self, url: str, how: dict[str, Any], tmp_path: Path) -> None:
        (tmp_path / "tree").mkdir()
        archive(tmp_path / "tree", url)
        with pytest.raises(InvalidRequestError, match="say what may go"):
            prune(url, **how)
        for right in ({"keep": 1}, {"before_ms": 5}, {"keep": 1, "before_ms": 5}):
            assert prune(url, **right).points == []

    def test_blocks_stay_while_somebody_archives(
        self, tmp_path: Path, url: str, clock: ManualClock
    ) -> None:
        root = tmp_path / "tree"
        root.mkdir()
        (root / "a").write_bytes(os.urandom(1000))
        archive(root, url)
        (root / "a").write_bytes(os.urandom(1000))
        archive(root, url)
        store = open_store(url)
        store.put("running/somebody", b"\n")
        done = prune(url, keep=1)
        assert (len(done.points), done.blocks, done.postponed) == (1, 0, True)
        assert len(store.list("blocks/")) == 2
        store.delete(["running/somebody"])
        assert prune(url, keep=1).blocks == 1

    def test_nobody_archives_while_blocks_go(self, tmp_path: Path, url: str) -> None:
        root = tmp_path / "tree"
        root.mkdir()
        store = open_store(url)
        store.put("pruning/somebody", b"\n")
        with pytest.raises(LogLockedError, match="is being pruned"):
            archive(root, url)
        assert store.list("running/") == []
        store.delete(["pruning/somebody"])
        archive(root, url)

    def test_who_died_keeps_nobody_from_it_for_long(self, tmp_path: Path, file_url: str) -> None:
        """A pruning an hour, an archiving a day, by the times that the store lists."""
        root = tmp_path / "tree"
        root.mkdir()
        for number in range(2):
            (root / "a").write_text(str(number))
            archive(root, file_url)
        store = open_store(file_url)
        for name, age_s in (("pruning/x", 3_500), ("pruning/x", 3_700), ("running/x", 90_000)):
            store.put(name, b"\n")
            left = time.time() - age_s
            os.utime(file_url.removeprefix("file://") + f"/{name}", (left, left))
            if age_s < 3_600:
                with pytest.raises(LogLockedError, match="is being pruned"):
                    archive(root, file_url)
            else:
                archive(root, file_url)
        assert prune(file_url, keep=1).postponed is False
        assert len(list_points(file_url)) == 1

    def test_a_point_that_cannot_be_read(self, tmp_path: Path, url: str) -> None:
        root = tmp_path / "tree"
        root.mkdir()
        for n in range(3):
            (root / "a").write_bytes(b"%d" % n * 1000)
            archive(root, url)
        store = open_store(url)
        (first, second, _) = list_points(url)
        store.put(f"points/{second.name}", b"{}\n")
        with pytest.raises(DataCorruptionError, match="no archived point"):
            prune(url, keep=2)
        assert len(list_points(url)) == 3
        assert prune(url, keep=1).points == [first.name, second.name]


class TestDamage:
    @pytest.fixture
    def made(self, golden: Golden, file_url: str) -> Archived:
        return archive(golden("hdfs"), file_url)

    def test_every_bit_of_a_block_counts(
        self, made: Archived, tmp_path: Path, file_url: str
    ) -> None:
        for file in blocks(tmp_path)[-3:]:
            data = bytearray(file.read_bytes())
            for change in ("flip", "cut", "gone"):
                if change == "flip":
                    data[len(data) // 2] ^= 1
                    file.write_bytes(data)
                elif change == "cut":
                    file.write_bytes(data[:-1])
                else:
                    file.unlink()
                with pytest.raises(DataCorruptionError, match=file.name):
                    restore(file_url, tmp_path / "back")
            data[len(data) // 2] ^= 1
            file.write_bytes(data)
        assert sorted(os.listdir(tmp_path)) == ["archive", "hdfs"]
        restore(file_url, tmp_path / "back")

    def test_a_block_of_another_size_is_sent_again(
        self, made: Archived, tmp_path: Path, file_url: str
    ) -> None:
        files = blocks(tmp_path)
        files[0].write_bytes(files[0].read_bytes()[:-1])
        files[1].unlink()
        assert archive(tmp_path / "hdfs", file_url).new_blocks == 2
        restore(file_url, tmp_path / "back")

    def test_points(self, made: Archived, tmp_path: Path, file_url: str) -> None:
        file = tmp_path / "archive" / "points" / made.point
        data = file.read_bytes()
        head, _, body = data.partition(b"\n")
        newer = {**json.loads(head), "version": snapshots.VERSION + 1}
        for bad, error in {
            data[:-1]: DataCorruptionError,
            data[:200] + bytes([data[200] ^ 1]) + data[201:]: DataCorruptionError,
            b"": DataCorruptionError,
            json.dumps(newer).encode() + b"\n" + body: UnsupportedVersionError,
        }.items():
            file.write_bytes(bad)
            with pytest.raises(error, match=made.point) as caught:
                restore(file_url, tmp_path / "back")
            is_damaged = error is DataCorruptionError
            assert ("restore the object from a copy" in str(caught.value)) == is_damaged
        other = archive(tmp_path / "hdfs", file_url, batch=12)
        assert restore(file_url, tmp_path / "other", point=other.point).batch == 12
        file.write_bytes(data)
        assert restore(file_url, tmp_path / "back", point=made.point).batch == made.batch

    def test_a_path_that_leads_elsewhere(self, tmp_path: Path, file_url: str) -> None:
        store = open_store(file_url)
        for path in ("../evil", "/evil", "a/../../evil"):
            point = snapshots.Snapshot.make(1, None, "0" * 12, has_log=False)
            bad = snapshots.SnapshotTree("x", [], [snapshots.SnapshotFile(path, 4, (), b"evil")])
            snapshots.write(repository.Repository(store), point, {"checkpoint": bad})
            with pytest.raises(DataCorruptionError, match="leads out of"):
                restore(file_url, tmp_path / "back")


class TestEncryption:
    def test_nothing_tells_what_is_in_it(self, golden: Golden, url: str, tmp_path: Path) -> None:
        path = golden("changelog")
        old, new = Keyring(OLD, "old"), Keyring(NEW, "new")
        made = archive(path, url, keyring=old)
        assert archive(path, url, keyring=old).new_bytes == 0
        plain = {hashlib.sha256(data).hexdigest() for data in contents(path).values()}
        store = open_store(url)
        for one in store.list():
            data = store.get(one.name)
            assert b"changelog" not in data
            assert b"state/0" not in data
            assert one.name.rpartition("/")[2] not in plain
            assert hashlib.sha256(data).hexdigest() not in plain
        with pytest.raises(InvalidRequestError, match="give the key ring"):
            restore(url, tmp_path / "back")
        with pytest.raises(InvalidRequestError, match="give the key ring"):
            archive(path, url)
        with pytest.raises(InvalidRequestError, match="give the key ring"):
            prune(url, keep=1)
        with pytest.raises(InvalidRequestError, match="isn't the one"):
            restore(url, tmp_path / "back", keyring=Keyring({"old": bytes(32)}, "old"))
        assert repository.rotate(store, new) == 1
        assert repository.rotate(store, new) == 0
        restore(url, tmp_path / "back", keyring=Keyring({"new": NEW["new"]}, "new"))
        assert verify(tmp_path / "back").latest == made.batch
        assert prune(url, keep=1, keyring=new).blocks == 0

    def test_a_flipped_bit(self, golden: Golden, file_url: str, tmp_path: Path) -> None:
        ring = Keyring(OLD, "old")
        archive(golden("hdfs"), file_url, keyring=ring)
        file = blocks(tmp_path)[-1]
        data = bytearray(file.read_bytes())
        data[7] ^= 1
        file.write_bytes(data)
        with pytest.raises(DataCorruptionError, match="decrypt"):
            restore(file_url, tmp_path / "back", keyring=ring)


@pytest.mark.s3
def test_s3(golden: Golden, s3: S3Server, tmp_path: Path, clock: ManualClock) -> None:
    path = golden("changelog")
    url = s3.bucket() + "/checkpoints/q"
    options = s3.options()
    write_log(tmp_path / "log", query_of(path), 14, clock)
    for _ in range(2):
        made = archive(
            path, url, batch=11, log=tmp_path / "log", storage_options=options, clock=clock
        )
    assert made.new_bytes < 5000  # the forked log's own few files
    done = restore(url, tmp_path / "back", log=tmp_path / "back-log", storage_options=options)
    assert done.batch == 11
    assert verify(tmp_path / "back").latest == 11
    assert prune(url, keep=1, storage_options=options).points
    shutil.rmtree(tmp_path / "back")
    shutil.rmtree(tmp_path / "back-log")
    restore(url, tmp_path / "back", log=tmp_path / "back-log", storage_options=options)


class TestCrashes:
    """The store and the machine fail; what was archived stays restorable, and nothing is torn."""

    @pytest.fixture
    def buckets(self, monkeypatch: pytest.MonkeyPatch, clock: ManualClock) -> list[Any]:
        current: list[Any] = [FaultStore(Bucket(), clock)]

        def opened(url: str, storage_options: Any = None) -> ObjectStore:
            return current[0]

        for module in (archiving, restoring, pruning):
            monkeypatch.setattr(module, "open_store", opened)
        return current

    def test_an_archiving_that_is_killed_at_any_request(
        self, golden: Golden, buckets: list[Any], clock: ManualClock, tmp_path: Path
    ) -> None:
        path = golden("hdfs")
        first = archive(path, "any", batch=12, threads=1, clock=clock)
        number = 0
        while True:
            number += 1
            store = buckets[0] = buckets[0].reopen()
            store.crash_at(number, after=bool(number % 2))
            try:
                archive(path, "any", batch=13, threads=1, clock=clock)
                break
            except SimulatedKill:
                pass
            buckets[0] = store.reopen()
            held = list_points("any")
            assert held[0].name == first.point
            for point in held:
                back = tmp_path / "back"
                restore("any", back, point=point.name, threads=1)
                assert verify(back).latest == point.batch
                shutil.rmtree(back)
        assert number > 2
        clock.advance(25 * 3_600_000)
        buckets[0] = buckets[0].reopen()
        assert not prune("any", keep=1, clock=clock).postponed
        restore("any", tmp_path / "back", threads=1)

    def test_a_pruning_that_is_killed_at_any_request(
        self, buckets: list[Any], clock: ManualClock, tmp_path: Path
    ) -> None:
        root = tmp_path / "tree"
        root.mkdir()
        for number in range(1, 12):
            for n in range(3):
                (root / "a").write_bytes(b"%d %d" % (number, n) * 500)
                archive(root, "any", threads=1, clock=clock)
            wanted = contents(root)
            store = buckets[0]
            store.crash_at(number, after=bool(number % 2))
            with contextlib.suppress(SimulatedKill):
                prune("any", keep=1, clock=clock)
            clock.advance(2 * 3_600_000)
            buckets[0] = store.reopen()
            restore("any", tmp_path / "back", threads=1)
            assert contents(tmp_path / "back") == wanted
            shutil.rmtree(tmp_path / "back")

    def test_a_rough_network(
        self, golden: Golden, buckets: list[Any], clock: ManualClock, tmp_path: Path
    ) -> None:
        faults = Faults(reset=0.1, busy=0.1, lost=0.1, short=0.1)
        buckets[0] = FaultStore(Bucket(), clock, seed=3, faults=faults, attempts=30)
        path = golden("changelog")
        made = archive(path, "any", threads=1, clock=clock)
        restore("any", tmp_path / "back", threads=1)
        assert verify(tmp_path / "back").latest == made.batch


def test_a_restore_that_is_cut_leaves_nothing_and_the_next_goes_through(
    golden: Golden, file_url: str, tmp_path: Path, clock: ManualClock
) -> None:
    path = golden("hdfs")
    write_log(tmp_path / "log", query_of(path), 14, clock)
    archive(path, file_url, batch=13, log=tmp_path / "log", clock=clock)
    home = tmp_path / "home"
    home.mkdir()

    class Failing(LocalFileSystem):
        def rename(self, src: str, dst: str) -> None:
            if dst == str(home / "checkpoint"):
                assert os.path.exists(home / "log")
                raise SimulatedKill
            super().rename(src, dst)

    with pytest.raises(SimulatedKill):
        restore(file_url, home / "checkpoint", log=home / "log", fs=Failing(), clock=clock)
    assert os.listdir(home) == []
    maker = home / ".log.restore-0"  # as if it had been killed there
    (maker / "raw").mkdir(parents=True)
    waits_for = f"{home}/checkpoint\n{maker}"
    fork(tmp_path / "log", home / "log", writer=query_of(path), batch=3, waits_for=waits_for)
    (home / ".checkpoint.restore-0" / "raw").mkdir(parents=True)
    done = restore(file_url, home / "checkpoint", log=home / "log", clock=clock)
    assert done.batch == 13
    assert sorted(os.listdir(home)) == ["checkpoint", "log"]
    assert not [name for name in os.listdir(home / "log") if "waiting" in name]
    with pytest.raises(InvalidRequestError, match="exists"):
        restore(file_url, home / "checkpoint", log=home / "log", clock=clock)


def test_too_little_room(
    golden: Golden, file_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive(golden("hdfs"), file_url)
    for disk in ("full", "other"):
        (tmp_path / disk).mkdir()
    monkeypatch.setattr(
        type(LOCAL), "free_bytes", lambda _, path: 100 if "/full" in path else 1 << 40
    )
    with pytest.raises(StorageUnavailableError, match="100 are free; restore to another disk"):
        restore(file_url, tmp_path / "full" / "back")
    assert os.listdir(tmp_path / "full") == []
    restore(file_url, tmp_path / "other" / "back")
    assert verify(tmp_path / "other" / "back").ok


@pytest.mark.parametrize(
    ("how", "match"),
    [
        ({"path": "s3://bucket/checkpoint"}, "this machine's own disk"),
        ({"threads": 0}, "threads=0"),
        ({"batch": 3}, "no checkpoint of a query: it has no batches"),
        ({"log": "log"}, "no checkpoint of a query"),
        ({"url": "tree/archive"}, "lies in .*tree, which it is to hold"),
    ],
)
def test_wrong_use(
    tmp_path: Path, file_url: str, how: dict[str, Any], match: str, clock: ManualClock
) -> None:
    (tmp_path / "tree").mkdir()
    write_log(tmp_path / "log", "q", 1, clock)
    if "log" in how:
        how = {"log": tmp_path / "log"}
    if "url" in how:
        how = {"url": f"file://{tmp_path}/{how['url']}"}
    given: dict[str, Any] = {"path": tmp_path / "tree", "url": file_url, **how}
    with pytest.raises(InvalidRequestError, match=match):
        archive(**given)
    assert sorted(os.listdir(tmp_path)) in (["log", "tree"], ["archive", "log", "tree"])
    if "log" in how:  # "archive it without the log"
        assert archive(tmp_path / "tree", file_url).batch is None
        assert restore(file_url, tmp_path / "back").log is None


def test_what_lies_in_the_temporary_directory_is_nobody_elses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Beside a read-only mount nothing can be made; in /tmp others can, and read what is there."""
    monkeypatch.setattr(archiving.tempfile, "gettempdir", lambda: str(tmp_path))
    monkeypatch.setattr(archiving.os, "access", lambda *_: False)
    home = str(tmp_path / "mount" / "checkpoint")
    (staged,) = archiving._staged(LOCAL, [home])._targets
    own = tmp_path / f"sparklog-{os.getuid()}"
    assert Path(staged).parent == own
    assert own.stat().st_mode & 0o777 == 0o700
    for planted in (0o777, 0o750):
        own.chmod(planted)
        with pytest.raises(StorageUnavailableError, match=r"mode 700\): remove it, or set"):
            archiving._staged(LOCAL, [home])
    own.rmdir()
    assert Path(archiving._staged(LOCAL, [home])._targets[0]).parent == own
    own.rmdir()
    (tmp_path / "theirs").mkdir(mode=0o700)
    own.symlink_to(tmp_path / "theirs")
    with pytest.raises(StorageUnavailableError, match="TMPDIR"):
        archiving._staged(LOCAL, [home])
    monkeypatch.undo()
    (tmp_path / "mine").mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "mine"))
    monkeypatch.setattr(archiving.tempfile, "tempdir", None)
    monkeypatch.setattr(archiving.os, "access", lambda *_: False)
    (staged,) = archiving._staged(LOCAL, [home])._targets
    assert Path(staged).parent == tmp_path / "mine" / own.name
