"""Directories that are made beside their final names, and renamed when they are whole.

`.<name>.<kind>-<id>/new` beside `<name>`, held by a lock file beside `new`: what a crash left is
not held, and goes with the next one of that name and kind. Of several directories the first is
renamed last; the others say until then, in a file, what they wait for, and who made them. One goes
with the next of its name if that never came, its maker's directory is still there, and held by
nobody, and no session and no broker ever opened it.
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
_OPENED: Final = ("sparklog.lock", ".lock")
"""Files that whoever opens a log for writing makes, a broker or we."""


class Place:
    """A context manager; what is not published when it ends is removed.

    Args:
        targets: the final names, whose parents must exist.
        kind: one word for what is being made.
        fresh: the targets must be free, and are kept so.
        waits_for: what another place says (`waiting`) that makes what all of this belongs to; once
            published it counts as left over until `arrived`.
    """

    def __init__(
        self,
        fs: FileSystem,
        targets: Sequence[str],
        kind: str,
        *,
        fresh: bool = True,
        waits_for: str | None = None,
    ) -> None:
        self._fs, self._targets, self._kind = fs, list(targets), kind
        self._fresh, self._waits_for = fresh, waits_for
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

    def waiting(self, number: int) -> str:
        """What directory `number` says until the first one is there."""
        return f"{self._targets[0]}\n{self._roots[number]}"

    def __enter__(self) -> Self:
        """Raises: InvalidRequestError: no parent, or not free; LogLockedError: somebody else
        makes the same."""
        parents = [os.path.dirname(target) for target in self._targets]
        for parent in parents:
            if not self._fs.is_dir(parent):
                raise InvalidRequestError(f"{parent} does not exist: make it")
        self._sweep()
        self._check_free()
        try:
            for root in self._roots:
                self._fs.mkdir(root)
                self._locks.append(_locked(self._fs, root))
            self._check_free()  # another one may have been quicker; now nobody else will
            for parent in parents:
                self._fs.sync_dir(parent)
        except BaseException:
            self._end()
            raise
        return self

    def _check_free(self) -> None:
        for target in self._targets if self._fresh else ():
            if self._fs.exists(target):
                raise InvalidRequestError(f"{target} exists: choose a new directory")

    def publish(self) -> None:
        """Give all directories their names, durably; their contents must be."""
        fs = self._fs
        for number in reversed(range(len(self._targets))):
            directory, target = self.directories[number], self._targets[number]
            says = self._waits_for or (self.waiting(number) if number else None)
            if says is not None:
                write_durably(fs, os.path.join(directory, WAITING_NAME), says.encode())
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
                for target in self._targets if self._fresh else ():
                    _remove_waiting(self._fs, target, self._roots)
            for root in self._roots:
                _remove_root(self._fs, root)
        for lock in self._locks:
            lock.close()

    def _sweep(self) -> None:
        fs = self._fs
        for target in self._targets if self._fresh else ():
            _remove_waiting(fs, target)
        for target in self._targets:
            parent, name = os.path.split(target)
            for entry in fs.listdir(parent):
                path = os.path.join(parent, entry)
                if entry.startswith(f".{name}.{self._kind}-") and fs.is_dir(path):
                    with _locked(fs, path):
                        _remove_root(fs, path)


def _remove_waiting(fs: FileSystem, path: str, mine: Sequence[str] = ()) -> None:
    """Remove a directory that was published and waits for one that never came."""
    try:
        says = read_bytes(fs, os.path.join(path, WAITING_NAME)).decode()
    except FileNotFoundError:
        return
    awaited, _, maker = says.partition("\n")
    used = any(fs.exists(os.path.join(path, name)) for name in _OPENED)
    if used or not maker or fs.exists(awaited) or not fs.is_dir(maker):
        return
    if maker in mine:
        remove_all(fs, path)
        return
    with contextlib.suppress(LogLockedError), _locked(fs, maker):
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
