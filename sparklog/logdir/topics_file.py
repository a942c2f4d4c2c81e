"""`sparklog.topics`: topics and their configs in a JSON file that people can read.

The ledger is authoritative. This file is written after it, durably, and rendered again by recovery.
Readers, which take no lock and replay no ledger, use this file. A broker's directory has none: its
topics are then found by their partition directories, with Kafka's default configs.
"""

import os
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from sparklog.common import TopicPartition
from sparklog.config import TopicConfig
from sparklog.errors import DataCorruptionError
from sparklog.format.checkpoint_files import topic_id_bytes
from sparklog.format.names import partition_dir, retired_dir
from sparklog.fs import FileSystem, read_bytes, write_durably
from sparklog.storage.log_state import LogState
from sparklog.storage.stored_json import seal, unseal
from sparklog.storage.topic_state import TopicState
from sparklog.storage.view import TopicInfo

TOPICS_NAME: Final = "sparklog.topics"
_CURE: Final = "open the log once for writing, which writes it again from the ledger"


def partition_path(directories: list[str], name: str, topic: TopicState, partition: int) -> str:
    return os.path.join(directories[topic.dirs[partition]], f"{name}-{partition}")


def deleted_path(
    directories: list[str], name: str, topic: TopicState, partition: int
) -> str:
    """Return the directory of a partition of a deleted topic that can be restored.

    The directory has Kafka's name for a directory to delete, with the topic id in place of a random
    id.
    """
    home = directories[topic.dirs[partition]]
    mark = topic_id_bytes(topic.id).hex()
    return os.path.join(home, retired_dir(name, partition, mark, "delete"))


def future_path(
    directories: list[str], name: str, topic: TopicState, partition: int, number: int
) -> str:
    """Return the `-future` directory: a partition's copy during its move to log dir `number`."""
    mark = topic_id_bytes(topic.id).hex()
    return os.path.join(directories[number], retired_dir(name, partition, mark, "future"))


def describe(
    directories: list[str],
    name: str,
    topic: TopicState,
    offline: Mapping[TopicPartition, DataCorruptionError] = MappingProxyType({}),
) -> TopicInfo:
    """Return a topic's description for users.

    `offline` has the errors of the log's offline partitions; by default there are none.
    """
    dirs = {p: partition_path(directories, name, topic, p) for p in sorted(topic.dirs)}
    keys = {p: TopicPartition(name, p) for p in dirs}
    why = {p: offline[key] for p, key in keys.items() if key in offline}
    return TopicInfo(name, topic.id, max(dirs) + 1, topic.parsed(), dirs, why)


def write_topics(fs: FileSystem, directory: str, state: LogState) -> None:
    """Write the topics of `state` to the file."""
    topics = {name: topic.to_json() for name, topic in sorted(state.topics.items())}
    write_durably(fs, os.path.join(directory, TOPICS_NAME), seal("topics", topics, indent=2))


def read_topics(fs: FileSystem, directory: str) -> dict[str, TopicState] | None:
    """Return the topics. Without a topics file (a broker's directory), return None.

    Raises:
        DataCorruptionError: The file can't be read.
        UnsupportedVersionError: A newer version of sparklog wrote the file.
    """
    path = os.path.join(directory, TOPICS_NAME)
    try:
        raw = read_bytes(fs, path)
    except FileNotFoundError:
        return None
    topics = unseal("topics", raw, path=path, cure=_CURE)
    return {name: TopicState.from_json(t) for name, t in topics.items()}


def planned_topic(home: str, name: str, partitions: int, config: TopicConfig) -> TopicInfo:
    """Return a topic that does not exist yet and has no id.

    The commit of its first rows creates it.
    """
    dirs = {p: os.path.join(home, partition_dir(name, p)) for p in range(partitions)}
    return TopicInfo(name, "", partitions, config, dirs)
