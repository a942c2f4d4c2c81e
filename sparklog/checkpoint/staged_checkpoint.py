"""A checkpoint that is made beside its final name, and what a crash left of such ones.

`.<name>.<kind>-<id>` beside `<name>`: of a fork to there, of a reset of it, or the log dir that an
export took away.
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
    """Return the directory in which a checkpoint is made that is to lie at `target`.

    Removes first what crashes left there. Raises: InvalidRequestError: the parent doesn't exist.
    """
    assert kind in (FORK, RESET)
    check_parent(fs, target)
    for root in leftovers(fs, target, FORK, RESET):
        with contextlib.suppress(FileNotFoundError, LogLockedError):  # another sweeps, or works
            remove_leftover(fs, root, lock_name=BUILDING)
    for root in leftovers(fs, target, _EXPORT):
        with contextlib.suppress(FileNotFoundError):
            remove_all(fs, root)
    return StagedDirectory(fs, target, kind, lock_name=BUILDING)


def remove_log_dir(fs: FileSystem, checkpoint: str, logs: str) -> None:
    """Remove the log dir `logs` of a checkpoint whose records are files by now.

    It is renamed away in one step where that can be; else its segments are removed in order, so
    that none comes to light that a later one had replaced.
    """
    if is_mount_point(fs, checkpoint):
        remove_all(fs, logs)
        fs.sync_dir(checkpoint)
        return
    aside = staged_name(checkpoint, _EXPORT)
    fs.rename(logs, aside)
    fs.sync_dir(checkpoint)
    fs.sync_dir(os.path.dirname(checkpoint))
    remove_all(fs, aside)


def is_mount_point(fs: FileSystem, directory: str) -> bool:
    """Whether what lies beside a directory is on another file system, as with volumes."""
    return fs.identity(directory)[0] != fs.identity(os.path.dirname(directory))[0]
