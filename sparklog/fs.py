"""The one door to local files: what the engine asks of a file system, and the real one.

Everything that sparklog reads or writes on a local disk goes through a `FileSystem`, so that
`sparklog.testing.crashfs` can stand behind the same door and lose what was never synced. The
contract is POSIX's, made explicit:

- `pwrite` writes all bytes or raises; nothing is durable before `File.sync`.
- A name made or removed by `open(create)`, `rename`, `link` or `unlink` is durable only after
  `sync_dir` of its directory. `rename` over an existing name is atomic.
- FileNotFoundError and FileExistsError pass through, for they steer control flow; every other
  OSError becomes StorageUnavailableError with the path and the operation.

Locks are Linux's open-file-description locks: unlike POSIX ones they survive the closing of
another descriptor of the same file, work between threads, and conflict with Java's FileLock.
Source: fcntl(2), "Open file description locks"; why not POSIX locks: PROTOCOL, C3.
"""

import contextlib
import errno
import fcntl
import mmap
import os
import resource
import struct
import threading
import weakref
from collections import OrderedDict
from collections.abc import Iterator
from itertools import islice
from typing import Protocol, Self

from sparklog.errors import StorageUnavailableError

Buffer = bytes | bytearray | memoryview


class File(Protocol):
    """An open file. Reads and writes name their position; there is no cursor to share."""

    path: str

    def pread(self, size: int, at: int) -> bytes:
        """Return the bytes [at, at + size), fewer only where the file ends."""

    def pwrite(self, data: Buffer, at: int) -> None:
        """Write all of `data` at byte `at`, growing the file as needed."""

    def truncate(self, size: int) -> None:
        """Cut or zero-extend the file to `size` bytes."""

    def size(self) -> int:
        """Return the size in bytes."""

    def sync(self) -> None:
        """Make the contents durable (fdatasync). Never retry after an error: rewrite."""

    def close(self) -> None:
        """Give the descriptor back; further use is an error."""

    def __enter__(self) -> Self: ...

    def __exit__(self, *exc: object) -> None: ...


class LockFile(File, Protocol):
    """A file whose bytes can be locked. The locks die with this object or its process."""

    def try_lock(self, first: int, length: int, *, exclusive: bool) -> bool:
        """Lock [first, first + length) without waiting (length 0: to the end); False if held."""

    def unlock(self, first: int, length: int) -> None:
        """Release that range."""

    def is_current(self) -> bool:
        """Tell whether the path still names this very file (it may have been unlinked)."""

    def identity(self) -> tuple[int, int]:
        """Return (device, inode)."""


class Mapping(Protocol):
    """A read-only view of a whole file that nobody will truncate."""

    data: memoryview

    def close(self) -> None:
        """Drop the view."""


class FileSystem(Protocol):
    """See the module's text for the contract."""

    def open(self, path: str, *, create: bool = False, write: bool = False) -> File:
        """Open a file; `create` implies `write` and makes it, empty, where there is none."""

    def open_lock(self, path: str, *, create: bool = True) -> LockFile:
        """Open a file for locking, reading and writing; made where there is none."""

    def map(self, path: str) -> Mapping:
        """Map a closed file into memory, read-only."""

    def exists(self, path: str) -> bool: ...

    def is_dir(self, path: str) -> bool: ...

    def size(self, path: str) -> int: ...

    def mtime_ms(self, path: str) -> int: ...

    def identity(self, path: str) -> tuple[int, int]:
        """Return (device, inode) of a path."""

    def listdir(self, path: str) -> list[str]:
        """Return the names in a directory, sorted."""

    def mkdir(self, path: str) -> None: ...

    def rmdir(self, path: str) -> None: ...

    def unlink(self, path: str) -> None: ...

    def rename(self, src: str, dst: str) -> None: ...

    def link(self, src: str, dst: str) -> None:
        """Give a file a second name (hard link)."""

    def sync_dir(self, path: str) -> None: ...

    def free_bytes(self, path: str) -> int: ...

    def boot_id(self) -> str:
        """Return what changes when the machine loses its page cache."""

    def kind(self, path: str) -> str:
        """Return the file system's type, e.g. "ext4" or "nfs4"; "" if it can't be told."""


def read_bytes(fs: FileSystem, path: str) -> bytes:
    """Return a whole small file."""
    with fs.open(path) as file:
        return file.pread(file.size(), 0)


def write_durably(fs: FileSystem, path: str, data: Buffer, *, sync_dir: bool = True) -> None:
    """Replace `path` by `data` so that a crash leaves the old or the new contents, whole.

    Without `sync_dir` the new contents may still be lost to a power cut, the old ones then stay.
    Source: Kafka's CheckpointFile.write.
    """
    temporary = path + ".tmp"
    with fs.open(temporary, create=True) as file:
        file.truncate(0)
        file.pwrite(data, 0)
        file.sync()
    fs.rename(temporary, path)
    if sync_dir:
        fs.sync_dir(os.path.dirname(path))


@contextlib.contextmanager
def _door(verb: str, path: str) -> Iterator[None]:
    try:
        yield
    except (FileNotFoundError, FileExistsError):
        raise
    except OSError as error:
        hint = {
            errno.ENOSPC: "; free space on that disk, then repeat the call",
            errno.EDQUOT: "; raise the quota, then repeat the call",
            errno.EACCES: "; give this user the right to do so",
            errno.EROFS: "; the file system is mounted read-only",
        }.get(error.errno or 0, "")
        raise StorageUnavailableError(f"can't {verb} {path}: {error.strerror}{hint}") from error


class _Pool:
    """Keeps at most `limit` descriptors open; the least recently used one is closed first."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._open: OrderedDict[int, LocalFile] = OrderedDict()
        self._lock = threading.Lock()

    def used(self, file: "LocalFile") -> None:
        with self._lock:
            self._open[id(file)] = file
            self._open.move_to_end(id(file))
            surplus = list(islice(self._open.values(), max(0, len(self._open) - self._limit)))
        for other in surplus:
            other.release()

    def gone(self, file: "LocalFile") -> None:
        with self._lock:
            self._open.pop(id(file), None)


class LocalFile:
    """A file by its descriptor; the pool may close it between calls and it opens itself again."""

    def __init__(self, path: str, flags: int, pool: _Pool) -> None:
        self.path = path
        self._flags, self._pool = flags, pool
        self._fd = -1
        self._closed = False
        self._lock = threading.Lock()
        with self._descriptor("open"):
            self._flags &= ~(os.O_CREAT | os.O_EXCL)  # opening again must not make it anew

    @contextlib.contextmanager
    def _descriptor(self, verb: str) -> Iterator[int]:
        with self._lock, _door(verb, self.path):
            if self._closed:
                raise ValueError(f"{self.path} is closed")
            fresh = self._fd < 0
            if fresh:
                self._fd = os.open(self.path, self._flags | os.O_CLOEXEC, 0o644)
            yield self._fd
        if fresh:
            self._pool.used(self)

    def release(self) -> None:
        """Close the descriptor if no call is using it (the pool asks for this)."""
        if self._lock.acquire(blocking=False):
            try:
                self._pool.gone(self)
                if self._fd >= 0:
                    os.close(self._fd)
                    self._fd = -1
            finally:
                self._lock.release()

    def pread(self, size: int, at: int) -> bytes:
        with self._descriptor("read") as fd:
            data = os.pread(fd, size, at)
            if len(data) == size or not data:
                return data
            parts = [data]
            got = len(data)
            while got < size and (data := os.pread(fd, size - got, at + got)):
                parts.append(data)
                got += len(data)
            return b"".join(parts)

    def pwrite(self, data: Buffer, at: int) -> None:
        with self._descriptor("write") as fd:
            view = memoryview(data).cast("B")
            while view:
                done = os.pwrite(fd, view, at)
                view, at = view[done:], at + done

    def truncate(self, size: int) -> None:
        with self._descriptor("truncate") as fd:
            os.ftruncate(fd, size)

    def size(self) -> int:
        with self._descriptor("stat") as fd:
            return os.fstat(fd).st_size

    def sync(self) -> None:
        with self._descriptor("sync") as fd:
            os.fdatasync(fd)

    def close(self) -> None:
        with self._lock:
            self._closed = True
            self._pool.gone(self)
            if self._fd >= 0:
                os.close(self._fd)
                self._fd = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def __del__(self) -> None:
        if getattr(self, "_fd", -1) >= 0:
            os.close(self._fd)


_FLOCK = struct.Struct("hhqqi4x")  # struct flock on 64-bit Linux: type, whence, start, len, pid
_lock_files: "weakref.WeakSet[LocalLockFile]" = weakref.WeakSet()


class LocalLockFile(LocalFile):
    """A file with open-file-description locks; its descriptor is never given to the pool."""

    def __init__(self, path: str, flags: int) -> None:
        super().__init__(path, flags, _Pool(1 << 30))
        _lock_files.add(self)

    def try_lock(self, first: int, length: int, *, exclusive: bool) -> bool:
        kind = fcntl.F_WRLCK if exclusive else fcntl.F_RDLCK
        with self._descriptor("lock") as fd:
            try:
                self._set(fd, kind, first, length)
            except (BlockingIOError, PermissionError):
                return False
            return True

    def unlock(self, first: int, length: int) -> None:
        with self._descriptor("unlock") as fd:
            self._set(fd, fcntl.F_UNLCK, first, length)

    @staticmethod
    def _set(fd: int, kind: int, first: int, length: int) -> None:
        fcntl.fcntl(fd, fcntl.F_OFD_SETLK, _FLOCK.pack(kind, os.SEEK_SET, first, length, 0))

    def is_current(self) -> bool:
        with contextlib.suppress(FileNotFoundError):
            stat = os.stat(self.path)
            return (stat.st_dev, stat.st_ino) == self.identity()
        return False

    def identity(self) -> tuple[int, int]:
        with self._descriptor("stat") as fd:
            stat = os.fstat(fd)
            return stat.st_dev, stat.st_ino

    def forget(self) -> None:
        """Close without waiting for a lock that only the parent process could release."""
        if self._fd >= 0:
            os.close(self._fd)
        self._fd, self._closed = -1, True


def _forget_locks_in_child() -> None:
    # A forked child shares the description, so it would hold the parent's locks past its death.
    for file in list(_lock_files):
        file.forget()


os.register_at_fork(after_in_child=_forget_locks_in_child)


class LocalMapping:
    """mmap of a closed file (an empty file has an empty view: mmap refuses those)."""

    def __init__(self, path: str) -> None:
        with _door("map", path), open(path, "rb") as file:
            size = os.fstat(file.fileno()).st_size
            self._map = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) if size else None
        self.data = memoryview(self._map) if self._map is not None else memoryview(b"")

    def close(self) -> None:
        # A NumPy view of the data may outlive us; the map then goes when the last view does.
        self.data = memoryview(b"")
        self._map = None


class LocalFileSystem:
    """The machine's own file system. `descriptors` bounds the files that are open at once."""

    def __init__(self, descriptors: int | None = None) -> None:
        if descriptors is None:
            soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
            descriptors = max(16, min(512, soft // 4))
        self._pool = _Pool(descriptors)

    def open(self, path: str, *, create: bool = False, write: bool = False) -> LocalFile:
        flags = os.O_RDWR if create or write else os.O_RDONLY
        return LocalFile(path, flags | (os.O_CREAT if create else 0), self._pool)

    def open_lock(self, path: str, *, create: bool = True) -> LocalLockFile:
        return LocalLockFile(path, os.O_RDWR | (os.O_CREAT if create else 0))

    def map(self, path: str) -> LocalMapping:
        return LocalMapping(path)

    def exists(self, path: str) -> bool:
        return os.path.exists(path)

    def is_dir(self, path: str) -> bool:
        return os.path.isdir(path)

    def size(self, path: str) -> int:
        with _door("stat", path):
            return os.stat(path).st_size

    def mtime_ms(self, path: str) -> int:
        with _door("stat", path):
            return os.stat(path).st_mtime_ns // 1_000_000

    def identity(self, path: str) -> tuple[int, int]:
        with _door("stat", path):
            stat = os.stat(path)
            return stat.st_dev, stat.st_ino

    def listdir(self, path: str) -> list[str]:
        with _door("list", path):
            return sorted(os.listdir(path))

    def mkdir(self, path: str) -> None:
        with _door("make directory", path):
            os.mkdir(path)

    def rmdir(self, path: str) -> None:
        with _door("remove directory", path):
            os.rmdir(path)

    def unlink(self, path: str) -> None:
        with _door("delete", path):
            os.unlink(path)

    def rename(self, src: str, dst: str) -> None:
        with _door("rename", src):
            os.rename(src, dst)

    def link(self, src: str, dst: str) -> None:
        with _door("link", src):
            os.link(src, dst)

    def sync_dir(self, path: str) -> None:
        with _door("sync directory", path):
            fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                os.fsync(fd)
            finally:
                os.close(fd)

    def free_bytes(self, path: str) -> int:
        with _door("stat", path):
            stat = os.statvfs(path)
            return stat.f_bavail * stat.f_frsize

    def boot_id(self) -> str:
        with (
            _door("read", "/proc/sys/kernel/random/boot_id"),
            open("/proc/sys/kernel/random/boot_id") as file,
        ):
            return file.read().strip()

    def kind(self, path: str) -> str:
        """The type of the mount that holds `path`. Source: proc(5), /proc/PID/mountinfo."""
        real, best, kind = os.path.realpath(path) + "/", "", ""
        with open("/proc/self/mountinfo") as file:
            for line in file:
                left, _, right = line.partition(" - ")
                mount = left.split()[4].encode().decode("unicode_escape").rstrip("/") + "/"
                if real.startswith(mount) and len(mount) >= len(best):
                    best, kind = mount, right.split()[0]
        return kind


LOCAL = LocalFileSystem()
"""The file system that everything uses unless a test passes another."""
