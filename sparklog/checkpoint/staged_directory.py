"""A checkpoint that is being made beside its final name, and what a crash left of one.

`.<name>.<kind>-<id>` beside `<name>`; its maker holds a lock on a file in it as long as it works,
so that what isn't locked was left behind and can go.
"""

import contextlib
import os
import uuid
from types import TracebackType
from typing import Final, Self

from sparklog.checkpoint.as_log.layout import BUILDING
from sparklog.errors import InvalidRequestError, SparklogError
from sparklog.fs import FileSystem, LockFile
from sparklog.logdir.staged_directory import remove_all

KINDS: Final = ("fork", "reset", "export")


class Place:
    """A context manager: makes the directory, and removes it unless it was published."""

    def __init__(self, fs: FileSystem, target: str, kind: str) -> None:
        assert kind in KINDS
        self._fs, self._target = fs, target
        parent, name = os.path.split(target)
        self.parent = parent
        self.directory = os.path.join(parent, f".{name}.{kind}-{uuid.uuid4().hex}")
        self._lock: LockFile | None = None
        self._gone = False

    def __enter__(self) -> Self:
        fs = self._fs
        if not fs.is_dir(self.parent):
            raise InvalidRequestError(f"{self.parent} does not exist: make it")
        sweep(fs, self._target)
        fs.mkdir(self.directory)
        self._lock = fs.open_lock(os.path.join(self.directory, BUILDING))
        self._lock.try_lock(0, 1, exclusive=True)
        return self

    def publish(self) -> None:
        """Give the directory, whose contents are durable, its name. Raises InvalidRequestError."""
        fs = self._fs
        if fs.exists(self._target):
            raise InvalidRequestError(f"{self._target} exists by now: choose another place")
        fs.rename(self.directory, self._target)
        self._gone = True
        fs.sync_dir(self.parent)
        fs.unlink(os.path.join(self._target, BUILDING))

    def exchange(self) -> bool:
        """Let it and what has its name change places; False where the file system can't.

        What was there is removed at the end.
        """
        if not self._fs.exchange(self.directory, self._target):
            return False
        self._fs.sync_dir(self.parent)
        self._fs.unlink(os.path.join(self._target, BUILDING))
        return True

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if not self._gone:  # what can't go now goes with the next one
            with contextlib.suppress(SparklogError, OSError):
                remove_all(self._fs, self.directory)
        if self._lock is not None:
            self._lock.close()


def is_mount_point(fs: FileSystem, directory: str) -> bool:
    """Whether what lies beside a directory is on another file system, as with volumes."""
    return fs.identity(directory)[0] != fs.identity(os.path.dirname(directory))[0]


def retire(fs: FileSystem, target: str, logs: str) -> None:
    """Remove the log dir `logs` of the checkpoint `target`, whose records are files by now.

    It is taken away in one step where that can be; else its segments go in order, so that none
    comes to light that a later one had replaced.
    """
    if is_mount_point(fs, target):
        remove_all(fs, logs)
        fs.sync_dir(target)
        return
    parent, name = os.path.split(target)
    aside = os.path.join(parent, f".{name}.export-{uuid.uuid4().hex}")
    fs.rename(logs, aside)
    fs.sync_dir(target)
    fs.sync_dir(parent)
    remove_all(fs, aside)


def sweep(fs: FileSystem, target: str) -> None:
    """Remove what was left beside a checkpoint of forks to there, resets and exports."""
    parent, name = os.path.split(target)
    for entry in fs.listdir(parent):
        ours = any(entry.startswith(f".{name}.{kind}-") for kind in KINDS)
        path = os.path.join(parent, entry)
        if ours and fs.is_dir(path) and not _is_held(fs, path):
            with contextlib.suppress(FileNotFoundError):  # another one sweeps, too
                remove_all(fs, path)


def _is_held(fs: FileSystem, directory: str) -> bool:
    try:
        lock = fs.open_lock(os.path.join(directory, BUILDING), create=False)
    except FileNotFoundError:
        return False
    try:
        return not lock.try_lock(0, 1, exclusive=True)
    finally:
        lock.close()
