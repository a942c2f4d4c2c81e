"""Detects log dirs, sparklog's or a broker's, by the names of their files."""

import os
import re
from typing import Final

from sparklog.format.names import parse_partition_dir
from sparklog.fs import FileSystem
from sparklog.logdir.high_watermarks import WATERMARKS_NAME
from sparklog.logdir.ledger import LEDGER
from sparklog.logdir.lock import LOCK_NAME
from sparklog.logdir.meta_properties import META_PROPERTIES
from sparklog.logdir.segment_files import is_partition
from sparklog.logdir.topics_file import TOPICS_NAME

STORE_MARKS: Final = frozenset({"sparklog.home", "sparklog.import"})
"""Objects of a bucket that contains a log, or an unfinished import. A directory can be a bucket."""

LEDGER_OBJECT: Final = re.compile(
    r"(?:ledger|state|staged)-([A-Za-z0-9_-]{22})/[0-9]{20}(?:/.*)?", re.ASCII | re.DOTALL
)
"""The name of an object that only a log in a bucket has; the group is the log id."""

_CHECKPOINT_MARK: Final = "metadata-0"  # in the log dir of a log-backed checkpoint
_MARKS: Final = (TOPICS_NAME, WATERMARKS_NAME, LOCK_NAME, META_PROPERTIES)


def holds_log(fs: FileSystem, directory: str) -> bool:
    """Return True if a directory contains parts of a log; False for an empty or missing path."""
    if not fs.is_dir(directory):
        return False
    names = fs.listdir(directory)
    return any(name in _MARKS for name in names) or any(
        is_partition(fs, os.path.join(directory, name))
        for name in names
        if parse_partition_dir(name) is not None
    )


def is_store_home(fs: FileSystem, directory: str) -> bool:
    """Return whether a directory is the bucket of a log, by the names of the files.

    The file `sparklog.home` may be missing.
    """
    names = fs.listdir(directory)
    if not STORE_MARKS.isdisjoint(names):
        return True
    return any(
        LEDGER_OBJECT.fullmatch(f"{name}/{child}") is not None
        for name in names
        if LEDGER_OBJECT.fullmatch(f"{name}/{0:020d}") is not None
        for child in fs.listdir(os.path.join(directory, name))
    )


def has_lost_ledger(fs: FileSystem, directory: str) -> bool:
    """Return whether sparklog's own files exist, but the commit ledger's directory is missing.

    Cost: a stat for a log with a ledger.
    """
    return not fs.is_dir(os.path.join(directory, str(LEDGER))) and has_own_files(fs, directory)


def has_own_files(fs: FileSystem, directory: str) -> bool:
    """Return whether a directory contains a file that sparklog derives from the ledger.

    These are the topics file and the file of high watermarks.
    """
    return any(fs.exists(os.path.join(directory, name)) for name in (TOPICS_NAME, WATERMARKS_NAME))


def is_checkpoint_log(fs: FileSystem, directory: str) -> bool:
    """Return True for the log dir of a query's checkpoint, which looks like a broker's log dir.

    Such a log dir has our lock file, but neither a ledger nor a broker's files. Cost: usually a
    stat.
    """

    def has(name: str) -> bool:
        return fs.exists(os.path.join(directory, name))

    log_files = META_PROPERTIES, str(LEDGER), TOPICS_NAME
    return has(_CHECKPOINT_MARK) and has(LOCK_NAME) and not any(map(has, log_files))
