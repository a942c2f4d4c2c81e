"""The archived log of a snapshot as a read-only store. A restore forks the log from this store."""

import errno
from collections.abc import Callable, Iterable, Sequence
from typing import Never

from sparklog.checkpoint.backup.repository import Piece, Repository
from sparklog.checkpoint.backup.snapshots import SNAPSHOTS, Snapshot, SnapshotTree
from sparklog.errors import InvalidRequestError
from sparklog.fs import Buffer
from sparklog.lru_cache import LruCache
from sparklog.tiered.object_store.store import (
    WHOLE_BYTES_MAX,
    Store,
    StoredObject,
    is_listed,
    too_large,
)


class ArchivedLog:
    """The objects of the log in a snapshot. Every piece that is read is checked by its SHA-256.

    Args:
        threads: The number of reading threads; `threads + 1` pieces are in memory.
        on_piece: Called with the size of every piece that was fetched.
    """

    replaces = skips = sends_once = True

    def __init__(
        self,
        repository: Repository,
        snapshot: Snapshot,
        tree: SnapshotTree,
        threads: int,
        on_piece: Callable[[int], None] = lambda size: None,
    ) -> None:
        self.url = f"{repository.store.url}/{SNAPSHOTS}{snapshot.name}"
        self._repository, self._on_piece = repository, on_piece
        self._files = {entry.path: entry for entry in tree.files}
        self._pieces: LruCache[Piece, bytes] = LruCache(threads + 1)

    def get(
        self, name: str, start: int = 0, end: int | None = None, *, limit: int = WHOLE_BYTES_MAX
    ) -> bytes:
        """Return the bytes [start, end) of an object; fewer only at the end of the object.

        Raises:
            DataCorruptionError: An object is missing, or has other bytes than were written.
        """
        entry = self._files.get(name)
        if entry is None:
            raise FileNotFoundError(errno.ENOENT, "no such object", f"{self.url}/{name}")
        if end is None and entry.size > limit:
            raise too_large(f"{self.url}/{name}", limit)
        if entry.data is not None:
            return entry.data[start:end]
        stop = entry.size if end is None else min(end, entry.size)
        parts, at = [], 0
        for piece in entry.pieces():
            size = piece.end - piece.start
            if at < stop and at + size > start:
                parts.append(self._fetched(piece)[max(0, start - at) : stop - at])
            at += size
        return b"".join(parts)

    def _fetched(self, piece: Piece) -> bytes:
        def fetch() -> bytes:
            data = self._repository.get(piece)
            self._on_piece(len(data))
            return data

        return self._pieces.get_or_make(piece, fetch)

    def get_many(
        self, names: Sequence[str], *, limit: int = WHOLE_BYTES_MAX
    ) -> list[bytes | Exception]:
        """Return entire objects, or the error of each object that can't be read."""
        found: list[bytes | Exception] = []
        for name in names:
            try:
                found.append(self.get(name, limit=limit))
            except Exception as error:  # noqa: BLE001 - returned to the caller
                found.append(error)
        return found

    def size(self, name: str) -> int:
        """Return an object's size in bytes."""
        entry = self._files.get(name)
        if entry is None:
            raise FileNotFoundError(errno.ENOENT, "no such object", f"{self.url}/{name}")
        return entry.size

    def list(
        self, prefix: str = "", start_after: str = "", *, without: str = ""
    ) -> list[StoredObject]:
        """Return all objects with this prefix, sorted by name."""
        return [
            StoredObject(name, entry.size, 0)
            for name, entry in sorted(self._files.items())
            if is_listed(name, prefix, start_after, without)
        ]

    def put(self, name: str, data: bytes) -> None:
        """Raise an error, because a snapshot is immutable."""
        self._refuse(name)

    def create(self, name: str, data: bytes) -> bool:
        """Raise an error, because a snapshot is immutable."""
        self._refuse(name)

    def copy(self, source: Store, source_name: str, name: str) -> None:
        """Raise an error, because a snapshot is immutable."""
        self._refuse(name)

    def put_stream(self, name: str, pieces: Iterable[Buffer], size: int) -> None:
        """Raise an error, because a snapshot is immutable."""
        self._refuse(name)

    def delete(self, names: Sequence[str]) -> None:
        """Raise an error, because a snapshot is immutable."""
        self._refuse(", ".join(names))

    def sweep_uploads(self, before_ms: int, prefix: str = "") -> int:
        """Return 0: a read-only store has no uploads."""
        return 0

    def _refuse(self, name: str) -> Never:
        raise InvalidRequestError(f"{self.url}/{name}: an archived point is read-only")
