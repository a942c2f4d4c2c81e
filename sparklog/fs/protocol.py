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
    """An open file. Reads and writes name their position; there is no shared cursor.

    Examples:
        >>> from sparklog.testing import LOCAL
        >>> with LOCAL.open("numbers", create=True) as file:
        ...     file.pwrite(b"123", 0)
        ...     file.sync()
        ...     file.pread(2, 1)
        b'23'
    """

    path: str

    def pread(self, size: int, at: int) -> bytes:
        """Return the bytes [at, at + size), fewer only at the end of the file.

        Args:
            size: The number of bytes.
            at: The position of the first byte.
        """

    def pwrite(self, data: Buffer, at: int) -> None:
        """Write bytes, growing the file as needed.

        Args:
            data: The bytes.
            at: The position of the first byte.
        """

    def truncate(self, size: int) -> None:
        """Cut or zero-extend the file.

        Args:
            size: The new size in bytes.
        """

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
    """A file with lockable bytes. Locks end with this object or with the process.

    Source: open file description locks, fcntl(2).

    Examples:
        >>> from sparklog.testing import LOCAL
        >>> mine, other = LOCAL.open_lock("lock"), LOCAL.open_lock("lock")
        >>> mine.try_lock(0, 1, exclusive=True), other.try_lock(0, 1, exclusive=True)
        (True, False)
    """

    def try_lock(self, first: int, length: int, *, exclusive: bool) -> bool:
        """Lock the bytes [first, first + length) without waiting.

        Args:
            first: The position of the first byte.
            length: The number of bytes; 0 extends to the end of the file.
            exclusive: Whether no other lock may overlap. Shared locks may overlap each other.

        Returns:
            False if another owner has a lock in this range.
        """

    def unlock(self, first: int, length: int) -> None:
        """Release the lock of the bytes [first, first + length).

        Args:
            first: The position of the first byte.
            length: The number of bytes; 0 extends to the end of the file.
        """

    def is_current(self) -> bool:
        """Return whether the path still names this file, which may have been unlinked."""

    def identity(self) -> tuple[int, int]:
        """Return (device, inode)."""


class Mapping(Protocol):
    """A read-only view of a complete file that is never truncated.

    Attributes:
        data: The bytes.

    Examples:
        >>> from sparklog.testing import LOCAL
        >>> with LOCAL.open("numbers", create=True) as file:
        ...     file.pwrite(b"123", 0)
        >>> mapping = LOCAL.map("numbers")
        >>> bytes(mapping.data)
        b'123'
        >>> mapping.close()
    """

    data: memoryview

    def close(self) -> None:
        """Release the view."""


class Volume(NamedTuple):
    """The mounted file system that contains a path.

    Source: KIP-827.

    Attributes:
        total_bytes: The size of the file system.
        is_read_only: Whether it was mounted read-only.

    Examples:
        >>> from sparklog.testing import LOCAL
        >>> LOCAL.volume("log").is_read_only
        False
    """

    total_bytes: int
    is_read_only: bool


class FileSystem(Protocol):
    """A file system for log dirs. `sparklog.testing.FileSystemContract` tests implementations.

    A write is durable after `File.sync`. A name that was created or removed is durable after
    `sync_dir` of its directory. `rename` over an existing name is atomic. FileNotFoundError and
    FileExistsError are raised as such; any other OSError becomes StorageUnavailableError with the
    path and the operation.

    Examples:
        >>> from sparklog.testing import LOCAL
        >>> LOCAL.mkdir("disk1")
        >>> LOCAL.is_dir("disk1"), LOCAL.listdir("disk1")
        (True, [])
    """

    @property
    def sync_threads(self) -> int:
        """How many files are worth syncing in parallel; 1 means sequentially."""

    def open(self, path: str, *, create: bool = False, write: bool = False) -> File:
        """Open a file.

        Args:
            path: The file.
            create: Whether an empty file is created if there is none; implies `write`.
            write: Whether the file can be written.
        """

    def open_lock(self, path: str, *, create: bool = True) -> LockFile:
        """Open a file for locking, reading and writing.

        Args:
            path: The file.
            create: Whether an empty file is created if there is none.
        """

    def is_locked(self, path: str, first: int, length: int) -> bool:
        """Return whether any of the bytes [first, first + length) of a file is locked.

        Takes no lock, and needs only read permission. False if there is no file.

        Args:
            path: The file.
            first: The position of the first byte.
            length: The number of bytes.
        """

    def map(self, path: str) -> Mapping:
        """Map a closed file into memory, read-only."""

    def exists(self, path: str) -> bool:
        """Return whether a path names a file or directory."""

    def is_dir(self, path: str) -> bool:
        """Return whether a path names a directory."""

    def is_link(self, path: str) -> bool:
        """Return whether a name is a symbolic link, with any target."""

    def size(self, path: str) -> int:
        """Return the size of a file in bytes."""

    def mtime_ms(self, path: str) -> int:
        """Return when the data of a file were last changed, in milliseconds since the epoch."""

    def changed_ms(self, path: str) -> int:
        """Return when a file was last changed in any way, including a rename (st_ctime).

        This time can't be set, and a copy has a different time.
        """

    def set_mtime_ms(self, path: str, mtime_ms: int) -> None:
        """Set the modification time of a file, without durability.

        Args:
            path: The file.
            mtime_ms: The time, in milliseconds since the epoch.
        """

    def identity(self, path: str) -> tuple[int, int]:
        """Return (device, inode) of a path."""

    def links(self, path: str) -> int:
        """Return how many names (hard links) a file has."""

    def listdir(self, path: str) -> list[str]:
        """Return the names in a directory, sorted."""

    def mkdir(self, path: str) -> None:
        """Create a directory."""

    def rmdir(self, path: str) -> None:
        """Delete an empty directory."""

    def unlink(self, path: str) -> None:
        """Delete a name of a file."""

    def rename(self, src: str, dst: str) -> None:
        """Rename a file or directory, replacing an existing file atomically.

        Args:
            src: The old path.
            dst: The new path, on the same volume.
        """

    def exchange(self, one: str, other: str) -> bool:
        """Exchange two names atomically. Return False if the file system can't exchange names.

        Args:
            one: A file or directory.
            other: Another file or directory.
        """

    def link(self, src: str, dst: str) -> None:
        """Give a file a second name (hard link).

        Args:
            src: The file.
            dst: The second name, on the same volume.
        """

    def sync_dir(self, path: str) -> None:
        """Make the names in a directory durable (fsync)."""

    def free_bytes(self, path: str) -> int:
        """Return how many bytes this process can still write to the file system of a path."""

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


def make_directories(fs: FileSystem, path: str) -> None:
    """Create a directory and its missing parents, without a sync; another process may do so too."""
    if fs.is_dir(path):
        return
    above = os.path.dirname(path)
    if above != path:
        make_directories(fs, above)
    with contextlib.suppress(FileExistsError):
        fs.mkdir(path)


def write_durably(fs: FileSystem, path: str, data: Buffer, *, sync_dir: bool = True) -> None:
    """Replace `path` by `data`, so that a crash leaves the complete old or new contents.

    Without `sync_dir`, a power cut may restore the old contents. Source: Kafka's
    CheckpointFile.write.
    """
    temporary = path + ".tmp"
    with fs.open(temporary, create=True) as file:
        # A crash may have left a longer temporary file.
        file.truncate(0)
        file.pwrite(data, 0)
        file.sync()
    fs.rename(temporary, path)
    if sync_dir:
        fs.sync_dir(os.path.dirname(path))
