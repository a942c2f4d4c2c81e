"""Linux's open-file-description locks.

Unlike POSIX locks, they survive the closing of another descriptor of the same file, work between
threads, and conflict with Java's FileLock. Source: fcntl(2); why not POSIX locks: PROTOCOL, C3.
"""

import contextlib
import fcntl
import os
import struct
import weakref

from sparklog.fs.files import LocalFile, Pool, pools, translate_os_errors

_FLOCK = struct.Struct("hhqqi4x")  # struct flock on 64-bit Linux: type, whence, start, len, pid
_lock_files: "weakref.WeakSet[LocalLockFile]" = weakref.WeakSet()


class LocalLockFile(LocalFile):
    """A file with open-file-description locks. Its descriptor is never managed by the pool."""

    def __init__(self, path: str, flags: int) -> None:
        # Closing the descriptor would release the locks, so it is in a pool of its own that never
        # closes it.
        super().__init__(path, flags, Pool(1 << 30))
        _lock_files.add(self)

    def try_lock(self, first: int, length: int, *, exclusive: bool) -> bool:
        kind = fcntl.F_WRLCK if exclusive else fcntl.F_RDLCK
        with self._descriptor("lock") as fd:
            try:
                self._set(fd, kind, first, length)
            # Which of the two the kernel reports for a held lock depends on the system: see
            # fcntl(2), EAGAIN or EACCES.
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
        """Close without waiting for a lock that only the parent process can release."""
        if self._fd >= 0:
            os.close(self._fd)
        self._fd, self._closed = -1, True
        self.renew_lock()


def is_locked(path: str, first: int, length: int) -> bool:
    """Return whether any open file description has a lock there, including this process's own."""
    with contextlib.suppress(FileNotFoundError), translate_os_errors("look at the locks of", path):
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            asked = _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, first, length, 0)
            found = fcntl.fcntl(fd, fcntl.F_OFD_GETLK, asked)
        finally:
            os.close(fd)
        return bool(_FLOCK.unpack(found)[0] != fcntl.F_UNLCK)
    return False


def _forget_locks_in_child() -> None:
    # A forked child shares the description, so the parent's locks would survive the parent.
    for file in list(_lock_files):
        file.forget()
    for pool in list(pools):
        pool.renew_locks()


os.register_at_fork(after_in_child=_forget_locks_in_child)
