"""The segments of a partition as files of a directory: `PartitionSegments` of a log dir."""

import os
from itertools import zip_longest

from sparklog.format.checkpoint_files import Epochs, parse_partition_metadata
from sparklog.format.names import LOG, PARTITION_METADATA, SNAPSHOT, log_name, snapshot_name
from sparklog.fs import File, FileSystem, read_bytes
from sparklog.logdir.partition.leader_epochs import read_epochs
from sparklog.logdir.segment_files import joined, offsets_of, segment_bases
from sparklog.storage.segments import IndexBytes, IndexKind, SegmentMetadata

WHOLE_BYTES = 64 << 10  # larger closed indexes are mapped


class LogDirSegments:
    """The segments of a partition, as files of `directory`. Nothing is cached.

    Attributes:
        gaps: Whether offsets may be missing.
        topic_id: The topic id, if known.
    """

    def __init__(
        self, fs: FileSystem, directory: str, *, gaps: bool = False, topic_id: str | None = None
    ) -> None:
        self.fs, self.directory = fs, directory
        self.gaps, self.topic_id = gaps, topic_id

    @property
    def where(self) -> str:
        return self.directory

    def bases(self) -> list[int]:
        """Return the base offsets of the `.log` files, ascending."""
        return segment_bases(self.fs, self.directory)

    def metadata(self) -> list[SegmentMetadata]:
        """Return the segments by base offset. Cost: a listing, and a stat per segment."""
        bases = self.bases()
        return [self._described(base, end) for base, end in zip_longest(bases, bases[1:])]

    def _described(self, base: int, end: int | None) -> SegmentMetadata:
        path = self._path(base, LOG)
        return SegmentMetadata(base, end, self.fs.size(path), None, True, path)

    def max_timestamp(self, base: int) -> int | None:
        """Return None: the largest timestamp of a segment is not known without reading the file."""
        return None

    def has(self, base: int) -> bool:
        """Return True if the segment exists. Cost: a stat."""
        return self.fs.exists(self._path(base, LOG))

    def modified_ms(self, base: int) -> int:
        """Return when the log file was last changed (ms). Cost: a stat."""
        return self.fs.mtime_ms(joined(self.directory, log_name(base)))

    def log(self, base: int) -> File:
        """Open a segment's log.

        Raises:
            FileNotFoundError: The segment does not exist.
        """
        return self.fs.open(joined(self.directory, log_name(base)))

    def index(self, base: int, kind: IndexKind) -> File | None:
        """Open the index of this kind of a segment; None if the file does not exist."""
        try:
            return self.fs.open(self._path(base, kind))
        except FileNotFoundError:
            return None

    def closed_index(self, base: int, kind: IndexKind) -> IndexBytes | None:
        """Return a closed segment's index; None without the file.

        A small index is read into memory, a large index is mapped.
        """
        path = self._path(base, kind)
        try:
            # Mapping costs two system calls and a page fault, which is more than reading a small
            # index.
            if self.fs.size(path) <= WHOLE_BYTES:
                return IndexBytes(memoryview(read_bytes(self.fs, path)))
            mapping = self.fs.map(path)
        except FileNotFoundError:
            return None
        return IndexBytes(mapping.data, mapping)

    def producer_snapshots(self) -> list[int]:
        """Return the offsets of the `.snapshot` files, ascending."""
        return offsets_of(self.fs.listdir(self.directory), SNAPSHOT)

    def producer_snapshot(self, offset: int) -> bytes:
        """Return a snapshot file's contents.

        Raises:
            FileNotFoundError: The snapshot does not exist.
        """
        return read_bytes(self.fs, joined(self.directory, snapshot_name(offset)))

    def leader_epochs(self) -> Epochs:
        """Return the entries of leader-epoch-checkpoint; empty without a file."""
        return read_epochs(self.fs, self.directory)

    def current_topic_id(self) -> str | None:
        """Return the topic id that partition.metadata has now; None without the file."""
        path = os.path.join(self.directory, PARTITION_METADATA)
        try:
            return parse_partition_metadata(read_bytes(self.fs, path), path=path).topic_id
        except FileNotFoundError:
            return None

    def first_local_base(self) -> int | None:
        """Return the first segment's base offset, or None."""
        return next(iter(self.bases()), None)

    def remote_end(self) -> int | None:
        """Return None: a log dir alone has no remote copies."""
        return None

    def _path(self, base: int, suffix: str) -> str:
        return f"{self.directory}{os.sep}{base:020d}{suffix}"
