"""Removes what lies behind the committed ends of a log that was closed cleanly.

A clean close leaves files that end where the ledger says. Bytes behind that were never committed:
somebody copied or appended them. They would be taken for records once the log grows over them, so
who opens the log for writing moves them to quarantine first.

Where no broker can have been here since the close, all of them go. After a handover a broker may
have appended, and a power cut may have brought our clean mark back: then only what can't be a
broker's goes, bytes that don't begin with a whole batch of the next offset.
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
from sparklog.logdir.partition.partition_log import PartitionLog
from sparklog.logdir.quarantined_files import QuarantinedFiles
from sparklog.logdir.segment_files import joined, segment_bases

_LOGGER: Final = logging.getLogger(__name__)


def is_untouched(fs: FileSystem, directories: Sequence[str]) -> bool:
    """Tell whether no broker can have written since our last clean close."""
    kept = all(is_kept_from_brokers(fs, directory) for directory in directories)
    return kept and was_closed_by_us(fs, directories)


def committed_ledger_end(fs: FileSystem, home: str, directories: Sequence[str]) -> int:
    """Return the ledger's end: `whole_end`, or what our clean close published if that is less.

    Raises: DataCorruptionError.
    """
    end = whole_end(fs, home)
    marks = published(fs, home)
    closed = None if marks is None else marks.ends.get(LEDGER)
    if closed is not None and 0 < closed < end and is_untouched(fs, directories):
        return closed
    return end


def remove_tails(session: LogDirCommits, partitions: Collection[TopicPartition]) -> None:
    """Move what lies behind the ledger's end and those of `partitions` to quarantine.

    Under the lock, before the guard is made, and only after our own clean close. Cost: a stat for
    each partition whose writer is opened anyway.
    """
    fs = session.fs
    untouched = is_untouched(fs, session.dirs.own(session.directories))
    logs = {LEDGER: session.ledger.log}
    for key in partitions:
        with suppress(DataCorruptionError):  # it is told when the partition is looked at
            logs[key] = session.writer(*key)
    moved: list[str] = []
    for log in logs.values():
        with suppress(DataCorruptionError, FileNotFoundError):
            _remove_tail(fs, log, QuarantinedFiles(fs, session.clock(), moved), untouched)
    for what in moved:
        _LOGGER.warning("%s: %s: it lay behind the committed end", session.home, what)
    if moved:
        session.forget_writers()


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
    if fs.size(path) > state.size and (untouched or not _goes_on(fs, path, state.size, end)):
        quarantine.move_tail(path, log_dir, state.size)


def _set_aside(fs: FileSystem, directory: str, base: int, quarantine: QuarantinedFiles) -> None:
    names = [name for name in fs.listdir(directory) if parse_base(name) == base]
    for name in sorted(names, key=lambda name: name == log_name(base)):  # the log goes last
        quarantine.move(joined(directory, name), os.path.dirname(directory))


def _goes_on(fs: FileSystem, path: str, position: int, end: int) -> bool:
    """Tell whether a whole batch of offset `end` or behind lies at a byte of a segment."""
    with fs.open(path) as file:
        for window in walk(file, start=position):
            if len(window.batches):
                return int(window.batches.table["base_offset"][0]) >= end
    return False
