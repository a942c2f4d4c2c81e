"""URLs, packages and options; what fsspec's own file systems do in our hands."""

import datetime
import errno
import importlib
import pickle
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from fsspec.implementations.memory import MemoryFileSystem

from sparklog.clock import system_clock
from sparklog.errors import InvalidRequestError, StorageUnavailableError
from sparklog.tiered.object_store.backoff import Retry
from sparklog.tiered.object_store.fsspec_driver import encoded
from sparklog.tiered.target import open_store

# The package has a table of that name, too.
REGISTRY = importlib.import_module("fsspec.registry")._registry
QUICK = Retry(attempts=3, first_ms=0)


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("/plain/path", "use an fsspec URL"),
        ("s3://", "use an fsspec URL"),
        ("s3://key:topsecret@bucket", "must not contain credentials"),
        ("s3://bucket?secret=topsecret", "must not contain credentials"),
        ("simplecache::s3://bucket", "chained URLs are not supported"),
        ("nosuch://bucket", "nosuch"),
    ],
)
def test_urls_that_are_none(url, why):
    with pytest.raises(InvalidRequestError, match=why) as error:
        open_store(url)
    assert "topsecret" not in str(error.value)


@pytest.mark.parametrize(
    ("url", "module", "named"),
    [
        ("s3://bucket", "s3fs", r"pip install 'sparklog\[s3\]'"),
        ("gs://bucket", "gcsfs", "pip install 'gcsfs'"),
        ("abfs://container", "adlfs", "pip install 'adlfs'"),
        ("memory://x", "fsspec.core", r"pip install 'sparklog\[tiered\]'"),
    ],
)
def test_a_missing_package_is_named(monkeypatch, url, module, named):
    monkeypatch.setitem(sys.modules, module, None)
    monkeypatch.delitem(REGISTRY, url.partition(":")[0], raising=False)
    with pytest.raises(InvalidRequestError, match=named):
        open_store(url)


def test_wrong_bounds():
    for wrong in ({"part_bytes": 0}, {"parallel": 0}):
        with pytest.raises(InvalidRequestError, match="both must be at least 1"):
            open_store("memory://x", **wrong)


def test_a_secret_in_an_options_error_is_not_shown():
    with pytest.raises(InvalidRequestError, match="the URL or the storage options") as error:
        open_store("s3://bucket", {"key": "topsecret", "username": "topsecret", "secret": "hidden"})
    assert "topsecret" not in str(error.value)


def test_a_store_shows_its_url_only():
    store = open_store("s3://bucket/prefix", {"key": "the-key", "secret": "the-secret"})
    assert repr(store) == "<ObjectStore s3://bucket/prefix>"
    assert store.url == "s3://bucket/prefix"


class TestFiles:
    """file://"""

    def test_a_killed_writer_leaves_what_is_not_listed(self, tmp_path: Path) -> None:
        store = open_store(f"file://{tmp_path}", part_bytes=10)
        upload = store._driver.begin("d/a", 20)
        upload.part(1, 0, b"x" * 10, 0)
        assert store.list() == []
        with pytest.raises(FileNotFoundError):
            store.get("d/a")
        assert store.sweep_uploads(system_clock() - 60_000) == 0
        assert store.sweep_uploads(system_clock() + 60_000) == 1
        assert list((tmp_path / "d").iterdir()) == []

    def test_a_reader_keeps_what_it_opened(self, tmp_path: Path) -> None:
        store = open_store(f"file://{tmp_path}")
        store.put("a", b"old")
        with (tmp_path / "a").open("rb") as file:
            store.put("a", b"newer")
            assert file.read() == b"old"
        assert store.get("a") == b"newer"

    def test_a_directory_that_refuses(self, tmp_path: Path) -> None:
        (tmp_path / "a").write_bytes(b"a file, no directory")
        store = open_store(f"file://{tmp_path}/a")
        with pytest.raises(StorageUnavailableError, match=str(tmp_path)):
            store.put("b/c", b"x")

    @pytest.mark.parametrize("root", ["file:///", "file:/", "local:///"])
    def test_the_root_directory(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, root: str
    ) -> None:
        (tmp_path / "a").write_bytes(b"content")
        monkeypatch.chdir(tmp_path)
        store = open_store(root)
        assert store.get(f"{tmp_path}/a".lstrip("/")) == b"content"
        with pytest.raises(FileNotFoundError):
            store.get("a")  # the current directory

    def test_parts_lie_where_they_belong(self, tmp_path: Path) -> None:
        store = open_store(f"file://{tmp_path}", part_bytes=7, parallel=3)
        content = bytes(range(100))
        store.put_stream("a", [content[:50], content[50:]], 100)
        assert (tmp_path / "a").read_bytes() == content


class Flaky(MemoryFileSystem):
    """An object store in memory with faults, under a protocol of its own. As Google's in form."""

    protocol = "gs"
    store = {}  # noqa: RUF012 - as in the base class
    pseudo_dirs = [""]  # noqa: RUF012
    cachable = False
    failing: dict[str, list[Exception]] = {}  # noqa: RUF012
    changed = False

    def _meet(self, call: str) -> None:
        if self.failing.get(call):
            raise self.failing[call].pop(0)

    def pipe_file(self, path, value, mode="overwrite", **kwargs):
        self._meet("pipe_file")
        super().pipe_file(path, value, mode=mode, **kwargs)

    def cat_file(self, path, start=None, end=None, **kwargs):
        self._meet("cat_file")
        found = super().cat_file(path, start=start, end=end, **kwargs)
        return found[: len(found) // 2] if self.failing.pop("short", None) else found

    def info(self, path, **kwargs):
        import crc32c

        found = super().info(path, **kwargs)
        crc = crc32c.crc32c(self.store[self._strip_protocol(path)].getvalue())
        if self.failing.pop("changed", None):
            crc += 1
        return {**found, "crc32c": encoded(crc), "updated": "2024-01-02T03:04:05.678Z"}

    def find(self, path, **kwargs):
        return {name: self.info(name) for name in super().find(path, detail=False)}


@pytest.fixture
def flaky(monkeypatch):
    monkeypatch.setitem(REGISTRY, "gs", Flaky)
    Flaky.store.clear()
    Flaky.failing.clear()
    yield open_store("gs://bucket/x", retry=QUICK, part_bytes=10)
    Flaky.failing.clear()


def test_what_passes_is_tried_again(flaky):
    Flaky.failing.update(pipe_file=[TimeoutError()], cat_file=[ConnectionResetError()])
    flaky.put("a", b"content")
    assert flaky.get("a") == b"content"
    assert flaky.counts.retries == 2


def test_a_short_answer_is_noticed(flaky):
    flaky.put("a", b"content")
    Flaky.failing["short"] = [ValueError()]
    assert flaky.get("a", 0, 6) == b"conten"
    assert flaky.counts.retries == 1


def test_a_put_that_arrived_changed_is_noticed(flaky):
    Flaky.failing["changed"] = [ValueError()]
    flaky.put("a", b"content")
    assert flaky.counts.retries == 1


def test_times_of_google_are_understood(flaky):
    flaky.put("a", b"content")
    when = datetime.datetime(2024, 1, 2, 3, 4, 5, 678_000, tzinfo=datetime.UTC)
    assert flaky.list()[0].time_ms == int(when.timestamp() * 1000)


def test_errors_name_url_and_operation(flaky):
    Flaky.failing["pipe_file"] = [FileNotFoundError("bucket")] * 9
    with pytest.raises(StorageUnavailableError, match="can't write gs://bucket/x/a: bucket; make"):
        flaky.put("a", b"")
    Flaky.failing["cat_file"] = [ValueError("what is this?")]
    with pytest.raises(StorageUnavailableError, match="can't read gs://bucket/x/a: what is this"):
        flaky.get("a")
    error = StorageUnavailableError("x")
    assert type(pickle.loads(pickle.dumps(error))) is StorageUnavailableError


class Renamed(MemoryFileSystem):
    """A file system that isn't an object store: a file shows while it is written."""

    protocol = "smb"
    store = {}  # noqa: RUF012
    pseudo_dirs = [""]  # noqa: RUF012
    cachable = False


def test_where_files_show_at_once_they_are_written_beside_and_renamed(monkeypatch):
    monkeypatch.setitem(REGISTRY, "smb", Renamed)
    Renamed.store.clear()
    store = open_store("smb://host/share", part_bytes=4)
    seen: list[list[str]] = []

    def pieces():
        for piece in (b"0123", b"4567", b"89"):
            yield piece
            seen.append([one.name for one in store.list()])

    store.put_stream("a", pieces(), 10)
    assert seen == [[], [], []]
    assert store.get("a") == b"0123456789"
    assert len(Renamed.store) == 1
    left = store._driver.begin("b", 3)
    left.part(1, 0, b"abc", 0)
    assert [one.name for one in store.list()] == ["a"]
    assert store.sweep_uploads(system_clock() + 60_000, "a") == 0
    assert store.sweep_uploads(system_clock() + 60_000, "b") == 1
    assert len(Renamed.store) == 1


def test_google_creates_by_its_generation(flaky):
    assert flaky.create("a", b"first")
    assert not flaky.create("a", b"second")
    assert flaky.get("a") == b"first"
    Flaky.failing["pipe_file"] = [TimeoutError("no answer")]
    with pytest.raises(StorageUnavailableError, match=r"can't create gs://.*/b: no answer") as e:
        flaky.create("b", b"x")
    assert e.value.passing
    assert flaky.counts.retries == 0


def test_google_copies_by_itself(flaky):
    other = open_store("gs://elsewhere", part_bytes=10)
    other.put("a", b"content")
    read = other.counts.bytes_in
    flaky.copy(other, "a", "b")
    assert flaky.get("b") == b"content"
    assert other.counts.bytes_in == read


class HttpAnswer(Exception):
    """As azure-core has it."""

    def __init__(self, status: int, code: str) -> None:
        super().__init__(code)
        self.status_code, self.error_code = status, code


class Blobs(MemoryFileSystem):
    """As adlfs: it makes FileExistsError of every 409, and knows no mode."""

    protocol = "abfs"
    store = {}  # noqa: RUF012
    pseudo_dirs = [""]  # noqa: RUF012
    cachable = False
    code = "BlobAlreadyExists"

    def pipe_file(self, path, value, overwrite=True, **kwargs):
        assert not kwargs
        if not overwrite and self.store.get(self._strip_protocol(path)) is not None:
            try:
                raise HttpAnswer(409, self.code)
            except HttpAnswer:
                raise FileExistsError(path)  # noqa: B904 - as it is
        super().pipe_file(path, value)


@pytest.mark.parametrize("protocol", ["abfs", "abfss", "az"])
def test_azure_creates_by_a_condition(monkeypatch, protocol):
    monkeypatch.setitem(REGISTRY, protocol, type("Blobs", (Blobs,), {"protocol": protocol}))
    Blobs.store.clear()
    store = open_store(f"{protocol}://container/x")
    assert store.create("a", b"first")
    assert not store.create("a", b"second")
    assert store.get("a") == b"first"
    monkeypatch.setattr(Blobs, "code", "ContainerBeingDeleted")
    with pytest.raises(StorageUnavailableError, match=f"can't create {protocol}://container/x/a"):
        store.create("a", b"second")


def test_a_library_that_does_not_load(monkeypatch, tmp_path):
    class Unloadable(MemoryFileSystem):
        protocol = "hdfs"
        cachable = False

        def __init__(self, *args, **kwargs):
            raise OSError("Unable to load libjvm")

    with monkeypatch.context() as missing:
        missing.setitem(REGISTRY, "hdfs", Unloadable)
        with pytest.raises(StorageUnavailableError, match="or install what fsspec needs for hdfs"):
            open_store("hdfs://name/logs").get("a")
    open_store(f"file://{tmp_path}").put("a", b"x")  # another URL
    monkeypatch.setitem(REGISTRY, "hdfs", Hdfs)  # it is installed
    store = open_store("hdfs://name/logs")
    store.put("a", b"x")
    assert store.get("a") == b"x"


def test_a_library_that_would_forget_the_condition_is_refused(monkeypatch):
    class Old(MemoryFileSystem):
        protocol = "gs"
        cachable = False

        def pipe_file(self, path, value, **kwargs):
            super().pipe_file(path, value)

    monkeypatch.setitem(REGISTRY, "gs", Old)
    with pytest.raises(InvalidRequestError, match="too old to create an object on the condition"):
        open_store("gs://bucket/x").create("a", b"x")


class Hdfs(MemoryFileSystem):
    """As libhdfs by way of pyarrow: a rename onto a file that is there fails, with EIO."""

    protocol = "hdfs"
    store = {}  # noqa: RUF012
    pseudo_dirs = [""]  # noqa: RUF012
    cachable = False
    lost = 0
    lock = threading.Lock()

    def mv(self, path1, path2, **kwargs):
        old, new = self._strip_protocol(path1), self._strip_protocol(path2)
        with self.lock:
            if new in self.store or old not in self.store:
                raise OSError(errno.EIO, "HDFS rename failed")
            self.store[new] = self.store.pop(old)
        if Hdfs.lost:
            Hdfs.lost -= 1
            raise OSError(errno.ETIMEDOUT, "the answer was lost")


@pytest.fixture
def hdfs(monkeypatch):
    monkeypatch.setitem(REGISTRY, "hdfs", Hdfs)
    Hdfs.store.clear()
    return open_store("hdfs://name/logs", retry=QUICK, part_bytes=10)


def test_hdfs_creates_by_a_rename(hdfs):
    assert not hdfs.replaces
    assert hdfs.create("d/a", b"first")
    assert not hdfs.create("d/a", b"second")
    assert hdfs.get("d/a") == b"first"
    hdfs.put("d/a", b"put over it")
    assert hdfs.get("d/a") == b"put over it"
    hdfs.put_stream("d/a", [b"0123456789", b"more"], 14)
    assert hdfs.get("d/a") == b"0123456789more"
    assert len(Hdfs.store) == 1


def test_a_lost_answer_of_hdfs(hdfs):
    Hdfs.lost = 1
    assert not hdfs.create("a", b"mine")  # a get tells whose it is
    assert hdfs.get("a") == b"mine"
    Hdfs.lost = 1
    hdfs.put("b", b"mine")
    assert hdfs.get("b") == b"mine"
    Hdfs.lost = 0
    assert len(Hdfs.store) == 2


def test_one_of_many_creators_wins_on_hdfs(hdfs):
    with ThreadPoolExecutor(8) as pool:
        for turn in range(50):
            name = f"n/{turn}"
            told = [pool.submit(hdfs.create, name, bytes([who]) * 99) for who in range(8)]
            won = [future.result() for future in told]
            assert hdfs.get(name) == bytes([won.index(True)]) * 99
            assert sum(won) == 1
    assert len(Hdfs.store) == 50


def test_options_that_are_no_dict_are_refused_without_being_shown() -> None:
    with pytest.raises(InvalidRequestError, match="must be a dict") as caught:
        open_store("memory://x", "secret=abcdef")  # type: ignore[arg-type]
    assert "abcdef" not in str(caught.value)
