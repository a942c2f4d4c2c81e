"""`sparklog.readers-<hash>`: a small file with the committed offsets of a registered reader.

A group is a streaming query or a set of plain readers with the same group name. Its file is a
checksummed document (see `checksummed_json`) in the first log dir:

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
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Final

from sparklog.clock import attempts
from sparklog.common import TopicPartition
from sparklog.errors import (
    DataCorruptionError,
    LogLockedError,
    StorageUnavailableError,
    UnsupportedVersionError,
)
from sparklog.fs import FileSystem, read_bytes, write_durably
from sparklog.logdir.ledger import ledger_path
from sparklog.storage.checksummed_json import seal, unseal
from sparklog.storage.groups import (
    NO_ORIGINS,
    Committed,
    Decision,
    ExpiredOffset,
    Origins,
    Reader,
    Readers,
    check_group,
    committed_as_planned,
    committed_by_query,
    expired_offsets,
    is_expired,
    reader_from_json,
    reader_to_json,
)

READERS_PREFIX: Final = "sparklog.readers-"
LOCK_TIMEOUT_MS: Final = 2000  # the lock's holder does an fsync
_CURE: Final = (
    "the next commit of its reader rewrites it; delete the file to forget that reader"
)
_LOGGER: Final = logging.getLogger(__name__)


class GroupFiles:
    """The groups of a log dir as `sparklog.storage.groups.Groups`."""

    def __init__(self, fs: FileSystem, home: str) -> None:
        self._fs, self._home = fs, home

    def positions(self, group: str) -> Mapping[TopicPartition, Committed]:
        """Return the committed positions of a group; see `positions`."""
        return positions(self._fs, self._home, group)

    def reader(self, group: str) -> Reader | None:
        """Return a group; see `known_reader`."""
        return known_reader(self._fs, self._home, group)

    def change(self, group: str, decide: Decision) -> bool:
        """Apply `decide` to a group; see `change_group`."""
        return change_group(self._fs, self._home, group, decide)

    def commit(
        self,
        group: str,
        offsets: Mapping[TopicPartition, int],
        *,
        now_ms: int,
        host: str,
        origins: Origins = NO_ORIGINS,
    ) -> None:
        """Commit a plain reader's offsets; see `commit_offsets`."""
        commit_offsets(
            self._fs, self._home, group, offsets, now_ms=now_ms, host=host, origins=origins
        )

    @property
    def are_waited_for(self) -> bool:
        """Whether this is a log of sparklog's: a broker's directory respects no readers."""
        return self._fs.is_dir(ledger_path(self._home))

    def commit_query(
        self,
        query: Reader,
        offsets: Mapping[TopicPartition, int],
        *,
        now_ms: int,
        planner: str | None = None,
        origins: Origins = NO_ORIGINS,
    ) -> None:
        """Commit where a query's micro-batch starts; see `commit_query`."""
        commit_query(
            self._fs, self._home, query, offsets, now_ms=now_ms, planner=planner, origins=origins
        )

    def group_of_planner(self, planner: str) -> str | None:
        """Return the group that a task registered for `planner`, if any."""
        groups = (r.group for r in self.readers().groups if planner in r.planners)
        return next(groups, None)

    def commit_planned(
        self,
        group: str,
        offsets: Mapping[TopicPartition, int],
        *,
        planner: str,
        now_ms: int,
        origins: Origins = NO_ORIGINS,
    ) -> bool:
        """Commit positions that a query's planner knows; see `commit_planned`."""
        return commit_planned(
            self._fs, self._home, group, offsets, planner=planner, origins=origins, now_ms=now_ms
        )

    def readers(self) -> Readers:
        """Return all groups; see `read_readers`."""
        return read_readers(self._fs, self._home)

    def delete(self, group: str) -> bool:
        """Delete a group; see `delete_reader`."""
        return delete_reader(self._fs, self._home, group)


def commit_offsets(
    fs: FileSystem,
    home: str,
    group: str,
    offsets: Mapping[TopicPartition, int],
    *,
    now_ms: int,
    host: str = "",
    origins: Origins = NO_ORIGINS,
) -> None:
    """Commit a plain reader's offsets, {partition: next offset to read}, durably.

    Errors and cost: as `commit_query`.
    """
    reader = Reader(group, "group", host)
    commit_query(fs, home, reader, offsets, now_ms=now_ms, origins=origins)


def commit_query(
    fs: FileSystem,
    home: str,
    query: Reader,
    offsets: Mapping[TopicPartition, int],
    *,
    now_ms: int,
    planner: str | None = None,
    origins: Origins = NO_ORIGINS,
) -> None:
    """Commit a group's offsets as `committed_by_query` decides, durably.

    Raises: InvalidRequestError: the name is invalid; LogLockedError, StorageUnavailableError;
    UnsupportedVersionError: a newer sparklog wrote the group's file.
    Cost: a small file, an fdatasync; two more syncs if the group is new.
    """
    check_group(query.group)
    if offsets:
        change_group(
            fs,
            home,
            query.group,
            lambda known: committed_by_query(
                known, query, offsets, now_ms=now_ms, planner=planner, origins=origins
            ),
        )


def change_group(fs: FileSystem, home: str, group: str, decide: Decision) -> bool:
    """Apply `decide` to a group, durably; return True if the file was written.

    Errors and cost: as `commit_query`. After an exception of `decide` the file is unchanged.
    """
    check_group(group)
    path = _path(home, group)
    with _kept(group, home), _locked(fs, path):
        damaged = False
        try:
            known = _read(fs, path)
        except DataCorruptionError as error:
            _LOGGER.warning("%s; group %s starts without commits", error, group)
            known, damaged = None, True
        try:
            reader = decide(known)
        except BaseException:
            if known is None and not damaged:
                fs.unlink(path)  # the empty file, created for the lock
            raise
        if reader is None:
            if known is None and not damaged:
                fs.unlink(path)
            return False
        if not reader.offsets:
            fs.unlink(path)
            fs.sync_dir(home)
            return known is not None or damaged
        before = known.offsets.keys() if known is not None else set()
        _write(fs, path, reader, is_new=before < reader.offsets.keys())
        return True


def commit_planned(
    fs: FileSystem,
    home: str,
    group: str,
    offsets: Mapping[TopicPartition, int],
    *,
    planner: str,
    origins: Origins = NO_ORIGINS,
    now_ms: int,
) -> bool:
    """Commit positions that a query's `planner` knows; return False if the tasks must commit.

    See `committed_as_planned`. Errors and cost: as `commit_query`.
    """
    path = _path(home, group)
    with _kept(group, home), _locked(fs, path):
        try:
            known = _read(fs, path)
        except DataCorruptionError:  # its next task reports it, and commits again
            return False
        if known is None:
            fs.unlink(path)
            return False
        reader = committed_as_planned(
            known, offsets, planner=planner, now_ms=now_ms, origins=origins
        )
        if reader is None:
            return False
        _write(fs, path, reader, is_new=not reader.offsets.keys() <= known.offsets.keys())
        return True


def committed_offsets(fs: FileSystem, home: str, group: str) -> dict[TopicPartition, int]:
    """Return the committed offsets of a group: {(topic, partition): next offset to read}.

    Raises: DataCorruptionError: the file is damaged; starting elsewhere would lose the place.
    """
    return {key: at.offset for key, at in positions(fs, home, group).items()}


def positions(fs: FileSystem, home: str, group: str) -> Mapping[TopicPartition, Committed]:
    """Return the same as `committed_offsets`, with all data of each commit."""
    reader = known_reader(fs, home, group)
    return {} if reader is None else reader.offsets


def known_reader(fs: FileSystem, home: str, group: str) -> Reader | None:
    """Return a group, if known. Raises: as `positions`."""
    check_group(group)
    try:
        return _read(fs, _path(home, group))
    except FileNotFoundError:
        return None


def delete_reader(fs: FileSystem, home: str, group: str) -> bool:
    """Delete a group; return True if the group existed. An active group registers again."""
    check_group(group)
    path = _path(home, group)
    if not fs.exists(path):
        return False
    with _kept(group, home), _locked(fs, path):
        fs.unlink(path)
        fs.sync_dir(home)
    return True


def read_readers(fs: FileSystem, home: str) -> Readers:
    """Return all groups, by name. Takes no lock. Cost: a listing and a small file per group."""
    groups, damaged = [], {}
    for path in _group_files(fs, home):
        with contextlib.suppress(FileNotFoundError):
            try:
                reader = _read(fs, path)
            except (DataCorruptionError, UnsupportedVersionError) as error:
                _LOGGER.warning("%s", error)
                damaged[path] = fs.mtime_ms(path)
                continue
            if reader is not None:
                groups.append(reader)
    return Readers(sorted(groups, key=lambda reader: reader.group), damaged)


def damaged_readers(fs: FileSystem, home: str) -> dict[str, DataCorruptionError]:
    """Return {path: error} of unreadable files of groups. Takes no lock."""
    found = {}
    for path in _group_files(fs, home):
        with contextlib.suppress(FileNotFoundError, UnsupportedVersionError):
            try:
                _read(fs, path)
            except DataCorruptionError as error:
                found[path] = error
    return found


def _group_files(fs: FileSystem, home: str) -> list[str]:
    names = [name for name in fs.listdir(home) if name.startswith(READERS_PREFIX)]
    return [os.path.join(home, name) for name in names if not name.endswith(".tmp")]


def expire_readers(
    fs: FileSystem, home: str, *, now_ms: int, retention_ms: int, dry_run: bool = False
) -> list[ExpiredOffset]:
    """Delete and return commits older than `retention_ms`, and groups without other commits.

    A damaged file of this age is deleted too, and returned as its path with partition -1.
    """
    expired: list[ExpiredOffset] = []
    readers = read_readers(fs, home)
    for reader in readers.groups:
        old = expired_offsets(reader, now_ms, retention_ms)
        if old and not dry_run:
            old = _forget(fs, home, reader.group, now_ms, retention_ms)
        expired += old
    for path, time_ms in readers.damaged.items():
        if is_expired(time_ms, now_ms, retention_ms):
            expired.append(ExpiredOffset(path, "", -1, -1, time_ms))
            if not dry_run:
                with _locked(fs, path):
                    fs.unlink(path)
    return expired


def write_reader(fs: FileSystem, home: str, reader: Reader) -> None:
    """Write a group durably into a log dir that is being created."""
    _write(fs, _path(home, reader.group), reader, is_new=True)


def _path(home: str, group: str) -> str:
    digest = hashlib.sha256(group.encode()).hexdigest()[:32]
    return os.path.join(home, READERS_PREFIX + digest)


@contextlib.contextmanager
def _kept(group: str, home: str) -> Iterator[None]:
    try:
        yield
    except StorageUnavailableError as error:
        raise StorageUnavailableError(
            f"the offsets of group {group} can't be kept in {home}: {error}"
        ) from error


@contextlib.contextmanager
def _locked(fs: FileSystem, path: str) -> Iterator[None]:
    """Acquire the lock of a group's file. A missing file is created, empty."""
    for _ in attempts(LOCK_TIMEOUT_MS):
        file = fs.open_lock(path)
        try:
            # The previous holder has replaced the file.
            if file.try_lock(0, 0, exclusive=True) and file.is_current():
                yield
                return
        finally:
            file.close()
    raise LogLockedError(
        f"{path} has been locked for {LOCK_TIMEOUT_MS} ms by another reader of its group, which "
        "hangs or was stopped; commit again later, or end that reader"
    )


def _read(fs: FileSystem, path: str) -> Reader | None:
    """Return a group from the group's file, unless the file is still empty."""
    raw = read_bytes(fs, path)
    if not raw:
        return None
    reader = reader_from_json(unseal("reader", raw, path=path, cure=_CURE))
    if os.path.basename(_path("", reader.group)) != os.path.basename(path):
        raise DataCorruptionError(
            f"the file has the positions of group {reader.group}, whose file has another name; "
            f"{_CURE}",
            path=path,
        )
    return reader


def _write(fs: FileSystem, path: str, reader: Reader, *, is_new: bool) -> None:
    write_durably(fs, path, seal("reader", reader_to_json(reader)), sync_dir=is_new)


def _forget(
    fs: FileSystem, home: str, group: str, now_ms: int, retention_ms: int
) -> list[ExpiredOffset]:
    """Remove expired commits from a group's file, unless they were renewed since."""
    path = _path(home, group)
    with _locked(fs, path):
        reader = _read(fs, path)
        if reader is None:  # deleted since: taking the lock created the file again
            fs.unlink(path)
            return []
        old = expired_offsets(reader, now_ms, retention_ms)
        expired = {TopicPartition(topic, partition) for _, topic, partition, _, _ in old}
        remaining = {key: at for key, at in reader.offsets.items() if key not in expired}
        if not remaining:
            fs.unlink(path)
        elif old:
            _write(fs, path, replace(reader, offsets=remaining), is_new=False)
        return old
