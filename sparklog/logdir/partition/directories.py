"""Check whether a partition directory is empty, and remove partition directories."""

import contextlib
import os

from sparklog.format.names import EPOCH_CHECKPOINT, INDEX, LOG, PARTITION_METADATA, TIMEINDEX
from sparklog.fs import FileSystem


def is_empty(fs: FileSystem, path: str) -> bool:
    """Return True if a directory contains only files of a new partition, and no record."""
    for name in fs.listdir(path):
        # A crash during the creation may leave the temporary file of either.
        made = name.removesuffix(".tmp") in (PARTITION_METADATA, EPOCH_CHECKPOINT)
        if made or name.endswith((INDEX, TIMEINDEX)):
            continue
        if not name.endswith(LOG) or fs.size(os.path.join(path, name)):
            return False
    return True


def remove_tree(fs: FileSystem, path: str) -> None:
    """Remove a partition directory and all files, durably. Idempotent."""
    with contextlib.suppress(FileNotFoundError):
        for name in fs.listdir(path):
            with contextlib.suppress(FileNotFoundError):
                fs.unlink(os.path.join(path, name))
        fs.rmdir(path)
    fs.sync_dir(os.path.dirname(path))
