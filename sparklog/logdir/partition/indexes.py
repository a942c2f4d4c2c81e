"""Index files of a partition directory; for the validity of entries see `log/index_entries`."""

from typing import Any

import numpy as np

from sparklog.format.index import Entries
from sparklog.fs import File, FileSystem
from sparklog.log import index_entries
from sparklog.logdir.partition.partition_segments import LogDirSegments


def read_entries(fs: FileSystem, path: str, dtype: np.dtype[Any]) -> Entries:
    """Return the complete entries of an index file; empty without a file."""
    try:
        with fs.open(path) as file:
            return index_entries.whole_entries(file, dtype)
    except FileNotFoundError:
        return np.empty(0, dtype)


def offset_entries(fs: FileSystem, directory: str, base: int, *, size: int, end: int) -> Entries:
    """Return the leading entries of a segment's offset index that are plausible.

    They point into a log of `size` bytes with offsets below `end`.
    """
    return index_entries.offset_entries(LogDirSegments(fs, directory), base, size=size, end=end)


def regular_times(fs: FileSystem, directory: str, base: int, offsets: Entries) -> Entries:
    """Return the time index entries that were written together with the entries `offsets`."""
    return index_entries.regular_times(LogDirSegments(fs, directory), base, offsets)


def txn_entries(fs: FileSystem, directory: str, base: int, *, end: int) -> Entries:
    """Return the entries of a segment's transaction index with abort markers below `end`."""
    return index_entries.txn_entries(LogDirSegments(fs, directory), base, end=end)


def hint(fs: FileSystem, directory: str, base: int, log: File, offset: int) -> int:
    """Return the position of a batch at or before `offset`, from the segment's offset index.

    The position is checked against the log, because an index may be damaged.
    """
    return index_entries.position_hint(LogDirSegments(fs, directory), base, log, offset)
