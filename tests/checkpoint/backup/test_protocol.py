"""The protocol of backups: no locks, files that are never changed, lifecycle rules that delete."""

import hashlib
import json
import os
import random
import re
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sparklog.checkpoint.backup import archiving, repository, restoring, snapshots
from sparklog.checkpoint.backup.archiving import archive
from sparklog.checkpoint.backup.restoring import list_points, restore
from sparklog.checkpoint.backup.upload import DAY_MS
from sparklog.clock import ManualClock
from sparklog.errors import InvalidRequestError, StorageUnavailableError
from sparklog.testing.faultstore import Bucket, FaultStore
from sparklog.tiered.keyring import Keyring
from tests.paths import ROOT

RING = Keyring({"old": bytes(range(32))}, "old")
RINGS = pytest.mark.parametrize("ring", [None, RING], ids=["plain", "encrypted"])
RULES = json.loads(
    re.findall(r"lifecycle\.json\"\n(.*?)```", (ROOT / "docs/replay.md").read_text(), re.DOTALL)[0]
)["Rules"]


class Watched(FaultStore):
    """A store that calls `on_call` with each operation and name."""

    on_call: Callable[[str, str], None] = staticmethod(lambda kind, name: None)

    def put_stream(self, name: str, pieces: Any, size: int) -> None:
        self.on_call("before put", name)
        super().put_stream(name, pieces, size)
        self.on_call("put", name)

    def get(self, name: str, start: int = 0, end: int | None = None, **given: int) -> bytes:
        self.on_call("get", name)
        return super().get(name, start, end, **given)


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch, clock: ManualClock) -> Watched:
    store = Watched(Bucket(), clock)
    for module in (archiving, restoring):
        monkeypatch.setattr(module, "open_store", lambda *_: store)
    return store


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "tree"
    root.mkdir()
    for name in "abc":
        (root / name).write_bytes(os.urandom(1000))
    return root


def contents(root: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in root.iterdir()}


def restored(tmp_path: Path, point: str, ring: Keyring | None = None) -> dict[str, bytes]:
    back = tmp_path / f"back-{random.randrange(1 << 60)}"
    restore("any", back, point=point, threads=1, keyring=ring)
    return contents(back)


@RINGS
def test_two_backups_at_a_time(
    store: Watched, root: Path, tmp_path: Path, clock: ManualClock, ring: Keyring | None
) -> None:
    """The second one begins and ends within the first, at each request of it; both are whole."""
    other = tmp_path / "other"
    other.mkdir()
    for at in range(8):
        shared = os.urandom(1000)
        for directory in (root, other):
            (directory / "shared").write_bytes(shared)
        calls, second = 0, ""

        def meanwhile(kind: str, name: str, at: int = at) -> None:
            nonlocal calls, second
            calls += 1
            if calls == at + 1:
                store.on_call = lambda kind, name: None
                second = archive(other, "any", threads=1, keyring=ring, clock=clock).point

        store.on_call = meanwhile
        first = archive(root, "any", threads=1, keyring=ring, clock=clock).point
        store.on_call = lambda kind, name: None
        assert restored(tmp_path, first, ring) == contents(root)
        if second:
            assert restored(tmp_path, second, ring) == contents(other)
    assert len(list_points("any")) > 10


def test_two_backups_in_threads(
    store: Watched, root: Path, tmp_path: Path, clock: ManualClock
) -> None:
    """Both have found the shared file missing before one of them uploads it."""
    other = tmp_path / "other"
    other.mkdir()
    (other / "a").write_bytes((root / "a").read_bytes())
    name = repository.Repository(store).name(hashlib.sha256((root / "a").read_bytes()).digest())
    both, points = threading.Barrier(2, timeout=30), dict[Path, str]()

    def meanwhile(kind: str, uploaded: str) -> None:
        if (kind, uploaded) == ("before put", name):
            both.wait()

    store.on_call = meanwhile

    def run(directory: Path) -> None:
        points[directory] = archive(directory, "any", threads=1, clock=clock).point

    threads = [threading.Thread(target=run, args=(directory,)) for directory in (root, other)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    store.on_call = lambda kind, name: None
    for directory in (root, other):
        assert restored(tmp_path, points[directory]) == contents(directory)


@RINGS
def test_a_restore_beside_a_backup_that_uploads_all_again(
    store: Watched, root: Path, tmp_path: Path, clock: ManualClock, ring: Keyring | None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """A file of several pieces is uploaded between two of them."""
    for module in ("upload", "snapshots"):
        monkeypatch.setattr(f"sparklog.checkpoint.backup.{module}.PIECE_BYTES", 300)
    wanted = contents(root)
    point = archive(root, "any", threads=1, keyring=ring, clock=clock).point
    before = {name: data for name, (data, _) in store.bucket.objects.items()}
    clock.advance(30 * DAY_MS)
    uploads = list[int]()

    def meanwhile(kind: str, name: str) -> None:
        if kind == "get" and name.startswith("files/"):
            store.on_call = lambda kind, name: None
            made = archive(root, "any", threads=1, keyring=ring, clock=clock)
            uploads.append(made.new_files)
            clock.advance(30 * DAY_MS)
            store.on_call = meanwhile

    store.on_call = meanwhile
    assert restored(tmp_path, point, ring) == wanted
    assert uploads == [3] * 12
    after = {name: data for name, (data, _) in store.bucket.objects.items()}
    assert {name: after[name] for name in before} == before  # the same bytes, encrypted too


def expire(store: Watched, clock: ManualClock) -> None:
    """Apply the tightest rules that are allowed, as S3 does: at the first midnight when due."""
    for name, (_, time_ms) in list(store.bucket.objects.items()):
        days = {"points": 30, "files": 30 + 30 + 2}[name.partition("/")[0]]
        if clock() >= -(-(time_ms + days * DAY_MS) // DAY_MS) * DAY_MS:
            del store.bucket.objects[name]


def test_the_rules_of_the_page() -> None:
    rules = {rule["Filter"]["Prefix"]: rule["Expiration"]["Days"] for rule in RULES}
    assert rules.keys() == {"points/points/", "points/files/"}
    assert rules["points/files/"] >= rules["points/points/"] + 30 + 2
    assert {rule["Status"] for rule in RULES} == {"Enabled"}


@pytest.mark.parametrize("seed", range(4))
def test_a_point_has_all_its_files_until_it_expires(
    store: Watched, root: Path, tmp_path: Path, clock: ManualClock, seed: int
) -> None:
    """For a year of backups; each takes up to two days."""
    rng, held = random.Random(seed), dict[str, dict[str, bytes]]()
    refused = list[str]()

    def meanwhile(kind: str, name: str) -> None:
        if kind == "put" and rng.random() < 0.2:
            clock.advance(rng.randrange(DAY_MS))
            expire(store, clock)

    store.on_call = meanwhile
    for _ in range(60):
        clock.advance(rng.randrange(12 * DAY_MS))
        expire(store, clock)
        if rng.random() < 0.7:
            (root / rng.choice("abcdef")).write_bytes(rng.randbytes(1000))
        try:
            made = archive(root, "any", threads=1, clock=clock)
            held[made.point] = contents(root)
        except StorageUnavailableError as error:
            refused.append(str(error))
        expire(store, clock)
        for point in list_points("any"):
            assert restored(tmp_path, point.name) == held[point.name]
    assert all("archive again" in text for text in refused)
    assert len(held) > 40 and len(list_points("any")) < 15


def test_files_are_uploaded_again_once_they_are_old(
    store: Watched, root: Path, clock: ManualClock
) -> None:
    assert archive(root, "any", threads=1, clock=clock).new_files == 3
    clock.advance(9 * DAY_MS)
    assert archive(root, "any", threads=1, clock=clock).new_files == 0
    assert archive(root, "any", threads=1, clock=clock, rewrite_days=9).new_files == 3
    clock.advance(29 * DAY_MS)
    assert archive(root, "any", threads=1, clock=clock).new_files == 0
    clock.advance(DAY_MS)
    slow = ManualClock(clock() - 300 * DAY_MS)  # a machine whose clock is wrong
    (root / "new").write_bytes(os.urandom(1000))
    assert archive(root, "any", threads=1, clock=clock, rewrite_days=100).new_files == 1
    assert archive(root, "any", threads=1, clock=slow).new_files == 3
    with pytest.raises(InvalidRequestError, match="rewrite_days must be at least 1"):
        archive(root, "any", rewrite_days=0)


@pytest.mark.parametrize("how", ["deleted", "too old"])
def test_a_file_that_was_there_when_the_backup_began(
    store: Watched, root: Path, tmp_path: Path, clock: ManualClock, how: str
) -> None:
    archive(root, "any", threads=1, clock=clock)
    clock.advance(29 * DAY_MS)
    held = {name for name in store.bucket.objects if name.startswith("files/")}
    (root / "new").write_bytes(os.urandom(1000))

    def meanwhile(kind: str, name: str) -> None:
        if kind == "put" and how == "deleted":
            del store.bucket.objects[min(held)]
        elif kind == "put":
            clock.advance(2 * DAY_MS)

    store.on_call = meanwhile
    with pytest.raises(StorageUnavailableError, match="no snapshot was written"):
        archive(root, "any", threads=1, clock=clock)
    assert len(list_points("any")) == 1
    store.on_call = lambda kind, name: None
    made = archive(root, "any", threads=1, clock=clock)
    assert made.new_files == (1 if how == "deleted" else 3)
    assert restored(tmp_path, made.point) == contents(root)


def test_a_point_that_expired_since_it_was_chosen(
    store: Watched, root: Path, tmp_path: Path, clock: ManualClock
) -> None:
    archive(root, "any", threads=1, clock=clock)
    (chosen,) = list_points("any")
    second = archive(root, "any", threads=1, clock=clock)
    store.delete([f"points/{chosen.name}"])
    with pytest.raises(InvalidRequestError, match="was deleted; list the snapshots again"):
        snapshots.read(store, chosen, None)
    (left,) = list_points("any")
    assert left.name == second.point
    assert restored(tmp_path, left.name) == contents(root)
