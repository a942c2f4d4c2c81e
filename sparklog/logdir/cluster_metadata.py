"""Topics in the metadata log of a KRaft cluster. The files are only read.

A broker takes topics, their ids and their configs only from `__cluster_metadata-0`: from the newest
snapshot (OFFSET-EPOCH.checkpoint) and the records from its offset on. Before a controller has run,
the first records are the records of `bootstrap.checkpoint`. In a cluster with a single node there
is no other copy of the log, so every complete record counts.
Source: KafkaRaftLog, Snapshots, ReplicationControlManager, PartitionRegistration.merge (Kafka 4.1).
"""

import logging
import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from sparklog.errors import DataCorruptionError
from sparklog.format.batch import CONTROL
from sparklog.format.decoder import Decoder
from sparklog.format.metadata_records import (
    TOPIC_RESOURCE,
    ApiKey,
    ConfigRecord,
    FeatureLevelRecord,
    MetadataRecord,
    NodeRecord,
    OtherRecord,
    PartitionChangeRecord,
    PartitionRecord,
    ProducerIdsRecord,
    RemoveTopicRecord,
    TopicRecord,
    decode_metadata,
)
from sparklog.format.names import log_name
from sparklog.format.scan import scan
from sparklog.fs import FileSystem, read_bytes
from sparklog.logdir.segment_files import segment_bases

METADATA_DIR: Final = "__cluster_metadata-0"
BOOTSTRAP_NAME: Final = "bootstrap.checkpoint"
METADATA_VERSION: Final = "metadata.version"

_LOGGER: Final = logging.getLogger(__name__)
_SNAPSHOT: Final = re.compile(r"([0-9]{20})-([0-9]{10})\.checkpoint")
_ENDS: Final = (ApiKey.END_TRANSACTION, ApiKey.ABORT_TRANSACTION)


@dataclass(slots=True)
class KnownPartition:
    """A partition according to the cluster's metadata.

    Attributes:
        replicas: The ids of the nodes that have a replica.
        leader_epoch: The leader epoch.
        partition_epoch: The partition epoch, which increases with each change of the partition.
        directories: The id of the log dir of each replica.
    """

    replicas: Sequence[int]
    leader_epoch: int
    partition_epoch: int
    directories: Sequence[str] = ()


@dataclass(slots=True)
class KnownTopic:
    """A topic according to the cluster's metadata.

    Attributes:
        name: The name.
        id: The topic id.
        partitions: {number: partition}.
        config: The configs that are set on the topic.
    """

    name: str
    id: str
    partitions: dict[int, KnownPartition] = field(default_factory=dict)
    config: dict[str, str] = field(default_factory=dict)


@dataclass(slots=True)
class ClusterMetadata:
    """The state of a cluster: all records of its metadata log, applied in order.

    Attributes:
        topics: {name: topic}.
        features: {feature name: level}.
        nodes: The ids of the registered nodes.
        next_producer_id: The first producer id that was not assigned yet.
        others: Records that do not concern topics, features or nodes, unchanged.
        end: The offset after the last record.
        epoch: The leader epoch of the last record.
        path: The last segment; "" without segments.
        position: The position after the last complete batch of this segment.
    """

    topics: dict[str, KnownTopic] = field(default_factory=dict)
    features: dict[str, int] = field(default_factory=dict)
    nodes: set[int] = field(default_factory=set)
    next_producer_id: int = 0
    others: list[MetadataRecord] = field(default_factory=list)
    end: int = 0
    epoch: int = 0
    path: str = ""
    position: int = 0
    _names: dict[str, str] = field(default_factory=dict)
    _configs: dict[str, dict[str, str]] = field(default_factory=dict)

    @property
    def has_controller_records(self) -> bool:
        """Whether a controller has written its first records to the log.

        If not, the first controller will use the bootstrap file.
        """
        return METADATA_VERSION in self.features

    def apply(self, record: MetadataRecord) -> None:
        """Change the state by the next record of the metadata log.

        Raises:
            KeyError: The record is about an unknown topic.
        """
        match record:
            case FeatureLevelRecord():
                self.features[record.name] = record.level
            case TopicRecord():
                known = KnownTopic(record.name, record.topic_id)
                known.config = self._configs.setdefault(record.name, {})
                self.topics[record.name] = known
                self._names[record.topic_id] = record.name
            case RemoveTopicRecord():
                name = self._names.pop(record.topic_id)
                del self.topics[name]
                self._configs.pop(name, None)
            case PartitionRecord():
                self._of(record.topic_id).partitions[record.partition] = KnownPartition(
                    record.replicas, record.leader_epoch, record.partition_epoch,
                    record.directories,
                )  # fmt: skip
            case PartitionChangeRecord():
                self._change(record)
            case ConfigRecord():
                self._config(record)
            case ProducerIdsRecord():
                self.next_producer_id = record.next_producer_id
            case NodeRecord(ApiKey.UNREGISTER_BROKER, node):
                self.nodes.discard(node)
            case NodeRecord():
                self.nodes.add(record.node_id)
            case OtherRecord():
                self.others.append(record)

    def _of(self, topic_id: str) -> KnownTopic:
        return self.topics[self._names[topic_id]]

    def _change(self, record: PartitionChangeRecord) -> None:
        known = self._of(record.topic_id).partitions[record.partition]
        # Kafka increases the partition epoch with each change record, and the leader epoch only if
        # the record names a leader. Source: PartitionRegistration.merge.
        known.partition_epoch += 1
        known.leader_epoch += record.leader is not None
        if record.replicas is not None:
            known.replicas = record.replicas
        if record.directories is not None:
            known.directories = record.directories

    def _config(self, record: ConfigRecord) -> None:
        if record.resource_type != TOPIC_RESOURCE:
            self.others.append(record)
            return
        # Configs of a topic come before or after the topic, which shares this dict.
        config = self._configs.setdefault(record.resource_name, {})
        if record.value is None:
            config.pop(record.name, None)
        else:
            config[record.name] = record.value


def metadata_dirs(fs: FileSystem, directories: Sequence[str]) -> list[str]:
    """Return the `directories` that contain a metadata log."""
    return [path for path in directories if fs.is_dir(os.path.join(path, METADATA_DIR))]


def read_cluster_metadata(fs: FileSystem, directory: str) -> ClusterMetadata | None:
    """Return the cluster's state in the metadata log of a log dir; None without such a log.

    Cost: reads the newest snapshot and the segments from its offset on.

    Raises:
        DataCorruptionError: A snapshot is damaged, or a record contradicts earlier records.
    """
    path = os.path.join(directory, METADATA_DIR)
    if not fs.is_dir(path):
        return None
    found = ClusterMetadata()
    snapshots = [match for name in fs.listdir(path) if (match := _SNAPSHOT.fullmatch(name))]
    if snapshots:
        newest = max(snapshots, key=lambda match: (int(match[1]), int(match[2])))
        snapshot = os.path.join(path, newest[0])
        raw = read_bytes(fs, snapshot)
        _fold(found, _records(raw, 0, snapshot, whole=True), snapshot)
        found.end, found.epoch = int(newest[1]), int(newest[2])
    _fold(found, _log_records(fs, path, found), path)
    return found


def _log_records(
    fs: FileSystem, path: str, found: ClusterMetadata
) -> Iterator[tuple[int, MetadataRecord]]:
    """Yield (offset, record) from `found.end` on, and store the log's end in `found`."""
    bases = segment_bases(fs, path)
    first = found.end
    for at, base in enumerate(bases):
        segment = os.path.join(path, log_name(base))
        if at + 1 < len(bases) and bases[at + 1] <= first:
            continue
        raw = read_bytes(fs, segment)
        batches = scan(raw, path=segment)
        yield from _records(raw, first, segment)
        found.path, found.position = segment, batches.end
        if len(batches):
            found.end = max(found.end, int(batches.table["last_offset"][-1]) + 1)
            found.epoch = int(batches.table["leader_epoch"][-1])
        if batches.error is not None:  # a broker was killed; it would cut its log here too
            _LOGGER.warning("%s: the metadata log ends at its first damage", batches.error)
            return


def read_bootstrap(fs: FileSystem, directory: str) -> ClusterMetadata | None:
    """Return the state after the records of a log dir's bootstrap file; None without the file."""
    path = os.path.join(directory, BOOTSTRAP_NAME)
    try:
        raw = read_bytes(fs, path)
    except FileNotFoundError:
        return None
    found = ClusterMetadata()
    _fold(found, _records(raw, 0, path, whole=True), path)
    return found


def _records(
    raw: bytes, first: int, path: str, *, whole: bool = False
) -> Iterator[tuple[int, MetadataRecord]]:
    """Yield (offset, record) of the file contents `raw`, from offset `first` on.

    With `whole`, damage raises DataCorruptionError. Otherwise the records end at the damage.
    """
    batches = scan(raw, path=path)
    if whole and (batches.error is not None or batches.end < len(raw)):
        raise batches.error or DataCorruptionError(
            "the file ends within a batch; restore the file from a copy", path=path,
            position=batches.end,
        )  # fmt: skip
    # Raft's control batches (leader changes, snapshot headers) are not metadata.
    table = batches.table[(batches.table["attributes"] & CONTROL) == 0]
    decoder = Decoder(["offset", "value"])
    while len(table):
        table = table[decoder.add_many(raw, table, first=first, path=path) :]
        rows = decoder.finish()
        offsets, values = rows.column("offset").to_pylist(), rows.column("value").to_pylist()
        for offset, value in zip(offsets, values, strict=True):
            try:
                yield offset, decode_metadata(value or b"")
            except ValueError as error:
                raise DataCorruptionError(
                    f"a record can't be decoded: {error}; restore the file from a copy", path=path,
                    first=offset, end=offset + 1,
                ) from error  # fmt: skip


def _fold(
    found: ClusterMetadata, records: Iterator[tuple[int, MetadataRecord]], path: str
) -> None:
    """Apply records to `found`.

    The records of a transaction are applied at its end, and not at all if it is aborted.
    """
    pending: list[tuple[int, MetadataRecord]] | None = None
    for offset, record in records:
        key = record.key if isinstance(record, OtherRecord) else None
        if key == ApiKey.BEGIN_TRANSACTION:
            pending = []
        elif key in _ENDS:
            for entry in pending or () if key == ApiKey.END_TRANSACTION else ():
                _apply(found, *entry, path)
            pending = None
        elif pending is not None:
            pending.append((offset, record))
        else:
            _apply(found, offset, record, path)


def _apply(found: ClusterMetadata, offset: int, record: MetadataRecord, path: str) -> None:
    try:
        found.apply(record)
    except KeyError as error:
        raise DataCorruptionError(
            f"a record refers to {error}, which is unknown; restore the file from a copy",
            path=path, first=offset, end=offset + 1,
        ) from error  # fmt: skip
