"""Directories that are made beside their final names, and renamed when they are whole.

`.<name>.<kind>-<id>` beside `<name>`, with a lock file in it that its maker holds: what a crash
left is not held, and goes with the next one of that name and kind. `StagedDirectory` is one of
them. Of several (`StagedDirectories`) the first is renamed last; the others say until then, in a
file, what they wait for, and where they were made. One goes with the next of its name if that
never came, the directory where it was made is still there, and held by nobody, and no session and
no broker ever opened it.
"""

import contextlib
import os
import uuid
from collections.abc import Sequence
from typing import Final, Self

from sparklog.errors import InvalidRequestError, LogLockedError, SparklogError
from sparklog.fs import FileSystem, LockFile, read_bytes, write_durably

WAITING_NAME: Final = "sparklog.waiting"
LOCK_NAME: Final = "lock"
_OPENED: Final = ("sparklog.lock", ".lock")
"""Files that are made when a log is opened for writing, by a broker or by sparklog."""


class StagedDirectory:
    """One directory that is being made, held by its lock; a context manager.

    What is not published or exchanged when it ends is removed.

    Args:
        target: the final name, whose parent must exist.
        kind: one word for what is being made.
        inner: the name, in the staged directory, of what becomes the target; "" if that is the
            staged directory itself, whose lock file then goes once it is published.
        lock_name: of the lock file.
    """

    def __init__(
        self,
        fs: FileSystem,
        target: str,
        kind: str,
        *,
        inner: str = "",
        lock_name: str = LOCK_NAME,
    ) -> None:
        self._fs, self.target, self._lock_name = fs, target, lock_name
        self.root = staged_name(target, kind)
        self.directory = os.path.join(self.root, inner) if inner else self.root
        self._lock: LockFile | None = None
        self._is_gone = False

    def __enter__(self) -> Self:
        """Raises: InvalidRequestError: the parent doesn't exist."""
        check_parent(self._fs, self.target)
        try:
            self._fs.mkdir(self.root)
            self._lock = hold(self._fs, self.root, self._lock_name)
        except BaseException:
            self._end()
            raise
        return self

    def publish(self) -> None:
        """Give the directory, whose contents are durable, its name. Raises InvalidRequestError."""
        fs = self._fs
        if fs.exists(self.target):
            raise InvalidRequestError(f"{self.target} exists by now: choose another place")
        fs.rename(self.directory, self.target)
        self._is_gone = self.directory == self.root
        self._settle()

    def exchange(self) -> bool:
        """Let it and what has its name change places; False where the file system can't.

        What was there is removed at the end.
        """
        if not self._fs.exchange(self.directory, self.target):
            return False
        self._settle()
        return True

    def _settle(self) -> None:
        self._fs.sync_dir(os.path.dirname(self.target))
        if self.directory == self.root:
            self._fs.unlink(os.path.join(self.target, self._lock_name))

    def __exit__(self, *exc: object) -> None:
        self._end()

    def _end(self) -> None:
        if not self._is_gone:  # what can't go now goes with the next one
            with contextlib.suppress(SparklogError, OSError):
                _remove_root(self._fs, self.root, self._lock_name)
        if self._lock is not None:
            self._lock.close()


class StagedDirectories:
    """Several directories that belong together; a context manager, as `StagedDirectory`.

    Args:
        targets: the final names, whose parents must exist.
        kind: one word for what is being made.
        fresh: the targets must be free, and are kept so.
        waits_for: what others say (`waiting`) that make what all of these belong to; once
            published they count as left over until `arrived`.
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
        self._staged = [StagedDirectory(fs, target, kind, inner="new") for target in targets]
        self._published = False
        self._stack = contextlib.ExitStack()

    @property
    def directories(self) -> list[str]:
        """What becomes the targets; the caller makes them."""
        return [staged.directory for staged in self._staged]

    def beside(self, number: int, name: str) -> str:
        """A path for what is needed while directory `number` is made; it goes at the end."""
        return os.path.join(self._staged[number].root, name)

    def waiting(self, number: int) -> str:
        """What directory `number` says until the first one is there."""
        return f"{self._targets[0]}\n{self._staged[number].root}"

    def __enter__(self) -> Self:
        """Raises: InvalidRequestError: no parent, or not free; LogLockedError: another process
        makes the same."""
        for target in self._targets:
            check_parent(self._fs, target)
        self._sweep()
        self._check_free()
        with contextlib.ExitStack() as stack:
            for staged in self._staged:
                stack.enter_context(staged)
            stack.callback(self._withdraw)  # comes first: it goes by the staged directories
            self._check_free()  # another process may have been quicker; now nobody else will
            for target in self._targets:
                self._fs.sync_dir(os.path.dirname(target))
            self._stack = stack.pop_all()
        return self

    def _check_free(self) -> None:
        for target in self._targets if self._fresh else ():
            if self._fs.exists(target):
                raise InvalidRequestError(f"{target} exists: choose a new directory")

    def publish(self) -> None:
        """Give all directories their names, durably; their contents must be."""
        for number in reversed(range(len(self._targets))):
            staged = self._staged[number]
            says = self._waits_for or (self.waiting(number) if number else None)
            if says is not None:
                write_durably(self._fs, os.path.join(staged.directory, WAITING_NAME), says.encode())
            self._fs.sync_dir(staged.directory)
            staged.publish()
        self._published = True
        if self._waits_for is None:
            arrived(self._fs, self._targets)

    def __exit__(self, *exc: object) -> None:
        self._stack.close()

    def _withdraw(self) -> None:
        """Remove what was published already, after a failure: it waits for what won't come."""
        if self._published or not self._fresh:
            return
        roots = [staged.root for staged in self._staged]
        with contextlib.suppress(SparklogError, OSError):
            for target in self._targets:
                _remove_waiting(self._fs, target, roots)

    def _sweep(self) -> None:
        for target in self._targets if self._fresh else ():
            _remove_waiting(self._fs, target)
        for target in self._targets:
            for root in leftovers(self._fs, target, self._kind):
                remove_leftover(self._fs, root)


def staged_name(target: str, kind: str) -> str:
    """Return a new name beside `target` for what is being made, or taken away."""
    parent, name = os.path.split(target)
    return os.path.join(parent, f".{name}.{kind}-{uuid.uuid4().hex}")


def check_parent(fs: FileSystem, target: str) -> None:
    """Raise InvalidRequestError where a directory can't be made for want of its parent."""
    parent = os.path.dirname(target)
    if not fs.is_dir(parent):
        raise InvalidRequestError(f"{parent} does not exist: make it")


def leftovers(fs: FileSystem, target: str, *kinds: str) -> list[str]:
    """Return the directories beside `target` that are being made, or were left by a crash."""
    parent, name = os.path.split(target)
    prefixes = tuple(f".{name}.{kind}-" for kind in kinds)
    found = [entry for entry in fs.listdir(parent) if entry.startswith(prefixes)]
    paths = (os.path.join(parent, entry) for entry in found)
    return [path for path in paths if fs.is_dir(path) and not fs.is_link(path)]


def remove_leftover(fs: FileSystem, root: str, *, lock_name: str = LOCK_NAME) -> None:
    """Remove what a crash left. Raises LogLockedError if a process is still at work there."""
    with hold(fs, root, lock_name):
        _remove_root(fs, root, lock_name)


def hold(fs: FileSystem, root: str, lock_name: str = LOCK_NAME) -> LockFile:
    """Take the lock of the process that makes something there, or removes it."""
    file = fs.open_lock(os.path.join(root, lock_name))
    if not file.try_lock(0, 1, exclusive=True) or not file.is_current():
        file.close()
        raise LogLockedError(f"{root}: another process is at work here; wait for it")
    return file


def arrived(fs: FileSystem, paths: Sequence[str]) -> None:
    """Say that these directories wait for nothing any more. Idempotent."""
    for path in paths:
        with contextlib.suppress(FileNotFoundError):
            fs.unlink(os.path.join(path, WAITING_NAME))
            fs.sync_dir(path)


def remove_all(fs: FileSystem, path: str) -> None:
    """Remove a file, or a directory and all below it, if it is there. Not durable by itself.

    A link goes, never what it leads to: somebody else may have put it there.
    """
    if fs.is_link(path) or not fs.is_dir(path):
        with contextlib.suppress(FileNotFoundError):
            fs.unlink(path)
        return
    for name in fs.listdir(path):
        remove_all(fs, os.path.join(path, name))
    fs.rmdir(path)


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
    with contextlib.suppress(LogLockedError), hold(fs, maker):
        remove_all(fs, path)


def _remove_root(fs: FileSystem, root: str, lock_name: str) -> None:
    """Remove a staged directory, whose lock is held; the lock goes last."""
    if fs.is_dir(root):
        for name in fs.listdir(root):
            if name != lock_name:
                remove_all(fs, os.path.join(root, name))
        remove_all(fs, root)
