"""The copies of partitions, and which copies are readable. A fold over states, without requests.

Source: RemoteLogMetadataCache, RemoteLogLeaderEpochState (Kafka 4.1). A copy that reached
COPY_FINISHED later supersedes overlapping copies; superseded copies remain known until they are
deleted.
"""

import bisect
from collections.abc import Iterable, Sequence

from sparklog.common import TopicIdPartition
from sparklog.tiered.remote_segment import Epochs, RemoteSegment, SegmentState


class RemoteLogMetadataCache:
    """The copies of all partitions, by state. Not thread-safe; `apply` is the only change."""

    def __init__(self, segments: Iterable[RemoteSegment] = ()) -> None:
        self._known: dict[TopicIdPartition, dict[str, RemoteSegment]] = {}
        self._readable: dict[TopicIdPartition, list[RemoteSegment]] = {}
        self._deleted_partitions: dict[TopicIdPartition, tuple[str, int]] = {}
        for segment in segments:
            self.apply(segment)

    def apply(self, segment: RemoteSegment) -> None:
        """Add a copy's newest state; a deleted copy is removed."""
        if segment.state is SegmentState.DELETE_FINISHED:
            self.remove(segment.key, segment.id)
            return
        self._readable.pop(segment.key, None)
        self._known.setdefault(segment.key, {})[segment.id] = segment

    def remove(self, key: TopicIdPartition, segment_id: str) -> None:
        self._readable.pop(key, None)
        known = self._known.get(key, {})
        known.pop(segment_id, None)
        if not known:
            self._known.pop(key, None)

    def mark_deleted(self, key: TopicIdPartition, topic: str, time_ms: int) -> None:
        """Record that a partition was deleted with all copies."""
        self._deleted_partitions[key] = topic, time_ms

    @property
    def deleted_partitions(self) -> dict[TopicIdPartition, tuple[str, int]]:
        """Return {(topic id, partition): (topic, deletion time in ms)} of deleted partitions."""
        return self._deleted_partitions

    def keys(self) -> list[TopicIdPartition]:
        """The partitions with copies, in any state."""
        return list(self._known)

    def find(self, key: TopicIdPartition, segment_id: str) -> RemoteSegment | None:
        """Return a copy, or None."""
        return self._known.get(key, {}).get(segment_id)

    def all(self, key: TopicIdPartition) -> list[RemoteSegment]:
        """Return the partition's copies in any state, by base offset."""
        return sorted(self._known.get(key, {}).values(), key=lambda s: (s.base, s.end, s.id))

    def readable(self, key: TopicIdPartition) -> list[RemoteSegment]:
        """Return the finished copies that no later copy supersedes, ascending, without overlaps."""
        current = self._readable.get(key)
        if current is None:
            finished = [s for s in self.all(key) if s.state is SegmentState.COPY_FINISHED]
            current = self._readable[key] = not_superseded(finished)
        return current


def not_superseded(finished: Iterable[RemoteSegment]) -> list[RemoteSegment]:
    """Return the copies that no later copy overlaps.

    A copy is later if it has a higher leader epoch, or the same epoch and a later upload.
    """
    newest_first = sorted(
        finished, key=lambda s: (s.epochs[-1][0] if s.epochs else -1, s.time_ms, s.id), reverse=True
    )
    bases: list[int] = []
    kept: list[RemoteSegment] = []
    for segment in newest_first:
        at = bisect.bisect_left(bases, segment.base)
        before_ends = at == 0 or kept[at - 1].end <= segment.base
        after_begins = at == len(kept) or kept[at].base >= segment.end
        if before_ends and after_begins:
            bases.insert(at, segment.base)
            kept.insert(at, segment)
    return kept


def is_within_leader_epochs(
    segment: RemoteSegment, lineage: Epochs | Sequence[tuple[int, int]]
) -> bool:
    """Return True if a copy belongs to the history that the log's leader epochs describe.

    Source: RemoteLogManager.isRemoteSegmentWithinLeaderEpochs. A raised log start may have removed
    the first epochs of the log, so a missing epoch is ignored if a later epoch is known.
    """
    if not lineage:
        return True
    starts = dict(lineage)
    first_epoch = lineage[0][0]
    if segment.epochs and segment.epochs[-1][0] < first_epoch:
        return False
    for at, (epoch, start) in enumerate(segment.epochs):
        # A raised log start may have removed the first epochs of the log.
        if epoch < first_epoch:
            continue
        known = starts.get(epoch)
        if known is None:
            return False
        # The copy's first epoch may have started in an earlier segment, so only its later starts
        # must be equal.
        if (at and known != start) or (start < known and epoch != first_epoch):
            return False
        later = [begins for other, begins in lineage if other > epoch]
        ends = segment.epochs[at + 1][1] if at + 1 < len(segment.epochs) else segment.end
        if later and ends > min(later):
            return False
    return True
