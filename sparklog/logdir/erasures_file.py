"""`sparklog.erased` in the first log dir: which erasures there were, and that there was another.

Readers keep closed segments open, which nobody changes but an erasure (and the cleaner, in topics
where they know it). So each erasure ends by replacing this file, and each use of a log's view looks
at it: what it had open is let go. It also begins so: one that was cut, or left something, stays
among the `begun` until the same request has found nothing left. No key is in it. Text: a sealed
JSON document.
"""

import contextlib
from collections.abc import Sequence
from typing import Any, Final

from sparklog.errors import DataCorruptionError, UnsupportedVersionError
from sparklog.fs import FileSystem, read_bytes, write_durably
from sparklog.logdir.segment_files import joined
from sparklog.storage.checksummed_json import seal, unseal
from sparklog.storage.unfinished_erasure import UnfinishedErasure

NAME: Final = "sparklog.erased"
LOCK_NAME: Final = "sparklog.erasing"
"""Its lock is held by who erases: one at a time."""
_KEPT: Final = 1000  # erasures that it tells of
_CURE: Final = "remove it, and run the erasures again that were not complete"

Stamp = tuple[tuple[int, int], int]


def _read(fs: FileSystem, home: str) -> dict[str, Any]:
    path = joined(home, NAME)
    with contextlib.suppress(FileNotFoundError, DataCorruptionError, UnsupportedVersionError):
        return unseal("erasures", read_bytes(fs, path), path=path, cure=_CURE)
    return {}


def erasures(fs: FileSystem, home: str) -> list[dict[str, Any]]:
    """Return what is noted of past erasures, the oldest first; nothing of a damaged file."""
    found = _read(fs, home).get("done")
    return list(found) if isinstance(found, list) else []


def unfinished_erasures(fs: FileSystem, home: str) -> list[UnfinishedErasure]:
    """Return the erasures that aren't complete, the oldest first; nothing of a damaged file."""
    found = _read(fs, home).get("begun")
    parsed = map(UnfinishedErasure.parse, found if isinstance(found, list) else [])
    return [one for one in parsed if one is not None]


def note_unfinished(fs: FileSystem, home: str, begun: UnfinishedErasure) -> UnfinishedErasure:
    """Note that an erasure begins, durably. Under the lock.

    Returns: it, as it was noted when it began before and left something.
    """
    others = unfinished_erasures(fs, home)
    for one in others:
        if (one.request, one.topic_id) == (begun.request, begun.topic_id):
            return one
    _write(fs, home, erasures(fs, home), [*others, begun])
    return begun


def note_erasure(
    fs: FileSystem, home: str, about: dict[str, Any], ended: UnfinishedErasure
) -> None:
    """Note an erasure and what it left, durably, and let readers know. Under the lock."""
    done = [*erasures(fs, home), about]
    others = [
        one
        for one in unfinished_erasures(fs, home)
        if (one.request, one.topic_id) != (ended.request, ended.topic_id)
    ]
    _write(fs, home, done, [*others, ended] if ended.left else others)


def _write(
    fs: FileSystem, home: str, done: list[dict[str, Any]], begun: Sequence[UnfinishedErasure]
) -> None:
    fields = {"done": done[-_KEPT:], "begun": [one.to_dict() for one in begun[-_KEPT:]]}
    write_durably(fs, joined(home, NAME), seal("erasures", fields))


class LastErasure:
    """What one reader has seen of the file. Threads may share it."""

    def __init__(self, fs: FileSystem, home: str) -> None:
        self._fs, self._path = fs, joined(home, NAME)
        self._seen = self._stamp()

    def is_new(self) -> bool:
        """Tell whether there was an erasure since the last call. Cost: one stat, or two."""
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
