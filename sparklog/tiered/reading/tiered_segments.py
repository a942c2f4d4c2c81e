"""The merged local and remote segments of a log dir's partition.

Local segments take precedence; before the first of them come the valid copies of this log's
history. Local segments are listed first: a segment is copied before it is deleted here, so no
segment is missed between the two listings.
"""

from collections.abc import Sequence
from dataclasses import replace
from itertools import zip_longest
from typing import Final, Protocol

from sparklog.errors import DataCorruptionError
from sparklog.format.checkpoint_files import Epochs
from sparklog.format.names import parse_partition_dir
from sparklog.logdir.partition.partition_segments import LogDirSegments
from sparklog.storage.segments import IndexBytes, IndexKind, SegmentLog, SegmentMetadata
from sparklog.tiered.reading.partition_copies import PartitionCopies
from sparklog.tiered.reading.remote_objects import RemoteObjects
from sparklog.tiered.remote_log_metadata.metadata_cache import is_within_leader_epochs
from sparklog.tiered.remote_segment import RemoteSegment

_NOTHING: Final[list[RemoteSegment]] = []


class Copies(Protocol):
    """The valid copies of segments in remote storage, as the log's metadata topic lists them."""

    def readable(self, topic_id: str, partition: int) -> Sequence[RemoteSegment]:
        """Return the valid copies, by base offset, as of now."""


class RemoteTier:
    """A log dir's remote storage, for readers: `sparklog.logdir.view.RemoteStorage`."""

    def __init__(self, objects: RemoteObjects, copies: Copies) -> None:
        self.objects, self.copies = objects, copies

    def segments(self, local: LogDirSegments) -> "TieredSegments":
        """Return a partition's segments, including segments that are only remote."""
        return TieredSegments(local, self.objects, self.copies)

    def set_following(self) -> None:
        """Wait for an unavailable store as long as a reader of new records does."""
        self.objects.retry.set_following()


class TieredSegments:
    """Local and remote segments of a partition: `sparklog.storage.segments.PartitionSegments`.

    The local file is used if a segment has both. No request is sent to the store until a segment is
    needed that is no longer local.
    """

    def __init__(self, local: LogDirSegments, objects: RemoteObjects, copies: Copies) -> None:
        self._local, self._objects, self._copies = local, objects, copies
        self._remote = PartitionCopies(local.where, objects, _NOTHING)

    @property
    def gaps(self) -> bool:
        """True if offsets may be missing."""
        return self._local.gaps

    @gaps.setter
    def gaps(self, gaps: bool) -> None:
        self._local.gaps = gaps

    @property
    def where(self) -> str:
        """The partition's directory."""
        return self._local.where

    @property
    def topic_id(self) -> str | None:
        """The topic id in the partition's directory when this object was first used."""
        return self._local.topic_id

    def bases(self) -> list[int]:
        """Return the base offsets, ascending, listed now."""
        # Local segments first: a segment is copied before its local file is deleted, so no segment
        # is missed between the two listings.
        local = self._local.bases()
        remote = _NOTHING
        if local and local[0]:
            remote = [segment for segment in self._standing() if segment.base < local[0]]
        self._remote = PartitionCopies(self.where, self._objects, remote)
        return [*self._remote.bases(), *local]

    def metadata(self) -> list[SegmentMetadata]:
        """Return the segments by base offset, listed now."""
        bases = self.bases()
        segments = [*self._remote.metadata(), *self._local.metadata()]
        ends = dict(zip_longest(bases, bases[1:]))
        return [replace(each, end=ends.get(each.base, each.end)) for each in segments]

    def max_timestamp(self, base: int) -> int | None:
        """Return the largest timestamp (ms) of a remote segment; None for a local segment."""
        segment = self._remote.find(base)
        return None if segment is None or self._local.has(base) else segment.max_timestamp

    def modified_ms(self, base: int) -> int:
        """Return when the local file was last written, or the segment was copied (ms)."""
        try:
            return self._local.modified_ms(base)
        except FileNotFoundError:
            segment = self._remote.find(base)
            if segment is None:
                raise
            return segment.time_ms

    def log(self, base: int) -> SegmentLog:
        """Open a segment's log, preferably the local file."""
        try:
            return self._local.log(base)
        except FileNotFoundError:
            pass  # leave the handler, else Python would chain this error to a store's error
        return self._with(base).log(base)

    def index(self, base: int, kind: IndexKind) -> SegmentLog | None:
        """Open an index, preferably the local file."""
        index_log: SegmentLog | None = self._local.index(base, kind)
        if index_log is None and not self._local.has(base):
            index_log = self._with(base).index(base, kind)
        return index_log

    def closed_index(self, base: int, kind: IndexKind) -> IndexBytes | None:
        """Return a closed segment's index, preferably the local file."""
        index = self._local.closed_index(base, kind)
        if index is None and not self._local.has(base):
            index = self._with(base).closed_index(base, kind)
        return index

    def producer_snapshots(self) -> list[int]:
        """List the offsets of local and remote producer snapshots, ascending."""
        self.bases()
        return sorted({*self._remote.producer_snapshots(), *self._local.producer_snapshots()})

    def producer_snapshot(self, offset: int) -> bytes:
        """Return a producer snapshot, preferably the local file."""
        try:
            return self._local.producer_snapshot(offset)
        except FileNotFoundError:
            pass
        return self._remote.producer_snapshot(offset)

    def leader_epochs(self) -> Epochs:
        """Return the log dir's leader epochs, which determine the valid copies."""
        return self._local.leader_epochs()

    def first_local_base(self) -> int | None:
        """Return the first local segment's base offset."""
        return self._local.first_local_base()

    def remote_end(self) -> int | None:
        """Return the offset after the last valid copy, or None."""
        copies = self._standing()
        return copies[-1].end if copies else None

    # --- helpers -----------------------------------------------------------------------------

    def _with(self, base: int) -> PartitionCopies:
        """Return the partition's copies, including the copy with base offset `base` if any.

        Lists the copies again if the known copies lack it: the segment was local at the last
        listing.
        """
        if self._remote.find(base) is None:
            self.bases()
        return self._remote

    def _standing(self) -> list[RemoteSegment]:
        """Return the valid copies that belong to the history of the log's leader epochs."""
        key = parse_partition_dir(self.where.rstrip("/").rpartition("/")[2])
        topic_id = self._local.current_topic_id() or self._local.topic_id
        if key is None or topic_id is None:
            return _NOTHING
        known = self._copies.readable(topic_id, key.partition)
        if not known:
            return _NOTHING
        try:
            lineage = self.leader_epochs()
        except DataCorruptionError:
            lineage = []  # only a hint here; other readers of the file report the damage
        return [segment for segment in known if is_within_leader_epochs(segment, lineage)]
