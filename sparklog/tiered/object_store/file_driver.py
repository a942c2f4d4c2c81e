"""`file://`: objects as files, by sparklog.fs. Each is written under another name, then renamed."""

import contextlib
import errno
import os
from collections.abc import Sequence
from typing import Any, Final

from sparklog.errors import StorageUnavailableError
from sparklog.fs import LOCAL, FileSystem
from sparklog.tiered.object_store.driver import (
    PARTIAL,
    Driver,
    Upload,
    expect_size,
    partial_name,
    send_whole,
)
from sparklog.tiered.object_store.store import StoredObject

_NO_LINKS: Final = frozenset({errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS})
_COPY_BYTES: Final = 8 << 20


class LocalDriver:
    """The driver of file://. A directory remains when its last object is deleted."""

    many, looks, delete_max, replaces, skips, sends_once = True, False, 1, True, False, True

    def __init__(self, root: str, fs: FileSystem = LOCAL) -> None:
        self.root, self._fs = root.rstrip("/"), fs
        self.url = f"file://{self.root}"
        self._durable: set[str] = set()  # directories that survive a power cut

    def put(self, name: str, data: bytes, crc: int) -> None:
        send_whole(self.begin(name, len(data)), data, crc)

    def create(self, name: str, data: bytes, crc: int) -> bool:
        path = self._path(name)
        self._make_directory(os.path.dirname(path))
        partial = partial_name(path)
        try:
            with self._fs.open(partial, create=True) as file:
                file.pwrite(data, 0)
                file.sync()
            try:
                self._fs.link(partial, path)  # fails if the name exists, unlike a rename
            except FileExistsError:
                return False
            except StorageUnavailableError as error:
                if getattr(error.__cause__, "errno", None) in _NO_LINKS:
                    raise StorageUnavailableError(
                        f"can't create {path}: the file system has no hard links, which a log in a "
                        "bucket requires; use another file system",
                        path=path,
                    ) from error
                raise
            finally:
                # Sync an existing name too: its creator may have been killed before its sync, and
                # a file that the caller reads and relies on must survive a power cut.
                self._fs.sync_dir(os.path.dirname(path))
        finally:
            with contextlib.suppress(FileNotFoundError):
                self._fs.unlink(partial)
        return True

    def copies(self, source: Driver) -> bool:
        return isinstance(source, LocalDriver) and source._fs is self._fs

    def copy(self, source: "LocalDriver", source_name: str, name: str, size: int) -> int:
        # No hard link: it would have the source's time, and the age of a file decides whether it
        # is an orphan.
        upload = self.begin(name, size)
        try:
            with self._fs.open(source._path(source_name)) as file:
                for number, at in enumerate(range(0, size, _COPY_BYTES), 1):
                    upload.part(number, at, file.pread(min(_COPY_BYTES, size - at), at), 0)
                if size == 0:
                    upload.part(1, 0, b"", 0)
            upload.finish(())
        except BaseException:
            upload.abort()
            raise
        return 1

    def read(self, name: str, start: int, end: int) -> bytes:
        with self._fs.open(self._path(name)) as file:
            return file.pread(max(0, min(end, file.size()) - start), start)

    def size(self, name: str) -> int:
        return self._fs.size(self._path(name))

    def check(self, name: str, size: int, crc: int) -> None:
        expect_size(name, self.size(name), size)

    def page(
        self, prefix: str, token: str | None, start_after: str = ""
    ) -> tuple[list[StoredObject], str | None]:
        listed = []
        for name in self._names(prefix):
            if name > start_after and not name.endswith(PARTIAL):
                path = self._path(name)
                try:
                    listed.append(StoredObject(name, self._fs.size(path), self._fs.mtime_ms(path)))
                except FileNotFoundError:  # just deleted by another process
                    continue
        return listed, None

    def delete(self, names: Sequence[str]) -> None:
        for name in names:
            try:
                self._fs.unlink(self._path(name))
            except FileNotFoundError:
                continue
            self._fs.sync_dir(os.path.dirname(self._path(name)))

    def begin(self, name: str, size: int) -> Upload:
        path = self._path(name)
        self._make_directory(os.path.dirname(path))
        return _LocalUpload(self._fs, path, partial_name(path))

    def uploads(self, before_ms: int, prefix: str = "") -> list[Upload]:
        left: list[Upload] = []
        for name in self._names(prefix):
            path = self._path(name)
            try:
                if name.endswith(PARTIAL) and self._fs.mtime_ms(path) < before_ms:
                    left.append(_LocalUpload(self._fs, path, path))
            except FileNotFoundError:  # the upload has just ended
                continue
        return left

    def _path(self, name: str) -> str:
        return f"{self.root}/{name}"

    def _make_directory(self, path: str) -> None:
        exists = self._fs.is_dir(path)
        if exists and path in self._durable:  # check both, as another process may have deleted it
            return
        above = os.path.dirname(path)
        ours = path.startswith(f"{self.root}/")
        if ours or not exists:  # an existing target was made durable by its creator
            self._make_directory(above)
            with contextlib.suppress(FileExistsError):  # created by another thread
                if not exists:
                    self._fs.mkdir(path)
            self._fs.sync_dir(above)  # its creator may have been killed before the sync
        self._durable.add(path)

    def _names(self, prefix: str) -> list[str]:
        """Return all names with this prefix. Only directories that can contain them are listed."""
        above, slash, _ = prefix.rpartition("/")
        names, directories = [], [above + slash]
        while directories:
            directory = directories.pop()
            if not self._fs.is_dir(self._path(directory)):
                continue
            for entry in self._fs.listdir(self._path(directory)):
                name = directory + entry
                if self._fs.is_dir(self._path(name)):
                    if f"{name}/".startswith(prefix) or prefix.startswith(f"{name}/"):
                        directories.append(f"{name}/")
                elif name.startswith(prefix):
                    names.append(name)
        return names


class _LocalUpload:
    def __init__(self, fs: FileSystem, path: str, partial: str) -> None:
        self._fs, self._path, self._partial = fs, path, partial
        self._done = False

    def part(self, number: int, at: int, data: bytes, crc: int) -> Any:
        with self._fs.open(self._partial, create=True) as file:
            file.pwrite(data, at)

    def finish(self, receipts: Sequence[Any]) -> None:
        if self._done:
            return
        with self._fs.open(self._partial, write=True) as file:
            file.sync()
        self._fs.rename(self._partial, self._path)
        self._fs.sync_dir(os.path.dirname(self._path))
        self._done = True

    def abort(self) -> None:
        try:
            self._fs.unlink(self._partial)
        except FileNotFoundError:
            return
