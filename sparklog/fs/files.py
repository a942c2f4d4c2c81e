"""Local files by descriptor, with a limit on the number of open descriptors."""

import contextlib
import errno
import os
import threading
import weakref
from collections import OrderedDict
from collections.abc import Iterator
from typing import Final, Self

from sparklog.errors import StorageUnavailableError
from sparklog.fs.protocol import Buffer

HINTS: Final = {
    errno.ENOSPC: "; free space on that disk, then repeat the call",
    errno.EDQUOT: "; raise the quota, then repeat the call",
    errno.EACCES: "; give this user the right to do so",
    errno.EROFS: "; the file system is mounted read-only",
}
"""Advice for system errors, by their number."""

REFUSED: Final = "can't {verb} {path}: {reason}{hint}"
"""The text of StorageUnavailableError; `reason` is the system's message."""


@contextlib.contextmanager
def translate_os_errors(verb: str, path: str) -> Iterator[None]:
    """Turn OSErrors of an operation into StorageUnavailableError."""
    try:
        yield
    except (FileNotFoundError, FileExistsError):
        raise
    except OSError as error:
        hint = HINTS.get(error.errno or 0, "")
        message = REFUSED.format(verb=verb, path=path, reason=error.strerror, hint=hint)
        raise StorageUnavailableError(message) from error


pools: "weakref.WeakSet[Pool]" = weakref.WeakSet()


class Pool:
    """Limits the number of open descriptors; the least recently used is closed first."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        # Weak references, so that unused files are collected and close themselves.
        self._open: OrderedDict[int, weakref.ref[LocalFile]] = OrderedDict()
        self._lock = threading.RLock()  # reentrant: a file may be collected while it is owned
        pools.add(self)

    def used(self, file: "LocalFile") -> None:
        with self._lock:
            self._open[id(file)] = weakref.ref(file)
            surplus = [
                self._open.popitem(last=False)[1]
                for _ in range(max(0, len(self._open) - self._limit))
            ]
        for reference in surplus:
            other = reference()
            if other is not None and not other.release():
                with self._lock:  # busy: try again later
                    self._open[id(other)] = reference

    def gone(self, file: "LocalFile") -> None:
        with self._lock:
            self._open.pop(id(file), None)

    def renew_locks(self) -> None:
        """Replace the locks in a forked child, where a thread that does not exist may own them."""
        self._lock = threading.RLock()
        for reference in list(self._open.values()):
            file = reference()
            if file is not None:
                file.renew_lock()


class LocalFile:
    """A file with a pooled descriptor. The pool may close it between calls; a call reopens it."""

    def __init__(self, path: str, flags: int, pool: Pool) -> None:
        self.path = path
        self._flags, self._pool = flags, pool
        self._fd = -1
        self._identity: tuple[int, int] | None = None
        self._closed = False
        self._lock = threading.Lock()
        with self._descriptor("open"):
            self._flags &= ~(os.O_CREAT | os.O_EXCL)  # opening again must not create a file

    @contextlib.contextmanager
    def _descriptor(self, verb: str) -> Iterator[int]:
        with self._lock, translate_os_errors(verb, self.path):
            if self._closed:
                raise ValueError(f"{self.path} is closed")
            fresh = self._fd < 0
            if fresh:
                self._fd = os.open(self.path, self._flags | os.O_CLOEXEC, 0o666)
                self._check_identity()
            yield self._fd
        if fresh:
            self._pool.used(self)

    def _check_identity(self) -> None:
        """Raise FileNotFoundError if the path names another file than at the first open."""
        stat = os.fstat(self._fd)
        identity = stat.st_dev, stat.st_ino
        # The pool closes descriptors between calls. If the file was replaced in between, reading on
        # in the new file would mix the contents of two files.
        if self._identity not in (None, identity):
            os.close(self._fd)
            self._fd = -1
            raise FileNotFoundError(errno.ENOENT, "replaced by another file", self.path)
        self._identity = identity

    def release(self) -> bool:
        """Close the descriptor unless a call is using it. Called by the pool."""
        if not self._lock.acquire(blocking=False):
            return False
        try:
            if self._fd >= 0:
                os.close(self._fd)
                self._fd = -1
        finally:
            self._lock.release()
        return True

    def renew_lock(self) -> None:
        """Replace the lock; see `Pool.renew_locks`."""
        self._lock = threading.Lock()

    def pread(self, size: int, at: int) -> bytes:
        with self._descriptor("read") as fd:
            # Linux reads at most 2 GiB per call, and a signal may end a read early: repeat until
            # the end of the file.
            data = os.pread(fd, size, at)
            if len(data) == size or not data:
                return data
            parts = [data]
            got = len(data)
            while got < size and (data := os.pread(fd, size - got, at + got)):
                parts.append(data)
                got += len(data)
            return b"".join(parts)

    def pread_into(self, buffer: memoryview, at: int) -> int:
        """Fill `buffer` with the bytes from `at` on; return how many, fewer at the end of the file.

        Large reads into reused memory cost a fifth of reads into new memory.
        """
        got = 0
        with self._descriptor("read") as fd:
            while got < len(buffer) and (read := os.preadv(fd, [buffer[got:]], at + got)):
                got += read
        return got

    def stat(self) -> tuple[int, int, int]:
        """Return device, inode and modification time in ns."""
        with self._descriptor("stat") as fd:
            stat = os.fstat(fd)
            return stat.st_dev, stat.st_ino, stat.st_mtime_ns

    def duplicate(self) -> int:
        """Return a new descriptor of the open file, which the caller must close."""
        with self._descriptor("open") as fd:
            return os.dup(fd)

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
            # fdatasync also writes the size of the file, which is needed to read the data, but not
            # its times.
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
            self._fd = -1
