"""`verify(..., repair=True)`: removes damaged records, and rebuilds small damaged files.

In runs, a repair begins a run with the files that can be read.

A damaged segment is written again without the damage, synced and renamed into place. The original
stays as `<segment>.log.damaged`, which is never read, until the user removes it. A record with
known bytes in spite of the damage (damaged_records.py) is corrected and stays at its offset.
"""

import contextlib
import os
from typing import Final

import numpy as np

from sparklog.checkpoint.files import Checkpoint, is_damaged_marker
from sparklog.checkpoint.log_backed.damaged_records import DamagedRecord, examine
from sparklog.checkpoint.log_backed.layout import RESET, path_of
from sparklog.checkpoint.log_backed.lock import CheckpointLock, restarted_since
from sparklog.checkpoint.log_backed.metadata_marker import METADATA_FILE, replace_marker
from sparklog.checkpoint.log_backed.partition import (
    CheckpointPartition,
    CheckpointSegment,
    epochs_of,
    partition_dirs,
)
from sparklog.checkpoint.log_backed.partition_writer import FileWriter, copy_ranges
from sparklog.checkpoint.running_query import report_concurrent_cleanup
from sparklog.checkpoint.stored_copies import ChangedRuns, runs_of
from sparklog.checkpoint.stored_runs import RunFiles
from sparklog.checkpoint.truncated_copy import copy_mode_and_owner
from sparklog.checkpoint.truncation import Truncation
from sparklog.clock import system_clock
from sparklog.errors import DataCorruptionError, InvalidRequestError, StorageUnavailableError
from sparklog.format.checkpoint_files import Epochs
from sparklog.format.names import CLEANED, log_name
from sparklog.fs import FileSystem, read_bytes
from sparklog.logdir.partition.leader_epochs import write_epochs
from sparklog.service.verification.findings import Finding, Severity
from sparklog.storage.leader_epochs import assigned

DAMAGED: Final = ".damaged"


def repair(checkpoint: Checkpoint) -> list[Finding]:
    """Remove the damaged records of a checkpoint's log dir. The query must not run.

    Returns:
        The findings, all `repaired`: the losses, with offsets, and the corrections.

    Raises:
        LogLockedError: The query is running.
        DataCorruptionError: The list of files of a checkpoint in runs is damaged. Nothing is
            changed.
        StorageUnavailableError: The disk fails. Each segment is either rewritten or unchanged.

    Cost:
        Reads the log dir, or all files in runs, and writes damaged segments again.
    """
    runs = runs_of(checkpoint)
    if runs is not None:
        return _repair_runs(checkpoint, runs)
    if not checkpoint.is_log_backed:
        return []
    found: list[Finding] = []
    fs = checkpoint.fs
    with CheckpointLock(fs, checkpoint.logs, create=True) as lock:
        lock.take_running("repair it")
        for name in partition_dirs(fs, checkpoint.logs):
            with lock.partition(name):
                # The epochs come first, because the examination of segments needs the partition's
                # epoch.
                found += _repair_epochs(fs, os.path.join(checkpoint.logs, name))
                found += _repair(fs, os.path.join(checkpoint.logs, name), checkpoint.logs)
        found += _repair_marker(checkpoint)
    return found


def _repair_runs(checkpoint: Checkpoint, runs: RunFiles) -> list[Finding]:
    """Begin a run without the files that can't be read."""
    run = ChangedRuns(runs, "repair", system_clock)
    lost: dict[str, Exception] = {}
    for path in checkpoint.paths():
        try:
            checkpoint.read(path)
        except (DataCorruptionError, FileNotFoundError) as error:
            lost[path] = error
    found = [
        Finding(
            severity=Severity.DAMAGE, file=each.path or "", position=each.position, repaired=True,
            what="the files behind this position were removed from the checkpoint, and are lost",
        )
        for each in runs.damage
    ]  # fmt: skip
    found += [
        Finding(
            severity=Severity.DAMAGE, file=checkpoint.real(path), repaired=True,
            what=f"the file was removed from the checkpoint, and is lost: {error}",
        )
        for path, error in lost.items()
    ]  # fmt: skip
    if not found:
        return []
    is_index = any("/index-" in each.file for each in found)
    if is_index or not checkpoint.exists(METADATA_FILE):
        raise DataCorruptionError(
            "the list of all files is damaged, so a repair would lose the state; restore the "
            "object from a copy or from an older version of the bucket",
            path=found[0].file, position=found[0].position,
        )  # fmt: skip
    try:
        reset = {RESET: runs.get(RESET)}
    except (FileNotFoundError, DataCorruptionError):
        reset = {}
    with report_concurrent_cleanup(checkpoint.path):
        run.write(checkpoint, Truncation(-1, frozenset(lost)), reset)
    return found


def _repair_marker(checkpoint: Checkpoint) -> list[Finding]:
    """Replace a damaged metadata marker, the file that makes Spark's own checkpoint manager fail.

    Spark's own file `metadata` is never changed.
    """
    fs, path = checkpoint.fs, checkpoint.real(METADATA_FILE)
    is_beside = checkpoint.is_record(METADATA_FILE) and METADATA_FILE in checkpoint.files()
    if not is_beside or not is_damaged_marker(read_bytes(fs, path)):
        return []
    replace_marker(fs, checkpoint.path)
    return [Finding(
        severity=Severity.DIFFERENCE, file=path, repaired=True,
        what="the damaged marker of the log-backed checkpoint was written again",
    )]  # fmt: skip


def _repair_epochs(fs: FileSystem, directory: str) -> list[Finding]:
    """Rebuild a damaged leader epoch file from the records, with a new epoch for the next record.

    The last epoch is new because the file may have had an epoch without a record.
    """
    try:
        epochs_of(fs, directory)
        return []
    except DataCorruptionError as error:
        path = error.path
    _set_aside(fs, path)
    # `CheckpointPartition` reads this file as well, and would raise the same error again.
    write_epochs(fs, directory, [])
    with contextlib.suppress(DataCorruptionError):  # verify reports damaged segments
        partition = CheckpointPartition(fs, directory, lenient=True)
        entries: Epochs = []
        for table in (table for segment in partition.segments for table in segment.tables):
            for row in table[np.flatnonzero(np.diff(table["leader_epoch"], prepend=-1))]:
                entries = assigned(entries, int(row["leader_epoch"]), int(row["base_offset"]))
        newest = entries[-1][0] + 1 if entries else 0
        write_epochs(fs, directory, assigned(entries, newest, partition.next_offset))
    what = f"the leader epochs were written again; the damaged file remains as {path}{DAMAGED}"
    return [Finding(severity=Severity.DIFFERENCE, file=path, repaired=True, what=what)]


def _repair(fs: FileSystem, directory: str, logs: str) -> list[Finding]:
    name = os.path.basename(directory)
    try:
        path_of(name, "")
        partition = CheckpointPartition(fs, directory, lenient=True)
    except (InvalidRequestError, DataCorruptionError):  # verify reports a foreign partition
        return []
    found = []
    for segment in partition.segments:
        lost = list(segment.damaged)
        if segment.is_torn and not segment.is_short and not restarted_since(fs, logs):
            first, epoch, tag = segment.next_offset, partition.epoch, partition.tag
            with fs.open(partition.path(segment)) as file:
                raw = file.pread(segment.size - segment.end, segment.end)
            at = segment.end
            lost += examine(raw, position=at, first=first, end=first + 1, epoch=epoch, tag=tag)
        if lost:
            found += [_finding(partition, segment, each) for each in lost]
            _rewrite(partition, segment, lost)
    return found


def _finding(
    partition: CheckpointPartition, segment: CheckpointSegment, lost: DamagedRecord
) -> Finding:
    name = os.path.basename(partition.directory)
    severity, aside = Severity.DAMAGE, f"its bytes remain in {log_name(segment.base)}{DAMAGED}"
    if lost.corrected is not None and lost.key is not None:
        severity = Severity.DIFFERENCE
        what = f"a damaged record of {path_of(name, lost.key)} was corrected completely"
    elif lost.key is None:
        what = f"a damaged record of an unknown file was removed and is lost; {aside}"
    else:
        entry = partition.entries.get(lost.key)
        what = f"a damaged record of {path_of(name, lost.key)} was removed"
        if entry is not None and (entry.base, entry.position) > (segment.base, lost.position):
            severity = Severity.LEFTOVER
            what += f"; no data are lost, because a newer record of the file follows; {aside}"
        else:
            what += f" and is lost; {aside}"
    return Finding(
        severity=severity, what=what, file=partition.path(segment), position=lost.position,
        first=lost.first, end=lost.end, repaired=True,
    )  # fmt: skip


def _rewrite(
    partition: CheckpointPartition, segment: CheckpointSegment, lost: list[DamagedRecord]
) -> None:
    """Rewrite a segment without the damage, and rename the original."""
    fs, path = partition.fs, partition.path(segment)
    with fs.open(path) as source:
        output = FileWriter(fs, path + CLEANED)
        at = 0
        for each in sorted(lost, key=lambda one: one.position):
            copy_ranges(source, [(at, each.position)], output.write)
            if each.corrected is not None:
                output.write(each.corrected)
            at = each.position + each.size
        # A damaged tail starts at `segment.end`, so `at` may be behind that position.
        copy_ranges(source, [(at, max(at, segment.end))], output.write)
        output.close()
    copy_mode_and_owner(fs, path + CLEANED, path)
    _set_aside(fs, path)
    fs.rename(path + CLEANED, path)
    fs.sync_dir(partition.directory)


def _set_aside(fs: FileSystem, path: str) -> None:
    """Give the original segment a second name, or copy it if the file system has no hard links."""
    aside, number = path + DAMAGED, 1
    while fs.exists(aside):
        number += 1
        aside = f"{path}{DAMAGED}.{number}"
    try:
        # A second name, and not a rename: the segment must not be missing under its own name, even
        # if the repair crashes before the new segment is in place.
        fs.link(path, aside)
    except StorageUnavailableError:
        with fs.open(path) as source:
            output = FileWriter(fs, aside)
            copy_ranges(source, [(0, source.size())], output.write)
            output.close()
    fs.sync_dir(os.path.dirname(path))
