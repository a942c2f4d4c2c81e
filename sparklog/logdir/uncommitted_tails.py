"""Moves uncommitted bytes after the end of a cleanly closed log to quarantine.

A clean close leaves files that end at the ledger's offsets. Bytes after these offsets were never
committed: another program copied or appended them. Appends would turn them into records, so opening
the log for writing moves them to quarantine files first.

If no broker can have written since the close, all such bytes are moved. After a handover a broker
may have appended records, and a power cut may have restored sparklog's clean mark. Then only bytes
that do not start with a complete batch of the next offset are moved.
Source: PROTOCOL, "Open for writing".
"""

import logging
import os
from collections.abc import Collection, Sequence
from contextlib import suppress
from typing import Final

from sparklog.common import TopicPartition
from sparklog.errors import DataCorruptionError
from sparklog.format.names import log_name, parse_base
from sparklog.fs import FileSystem
from sparklog.log.batch_windows import walk
from sparklog.logdir.broker_lockout import was_closed_by_us
from sparklog.logdir.commit_log import LogDirCommits
from sparklog.logdir.high_watermarks import published
from sparklog.logdir.ledger import LEDGER, whole_end
from sparklog.logdir.meta_properties import is_kept_from_brokers
from sparklog.logdir.offset_checkpoints import HIGH_WATERMARK, RECOVERY_POINT, read_offsets
from sparklog.logdir.partition.partition_log import PartitionLog
from sparklog.logdir.quarantined_files import QuarantinedFiles
from sparklog.logdir.segment_files import joined, segment_bases

_LOGGER: Final = logging.getLogger(__name__)


def is_untouched(fs: FileSystem, directories: Sequence[str]) -> bool:
    """Return whether no broker can have written since sparklog's last clean close."""
    locked_out = all(is_kept_from_brokers(fs, directory) for directory in directories)
    return locked_out and was_closed_by_us(fs, directories)


def committed_ledger_end(fs: FileSystem, home: str, directories: Sequence[str]) -> int:
    """Return the ledger's end after a clean close: `whole_end`, or the published end if lower.

    The close writes the end into three files. A record is uncommitted only if all of them end
    before the record. A single file may be an older copy that ends earlier.

    Raises:
        DataCorruptionError: The ledger is damaged.
    """
    end = whole_end(fs, home)
    marks = published(fs, home)
    if marks is None or not is_untouched(fs, directories):
        return end
    ends = [marks.ends.get(LEDGER, 0)]
    try:
        ends += [
            read_offsets(fs, home, name).get(LEDGER, 0) for name in (RECOVERY_POINT, HIGH_WATERMARK)
        ]
    except DataCorruptionError:
        return end
    # A file that was restored from a copy ends earlier, so only the agreement of all three files
    # proves that later records are uncommitted.
    return max(ends) if all(0 < closed < end for closed in ends) else end


def remove_tails(commits: LogDirCommits, partitions: Collection[TopicPartition]) -> None:
    """Move bytes after the ends of the ledger and of `partitions` to quarantine.

    Call this under the write lock, before the guard is created, and only after sparklog's own clean
    close. Cost: a listing and a stat per partition.
    """
    fs = commits.fs
    untouched = is_untouched(fs, commits.offline.dirs.own)
    logs = {LEDGER: commits.ledger.log}
    for key in partitions:
        with suppress(DataCorruptionError):  # `is_unchanged` detects the damage again
            logs[key] = commits.partition_log(*key)
    moved: list[str] = []
    for key, log in logs.items():
        with suppress(DataCorruptionError, FileNotFoundError):
            if untouched and log.is_foreign:
                commits.offline.add(key, log.foreign_error())
                continue
            _remove_tail(fs, log, QuarantinedFiles(fs, commits.clock(), moved), untouched)
    for line in moved:
        _LOGGER.warning("%s: %s, because it is after the committed end", commits.home, line)
    if moved:
        commits.manager.forget_writers()


def _remove_tail(
    fs: FileSystem, log: PartitionLog, quarantine: QuarantinedFiles, untouched: bool
) -> None:
    state, end = log.state, log.end_offset
    if state.end != end:
        return  # records are missing
    log_dir = os.path.dirname(log.path)
    if untouched:
        for base in segment_bases(fs, log.path):
            if base > end:
                _set_aside(fs, log.path, base, quarantine)
    path = joined(log.path, log_name(state.base))
    if fs.size(path) > state.size and (untouched or not _is_continued(fs, path, state.size, end)):
        quarantine.move_tail(path, log_dir, state.size)


def _set_aside(fs: FileSystem, directory: str, base: int, quarantine: QuarantinedFiles) -> None:
    names = [name for name in fs.listdir(directory) if parse_base(name) == base]
    for name in sorted(names, key=lambda name: name == log_name(base)):  # the log last
        quarantine.move(joined(directory, name), os.path.dirname(directory))


def _is_continued(fs: FileSystem, path: str, position: int, end: int) -> bool:
    """Return whether the bytes of a segment from `position` on may be a broker's records.

    They begin with a complete batch, whose offset is `end` or higher.
    """
    with fs.open(path) as file:
        for window in walk(file, start=position):
            if len(window.batches):
                return int(window.batches.table["base_offset"][0]) >= end
    return False
