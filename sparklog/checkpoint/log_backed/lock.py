"""`sparklog.lock` in a checkpoint's log dir: locks on partitions, and on the running query.

    byte 0          creating and removing partition directories, and recovery after a power cut
    byte 1          locked by the driver of a running query, or by a reset
    byte 16 + hash  writing a partition; hash = CRC-32C of its directory's name, 30 bits

The driver's JVM locks the same bytes (FileChannel.lock). The file's text, written by the JVM, is
the boot id of its last user, and how far it flushes. Source:
sparklog/jvm/scala/checkpoint/Locks.scala.
"""

import contextlib
import os
from collections.abc import Iterator
from typing import Final

from sparklog.checkpoint.log_backed.layout import partition_tag
from sparklog.clock import attempts
from sparklog.errors import LogLockedError
from sparklog.fs import FileSystem, LockFile, read_bytes

LOCK_NAME: Final = "sparklog.lock"
_DIRECTORIES, _RUNNING, _FIRST_PARTITION = 0, 1, 16
RELEASE_MS: Final = 2_000
"""How long to wait for the lock of a query that was just stopped, or is stopping."""

_TIMEOUT_MS: Final = 30_000


class CheckpointLock:
    """A handle on the lock file of the log dir `logs`.

    A context manager that releases all locks.
    """

    def __init__(self, fs: FileSystem, logs: str, *, create: bool = False) -> None:
        self._file: LockFile = fs.open_lock(os.path.join(logs, LOCK_NAME), create=create)

    def close(self) -> None:
        """Release all locks."""
        self._file.close()

    def __enter__(self) -> "CheckpointLock":
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def take_running(self, what: str) -> None:
        """Keep queries from starting, until `close`.

        Raises:
            LogLockedError: A query is running, or another process resets or converts the
                checkpoint.
        """
        self._lock(
            _RUNNING, RELEASE_MS, "a query runs with this checkpoint, or it is being reset or "
            f"converted: stop the query, then {what}",
        )  # fmt: skip
        if not self._file.is_current():
            raise LogLockedError(
                f"{self._file.path}: it was reset or converted just now: try again",
                path=self._file.path,
            )

    @contextlib.contextmanager
    def directories(self) -> Iterator[None]:
        """Lock the creation and removal of partitions.

        Raises:
            LogLockedError: Another process held the lock for 30 s.
        """
        with self._held(_DIRECTORIES, "the list of partitions"):
            yield

    @contextlib.contextmanager
    def partition(self, name: str) -> Iterator[None]:
        """Lock a partition by the name of the partition's directory.

        Raises:
            LogLockedError: Another process held the lock for 30 s.
        """
        place = _FIRST_PARTITION + partition_tag(name)
        with self._held(place, name):
            yield

    @contextlib.contextmanager
    def _held(self, place: int, what: str) -> Iterator[None]:
        self._lock(
            place, _TIMEOUT_MS, f"another process has been writing {what} for "
            f"{_TIMEOUT_MS // 1000} s; find it by: fuser {self._file.path}",
        )  # fmt: skip
        try:
            yield
        finally:
            self._file.unlock(place, 1)

    def _lock(self, place: int, timeout_ms: int, failure: str) -> None:
        for _ in attempts(timeout_ms):
            if self._file.try_lock(place, 1, exclusive=True):
                return
        raise LogLockedError(f"{self._file.path}: {failure}", path=self._file.path)


def restarted_since(fs: FileSystem, logs: str) -> bool:
    """Return True if the machine was restarted since a query last used the log dir `logs`."""
    try:
        text = read_bytes(fs, os.path.join(logs, LOCK_NAME))
    except FileNotFoundError:
        return True
    return text.rstrip(b"\0").decode(errors="replace").splitlines()[:1] != [fs.boot_id()]
