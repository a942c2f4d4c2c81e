"""`RemoteSegment`: the metadata of a segment's copy (KIP-405, RemoteLogSegmentMetadata)."""

import enum
from dataclasses import dataclass, replace
from typing import Self

from sparklog.common import TopicIdPartition
from sparklog.log.topic_names import new_topic_id

Epochs = tuple[tuple[int, int], ...]
"""((leader epoch, its first offset), ...), clipped to the segment, ascending, never empty."""


class SegmentState(enum.IntEnum):
    """The state of a copy; only COPY_FINISHED is readable. Source: RemoteLogSegmentState."""

    COPY_STARTED = 0
    COPY_FINISHED = 1
    DELETE_STARTED = 2
    DELETE_FINISHED = 3

    def may_become(self, after: "SegmentState") -> bool:
        """Return True if Kafka allows the transition (RemoteLogSegmentState.isValidTransition)."""
        return after is self or after in _NEXT[self]


_NEXT = {
    SegmentState.COPY_STARTED: (SegmentState.COPY_FINISHED, SegmentState.DELETE_STARTED),
    SegmentState.COPY_FINISHED: (SegmentState.DELETE_STARTED,),
    SegmentState.DELETE_STARTED: (SegmentState.DELETE_FINISHED,),
    SegmentState.DELETE_FINISHED: (),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteSegment:
    """A copy of the offsets [base, end) of a partition.

    Attributes:
        id: The segment id, which distinguishes copies of the same offsets.
        max_timestamp: The largest timestamp in ms; -1 without timestamps.
        size: The size of the plain log in bytes.
        epochs: (leader epoch, start offset) of the leader epochs in the copy.
        state: The state of the copy.
        time_ms: When the copy reached this state.
        has_txn_index: Whether transactions were aborted in the segment.
    """

    topic: str
    topic_id: str
    partition: int
    id: str  # 22 characters, URL-safe base64 of a UUID, like a topic's
    base: int
    end: int
    max_timestamp: int
    size: int
    epochs: Epochs
    state: SegmentState
    time_ms: int
    has_txn_index: bool = False

    @property
    def key(self) -> TopicIdPartition:
        return TopicIdPartition(self.topic_id, self.partition)

    def restarted(self) -> Self:
        """Return the copy in state COPY_STARTED, as in its first record in the metadata topic."""
        return replace(self, state=SegmentState.COPY_STARTED)

    def become(self, state: SegmentState, time_ms: int) -> Self:
        """Return the copy in a later state.

        Raises ValueError for a transition that Kafka forbids.
        """
        if not self.state.may_become(state):
            raise ValueError(f"{self.id}: {self.state.name} can't become {state.name}")
        return replace(self, state=state, time_ms=time_ms)


new_segment_id = new_topic_id
"""Return a fresh segment id."""
