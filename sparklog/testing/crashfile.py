"""The open files, locks and mappings of a `CrashFS`; see there."""

import errno
import weakref
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Self

from sparklog.fs import Buffer
from sparklog.testing.disk import FileNode, FileOp
from sparklog.testing.faults import Fault, refuse

if TYPE_CHECKING:
    from sparklog.testing.crashfs import CrashFS

_END: Final = 1 << 63


@dataclass(frozen=True, slots=True, eq=False)
class Lock:
    """A locked byte range [first, end) of a file."""

    owner: "CrashLockFile"
    first: int
    end: int
    exclusive: bool


class CrashFile:
    """An open file of one process."""

    def __init__(self, fs: "CrashFS", path: str, node: FileNode, *, write: bool) -> None:
        self.path = path
        self._fs, self._write, self._closed = fs, write, False
        self._bound = node

    def _node(self, verb: str, *, write: bool = False) -> FileNode:
        if self._fs.dead:
            self._fs.check_alive()
        if self._closed:
            raise ValueError(f"{self.path} is closed")
        if write and not self._write:
            raise refuse(errno.EBADF, verb, self.path)
        if self._fs.reopen and not isinstance(self, CrashLockFile):
            node = self._fs.file_node(self.path, verb)
            if node is not self._bound:
                raise FileNotFoundError(errno.ENOENT, "replaced by another file", self.path)
            return node
        return self._bound

    def pread(self, size: int, at: int) -> bytes:
        with self._fs.mutex:
            node = self._node("read")
            if self._fs.on_read is not None:
                self._fs.on_read(self.path)
            return bytes(node.data[at : at + size])

    def pwrite(self, data: Buffer, at: int) -> None:
        raw = bytes(memoryview(data).cast("B"))
        with self._fs.mutex:
            node = self._node("write", write=True)
            self._fs.writing = raw
            fault = self._fs.meet("pwrite", self.path, at, len(raw))
            if fault in (Fault.TORN_KILL, Fault.NO_SPACE):
                part = self._fs.torn_size(at, len(raw))
                if part:
                    node.change(FileOp(at, raw[:part]))
            self._fs.suffer(fault, "write", self.path)
            node.change(FileOp(at, raw))
            node.mtime_ms = self._fs.disk.clock()

    def truncate(self, size: int) -> None:
        with self._fs.mutex:
            node = self._node("truncate", write=True)
            fault = self._fs.meet("truncate", self.path, 0, size)
            self._fs.suffer(fault, "truncate", self.path)
            for reference in node.mappings:
                mapping = reference()
                if mapping is not None and mapping.live and size < len(mapping.data):
                    raise AssertionError(f"{self.path} is cut under its mapping: SIGBUS")
            node.change(FileOp(size, None))
            node.mtime_ms = self._fs.disk.clock()

    def size(self) -> int:
        with self._fs.mutex:
            return len(self._node("stat").data)

    def sync(self) -> None:
        with self._fs.mutex:
            node = self._node("sync")
            fault = self._fs.meet("sync", self.path)
            if fault is Fault.IO_ERROR:
                node.fail_sync()
            self._fs.suffer(fault, "sync", self.path)
            node.sync()

    def close(self) -> None:
        self._closed = True

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


class CrashLockFile(CrashFile):
    """A file with open-file-description locks. Source: fcntl(2)."""

    def try_lock(self, first: int, length: int, *, exclusive: bool) -> bool:
        with self._fs.mutex:
            node = self._node("lock")
            end = first + length if length else _END
            for lock in node.locks:
                overlaps = lock.first < end and first < lock.end
                if overlaps and lock.owner is not self and (exclusive or lock.exclusive):
                    return False
            self._carve(node, first, end)
            node.locks.append(Lock(self, first, end, exclusive))
            return True

    def unlock(self, first: int, length: int) -> None:
        with self._fs.mutex:
            self._carve(self._node("unlock"), first, first + length if length else _END)

    def _carve(self, node: FileNode, first: int, end: int) -> None:
        """Take [first, end) out of this object's own locks, splitting them as the kernel does."""
        kept: list[Lock] = []
        for lock in node.locks:
            if lock.owner is not self or lock.end <= first or end <= lock.first:
                kept.append(lock)
                continue
            if lock.first < first:
                kept.append(Lock(self, lock.first, first, lock.exclusive))
            if end < lock.end:
                kept.append(Lock(self, end, lock.end, lock.exclusive))
        node.locks[:] = kept

    def is_current(self) -> bool:
        with self._fs.mutex:
            node = self._node("stat")
            return self._fs.find(self.path) is node

    def identity(self) -> tuple[int, int]:
        with self._fs.mutex:
            return self._fs.disk.dev, self._node("stat").ino

    def drop_locks(self) -> None:
        """What closing, or dying, does."""
        self._bound.locks[:] = [lock for lock in self._bound.locks if lock.owner is not self]

    def close(self) -> None:
        with self._fs.mutex:
            self.drop_locks()
            self._closed = True


class CrashMapping:
    """A file's bytes as they are when it is mapped; cutting the file meanwhile is an error."""

    def __init__(self, fs: "CrashFS", node: FileNode) -> None:
        self.data = memoryview(bytes(node.data))
        self._fs, self._closed = fs, False
        node.mappings[:] = [r for r in node.mappings if r() is not None]
        node.mappings.append(weakref.ref(self))

    @property
    def live(self) -> bool:
        return not self._closed and not self._fs.dead

    def close(self) -> None:
        self.data = memoryview(b"")
        self._closed = True
