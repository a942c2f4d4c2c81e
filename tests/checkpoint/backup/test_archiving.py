"""Archives of checkpoints, alone and with their log: what goes, what comes back."""

import contextlib
import copy
import hashlib
import json
import os
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import sparklog
from sparklog.checkpoint import import_, verify
from sparklog.checkpoint.backup import archiving, repository, restoring, snapshots, upload
from sparklog.checkpoint.backup.archiving import Archived, archive
from sparklog.checkpoint.backup.restoring import list_points, restore
from sparklog.checkpoint.batches import Batches
from sparklog.checkpoint.files import Checkpoint
from sparklog.clock import ManualClock
from sparklog.errors import (
    DataCorruptionError,
    InvalidRequestError,
    StorageUnavailableError,
    UnsupportedVersionError,
)
from sparklog.fs import LOCAL, LocalFileSystem
from sparklog.fs.files import LocalFile
from sparklog.log.commit import Identity
from sparklog.service import verify as verify_log
from sparklog.service.verification.findings import Severity
from sparklog.testing.faults import SimulatedKill
from sparklog.testing.faultstore import Bucket, Faults, FaultStore, crash_points
from sparklog.tiered.keyring import Keyring
from sparklog.tiered.object_store.object_store import ObjectStore
from sparklog.tiered.target import open_store
from tests.checkpoint.conftest import GAPS, NAMES, Golden
from tests.checkpoint.views import tree, view
from tests.log.forks import fork
from tests.micro_batches import commit_batch
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
            rows = pa.table({"value": [f"{batch}".ljust(90)]})
            commit_batch(log, query, batch, rows, topic="out")
            after[batch] = log.read("out").read_all().column("value").to_pylist()
    return after


def contents(root: Path) -> dict[str, bytes]:
    return {
        str(file.relative_to(root)): file.read_bytes() for file in root.rglob("*") if file.is_file()
    }


def stored(tmp_path: Path) -> list[Path]:
    """The files of a file:// archive."""
    return sorted(f for f in (tmp_path / "archive" / "files").rglob("*") if f.is_file())


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
    with pytest.raises(InvalidRequestError, match=r"13, can't.*that can be archived is 12"):
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
    with pytest.raises(InvalidRequestError, match="committed batch: let the query finish a batch"):
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
    with pytest.raises(InvalidRequestError, match="has two slashes"):
        archive(golden("stateless"), url)
    assert os.listdir(tmp_path) == ["stateless"]


def test_a_lost_query_id_makes_no_tree_of_a_checkpoint(
    golden: Golden, url: str, tmp_path: Path, clock: ManualClock
) -> None:
    """Its query may run: what is archived is of one batch, still."""
    path = golden("hdfs")
    query = query_of(path)
    (path / "metadata").unlink()
    assert archive(path, url).batch == 13
    write_log(tmp_path / "log", query, 14, clock)
    with pytest.raises(InvalidRequestError, match="has no query id: pass the writer"):
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


@pytest.fixture
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (upload, snapshots):
        monkeypatch.setattr(module, "PIECE_BYTES", 1000)


@pytest.mark.usefixtures("small_pieces")
@pytest.mark.parametrize("ring", [None, Keyring(OLD, "old")], ids=["plain", "encrypted"])
def test_a_file_of_many_pieces(tmp_path: Path, file_url: str, ring: Keyring | None) -> None:
    root = tmp_path / "tree"
    root.mkdir()
    data = os.urandom(3500)
    (root / "log").write_bytes(data)
    made = archive(root, file_url, keyring=ring)
    assert (made.new_files, made.new_bytes, made.read_bytes) == (1, 3500, 3500)
    (name,) = [path.name for path in stored(tmp_path)]
    assert (name == hashlib.sha256(data).hexdigest()) == (ring is None)
    (root / "log").write_bytes(data + b"more")
    assert archive(root, file_url, keyring=ring).new_bytes == 3504
    restore(file_url, tmp_path / "back", keyring=ring)
    assert (tmp_path / "back" / "log").read_bytes() == data + b"more"
    (file,) = [path for path in stored(tmp_path) if path.name != name]
    held = bytearray(file.read_bytes())
    held[2500] ^= 1
    file.write_bytes(held)
    with pytest.raises(DataCorruptionError, match=file.name):
        restore(file_url, tmp_path / "other", keyring=ring)


@pytest.mark.usefixtures("small_pieces")
@pytest.mark.parametrize("cut", [False, True], ids=["other bytes", "fewer bytes"])
def test_a_file_that_changes_before_its_upload(
    tmp_path: Path, file_url: str, cut: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its object would have other bytes than its name says, for all points to come."""
    root = tmp_path / "tree"
    root.mkdir()
    file = root / "a"
    file.write_bytes(b"x" * 2500)
    put = repository.Repository.put

    def changing(held: repository.Repository, content: bytes, pieces: Any, size: int) -> None:
        file.write_bytes(b"x" * 2000 if cut else b"x" * 2000 + b"y" * 500)
        put(held, content, pieces, size)

    with monkeypatch.context() as patch:
        patch.setattr(repository.Repository, "put", changing)
        with pytest.raises(
            StorageUnavailableError,
            match="changed while it was archived; no snapshot was written",
        ):
            archive(root, file_url)
    assert (list_points(file_url), stored(tmp_path)) == ([], [])


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
        with pytest.raises(
            StorageUnavailableError,
            match="changed while it was archived; no snapshot was written",
        ):
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
        with pytest.raises(
            InvalidRequestError, match="has no snapshot of a checkpoint: use the URL"
        ):
            restore(url, path.with_name("back"))
        made = archive(path, url)
        with pytest.raises(
            InvalidRequestError, match="use the URL that was passed to `sparklog checkpoint"
        ):
            restore(f"{url}/other", path.with_name("back"))
        for how, match in {
            "batch": (77, f"no snapshot of batch 77; it has snapshots of batches: {made.batch}"),
            "point": ("x", "no snapshot x"),
            "log": (tmp_path / "log", "has no log"),
        }.items():
            with pytest.raises(InvalidRequestError, match=match[1]):
                restore(url, path.with_name("back"), **{how: match[0]})  # type: ignore[arg-type]
        with pytest.raises(InvalidRequestError, match="exists"):
            restore(url, path)
        assert not path.with_name("back").exists()
        assert restore(url, path.with_name("back")).log is None  # as advised, without `log`
        assert verify(path.with_name("back")).latest == made.batch

    def test_of_two_queries(self, golden: Golden, url: str, tmp_path: Path) -> None:
        """Restore would take the other one's newest."""
        mine, others = golden("changelog"), golden("hdfs")
        archive(mine, url)
        kept = {one.name for one in open_store(url).list("")}
        with pytest.raises(InvalidRequestError, match="use a separate URL for each query"):
            archive(others, url)
        assert {one.name for one in open_store(url).list("")} == kept
        made = archive(others, f"{url}-of-others")
        assert [restore(*each).batch for each in (
            (url, tmp_path / "mine"), (f"{url}-of-others", tmp_path / "others"),
        )] == [list_points(url)[0].batch, made.batch]  # fmt: skip
        moved = shutil.copytree(mine, tmp_path / "moved")
        assert archive(moved, url).new_files == 0  # the same query, wherever it runs

    def test_a_batch_that_is_gone(self, golden: Golden, url: str) -> None:
        with pytest.raises(InvalidRequestError, match="can't go back to batch 999"):
            archive(golden("hdfs"), url, batch=999)
        assert list_points(url) == []


class TestDamage:
    @pytest.fixture
    def made(self, golden: Golden, file_url: str) -> Archived:
        return archive(golden("hdfs"), file_url)

    def test_every_bit_of_a_file_counts(
        self, made: Archived, tmp_path: Path, file_url: str
    ) -> None:
        for file in stored(tmp_path)[-3:]:
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

    def test_a_file_of_another_size_is_sent_again(
        self, made: Archived, tmp_path: Path, file_url: str
    ) -> None:
        files = stored(tmp_path)
        files[0].write_bytes(files[0].read_bytes()[:-1])
        files[1].unlink()
        assert archive(tmp_path / "hdfs", file_url).new_files == 2
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
            bad = snapshots.SnapshotTree("x", [], [snapshots.SnapshotFile(path, 4, data=b"evil")])
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
        with pytest.raises(InvalidRequestError, match="pass the keyring"):
            restore(url, tmp_path / "back")
        with pytest.raises(InvalidRequestError, match="pass the keyring"):
            archive(path, url)
        with pytest.raises(InvalidRequestError, match="encrypted under another"):
            restore(url, tmp_path / "back", keyring=Keyring({"old": bytes(32)}, "old"))
        assert repository.rotate(store, new) == 1
        assert repository.rotate(store, new) == 0
        restore(url, tmp_path / "back", keyring=Keyring({"new": NEW["new"]}, "new"))
        assert verify(tmp_path / "back").latest == made.batch

    def test_a_flipped_bit(self, golden: Golden, file_url: str, tmp_path: Path) -> None:
        ring = Keyring(OLD, "old")
        archive(golden("hdfs"), file_url, keyring=ring)
        file = stored(tmp_path)[-1]
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


class TestCrashes:
    """The store and the machine fail; what was archived stays restorable, and nothing is torn."""

    @pytest.fixture
    def buckets(self, monkeypatch: pytest.MonkeyPatch, clock: ManualClock) -> list[Any]:
        current: list[Any] = [FaultStore(Bucket(), clock)]

        def opened(url: str, storage_options: Any = None) -> ObjectStore:
            return current[0]

        for module in (archiving, restoring):
            monkeypatch.setattr(module, "open_store", opened)
        return current

    def test_an_archiving_that_is_killed_at_any_request(
        self, golden: Golden, buckets: list[Any], clock: ManualClock, tmp_path: Path
    ) -> None:
        path, points = golden("hdfs"), list[int]()
        first = archive(path, "any", batch=9, threads=1, clock=clock)
        before = copy.deepcopy(buckets[0].bucket)
        for number, after in crash_points(50):
            store = buckets[0] = FaultStore(copy.deepcopy(before), clock, part_bytes=500)
            store.crash_at(number, after=after)
            with contextlib.suppress(SimulatedKill):
                archive(path, "any", batch=13, threads=1, clock=clock)
            buckets[0] = store.reopen()
            held = list_points("any")
            assert held[0].name == first.point
            points.append(len(held))
            again = archive(path, "any", batch=13, threads=1, clock=clock)
            whole = [effect for effect in store.effects if effect.startswith(("put f", "finish f"))]
            assert again.new_files + len(whole) == 4
            for point in list_points("any"):
                restore("any", tmp_path / "back", point=point.name, threads=1)
                assert verify(tmp_path / "back").latest == point.batch
                shutil.rmtree(tmp_path / "back")
            if not store.requests.dead:
                break
        assert points == [1] * (len(points) - 2) + [2, 2]  # the snapshot is the last request
        assert number > 8

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
        ({"path": "s3://bucket/checkpoint"}, "on a local disk"),
        ({"threads": 0}, "threads must be at least 1"),
        ({"batch": 3}, "not the checkpoint of a query, so it has no batches"),
        ({"log": "log"}, "not the checkpoint of a query"),
        ({"url": "tree/archive"}, "is inside .*tree, which is to be archived"),
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
    (staged,) = archiving._staging_directories(LOCAL, [home])._targets
    own = tmp_path / f"sparklog-{os.getuid()}"
    assert Path(staged).parent == own
    assert own.stat().st_mode & 0o777 == 0o700
    for planted in (0o777, 0o750):
        own.chmod(planted)
        with pytest.raises(StorageUnavailableError, match=r"mode 700\): remove it, or set"):
            archiving._staging_directories(LOCAL, [home])
    own.rmdir()
    assert Path(archiving._staging_directories(LOCAL, [home])._targets[0]).parent == own
    own.rmdir()
    (tmp_path / "theirs").mkdir(mode=0o700)
    own.symlink_to(tmp_path / "theirs")
    with pytest.raises(StorageUnavailableError, match="TMPDIR"):
        archiving._staging_directories(LOCAL, [home])
    monkeypatch.undo()
    (tmp_path / "mine").mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "mine"))
    monkeypatch.setattr(archiving.tempfile, "tempdir", None)
    monkeypatch.setattr(archiving.os, "access", lambda *_: False)
    (staged,) = archiving._staging_directories(LOCAL, [home])._targets
    assert Path(staged).parent == tmp_path / "mine" / own.name
