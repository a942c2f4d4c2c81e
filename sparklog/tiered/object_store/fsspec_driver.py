"""Driver for all other protocols of fsspec, by the operations of all fsspec file systems."""

import base64
import contextlib
import inspect
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Final

from sparklog.tiered.object_store.driver import (
    PARTIAL,
    Driver,
    Upload,
    expect_size,
    no_create,
    partial_name,
    send_whole,
    time_ms,
    too_old,
)
from sparklog.tiered.object_store.store import StoredObject

_TIMES: Final = ("LastModified", "last_modified", "mtime", "updated", "created")


class Connection:
    """An fsspec file system of this process. After a fork a new one is created.

    fsspec's event loop and its thread don't survive a fork (it raises "not fork-safe").

    Attributes:
        given: The protocol and the options. Two connections with the same can copy within the
            store.
    """

    def __init__(
        self, make: Callable[[], tuple[Any, str]], given: Mapping[str, Any] | None = None
    ) -> None:
        self._make, self.given = make, dict(given or {})
        self._fs, self.root = make()
        self._pid = os.getpid()
        self._inherited: list[Any] = []

    @property
    def fs(self) -> Any:
        if self._pid != os.getpid():
            self._inherited.append(self._fs)  # collecting it would wait for a stopped event loop
            self._fs, self.root = self._make()
            self._pid = os.getpid()
        return self._fs


class FsspecDriver:
    """Driver over any file system of fsspec. Parts are sent in order, as fsspec writes its files.

    Subclasses state the store's further capabilities:
    Attributes:
        is_visible_at_close: An object becomes visible when it is closed, complete. Other files are
            written under another name and renamed.
        create_option: The option of fsspec's `pipe_file`, and its value, with which the store
            itself creates an object only if there is none. With other values fsspec would check
            first and write then.
        copies_objects: The store copies an object on its own, and the copy is visible only when
            complete.
    """

    many, looks, delete_max = False, True, 1
    skips = False
    sends_once = False  # gcsfs and adlfs repeat a request that was not answered
    is_visible_at_close: ClassVar[bool] = False
    create_option: ClassVar[tuple[str, Any] | None] = None
    copies_objects: ClassVar[bool] = False

    def __init__(self, url: str, connection: Connection) -> None:
        self.url, self._connection = url, connection
        self._root = connection.root.rstrip("/")
        # Whether the rename of an unknown file system replaces a file atomically isn't known.
        self.replaces = self.is_visible_at_close

    @property
    def _fs(self) -> Any:
        return self._connection.fs

    def put(self, name: str, data: bytes, crc: int) -> None:
        path = self._path(name)
        if self.is_visible_at_close:
            self._fs.pipe_file(path, data)
            return
        send_whole(self.begin(name, len(data)), data, crc)

    def create(self, name: str, data: bytes, crc: int) -> bool:
        if self.create_option is None:
            raise no_create(self.url)
        fs, (option, value) = self._fs, self.create_option
        if option not in inspect.signature(getattr(fs, "_pipe_file", fs.pipe_file)).parameters:
            # The library might send the option as a header, and the object would be replaced.
            library = type(fs).__module__.partition(".")[0]
            raise too_old(self.url, library, f"a newer {library}")
        fs.pipe_file(self._path(name), data, **{option: value})
        return True

    def copies(self, source: Driver) -> bool:
        return (
            self.copies_objects
            and isinstance(source, FsspecDriver)
            and source._connection.given == self._connection.given
        )

    def copy(self, source: "FsspecDriver", source_name: str, name: str, size: int) -> int:
        self._fs.cp_file(source._path(source_name), self._path(name))
        return 1

    def read(self, name: str, start: int, end: int) -> bytes:
        return bytes(self._fs.cat_file(self._path(name), start=start, end=end))

    def size(self, name: str) -> int:
        return int(self._info(name)["size"])

    def check(self, name: str, size: int, crc: int) -> None:
        info = self._info(name)
        expect_size(name, int(info["size"]), size)
        stored = info.get("crc32c")  # Google Cloud Storage's: base64, big-endian
        if isinstance(stored, str) and stored != encoded(crc):
            raise ConnectionError(f"{name} arrived changed: its CRC-32C is {stored}")

    def page(
        self, prefix: str, token: str | None, start_after: str = ""
    ) -> tuple[list[StoredObject], str | None]:
        found = []
        for name, info in self._below(prefix).items():
            if name > start_after and not name.endswith(PARTIAL):
                found.append(StoredObject(name, int(info["size"] or 0), _time_ms(info)))
        return found, None

    def delete(self, names: Sequence[str]) -> None:
        for name in names:
            with contextlib.suppress(FileNotFoundError):
                self._fs.rm_file(self._path(name))

    def begin(self, name: str, size: int) -> Upload:
        path = self._path(name)
        if not self.is_visible_at_close:
            self._fs.makedirs(path.rpartition("/")[0], exist_ok=True)
            return StreamUpload(self._fs, path, partial_name(path))
        return StreamUpload(self._fs, path, path)

    def uploads(self, before_ms: int, prefix: str = "") -> list[Upload]:
        # Stores discard the other parts: Azure within a week, Google never shows them.
        return [
            StreamUpload(self._fs, self._path(name), self._path(name), left=True)
            for name, info in ({} if self.is_visible_at_close else self._below(prefix)).items()
            if name.endswith(PARTIAL) and _time_ms(info) < before_ms
        ]

    def _path(self, name: str) -> str:
        return f"{self._root}/{name}"

    def _info(self, name: str) -> dict[str, Any]:
        self._fs.invalidate_cache()
        info: dict[str, Any] = self._fs.info(self._path(name))
        return info

    def _below(self, prefix: str) -> dict[str, dict[str, Any]]:
        """Return {name: fsspec's entry} of all files with this prefix."""
        self._fs.invalidate_cache()
        directory = self._path(prefix.rpartition("/")[0]).rstrip("/")
        try:
            entries = self._fs.find(directory, detail=True)
        except FileNotFoundError:
            return {}
        start = len(self._root) + 1
        return {
            path[start:]: info
            for path, info in entries.items()
            if path[start:].startswith(prefix) and info.get("type") != "directory"
        }


class WholeObjectDriver(FsspecDriver):
    """Driver of stores in which objects become visible, complete, when they are closed."""

    is_visible_at_close = True


class GoogleDriver(WholeObjectDriver):
    """Driver of Google Cloud Storage: gcsfs sends ifGenerationMatch=0 with mode="create"."""

    create_option = ("mode", "create")
    copies_objects = True


class AzureDriver(WholeObjectDriver):
    """Driver of Azure: adlfs sends If-None-Match. A copy continues after the answer to it."""

    create_option = ("overwrite", False)


def _move(fs: Any, old: str, new: str) -> None:
    fs.mv(old, new)


class StreamUpload:
    """A file that is written sequentially, under a temporary name if the store shows open files."""

    def __init__(
        self,
        fs: Any,
        path: str,
        written: str,
        *,
        left: bool = False,
        rename: Callable[[Any, str, str], None] = _move,
    ) -> None:
        self._fs, self._path, self._written, self._rename = fs, path, written, rename
        self._file = None if left else fs.open(written, "wb")
        self._closed, self._shows = left, False

    def part(self, number: int, at: int, data: bytes, crc: int) -> Any:
        assert self._file is not None
        self._file.write(data)

    def close(self) -> str:
        """Close the file; return the file's name, which may be a temporary name."""
        if not self._closed:
            assert self._file is not None
            self._file.close()
            self._closed = True
        return self._written

    def finish(self, receipts: Sequence[Any]) -> None:
        self.close()
        if self._written != self._path and not self._shows:
            self._rename(self._fs, self._written, self._path)
        self._shows = True

    def abort(self) -> None:
        if not self._closed:
            assert self._file is not None
            self._file.discard()
            with contextlib.suppress(AttributeError):  # else collecting it would still write it
                self._file.closed = True
            self._closed = True
        if self._written != self._path or self._file is None:
            with contextlib.suppress(FileNotFoundError):
                self._fs.rm_file(self._written)


def _time_ms(info: dict[str, Any]) -> int:
    return next((time_ms(info[key]) for key in _TIMES if info.get(key)), 0)


def encoded(crc: int) -> str:
    """Encode a CRC-32C as stores do."""
    return base64.b64encode(crc.to_bytes(4, "big")).decode()


class HdfsDriver(FsspecDriver):
    """The driver of HDFS. Replacing an object is not atomic: a GET may find none.

    The reason is that libhdfs has no rename that replaces. Data are on the disks of the data nodes
    when these write them back, or at once if dfs.datanode.synconclose is true.
    """

    def create(self, name: str, data: bytes, crc: int) -> bool:
        upload, path = self.begin(name, len(data)), self._path(name)
        try:
            upload.part(1, 0, data, crc)
            self._fs.mv(upload.close(), path)
        except OSError:  # HDFS raises it for an existing name, and for all other faults
            upload.abort()
            if not self._fs.exists(path):
                raise
            return False
        except BaseException:
            upload.abort()
            raise
        return True

    def copies(self, source: Driver) -> bool:
        return False

    def begin(self, name: str, size: int) -> StreamUpload:
        path = self._path(name)
        self._fs.makedirs(path.rpartition("/")[0], exist_ok=True)
        return StreamUpload(self._fs, path, partial_name(path), rename=_replace)


def _replace(fs: Any, old: str, new: str) -> None:
    try:
        fs.mv(old, new)
    except OSError:
        if not fs.exists(old):  # already renamed, but the answer was lost
            return
        if not fs.exists(new):
            raise
        fs.rm_file(new)
        fs.mv(old, new)
