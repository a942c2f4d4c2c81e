"""Computes the records that add a log, or later changes of a log, to a cluster's metadata.

This module does no I/O. It makes no records for facts that the metadata already has, and therefore
no records for an unchanged log. Metadata that only the cluster has (users, quotas, ACLs, topics
that sparklog never saw) stays unchanged.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Final

from sparklog.config import KEYS, TIERED_KEYS
from sparklog.errors import InvalidRequestError
from sparklog.format.metadata_records import (
    TOPIC_RESOURCE,
    ConfigRecord,
    FeatureLevelRecord,
    MetadataRecord,
    PartitionRecord,
    ProducerIdsRecord,
    RemoveTopicRecord,
    TopicRecord,
)
from sparklog.format.names import KAFKA_INTERNAL
from sparklog.logdir.cluster_metadata import (
    METADATA_VERSION,
    ClusterMetadata,
    KnownPartition,
    KnownTopic,
)
from sparklog.tools.handover.inventory import HandedPartition, HandedTopic, collisions

FEATURES: Final = {
    METADATA_VERSION: 27,  # 4.1-IV1
    "eligible.leader.replicas.version": 1,
    "group.version": 1,
    "transaction.version": 2,
}
"""The features of `kafka-storage format` of Kafka 4.1. Source: Formatter, BootstrapMetadata."""

_METADATA_VERSION_MIN: Final = 17  # 3.7-IV2, since which partitions name their log dir
_BLOCK: Final = 1000  # ProducerIdsBlock.PRODUCER_ID_BLOCK_SIZE


def check_one_node(known: ClusterMetadata, node_id: int, metadata_dir: str) -> None:
    """Refuse the metadata of a cluster of several nodes, because other nodes have other copies."""
    if others := sorted(known.nodes - {node_id}):
        raise InvalidRequestError(
            f"{metadata_dir} belongs to a cluster with other nodes too, {others}: its metadata "
            "can't be changed here alone. Copy the records: `sparklog export --to-kafka`",
            path=metadata_dir,
        )
    if (level := known.features[METADATA_VERSION]) < _METADATA_VERSION_MIN:
        raise InvalidRequestError(
            f"{metadata_dir}: metadata.version {level} is of a Kafka before 3.7: upgrade the "
            f"cluster first (kafka-features upgrade); 4.1 has {FEATURES[METADATA_VERSION]}",
            path=metadata_dir,
        )


def feature_records() -> list[MetadataRecord]:
    """Return the first records of a new cluster."""
    return [FeatureLevelRecord(name, level) for name, level in FEATURES.items()]


def metadata_changes(
    topics: Sequence[HandedTopic],
    known: ClusterMetadata,
    *,
    node_id: int,
    directory_ids: Mapping[str, str],
    dropped: Collection[str],
    next_producer_id: int,
) -> list[MetadataRecord]:
    """Return the records that add `topics` to the metadata `known`, in a controller's order.

    Args:
        topics: The topics.
        known: The metadata of the cluster.
        node_id: The id of the only node.
        directory_ids: {path of a log dir: id}.
        dropped: Names of topics that sparklog deleted, to be removed from the cluster.
        next_producer_id: A producer id above all producer ids that were used.
    """
    records: list[MetadataRecord] = []
    wanted = {topic.name: topic for topic in topics}
    for name, there in sorted(known.topics.items()):
        mine = wanted.get(name)
        is_gone = mine is None and name in dropped and name not in KAFKA_INTERNAL
        # A topic that was deleted and created again has another id. The cluster must remove the
        # old topic before a TopicRecord adds the new topic under the same name.
        if is_gone or (mine is not None and mine.id != there.id):
            records.append(RemoveTopicRecord(there.id))
    if next_producer_id > known.next_producer_id:
        block = -(-next_producer_id // _BLOCK) * _BLOCK
        records.append(ProducerIdsRecord(node_id, -1, block))
    for topic in topics:
        there_is = known.topics.get(topic.name)
        same = there_is if there_is is not None and there_is.id == topic.id else None
        records += _topic(topic, same, node_id, directory_ids)
    return records


def _topic(
    topic: HandedTopic, known: KnownTopic | None, node_id: int, directory_ids: Mapping[str, str]
) -> Iterator[MetadataRecord]:
    if known is None:
        yield TopicRecord(topic.name, topic.id)
    before = {} if known is None else known.config
    if topic.name not in KAFKA_INTERNAL:
        for key, value in _configs(topic, before):
            yield ConfigRecord(TOPIC_RESOURCE, topic.name, key, value)
    for number, held in sorted(topic.partitions.items()):
        there = None if known is None else known.partitions.get(number)
        directory = directory_ids[held.directory]
        if there is not None and _is_known(held, there, node_id, directory):
            continue
        yield PartitionRecord(
            partition=number,
            topic_id=topic.id,
            replicas=[node_id],
            isr=[node_id],
            leader=node_id,
            leader_epoch=max(held.leader_epoch, 0 if there is None else there.leader_epoch),
            partition_epoch=0 if there is None else there.partition_epoch + 1,
            directories=[directory],
        )


def _is_known(
    held: HandedPartition, there: KnownPartition, node_id: int, directory: str
) -> bool:
    """Return True if the cluster's metadata already describes this partition.

    A cluster may have a higher leader epoch, because the next leader increases the epoch.
    """
    return (
        held.leader_epoch <= there.leader_epoch
        and list(there.replicas) == [node_id]
        and list(there.directories) == [directory]
    )


def _configs(topic: HandedTopic, before: Mapping[str, str]) -> Iterator[tuple[str, str | None]]:
    """Yield (name, value) of configs to set, and (name, None) of configs to remove.

    Configs that only the cluster knows stay.
    """
    for key, value in sorted(topic.config.items()):
        if before.get(key) != value:
            yield key, value
    for key in sorted(before.keys() - topic.config.keys() - topic.left_out.keys()):
        if key in KEYS and not _is_default(key, before[key]):
            yield key, None


def _is_default(key: str, text: str) -> bool:
    """Return True if a config has the default value, or a value that only Kafka understands."""
    try:
        return KEYS[key].parse(text) == KEYS[key].default
    except InvalidRequestError:
        return True


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
