"""Lists the topics to hand over, with ids, configs, offsets and leader epochs."""

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from sparklog.common import TopicPartition
from sparklog.config import OWN_KEYS, TIERED_KEYS
from sparklog.errors import InvalidRequestError
from sparklog.format.names import (
    KAFKA_INTERNAL,
    SNAPSHOT,
    collides,
    parse_partition_dir,
    partition_dir,
)
from sparklog.format.producer_snapshot import parse_snapshot
from sparklog.fs import FileSystem, read_bytes
from sparklog.log.log import Log, view_of
from sparklog.log.topic_names import REMOTE_METADATA
from sparklog.logdir.cluster_metadata import METADATA_DIR
from sparklog.logdir.ledger import LEDGER
from sparklog.logdir.offline_partitions import stored_topic_id
from sparklog.logdir.partition.leader_epochs import read_epochs
from sparklog.logdir.segment_files import joined, segment_bases

READ_ONLY: Final = {"max.message.bytes": "0"}
"""Keeps a broker's clients from writing to a topic that is internal to sparklog."""

_OWN: Final = {
    LEDGER: {"cleanup.policy": "delete", "retention.ms": "-1", "retention.bytes": "-1"},
    TopicPartition(REMOTE_METADATA, 0): {"cleanup.policy": "compact", "retention.ms": "-1"},
}
_PRODUCER_ID_END: Final = 1 << 62
"""Ids from here on were drawn by endpoints (`sparklog.kafka.producing`), and are not counted."""
_NOT_LIVE: Final = ("-delete", "-stray", "-future")


@dataclass(frozen=True, slots=True, kw_only=True)
class HandedPartition:
    """A partition that is handed over: the log dir, and the offsets [start, end) for the broker.

    `log_start` is below `start` if the first records are only in remote storage.
    """

    directory: str
    log_start: int
    start: int
    end: int
    leader_epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class HandedTopic:
    """A topic that is handed over.

    Attributes:
        id: The topic id; "" for a topic that gets an id in the handover.
        config: The configs that the broker gets.
        left_out: The configs that Kafka does not know.
    """

    name: str
    id: str
    config: Mapping[str, str]
    left_out: Mapping[str, str] = field(default_factory=dict)
    partitions: Mapping[int, HandedPartition]


def take_inventory(log: Log, fs: FileSystem, directories: Sequence[str]) -> list[HandedTopic]:
    """Return the topics of a log in log dirs, with sparklog's internal topics, by name.

    Args:
        log: The log, opened for reading.
        fs: The file system.
        directories: The log dirs of the log.

    Raises:
        InvalidRequestError: A directory is one that a broker would rename or reject.
        PartitionOfflineError: A partition is offline.

    Cost:
        A listing and three small files per partition.
    """
    topics: list[HandedTopic] = []
    known = sorted(log.topics().items())
    for error in (error for _, info in known for error in info.offline.values()):
        raise error
    spans = view_of(log).spans([TopicPartition(name, p) for name, info in known for p in info.dirs])
    for name, info in known:
        config = {} if name in KAFKA_INTERNAL else info.config.to_dict()
        kept = {key: value for key, value in config.items() if key not in OWN_KEYS | TIERED_KEYS}
        topics.append(
            HandedTopic(
                name=name,
                id=info.id,
                config=kept,
                left_out={key: value for key, value in config.items() if key not in kept},
                partitions={
                    number: _partition(fs, path, *spans[TopicPartition(name, number)])
                    for number, path in info.dirs.items()
                },
            )
        )
    topics += _own_topics(log, fs, directories)
    _check_others(fs, directories, topics)
    return sorted(topics, key=lambda topic: topic.name)


def _partition(fs: FileSystem, path: str, log_start: int, end: int) -> HandedPartition:
    bases = segment_bases(fs, path)
    epochs = read_epochs(fs, path)
    return HandedPartition(
        directory=os.path.dirname(path),
        log_start=log_start,
        start=max(log_start, bases[0] if bases else end),
        end=end,
        leader_epoch=epochs[-1][0] if epochs else 0,
    )


def _own_topics(log: Log, fs: FileSystem, directories: Sequence[str]) -> Iterator[HandedTopic]:
    """Yield sparklog's internal topics: the ledger, and the metadata of copied segments."""
    for key, config in _OWN.items():
        for directory in directories:
            path = joined(directory, partition_dir(*key))
            if not fs.is_dir(path):
                continue
            start, end = view_of(log).spans([key])[key]
            yield HandedTopic(
                name=key.topic,
                id=stored_topic_id(fs, path) or "",
                config={**config, **READ_ONLY},
                partitions={key.partition: _partition(fs, path, start, end)},
            )


def _check_others(
    fs: FileSystem, directories: Sequence[str], topics: Sequence[HandedTopic]
) -> None:
    """Raise InvalidRequestError for directories on which a broker would fail.

    A broker would also read some directories of other programs as partitions; they are refused too.
    """
    known = {
        joined(held.directory, partition_dir(topic.name, number))
        for topic in topics
        for number, held in topic.partitions.items()
    }
    for directory in directories:
        for name in fs.listdir(directory):
            path = joined(directory, name)
            if path in known or name == METADATA_DIR or not fs.is_dir(path):
                continue
            if name == "sparklog_open" or name.endswith(_NOT_LIVE):
                continue
            does = "rename it" if parse_partition_dir(name) else "not start"
            raise InvalidRequestError(
                f"{path} is not a partition of this log: a broker would {does}; move it away",
                path=path,
            )


def next_producer_id(fs: FileSystem, topics: Sequence[HandedTopic]) -> int:
    """Return a producer id above all producer ids in the partitions; 0 if there are none.

    Cost: the newest producer snapshot of each partition.
    """
    highest = -1
    for topic in topics:
        for number, held in topic.partitions.items():
            path = joined(held.directory, partition_dir(topic.name, number))
            # Names begin with the offset in 20 digits, so the last name is the newest snapshot.
            newest = [name for name in fs.listdir(path) if name.endswith(SNAPSHOT)][-1:]
            for name in newest:
                entries = parse_snapshot(read_bytes(fs, joined(path, name)), joined(path, name))
                ids = [entry.producer_id for entry in entries]
                highest = max([highest, *(each for each in ids if each < _PRODUCER_ID_END)])
    return highest + 1


def collisions(topics: Sequence[HandedTopic]) -> list[tuple[str, str]]:
    """Return pairs of names that are the same name in a broker's metrics."""
    names = [topic.name for topic in topics]
    return [(a, b) for at, a in enumerate(names) for b in names[at + 1 :] if collides(a, b)]
