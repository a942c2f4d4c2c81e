"""The files of a checkpoint in an object store, read as local files are.

Spark's own checkpoints in S3, Google Cloud Storage, Azure or HDFS have the same files as on a disk.
`StoredFiles` reads them through a `Store`, so that the tools need not know where a checkpoint is.
The files of a checkpoint in runs (`RunFiles`) are read in the same way. Nothing is written.
"""

import bisect
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Any, Final, Never, Protocol, Self

from sparklog.checkpoint.checkpoint_kind import StoredFileSystem
from sparklog.checkpoint.log_backed.layout import LOGS, METADATA_PARTITION
from sparklog.checkpoint.stored_runs import RunFiles, run_files
from sparklog.errors import DataCorruptionError
from sparklog.fs import File
from sparklog.tiered.object_store.store import Store, StoredObject
from sparklog.tiered.target import open_store

AHEAD_FILES: Final = 64
"""Files that are fetched at once if a directory's files are read in order."""
AHEAD_BYTES: Final = 8 << 20
_COPIED_LOG: Final = f"{LOGS}/{METADATA_PARTITION}/"
_DIRECTORIES: Final = 4  # whose files are in memory, fetched ahead


def open_files(url: str, storage_options: Mapping[str, Any] | None) -> "StoredFiles":
    """Return the files of the checkpoint at a URL.

    Raises:
        InvalidRequestError: The URL is invalid, a package is missing, an option is unknown, or a
            later version of sparklog wrote the checkpoint.
        StorageUnavailableError: The store does not answer, or refuses.

    Cost:
        A GET request.
    """
    store = open_store(url, storage_options)
    runs = run_files(store)
    if runs is not None:
        runs.is_lenient = True  # `Checkpoint` reports the damage
    return StoredFiles(runs or store)


class ReadableObjects(Protocol):
    """The methods of `Store` that `StoredFiles` calls."""

    url: str

    def get(self, name: str, start: int = 0, end: int | None = None) -> bytes:
        """Return the bytes [start, end) of an object."""

    def get_many(self, names: Sequence[str], *, limit: int) -> list[bytes | Exception]:
        """Return complete objects, or the error for each that failed."""

    def list(self) -> list[StoredObject]:
        """Return all objects, sorted by name."""


class StoredFiles(StoredFileSystem):
    """The files below the URL of a store, as of the last listing. Read-only; not thread-safe.

    `listdir` of the URL lists the store again, other methods answer from that listing. Files that
    are read in the order of their names are fetched ahead, many at once.

    Raises, in all methods: StorageUnavailableError if the store does not answer, or refuses.
    """

    sync_threads = 1

    def __init__(self, store: Store | RunFiles) -> None:
        self.url = store.url
        self._store = store
        self._objects: dict[str, StoredObject] | None = None
        self._names: list[str] = []
        self._has_log_dir = False
        self._is_new = False  # whether the root was not read since the listing
        self._last = ""
        self._ahead: OrderedDict[str, dict[str, bytes]] = OrderedDict()

    @property
    def has_log_dir(self) -> bool:
        """Whether a log-backed checkpoint was copied from a disk to this URL."""
        self._listed()
        return self._has_log_dir

    @property
    def store(self) -> Store:
        """The store of all objects of the checkpoint."""
        return self._store.store if isinstance(self._store, RunFiles) else self._store

    @property
    def runs(self) -> RunFiles | None:
        """The ledger of a checkpoint in runs; None for Spark's own files."""
        return self._store if isinstance(self._store, RunFiles) else None

    @property
    def is_in_runs(self) -> bool:
        """Whether the checkpoint is kept in runs."""
        return self.runs is not None

    @property
    def ledger_damage(self) -> Sequence[DataCorruptionError]:
        """The damage of the ledger of a checkpoint in runs, as of the last listing."""
        return () if self.runs is None else self.runs.damage

    # -- reading -----------------------------------------------------------------------------------

    def exists(self, path: str) -> bool:
        """Return whether a path names a file or directory."""
        return self._name(path) in self._listed() or self.is_dir(path)

    def is_dir(self, path: str) -> bool:
        """Return whether there are files below a path. A store has no empty directories."""
        self._listed()
        prefix = self._prefix(path)
        at = bisect.bisect_left(self._names, prefix)
        return at < len(self._names) and self._names[at].startswith(prefix)

    def is_link(self, path: str) -> bool:
        """Return False: a store has no links."""
        return False

    def size(self, path: str) -> int:
        """Return the size of a file in bytes."""
        return self._object(path).size

    def mtime_ms(self, path: str) -> int:
        """Return when the store received a file, in milliseconds since the epoch."""
        return self._object(path).time_ms

    def changed_ms(self, path: str) -> int:
        """Return the same as `mtime_ms`."""
        return self.mtime_ms(path)

    def listdir(self, path: str) -> list[str]:
        """Return the names in a directory, sorted.

        Cost: for the URL itself, a LIST request per 1,000 objects; no request otherwise.
        """
        if not self._name(path):
            self._objects = self._objects if self._is_new else None
            self._listed()
            self._is_new = False
        self._listed()
        prefix, found = self._prefix(path), dict[str, None]()
        for at in range(bisect.bisect_left(self._names, prefix), len(self._names)):
            if not self._names[at].startswith(prefix):
                break
            found[self._names[at][len(prefix) :].partition("/")[0]] = None
        if prefix and not found:
            raise FileNotFoundError(2, "there is no such directory", path)
        return sorted(found)

    def open(self, path: str, *, create: bool = False, write: bool = False) -> "StoredFile":
        """Open a file for reading.

        Cost: a GET request, or none if the file was fetched ahead.
        """
        if create or write:
            self._refuse(path)
        found, data = self._object(path), None
        directory, _, _ = found.name.rpartition("/")
        if directory in self._ahead:
            data = self._ahead[directory].get(found.name)
        if data is None and self._is_next(found.name):
            data = self._fetch_ahead(directory, found.name)
        self._last = found.name
        return StoredFile(self._store, found, path, data)

    def _is_next(self, name: str) -> bool:
        """Return whether a file follows the file that was opened last, in the same directory."""
        at = bisect.bisect_left(self._names, name)
        same = self._last.rpartition("/")[0] == name.rpartition("/")[0]
        return same and at > 0 and self._names[at - 1] == self._last

    def _fetch_ahead(self, directory: str, name: str) -> bytes | None:
        objects, names, total = self._listed(), list[str](), 0
        for at in range(bisect.bisect_left(self._names, name), len(self._names)):
            each = self._names[at]
            total += objects[each].size
            if each.rpartition("/")[0] != directory or len(names) == AHEAD_FILES:
                break
            if total > AHEAD_BYTES:
                break
            names.append(each)
        answers = zip(names, self._store.get_many(names, limit=AHEAD_BYTES), strict=True)
        # A file that can't be fetched now raises its error when it is opened, if it ever is.
        fetched = {each: data for each, data in answers if isinstance(data, bytes)}
        self._ahead[directory] = fetched
        self._ahead.move_to_end(directory)
        while len(self._ahead) > _DIRECTORIES:
            self._ahead.popitem(last=False)
        return fetched.get(name)

    def _listed(self) -> dict[str, StoredObject]:
        if self._objects is None:
            found = self._store.list()
            self._has_log_dir = any(each.name.startswith(_COPIED_LOG) for each in found)
            # Connectors of Hadoop create an empty object "offsets/" for a directory. The objects of
            # runs without HOME are no files of the checkpoint: an interrupted import left them.
            listed = [
                each for each in found
                if not each.name.endswith("/") and not each.name.startswith(f"{LOGS}/")
            ]  # fmt: skip
            self._objects = {each.name: each for each in listed}
            self._names = [each.name for each in listed]
            self._is_new = True
            self._ahead.clear()
        return self._objects

    def _object(self, path: str) -> StoredObject:
        found = self._listed().get(self._name(path))
        if found is None:
            raise FileNotFoundError(2, "there is no such file", path)
        return found

    def _name(self, path: str) -> str:
        return path.removeprefix(self.url).strip("/")

    def _prefix(self, path: str) -> str:
        name = self._name(path)
        return f"{name}/" if name else ""

    def kind(self, path: str) -> str:
        """Return the scheme of the URL."""
        return self.url.partition(":")[0]

    def may_write(self, path: str) -> bool:
        """Return False."""
        return False

    def is_locked(self, path: str, first: int, length: int) -> bool:
        """Return False: a store has no locks."""
        return False

    def boot_id(self) -> str:
        """Return "": a store does not lose its cache."""
        return ""

    # -- everything else ---------------------------------------------------------------------------

    def _refuse(self, *given: Any, **named: Any) -> Never:
        raise AssertionError("what changes a checkpoint opens it on a local disk only")

    open_lock = _refuse
    map = _refuse
    set_mtime_ms = _refuse
    identity = _refuse
    links = _refuse
    mkdir = _refuse
    rmdir = _refuse
    unlink = _refuse
    rename = _refuse
    exchange = _refuse
    link = _refuse
    sync_dir = _refuse
    free_bytes = _refuse
    volume = _refuse


class StoredFile(File):
    """A file of a `StoredFiles`, whose bytes may have been fetched ahead."""

    def __init__(
        self, store: ReadableObjects, stored: StoredObject, path: str, data: bytes | None
    ) -> None:
        self.path = path
        self._store, self._stored, self._data = store, stored, data

    def pread(self, size: int, at: int) -> bytes:
        """Return the bytes [at, at + size), fewer only at the end of the file.

        Raises:
            FileNotFoundError: The file was removed since the listing.
        """
        end = min(at + size, self._stored.size)
        if self._data is not None:
            return self._data[at:end]
        try:
            return self._store.get(self._stored.name, at, end)
        except FileNotFoundError:
            raise FileNotFoundError(2, "the file was removed", self.path) from None

    def size(self) -> int:
        """Return the size in bytes when the store was listed."""
        return self._stored.size

    def close(self) -> None:
        """Do nothing: a file has no descriptor."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def _refuse(self, *given: Any, **named: Any) -> Never:
        raise AssertionError("a file of a store is opened for reading only")

    pwrite = _refuse
    truncate = _refuse
    sync = _refuse
