"""The directories of a fork: made beside their final names, renamed when they are whole.

`.<name>.fork-<id>` beside `<name>`, held by the lock file in the first one: what a crash left is
not held and goes with the next fork of that name. With several log dirs the first one is renamed
last, for it has the ledger; the others say until then, in a file, that they wait for it.
"""

import contextlib
import os
import uuid
from collections.abc import Sequence
from types import TracebackType
from typing import Final, Self

from sparklog.errors import InvalidRequestError, LogLockedError, SparklogError
from sparklog.fs import FileSystem, LockFile, write_durably
from sparklog.log.guard import check_sound
from sparklog.log.lock import LOCK_NAME

WAITING_NAME: Final = "sparklog.forking"


class Place:
    """A context manager; what is not published when it ends is removed."""

    def __init__(self, fs: FileSystem, sources: Sequence[str], targets: Sequence[str]) -> None:
        """Raises InvalidRequestError where a fork can't be."""
        self._fs, self._targets = fs, list(targets)
        self._id = uuid.uuid4().hex
        self.directories = [_beside(target, self._id) for target in targets]
        self._lock: LockFile | None = None
        self._published = False
        for target in targets:
            _check_apart(target, sources)
            if not fs.is_dir(os.path.dirname(target)):
                raise InvalidRequestError(f"{os.path.dirname(target)} does not exist: make it")
            check_sound(fs, os.path.dirname(target))

    def __enter__(self) -> Self:
        for target in self._targets:
            self._sweep(target)
        self._check_free()
        try:
            for number, directory in enumerate(self.directories):
                self._fs.mkdir(directory)
                if not number:
                    self._lock = _locked(self._fs, directory)
            self._check_free()  # another fork may have been done; now that we hold it, none will
        except BaseException:
            self._discard()
            raise
        return self

    def _check_free(self) -> None:
        for target in self._targets:
            if self._fs.exists(target):
                raise InvalidRequestError(f"{target} exists: a fork wants a new directory")

    def number(self, source: int) -> int:
        """The number of the log dir that takes what lies in number `source` of the old log."""
        return source if len(self.directories) > 1 else 0

    def publish(self) -> None:
        """Give all directories their names. Their contents must be durable."""
        fs = self._fs
        others = list(zip(self.directories, self._targets, strict=True))[1:]
        for directory, target in others:
            write_durably(fs, os.path.join(directory, WAITING_NAME), self._targets[0].encode())
            fs.sync_dir(directory)
            fs.rename(directory, target)
            fs.sync_dir(os.path.dirname(target))
        fs.sync_dir(self.directories[0])
        fs.rename(self.directories[0], self._targets[0])
        self._published = True
        fs.sync_dir(os.path.dirname(self._targets[0]))
        for _, target in others:
            fs.unlink(os.path.join(target, WAITING_NAME))
            fs.sync_dir(target)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if not self._published:
            self._discard()
        elif self._lock is not None:
            self._lock.close()

    def _discard(self) -> None:
        """Remove what was made so far; what can't go now goes with the next fork."""
        with contextlib.suppress(SparklogError, OSError):
            for target in self._targets[1:]:
                self._remove_waiting(target)
            for directory in self.directories:
                remove_all(self._fs, directory)
        if self._lock is not None:
            self._lock.close()

    def _sweep(self, target: str) -> None:
        """Remove what a fork of this name left that was cut."""
        fs, (parent, name) = self._fs, os.path.split(target)
        for entry in fs.listdir(parent):
            path = os.path.join(parent, entry)
            if entry.startswith(f".{name}.fork-") and fs.is_dir(path):
                home = _beside(self._targets[0], entry.rpartition("-")[2])
                if _is_held(fs, home):
                    raise LogLockedError(f"{path}: another process is making this fork")
                remove_all(fs, path)
        if target != self._targets[0]:
            self._remove_waiting(target)

    def _remove_waiting(self, target: str) -> None:
        waits = self._fs.exists(os.path.join(target, WAITING_NAME))
        if waits and not self._fs.exists(self._targets[0]):
            remove_all(self._fs, target)


def _beside(target: str, name: str) -> str:
    return os.path.join(os.path.dirname(target), f".{os.path.basename(target)}.fork-{name}")


def _check_apart(target: str, sources: Sequence[str]) -> None:
    for source in sources:
        if os.path.commonpath([source, target]) in (source, target):
            raise InvalidRequestError(
                f"{target} and the old log's {source} lie in one another: choose a place beside it"
            )


def _locked(fs: FileSystem, directory: str) -> LockFile:
    file = fs.open_lock(os.path.join(directory, LOCK_NAME))
    if not file.try_lock(0, 1, exclusive=True) or not file.is_current():
        file.close()
        raise LogLockedError(f"{directory}: another process is removing it; fork again")
    return file


def _is_held(fs: FileSystem, directory: str) -> bool:
    try:
        file = fs.open_lock(os.path.join(directory, LOCK_NAME), create=False)
    except FileNotFoundError:
        return False
    try:
        return not file.try_lock(0, 1, exclusive=True)
    finally:
        file.close()


def remove_all(fs: FileSystem, path: str) -> None:
    """Remove a directory and all that is below it, if it is there. Not durable by itself."""
    if not fs.is_dir(path):
        return
    for name in fs.listdir(path):
        below = os.path.join(path, name)
        if fs.is_dir(below):
            remove_all(fs, below)
        else:
            with contextlib.suppress(FileNotFoundError):
                fs.unlink(below)
    fs.rmdir(path)
