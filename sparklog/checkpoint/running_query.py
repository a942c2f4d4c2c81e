"""Detects a running query, whose checkpoint must not be changed in place.

The driver of a running query locks a log-backed checkpoint. An ordinary checkpoint has no lock:
only a batch in progress, or files that change, show a running query.
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
"""A younger uncommitted batch of an ordinary checkpoint counts as running."""


@contextlib.contextmanager
def keep_stopped(checkpoint: Checkpoint, what: str) -> Iterator[None]:
    """Keep the query of a log-backed checkpoint from starting within this block.

    Raises:
        LogLockedError: The query is running.
    """
    if not checkpoint.is_log_backed:
        yield
        return
    with CheckpointLock(checkpoint.fs, checkpoint.logs, create=True) as lock:
        lock.take_running(what)
        yield


@contextlib.contextmanager
def report_concurrent_cleanup(path: str | os.PathLike[str]) -> Iterator[None]:
    """Report a listed file that is missing as the clean-up of a running query.

    Raises:
        LogLockedError: A file is missing.
    """
    try:
        yield
    except FileNotFoundError as error:
        raise LogLockedError(
            f"{path}: the query removed {error.filename} while the checkpoint was read: try again",
            path=os.fspath(path),
        ) from error


def check_no_running_batch(batches: Batches, now_ms: int) -> None:
    """Raise LogLockedError if an ordinary checkpoint has a batch that may be running."""
    checkpoint = batches.checkpoint
    newest = max(batches.planned, default=-1)
    if checkpoint.is_log_backed or newest < 0 or newest in batches.committed:
        return
    age_ms = now_ms - checkpoint.stat(f"offsets/{newest}").mtime_ms
    if age_ms < QUIET_MS:
        raise LogLockedError(
            f"{checkpoint.path}: batch {newest} began {age_ms} ms ago and is not committed: "
            f"stop the query; if the query is stopped already, try again in {QUIET_MS // 1000} s",
            path=checkpoint.path,
        )


def check_unchanged(
    checkpoint: Checkpoint, before: list[tuple[str, int]], before_what: str
) -> None:
    """Check that a query has planned and committed nothing since `plans_of` returned `before`.

    An ordinary checkpoint has no lock. A query that runs has planned or committed a batch
    meanwhile, unless it waits for its next trigger.

    Raises:
        LogLockedError: The query is running.
    """
    checkpoint.refresh()
    if plans_of(checkpoint) != before:
        raise LogLockedError(
            f"{checkpoint.path}: the query is running: stop it before {before_what}",
            path=checkpoint.path,
        )


def plans_of(checkpoint: Checkpoint) -> list[tuple[str, int]]:
    """Return the files of plans and commits with their times, which a running query changes."""
    paths = checkpoint.paths("offsets") + checkpoint.paths("commits")
    return [(path, checkpoint.stat(path).mtime_ms) for path in paths]
