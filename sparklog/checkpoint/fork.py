"""`fork`: creates a checkpoint, with a query that continues after a batch of an existing query."""

import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from sparklog.checkpoint.batch_selection import Target, check_sources, select_batch
from sparklog.checkpoint.batches import Batches
from sparklog.checkpoint.file_sink_cut import copy_output
from sparklog.checkpoint.files import Checkpoint, own_path
from sparklog.checkpoint.history import writer_name
from sparklog.checkpoint.nesting import check_not_nested
from sparklog.checkpoint.query_sink import Announce, choose_sink
from sparklog.checkpoint.running_query import report_concurrent_cleanup
from sparklog.checkpoint.staged_checkpoint import FORK, staged_checkpoint
from sparklog.checkpoint.truncated_copy import copy_truncated
from sparklog.checkpoint.truncation import plan_truncation
from sparklog.checkpoint.unfinished_reset import check_log, complete
from sparklog.clock import Clock, stopwatch, system_clock
from sparklog.diskless.log_creation import fork as fork_in_store
from sparklog.errors import InvalidRequestError
from sparklog.fs import LOCAL, FileSystem
from sparklog.logdir.forking.fork import fork as fork_log
from sparklog.logdir.paths import is_nested
from sparklog.opening import check_log_dirs, url_of
from sparklog.text_checks import path_text

Path = str | os.PathLike[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Forked:
    """The result of a fork. `log`: the path of the forked log, or None."""

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
    """Create a checkpoint at `new_path`. Its query runs batch N + 1 and later batches again.

    The original is unchanged, and its query may be running. The fork has the same query id, as a
    copy would, so that sinks recognize its batches. Within a Spark application only one of the two
    queries can be active.

    Args:
        to: the batch N; a datetime (the last batch planned by then); or offsets {"offsets":
            {"topic": {"0": 123}}} (the last batch that reads past none of them).
        log, new_log: the sink's log, and its fork to the same batch with a higher leader epoch.
        writer: the query's name in the log; by default the query's id, which covers all its sinks.
        sources: {source: path} of logs that the query reads; a batch that their retention has
            passed is rejected. A source is named as in the offsets: by number, if it has no name.
        output, new_output: the directory of Spark's file sink, and a new directory for the fork,
            which gets links to the files up to the batch, and its own `_spark_metadata`.
        sink, announce: as for `reset`.
        storage_options: fsspec's options, for sources in a bucket.
    Raises: InvalidRequestError: the query can't go back to the batch (names the earliest possible
        batch), or `new_path` exists. DataCorruptionError; LogLockedError; StorageUnavailableError.
        A failed fork leaves no files, except for a forked log if the checkpoint failed after it.
    Cost: files are linked if possible; the last segment of each partition is copied.
    """
    watch = stopwatch()
    _check_pairs(log, new_log, output, new_output, fs)
    target = own_path(new_path)
    with report_concurrent_cleanup(path):
        checkpoint = Checkpoint.open(path, fs, to_end=False, needs_id=True)
        _check_target(fs, checkpoint.path, target)
        complete(checkpoint.path, storage_options=storage_options, fs=fs, clock=clock)
        batches = Batches(checkpoint)
        batch = select_batch(batches, to)
        batches.check_reachable(batch)
        check_sources(batches, batch, sources or {}, fs=fs, storage_options=storage_options)
        writer_id = None if log is None else _check_log(checkpoint, log, writer, storage_options)
        files = _files_of(checkpoint, batch, log, output, new_output, sink, announce)
        with staged_checkpoint(fs, target, FORK) as staged:
            truncation = plan_truncation(batches, batch, target, is_reset=False)
            copied = copy_truncated(checkpoint, truncation, staged.directory, clock=clock)
            if log is not None and new_log is not None:
                _fork_log(log, new_log, writer_id, batch, storage_options, fs, clock)
            if files is not None:
                copy_output(batches, batch, *files)
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


def _files_of(
    checkpoint: Checkpoint,
    batch: int,
    log: Path | None,
    output: Path | None,
    new_output: Path | None,
    sink: str | None,
    announce: Announce | None,
) -> tuple[str, str] | None:
    """Announce the effect on the sink. Return a file sink's old and new directory, if any.

    Raises: InvalidRequestError: see `choose_sink`.
    """
    chosen = choose_sink(checkpoint, log=log, output=output, sink=sink)
    text, files = chosen.effect(batch), None
    if chosen.output is not None and new_output is not None:
        files = chosen.output, path_text(new_output)
        text = f"Sink: the files of {files[0]} up to batch {batch} become the output {files[1]}."
    if announce is not None and text:
        announce(text)
    return files


def _check_log(
    checkpoint: Checkpoint, log: Path, writer: str | None, storage_options: Mapping[str, Any] | None
) -> str:
    """Return the query's name in the log."""
    name = writer_name(checkpoint, writer)
    check_log(log, name, checkpoint.fs, storage_options)
    check_not_nested(checkpoint.path, log)
    return name


def _check_target(fs: FileSystem, path: str, target: str) -> None:
    if is_nested(path, target):
        raise InvalidRequestError(
            f"{target} and {path} are nested: choose another place", path=target
        )
    if fs.exists(target):
        raise InvalidRequestError(f"{target} exists: a fork wants a new directory", path=target)


def _check_pairs(
    log: Path | None,
    new_log: Path | None,
    output: Path | None,
    new_output: Path | None,
    fs: FileSystem,
) -> None:
    if (log is None) != (new_log is None):
        raise InvalidRequestError("give both log and new_log, or none of them")
    if (output is None) != (new_output is None):
        raise InvalidRequestError("give both output and new_output, or none of them")
    if log is not None and new_log is not None:
        _check_homes(log, new_log, fs)


def _check_homes(log: Path, new_log: Path, fs: FileSystem) -> None:
    """Check that a fork has the same kind of home as the original."""
    if url_of(log, fs=fs) is None:
        check_log_dirs(new_log, "a fork of log dirs is made in directories beside them", fs)
    elif url_of(new_log, mode="rw", fs=fs) is None:
        raise InvalidRequestError(
            f"{os.fspath(log)} is a log in a store, so its fork is one, too: give new_log a URL of "
            "the same service",
            path=os.fspath(new_log),
        )


def _fork_log(
    log: Path,
    new_log: Path,
    writer: str | None,
    batch: int,
    storage_options: Mapping[str, Any] | None,
    fs: FileSystem,
    clock: Clock,
) -> None:
    if url_of(log, fs=fs) is None:
        fork_log(log, new_log, writer=writer, batch=batch, fs=fs, clock=clock)
        return
    fork_in_store(
        os.fspath(log), os.fspath(new_log), writer=writer, batch=batch,
        storage_options=storage_options, clock=clock,
    )  # fmt: skip
