"""A log dir whose older segments may be remote: local files first, else their copies.

A partition's directory shows its local segments, and before the first of them the copies that
count. It is listed locally first, then remotely: a segment is copied before it is deleted here,
so none falls between the two looks.
"""

import contextlib
from collections.abc import Sequence
from typing import Final, Protocol

from sparklog.errors import DataCorruptionError
from sparklog.format.checkpoint_files import parse_partition_metadata
from sparklog.format.names import PARTITION_METADATA, parse_base, parse_partition_dir
from sparklog.fs import File, FileSystem, Mapping, read_bytes
from sparklog.logdir.partition.leader_epochs import read_epochs
from sparklog.logdir.segment_files import bases_of, joined
from sparklog.tiered.reading.directory import RemoteDirectory
from sparklog.tiered.reading.readonly import BytesMapping, ReadOnlyFileSystem
from sparklog.tiered.reading.remote_objects import RemoteObjects
from sparklog.tiered.remote_log_metadata.metadata_cache import is_within_leader_epochs
from sparklog.tiered.remote_segment import RemoteSegment

_NOTHING: Final[list[RemoteSegment]] = []


class Copies(Protocol):
    """What a log knows of its copies."""

    def readable(self, topic_id: str, partition: int) -> Sequence[RemoteSegment]:
        """Return those that count, by base offset, as of now."""


class TieredFileSystem(ReadOnlyFileSystem):
    """What readers of a log dir with remote storage use: `sparklog.fs.FileSystem`, read-only."""

    def __init__(self, local: FileSystem, objects: RemoteObjects, copies: Copies) -> None:
        self._local, self.objects, self._copies = local, objects, copies
        self._directories: dict[str, RemoteDirectory] = {}

    def listdir(self, path: str) -> list[str]:
        """Return the names in a directory; a partition's with those of its remote segments."""
        names = self._local.listdir(path)
        if parse_partition_dir(_name(path)) is None:
            return names
        remote = self._listed(path, names)
        return sorted({*names, *remote.names()}) if remote.segments else names

    def open(self, path: str, *, create: bool = False, write: bool = False) -> File:
        """Open a file, the local one if there is one."""
        try:
            return self._local.open(path, create=create, write=write)
        except FileNotFoundError as error:
            missing = error
        remote = self._remote_or(missing, path)
        return remote.open(_name(path))

    def map(self, path: str) -> Mapping:
        """Map a closed file; a remote one is in memory anyway."""
        try:
            return self._local.map(path)
        except FileNotFoundError as error:
            missing = error
        with self._remote_or(missing, path).open(_name(path)) as file:
            return BytesMapping(file.pread(file.size(), 0))

    def exists(self, path: str) -> bool:
        """Whether there is such a file or directory, here or remote."""
        return self._local.exists(path) or self._segment(path) is not None

    def is_dir(self, path: str) -> bool:
        """Whether it is a directory here."""
        return self._local.is_dir(path)

    def size(self, path: str) -> int:
        """The size in bytes."""
        with contextlib.suppress(FileNotFoundError):
            return self._local.size(path)
        segment = self._segment(path)
        if segment is not None and path.endswith(".log"):
            return segment.size
        with self.open(path) as file:
            return file.size()

    def mtime_ms(self, path: str) -> int:
        """When the file changed, or the segment was copied (ms)."""
        try:
            return self._local.mtime_ms(path)
        except FileNotFoundError:
            segment = self._segment(path)
            if segment is None:
                raise
            return segment.time_ms

    def changed_ms(self, path: str) -> int:
        """When a local file last changed (ms)."""
        return self._local.changed_ms(path)

    def max_timestamp(self, path: str) -> int | None:
        """The largest timestamp of a remote segment; None for a local one."""
        segment = self._segment(path)
        if segment is None or self._local.exists(path):
            return None
        return segment.max_timestamp

    def be_patient(self) -> None:
        """Wait for the store as long as a reader that follows does."""
        self.objects.patience.follow()

    def remote_end(self, path: str) -> int | None:
        """The offset behind the highest copy that counts; None if there is none."""
        copies = self._standing(path, self._local.listdir(path))
        return copies[-1].end if copies else None

    def identity(self, path: str) -> tuple[int, int]:
        """(device, inode) of a local file."""
        return self._local.identity(path)

    def free_bytes(self, path: str) -> int:
        """Free bytes of the local disk."""
        return self._local.free_bytes(path)

    def boot_id(self) -> str:
        """The local machine's."""
        return self._local.boot_id()

    def kind(self, path: str) -> str:
        """The local file system's type."""
        return self._local.kind(path)

    # --- within ------------------------------------------------------------------------------

    def _segment(self, path: str) -> RemoteSegment | None:
        """The remote segment that a file belongs to; no request. None if there is none."""
        parent, _, name = path.rpartition("/")
        known = self._directories.get(parent)
        found = None if known is None else known.find(name)
        return None if found is None else found[0]

    def _remote_or(self, missing: FileNotFoundError, path: str) -> RemoteDirectory:
        """The directory that may have a file; without one, raise what its absence here raised.

        Not while that is handled: a store's error would be taken for a part of its story.
        """
        remote = self._remote(path)
        if remote is None:
            raise missing
        return remote

    def _remote(self, path: str) -> RemoteDirectory | None:
        """The directory that may have a file that is not (or no longer) here."""
        parent, _, name = path.rpartition("/")
        if parse_base(name) is None or parse_partition_dir(_name(parent)) is None:
            return None
        known = self._directories.get(parent)
        if known is not None and known.find(name) is not None:
            return known
        return self._listed(parent, self._local.listdir(parent))

    def _listed(self, path: str, names: list[str]) -> RemoteDirectory:
        found = RemoteDirectory(path, self.objects, self._choose(path, names))
        self._directories[path] = found
        return found

    def _choose(self, path: str, names: list[str]) -> list[RemoteSegment]:
        bases = bases_of(names)
        if not bases or not bases[0]:
            return _NOTHING
        return [s for s in self._standing(path, names) if s.base < bases[0]]

    def _standing(self, path: str, names: list[str]) -> list[RemoteSegment]:
        """The copies that count and are of this log's history."""
        key = parse_partition_dir(_name(path))
        if key is None or PARTITION_METADATA not in names:
            return _NOTHING
        where = joined(path, PARTITION_METADATA)
        topic_id = parse_partition_metadata(read_bytes(self._local, where), path=where)
        known = self._copies.readable(topic_id, key[1])
        if not known:
            return _NOTHING
        try:
            lineage = read_epochs(self._local, path)
        except DataCorruptionError:
            lineage = []  # a hint here; whoever needs the file says what is wrong with it
        return [segment for segment in known if is_within_leader_epochs(segment, lineage)]


def _name(path: str) -> str:
    return path.rstrip("/").rpartition("/")[2]
