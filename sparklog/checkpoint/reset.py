"""`reset`: sets a checkpoint back to an earlier batch, in place, and its log as well.

The truncated checkpoint is created beside the old checkpoint and synced. Then both are exchanged in
a single step (renameat2, RENAME_EXCHANGE), which is the commit point. The log's `reset` record
follows; until then the new checkpoint has a file that requests it (unfinished_reset.py). The old
checkpoint is removed last. A crash leaves the old or the new checkpoint; the next reset removes
leftovers.
"""

import contextlib
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any, Final

from sparklog.checkpoint.batches import Batches
from sparklog.checkpoint.file_sink_cut import FileSinkCut, plan_sink_cut
from sparklog.checkpoint.files import Checkpoint
from sparklog.checkpoint.log_backed.layout import LOGS, RESET
from sparklog.checkpoint.log_backed.lock import CheckpointLock
from sparklog.checkpoint.query_sink import Announce, QuerySink, SinkKind
from sparklog.checkpoint.rollback_request import RollbackRequest, Target
from sparklog.checkpoint.running_query import (
    check_no_running_batch,
    check_unchanged,
    keep_stopped,
    plans_of,
    report_concurrent_cleanup,
)
from sparklog.checkpoint.staged_checkpoint import RESET as RESET_KIND
from sparklog.checkpoint.staged_checkpoint import is_mount_point, staged_checkpoint
from sparklog.checkpoint.stored_copies import RESETTING, ChangedRuns, runs_of
from sparklog.checkpoint.truncated_copy import copy_truncated
from sparklog.checkpoint.truncation import Truncation, plan_truncation
from sparklog.checkpoint.unfinished_reset import UnfinishedReset, write
from sparklog.clock import Clock, system_clock
from sparklog.errors import InvalidRequestError
from sparklog.fs import LOCAL, FileSystem
from sparklog.opening import resolved

Path = str | os.PathLike[str]
_RESET_OR_FORK: Final = "reset it; or fork it, which works meanwhile"


@dataclass(frozen=True, slots=True, kw_only=True)
class Reset:
    """The result of a reset, or of a planned reset.

    Attributes:
        path: The checkpoint.
        batch: The batch that the checkpoint was reset to.
        batches: The dropped batches, which the query runs again.
        files: The number of files and records that are removed.
        log: The log that gets a `reset` record for `writer`.
        writer: The query's name in the log.
        dry_run: Whether the reset was only planned.
        sink: How the query's sink handles the batches that run again; "" for a log.

    Examples:
        >>> from sparklog.checkpoint import reset
        >>> plan = reset("checkpoint", to=0, log="log", dry_run=True)
        >>> plan.batch, plan.batches, plan.dry_run
        (0, [1, 2], True)
    """

    path: str
    batch: int
    batches: list[int]
    files: int
    log: str | None
    writer: str | None
    dry_run: bool
    sink: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Return the fields for JSON."""
        return asdict(self)

    def __str__(self) -> str:
        verb = "would go back" if self.dry_run else "went back"
        span = f"{self.batches[0]}..{self.batches[-1]}" if self.batches else "none"
        log = "" if self.log is None else f"; {self.log} takes {self.writer}'s batches again"
        return (
            f"{self.path} {verb} to batch {self.batch}: drops batches {span}, {self.files} files"
            f"{log}"
        )


def reset(
    path: Path,
    *,
    to: Target,
    log: Path | None = None,
    writer: str | None = None,
    sources: Mapping[str, str] | None = None,
    output: Path | None = None,
    sink: str | None = None,
    announce: Announce | None = None,
    dry_run: bool = False,
    storage_options: Mapping[str, Any] | None = None,
    fs: FileSystem = LOCAL,
    clock: Clock = system_clock,
) -> Reset:
    """Truncate a checkpoint to a batch; its query runs all later batches again.

    A log-backed checkpoint on a disk has a lock that shows a running query. Other checkpoints have
    none, so the reset is rejected if the newest batch seems to be running: it is not committed and
    began less than 10 s ago, or files change during the check. A query that waits for its next
    trigger can't be detected: stop it first. In runs such a query fails at its next write.

    Sinks other than a log keep the output of later batches, and sinks that remember batches would
    skip them when they run again. The log of Spark's file sink (`output`) is truncated as well. If
    the checkpoint names such a sink and the caller does not, the reset is rejected.

    Args:
        path: The checkpoint: a local path, or the URL of a checkpoint in runs.
        to: As for `fork`.
        log: The sink's log; batches that run again are appended to it, not dropped as replays.
            Their earlier records stay there.
        writer: The query's name in the log; by default the query's id, which covers all its sinks.
        sources: As for `fork`.
        output: The local directory of Spark's file sink, if the query writes to a file sink.
        sink: "sparklog", "files", "delta", "kafka", "foreachBatch" or "other", if the checkpoint
            doesn't name the query's sink (log-backed ones and those in runs do), or the sink will
            change.
        announce: Called with a sentence on the effect on the sink, before anything is changed.
        dry_run: Only plan the reset.
        storage_options: Options of fsspec for a checkpoint, log or sources in a bucket; never
            stored.
        fs: The file system of the checkpoint; for tests.
        clock: The current time in milliseconds since the epoch; for tests.

    Raises:
        InvalidRequestError: The query can't go back to the batch (names the earliest possible
            batch), or the file system can't exchange directories (use `fork`).
        LogLockedError: The query is running.
        DataCorruptionError: A file is damaged. The checkpoint is unchanged.
        StorageUnavailableError: The disk fails. The checkpoint is unchanged; if only the log
            failed, the checkpoint is reset, and the log follows at the next call of `reset` or
            batch of the sink.

    Examples:
        >>> from sparklog.checkpoint import history, reset
        >>> done = reset("checkpoint", to=0, log="log")
        >>> [row.batch for row in history("checkpoint").batches]
        [0]
    """
    request = RollbackRequest(
        to=to, log=log, writer=writer, sources=sources, output=output, sink=sink,
        announce=announce, storage_options=storage_options, fs=fs, clock=clock,
    )  # fmt: skip
    opened = partial(
        Checkpoint.open, path, fs, needs_id=True, storage_options=storage_options or {}
    )
    checkpoint = opened()
    _check_in_place(checkpoint)
    if not dry_run:
        request.complete_reset(checkpoint)
    with report_concurrent_cleanup(checkpoint.path), contextlib.ExitStack() as stack:
        if not dry_run:
            stack.enter_context(keep_stopped(checkpoint, _RESET_OR_FORK))
            # Read again under the lock: the query may have run a batch since.
            checkpoint = opened()
        runs = runs_of(checkpoint)
        # Now, because the run must fail if the query writes another entry from here on.
        run = None if runs is None else ChangedRuns(runs, RESETTING, clock)
        batches, batch = request.select_batch(checkpoint)
        check_no_running_batch(batches, clock())
        chosen = request.choose_sink(checkpoint)
        _check_log_named(chosen, checkpoint, batch, sink)
        root = f"file:{checkpoint.path}" if runs is None else None
        truncation = plan_truncation(batches, batch, root, is_reset=True)
        done = _describe(batches, truncation, request, dry_run=dry_run)
        announced: list[str] = []
        cut = plan_sink_cut(batches, batch, chosen, announced.append)
        done = replace(done, sink="".join(announced))
        if announce is not None and announced:
            announce(done.sink)
        if not dry_run:
            if cut is not None:
                cut.stage()
            note = _unfinished(done, cut, clock)
            if run is not None:
                run.write(checkpoint, truncation, {RESET: note.encode()} if note else {})
            else:
                _exchange(batches, truncation, note, request)
            request.complete_reset(opened())
    return done


def _unfinished(wanted: Reset, cut: FileSinkCut | None, clock: Clock) -> UnfinishedReset | None:
    """Return the request to reset the sink, which is part of the new checkpoint.

    Both become visible in the same step. If this process dies before the sink is reset, the sink's
    next batch resets it first.
    """
    if wanted.log is not None and wanted.writer is not None:
        return UnfinishedReset(
            log=wanted.log, writer=wanted.writer, batch=wanted.batch, time_ms=clock()
        )
    if cut is not None:
        return UnfinishedReset(output=cut.output, batch=cut.batch, time_ms=clock())
    return None


def _check_in_place(checkpoint: Checkpoint) -> None:
    if checkpoint.fs is not checkpoint.disk:
        if runs_of(checkpoint) is None:
            raise InvalidRequestError(
                f"{checkpoint.path}: the files of a checkpoint that Spark keeps in a bucket can't "
                "be replaced together. Convert the checkpoint first with sparklog.checkpoint."
                "import_ (`sparklog checkpoint import`), or use sparklog.checkpoint.fork, and "
                "start the query with the fork",
                path=checkpoint.path,
            )
    elif is_mount_point(checkpoint.fs, checkpoint.path):
        raise InvalidRequestError(
            f"{checkpoint.path} is a mount point, which can't be replaced by another directory: "
            "use sparklog.checkpoint.fork instead, and start the query with the fork",
            path=checkpoint.path,
        )


def _check_log_named(
    chosen: QuerySink, checkpoint: Checkpoint, batch: int, sink: str | None
) -> None:
    if chosen.kind is SinkKind.LOG and not chosen.follows and sink is None:
        raise InvalidRequestError(
            f"{checkpoint.path}: the query writes to a log, which would skip the batches after "
            f"{batch} when they run again. Name the log (--log LOG), so that the log appends these "
            "batches again; or use --sink other if the query will write to something else",
            path=checkpoint.path,
        )


def _describe(
    batches: Batches, truncation: Truncation, request: RollbackRequest, *, dry_run: bool
) -> Reset:
    checkpoint = batches.checkpoint
    writer_id = request.writer_in_log(checkpoint)
    known = {*batches.planned, *batches.committed}
    return Reset(
        path=checkpoint.path,
        batch=truncation.batch,
        batches=sorted(b for b in known if b > truncation.batch),
        files=len(truncation.dropped.intersection(checkpoint.paths())),
        log=None if request.log is None else resolved(request.log),
        writer=writer_id,
        dry_run=dry_run,
    )


def _exchange(
    batches: Batches,
    truncation: Truncation,
    note: UnfinishedReset | None,
    request: RollbackRequest,
) -> None:
    """Exchange the checkpoint with its truncated copy."""
    checkpoint, fs, clock = batches.checkpoint, request.fs, request.clock
    before = plans_of(checkpoint)
    with (
        staged_checkpoint(fs, checkpoint.path, RESET_KIND) as staged,
        contextlib.ExitStack() as stack,
    ):
        copy_truncated(checkpoint, truncation, staged.directory, fs=checkpoint.fs, clock=clock)
        if note is not None:
            write(fs, staged.directory, note)
        if checkpoint.is_log_backed:  # no query may start before the log has been reset, too
            lock = stack.enter_context(CheckpointLock(fs, os.path.join(staged.directory, LOGS)))
            lock.take_running(_RESET_OR_FORK)
        check_unchanged(checkpoint, before, "the reset")
        if not staged.exchange():
            raise InvalidRequestError(
                f"{checkpoint.path} is on {fs.kind(checkpoint.path)}, which can't exchange two "
                "directories: use sparklog.checkpoint.fork instead, and start the query with the "
                "fork",
                path=checkpoint.path,
            )
