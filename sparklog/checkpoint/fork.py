"""`fork`: creates a checkpoint, with a query that continues after a batch of an existing query."""

import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from sparklog.checkpoint.file_sink_cut import copy_output
from sparklog.checkpoint.files import Checkpoint, own_path
from sparklog.checkpoint.query_sink import Announce
from sparklog.checkpoint.rollback_request import RollbackRequest, Target
from sparklog.checkpoint.running_query import report_concurrent_cleanup
from sparklog.checkpoint.staged_checkpoint import FORK, staged_checkpoint
from sparklog.checkpoint.truncated_copy import copy_truncated
from sparklog.checkpoint.truncation import plan_truncation
from sparklog.clock import Clock, stopwatch, system_clock
from sparklog.diskless.import_objects import BucketTarget
from sparklog.diskless.log_creation import fork as fork_in_store
from sparklog.errors import InvalidRequestError
from sparklog.fs import LOCAL, FileSystem
from sparklog.log.fork_points import ForkPointRequest
from sparklog.logdir.forking.fork import fork as fork_log
from sparklog.logdir.paths import is_nested
from sparklog.opening import check_log_dirs, url_of
from sparklog.text_checks import path_text
from sparklog.tiered.target import open_store

Path = str | os.PathLike[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Forked:
    """The result of a fork.

    Attributes:
        path: The original checkpoint: a local path, or the URL of a checkpoint that Spark keeps in
            a bucket.
        new_path: The new checkpoint, on a local disk.
        batch: The batch that the query of the new checkpoint continues after.
        log: The path of the forked log, or None.
        linked_files: The number of files that both checkpoints share by hard links.
        linked_bytes: The size of the shared files.
        copied_bytes: The size of the copied files.
        took_ms: The duration, in milliseconds.

    Examples:
        >>> from sparklog.checkpoint import fork
        >>> fork("checkpoint", "try", to=1, log="log", new_log="try-log").batch
        1
    """

    path: str
    new_path: str
    batch: int
    log: str | None
    linked_files: int
    linked_bytes: int
    copied_bytes: int
    took_ms: int

    def to_dict(self) -> dict[str, Any]:
        """Return the fields for JSON."""
        return asdict(self)

    def __str__(self) -> str:
        log = "" if self.log is None else f", its log in {self.log}"
        return (
            f"{self.new_path} continues after batch {self.batch} of {self.path}{log}: "
            f"{self.linked_files} files linked, {self.copied_bytes} bytes copied, {self.took_ms} ms"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _ForkRequest(RollbackRequest):
    new_log: Path | None
    new_output: Path | None

    def __post_init__(self) -> None:
        if (self.log is None) != (self.new_log is None):
            raise InvalidRequestError(
                "log and new_log must be used together: pass both or neither of them"
            )
        if (self.output is None) != (self.new_output is None):
            raise InvalidRequestError(
                "output and new_output must be used together: pass both or neither of them"
            )
        if self.log is not None and self.new_log is not None:
            _check_homes(self.log, self.new_log, self.fs)


def fork(
    path: Path,
    new_path: Path,
    *,
    to: Target,
    log: Path | None = None,
    new_log: Path | None = None,
    writer: str | None = None,
    sources: Mapping[str, str] | None = None,
    output: Path | None = None,
    new_output: Path | None = None,
    sink: str | None = None,
    announce: Announce | None = None,
    storage_options: Mapping[str, Any] | None = None,
    fs: FileSystem = LOCAL,
    clock: Clock = system_clock,
) -> Forked:
    """Create a checkpoint whose query runs batch N + 1 and later batches again.

    The original is unchanged, and its query may be running. The fork has the same query id, as a
    copy would, so that sinks recognize its batches. Within a Spark application only one of the two
    queries can be active.

    Args:
        path: The original checkpoint: a local path, or the URL of a checkpoint that Spark keeps in
            a bucket.
        new_path: The new checkpoint, on a local disk.
        to: The batch N; a datetime (the last batch planned by then); or offsets {"offsets":
            {"topic": {"0": 123}}} (the last batch that reads past none of them).
        log: The sink's log.
        new_log: The fork of the sink's log to the same batch, with a higher leader epoch.
        writer: The query's name in the log; by default the query's id, which covers all its sinks.
        sources: {source: path} of logs that the query reads; a batch that their retention has
            passed is rejected. A source is named as in the offsets: by number, if it has no name.
        output: The directory of Spark's file sink.
        new_output: A new directory for the fork, which gets links to the files up to the batch, and
            its own `_spark_metadata`.
        sink: As for `reset`.
        announce: As for `reset`.
        storage_options: Options of fsspec for a checkpoint, logs and sources in a bucket.
        fs: The file system of the checkpoint; for tests.
        clock: The current time in milliseconds since the epoch; for tests.

    Raises:
        InvalidRequestError: The query can't go back to the batch (names the earliest possible
            batch), or `new_path` exists.
        DataCorruptionError: A file of the checkpoint or the log is damaged.
        LogLockedError: Another process holds a lock.
        StorageUnavailableError: The disk fails. A failed fork leaves no files, except for a forked
            log if the checkpoint failed after it.

    Cost:
        Files are linked if possible; the last segment of each partition is copied. Of a checkpoint
        in a bucket, all files up to the batch are copied: a GET each, up to 16 at once.

    Examples:
        >>> from sparklog.checkpoint import fork, history
        >>> forked = fork("checkpoint", "try", to=0, log="log", new_log="try-log")
        >>> [row.batch for row in history("try").batches]
        [0]
        >>> with sparklog.open("try-log") as try_log:
        ...     try_log.read("flights").read_all().num_rows
        200
    """
    watch = stopwatch()
    request = _ForkRequest(
        to=to, log=log, new_log=new_log, writer=writer, sources=sources, output=output,
        new_output=new_output, sink=sink, announce=announce, storage_options=storage_options,
        fs=fs, clock=clock,
    )  # fmt: skip
    target = own_path(new_path)
    with report_concurrent_cleanup(path):
        # A fork to an earlier batch is a remedy for a damaged last record, so that damage is no
        # error.
        checkpoint = Checkpoint.open(
            path, fs, to_end=False, needs_id=True, storage_options=storage_options or {}
        )
        _check_is_new(fs, target)
        if checkpoint.fs is fs:
            _check_not_nested(checkpoint.path, target)
            request.complete_reset(checkpoint.path)
        batches, batch = request.select_batch(checkpoint)
        writer_id = request.writer_in_log(checkpoint)
        files = _files_of(checkpoint, batch, request)
        with staged_checkpoint(fs, target, FORK) as staged:
            truncation = plan_truncation(batches, batch, target, is_reset=False)
            copied = copy_truncated(checkpoint, truncation, staged.directory, fs=fs, clock=clock)
            _fork_log(request, writer_id, batch)
            if files is not None:
                copy_output(batches, batch, *files)
            # The checkpoint is published last: a query that finds it also finds the log and the
            # output.
            staged.publish()
    return Forked(
        path=checkpoint.path,
        new_path=target,
        batch=batch,
        log=None if new_log is None else os.fspath(new_log),
        linked_files=copied.linked_files,
        linked_bytes=copied.linked_bytes,
        copied_bytes=copied.copied_bytes,
        took_ms=watch(),
    )


def _files_of(checkpoint: Checkpoint, batch: int, request: _ForkRequest) -> tuple[str, str] | None:
    """Announce the effect on the sink, and return a file sink's old and new directory, if any.

    Raises:
        InvalidRequestError: See `choose_sink`.
    """
    chosen = request.choose_sink(checkpoint)
    text, files = chosen.effect(batch), None
    if chosen.output is not None and request.new_output is not None:
        files = chosen.output, path_text(request.new_output)
        text = f"Sink: the files of {files[0]} up to batch {batch} become the output {files[1]}."
    if request.announce is not None and text:
        request.announce(text)
    return files


def _check_not_nested(path: str, target: str) -> None:
    if is_nested(path, target):
        raise InvalidRequestError(
            f"{target} and {path} are nested: choose another directory", path=target
        )


def _check_is_new(fs: FileSystem, target: str) -> None:
    if fs.exists(target):
        raise InvalidRequestError(
            f"{target} exists already: choose a new directory for the fork", path=target
        )


def _check_homes(log: Path, new_log: Path, fs: FileSystem) -> None:
    """Check that a fork has the same kind of home as the original."""
    if url_of(log, fs=fs) is None:
        check_log_dirs(new_log, "a fork of log dirs is made in directories beside them", fs)
    elif url_of(new_log, mode="rw", fs=fs) is None:
        raise InvalidRequestError(
            f"{os.fspath(log)} is a log in a bucket, so its fork must be in a bucket too: set "
            "new_log to a URL of the same service",
            path=os.fspath(new_log),
        )


def _fork_log(request: _ForkRequest, writer: str | None, batch: int) -> None:
    log, new_log, fs, clock = request.log, request.new_log, request.fs, request.clock
    if log is None or new_log is None:
        return
    wanted = ForkPointRequest(writer=writer, batch=batch)
    if url_of(log, fs=fs) is None:
        fork_log(log, new_log, wanted, fs=fs, clock=clock)
        return
    options = request.storage_options
    target = BucketTarget(store=open_store(os.fspath(new_log), options), clock=clock)
    fork_in_store(open_store(os.fspath(log), options), target, wanted)
