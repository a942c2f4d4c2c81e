"""Directories that are made beside their final names, and renamed when they are whole.

`.<name>.<kind>-<id>/new` beside `<name>`, held by a lock file beside `new`: what a crash left is
not held, and goes with the next one of that name and kind. Of several directories the first is
renamed last; the others say until then, in a file, for what they wait.
"""

import contextlib
import os
import uuid
from collections.abc import Sequence
from types import TracebackType
from typing import Final, Self

from sparklog.errors import InvalidRequestError, LogLockedError, SparklogError
from sparklog.fs import FileSystem, LockFile, read_bytes, write_durably

WAITING_NAME: Final = "sparklog.waiting"
LOCK_NAME: Final = "lock"


class Place:
    """A context manager; what is not published when it ends is removed.

    Args:
        targets: the final names, whose parents must exist.
        kind: one word for what is being made.
        waits_for: the path that all of it waits for, once published: `arrived` ends that.
    """

    def __init__(
        self, fs: FileSystem, targets: Sequence[str], kind: str, *, waits_for: str | None = None
    ) -> None:
        self._fs, self._targets, self._kind = fs, list(targets), kind
        self._waits_for = waits_for
        self._roots = [_beside(target, kind, uuid.uuid4().hex) for target in targets]
        self._locks: list[LockFile] = []
        self._published = False

    @property
    def directories(self) -> list[str]:
        """What becomes the targets; the maker makes them."""
        return [os.path.join(root, "new") for root in self._roots]

    def beside(self, number: int, name: str) -> str:
        """A path for what is needed while directory `number` is made; it goes at the end."""
        return os.path.join(self._roots[number], name)

    def __enter__(self) -> Self:
        """Raises: InvalidRequestError: no parent; LogLockedError: somebody else makes the same."""
        for target in self._targets:
            parent = os.path.dirname(target)
            if not self._fs.is_dir(parent):
                raise InvalidRequestError(f"{parent} does not exist: make it")
        self._sweep()
        try:
            for root in self._roots:
                self._fs.mkdir(root)
                self._locks.append(_locked(self._fs, root))
        except BaseException:
            self._end()
            raise
        return self

    def check_free(self) -> None:
        """Raise InvalidRequestError unless the targets are free. Nobody else will take them."""
        for target in self._targets:
            if self._fs.exists(target):
                raise InvalidRequestError(f"{target} exists: choose a new directory")

    def publish(self) -> None:
        """Give all directories their names, durably; their contents must be."""
        fs, home = self._fs, self._targets[0]
        pairs = list(zip(self.directories, self._targets, strict=True))
        for directory, target in reversed(pairs):
            awaited = self._waits_for if target == home else self._waits_for or home
            if awaited is not None:
                write_durably(fs, os.path.join(directory, WAITING_NAME), awaited.encode())
            fs.sync_dir(directory)
            fs.rename(directory, target)
            fs.sync_dir(os.path.dirname(target))
        self._published = True
        if self._waits_for is None:
            arrived(fs, self._targets)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._end()

    def _end(self) -> None:
        """Remove what is left; what can't go now goes with the next one."""
        with contextlib.suppress(SparklogError, OSError):
            if not self._published:
                self._remove_waiting()
            for root in self._roots:
                _remove_root(self._fs, root)
        for lock in self._locks:
            lock.close()

    def _sweep(self) -> None:
        fs = self._fs
        for target in self._targets:
            parent, name = os.path.split(target)
            for entry in fs.listdir(parent):
                path = os.path.join(parent, entry)
                if entry.startswith(f".{name}.{self._kind}-") and fs.is_dir(path):
                    with _locked(fs, path):
                        _remove_root(fs, path)
        self._remove_waiting()

    def _remove_waiting(self) -> None:
        for target in self._targets:
            remove_waiting(self._fs, target)


def remove_waiting(fs: FileSystem, path: str) -> None:
    """Remove a directory that was published and waits for one that never came."""
    try:
        awaited = read_bytes(fs, os.path.join(path, WAITING_NAME)).decode()
    except FileNotFoundError:
        return
    if not fs.exists(awaited):
        remove_all(fs, path)


def arrived(fs: FileSystem, paths: Sequence[str]) -> None:
    """Say that these directories wait for nothing any more. Idempotent."""
    for path in paths:
        with contextlib.suppress(FileNotFoundError):
            fs.unlink(os.path.join(path, WAITING_NAME))
            fs.sync_dir(path)


def remove_all(fs: FileSystem, path: str) -> None:
    """Remove a file, or a directory and all below it, if it is there. Not durable by itself."""
    if not fs.is_dir(path):
        with contextlib.suppress(FileNotFoundError):
            fs.unlink(path)
        return
    for name in fs.listdir(path):
        remove_all(fs, os.path.join(path, name))
    fs.rmdir(path)


def _beside(target: str, kind: str, name: str) -> str:
    return os.path.join(os.path.dirname(target), f".{os.path.basename(target)}.{kind}-{name}")


def _locked(fs: FileSystem, root: str) -> LockFile:
    """Take the lock of who makes something there, or removes it."""
    file = fs.open_lock(os.path.join(root, LOCK_NAME))
    if not file.try_lock(0, 1, exclusive=True) or not file.is_current():
        file.close()
        raise LogLockedError(f"{root}: another process is at work here; wait for it")
    return file


def _remove_root(fs: FileSystem, root: str) -> None:
    """Remove a root, whose lock is held; the lock goes last."""
    if fs.is_dir(root):
        for name in fs.listdir(root):
            if name != LOCK_NAME:
                remove_all(fs, os.path.join(root, name))
        remove_all(fs, root)
