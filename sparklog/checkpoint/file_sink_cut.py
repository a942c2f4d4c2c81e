"""Cuts a file sink's log to a batch, or copies it to the output directory of a forked query.

The new log is written as `_spark_metadata.next` beside the old log. Two renames put the new log in
place. Each rename can be repeated, so `finish_cut` completes a cut that was interrupted.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from sparklog.checkpoint.batches import Batches
from sparklog.checkpoint.files import local_path
from sparklog.checkpoint.query_sink import Announce, QuerySink, SinkKind
from sparklog.checkpoint.spark_files.file_sink_log import (
    SINK_LOG,
    FileSinkLog,
    compact_interval,
    file_of,
    moved,
    write_sink_log,
)
from sparklog.checkpoint.truncated_copy import CopyStats, copy_mode_and_owner, link_or_copy
from sparklog.errors import InvalidRequestError
from sparklog.fs import FileSystem
from sparklog.logdir.staged_directory import StagedDirectory, check_parent, remove_all
from sparklog.pluralize import pluralize

_NEXT: Final = f"{SINK_LOG}.next"
_BEFORE: Final = f"{SINK_LOG}.before"


@dataclass(frozen=True, slots=True)
class FileSinkCut:
    """A planned cut of a file sink's log to a batch.

    Attributes:
        output: The directory of the file sink.
        batch: The last batch that remains in the log.
        newest: The newest batch in the log before the cut.
        interval: After how many batches Spark compacts the log.
        entries: The entries that remain: the files of all batches up to `batch`.
    """

    fs: FileSystem
    output: str
    batch: int
    newest: int
    interval: int
    entries: list[dict[str, Any]]

    def stage(self) -> None:
        """Write the new log beside the old log; `finish_cut` puts the new log in place."""
        directory = os.path.join(self.output, _NEXT)
        # A reset that crashed may have left the log of another batch here.
        remove_all(self.fs, directory)
        write_sink_log(self.fs, directory, self.entries, self.batch, self.interval)
        model = os.path.join(self.output, SINK_LOG)
        copy_mode_and_owner(self.fs, directory, model)
        files = sorted(name for name in self.fs.listdir(model) if not name.startswith("."))
        for name in self.fs.listdir(directory):
            copy_mode_and_owner(
                self.fs, os.path.join(directory, name), os.path.join(model, files[0])
            )
        self.fs.sync_dir(self.output)

    def describe(self) -> str:
        """Return a sentence for the user."""
        if self.newest == self.batch:
            return f"Sink: {self.output} has no batch after {self.batch}; it stays as it is."
        return (
            f"Sink: {os.path.join(self.output, SINK_LOG)} is cut from batch {self.newest} to "
            f"{self.batch}, with {pluralize(len(self.entries), 'file')} left. Files of later "
            "batches stay in the directory, but are no longer part of the output; only readers "
            f"that ignore {SINK_LOG} see them."
        )


def plan_cut(batches: Batches, batch: int, output: str) -> FileSinkCut:
    """Choose the entries that remain in the file sink's log in `output` after a cut to `batch`.

    Raises:
        InvalidRequestError: The log can't be cut there.
        DataCorruptionError: A file of the log can't be read.
    """
    fs = batches.checkpoint.disk
    log = FileSinkLog.open(fs, output)
    entries = log.entries(batch, _end_ms(batches, batch))
    return FileSinkCut(fs, output, batch, log.newest, compact_interval(log.compacted), entries)


def _end_ms(batches: Batches, batch: int) -> int | None:
    """Return a time between the files of a batch and the files of the next batch, or None.

    Only the timestamp of a record is used: a copy of a checkpoint changes the times of files.
    """
    later = next((b for b in batches.planned if b > batch), None)
    if later is not None:
        return batches.offsets(later).timestamp_ms
    commit = batches.checkpoint.stat(f"commits/{batch}")
    return commit.mtime_ms + 1 if commit.is_record else None


def finish_cut(fs: FileSystem, output: str) -> None:
    """Put a staged log in place if there is a staged log. Idempotent."""
    current, following = os.path.join(output, SINK_LOG), os.path.join(output, _NEXT)
    before = os.path.join(output, _BEFORE)
    if fs.is_dir(following):
        # After a crash between the two renames there is no current log, and `before` contains the
        # old log, which stays until the new log is in place.
        if fs.is_dir(current):
            remove_all(fs, before)
            fs.rename(current, before)
        fs.rename(following, current)
        fs.sync_dir(output)
    remove_all(fs, before)


def plan_sink_cut(
    batches: Batches, batch: int, sink: QuerySink, announce: Announce | None
) -> FileSinkCut | None:
    """Report how the sink handles batches that run again, and plan the cut of a file sink."""
    cut = None
    if sink.kind is SinkKind.FILES and sink.output is not None:
        cut = plan_cut(batches, batch, sink.output)
    text = sink.effect(batch) if cut is None else cut.describe()
    if announce is not None and text:
        announce(text)
    return None if cut is None or cut.newest == batch else cut


def copy_output(batches: Batches, batch: int, output: str, new_output: str) -> None:
    """Create `new_output` with hard links to the files that the query wrote up to `batch`.

    Raises:
        InvalidRequestError: `new_output` exists or isn't local, or the log names a file outside of
            `output` or a missing file.
        DataCorruptionError: A file of the log can't be read.
    """
    cut, fs = plan_cut(batches, batch, output), batches.checkpoint.disk
    target = local_path(new_output)
    if target is None or fs.exists(target):
        raise InvalidRequestError(
            f"new_output must be a new directory on a local disk; got {new_output}",
            path=new_output,
        )
    check_parent(fs, target)
    with StagedDirectory(fs, target, "fork", inner="new") as staged:
        fs.mkdir(staged.directory)
        made, entries, stats = {""}, [], CopyStats()
        for entry in cut.entries:
            path = _relative(entry, output)
            _make_directories(fs, staged.directory, os.path.dirname(path), made)
            source = os.path.join(output, path)
            if not fs.exists(source):
                raise InvalidRequestError(
                    f"{source} is missing, but {SINK_LOG} of {output} names it: the output up to "
                    f"batch {batch} is incomplete and can't be copied",
                    path=source,
                )
            link_or_copy(fs, source, os.path.join(staged.directory, path), stats)
            entries.append(moved(entry, os.path.join(target, path)))
        log = os.path.join(staged.directory, SINK_LOG)
        write_sink_log(fs, log, entries, batch, cut.interval)
        for directory in sorted(made, reverse=True):
            fs.sync_dir(os.path.join(staged.directory, directory))
        staged.publish()


def _relative(entry: Mapping[str, Any], output: str) -> str:
    path = file_of(dict(entry))
    for root in (output, os.path.realpath(output)):
        if path.startswith(f"{root}/"):
            return path[len(root) + 1 :]
    raise InvalidRequestError(
        f"{SINK_LOG} of {output} names {path}, which is outside of that directory: the output "
        "was moved. Copy the output by hand, or start the query of the fork with a new checkpoint",
        path=output,
    )


def _make_directories(fs: FileSystem, root: str, directory: str, made: set[str]) -> None:
    if directory not in made:
        _make_directories(fs, root, os.path.dirname(directory), made)
        fs.mkdir(os.path.join(root, directory))
        made.add(directory)
