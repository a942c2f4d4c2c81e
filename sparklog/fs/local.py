"""The machine's own file system."""

import contextlib
import ctypes
import errno
import functools
import mmap
import os
import resource
import stat
from collections.abc import Callable
from typing import Final

from sparklog.fs.files import LocalFile, Pool, translate_os_errors
from sparklog.fs.locks import LocalLockFile, is_locked
from sparklog.fs.protocol import Volume

_AT_FDCWD: Final = -100
_RENAME_EXCHANGE: Final = 2  # linux/fs.h
_UNKNOWN: Final = (errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP)


class LocalMapping:
    """The mapping of a closed file. An empty file has an empty view, because mmap rejects it."""

    def __init__(self, path: str) -> None:
        with translate_os_errors("map", path), open(path, "rb") as file:
            size = os.fstat(file.fileno()).st_size
            self._map = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) if size else None
        self.data = memoryview(self._map) if self._map is not None else memoryview(b"")

    def close(self) -> None:
        # A NumPy view of the data may outlive this object; the last view then closes the mapping.
        self.data = memoryview(b"")
        self._map = None


class LocalFileSystem:
    """The machine's file system. `descriptors` limits the number of open files."""

    sync_threads: int = 8  # a journal combines concurrent syncs into a single write

    def __init__(self, descriptors: int | None = None) -> None:
        if descriptors is None:
            # Leave three quarters of the limit to Spark, Arrow and the user's own files in this
            # process.
            soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
            descriptors = max(16, min(512, soft // 4))
        self._pool = Pool(descriptors)

    def open(self, path: str, *, create: bool = False, write: bool = False) -> LocalFile:
        flags = os.O_RDWR if create or write else os.O_RDONLY
        return LocalFile(path, flags | (os.O_CREAT if create else 0), self._pool)

    def open_lock(self, path: str, *, create: bool = True) -> LocalLockFile:
        return LocalLockFile(path, os.O_RDWR | (os.O_CREAT if create else 0))

    def is_locked(self, path: str, first: int, length: int) -> bool:
        return is_locked(path, first, length)

    def map(self, path: str) -> LocalMapping:
        return LocalMapping(path)

    def exists(self, path: str) -> bool:
        return os.path.exists(path)

    def is_dir(self, path: str) -> bool:
        return os.path.isdir(path)

    def is_link(self, path: str) -> bool:
        return os.path.islink(path)

    def size(self, path: str) -> int:
        with translate_os_errors("stat", path):
            return os.stat(path).st_size

    def mtime_ms(self, path: str) -> int:
        with translate_os_errors("stat", path):
            return os.stat(path).st_mtime_ns // 1_000_000

    def changed_ms(self, path: str) -> int:
        with translate_os_errors("stat", path):
            return os.stat(path).st_ctime_ns // 1_000_000

    def set_mtime_ms(self, path: str, mtime_ms: int) -> None:
        with translate_os_errors("set the time of", path):
            os.utime(path, ns=(mtime_ms * 1_000_000, mtime_ms * 1_000_000))

    def copy_mode_and_owner(self, path: str, model: str) -> None:
        """Give `path` the mode and owner of `model`; the owner may always write.

        This is done as far as the file system and the permissions of this process allow. Files with
        several hard links are left unchanged.
        """
        with contextlib.suppress(OSError):
            own, wanted = os.stat(path), os.stat(model)
            if stat.S_ISDIR(own.st_mode) or own.st_nlink == 1:
                ours = stat.S_IRWXU if stat.S_ISDIR(own.st_mode) else stat.S_IRUSR | stat.S_IWUSR
                os.chmod(path, stat.S_IMODE(wanted.st_mode) | ours)
                os.chown(path, wanted.st_uid, wanted.st_gid)

    def identity(self, path: str) -> tuple[int, int]:
        with translate_os_errors("stat", path):
            found = os.stat(path)
            return found.st_dev, found.st_ino

    def links(self, path: str) -> int:
        with translate_os_errors("stat", path):
            return os.stat(path).st_nlink

    def listdir(self, path: str) -> list[str]:
        with translate_os_errors("list", path):
            return sorted(os.listdir(path))

    def mkdir(self, path: str) -> None:
        with translate_os_errors("make directory", path):
            os.mkdir(path)

    def rmdir(self, path: str) -> None:
        with translate_os_errors("remove directory", path):
            os.rmdir(path)

    def unlink(self, path: str) -> None:
        with translate_os_errors("delete", path):
            os.unlink(path)

    def rename(self, src: str, dst: str) -> None:
        with translate_os_errors("rename", src):
            os.rename(src, dst)

    def exchange(self, one: str, other: str) -> bool:
        with translate_os_errors("exchange", one):
            return _exchange(one, other)

    def link(self, src: str, dst: str) -> None:
        with translate_os_errors("link", src):
            os.link(src, dst)

    def sync_dir(self, path: str) -> None:
        with translate_os_errors("sync directory", path):
            fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                os.fsync(fd)
            finally:
                os.close(fd)

    def free_bytes(self, path: str) -> int:
        with translate_os_errors("stat", path):
            found = os.statvfs(path)
            return found.f_bavail * found.f_frsize

    def volume(self, path: str) -> Volume:
        with translate_os_errors("stat", path):
            found = os.statvfs(path)
            return Volume(found.f_blocks * found.f_frsize, bool(found.f_flag & os.ST_RDONLY))

    def may_write(self, path: str) -> bool:
        wanted = os.W_OK | (os.X_OK if os.path.isdir(path) else 0)
        return os.access(path, wanted, effective_ids=True)

    def boot_id(self) -> str:
        with (
            translate_os_errors("read", "/proc/sys/kernel/random/boot_id"),
            open("/proc/sys/kernel/random/boot_id") as file,
        ):
            return file.read().strip()

    def kind(self, path: str) -> str:
        """Return the type of the mount that contains `path`.

        Source: proc(5), /proc/PID/mountinfo.
        """
        real, best, kind = os.path.realpath(path) + "/", "", ""
        with open("/proc/self/mountinfo") as file:
            for line in file:
                left, _, right = line.partition(" - ")
                # The kernel writes spaces and other special characters of mount points as octal
                # escapes.
                mount = left.split()[4].encode().decode("unicode_escape").rstrip("/") + "/"
                # The longest mount point contains the path. Of two mounts on the same point the
                # later one is visible.
                if real.startswith(mount) and len(mount) >= len(best):
                    best, kind = mount, right.split()[0]
        return kind


@functools.cache
def _renameat2() -> Callable[..., int] | None:
    """Return the C library's renameat2, which Python lacks.

    Source: renameat2(2), glibc 2.28, musl 1.1.
    """
    found: Callable[..., int] | None
    found = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    return found


def _exchange(one: str, other: str) -> bool:
    # An old C library lacks the function, and some file systems reject the flag: the caller then
    # takes another way.
    call = _renameat2()
    if call is None:
        return False
    names = os.fsencode(one), os.fsencode(other)
    if call(_AT_FDCWD, names[0], _AT_FDCWD, names[1], _RENAME_EXCHANGE) == 0:
        return True
    number = ctypes.get_errno()
    if number in _UNKNOWN:
        return False
    raise OSError(number, os.strerror(number), one, None, other)
