"""Opens the log that a command is to work on, and refuses paths where there is none."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import sparklog
from sparklog.config import TopicConfig
from sparklog.errors import InvalidRequestError
from sparklog.format.names import check_topic, parse_partition_dir
from sparklog.fs import LOCAL
from sparklog.log.log import Log, split_path
from sparklog.log.topics import TOPICS_NAME
from sparklog.tiered.opening import archive_url

_MARKS = (TOPICS_NAME, "meta.properties")


def _check_directories(path: str, *, may_be_new: bool = False) -> None:
    for part in split_path(path):
        if "://" in part:
            continue
        if LOCAL.exists(part) and not LOCAL.is_dir(part):
            raise InvalidRequestError(f"{part} is a file: give the log's directory")
        if not may_be_new and not LOCAL.is_dir(part):
            raise InvalidRequestError(f"{part} does not exist: give the log's directory")


def check_creation(path: str, topic: str, config: Mapping[str, str]) -> None:
    """Raise InvalidRequestError if a topic can't be made, before a log is made for it."""
    _check_directories(path, may_be_new=True)
    check_topic(topic)
    TopicConfig.parse(config)


def check_log(path: str) -> None:
    """Raise InvalidRequestError unless there is a log at `path`, a broker's or an archive too."""
    _check_directories(path)
    if archive_url(path) is not None:
        return
    home = split_path(path)[0]
    names = LOCAL.listdir(home)
    if not any(name in _MARKS or parse_partition_dir(name) is not None for name in names):
        raise InvalidRequestError(
            f"{home} holds no log: give a directory with partitions in it, or make a topic there "
            "with `sparklog topics create`"
        )


@contextmanager
def to_read(path: str, storage_options: Mapping[str, Any] | None = None) -> Iterator[Log]:
    """Open a log or an archive for reading; nothing is locked or changed."""
    check_log(path)
    with sparklog.open(path, storage_options=storage_options) as log:
        yield log


@contextmanager
def to_change(path: str, *topics: str) -> Iterator[Log]:
    """Open a log for writing, after a look whether it and the `topics` are there.

    So a mistyped name makes no log and takes none over.
    """
    with to_read(path) as log:
        for topic in topics:
            log.topic(topic)
    with sparklog.open(path, "rw") as log:
        yield log
