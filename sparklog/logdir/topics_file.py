"""`sparklog.topics`: topics and their configs in one JSON file that a person can read.

The ledger is the truth; this file is written after it, durably, and rendered anew by recovery.
Readers, who take no lock and replay no ledger, go by this file. A broker's directory has none:
its topics are then what its partition directories say, with Kafka's default configs.
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
from sparklog.storage.checksummed_json import seal, unseal
from sparklog.storage.log_state import LogState
from sparklog.storage.topic_state import TopicState
from sparklog.storage.view import TopicInfo

TOPICS_NAME: Final = "sparklog.topics"
_CURE: Final = "open the log once for writing, it is then written anew from the ledger"


def partition_path(directories: list[str], name: str, topic: TopicState, partition: int) -> str:
    """Return the directory of a partition."""
    return os.path.join(directories[topic.dirs[partition]], f"{name}-{partition}")


def deleted_path(
    directories: list[str], name: str, topic: TopicState, partition: int
) -> str:
    """Return where a partition lies while its topic is deleted and can be given back.

    Kafka's name for a directory that it deletes later, with the topic id in place of a random one.
    """
    home = directories[topic.dirs[partition]]
    mark = topic_id_bytes(topic.id).hex()
    return os.path.join(home, retired_dir(name, partition, mark, "delete"))


def future_path(
    directories: list[str], name: str, topic: TopicState, partition: int, number: int
) -> str:
    """Return where a partition's copy lies that is on its way to log dir `number`."""
    mark = topic_id_bytes(topic.id).hex()
    return os.path.join(directories[number], retired_dir(name, partition, mark, "future"))


def describe(
    directories: list[str],
    name: str,
    topic: TopicState,
    offline: Mapping[TopicPartition, DataCorruptionError] = MappingProxyType({}),
) -> TopicInfo:
    """Return the user's view of a topic; `offline`: the log's partitions that are."""
    dirs = {p: partition_path(directories, name, topic, p) for p in sorted(topic.dirs)}
    keys = {p: TopicPartition(name, p) for p in dirs}
    why = {p: offline[key] for p, key in keys.items() if key in offline}
    return TopicInfo(name, topic.id, max(dirs) + 1, topic.parsed(), dirs, why)


def write_topics(fs: FileSystem, directory: str, state: LogState) -> None:
    """Render the topics of `state` into the file."""
    topics = {name: topic.to_json() for name, topic in sorted(state.topics.items())}
    write_durably(fs, os.path.join(directory, TOPICS_NAME), seal("topics", topics, indent=2))


def read_topics(fs: FileSystem, directory: str) -> dict[str, TopicState] | None:
    """Return the topics, or None if there is no such file (a broker's directory).

    Raises DataCorruptionError if it can't be read, UnsupportedVersionError if it is newer.
    """
    path = os.path.join(directory, TOPICS_NAME)
    try:
        raw = read_bytes(fs, path)
    except FileNotFoundError:
        return None
    topics = unseal("topics", raw, path=path, cure=_CURE)
    return {name: TopicState.from_json(t) for name, t in topics.items()}


def planned_topic(home: str, name: str, partitions: int, config: TopicConfig) -> TopicInfo:
    """Return a topic that the commit of its first rows will make, without an id."""
    dirs = {p: os.path.join(home, partition_dir(name, p)) for p in range(partitions)}
    return TopicInfo(name, "", partitions, config, dirs)
