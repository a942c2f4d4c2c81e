"""`reset`: a checkpoint, in place, as it was behind one of its batches; its log follows.

The truncated checkpoint is made beside the old one and synced; then both are exchanged in one step
(renameat2, RENAME_EXCHANGE), which is the commit point. The log's `reset` record follows; until
then the new checkpoint has a note of it (unfinished_reset.py). The old one is removed last. A crash
leaves the old checkpoint or the new one; what lies beside is removed by the next reset.
"""

import contextlib
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, Final

from sparklog.checkpoint.batch_selection import Target, check_sources, select_batch
from sparklog.checkpoint.batches import Batches
from sparklog.checkpoint.file_sink_cut import FileSinkCut, follow_in_place
from sparklog.checkpoint.files import Checkpoint
from sparklog.checkpoint.history import writer_name
from sparklog.checkpoint.log_backed.layout import LOGS
from sparklog.checkpoint.log_backed.lock import CheckpointLock
from sparklog.checkpoint.nesting import check_not_nested
from sparklog.checkpoint.query_sink import Announce, QuerySink, SinkKind, choose_sink
from sparklog.checkpoint.running_query import (
    check_no_running_batch,
    keep_stopped,
    report_concurrent_cleanup,
)
from sparklog.checkpoint.staged_checkpoint import RESET, is_mount_point, staged_checkpoint
from sparklog.checkpoint.truncated_copy import copy_truncated
from sparklog.checkpoint.truncation import Truncation, plan_truncation
from sparklog.checkpoint.unfinished_reset import UnfinishedReset, check_log, complete, write
from sparklog.clock import Clock, system_clock
from sparklog.errors import InvalidRequestError, LogLockedError
from sparklog.fs import LOCAL, FileSystem
from sparklog.opening import resolved

Path = str | os.PathLike[str]
_RESET_OR_FORK: Final = "reset it; or fork it, which works meanwhile"


@dataclass(frozen=True, slots=True, kw_only=True)
class Reset:
    """A reset that was done, or (`dry_run`) would be.

    `batches`: those dropped, to be computed anew; `files`: how many files and records go;
    `log`: gets a `reset` record for `writer`. `sink`: what the query's sink does with the batches
    that come again; "" for a log.
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
        """The fields as JSON takes them."""
        return asdict(self)

    def __str__(self) -> str:
        verb = "would go back" if self.dry_run else "went back"
        span = f"{self.batches[0]}..{self.batches[-1]}" if self.batches else "none"
        log = "" if self.log is None else f"; {self.log} takes {self.writer}'s batches anew"
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
    """Truncate the checkpoint to just behind a batch; its query computes all later ones anew.

    A running query is seen by the lock it holds where the checkpoint is log-backed. An ordinary
    checkpoint has no lock: refused if its newest batch is under way, as far as that can be seen
    (it isn't committed and began less than 10 s ago, or something changes meanwhile). A query that
    waits for its next trigger can't be seen: stop it first.

    Sinks other than a log keep what later batches wrote, and those that remember batches would
    skip them when they come again. The log of Spark's file sink (`output`) is cut as well. Where
    the checkpoint names such a sink and the caller does not, the reset is refused.

    Args:
        to, sources: as for `fork`.
        log: the sink's log; the batches that come again are appended to it, not dropped as
            replays. What they wrote before stays there.
        writer: by which the log knows the query; by default the query's id, for all its sinks.
        output: the directory of Spark's file sink, if the query writes to one; a local one.
        sink: "sparklog", "files", "delta", "kafka", "foreachBatch" or "other", if the checkpoint
            doesn't name the query's sink (only log-backed ones do), or it will be another one.
        announce: called with a sentence on what the sink will do, before anything is changed.
        dry_run: only tell.
        storage_options: by which a log in a store, and sources there, are reached; never noted.
    Raises: InvalidRequestError: the batch can't be gone back to (the earliest that can is named),
        or the file system can't exchange directories (fork instead); LogLockedError: the query
        runs; DataCorruptionError; StorageUnavailableError. The checkpoint is as it was then; if
        only the log failed, it is reset, and the log follows with the next call of `reset` or
        batch of the sink.
    """
    checkpoint = Checkpoint.open(path, fs, needs_id=True)
    _check_no_mount_point(checkpoint)
    if not dry_run:
        complete(checkpoint.path, storage_options=storage_options, fs=fs, clock=clock)
    with report_concurrent_cleanup(checkpoint.path), contextlib.ExitStack() as stack:
        if not dry_run:
            stack.enter_context(keep_stopped(checkpoint, _RESET_OR_FORK))
            checkpoint = Checkpoint.open(path, fs, needs_id=True)
        batches = Batches(checkpoint)
        batch = select_batch(batches, to)
        batches.check_reachable(batch)
        check_sources(batches, batch, sources or {}, fs=fs, storage_options=storage_options)
        check_no_running_batch(batches, clock())
        chosen = choose_sink(checkpoint, log=log, output=output, sink=sink)
        _check_log_named(chosen, checkpoint, batch, sink)
        truncation = plan_truncation(batches, batch, checkpoint.path, is_reset=True)
        done = _describe(batches, truncation, log, writer, storage_options, dry_run=dry_run)
        told: list[str] = []
        cut = follow_in_place(batches, batch, chosen, told.append)
        done = replace(done, sink="".join(told))
        if announce is not None and told:
            announce(done.sink)
        if not dry_run:
            _carry_out(batches, truncation, done, cut, storage_options, fs, clock)
    return done


def _check_no_mount_point(checkpoint: Checkpoint) -> None:
    if is_mount_point(checkpoint.fs, checkpoint.path):
        raise InvalidRequestError(
            f"{checkpoint.path} is a mount point, where no other directory can be put: use "
            "sparklog.checkpoint.fork instead, and start the query with that",
            path=checkpoint.path,
        )


def _check_log_named(
    chosen: QuerySink, checkpoint: Checkpoint, batch: int, sink: str | None
) -> None:
    if chosen.kind is SinkKind.LOG and not chosen.follows and sink is None:
        raise InvalidRequestError(
            f"{checkpoint.path}: its query writes to a log, which would drop the batches after "
            f"{batch} when they come again. Name the log (--log LOG), so that it takes them once "
            "more; or give --sink other if the query will write to something else",
            path=checkpoint.path,
        )


def _describe(
    batches: Batches,
    truncation: Truncation,
    log: Path | None,
    writer: str | None,
    storage_options: Mapping[str, Any] | None,
    *,
    dry_run: bool,
) -> Reset:
    checkpoint = batches.checkpoint
    who = None if log is None else writer_name(checkpoint, writer)
    if log is not None and who is not None:
        check_log(log, who, checkpoint.fs, storage_options)
        check_not_nested(checkpoint.path, log)
    known = {*batches.planned, *batches.committed}
    return Reset(
        path=checkpoint.path,
        batch=truncation.batch,
        batches=sorted(b for b in known if b > truncation.batch),
        files=len(truncation.dropped.intersection(checkpoint.paths())),
        log=None if log is None else resolved(log),
        writer=who,
        dry_run=dry_run,
    )


def _carry_out(
    batches: Batches,
    truncation: Truncation,
    wanted: Reset,
    cut: FileSinkCut | None,
    storage_options: Mapping[str, Any] | None,
    fs: FileSystem,
    clock: Clock,
) -> None:
    checkpoint = batches.checkpoint
    before = _plans(checkpoint)
    with (
        staged_checkpoint(fs, checkpoint.path, RESET) as staged,
        contextlib.ExitStack() as stack,
    ):
        copy_truncated(checkpoint, truncation, staged.directory, clock=clock)
        if wanted.log is not None and wanted.writer is not None:
            unfinished = UnfinishedReset(
                log=wanted.log, writer=wanted.writer, batch=truncation.batch, time_ms=clock()
            )
            write(fs, staged.directory, unfinished)
        if cut is not None:
            cut.stage()
            noted = UnfinishedReset(output=cut.output, batch=cut.batch, time_ms=clock())
            write(fs, staged.directory, noted)
        if checkpoint.is_log_backed:  # no query may start with it before its log has followed
            lock = stack.enter_context(CheckpointLock(fs, os.path.join(staged.directory, LOGS)))
            lock.take_running(_RESET_OR_FORK)
        checkpoint.refresh()
        if _plans(checkpoint) != before:
            raise LogLockedError(
                f"{checkpoint.path}: its query runs: stop it, then reset it", path=checkpoint.path
            )
        if not staged.exchange():
            raise InvalidRequestError(
                f"{checkpoint.path} lies on {fs.kind(checkpoint.path)}, which can't exchange two "
                "directories: use sparklog.checkpoint.fork instead, and start the query with that",
                path=checkpoint.path,
            )
        complete(checkpoint.path, storage_options=storage_options, fs=fs, clock=clock)


def _plans(checkpoint: Checkpoint) -> list[tuple[str, int]]:
    paths = checkpoint.paths("offsets") + checkpoint.paths("commits")
    return [(path, checkpoint.stat(path).mtime_ms) for path in paths]
