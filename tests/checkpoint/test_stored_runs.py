"""The ledger of a checkpoint in runs, as Python reads it: what can be wrong with its objects."""

import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from sparklog.checkpoint import history
from sparklog.checkpoint.stored_runs import HOME, RunFiles, run_files
from sparklog.errors import DataCorruptionError, InvalidRequestError
from sparklog.format.batch import encode_one
from sparklog.format.decoder import Decoder
from sparklog.format.scan import scan
from sparklog.testing import FaultStore
from sparklog.tiered import Store, open_store
from sparklog.tiered.object_store.store import WHOLE_BYTES_MAX, StoredObject
from tests.checkpoint.simulated_driver import add_entries
from tests.checkpoint.test_stored_files import put_all
from tests.depth import by_depth
from tests.jvm.conftest import probe
from tests.jvm.probe import Probe, pack

__all__ = ["probe"]

FILES = {
    "metadata": b'{"id":"11111111-2222-3333-4444-555555555555"}',
    **{f"offsets/{n}": b"v1\n{}\n%d" % n for n in range(9)},
    **{f"commits/{n}": b"v1\n{}" for n in range(9)},
    "state/0/0/SSTs/a.sst": bytes(range(256)) * 100,
}


@pytest.fixture(scope="module")
def objects(probe: Probe, tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """The objects of a checkpoint with FILES, in three runs."""
    directory = tmp_path_factory.mktemp("checkpoint") / "runs"
    fields = [field for name, data in FILES.items() for field in (name.encode(), data)]
    probe.call("files in runs", pack([str(directory).encode(), *fields]))
    store = open_store(f"memory://{uuid.uuid4().hex}/checkpoint")
    put_all(store, directory)
    return {listed.name: store.get(listed.name) for listed in store.list()}


def store_with(objects: dict[str, bytes]) -> FaultStore:
    store = FaultStore()
    for name, data in objects.items():
        store.put(name, data)
    return store


def contents(store: Store) -> dict[str, bytes]:
    files = run_files(store)
    assert files is not None
    return {listed.name: files.get(listed.name) for listed in files.list()}


def test_all_files_are_read(objects: dict[str, bytes]) -> None:
    assert contents(store_with(objects)) == FILES
    assert len({name for name in objects if name.endswith("/0000000000")}) == 3
    assert any("/pack-" in name for name in objects)


def test_ranges_of_files(objects: dict[str, bytes]) -> None:
    files = run_files(store_with(objects))
    assert files is not None
    listed = {each.name: each for each in files.list()}
    assert listed["offsets/3"].size == len(FILES["offsets/3"])
    assert files.get("state/0/0/SSTs/a.sst", 1, 4) == b"\1\2\3"
    with pytest.raises(FileNotFoundError):
        files.get("offsets/999")
    missing, found = files.get_many(["offsets/999", "offsets/1"], limit=100)
    assert isinstance(missing, FileNotFoundError)
    assert found == FILES["offsets/1"]


def test_a_large_index(objects: dict[str, bytes], monkeypatch: pytest.MonkeyPatch) -> None:
    """The index may have more bytes than the store returns unless it is told to."""
    store = store_with(objects)
    get_many = store.get_many

    def limited(names: Sequence[str], *, limit: int = WHOLE_BYTES_MAX) -> list[bytes | Exception]:
        assert limit > 2 * WHOLE_BYTES_MAX, names
        return get_many(names, limit=limit)

    monkeypatch.setattr(store, "get_many", limited)
    assert contents(store) == FILES


def test_damage(objects: dict[str, bytes]) -> None:
    """What is changed, cut, swapped or deleted is reported until it is restored, or is not read."""
    reported = list[tuple[str, bytes | None, Any]]()
    for name, data in objects.items():
        if name == "metadata":
            continue
        step = by_depth(small=151, ci=29, all=1)
        bad = [data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :] for at in range(0, 400, step)
               if at < len(data)]  # fmt: skip
        bad += [data[: len(data) // 2], data + b"\0", b""]
        others = [other for key, other in objects.items() if key not in (name, HOME)]
        bad += others[:: by_depth(small=9, ci=3, all=1)]
        for each in [*bad, None]:
            store = store_with({**objects, name: each or b""})
            if each is None:
                store.delete([name])
            try:
                found = contents(store) if run_files(store) is not None else FILES
            except (DataCorruptionError, InvalidRequestError) as error:
                reported.append((name, each, error))
                store.put(name, data)
                found = contents(store)
            assert found == FILES, name
    for _, _, error in reported:
        assert error.path.startswith("fault://"), error
    assert len(reported) > 100


def test_a_run_without_its_first_entry(objects: dict[str, bytes]) -> None:
    """The run before it has an older content, which must not be taken for the newest."""
    store = store_with(objects)
    add_entries(store, {"offsets/9": b"v1"}, {"commits/9": b"v1"})
    first = max(name for name in objects if name.endswith("/0000000000"))
    entry = store.get(first)
    store.delete([first])
    with pytest.raises(DataCorruptionError, match="restore the object from a copy") as error:
        contents(store)
    assert error.value.path == f"{store.url}/{first}"
    store.put(first, entry)
    assert contents(store) == {**FILES, "offsets/9": b"v1", "commits/9": b"v1"}


def test_a_later_format(objects: dict[str, bytes]) -> None:
    header = encode_one(b"sparklog.home", b'{"format": 2, "id": "x"}', timestamp=1, base_sequence=0)
    store = store_with({**objects, HOME: bytes(header)})
    with pytest.raises(InvalidRequestError, match="use a later version of sparklog"):
        run_files(store)


def test_a_driver_ends_the_run_meanwhile(
    objects: dict[str, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Objects of the older run vanish after the listing: the reader lists again."""
    store, lists = store_with(objects), 0
    newest = max(name for name in objects if name.endswith("/0000000000"))
    older = {name for name in objects if name >= newest.removesuffix("/0000000000")}
    found = store.list

    def stale(*given: str, **named: str) -> list[StoredObject]:
        nonlocal lists
        lists += 1
        now = found(*given, **named)
        return [each for each in now if each.name not in older] if lists == 1 else now

    monkeypatch.setattr(store, "list", stale)
    gone = [name for name in objects if "/index-" in name]
    kept = max(gone)
    store.delete([name for name in gone if name != kept])
    files = RunFiles(store, objects[HOME])
    assert {each.name for each in files.list()} == FILES.keys()
    assert lists == 2


def test_a_file_that_the_end_of_a_run_moved(
    objects: dict[str, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its object is gone: the ledger is read again, once."""
    store = store_with(objects)
    files = run_files(store)
    assert files is not None
    files.list()
    monkeypatch.setattr("sparklog.checkpoint.stored_runs._MEMORY_BYTES", 0)
    path, gone = "state/0/0/SSTs/a.sst", store.get
    (pack_name,) = {name for name in objects if "/pack-" in name}
    other = f"{pack_name}-moved"

    def moved(name: str, *given: int, **named: int) -> bytes:
        if name == pack_name:
            raise FileNotFoundError(2, "there is no such object", name)
        return gone(name, *given, **named)

    monkeypatch.setattr(store, "get", moved)
    for _ in range(2):  # also without a listing
        with pytest.raises(DataCorruptionError, match="an object of the checkpoint is missing"):
            files.get(path)
    files = RunFiles(store, objects[HOME])
    files.list()
    for name, data in objects.items():
        if pack_name.encode() in data:
            store.put(name, restated(data, pack_name, other))
    store.put(other, objects[pack_name])
    assert files.get(path) == FILES[path]


def restated(data: bytes, old: str, new: str) -> bytes:
    """Return the record batches of an object that refers to another object instead."""
    out, at = b"", 0
    for row in scan(data, path="").table:
        batch = data[at : at + int(row["size"])]
        at += int(row["size"])
        if old.encode() in batch:
            decoder = Decoder(["key", "value"])
            decoder.add(batch, 0, row, path="")
            ((key, value),) = (tuple(r.values()) for r in decoder.finish().to_pylist())
            batch = bytes(
                encode_one(
                    key, value.replace(old.encode(), new.encode()),
                    timestamp=int(row["max_timestamp"]), base_sequence=int(row["base_sequence"]),
                )
            )  # fmt: skip
        out += batch
    return out


def test_files_are_in_memory_once(objects: dict[str, bytes]) -> None:
    """However often the ledger is read."""
    store = store_with(objects)
    files = run_files(store)
    assert files is not None
    for _ in range(4):
        files.list()
    asked = store.counts.gets
    for name in ("offsets/8", "commits/8"):
        assert files.get(name) == FILES[name]
    assert store.counts.gets == asked


def test_an_empty_checkpoint(objects: dict[str, bytes], tmp_path: Path) -> None:
    """A query that was started and has written nothing yet."""
    url = f"memory://{uuid.uuid4().hex}/checkpoint"
    open_store(url).put(HOME, objects[HOME])
    with pytest.raises(InvalidRequestError, match="is not the checkpoint of a streaming query"):
        history(url)
