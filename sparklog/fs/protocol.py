"""What the engine asks of a file system, and helpers for small files and paths.

- `pwrite` writes all bytes or raises; nothing is durable before `File.sync`.
- A name made or removed by `open(create)`, `rename`, `exchange`, `link` or `unlink` is durable
  only after `sync_dir` of its directory. `rename` over an existing name is atomic.
- FileNotFoundError and FileExistsError pass through, for they steer control flow; every other
  OSError becomes StorageUnavailableError with the path and the operation.
"""

import contextlib
import os
from typing import NamedTuple, Protocol, Self

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


class Volume(NamedTuple):
    """The mounted file system that a path is in, as KIP-827 calls it.

    `is_read_only`: it was mounted so, and nobody can write there.
    """

    total_bytes: int
    is_read_only: bool


class FileSystem(Protocol):
    """A file system for log dirs; `sparklog.testing.FileSystemContract` tests one.

    A write is durable after `File.sync`. A name that was created or removed is durable after
    `sync_dir` of its directory. `rename` over an existing name is atomic. FileNotFoundError and
    FileExistsError are raised as such; any other OSError becomes StorageUnavailableError with the
    path and the operation.
    """

    @property
    def sync_threads(self) -> int:
        """How many files it is worth to sync at once; 1: one call comes after the other."""

    def open(self, path: str, *, create: bool = False, write: bool = False) -> File:
        """Open a file; `create` implies `write` and makes it, empty, where there is none."""

    def open_lock(self, path: str, *, create: bool = True) -> LockFile:
        """Open a file for locking, reading and writing; made where there is none."""

    def is_locked(self, path: str, first: int, length: int) -> bool:
        """Tell whether somebody has locked any of [first, first + length) of a file.

        Takes no lock, and needs only to read; False where there is no file.
        """

    def map(self, path: str) -> Mapping:
        """Map a closed file into memory, read-only."""

    def exists(self, path: str) -> bool: ...

    def is_dir(self, path: str) -> bool: ...

    def is_link(self, path: str) -> bool:
        """Tell whether a name is a symbolic link, wherever it leads."""

    def size(self, path: str) -> int: ...

    def mtime_ms(self, path: str) -> int: ...

    def changed_ms(self, path: str) -> int:
        """Return when a file last changed in any way, its name included (st_ctime).

        It can't be set, and a copy has its own.
        """

    def set_mtime_ms(self, path: str, mtime_ms: int) -> None:
        """Set the time of a file's last change; it may be lost with the machine."""

    def identity(self, path: str) -> tuple[int, int]:
        """Return (device, inode) of a path."""

    def links(self, path: str) -> int:
        """Return how many names (hard links) a file has, wherever they are."""

    def listdir(self, path: str) -> list[str]:
        """Return the names in a directory, sorted."""

    def mkdir(self, path: str) -> None: ...

    def rmdir(self, path: str) -> None: ...

    def unlink(self, path: str) -> None: ...

    def rename(self, src: str, dst: str) -> None: ...

    def exchange(self, one: str, other: str) -> bool:
        """Let two names change places in one step; False where the file system can't."""

    def link(self, src: str, dst: str) -> None:
        """Give a file a second name (hard link)."""

    def sync_dir(self, path: str) -> None: ...

    def free_bytes(self, path: str) -> int: ...

    def volume(self, path: str) -> Volume:
        """Return the volume that a path is in."""

    def may_write(self, path: str) -> bool:
        """Tell whether this process has the right to write to a file, or to change a directory."""

    def boot_id(self) -> str:
        """Return what changes when the machine loses its page cache."""

    def kind(self, path: str) -> str:
        """Return the file system's type, e.g. "ext4" or "nfs4"; "" if it can't be told."""


def read_bytes(fs: FileSystem, path: str) -> bytes:
    """Return a whole small file."""
    with fs.open(path) as file:
        return file.pread(file.size(), 0)


def check_reachable(fs: FileSystem, path: str) -> None:
    """Raise StorageUnavailableError if it can't be told whether `path` exists: no rights, say."""
    with contextlib.suppress(FileNotFoundError):
        fs.identity(path)


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
