"""Directories beside a checkpoint: built before they get the final name, or left by a crash.

The directory `.<name>.<kind>-<id>` beside `<name>` belongs to a fork or a reset, or is the log dir
that an export has moved away.
"""

import contextlib
import os
from typing import Final

from sparklog.checkpoint.log_backed.layout import BUILDING
from sparklog.errors import LogLockedError
from sparklog.fs import FileSystem
from sparklog.logdir.staged_directory import (
    StagedDirectory,
    check_parent,
    leftovers,
    remove_all,
    remove_leftover,
    staged_name,
)

FORK: Final = "fork"
RESET: Final = "reset"
_EXPORT: Final = "export"


def staged_checkpoint(fs: FileSystem, target: str, kind: str) -> StagedDirectory:
    """Return the directory in which the checkpoint at `target` is built.

    Removes leftovers of crashes first.

    Raises:
        InvalidRequestError: The parent directory doesn't exist.
    """
    assert kind in (FORK, RESET)
    check_parent(fs, target)
    for root in leftovers(fs, target, FORK, RESET):
        with contextlib.suppress(FileNotFoundError, LogLockedError):  # in use, or being removed
            remove_leftover(fs, root, lock_name=BUILDING)
    for root in leftovers(fs, target, _EXPORT):
        with contextlib.suppress(FileNotFoundError):
            remove_all(fs, root)
    return StagedDirectory(fs, target, kind, lock_name=BUILDING)


def remove_log_dir(fs: FileSystem, checkpoint: str, logs: str) -> None:
    """Remove the log dir `logs` of a checkpoint after its records have become files.

    The log dir is renamed away in a single step if possible. Otherwise its segments are removed in
    order, so that no superseded record becomes visible again.
    """
    if is_mount_point(fs, checkpoint):
        remove_all(fs, logs)
        fs.sync_dir(checkpoint)
        return
    # A log dir that is removed file by file would, after a crash in between, show older records
    # and hide the exported files, which records take precedence over.
    aside = staged_name(checkpoint, _EXPORT)
    fs.rename(logs, aside)
    fs.sync_dir(checkpoint)
    fs.sync_dir(os.path.dirname(checkpoint))
    remove_all(fs, aside)


def is_mount_point(fs: FileSystem, directory: str) -> bool:
    """Return True if a directory's parent is on another file system, as with volumes."""
    return fs.identity(directory)[0] != fs.identity(os.path.dirname(directory))[0]
