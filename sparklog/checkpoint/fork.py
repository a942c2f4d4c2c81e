"""`fork`: creates a checkpoint, with a query that continues after a batch of an existing query."""

import contextlib
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from sparklog.checkpoint.batches import Batches
from sparklog.checkpoint.file_sink_cut import copy_output
from sparklog.checkpoint.files import Checkpoint, own_path
from sparklog.checkpoint.query_sink import Announce
from sparklog.checkpoint.rollback_request import RollbackRequest, Target
from sparklog.checkpoint.running_query import report_concurrent_cleanup
from sparklog.checkpoint.staged_checkpoint import FORK, staged_checkpoint
from sparklog.checkpoint.stored_copies import CopyInRuns, open_new_store, spark_url
from sparklog.checkpoint.stored_files import StoredFiles
from sparklog.checkpoint.truncated_copy import CopyStats, copy_truncated
from sparklog.checkpoint.truncation import plan_truncation
from sparklog.clock import Clock, stopwatch, system_clock
from sparklog.diskless.import_objects import BucketTarget
from sparklog.diskless.log_creation import check_apart
from sparklog.diskless.log_creation import fork as fork_in_store
from sparklog.errors import InvalidRequestError
from sparklog.fs import LOCAL, FileSystem
from sparklog.log.fork_points import ForkPointRequest
from sparklog.logdir.broker_lockout import is_unsound
from sparklog.logdir.forking.fork import fork as fork_log
from sparklog.logdir.paths import is_nested, store_url
from sparklog.opening import check_log_dirs, url_of
from sparklog.text_checks import path_text
from sparklog.tiered.object_store.store import Store
from sparklog.tiered.target import open_store

Path = str | os.PathLike[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Forked:
    """The result of a fork.

    Attributes:
        path: The original checkpoint: a local path, or the URL of a checkpoint in a bucket.
        new_path: The new checkpoint: a local path, or a URL. In a bucket the checkpoint is kept in
            runs, and its query needs sparklog's checkpoint manager.
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
        path: The original checkpoint: a local path, or the URL of a checkpoint in a bucket.
        new_path: The new checkpoint: a local path, or a URL. In a bucket the checkpoint is kept in
            runs, and its query needs sparklog's checkpoint manager.
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
        Files are linked if possible; the last segment of each partition is copied. From and to a
        bucket all files up to the batch are copied: a GET each, up to 16 at once; a PUT per 16 MiB
        and five more.

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
    url = store_url(new_path)
    target = own_path(new_path) if url is None else url
    with report_concurrent_cleanup(path):
        # A fork to an earlier batch is a remedy for a damaged last record, so that damage is no
        # error.
        checkpoint = Checkpoint.open(
            path, fs, to_end=False, needs_id=True, storage_options=storage_options or {}
        )
        if url is None and checkpoint.is_log_backed and is_unsound(fs, os.path.dirname(target)):
            url = f"file://{target}"  # the manager keeps no log dir on a shared disk
        store = None if url is None else open_new_store(url, storage_options)
        _check_new(checkpoint, target, store, fs)
        if checkpoint.fs is fs:
            request.complete_reset(checkpoint)
        batches, batch = request.select_batch(checkpoint)
        writer_id = request.writer_in_log(checkpoint)
        files = _files_of(checkpoint, batch, request)
        with _copy(batches, batch, url or target, store, request) as (copied, publish):
            _fork_log(request, writer_id, batch)
            if files is not None:
                copy_output(batches, batch, *files)
            # The checkpoint is published last: a query that finds it also finds the log and the
            # output.
            publish()
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


@contextlib.contextmanager
def _copy(
    batches: Batches, batch: int, target: str, store: Store | None, request: _ForkRequest
) -> Iterator[tuple[CopyStats, Callable[[], None]]]:
    """Write the checkpoint as of a batch. Yield statistics, and what makes the copy visible."""
    checkpoint, fs, clock = batches.checkpoint, request.fs, request.clock
    if store is not None:
        truncation = plan_truncation(batches, batch, spark_url(target), is_reset=False)
        copy = CopyInRuns(store, "fork", clock)
        stats = CopyStats(copied_bytes=copy.write(checkpoint, truncation))
        copy.check_complete(batch)
        yield stats, copy.publish
        return
    truncation = plan_truncation(batches, batch, f"file:{target}", is_reset=False)
    with staged_checkpoint(fs, target, FORK) as staged:
        stats = copy_truncated(checkpoint, truncation, staged.directory, fs=fs, clock=clock)
        yield stats, staged.publish


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


def _check_new(
    checkpoint: Checkpoint, target: str, store: Store | None, fs: FileSystem
) -> None:
    """Check that the fork's place is free, and apart from the original."""
    if store is None and fs.exists(target):
        raise InvalidRequestError(
            f"{target} exists already: choose a new directory for the fork", path=target
        )
    if store_url(target) is None and checkpoint.fs is fs and is_nested(checkpoint.path, target):
        raise InvalidRequestError(
            f"{target} and {checkpoint.path} are nested: choose another directory", path=target
        )
    if store is not None and isinstance(checkpoint.fs, StoredFiles):
        check_apart(checkpoint.fs.store, store)


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
