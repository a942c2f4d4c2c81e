"""`sparklog.readers-<hash>`: a small file with the committed offsets of a registered reader.

A group is a streaming query or a set of plain readers with the same group name. Its file is a
checksummed document (see `stored_json`) in the first log dir:

    reader: {group, kind: query | group, host, app, batch,
             offsets: {topic: {partition: [next offset to read, time of the commit (ms)]}},
             epochs: {topic: {partition: [leader epoch of the record before it, its first offset]}},
             notes: {topic: {partition: [metadata, leader epoch or null]}},
             run, planners: {planner: [topics]}, name,
             pace: {since, longest, points: [[time, partitions, sum of their offsets]]}}

`epochs` detect that the log was restored since (see `truncation_detection`). `notes` contains the
data that Kafka clients commit besides offsets. `run` and `planners` belong to a query: the
processes that plan for the sources of its last run (see sparklog.source.group_registration). `name`
is the name of the query in that run, if it has one: any text of at most 249 characters. `pace` is
the commit rate (see sparklog.storage.commit_rate), for monitoring. Older versions of sparklog do
not write these fields.

Readers write the file themselves, even if they opened the log read-only. They take no write lock,
but a lock on the file, because members of a group commit other partitions at the same time. The
file is replaced by a rename. The contents are synced before the rename, and the directory after it
if the name is new. A power cut may restore an older commit, which only delays retention, but never
a torn or an empty file. A file that is damaged nevertheless blocks retention until its reader
commits again or it expires.

Kafka stores the same data in __consumer_offsets; a commit expires like that of a simple consumer.
Source: GroupMetadataManager, OffsetExpirationConditionImpl (Kafka 4.1).
"""

import contextlib
import hashlib
import logging
import os
from collections.abc import Iterator
from typing import Final

from sparklog.clock import attempts
from sparklog.errors import (
    DataCorruptionError,
    LogLockedError,
    StorageUnavailableError,
    UnsupportedVersionError,
)
from sparklog.fs import FileSystem, read_bytes, write_durably
from sparklog.logdir.ledger import ledger_path
from sparklog.storage.group_store import StoredGroup
from sparklog.storage.groups import (
    Decision,
    Reader,
    reader_from_json,
    reader_to_json,
)
from sparklog.storage.stored_json import seal, unseal

READERS_PREFIX: Final = "sparklog.readers-"
LOCK_TIMEOUT_MS: Final = 2000  # the lock's holder does an fsync
_CURE: Final = (
    "the next commit of its reader rewrites it; delete the file to forget that reader"
)
_LOGGER: Final = logging.getLogger(__name__)


class GroupFiles:
    """The files in which a log dir stores the offsets of registered readers.

    A `sparklog.storage.group_store.GroupStore`. A group's key is its file's path. Cost of an
    update: a small file, an fdatasync; two more syncs if the group is new.
    """

    def __init__(self, fs: FileSystem, home: str) -> None:
        self._fs, self._home = fs, home

    @property
    def are_waited_for(self) -> bool:
        """Whether retention waits for registered readers: only in a log with sparklog's ledger.

        A broker's own log dir has no ledger, and a broker does not know the readers.
        """
        return self._fs.is_dir(ledger_path(self._home))

    def key(self, group: str) -> str:
        """Return the path of a group's file."""
        return group_path(self._home, group)

    @contextlib.contextmanager
    def naming(self, group: str) -> Iterator[None]:
        """Add the group and the log dir to a StorageUnavailableError raised in the context."""
        try:
            yield
        except StorageUnavailableError as error:
            raise StorageUnavailableError(
                f"the offsets of group {group} can't be stored in {self._home}: {error}"
            ) from error

    def read(self, group: str) -> Reader | None:
        """Return a group, or None if the group is unknown. Takes no lock."""
        try:
            return self._read(self.key(group))
        except FileNotFoundError:
            return None

    def read_all(self) -> list[StoredGroup]:
        """Return all groups. Takes no lock. Cost: a listing and a small file per group."""
        found = []
        for name in self._fs.listdir(self._home):
            if not name.startswith(READERS_PREFIX) or name.endswith(".tmp"):
                continue
            path = os.path.join(self._home, name)
            with contextlib.suppress(FileNotFoundError):
                try:
                    found.append(StoredGroup(path, path, self._read(path)))
                except (DataCorruptionError, UnsupportedVersionError) as error:
                    found.append(StoredGroup(path, path, None, error, self._fs.mtime_ms(path)))
        return found

    def update(
        self, group: str, decide: Decision, *, heal: bool = False, durably: bool = True
    ) -> bool:
        """Apply `decide` to a group under the lock of its file; return True if it was written.

        For the arguments see `GroupStore.update`.
        """
        path = self.key(group)
        with self._locked(path):
            known, is_damaged = None, False
            try:
                known = self._read(path)
            except DataCorruptionError as error:
                if not heal:
                    raise
                _LOGGER.warning("%s; group %s starts without commits", error, group)
                is_damaged = True
            reader = None
            try:
                reader = decide(known)
            finally:
                if reader is None and known is None and not is_damaged:
                    self._fs.unlink(path)  # the empty file, created for the lock
            if reader is None:
                return False
            if not reader.offsets:
                self._unlink(path, durably=durably)
                return known is not None or is_damaged
            # The directory must be synced if the group or a partition is new: otherwise a power cut
            # could restore a file without it, and retention would not wait for this partition at
            # all.
            before = known.offsets.keys() if known is not None else set()
            _write(self._fs, path, reader, is_new=before < reader.offsets.keys())
            return True

    def delete(self, key: str, *, durably: bool = True) -> bool:
        """Delete a group's file, also a damaged one; return True if the file existed.

        `key` is the path of the file. Without `durably`, a power cut may restore it.
        """
        if not self._fs.exists(key):
            return False
        with self._locked(key):
            self._unlink(key, durably=durably)
        return True

    def _unlink(self, path: str, *, durably: bool) -> None:
        self._fs.unlink(path)
        if durably:
            self._fs.sync_dir(self._home)

    def _read(self, path: str) -> Reader | None:
        """Return the group in a group's file; None if the file was just created and is empty."""
        raw = read_bytes(self._fs, path)
        if not raw:
            return None
        reader = reader_from_json(unseal("reader", raw, path=path, cure=_CURE))
        if os.path.basename(self.key(reader.group)) != os.path.basename(path):
            raise DataCorruptionError(
                f"the file has the positions of group {reader.group}, but another group's name; "
                f"{_CURE}",
                path=path,
            )
        return reader

    @contextlib.contextmanager
    def _locked(self, path: str) -> Iterator[None]:
        """Acquire the lock of a group's file. A missing file is created, empty."""
        for _ in attempts(LOCK_TIMEOUT_MS):
            file = self._fs.open_lock(path)
            try:
                # The previous holder has replaced the file.
                if file.try_lock(0, 0, exclusive=True) and file.is_current():
                    yield
                    return
            finally:
                file.close()
        raise LogLockedError(
            f"{path} has been locked for {LOCK_TIMEOUT_MS} ms by another reader of its group, "
            "which hangs or was stopped; commit again later, or end that reader"
        )


def write_reader(fs: FileSystem, home: str, reader: Reader) -> None:
    """Write a group durably into a log dir that is being created."""
    _write(fs, group_path(home, reader.group), reader, is_new=True)


def group_path(home: str, group: str) -> str:
    """Return the path of a group's file."""
    digest = hashlib.sha256(group.encode()).hexdigest()[:32]
    return os.path.join(home, READERS_PREFIX + digest)


def _write(fs: FileSystem, path: str, reader: Reader, *, is_new: bool) -> None:
    write_durably(fs, path, seal("reader", reader_to_json(reader)), sync_dir=is_new)
