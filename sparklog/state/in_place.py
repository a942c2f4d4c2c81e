"""Exchanges a checkpoint with a changed copy in a single step.

The copy is complete before the exchange, so a crash leaves either the old or the new checkpoint at
the path, and the other checkpoint under the name of the restore point.
"""

import contextlib
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from sparklog.checkpoint.batches import Batches
from sparklog.checkpoint.files import Checkpoint
from sparklog.checkpoint.running_query import (
    check_no_running_batch,
    check_unchanged,
    keep_stopped,
    plans_of,
)
from sparklog.checkpoint.staged_checkpoint import is_mount_point
from sparklog.clock import Clock
from sparklog.errors import InvalidRequestError


@dataclass(frozen=True, slots=True)
class Replacement:
    """A checkpoint that is about to be replaced.

    Attributes:
        restore_point: The path of the copy, and of the original after the exchange.
        check_stopped: Raises LogLockedError if the query has run meanwhile.
        exchange: Exchanges the copy, which is complete, with the checkpoint.
    """

    restore_point: str
    check_stopped: Callable[[], None]
    exchange: Callable[[], None]


@contextlib.contextmanager
def replacement(batches: Batches, batch: int, clock: Clock) -> Iterator[Replacement]:
    """Prepare to replace the checkpoint of a stopped query.

    Raises:
        InvalidRequestError: The checkpoint can't be replaced in a single step, or it has batches
            after `batch`.
        LogLockedError: The query is running.
    """
    checkpoint = batches.checkpoint
    _check(checkpoint)
    check_newest(batches, batch)
    check_no_running_batch(batches, clock())
    with keep_stopped(checkpoint, "a change of its state in place"):
        before = plans_of(checkpoint)
        point = f"{checkpoint.path}.restore-point-{clock()}"

        def check_stopped() -> None:
            check_unchanged(checkpoint, before, "the change in place")

        def exchange() -> None:
            if not checkpoint.fs.exchange(point, checkpoint.path):
                raise InvalidRequestError(
                    f"{checkpoint.path} is on {checkpoint.fs.kind(checkpoint.path)}, which can't "
                    f"exchange two directories. The changed checkpoint is {point}: start the query "
                    "with it",
                    path=checkpoint.path,
                )
            checkpoint.fs.sync_dir(os.path.dirname(checkpoint.path))

        yield Replacement(point, check_stopped, exchange)


def _check(checkpoint: Checkpoint) -> None:
    if checkpoint.fs is not checkpoint.disk:
        raise InvalidRequestError(
            f"{checkpoint.path}: the files of a checkpoint that Spark keeps in a bucket can't be "
            "replaced together: import it first (`sparklog checkpoint import`), or name a target, "
            "and start the query with it",
            path=checkpoint.path,
        )
    if is_mount_point(checkpoint.fs, checkpoint.path):
        raise InvalidRequestError(
            f"{checkpoint.path} is a mount point, which can't be replaced by another directory: "
            "name a target, and start the query with it",
            path=checkpoint.path,
        )


def check_newest(batches: Batches, batch: int) -> None:
    """Check that a checkpoint ends with a batch, whose output is the last that a sink can have.

    Raises:
        InvalidRequestError: The checkpoint has committed or planned batches after `batch`.
    """
    path, newest = batches.checkpoint.path, max(batches.committed)
    if batch != newest:
        raise InvalidRequestError(
            f"{path} has batch {newest}, and its sink has the output: a change in place can't go "
            f"back to batch {batch}. Reset the checkpoint to this batch first",
            path=path,
        )
    if batches.last > batch:
        # The query would plan this batch again, with other rows, and some sinks would skip it.
        raise InvalidRequestError(
            f"{path}: batch {batches.last} is planned and not committed, and its sink may have the "
            "output. Start the query with trigger(availableNow=True), so that it commits the "
            f"batch, or reset the checkpoint to batch {batch} first",
            path=path,
        )
