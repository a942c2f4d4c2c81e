"""A deleted topic that can still be restored, with the topic's part of the log's state."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sparklog.storage.offset_ranges import OffsetRange
from sparklog.storage.topic_state import TopicState, by_partition


@dataclass(frozen=True, slots=True, kw_only=True)
class DeletedTopicInfo:
    """A deleted topic that `Log.undelete_topic` can restore.

    Attributes:
        name: The name of the topic when it was deleted.
        id: The topic id, which the restored topic has again.
        partitions: The number of partitions.
        records: The number of offsets in all partitions.
        config: The topic's configs, {option: value}.
        deleted_ms: When the topic was deleted, in milliseconds since the epoch.
        until_ms: When the topic can be removed, in milliseconds since the epoch.

    Examples:
        >>> restorable_ms = log.delete_topic("flights")
        >>> [(topic.name, topic.records) for topic in log.deleted_topics()]
        [('flights', 600)]
    """

    name: str
    id: str
    partitions: int
    records: int
    config: Mapping[str, str]
    deleted_ms: int
    until_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DeletedTopic:
    """A deleted topic with records that still exist. Mappings are by partition.

    Attributes:
        name: The name of the topic.
        topic: The topic's state when it was deleted.
        deleted_ms: The time of the deletion, ms.
        delay_ms: The topic's file.delete.delay.ms when it was deleted. After this time, the topic
            may be removed.
        ends: The high watermarks.
        starts: Log start offsets above 0.
        local_starts: The first offsets of the local segments, if above the log start.
        idempotent: Partitions that may contain batches with producer ids.
        abandoned: Ranges that resets abandoned, or None if they are not recorded.
        writers: The writers that are known to have written to the topic.
    """

    name: str
    topic: TopicState
    deleted_ms: int
    delay_ms: int
    ends: Mapping[int, int]
    starts: Mapping[int, int] = field(default_factory=dict)
    local_starts: Mapping[int, int] = field(default_factory=dict)
    idempotent: frozenset[int] = frozenset()
    abandoned: Mapping[int, Sequence[OffsetRange]] | None = field(default_factory=dict)
    writers: frozenset[str] = frozenset()

    @property
    def id(self) -> str:
        """The topic id, which the restored topic has again."""
        return self.topic.id

    @property
    def until_ms(self) -> int:
        """The time (ms) before which no part of the topic is removed automatically."""
        return self.deleted_ms + self.delay_ms

    @property
    def records(self) -> int:
        """The number of offsets in all partitions."""
        return sum(end - self.starts.get(p, 0) for p, end in self.ends.items())

    def info(self) -> DeletedTopicInfo:
        """Return the topic's description for users."""
        return DeletedTopicInfo(
            name=self.name, id=self.id, partitions=len(self.ends), records=self.records,
            config=self.topic.config, deleted_ms=self.deleted_ms, until_ms=self.until_ms,
        )  # fmt: skip

    def to_json(self) -> dict[str, Any]:
        """Return the topic's form in snapshots."""
        fields: dict[str, Any] = {
            "name": self.name, **self.topic.to_json(), "deleted": self.deleted_ms,
            "delay": self.delay_ms, "ends": _texts(self.ends), "starts": _texts(self.starts),
        }  # fmt: skip
        if self.local_starts:
            fields["local"] = _texts(self.local_starts)
        if self.idempotent:
            fields["idempotent"] = sorted(self.idempotent)
        if self.abandoned is None:
            fields["abandoned"] = None
        elif self.abandoned:
            fields["abandoned"] = {str(p): [*spans] for p, spans in self.abandoned.items()}
        if self.writers:
            fields["writers"] = sorted(self.writers)
        return fields

    @classmethod
    def from_json(cls, fields: Mapping[str, Any]) -> "DeletedTopic":
        """Rebuild a topic from the form in snapshots.

        Raises the errors of `TopicState.from_json`.
        """
        abandoned = fields.get("abandoned", {})
        if not type(fields["deleted"]) is type(fields["delay"]) is int:
            raise TypeError(f"expected ms, got {fields['deleted']!r} and {fields['delay']!r}")
        return cls(
            name=fields["name"],
            topic=TopicState.from_json(fields),
            deleted_ms=fields["deleted"],
            delay_ms=fields["delay"],
            ends=by_partition(fields["ends"]),
            starts=by_partition(fields["starts"]),
            local_starts=by_partition(fields.get("local", {})),
            idempotent=frozenset(fields.get("idempotent", ())),
            abandoned=None if abandoned is None else {
                int(p): [OffsetRange(*span) for span in spans] for p, spans in abandoned.items()
            },
            writers=frozenset(fields.get("writers", ())),
        )  # fmt: skip


def _texts(offsets: Mapping[int, int]) -> dict[str, int]:
    return {str(p): offset for p, offset in sorted(offsets.items())}
