"""Directories that are created under a temporary name, and renamed when complete.

`.<name>.<kind>-<id>` is created beside `<name>`. This staged directory contains a lock file that
the creating process locks. After a crash the file is unlocked, and the next creation of the same
name and kind removes the directory. `StagedDirectory` is a single directory. With several
directories (`StagedDirectories`), the first is renamed last. Until then, each other directory has a
file with the awaited path, and the path of its own creation. The next creation of the same name
removes such a directory if the awaited path does not exist, the path of its creation still exists
and is not locked, and neither a session nor a broker has opened it.
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
"""Files that exist if a broker or sparklog opened the log for writing."""


class StagedDirectory:
    """A directory during its creation, locked by the creating process; a context manager.

    At the end the directory is removed, unless it was published or exchanged.

    Args:
        target: The final name. The parent directory must exist.
        kind: A word for the purpose.
        inner: The name, in the staged directory, of the directory that becomes the target. If it
            is "", the staged directory itself becomes the target, and the lock file is removed
            after publication.
        lock_name: The name of the lock file.
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
        """Create the directory.

        Raises:
            InvalidRequestError: The parent doesn't exist.
        """
        check_parent(self._fs, self.target)
        try:
            self._fs.mkdir(self.root)
            self._lock = hold(self._fs, self.root, self._lock_name)
        except BaseException:
            self._end()
            raise
        return self

    def publish(self) -> None:
        """Rename the directory to the target. The contents must be durable.

        Raises:
            InvalidRequestError: The target exists.
        """
        fs = self._fs
        if fs.exists(self.target):
            raise InvalidRequestError(
                f"another process has just created {self.target}: choose another place"
            )
        fs.rename(self.directory, self.target)
        self._is_gone = self.directory == self.root
        self._settle()

    def exchange(self) -> bool:
        """Exchange the directory with the target; return False if the file system can't.

        The old target is removed at the end.
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
        if not self._is_gone:  # the next creation removes leftovers
            with contextlib.suppress(SparklogError, OSError):
                _remove_root(self._fs, self.root, self._lock_name)
        if self._lock is not None:
            self._lock.close()


class StagedDirectories:
    """Several directories that are built under temporary names and published together.

    A context manager, as `StagedDirectory`.

    Args:
        fs: The file system.
        targets: The final names. The parent directories must exist.
        kind: A word for the purpose, which is part of the temporary names.
        fresh: Whether the targets must not exist yet, and are reserved.
        waits_for: The result of `waiting` of other directories, if these directories are valid only
            together with those. Until the function `arrived` is called, a cleanup after a crash
            removes these directories, even if they have their final names.
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
        """The directories that become the targets. The caller must create the directories."""
        return [staged.directory for staged in self._staged]

    def beside(self, number: int, name: str) -> str:
        """Return a path for temporary files of directory `number`, removed at the end."""
        return os.path.join(self._staged[number].root, name)

    def waiting(self, number: int) -> str:
        """Return the text that marks directory `number` as incomplete without the first target.

        The lines are the path of the first target, and the path of this directory's creation.
        """
        return f"{self._targets[0]}\n{self._staged[number].root}"

    def __enter__(self) -> Self:
        """Create the directories.

        Raises:
            InvalidRequestError: A parent is missing, or a target exists.
            LogLockedError: Another process creates the same directories.
        """
        for target in self._targets:
            check_parent(self._fs, target)
        self._sweep()
        self._check_free()
        with contextlib.ExitStack() as stack:
            for staged in self._staged:
                stack.enter_context(staged)
            stack.callback(self._withdraw)  # runs first: it needs the staged directories
            self._check_free()  # another process may have created it before our lock
            for target in self._targets:
                self._fs.sync_dir(os.path.dirname(target))
            self._stack = stack.pop_all()
        return self

    def _check_free(self) -> None:
        for target in self._targets if self._fresh else ():
            if self._fs.exists(target):
                raise InvalidRequestError(f"{target} exists: choose a new directory")

    def publish(self) -> None:
        """Rename all directories, durably; their contents must be durable."""
        # The first target is renamed last, because the others wait for it: as long as it is
        # missing, the next creation may remove them.
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
        """Remove targets that were renamed already, if not all of them could be published."""
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
    """Return a new name beside `target`, for a directory to create or to remove.

    `kind` is a word for the purpose, which is part of the name.
    """
    parent, name = os.path.split(target)
    return os.path.join(parent, f".{name}.{kind}-{uuid.uuid4().hex}")


def check_parent(fs: FileSystem, target: str) -> None:
    """Raise InvalidRequestError if the parent of a directory does not exist."""
    parent = os.path.dirname(target)
    if not fs.is_dir(parent):
        raise InvalidRequestError(f"{parent} does not exist: create it")


def leftovers(fs: FileSystem, target: str, *kinds: str) -> list[str]:
    """Return the existing temporary directories beside `target` that have one of these kinds.

    Each is being created by a process, or was left by a crash.
    """
    parent, name = os.path.split(target)
    prefixes = tuple(f".{name}.{kind}-" for kind in kinds)
    found = [entry for entry in fs.listdir(parent) if entry.startswith(prefixes)]
    paths = (os.path.join(parent, entry) for entry in found)
    return [path for path in paths if fs.is_dir(path) and not fs.is_link(path)]


def remove_leftover(fs: FileSystem, root: str, *, lock_name: str = LOCK_NAME) -> None:
    """Remove a directory that a crashed process was creating.

    Raises:
        LogLockedError: The process is still running, and has the directory's lock.
    """
    with hold(fs, root, lock_name):
        _remove_root(fs, root, lock_name)


def hold(fs: FileSystem, root: str, lock_name: str = LOCK_NAME) -> LockFile:
    """Lock a staged directory, so that no cleanup removes it and its files can be changed.

    Raises:
        LogLockedError: Another process has the lock.
    """
    file = fs.open_lock(os.path.join(root, lock_name))
    if not file.try_lock(0, 1, exclusive=True) or not file.is_current():
        file.close()
        raise LogLockedError(f"{root}: another process is working here; wait for it")
    return file


def arrived(fs: FileSystem, paths: Sequence[str]) -> None:
    """Remove the mark of directories that waited for another path. Idempotent.

    The mark is a file with that path, which makes a cleanup after a crash remove the directory.
    """
    for path in paths:
        with contextlib.suppress(FileNotFoundError):
            fs.unlink(os.path.join(path, WAITING_NAME))
            fs.sync_dir(path)


def remove_all(fs: FileSystem, path: str) -> None:
    """Remove a file, or a directory with all contents, if it exists. The caller must sync.

    For a link, only the link is removed, because the target may belong to another user.
    """
    if fs.is_link(path) or not fs.is_dir(path):
        with contextlib.suppress(FileNotFoundError):
            fs.unlink(path)
        return
    for name in fs.listdir(path):
        remove_all(fs, os.path.join(path, name))
    fs.rmdir(path)


def _remove_waiting(fs: FileSystem, path: str, mine: Sequence[str] = ()) -> None:
    """Remove a published directory that waits for a path that was never created.

    A directory whose creation is still running stays, unless its temporary path is in `mine` (this
    creation). A directory that a session or a broker has opened stays too.
    """
    try:
        says = read_bytes(fs, os.path.join(path, WAITING_NAME)).decode()
    except FileNotFoundError:
        return
    awaited, _, maker = says.partition("\n")
    # A directory that was opened may contain records by now, so it is never removed.
    used = any(fs.exists(os.path.join(path, name)) for name in _OPENED)
    if used or not maker or fs.exists(awaited) or not fs.is_dir(maker):
        return
    if maker in mine:
        remove_all(fs, path)
        return
    # A locked directory belongs to a creation that is still running.
    with contextlib.suppress(LogLockedError), hold(fs, maker):
        remove_all(fs, path)


def _remove_root(fs: FileSystem, root: str, lock_name: str) -> None:
    """Remove a staged directory, and its lock file last. The caller must have the lock."""
    if fs.is_dir(root):
        # The lock file goes last: without it, another process could not see that the removal is
        # running.
        for name in fs.listdir(root):
            if name != lock_name:
                remove_all(fs, os.path.join(root, name))
        remove_all(fs, root)
