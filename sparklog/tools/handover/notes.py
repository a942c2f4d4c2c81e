"""The differences between a log and the broker that takes it over, a sentence each."""

from collections.abc import Mapping, Sequence

from sparklog.config import TIERED_KEYS
from sparklog.format.metadata_records import MetadataRecord, RemoveTopicRecord
from sparklog.logdir.cluster_metadata import ClusterMetadata
from sparklog.tools.handover.inventory import HandedTopic, collisions


def notes_of(
    topics: Sequence[HandedTopic], known: ClusterMetadata | None, records: Sequence[MetadataRecord]
) -> list[str]:
    """Return the differences between the log here and in the broker."""
    notes: list[str] = []
    for topic in topics:
        if not topic.id:
            notes.append(f"{topic.name} has no topic id yet and gets one")
        own = {key: value for key, value in topic.left_out.items() if key not in TIERED_KEYS}
        if own:
            notes.append(f"{topic.name}: Kafka doesn't know {_pairs(own)}")
        tiered = {key: value for key, value in topic.left_out.items() if key in TIERED_KEYS}
        if tiered:
            notes.append(
                f"{topic.name}: {_pairs(tiered)} left out, because a stock broker has no plugin "
                "for remote storage; the segments on disk expire by retention.* there"
            )
        notes += [
            f"{topic.name}-{number}: offsets {held.log_start} to {held.start - 1} are only in "
            f"remote storage; the broker begins at {held.start}"
            for number, held in sorted(topic.partitions.items())
            if held.log_start < held.start
        ]
    notes += [
        f"{a} and {b} have the same name in the broker's metrics; it would not make such topics"
        for a, b in collisions(topics)
    ]
    removed = {record.topic_id for record in records if isinstance(record, RemoveTopicRecord)}
    here = {topic.name for topic in topics}
    for name, there in sorted(({} if known is None else known.topics).items()):
        if there.id in removed:
            notes.append(f"{name} (id {there.id}) was deleted here, and is removed there")
        elif name not in here:
            notes.append(f"{name} is a topic of the cluster and not of this log; it stays")
    return notes


def _pairs(config: Mapping[str, str]) -> str:
    return ", ".join(f"{key}={value}" for key, value in sorted(config.items()))
