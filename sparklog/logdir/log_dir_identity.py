"""Detect that a log dir was replaced under an open log.

A log dir may be deleted and created again, restored from a copy, behind a link that changed, or
hidden by another mount. Names, contents and topic ids can then be the same. The lock file's inode
differs, as long as a process has the old file open, because the inode can't be reused then. Checked
on each use, at the cost of a stat per log dir.
"""

import contextlib
import os
from collections.abc import Sequence

from sparklog.errors import (
    DataCorruptionError,
    LogReplacedError,
    StorageUnavailableError,
)
from sparklog.fs import File, FileSystem
from sparklog.logdir.ledger import fold, whole_end
from sparklog.logdir.lock import LOCK_NAME
from sparklog.storage.log_state import LogState
from sparklog.storage.segments import FileIdentity, StaleReadError

_Identity = tuple[int, int] | None


class LogDirIdentity:
    """The log dirs' identity for a reader, which has no lock. Thread-safe.

    The first log dir is identified by the lock file. A broker's log dir, which has no such file,
    and the other log dirs are identified by the directory, because a broker creates its lock file
    again at each start.
    """

    def __init__(self, fs: FileSystem, directories: Sequence[str]) -> None:
        self._fs, self._directories = fs, list(directories)
        self._seen: list[tuple[str, _Identity]] = []
        self._held: list[File] = []
        self.renew()

    def is_current(self) -> bool:
        """Return True if no log dir was replaced. Cost: a stat per log dir."""
        return all(self._identity(path) == seen for path, seen in self._seen)

    def files(self) -> tuple[FileIdentity, ...] | None:
        """Return the identity of each log dir, or None if a file system has no identities."""
        seen = [(path, identity) for path, identity in self._seen if identity and any(identity)]
        if len(seen) < len(self._seen):
            return None
        return tuple(FileIdentity(path, *identity) for path, identity in seen)

    def renew(self) -> None:
        """Read the identities of the current log dirs."""
        seen: list[tuple[str, _Identity]] = []
        files: list[File] = []
        for number, directory in enumerate(self._directories):
            path, identity = directory, None
            if not number:
                path = os.path.join(directory, LOCK_NAME)
                identity = self._hold(path, files)
            if identity is None:
                path, identity = directory, self._hold(directory, files)
            # A log dir that is missing now is remembered as missing: when it appears, it counts as
            # replaced.
            seen.append((path, identity))
        self._seen, self._held = seen, files

    def _hold(self, path: str, files: list[File]) -> _Identity:
        """Return the identity of a path. Keep the file open, which prevents reuse of the inode."""
        while True:
            identity = self._identity(path)
            if identity is None or not any(identity):  # remote file systems have none
                return identity
            with contextlib.suppress(FileNotFoundError, StorageUnavailableError):
                files.append(self._fs.open(path))
            if self._identity(path) == identity:  # otherwise it was replaced before the open
                return identity

    def _identity(self, path: str) -> _Identity:
        try:
            return self._fs.identity(path)
        except FileNotFoundError:
            return None


def check_same(fs: FileSystem, home: str, known: int, then: LogState) -> None:
    """Raise LogReplacedError unless the ledger contains everything that a session knows.

    Cost: reads the ledger's last segment. The caller holds the write lock.

    Args:
        fs: The file system.
        home: The first log dir.
        known: The ledger end that the session knows.
        then: The state of the log at that end.
    """
    now = LogState()
    try:
        end = whole_end(fs, home)
        if end >= known:
            fold(fs, home, known, state=now, first=None)
    except (DataCorruptionError, StaleReadError, FileNotFoundError) as error:
        raise LogReplacedError(_text(home, f"a ledger that can't be read ({error})")) from error
    if end < known:
        raise LogReplacedError(
            _text(home, f"another log, or an old copy that lacks the last {known - end} changes")
        )
    # Two copies of a log that were both written to have the same ledger ends at some time. Topic
    # ids, offsets and the time of the last record tell them apart.
    ids, current_ids = ({name: t.id for name, t in state.topics.items()} for state in (then, now))
    if (ids, then.ends, then.time_ms) != (current_ids, now.ends, now.time_ms):
        raise LogReplacedError(_text(home, "another log, or a copy with other records"))


def _text(home: str, contents: str) -> str:
    return (
        f"{home} was replaced while the log was open and now contains {contents}: records "
        "committed before may be missing there, and this call wrote no data. Bring back the old "
        "contents, or accept the new ones. In both cases, close this log (end the query) and open "
        "it again"
    )
