"""`memory://`: fsspec's dict of this process; a PUT is a single change of the dict."""

from collections.abc import Sequence
from typing import Any

from sparklog.tiered.object_store.driver import Driver, Upload
from sparklog.tiered.object_store.fsspec_driver import FsspecDriver, WholeObjectDriver


class MemoryDriver(WholeObjectDriver):
    """The driver of memory://. A forked child has a copy of the dict from the time of the fork."""

    many, looks, replaces, sends_once = True, False, True, True

    def put(self, name: str, data: bytes, crc: int) -> None:
        path = self._key(name)
        self._fs.store[path] = self._file(path, data)

    def create(self, name: str, data: bytes, crc: int) -> bool:
        path = self._key(name)
        file = self._file(path, data)
        # Atomic, without a lock that a fork might inherit; fsspec's method checks, then writes.
        return self._fs.store.setdefault(path, file) is file

    def copies(self, source: Driver) -> bool:
        return isinstance(source, MemoryDriver) and source._fs.store is self._fs.store

    def copy(self, source: FsspecDriver, source_name: str, name: str, size: int) -> int:
        self.put(name, source.read(source_name, 0, size), 0)
        return 1

    def size(self, name: str) -> int:  # fsspec's method examines all names
        try:
            return int(self._fs.store[self._key(name)].size)
        except KeyError:
            raise FileNotFoundError(name) from None

    def check(self, name: str, size: int, crc: int) -> None:
        return

    def begin(self, name: str, size: int) -> Upload:
        return _MemoryUpload(self, name)

    def uploads(self, before_ms: int, prefix: str = "") -> list[Upload]:
        return []

    def _below(self, prefix: str) -> dict[str, dict[str, Any]]:
        # Uses an atomic copy; fsspec iterates over the dict while other threads change it.
        files, root = self._fs.store.copy(), self._key("") + "/"
        return {
            path[len(root) :]: {"size": file.size, "created": file.created}
            for path, file in files.items()
            if path.startswith(root + prefix)
        }

    def _key(self, name: str) -> str:
        return str(self._fs._strip_protocol(self._path(name)))

    def _file(self, path: str, data: bytes) -> Any:
        from fsspec.implementations.memory import MemoryFile

        return MemoryFile(self._fs, path, bytes(data))


class _MemoryUpload:
    def __init__(self, driver: MemoryDriver, name: str) -> None:
        self._driver, self._name = driver, name
        self._parts: dict[int, bytes] = {}

    def part(self, number: int, at: int, data: bytes, crc: int) -> Any:
        self._parts[number] = data

    def finish(self, receipts: Sequence[Any]) -> None:
        self._driver.put(self._name, b"".join(self._parts[n] for n in sorted(self._parts)), 0)

    def abort(self) -> None:
        self._parts.clear()
