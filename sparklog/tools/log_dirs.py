"""Sizes of the partitions in each log dir, like kafka-log-dirs --describe."""

import os
from collections.abc import Collection
from typing import Final, TypedDict

from sparklog.errors import SparklogError
from sparklog.format.names import parse_partition_dir
from sparklog.fs import LOCAL, FileSystem
from sparklog.log.topic_names import INTERNAL
from sparklog.logdir.log_dirs import find_dirs
from sparklog.logdir.meta_properties import read_properties
from sparklog.logdir.paths import split_path
from sparklog.logdir.retention.partition_retention import segments_of
from sparklog.logdir.view import LogDirView

_NODE_KEYS: Final = ("node.id", "broker.id")


class PartitionSize(TypedDict):
    """A partition in a log dir. `size` is in bytes."""

    partition: str
    size: int
    offsetLag: int
    isFuture: bool


class LogDirDescription(TypedDict):
    """A log dir. `error` is the reason why the log dir cannot be read, or null."""

    logDir: str
    error: str | None
    partitions: list[PartitionSize]


class BrokerLogDirs(TypedDict):
    """A broker's log dirs."""

    broker: int
    logDirs: list[LogDirDescription]


class LogDirsDocument(TypedDict):
    """The document that kafka-log-dirs prints."""

    version: int
    brokers: list[BrokerLogDirs]


def describe_log_dirs(
    path: str, topics: Collection[str] | None = None, *, fs: FileSystem = LOCAL
) -> LogDirsDocument:
    """Return the document of kafka-log-dirs for the log dirs at `path`.

    Sizes are the bytes of a partition's .log files. A log dir that cannot be read or is not mounted
    has an `error` and no partitions.

    Args:
        path: The log dirs.
        topics: The topics to describe. By default all topics.
        fs: The file system.

    Cost:
        A listing per partition, and a stat per segment.

    Source: LogDirsCommand.formatAsJson (Kafka 4.1).
    """
    directories = split_path(path)
    view = LogDirView(fs, directories)
    known = view.topics()  # raises if there is no log
    absent = find_dirs(fs, directories).absent
    wanted = set(known) if topics is None else set(topics)
    dirs: list[LogDirDescription] = [
        {"logDir": directory, "error": absent[number], "partitions": []}
        if number in absent
        else _log_dir(fs, directory, wanted & set(known))
        for number, directory in enumerate(directories)
    ]
    brokers: list[BrokerLogDirs] = [{"broker": node_of(fs, directories[0]), "logDirs": dirs}]
    return {"version": 1, "brokers": brokers}


def _log_dir(fs: FileSystem, directory: str, topics: Collection[str]) -> LogDirDescription:
    partitions: list[PartitionSize] = []
    error = None
    try:
        keys = [(parse_partition_dir(name), name) for name in fs.listdir(directory)]
        for key, name in sorted((k, n) for k, n in keys if k is not None):
            if key.topic in INTERNAL or key.topic not in topics:
                continue
            partitions.append(
                {
                    "partition": str(key),
                    "size": _size(fs, os.path.join(directory, name)),
                    "offsetLag": 0,  # max(high watermark - log end, 0); a log has no followers
                    "isFuture": False,
                }
            )
    except SparklogError as failure:
        error, partitions = str(failure), []
    return {"logDir": directory, "error": error, "partitions": partitions}


def _size(fs: FileSystem, path: str) -> int:
    for _ in range(3):
        try:
            return sum(held.size for held in segments_of(fs, path))
        except FileNotFoundError:  # retention deleted a segment, or the topic was deleted
            continue
    return 0


def node_of(fs: FileSystem, home: str) -> int:
    """Return the broker id of this log dir, or 1, the default of endpoints and handovers."""
    values = read_properties(fs, home)
    for key in _NODE_KEYS:
        if (number := values.get(key, "")).isdecimal():
            return int(number)
    return 1
