"""`sparklog.erased` in the first log dir: past erasures, and a signal for readers.

Readers keep closed segments open. Only an erasure changes these (and the cleaner, in topics where
readers expect it). So each erasure replaces this file at its end, and each use of a log's view
checks the file and closes open segments after a change. An erasure also replaces it at its start:
an erasure that was interrupted or incomplete is listed in `begun` until the same request completes
it. The file contains no keys. Format: a checksummed JSON document.
"""

import contextlib
from collections.abc import Sequence
from typing import Any, Final

from sparklog.errors import DataCorruptionError, UnsupportedVersionError
from sparklog.fs import FileSystem, read_bytes, write_durably
from sparklog.logdir.segment_files import joined
from sparklog.storage.stored_json import seal, unseal
from sparklog.storage.unfinished_erasure import UnfinishedErasure

NAME: Final = "sparklog.erased"
LOCK_NAME: Final = "sparklog.erasing"
"""The lock file of erasures: one erasure at a time."""
_KEPT: Final = 1000  # maximum number of listed erasures
_CURE: Final = "remove it, and run the incomplete erasures again"

Stamp = tuple[tuple[int, int], int]


def _read(fs: FileSystem, home: str) -> dict[str, Any]:
    path = joined(home, NAME)
    with contextlib.suppress(FileNotFoundError, DataCorruptionError, UnsupportedVersionError):
        return unseal("erasures", read_bytes(fs, path), path=path, cure=_CURE)
    return {}


def erasures(fs: FileSystem, home: str) -> list[dict[str, Any]]:
    """Return the reports of past erasures, the oldest first; empty if the file is damaged."""
    found = _read(fs, home).get("done")
    return list(found) if isinstance(found, list) else []


def unfinished_erasures(fs: FileSystem, home: str) -> list[UnfinishedErasure]:
    """Return incomplete erasures, the oldest first; empty if the file is damaged."""
    found = _read(fs, home).get("begun")
    parsed = map(UnfinishedErasure.parse, found if isinstance(found, list) else [])
    return [erasure for erasure in parsed if erasure is not None]


def note_unfinished(fs: FileSystem, home: str, begun: UnfinishedErasure) -> UnfinishedErasure:
    """Record the start of an erasure, durably. Under the lock.

    Returns:
        `begun`, or the record of an earlier start of the same request that is still unfinished.
    """
    others = unfinished_erasures(fs, home)
    for other in others:
        if (other.request, other.topic_id) == (begun.request, begun.topic_id):
            return other
    _write(fs, home, erasures(fs, home), [*others, begun])
    return begun


def note_erasure(
    fs: FileSystem, home: str, about: dict[str, Any], ended: UnfinishedErasure
) -> None:
    """Record the end of an erasure, durably, which also signals readers. Under the lock.

    Args:
        fs: The file system.
        home: The first log dir.
        about: The report of the erasure.
        ended: The record of its start. It stays in the list of unfinished erasures if it names
            records or files that are left.
    """
    done = [*erasures(fs, home), about]
    others = [
        other
        for other in unfinished_erasures(fs, home)
        if (other.request, other.topic_id) != (ended.request, ended.topic_id)
    ]
    _write(fs, home, done, [*others, ended] if ended.left else others)


def _write(
    fs: FileSystem, home: str, done: list[dict[str, Any]], begun: Sequence[UnfinishedErasure]
) -> None:
    fields = {"done": done[-_KEPT:], "begun": [erasure.to_dict() for erasure in begun[-_KEPT:]]}
    write_durably(fs, joined(home, NAME), seal("erasures", fields))


class LastErasure:
    """Detects for a reader that the erasures file was replaced. Threads may share it."""

    def __init__(self, fs: FileSystem, home: str) -> None:
        self._fs, self._path = fs, joined(home, NAME)
        self._seen = self._stamp()

    def is_new(self) -> bool:
        """Return True if the file was replaced since the last call. Cost: a stat, or two."""
        found = self._stamp()
        if found == self._seen:
            return False
        self._seen = found
        return True

    def _stamp(self) -> Stamp | None:
        try:
            return self._fs.identity(self._path), self._fs.changed_ms(self._path)
        except FileNotFoundError:
            return None
