"""Detects that a log dir was replaced under an open log.

Removed and made anew, restored from a copy, a link that leads elsewhere, another disk mounted over
it: names, contents and topic ids may all be the same. The lock file's inode is not, as long as
somebody holds the old file open: it can't be given to another file then. Looked at on each use, at
the cost of one stat a log dir.
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
from sparklog.storage.local_files import FileIdentity
from sparklog.storage.log_state import LogState
from sparklog.storage.segments import StaleReadError

_Identity = tuple[int, int] | None


class LogDirIdentity:
    """What a reader, who holds no lock, knows of the log dirs that it looked at. Thread-safe.

    Of the first log dir the lock file counts; of a broker's, which has none, and of the others
    the directory itself: a broker makes its lock file anew whenever it starts.
    """

    def __init__(self, fs: FileSystem, directories: Sequence[str]) -> None:
        self._fs, self._directories = fs, list(directories)
        self._seen: list[tuple[str, _Identity]] = []
        self._held: list[File] = []
        self.renew()

    def is_current(self) -> bool:
        """Tell whether all of them are what they were. Cost: one stat a log dir."""
        return all(self._identity(path) == seen for path, seen in self._seen)

    def files(self) -> tuple[FileIdentity, ...] | None:
        """Return what was seen of each log dir; None where that is nothing to go by."""
        seen = [(path, identity) for path, identity in self._seen if identity and any(identity)]
        if len(seen) < len(self._seen):
            return None
        return tuple(FileIdentity(path, *identity) for path, identity in seen)

    def renew(self) -> None:
        """Look at what lies there now."""
        seen: list[tuple[str, _Identity]] = []
        held: list[File] = []
        for number, directory in enumerate(self._directories):
            path, identity = directory, None
            if not number:
                path = os.path.join(directory, LOCK_NAME)
                identity = self._hold(path, held)
            if identity is None:
                path, identity = directory, self._hold(directory, held)
            seen.append((path, identity))
        self._seen, self._held = seen, held

    def _hold(self, path: str, held: list[File]) -> _Identity:
        """Return the identity of what the path names, and keep it from being given away."""
        while True:
            identity = self._identity(path)
            if identity is None or not any(identity):  # a remote one has none
                return identity
            with contextlib.suppress(FileNotFoundError, StorageUnavailableError):
                held.append(self._fs.open(path))
            if self._identity(path) == identity:  # else it was replaced before it was opened
                return identity

    def _identity(self, path: str) -> _Identity:
        try:
            return self._fs.identity(path)
        except FileNotFoundError:
            return None


def check_same(fs: FileSystem, home: str, known: int, then: LogState) -> None:
    """Raise LogReplacedError unless the ledger holds all that a session knows of.

    Args: known, then: the ledger's end and the state, as it knows them. Under the lock.
    Cost: the ledger's last segment is read.
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
            _text(home, f"another log, or this one as it was {known - end} changes ago")
        )
    ids, held = ({name: t.id for name, t in state.topics.items()} for state in (then, now))
    if (ids, then.ends, then.time_ms) != (held, now.ends, now.time_ms):
        raise LogReplacedError(_text(home, "another log, or another history of this one"))


def _text(home: str, what: str) -> str:
    return (
        f"{home} was replaced while the log was open and holds {what} now: what was committed "
        "before may be missing there; nothing was written. Bring back what was there, or accept "
        "what is there now. In both cases, close this log (end the query) and open it again"
    )
