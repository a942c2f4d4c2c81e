"""The file system protocol of the engine, and helpers for small files and paths.

- `pwrite` writes all bytes or raises; bytes are durable after `File.sync`.
- A name made or removed by `open(create)`, `rename`, `exchange`, `link` or `unlink` is durable only
  after `sync_dir` of its directory. `rename` over an existing name is atomic.
- FileNotFoundError and FileExistsError are raised unchanged, because they steer control flow; every
  other OSError becomes StorageUnavailableError with the path and the operation.
"""

import contextlib
import os
from typing import Final, NamedTuple, Protocol, Self

Buffer = bytes | bytearray | memoryview
SETTLED_MS: Final = 2000
"""The age (ms) at which the time of a file or directory is reliable.

A file that changed more recently may change again within the resolution of its timestamp: 4 ms on
ext4 and xfs, a second or two on other file systems.
"""


class File(Protocol):
    """An open file. Reads and writes name their position; there is no shared cursor."""

    path: str

    def pread(self, size: int, at: int) -> bytes:
        """Return the bytes [at, at + size), fewer only at the end of the file."""

    def pwrite(self, data: Buffer, at: int) -> None:
        """Write all of `data` at byte `at`, growing the file as needed."""

    def truncate(self, size: int) -> None:
        """Cut or zero-extend the file to `size` bytes."""

    def size(self) -> int:
        """Return the size in bytes."""

    def sync(self) -> None:
        """Make the contents durable (fdatasync).

        After an error, rewrite the data; never sync again.
        """

    def close(self) -> None:
        """Close the descriptor. Further use is an error."""

    def __enter__(self) -> Self: ...

    def __exit__(self, *exc: object) -> None: ...


class LockFile(File, Protocol):
    """A file with lockable bytes. Locks end with this object or with the process."""

    def try_lock(self, first: int, length: int, *, exclusive: bool) -> bool:
        """Lock [first, first + length) without waiting; return False if another owner has a lock.

        Length 0 extends to the end of the file.
        """

    def unlock(self, first: int, length: int) -> None:
        """Release the lock of this range."""

    def is_current(self) -> bool:
        """Return whether the path still names this file, which may have been unlinked."""

    def identity(self) -> tuple[int, int]:
        """Return (device, inode)."""


class Mapping(Protocol):
    """A read-only view of a complete file that is never truncated."""

    data: memoryview

    def close(self) -> None:
        """Release the view."""


class Volume(NamedTuple):
    """The mounted file system that contains a path (KIP-827).

    `is_read_only`: it was mounted read-only.
    """

    total_bytes: int
    is_read_only: bool


class FileSystem(Protocol):
    """A file system for log dirs. `sparklog.testing.FileSystemContract` tests implementations.

    A write is durable after `File.sync`. A name that was created or removed is durable after
    `sync_dir` of its directory. `rename` over an existing name is atomic. FileNotFoundError and
    FileExistsError are raised as such; any other OSError becomes StorageUnavailableError with the
    path and the operation.
    """

    @property
    def sync_threads(self) -> int:
        """How many files are worth syncing in parallel; 1 means sequentially."""

    def open(self, path: str, *, create: bool = False, write: bool = False) -> File:
        """Open a file. `create` implies `write` and creates an empty file if there is none."""

    def open_lock(self, path: str, *, create: bool = True) -> LockFile:
        """Open a file for locking, reading and writing. A missing file is created."""

    def is_locked(self, path: str, first: int, length: int) -> bool:
        """Return whether any of [first, first + length) of a file is locked.

        Takes no lock, and needs only read permission. False if there is no file.
        """

    def map(self, path: str) -> Mapping:
        """Map a closed file into memory, read-only."""

    def exists(self, path: str) -> bool: ...

    def is_dir(self, path: str) -> bool: ...

    def is_link(self, path: str) -> bool:
        """Return whether a name is a symbolic link, with any target."""

    def size(self, path: str) -> int: ...

    def mtime_ms(self, path: str) -> int: ...

    def changed_ms(self, path: str) -> int:
        """Return when a file was last changed in any way, including a rename (st_ctime).

        This time can't be set, and a copy has a different time.
        """

    def set_mtime_ms(self, path: str, mtime_ms: int) -> None:
        """Set the modification time of a file, without durability."""

    def identity(self, path: str) -> tuple[int, int]:
        """Return (device, inode) of a path."""

    def links(self, path: str) -> int:
        """Return how many names (hard links) a file has."""

    def listdir(self, path: str) -> list[str]:
        """Return the names in a directory, sorted."""

    def mkdir(self, path: str) -> None: ...

    def rmdir(self, path: str) -> None: ...

    def unlink(self, path: str) -> None: ...

    def rename(self, src: str, dst: str) -> None: ...

    def exchange(self, one: str, other: str) -> bool:
        """Exchange two names atomically. Return False if the file system can't exchange names."""

    def link(self, src: str, dst: str) -> None:
        """Give a file a second name (hard link)."""

    def sync_dir(self, path: str) -> None: ...

    def free_bytes(self, path: str) -> int: ...

    def volume(self, path: str) -> Volume:
        """Return the volume that contains a path."""

    def may_write(self, path: str) -> bool:
        """Return whether this process may write to a file, or change a directory."""

    def boot_id(self) -> str:
        """Return an id that changes when the machine loses the page cache."""

    def kind(self, path: str) -> str:
        """Return the file system's type, such as "ext4" or "nfs4"; "" if unknown."""


def read_bytes(fs: FileSystem, path: str) -> bytes:
    """Return the contents of a small file."""
    with fs.open(path) as file:
        return file.pread(file.size(), 0)


def check_reachable(fs: FileSystem, path: str) -> None:
    """Raise StorageUnavailableError if the existence of `path` can't be determined."""
    with contextlib.suppress(FileNotFoundError):
        fs.identity(path)


def write_durably(fs: FileSystem, path: str, data: Buffer, *, sync_dir: bool = True) -> None:
    """Replace `path` by `data`, so that a crash leaves the complete old or new contents.

    Without `sync_dir`, a power cut may restore the old contents. Source: Kafka's
    CheckpointFile.write.
    """
    temporary = path + ".tmp"
    with fs.open(temporary, create=True) as file:
        file.truncate(0)
        file.pwrite(data, 0)
        file.sync()
    fs.rename(temporary, path)
    if sync_dir:
        fs.sync_dir(os.path.dirname(path))
