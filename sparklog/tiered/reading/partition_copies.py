"""The remote segments of a partition: their logs, indexes and snapshots. Immutable."""

import errno
from collections.abc import Sequence

from sparklog.format.checkpoint_files import Epochs, parse_epochs
from sparklog.format.names import EPOCH_CHECKPOINT, LOG, SNAPSHOT, snapshot_name
from sparklog.storage.segments import IndexBytes, IndexKind, SegmentMetadata
from sparklog.tiered.reading.remote_objects import RemoteObjects
from sparklog.tiered.reading.remote_segment_log import BytesLog, RemoteSegmentLog
from sparklog.tiered.remote_segment import RemoteSegment


class PartitionCopies:
    """The valid copies of a partition's segments, ascending by base offset.

    Args:
        where: The partition, for messages.
        objects: Reads the copies.
        segments: The copies.
    """

    def __init__(
        self, where: str, objects: RemoteObjects, segments: Sequence[RemoteSegment]
    ) -> None:
        self.where, self._objects = where, objects
        self.segments = list(segments)
        self._by_base = {segment.base: at for at, segment in enumerate(segments)}
        self._by_end = {segment.end: at for at, segment in enumerate(segments)}

    def bases(self) -> list[int]:
        """Return the base offsets, ascending."""
        return [segment.base for segment in self.segments]

    def find(self, base: int) -> RemoteSegment | None:
        """Return the copy with this base offset, or None. Makes no request."""
        at = self._by_base.get(base)
        return None if at is None else self.segments[at]

    def metadata(self) -> list[SegmentMetadata]:
        """Return the metadata of the copies. Makes no request."""
        return [
            SegmentMetadata(s.base, s.end, s.size, s.max_timestamp, False, self._path(s.base, LOG))
            for s in self.segments
        ]

    def log(self, base: int) -> RemoteSegmentLog:
        """Open a segment's log.

        Raises FileNotFoundError if there is no such copy, or it was deleted.
        """
        at = self._by_base.get(base)
        if at is None:
            raise self._missing(self._path(base, LOG))
        segment, objects = self.segments[at], self._objects

        def following(size: int) -> None:
            if at + 1 < len(self.segments) and self.segments[at + 1].base == segment.end:
                behind = self.segments[at + 1]
                stop = min(size, behind.size)
                objects.fetcher.begin(
                    lambda: objects.ranges(behind, patient=False).prefetch(0, stop)
                )

        return RemoteSegmentLog(self._path(base, LOG), objects.ranges(segment), following)

    def index(self, base: int, kind: IndexKind) -> BytesLog | None:
        """Return an index, if the segment and the segment's copy have it."""
        data = self._index(base, kind)
        return None if data is None else BytesLog(self._path(base, kind), data)

    def closed_index(self, base: int, kind: IndexKind) -> IndexBytes | None:
        """Return an index's bytes, if the segment and the segment's copy have it."""
        data = self._index(base, kind)
        return None if data is None else IndexBytes(memoryview(data))

    def _index(self, base: int, kind: IndexKind) -> bytes | None:
        segment = self.find(base)
        try:
            return None if segment is None else self._objects.open(segment).part(kind)
        except FileNotFoundError:
            return None  # the log was deleted as well, and reading it raises the error

    def producer_snapshots(self) -> list[int]:
        """Return the offsets of the producer snapshots, ascending."""
        return [segment.end for segment in self.segments]

    def producer_snapshot(self, offset: int) -> bytes:
        """Return a producer snapshot. Raises FileNotFoundError."""
        at = self._by_end.get(offset)
        snapshot = None if at is None else self._objects.open(self.segments[at]).part(SNAPSHOT)
        if snapshot is None:
            raise self._missing(f"{self.where}/{snapshot_name(offset)}")
        return snapshot

    def leader_epochs(self) -> Epochs:
        """Return the leader epochs in the newest copy's manifest."""
        try:
            raw = self._objects.open(self.segments[-1]).part(EPOCH_CHECKPOINT)
        except (IndexError, FileNotFoundError):
            return []
        return [] if raw is None else parse_epochs(raw, f"{self.where}/{EPOCH_CHECKPOINT}")

    def _path(self, base: int, suffix: str) -> str:
        return f"{self.where}/{base:020d}{suffix}"

    @staticmethod
    def _missing(path: str) -> FileNotFoundError:
        return FileNotFoundError(errno.ENOENT, "no remote segment has it", path)
