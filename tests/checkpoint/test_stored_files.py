"""Checkpoints that Spark keeps in a bucket: read, verified, and copied to a disk."""

import hashlib
import importlib
import os
import tempfile
import uuid
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from sparklog.checkpoint import (
    archive,
    changes,
    fork,
    history,
    import_,
    reset,
    restore,
    stored_files,
    verify,
)
from sparklog.checkpoint.spark_files.state_stores import DEFAULT_STORE
from sparklog.checkpoint.stored_files import AHEAD_FILES, StoredFiles
from sparklog.checkpoint.truncated_copy import CopyStats, copy_truncated
from sparklog.cli.app import run
from sparklog.errors import (
    InvalidRequestError,
    LogLockedError,
    SparklogError,
    StorageUnavailableError,
)
from sparklog.fs import read_bytes
from sparklog.testing import FaultStore
from sparklog.tiered import Store, open_store
from sparklog.tiered.object_store.store import StoredObject
from tests.checkpoint.conftest import GAPS, NAMES, Golden
from tests.checkpoint.views import tree
from tests.depth import by_depth
from tests.jvm.conftest import probe
from tests.jvm.probe import Probe, pack
from tests.tiered.s3 import S3Server

__all__ = ["probe"]

Keep = Callable[[Path], str]
ALL = [*NAMES, *sorted(GAPS)]
COPIED = by_depth(small=["hdfs", "ids", "join", "async"], ci=ALL, all=ALL)


def put_all(store: Store, directory: Path, *, marks: bool = False) -> None:
    """Upload a directory; `marks`: with an empty object per directory, as Hadoop's S3A writes."""
    for path in sorted(directory.rglob("*")):
        name = str(path.relative_to(directory))
        if path.is_dir():
            if marks:
                store.put(f"{name}/", b"")
        elif not path.name.startswith("."):
            store.put(name, path.read_bytes())


@pytest.fixture
def keep() -> Keep:
    """Upload a checkpoint; return its URL."""

    def upload(directory: Path) -> str:
        url = f"memory://{uuid.uuid4().hex}/checkpoint"
        put_all(open_store(url), directory)
        return url

    return upload


@pytest.fixture(params=["files", "runs"])
def kept(request: pytest.FixtureRequest, keep: Keep, tmp_path: Path) -> Keep:
    """Upload a checkpoint as files, or as sparklog's manager keeps it; return its URL."""
    if request.param == "files":
        return keep
    probe: Probe = request.getfixturevalue("probe")

    def upload(directory: Path) -> str:
        files = [file for file in tree(directory).items() if not Path(file[0]).name.startswith(".")]
        runs = tmp_path / "runs"
        fields = [str(runs).encode()]
        fields += [field for name, data in files for field in (name.encode(), data)]
        probe.call("files in runs", pack(fields))
        return keep(runs)

    return upload


def shown(path: str | Path) -> list[dict[str, Any]]:
    """The batches of a history without what a copy has of its own: the time of the commit."""
    return [{**row.to_dict(), "committed": None} for row in history(path).batches]


@pytest.mark.parametrize("name", COPIED)
def test_the_same_as_on_a_disk(name: str, golden: Golden, kept: Keep, tmp_path: Path) -> None:
    """History, verification, and a fork, of each kind of state that Spark writes."""
    path = golden(name)
    url = kept(path)
    assert shown(url) == shown(path)
    found, local = history(url), history(path)
    assert (found.query_id, found.query_name, found.is_log_backed, found.path) == (
        local.query_id, local.query_name, False, url
    )  # fmt: skip
    assert all(row.committed_ms for row in found.batches if row.obstacle is None)
    report, expected = verify(url), verify(path)
    assert (report.ok, report.counts()) == (True, expected.counts())
    assert (report.batches, report.stores) == (expected.batches, expected.stores)
    batch = max(row.batch for row in found.batches if row.obstacle is None)
    copy, by_links = tmp_path / "copy", tmp_path / "by-links"
    done = fork(url, copy, to=batch)
    assert (done.path, done.linked_files) == (url, 0)
    fork(path, by_links, to=batch)
    expected_files = {
        file: data.replace(str(by_links).encode(), str(copy).encode())
        for file, data in tree(by_links).items()
        if not Path(file).name.startswith(".")
    }
    assert tree(copy) == expected_files
    assert done.copied_bytes <= sum(map(len, tree(copy).values()))
    assert verify(copy).ok
    times = {row.batch: row.committed_ms for row in found.batches}
    assert history(copy).batches[-1].committed_ms == times[batch]


@pytest.mark.parametrize("name", ["hdfs", "changelog", "ids", "join"])
def test_changes_of_state(name: str, golden: Golden, kept: Keep) -> None:
    path = golden(name)
    store = "left-keyToNumValues" if name == "join" else DEFAULT_STORE
    assert changes(kept(path), store=store).read_all() == changes(path, store=store).read_all()


@pytest.mark.deep
def test_a_bucket_of_a_server(golden: Golden, s3: S3Server, tmp_path: Path) -> None:
    """By S3's protocol, with the scheme of Hadoop's connector and with options."""
    path = golden("ids")
    url, options = s3.bucket() + "/query", s3.options()
    put_all(open_store(url, options), path)
    named = url.replace("s3://", "s3a://")
    for given in (url, named, named + "/"):
        assert [row.batch for row in history(given, storage_options=options).batches] == [
            row.batch for row in history(path).batches
        ]
    assert verify(named, storage_options=options).ok
    fork(named, tmp_path / "copy", to=2, storage_options=options)
    assert verify(tmp_path / "copy").ok


# -- requests ----------------------------------------------------------------------------------


@pytest.fixture
def counted(store: FaultStore, monkeypatch: pytest.MonkeyPatch) -> FaultStore:
    """The store of every URL, which counts its requests and fails if it is told to."""
    monkeypatch.setattr(stored_files, "open_store", lambda url, options: store)
    return store


def many_batches(store: FaultStore, number: int) -> None:
    store.put("metadata", b'{"id":"7b5c0c0e-8a0c-4b0e-9d0a-3f0a1b2c3d4e"}')
    for batch in range(number):
        plan = f'v1\n{{"batchWatermarkMs":0,"batchTimestampMs":{batch + 1},"conf":{{}}}}\n{batch}'
        store.put(f"offsets/{batch}", plan.encode())
        store.put(f"commits/{batch}", b'v1\n{"nextBatchWatermarkMs":0}')


def test_files_in_order_are_fetched_together(
    counted: FaultStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked_together: list[Sequence[str]] = []
    get_many = counted.get_many

    def noted(names: Sequence[str], **given: int) -> list[bytes | Exception]:
        asked_together.append(names)
        return get_many(names, **given)

    monkeypatch.setattr(counted, "get_many", noted)
    many_batches(counted, 300)
    files = StoredFiles(counted)
    names = files.listdir(f"{counted.url}/offsets")
    assert len(names) == 300
    asked = counted.counts.gets
    for name in names:
        assert read_bytes(files, f"{counted.url}/offsets/{name}").endswith(f"\n{name}".encode())
    assert counted.counts.lists == 1
    assert counted.counts.gets - asked == 300
    assert max(map(len, asked_together)) == AHEAD_FILES


def test_what_is_large_is_fetched_in_parts(counted: FaultStore) -> None:
    """A range of a file is read without the rest of it."""
    counted.put("a", bytes(range(200)))
    files = StoredFiles(counted)
    with files.open(f"{counted.url}/a") as file:
        assert file.pread(3, 150) == bytes([150, 151, 152])
        assert (file.pread(9, 195), file.pread(9, 200)) == (bytes(range(195, 200)), b"")


def test_a_file_that_a_query_adds_is_seen_by_the_next_listing(counted: FaultStore) -> None:
    many_batches(counted, 3)
    files = StoredFiles(counted)
    assert files.exists(f"{counted.url}/offsets/2")
    counted.put("offsets/3", b"new")
    assert not files.exists(f"{counted.url}/offsets/3")
    assert files.listdir(counted.url) == ["commits", "metadata", "offsets"]
    assert not files.exists(f"{counted.url}/offsets/3")  # the listing was not used up before
    files.listdir(counted.url)
    assert files.exists(f"{counted.url}/offsets/3")


def test_an_object_that_stands_for_a_directory_is_no_file(
    counted: FaultStore, golden: Golden, tmp_path: Path
) -> None:
    path = golden("hdfs")
    put_all(counted, path, marks=True)
    assert "state/0/" in counted.bucket.objects
    assert shown("s3://b/checkpoint") == shown(path)
    assert verify("s3://b/checkpoint").files == verify(path).files
    fork("s3://b/checkpoint", tmp_path / "copy", to=12)
    assert verify(tmp_path / "copy").ok


# -- what can be wrong -------------------------------------------------------------------------


def test_a_query_removes_files_meanwhile(
    counted: FaultStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark keeps a hundred batches: what it removed is left out, or the copy is refused."""
    gone: list[str] = []
    found = counted.list

    def removing(*given: Any, **named: Any) -> list[StoredObject]:
        before = found(*given, **named)
        counted.delete(gone)
        return before

    def forked(*removed: str) -> None:
        """Fork the checkpoint, and remove files while they are copied."""

        def copy(*given: Any, **named: Any) -> CopyStats:
            gone[:] = removed
            return copy_truncated(*given, **named)

        many_batches(counted, 5)
        gone.clear()
        module = importlib.import_module("sparklog.checkpoint.fork")
        with monkeypatch.context() as patch:
            patch.setattr(module, "copy_truncated", copy)
            fork("s3://b/checkpoint", tmp_path / "copy", to=4)

    monkeypatch.setattr(counted, "list", removing)
    with pytest.raises(LogLockedError, match="the query removed files that batch 4 needs"):
        forked("offsets/4", "commits/4")
    assert not list(tmp_path.iterdir())
    forked("offsets/0", "commits/0")
    assert not {"offsets/0", "commits/0"} & tree(tmp_path / "copy").keys()
    assert [row.batch for row in history(tmp_path / "copy").batches] == [1, 2, 3, 4]
    many_batches(counted, 5)
    gone[:] = ["offsets/4", "commits/4"]
    assert [row.batch for row in history("s3://b/checkpoint").batches] == [0, 1, 2, 3]


@pytest.mark.parametrize("kind", ["empty", "other", "a file"])
def test_it_is_no_checkpoint(kind: str, counted: FaultStore) -> None:
    if kind == "other":
        counted.put("table/part-0.parquet", b"rows")
    if kind == "a file":
        counted.put("commits", b"")
    with pytest.raises(InvalidRequestError, match="is not the checkpoint of a streaming query"):
        history("s3://b/checkpoint")


def test_a_copied_log_is_read_on_a_disk(golden: Golden, keep: Keep, tmp_path: Path) -> None:
    """As the message advises."""
    path = golden("stateless")
    import_(path)
    url = keep(path)
    with pytest.raises(InvalidRequestError, match="copy all files below the URL to a directory"):
        verify(url)
    store, copy = open_store(url), tmp_path / "copy"
    for listed in store.list():
        target = copy / listed.name
        if not listed.name.endswith("/"):
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(store.get(listed.name))
    assert verify(copy).ok


def test_a_reset_of_files_is_refused(
    golden: Golden, keep: Keep, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The message names two commands, each of which makes a checkpoint that can be reset."""
    monkeypatch.setattr("sparklog.checkpoint.running_query.QUIET_MS", 0)  # it was just uploaded
    path = golden("stateless")
    url = keep(path)
    last = max(row.batch for row in history(path).batches if row.obstacle is None)
    for advice in ("`sparklog checkpoint import`", "sparklog.checkpoint.fork"):
        with pytest.raises(InvalidRequestError, match=advice):
            reset(url, to=last - 1)
    assert shown(url) == shown(path)
    copy = tmp_path / "copy"
    fork(url, copy, to=last)
    reset(copy, to=last - 1)
    assert history(copy).batches[-1].batch == last - 1
    assert run(["checkpoint", "import", url]) == 0
    reset(url, to=last - 1)
    assert shown(url) == shown(copy)


@pytest.mark.parametrize("name", ["hdfs", "ids"])
def test_an_archive_of_it(name: str, golden: Golden, kept: Keep, tmp_path: Path) -> None:
    """What is restored is the same as a fork at the newest committed batch."""
    path, archived = golden(name), f"memory://{uuid.uuid4().hex}/archive"
    url, work = kept(path), tmp_path / "work"
    first = archive(url, archived)
    assert archive(url, archived).new_files == 0
    restore(archived, work)
    os.rename(work, tmp_path / "restored")
    assert first.batch is not None
    fork(url, work, to=first.batch)
    assert tree(tmp_path / "restored") == tree(work)
    working = Path(tempfile.gettempdir(), f"sparklog-{os.getuid()}")
    own = hashlib.sha256(url.encode()).hexdigest()[:8]
    assert not list(working.glob(f".checkpoint-{own}*"))
    for other, message in (
        (f"{url}/archive", "overlap"),
        (url, "overlap"),
        (url.removesuffix("/checkpoint"), "overlap"),
    ):
        with pytest.raises(InvalidRequestError, match=message):
            archive(url, other)
    with pytest.raises(InvalidRequestError, match="is not the checkpoint of a streaming query"):
        archive(f"{url}/nothing", archived)


def test_damage_is_found_with_its_place(golden: Golden, keep: Keep) -> None:
    path = golden("hdfs")
    url = keep(path)
    name = next(n for n in sorted(tree(path)) if n.endswith(".delta") and "/." not in n)
    store = open_store(url)
    store.put(name, store.get(name)[:-3])
    report = verify(url)
    assert not report.ok
    assert [finding.file for finding in report.findings if finding.severity == "damage"] == [
        f"{url}/{name}"
    ]


def test_a_store_that_fails(counted: FaultStore, tmp_path: Path) -> None:
    many_batches(counted, 4)
    calls: list[Callable[[], object]] = [
        lambda: history("s3://b/checkpoint"),
        lambda: verify("s3://b/checkpoint"),
        lambda: fork("s3://b/checkpoint", tmp_path / "copy", to=2),
    ]
    for call in calls:
        counted.refuse()
        with pytest.raises(StorageUnavailableError, match="fault://bucket"):
            call()
        counted.refuse(False)
        assert not list(tmp_path.iterdir())
    for call in calls:
        call()


def test_a_wrong_url(tmp_path: Path) -> None:
    for url, message in (
        ("s3:bucket/checkpoint", "got 's3:bucket/checkpoint'"),
        ("nosuch://bucket/checkpoint", "nosuch"),
        ("s3://a/x,s3://b/y", "single URL"),
    ):
        with pytest.raises(SparklogError, match=message):
            history(url)


def test_each_kind_is_named(
    golden: Golden, keep: Keep, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The result, its JSON and its text say how the checkpoint is stored."""
    monkeypatch.setattr("sparklog.checkpoint.running_query.QUIET_MS", 0)  # it was just uploaded
    path = golden("stateless")
    url = keep(path)
    for place, kind in ((path, "files"), (url, "files"), (path, "log-backed"), (url, "in runs")):
        if kind != "files":
            import_(place)
        found, report = history(place), verify(place)
        assert (found.kind, report.kind) == (kind, kind)
        for document in (found.to_dict(), report.to_dict()):
            assert document["kind"] == kind
            assert document["log_backed"] == (kind == "log-backed")
        assert f"({kind})" in found._repr_html_()
        assert run(["checkpoint", "history", str(place)]) == 0
        assert f"({kind}), query" in capsys.readouterr().out


def test_commands(golden: Golden, keep: Keep, capsys: pytest.CaptureFixture[str]) -> None:
    url = keep(golden("stateless"))
    for words in (["history", url, "--json"], ["history", url], ["verify", url]):
        assert run(["checkpoint", *words]) == 0
        assert url in capsys.readouterr().out
    assert run(["checkpoint", "history", f"{url}/gone"]) == 2
    assert "use the query's checkpointLocation" in capsys.readouterr().err
