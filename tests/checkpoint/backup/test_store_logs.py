"""Points of a checkpoint and its sink's log where that has its home in a store."""

import base64
import hashlib
import os
import uuid
from pathlib import Path

import pyarrow as pa
import pytest

import sparklog
from sparklog.checkpoint import verify
from sparklog.checkpoint.backup import restoring
from sparklog.checkpoint.backup.archiving import archive
from sparklog.checkpoint.backup.forked_log import ForkedLog
from sparklog.checkpoint.backup.restoring import list_points, restore
from sparklog.checkpoint.history import history
from sparklog.errors import DataCorruptionError, InvalidRequestError, StorageUnavailableError
from sparklog.format.scan import scan
from sparklog.log.commit import Identity
from sparklog.service import Service
from sparklog.service import verify as verify_log
from sparklog.testing.faults import SimulatedKill
from sparklog.tiered.keyring import Keyring
from sparklog.tiered.object_store.object_store import ObjectStore
from sparklog.tiered.object_store.store import Store
from sparklog.tiered.target import open_store
from tests.checkpoint.conftest import Golden
from tests.micro_batches import commit_batch

RING = Keyring({"one": bytes(range(32))}, "one")
STAGED = 600 << 10  # bytes of a record that is too large for an entry


class Places:
    """URLs of one kind for a log, a repository and what is restored; a query's checkpoint."""

    def __init__(self, root: str, path: Path, tmp_path: Path) -> None:
        self.root, self.path, self.tmp_path = root, path, tmp_path
        self.query = history(path).query_id or ""
        self.log, self.points, self.number = f"{root}/log", f"{root}/points", 0

    def write(self, batches: range, *, large: frozenset[int] = frozenset()) -> None:
        with sparklog.open(self.log, mode="rw") as log:
            if "t" not in log.topics():
                log.create_topic("t")
            for batch in batches:
                more = os.urandom(STAGED) if batch in large else b""
                commit_batch(log, self.query, batch, pa.table({"value": [b"%d " % batch + more]}))

    def merge(self, keyring: Keyring | None = None) -> None:
        options = {"diskless.merge.max.extents": 2, "diskless.merge.interval.ms": 1}
        service = Service(self.log, options=options, keyring=keyring)
        service.run_once()
        service.close()
        assert [one for one in open_store(self.log).list("t-0-") if one.name.endswith(".log")]

    def back(self, **given: object) -> tuple[Path, str]:
        """Restore to another machine."""
        self.number += 1
        home = self.tmp_path / f"machine{self.number}"
        home.mkdir()
        url = f"{self.root}/back{self.number}"
        done = restore(self.points, home / "checkpoint", log=url, **given)  # type: ignore[arg-type]
        assert (done.log, done.path) == (url, str(home / "checkpoint"))
        assert os.listdir(home) == ["checkpoint"]
        return home / "checkpoint", url


def values(url: str, keyring: str = "") -> list[bytes]:
    options = {"remote.keyring": keyring} if keyring else {}
    with sparklog.open(url, options=options) as log:
        return list(log.read("t").read_all().column("value").to_pylist())


def numbers(url: str, keyring: str = "") -> list[int]:
    return [int(value.partition(b" ")[0]) for value in values(url, keyring)]


@pytest.fixture(params=["file", "memory"])
def places(request: pytest.FixtureRequest, golden: Golden, tmp_path: Path) -> Places:
    path = golden("changelog")
    if request.param == "file":
        (tmp_path / "store").mkdir()
        return Places(f"file://{tmp_path}/store", path, tmp_path)
    name = hashlib.sha256(f"{tmp_path}{uuid.uuid4()}".encode()).hexdigest()[:12]
    return Places(f"memory://{name}", path, tmp_path)


@pytest.fixture
def in_files(golden: Golden, tmp_path: Path) -> Places:
    (tmp_path / "store").mkdir()
    return Places(f"file://{tmp_path}/store", golden("changelog"), tmp_path)


@pytest.mark.parametrize("merged", [False, True], ids=["pieces", "merged"])
def test_checkpoint_and_log_of_one_batch(places: Places, merged: bool) -> None:
    """What is inline, staged, merged, and merged with what came behind the batch."""
    places.write(range(14), large=frozenset({3, 12}))
    before = values(places.log)
    if merged:
        places.merge()
    held = {one.name: one.size for one in open_store(places.log).list()}
    made = archive(places.path, places.points, batch=11, log=places.log)
    assert (made.batch, made.log) == (11, True)
    assert {one.name: one.size for one in open_store(places.log).list()} == held
    assert sorted(os.listdir(places.tmp_path)) in (["changelog"], ["changelog", "store"])
    ids = set()
    for _ in range(2):  # as often as one likes
        checkpoint, url = places.back()
        assert verify(checkpoint).latest == 11
        assert values(url) == before[:12]
        assert verify_log(url).ok
        assert not open_store(url).list("sparklog.import")
        with sparklog.open(url, mode="rw") as log:
            ids.add(log.topic("t").id)
            assert (
                log.committed(Identity(writer=places.query, batch=11, fingerprint="11")) is not None
            )
            assert log.committed(Identity(writer=places.query, batch=12, fingerprint="12")) is None
            log.append("t", pa.table({"value": [b"99 "]}))
        assert numbers(url) == [*range(12), 99]
    assert len(ids) == 2
    assert restore(places.points, places.tmp_path / "alone").log is None


def test_only_what_is_new_goes(places: Places, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was staged, and segments, under whatever names they come, neither read nor sent."""
    places.write(range(4), large=frozenset({1, 2}))
    places.merge()
    places.write(range(4, 12), large=frozenset({5, 8, 9}))
    first = archive(places.path, places.points, batch=10, log=places.log)
    assert first.new_bytes > 5 * STAGED
    fetched: list[tuple[str, int]] = []
    get = ObjectStore.get

    def counted(
        self: ObjectStore, name: str, start: int = 0, end: int | None = None, **given: int
    ) -> bytes:
        data = get(self, name, start, end, **given)
        if self.url == open_store(places.log).url:
            fetched.append((name, len(data)))
        return data

    monkeypatch.setattr(ObjectStore, "get", counted)
    again = archive(places.path, places.points, batch=10, log=places.log)
    assert (again.bytes // STAGED, again.new_bytes // STAGED, again.read_bytes // STAGED) == (
        5,
        0,
        0,
    )
    assert not [name for name, size in fetched if size > STAGED // 2]
    assert not [name for name, _ in fetched if name.endswith(".manifest")]
    places.write(range(12, 14), large=frozenset({12}))
    third = archive(places.path, places.points, batch=12, log=places.log)
    assert third.new_bytes // STAGED == 1
    monkeypatch.undo()
    assert numbers(places.back(batch=12)[1]) == [*range(13)]


@pytest.mark.parametrize("sealed", [False, True], ids=["plain repository", "sealed repository"])
def test_an_encrypted_log_stays_encrypted(in_files: Places, sealed: bool) -> None:
    pytest.importorskip("cryptography")
    places, ring = in_files, in_files.tmp_path / "ring"
    ring.write_text(f"one {base64.b64encode(bytes(range(32))).decode()}\n")
    places.write(range(12))
    places.merge(RING)
    given = {"keyring": RING} if sealed else {}
    with pytest.raises(InvalidRequestError, match="key"):  # its segment has to be cut
        archive(
            places.path, places.points, batch=9, log=places.log,
            **given,  # type: ignore[arg-type]
        )  # fmt: skip
    assert list_points(places.points) == []
    archive(
        places.path, places.points, batch=9, log=places.log, log_keyring=str(ring),
        **given,  # type: ignore[arg-type]
    )  # fmt: skip
    _, url = places.back(**given)
    assert numbers(url, str(ring)) == [*range(10)]
    with pytest.raises(InvalidRequestError, match="key"):
        numbers(url)
    (segment,) = [one.name for one in open_store(url).list("t-0-") if one.name.endswith(".log")]
    held = scan(open_store(url).get(segment), path=segment)
    assert not len(held.table)  # no batch, as a plain log has them


def test_damage_is_found_before_a_log_is_there(in_files: Places) -> None:
    places = in_files
    places.write(range(12), large=frozenset({3}))
    archive(places.path, places.points, batch=11, log=places.log)
    store = open_store(places.points)
    largest = max(store.list("files/"), key=lambda one: one.size)
    data = store.get(largest.name)
    for bad in (data[:-1] + bytes([data[-1] ^ 1]), data[:-1], None):
        if bad is None:
            store.delete([largest.name])
        else:
            store.put(largest.name, bad)
        with pytest.raises(DataCorruptionError, match=largest.name):
            restore(places.points, places.tmp_path / "back", log=f"{places.root}/back")
        assert not (places.tmp_path / "back").exists()
        with pytest.raises(InvalidRequestError, match="isn't complete yet"):
            sparklog.open(f"{places.root}/back")
    store.put(largest.name, data)
    restore(places.points, places.tmp_path / "back", log=f"{places.root}/back")
    assert numbers(f"{places.root}/back") == [*range(12)]


def test_a_restore_that_is_cut_is_completed_by_the_next(
    places: Places, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once the log is there, and before the checkpoint is."""
    places.write(range(12))
    archive(places.path, places.points, batch=10, log=places.log)
    archive(places.path, places.points, batch=11, log=places.log)

    def killed(*_: object, **__: object) -> None:
        raise SimulatedKill

    back, url = places.tmp_path / "back", f"{places.root}/back"
    with monkeypatch.context() as patch:
        patch.setattr(restoring, "fork_checkpoint", killed)
        with pytest.raises(SimulatedKill):
            restore(places.points, back, log=url)
    assert not back.exists()
    with pytest.raises(InvalidRequestError, match="a log already, created from the log of"):
        restore(places.points, back, log=url, batch=10)
    restore(places.points, back, log=url)
    assert (verify(back).latest, numbers(url)) == (11, [*range(12)])
    with pytest.raises(InvalidRequestError, match="a log already"):
        restore(places.points, back.with_name("other"), log=url)
    assert not back.with_name("other").exists()


def test_objects_that_go_meanwhile(places: Places, monkeypatch: pytest.MonkeyPatch) -> None:
    """A merge whose leftovers were removed between the fork and the reading."""
    places.write(range(12), large=frozenset({3}))
    make = ForkedLog.make
    store: Store = open_store(places.log)
    lost = {one.name: store.get(one.name) for one in store.list("staged-")}

    def made(self: ForkedLog, writer: str, batch: int, keyring: str) -> ForkedLog:
        make(self, writer, batch, keyring)
        store.delete([*lost])
        return self

    with monkeypatch.context() as patch:
        patch.setattr(ForkedLog, "make", made)
        with pytest.raises(StorageUnavailableError, match="Archive again") as caught:
            archive(places.path, places.points, batch=11, log=places.log)
    assert list_points(places.points) == []
    again = "Archive again. If the error persists, run `sparklog verify`"
    with pytest.raises(StorageUnavailableError, match=again):
        archive(places.path, places.points, batch=11, log=places.log)
    assert again in str(caught.value)
    assert any(name in str(verify_log(places.log)) for name in lost)
    for name, data in lost.items():
        store.put(name, data)
    places.merge()
    archive(places.path, places.points, batch=11, log=places.log)
    assert numbers(places.back()[1]) == [*range(12)]


def test_wrong_use(in_files: Places, tmp_path: Path) -> None:
    places = in_files
    with pytest.raises(InvalidRequestError, match="contains no log"):
        archive(places.path, places.points, batch=11, log="memory://nothing-here")
    places.write(range(12))
    with pytest.raises(InvalidRequestError, match="contains the other"):
        archive(places.path, f"{places.log}/points", batch=11, log=places.log)
    with pytest.raises(InvalidRequestError, match="leave_remote applies only to a log in log dirs"):
        archive(places.path, places.points, log=places.log, leave_remote=True)
    with pytest.raises(InvalidRequestError, match="writers"):
        archive(places.path, places.points, batch=11, log=places.log, writer="other")
    assert list_points(places.points) == []
    archive(places.path, places.points, batch=11, log=places.log)
    for path in (tmp_path / "dir", f"file:{tmp_path}/dir"):
        with pytest.raises(InvalidRequestError, match="set log to a URL"):
            restore(places.points, tmp_path / "back", log=path)
    assert numbers(places.back()[1]) == [*range(12)]
    with pytest.raises(InvalidRequestError, match="contains the other"):
        restore(places.points, tmp_path / "back", log=f"{places.points}/back")
    open_store(f"{places.root}/full").put("somebody", b"s")
    with pytest.raises(InvalidRequestError, match="other objects"):
        restore(places.points, tmp_path / "back", log=f"{places.root}/full")
    assert not (tmp_path / "back").exists()


def test_a_log_dir_comes_back_as_one(in_files: Places, tmp_path: Path) -> None:
    places = in_files
    places.log = str(tmp_path / "dir")
    places.write(range(12))
    archive(places.path, places.points, batch=11, log=places.log)
    with pytest.raises(InvalidRequestError, match="set log to a directory"):
        restore(places.points, tmp_path / "back", log=f"{places.root}/back")
    restore(places.points, tmp_path / "back", log=tmp_path / "log")
    assert numbers(str(tmp_path / "log")) == [*range(12)]
