"""Directories of new and restored partitions: their log dirs, paths and files."""

import os
from collections.abc import Mapping

from sparklog.common import TopicPartition
from sparklog.config import TopicConfig
from sparklog.errors import InvalidRequestError
from sparklog.log.topic_names import INTERNAL
from sparklog.logdir.log_manager import LogManager
from sparklog.logdir.partition.directories import is_empty, remove_tree
from sparklog.logdir.partition.partition_log import PartitionLog
from sparklog.logdir.topics_file import deleted_path, partition_path
from sparklog.storage.ledger_records import TopicRecord, UndeleteRecord
from sparklog.storage.topic_state import TopicState


def placement(manager: LogManager, partitions: range) -> dict[int, int]:
    """Assign new partitions to the available log dirs with the fewest partitions.

    Returns {partition: number of a log dir}. Source: LogManager.nextLogDirs.
    """
    available = manager.offline.dirs.numbered
    counts = dict.fromkeys((number for number, _ in available), 0)
    for topic in manager.state.topics.values():
        for number in topic.dirs.values():
            if number in counts:
                counts[number] += 1
    chosen = {}
    for partition in partitions:
        number = min(counts, key=lambda n: (counts[n], n))
        counts[number] += 1
        chosen[partition] = number
    return chosen


def new_paths(manager: LogManager, record: TopicRecord) -> dict[int, str]:
    """Return {partition: path} of the directories to create for a topic record's new partitions.

    Leftovers of an interrupted creation of an internal topic are removed.

    Raises:
        InvalidRequestError: A path exists.
    """
    topic = TopicState(record.id, dict(record.config), dict(record.dirs))
    paths = {p: partition_path(manager.directories, record.topic, topic, p) for p in record.bases}
    for path in paths.values():
        if record.topic in INTERNAL and manager.fs.is_dir(path) and is_empty(manager.fs, path):
            remove_tree(manager.fs, path)
        if manager.fs.exists(path):
            raise InvalidRequestError(
                f"{path} exists, but belongs to no topic of this log: move the directory away and "
                "try again"
            )
    return paths


def make_partitions(
    manager: LogManager, record: TopicRecord, paths: Mapping[int, str]
) -> None:
    """Create the directories of a topic record's new partitions, durably."""
    config = TopicConfig.parse(record.config)
    for p, path in paths.items():
        PartitionLog.create(
            manager.fs,
            path,
            key=TopicPartition(record.topic, p),
            topic_id=record.id,
            config=config,
            clock=manager.clock,
            start_offset=record.bases[p],
        ).sync()
    for directory in sorted({os.path.dirname(path) for path in paths.values()}):
        manager.fs.sync_dir(directory)


def check_restorable(manager: LogManager, record: UndeleteRecord) -> None:
    """Raise InvalidRequestError unless a deleted topic is complete and the paths are free."""
    deleted, directories = manager.state.deleted[record.id], manager.directories
    for p, number in deleted.topic.dirs.items():
        why = manager.offline.dirs.why_absent(number)
        if why is None:
            path = deleted_path(directories, deleted.name, deleted.topic, p)
            why = None if manager.fs.is_dir(path) else f"{path} is missing"
        if why is not None:
            raise InvalidRequestError(
                f"topic {deleted.name} can't be restored completely: "
                f"{deleted.name}-{p}: {why}; bring it back and try again"
            )
        path = partition_path(directories, record.topic, deleted.topic, p)
        if manager.fs.exists(path):
            raise InvalidRequestError(
                f"{path} exists, but belongs to no topic of this log: move the directory away and "
                "try again"
            )
