"""The log of a snapshot, if the log is in a bucket: a fork that refers to the log's objects.

The fork is made like any other fork, in a directory beside the checkpoint. Objects that it would
copy are only recorded, and read from the original when the snapshot needs them. New objects are
written to that directory: ledger and state, records that were inline in entries, and segments that
are cut.

Cost: a listing of the log, a GET for each entry up to the batch, and a pass over segments that
contain the batch's end. Objects of the newest snapshot aren't read, except for encrypted manifests
(0.5% of the log). New objects are read through this machine, and twice if larger than 16 MiB: to
compute their SHA-256, and to upload them. Rewritten objects are read and compared each time.
"""

import hashlib
import threading
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Self

from sparklog.checkpoint.backup.repository import PIECE_BYTES
from sparklog.checkpoint.backup.snapshots import SnapshotTree
from sparklog.checkpoint.backup.upload import Stamp
from sparklog.clock import Clock
from sparklog.diskless.forking import derived_id
from sparklog.diskless.home_object import known_home
from sparklog.diskless.import_objects import BucketTarget, NewLog, NewObject
from sparklog.diskless.log_creation import fork
from sparklog.errors import StorageUnavailableError
from sparklog.log.fork_points import ForkPointRequest
from sparklog.tiered.object_store.file_driver import LocalDriver
from sparklog.tiered.object_store.object_store import ObjectStore
from sparklog.tiered.object_store.store import WHOLE_BYTES_MAX, Store, StoredObject, is_listed
from sparklog.tiered.reading.options import RemoteOptions


@dataclass(frozen=True, slots=True)
class _Reference:
    source: Store
    name: str
    size: int
    stamp: Stamp


class ForkedLog(ObjectStore):
    """A store below `directory`, in which copies of objects of `source` are references.

    This class is an `upload.TreeSource`: the content of a log's object never changes under its
    name, so log id and name identify the content of a copy. The same applies to the manifest of a
    copied segment, unless it has a key, which may be wrapped again.

    Args:
        directory: Where new objects are written.
        source: The bucket of the log.
        before: The log in the newest snapshot. The manifests of this log are built only if they are
            uploaded again.
        threads: The number of threads.
        clock: The current time.
    """

    def __init__(
        self,
        directory: str,
        source: Store,
        before: SnapshotTree | None,
        threads: int,
        clock: Clock,
    ) -> None:
        super().__init__(LocalDriver(directory))
        self.origin, self._source = source.url, source
        self._threads, self._clock = threads, clock
        self._log_id = known_home(source).log_id
        self._references: dict[str, _Reference] = {}
        self._before = {} if before is None else {one.path: one for one in before.files}
        self._lasting: set[str] = set()
        self._kept: dict[str, NewObject] = {}
        self._listed: dict[str, int] | None = None
        self._listing = threading.Lock()

    def make(self, writer: str, batch: int, keyring: str) -> Self:
        """Fork the log at the end of a batch.

        The fork's log id is derived from the original's, and so are topic ids, so that manifests
        are the same in every snapshot.

        Args:
            writer: The query's name in the log.
            batch: The batch.
            keyring: The file of the log's keys; "" for none.

        Raises the errors of `sparklog.diskless.log_creation.fork`.
        """
        target = BucketTarget(
            store=self, threads=self._threads, clock=self._clock,
            log_id=derived_id("archive", self._log_id, 0),
        )  # fmt: skip
        fork(
            self._source, target, ForkPointRequest(writer=writer, batch=batch),
            adapt=self._without_known, options=RemoteOptions(remote_keyring=keyring),
        )  # fmt: skip
        return self

    def _without_known(self, new: NewLog) -> NewLog:
        """Leave out the manifests that the newest snapshot contains."""
        copied = {one.name for one in new.objects} - new.keys.keys()
        self._lasting = {one.name for one in new.manifests if _log_of(one.name) in copied}
        for one in new.manifests:
            held = self._before.get(one.name)
            if held is not None and held.seen == self.stamp(one.name) is not None:
                self._kept[one.name] = one
        return replace(new, manifests=[m for m in new.manifests if m.name not in self._kept])

    # -- the store

    def copy(self, source: Store, source_name: str, name: str) -> None:
        """Record a reference to the object."""
        size = self._size_of(source_name) if source is self._source else source.size(source_name)
        stamp = _stamp(f"{self._log_id} {source_name}")
        self._references[name] = _Reference(source, source_name, size, stamp)

    def _size_of(self, name: str) -> int:
        with self._listing:
            if self._listed is None:  # a listing has 1,000 sizes per request
                self._listed = {one.name: one.size for one in self._source.list()}
        size = self._listed.get(name)
        if size is not None:
            return size
        try:
            return self._source.size(name)
        except FileNotFoundError:
            raise _missing_error(f"{self._source.url}/{name}") from None

    def get(
        self, name: str, start: int = 0, end: int | None = None, *, limit: int = WHOLE_BYTES_MAX
    ) -> bytes:
        """Return bytes of an object, which is new or a reference."""
        found = self._references.get(name)
        if found is None:
            return super().get(name, start, end, limit=limit)
        return found.source.get(found.name, start, end, limit=limit)

    def size(self, name: str) -> int:
        """Return an object's size in bytes."""
        found = self._references.get(name)
        if name in self._kept:
            return self._before[name].size
        return super().size(name) if found is None else found.size

    def list(
        self, prefix: str = "", start_after: str = "", *, without: str = ""
    ) -> list[StoredObject]:
        """Return all objects, both new objects and references."""
        mine = super().list(prefix, start_after, without=without)
        more = [
            StoredObject(name, one.size, 0)
            for name, one in self._references.items()
            if is_listed(name, prefix, start_after, without)
        ]
        return sorted([*mine, *more], key=lambda one: one.name)

    # -- the files of a point

    def paths(self) -> Iterator[tuple[str, bool]]:
        """Yield every object."""
        names = {one.name for one in self.list()} | self._kept.keys()
        return ((name, False) for name in sorted(names))

    def where(self, path: str) -> str:
        """Return the object's URL, for messages."""
        found = self._references.get(path)
        return f"{self.url}/{path}" if found is None else f"{found.source.url}/{found.name}"

    def stamp(self, path: str) -> Stamp | None:
        """Return the identity of a copied object, or None for a new object, which must be read."""
        if path in self._lasting:
            return _stamp(f"{self._log_id} as {path}")
        found = self._references.get(path)
        return None if found is None else found.stamp

    def is_settled(self, stamp: Stamp, size: int, now_ms: int) -> bool:
        """Return True: an object never changes."""
        return True

    def pieces(self, path: str, size: int) -> Iterator[bytes]:
        """Yield the bytes of an object.

        Raises:
            StorageUnavailableError: The object was deleted, or is shorter than in the listing.
        """
        kept = self._kept.get(path)
        if kept is not None:
            kept.write()
        for at in range(0, size, PIECE_BYTES):
            end = min(at + PIECE_BYTES, size)
            try:
                data = self.get(path, at, end)
            except FileNotFoundError:
                data = b""
            if len(data) < end - at:
                raise _missing_error(self.where(path))
            yield data


def _missing_error(where: str) -> StorageUnavailableError:
    return StorageUnavailableError(
        "the object was deleted or truncated after the log was listed, possibly because the "
        "service merged it; no snapshot was written. Archive again. If the error persists, run "
        "`sparklog verify`, which reports what the log misses",
        path=where,
    )


def _stamp(text: str) -> Stamp:
    digest = hashlib.sha256(text.encode()).digest()
    first, second, third = (int.from_bytes(digest[at : at + 8], "big") for at in (0, 8, 16))
    return first, second, third


def _log_of(manifest: str) -> str:
    """Return the name of a segment's log object, from the name of the segment's manifest."""
    directory, _, name = manifest.rpartition("/")
    return f"{directory}/{name.partition('.')[0]}.log"
