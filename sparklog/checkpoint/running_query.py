"""Tells whether a checkpoint's query runs, so that it mustn't be changed in place.

Where the checkpoint is log-backed the driver holds a lock. An ordinary one has none: all that can
be seen is that a batch is under way, or that something changes during a look.
"""

import contextlib
import os
from collections.abc import Iterator
from typing import Final

from sparklog.checkpoint.batches import Batches
from sparklog.checkpoint.files import Checkpoint
from sparklog.checkpoint.log_backed.lock import CheckpointLock
from sparklog.errors import LogLockedError

QUIET_MS: Final = 10_000
"""An uncommitted batch of an ordinary checkpoint that is younger than this may be under way."""


@contextlib.contextmanager
def keep_stopped(checkpoint: Checkpoint, what: str) -> Iterator[None]:
    """Keep the query of a log-backed checkpoint from running meanwhile.

    Raises: LogLockedError: it runs.
    """
    if not checkpoint.is_log_backed:
        yield
        return
    with CheckpointLock(checkpoint.fs, checkpoint.logs, create=True) as lock:
        lock.take_running(what)
        yield


@contextlib.contextmanager
def report_concurrent_cleanup(path: str | os.PathLike[str]) -> Iterator[None]:
    """Report a file that is gone, though it was listed, as what it means: the query cleans up.

    Raises: LogLockedError.
    """
    try:
        yield
    except FileNotFoundError as error:
        raise LogLockedError(
            f"{path}: its query removed {error.filename} while it was being read: try again",
            path=os.fspath(path),
        ) from error


def check_no_running_batch(batches: Batches, now_ms: int) -> None:
    """Raises: LogLockedError: an ordinary checkpoint has a batch that may be under way."""
    checkpoint = batches.checkpoint
    newest = max(batches.planned, default=-1)
    if checkpoint.is_log_backed or newest < 0 or newest in batches.committed:
        return
    age_ms = now_ms - checkpoint.stat(f"offsets/{newest}").mtime_ms
    if age_ms < QUIET_MS:
        raise LogLockedError(
            f"{checkpoint.path}: batch {newest} began {age_ms} ms ago and isn't done: stop the "
            f"query; if it is stopped, try again {QUIET_MS // 1000} s after that",
            path=checkpoint.path,
        )
