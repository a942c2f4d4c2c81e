"""A file system in memory that can lose power, kill a process and fail at any call.

    fs = CrashFS()                      # a machine with a process
    other = fs.process()                # a second process on the same disk
    fs.fail_at(7, Fault.KILL)           # dies at its 7th mutating call: SimulatedKill
    after = fs.crash_clone(rng)         # the same disk after a power cut, in a new boot
    later = fs.kill_clone()             # the same disk after `kill -9`: page cache intact
    fs.on_call = lambda call: ...       # inspect or clone before every mutating call

Each CrashFS is a process. Each process dies separately, together with its locks, and has no effect
after its death, even in its `finally` clauses. For the effects of a power cut see
`sparklog.testing.disk`. With `reopen=True` a file is looked up by its path at every call, like a
`LocalFile` after the pool has closed its descriptor; code that renames an open file must not rely
on the descriptor.
"""

import errno
import os
import random
import threading
import weakref
from collections.abc import Callable, Collection
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, NoReturn, Self

from sparklog.clock import Clock
from sparklog.fs import Buffer, File, LockFile, Mapping, Volume
from sparklog.testing.disk import DirNode, Disk, FileNode, FileOp, Mode, Node
from sparklog.testing.faults import (
    ERRNO,
    GROWING,
    MUTATING,
    Call,
    Fault,
    Plan,
    SimulatedKill,
    refuse,
)

_END: Final = 1 << 63


@lru_cache(maxsize=4096)
def _split(path: str) -> tuple[str, str]:
    """Return the directory of a path and the name in this directory."""
    head, _, name = path.rstrip("/").rpartition("/")
    return head, name


@dataclass(frozen=True, slots=True, eq=False)
class Lock:
    """A locked byte range [first, end) of a file."""

    owner: "CrashLockFile"
    first: int
    end: int
    exclusive: bool


class CrashFile:
    """An open file of a process."""

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
            node = self._fs._file_node(self.path, verb)
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
            # A full disk also leaves a part of the write, as pwrite(2) returns a short count first.
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
                # A real process would die of SIGBUS, but only when it reads the lost pages. Here
                # the truncation itself fails, so that no test depends on a later read.
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
        """Remove [first, end) from this object's locks, and split locks as the kernel does."""
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
            return self._fs._find(self.path) is node

    def identity(self) -> tuple[int, int]:
        with self._fs.mutex:
            return self._fs.disk.dev, self._node("stat").ino

    def drop_locks(self) -> None:
        """Release all locks, as closing and dying do."""
        self._bound.locks[:] = [lock for lock in self._bound.locks if lock.owner is not self]

    def close(self) -> None:
        with self._fs.mutex:
            self.drop_locks()
            self._closed = True


class CrashMapping:
    """A file's bytes at the time of mapping. Truncating a mapped file is an error."""

    def __init__(self, fs: "CrashFS", node: FileNode) -> None:
        self.data = memoryview(bytes(node.data))
        self._fs, self._closed = fs, False
        # Weak, so that a mapping that was dropped without close() doesn't forbid truncations.
        node.mappings[:] = [r for r in node.mappings if r() is not None]
        node.mappings.append(weakref.ref(self))

    @property
    def live(self) -> bool:
        return not self._closed and not self._fs.dead

    def close(self) -> None:
        self.data = memoryview(b"")
        self._closed = True


def _names_of(directory: DirNode, wanted: Node) -> int:
    """Return how many names a file has below a directory."""
    found = 0
    for node in directory.entries.values():
        found += _names_of(node, wanted) if isinstance(node, DirNode) else node is wanted
    return found


class CrashFS:
    """A process on a machine with a simulated disk: a file system that can lose power.

    Examples:
        >>> from sparklog.testing import CrashFS, Fault
        >>> machine = CrashFS()
        >>> machine.fail_at(7, Fault.KILL)  # the 7th change from now kills the process
        >>> sparklog.open("/log", "rw", fs=machine)
        Traceback (most recent call last):
        sparklog.testing.faults.SimulatedKill: ...
        >>> sparklog.open("/log", "rw", fs=machine.crash_clone()).topics()  # after a power cut
        {}
    """

    sync_threads = 1  # so that the same work makes the same calls

    def __init__(
        self, *, clock: Clock | None = None, reopen: bool = False, page_bytes: int = 4096
    ) -> None:
        """Start a machine with an empty disk and a single process.

        Args:
            clock: The time of the disk, in milliseconds since the epoch.
            reopen: Whether open files are looked up by their path at every call.
            page_bytes: A kill can cut a write at multiples of this; Linux cuts between pages.
        """
        self.disk = Disk(clock)
        self.reopen, self.page_bytes = reopen, page_bytes
        self.mutex = threading.RLock()
        self.dead = False
        self.calls: list[Call] = []
        self.on_call: Callable[[Call], None] | None = None
        self.on_read: Callable[[str], None] | None = None
        self.writing = b""  # the data of the latest pwrite, for `kill_clone(torn)`
        self._plans: list[Plan] = []
        self._lock_files: list[CrashLockFile] = []

    # -- processes, crashes, faults ------------------------------------------------------------

    def process(self) -> "CrashFS":
        """Start another process on the same disk."""
        other = self._machine(self.disk)
        other.mutex = self.mutex
        return other

    def _machine(self, disk: Disk) -> "CrashFS":
        other = CrashFS(reopen=self.reopen, page_bytes=self.page_bytes)
        other.disk = disk
        return other

    def kill(self) -> None:
        """End this process.

        Its locks are released, the page cache stays, further calls have no effect.
        """
        with self.mutex:
            self.dead = True
            for file in self._lock_files:
                file.drop_locks()

    def kill_clone(self, torn: Call | None = None) -> "CrashFS":
        """Copy the machine, kill all processes of the copy, and return a new process there.

        Args:
            torn: The write that `on_call` was just called with, of which a part was done.
        """
        with self.mutex:
            other = self._machine(self.disk.clone())
        part = self.torn_size(torn.at, torn.size) if torn is not None else 0
        if torn is not None and part and isinstance(node := other._find(torn.path), FileNode):
            node.change(FileOp(torn.at, self.writing[:part]))
        return other

    def crash_clone(self, rng: random.Random | None = None, mode: Mode = "random") -> "CrashFS":
        """Return a new process on a copy of the machine, after a power cut and a restart.

        Args:
            rng: Selects which unsynced changes survive.
            mode: "random" keeps a random part of the unsynced changes; see `sparklog.testing.disk`.
        """
        if rng is None:
            rng = random.Random(0)
        with self.mutex:
            disk = self.disk.after_power_cut(rng, mode)
        return self._machine(disk)

    def fail_at(
        self,
        number: int,
        fault: Fault,
        *,
        ops: Collection[str] | None = None,
        times: int = 1,
        when: Callable[[Call], bool] | None = None,
    ) -> None:
        """Let a future call meet a fault.

        Args:
            number: The number of the call, counted from now; 1 is the next call.
            fault: The fault.
            ops: The operations that are counted; by default all changes that the fault can affect.
            times: The number of consecutive calls that meet the fault.
            when: Counts only the calls for which the function returns True.
        """
        default = {Fault.NO_SPACE: GROWING, Fault.TORN_KILL: {"pwrite"}}.get(fault, MUTATING)
        self._plans.append(Plan(fault, number, times, ops if ops is not None else default, when))

    def heal(self) -> None:
        """Cancel all planned faults."""
        self._plans.clear()

    def meet(self, op: str, path: str, at: int = 0, size: int = 0, to: str = "") -> Fault | None:
        """Count a call that changes the file system, and return its planned fault.

        Args:
            op: The operation.
            path: The file or directory.
            at: The byte position of a write.
            size: The number of bytes of a write, or the new size of a truncated file.
            to: The second name of a rename or link.
        """
        if self.dead:
            self.check_alive()
        call = Call(len(self.calls) + 1, op, path, at, size, to)
        # Before the call has an effect: a clone made in the callback is the machine without it.
        if self.on_call is not None:
            self.on_call(call)
        self.calls.append(call)
        if not self._plans:
            return None
        # Every plan counts every call, also if an earlier plan's fault is the one that happens.
        struck = [plan.fault for plan in self._plans if plan.strikes(call)]
        return struck[0] if struck else None

    def suffer(self, fault: Fault | None, verb: str, path: str) -> None:
        """Raise the error of a fault.

        Args:
            fault: The fault; None has no effect.
            verb: The operation, for the message.
            path: The file or directory, for the message.
        """
        if fault in (Fault.KILL, Fault.TORN_KILL):
            self.kill()
            self.check_alive()
        elif fault is not None:
            raise refuse(ERRNO[fault], verb, path)

    def torn_size(self, at: int, size: int) -> int:
        """Return how many bytes are written if the process dies in a write: about half.

        Args:
            at: The byte position of the write.
            size: The number of bytes.
        """
        cut = (at + size // 2) // self.page_bytes * self.page_bytes
        return max(0, cut - at)

    def check_alive(self) -> None:
        """Raise SimulatedKill if the process was killed."""
        if self.dead:
            raise SimulatedKill(f"killed after {len(self.calls)} calls: {self.calls[-1:]}")

    # -- FileSystem ----------------------------------------------------------------------------

    def open(self, path: str, *, create: bool = False, write: bool = False) -> File:
        with self.mutex:
            node = self._open_node(path, create=create)
            return CrashFile(self, path, node, write=write or create)

    def open_lock(self, path: str, *, create: bool = True) -> LockFile:
        with self.mutex:
            node = self._open_node(path, create=create)
            file = CrashLockFile(self, path, node, write=True)
            self._lock_files.append(file)
            return file

    def is_locked(self, path: str, first: int, length: int) -> bool:
        with self.mutex:
            self.check_alive()
            node = self._find(path)
            return isinstance(node, FileNode) and node.is_locked(first, length)

    def _open_node(self, path: str, *, create: bool) -> FileNode:
        self.check_alive()
        parent, name = self._parent(path, "open")
        node = parent.entries.get(name)
        if isinstance(node, DirNode):
            raise refuse(errno.EISDIR, "open", path)
        if node is None:
            if not create:
                self._missing(path)
            self._count("create", "open", path)
            node = FileNode(self.disk.new_ino(), self.disk.clock())
            parent.change(name, node)
        return node

    def map(self, path: str) -> Mapping:
        with self.mutex:
            return CrashMapping(self, self._file_node(path, "map"))

    def exists(self, path: str) -> bool:
        with self.mutex:
            self.check_alive()
            return self._find(path) is not None

    def is_link(self, path: str) -> bool:
        return False  # symbolic links are not simulated

    def is_dir(self, path: str) -> bool:
        with self.mutex:
            self.check_alive()
            return isinstance(self._find(path), DirNode)

    def size(self, path: str) -> int:
        with self.mutex:
            node = self._existing(path)
            return len(node.data) if isinstance(node, FileNode) else 4096

    def mtime_ms(self, path: str) -> int:
        with self.mutex:
            return self._existing(path).mtime_ms

    def changed_ms(self, path: str) -> int:
        with self.mutex:
            node = self._existing(path)
            return max(node.mtime_ms, node.renamed_ms)

    def set_mtime_ms(self, path: str, mtime_ms: int) -> None:
        with self.mutex:
            self._existing(path).mtime_ms = mtime_ms

    def identity(self, path: str) -> tuple[int, int]:
        with self.mutex:
            return self.disk.dev, self._existing(path).ino

    def links(self, path: str) -> int:
        with self.mutex:
            return _names_of(self.disk.root, self._existing(path))

    def listdir(self, path: str) -> list[str]:
        with self.mutex:
            return sorted(self._directory(path, "list").entries)

    def mkdir(self, path: str) -> None:
        with self.mutex:
            parent, name = self._parent(path, "make directory")
            if name in parent.entries:
                raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), path)
            self._count("mkdir", "make directory", path)
            parent.change(name, DirNode(self.disk.new_ino(), self.disk.clock()))

    def rmdir(self, path: str) -> None:
        with self.mutex:
            parent, name = self._parent(path, "remove directory")
            if self._directory(path, "remove directory").entries:
                raise refuse(errno.ENOTEMPTY, "remove directory", path)
            self._count("rmdir", "remove directory", path)
            parent.change(name, None)
            # The cache of directories by path may contain this directory.
            self.disk.places.clear()

    def unlink(self, path: str) -> None:
        with self.mutex:
            parent, name = self._parent(path, "delete")
            self._file_node(path, "delete")
            self._count("unlink", "delete", path)
            parent.change(name, None)

    def rename(self, src: str, dst: str) -> None:
        with self.mutex:
            parent, name = self._parent(src, "rename")
            node = self._existing(src)
            target, new_name = self._parent(dst, "rename")
            old = target.entries.get(new_name)
            self._check_replace(node, old, src)
            self._count("rename", "rename", src, dst)
            if old is not node:
                came = target.change(new_name, node)
                node.renamed_ms = self.disk.clock()
                went = parent.change(name, None, needs=came)
                if isinstance(node, DirNode):
                    came.needs = went  # a directory never has two names
                    self.disk.places.clear()

    @staticmethod
    def _check_replace(node: Node, old: Node | None, src: str) -> None:
        if isinstance(old, DirNode) and isinstance(node, FileNode):
            raise refuse(errno.EISDIR, "rename", src)
        if isinstance(old, FileNode) and isinstance(node, DirNode):
            raise refuse(errno.ENOTDIR, "rename", src)
        if isinstance(old, DirNode) and old.entries:
            raise refuse(errno.ENOTEMPTY, "rename", src)

    def exchange(self, one: str, other: str) -> bool:
        with self.mutex:
            parent, name = self._parent(one, "exchange")
            target, new_name = self._parent(other, "exchange")
            node, old = self._existing(one), self._existing(other)
            if not self.disk.exchanges:
                return False
            self._count("exchange", "exchange", one, other)
            came = target.change(new_name, node)
            came.needs = parent.change(name, old, needs=came)  # both or none
            self.disk.places.clear()
            return True

    def link(self, src: str, dst: str) -> None:
        with self.mutex:
            node = self._file_node(src, "link")
            target, new_name = self._parent(dst, "link")
            if new_name in target.entries:
                raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), src, None, dst)
            self._count("link", "link", src, dst)
            target.change(new_name, node)
            node.renamed_ms = self.disk.clock()

    def sync_dir(self, path: str) -> None:
        with self.mutex:
            node = self._directory(path, "sync directory")
            self._count("sync_dir", "sync directory", path)
            node.sync()

    def volume(self, path: str) -> Volume:
        with self.mutex:
            self._existing(path)
            return Volume(1 << 40, is_read_only=False)

    def free_bytes(self, path: str) -> int:
        with self.mutex:
            self._existing(path)
            return self.disk.free_bytes

    def may_write(self, path: str) -> bool:
        return True

    def boot_id(self) -> str:
        return self.disk.boot_id

    def kind(self, path: str) -> str:
        return self.disk.kind

    # -- paths ---------------------------------------------------------------------------------

    def _count(self, op: str, verb: str, path: str, to: str = "") -> None:
        """Count a call that is about to change the tree, and raise a planned fault."""
        self.suffer(self.meet(op, path, to=to), verb, path)

    def _find(self, path: str) -> Node | None:
        """Return the node at a path, or None."""
        head, name = _split(path)
        parent = self.disk.places.get(head)
        if parent is None:
            found = self._walk(head)
            if not isinstance(found, DirNode):
                return None
            parent = self.disk.places[head] = found
        return parent.entries.get(name) if name else parent

    def _walk(self, path: str) -> Node | None:
        node: Node | None = self.disk.root
        for part in path.split("/"):
            if part in ("", "."):
                continue
            if not isinstance(node, DirNode):
                return None
            node = node.entries.get(part)
        return node

    def _existing(self, path: str) -> Node:
        self.check_alive()
        node = self._find(path)
        if node is None:
            self._missing(path)
        return node

    def _file_node(self, path: str, verb: str) -> FileNode:
        """Return the file at a path; raises the errors of an open."""
        node = self._existing(path)
        if isinstance(node, DirNode):
            raise refuse(errno.EISDIR, verb, path)
        return node

    def _directory(self, path: str, verb: str) -> DirNode:
        node = self._existing(path)
        if isinstance(node, FileNode):
            raise refuse(errno.ENOTDIR, verb, path)
        return node

    def _parent(self, path: str, verb: str) -> tuple[DirNode, str]:
        self.check_alive()
        head, name = _split(path)
        node: Node | None = self.disk.places.get(head)
        if node is None:
            node = self._find(head)
        if node is None:
            self._missing(path)
        if isinstance(node, FileNode):
            raise refuse(errno.ENOTDIR, verb, path)
        return node, name

    @staticmethod
    def _missing(path: str) -> NoReturn:
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
