"""Finds files that don't belong to a log, and files that loading the log would change."""

import os
from collections.abc import Collection, Sequence
from typing import Final

from sparklog.format.names import (
    CLEANED,
    DELETED,
    EPOCH_CHECKPOINT,
    INDEX,
    LOG,
    PARTITION_METADATA,
    SNAPSHOT,
    SWAP,
    TIMEINDEX,
    TXNINDEX,
    log_name,
    parse_base,
    parse_partition_dir,
    partition_dir,
)
from sparklog.fs import FileSystem
from sparklog.logdir.broker_lockout import OPEN_MARKER_NAME
from sparklog.logdir.chunk_files import CHUNK_PREFIX
from sparklog.logdir.partition.producer_snapshots import is_whole, stray_offsets
from sparklog.logdir.quarantined_files import QUARANTINE_PREFIX
from sparklog.logdir.recovery.leftover_files import orphaned_indexes
from sparklog.logdir.segment_files import bases_of, joined
from sparklog.pluralize import pluralize
from sparklog.service.verification.findings import Findings, FixKind, Severity
from sparklog.service.verification.log_dir_state import ExpectedPartition, Situation

_CUT_FROM: Final = 251  # a quarantined file's name of this length may be truncated
_PARTS: Final = (LOG, INDEX, TIMEINDEX, TXNINDEX, SNAPSHOT)
_WAITING: Final = (CLEANED, SWAP)
_KEPT_BY_BROKERS: Final = frozenset({"remote-log-index-cache"})
_RETIRED: Final = ("-delete", "-stray", "-future")


def check_partition_files(
    fs: FileSystem, part: ExpectedPartition, names: Sequence[str], end: int, out: Findings
) -> None:
    """Report files in a partition's directory that are not part of its segments."""
    bases = bases_of(list(names))
    start = max(part.start, bases[0] if bases else 0)
    stray = set(stray_offsets(list(names), bases, end=end, start=start))
    live, orphans = part.situation.is_live, set(orphaned_indexes(names))
    if retired := sum(name.endswith(DELETED) for name in names):
        what = f"{pluralize(retired, 'retired file')}; the next load of the partition removes them"
        _note(out, part.path, what, None)
    for name in names:
        path, base = joined(part.path, name), parse_base(name)
        if name in (PARTITION_METADATA, EPOCH_CHECKPOINT) or name.endswith(DELETED):
            continue
        if name.endswith(_WAITING):
            if not live:
                _note_waiting(out, part, path)
        elif base is None and name.endswith(_PARTS):
            out.add(
                Severity.DIFFERENCE, path, "no offset in its name: a broker fails to load the log",
                fix=FixKind.ASIDE,
            )  # fmt: skip
        elif base is None or not name.endswith(_PARTS) or name != f"{base:020d}{_suffix(name)}":
            if not (live and name.endswith(".tmp")):
                _note_foreign(fs, out, path)
        elif name.endswith(SNAPSHOT):
            if base in stray and base > start and not live:
                _note_stray(fs, out, part, path)
        elif name in orphans and not live:
            if part.situation is Situation.CLOSED and base < part.gaps_below:
                _check_log_is_missing(out, part, names, base)
            # While records are missing, the index shows `status` which file they were in.
            fix = None if _is_missing(out, base) else FixKind.ASIDE
            _note(out, path, "an index without a log", fix)


def _check_log_is_missing(
    out: Findings, part: ExpectedPartition, names: Sequence[str], base: int
) -> None:
    """Report a segment of a compacted partition with indexes and without a `.log`.

    Offsets may be missing in a compacted partition, so only the indexes show the loss. The cleaner
    deletes both indexes.
    """
    bases = bases_of(list(names))
    whole = {f"{base:020d}{suffix}" for suffix in (INDEX, TIMEINDEX)} <= set(names)
    if whole and bases and bases[0] < base < part.end and not _is_missing(out, base):
        out.add(
            Severity.DAMAGE, joined(part.path, log_name(base)),
            "it is missing, though its indexes are there; restore the file from a copy",
            first=base, end=next((following for following in bases if following > base), part.end),
        )  # fmt: skip


def _is_missing(out: Findings, offset: int) -> bool:
    """Return True if damage that was found before covers the offset."""
    return any(
        found.severity is Severity.DAMAGE
        and found.first is not None
        and found.end is not None
        and found.first <= offset < found.end
        for found in out.found
    )


def _suffix(name: str) -> str:
    return os.path.splitext(name)[1]


def _note(out: Findings, path: str, what: str, fix: FixKind | None) -> None:
    out.add(Severity.LEFTOVER, path, what, fix=fix)


def _note_stray(fs: FileSystem, out: Findings, part: ExpectedPartition, path: str) -> None:
    """Report a snapshot without a segment. A broker's next start prunes its own."""
    if not is_whole(fs, path):
        _note(out, path, "a snapshot of no segment, and damaged", FixKind.ASIDE)
    elif part.situation is Situation.CLOSED:
        _note(out, path, "a snapshot of no segment", FixKind.ASIDE)


def _note_waiting(out: Findings, part: ExpectedPartition, path: str) -> None:
    """Report a cleaner's file that is unfinished, or waits for the load that completes a swap."""
    if part.situation is Situation.CRASHED:
        _note(out, path, "of a cleaner that died", FixKind.OPEN)
    elif path.endswith(CLEANED) and part.situation.is_clean:
        _note(out, path, "of a cleaner that never finished", FixKind.ASIDE)
    elif part.situation.is_clean:
        out.add(
            Severity.DIFFERENCE, path, "loading would put it in a segment's place",
            fix=FixKind.ASIDE,
        )  # fmt: skip
    else:
        _note(out, path, "of a cleaner; the broker's next start settles it", None)


def _note_foreign(fs: FileSystem, out: Findings, path: str) -> None:
    if fs.is_dir(path):
        _note(out, path, "a directory, which no log has", None)
    else:
        _note(out, path, "no file of a log", FixKind.ASIDE)


def is_quarantined_of(name: str, topic: str, partitions: Collection[int]) -> bool:
    """Return True if a quarantined file came from any of these partitions of a topic.

    The file is named by its time and place. The beginning of a long name is cut
    (`QuarantinedFiles`), so the file may be of any topic.
    """
    place = name.removeprefix(QUARANTINE_PREFIX).partition("-")[2]
    if not name.startswith(QUARANTINE_PREFIX):
        return False
    if len(name) >= _CUT_FROM:
        return any(f"-{p}-" in place for p in partitions)
    return any(place.startswith(f"{partition_dir(topic, p)}-") for p in partitions)


def check_log_dir(
    fs: FileSystem,
    directory: str,
    situation: Situation,
    out: Findings,
    *,
    deleted: Collection[str] = (),
) -> None:
    """Report files in a log dir that are neither partitions nor checkpoints.

    `deleted` has the directories of topics that can be undeleted.
    """
    for name in fs.listdir(directory):
        path = joined(directory, name)
        if path in deleted:
            continue
        if name.startswith(QUARANTINE_PREFIX):
            _note(out, path, "set aside by a repair; delete it once nobody misses it", None)
        elif name.startswith(CHUNK_PREFIX):
            if situation is not Situation.OPEN:
                _note(out, path, "a chunk that was never committed; swept after a week", None)
        elif fs.is_dir(path):
            _check_directory(out, path, name, situation)
        elif name.endswith(".tmp") and not situation.is_live:
            _note(out, path, "a write that was cut", FixKind.ASIDE)


def _check_directory(out: Findings, path: str, name: str, situation: Situation) -> None:
    if parse_partition_dir(name) is not None or name in _KEPT_BY_BROKERS:
        return
    if name == OPEN_MARKER_NAME:
        if situation is Situation.CRASHED:
            _note(out, path, "the log was not closed; brokers refuse it", FixKind.OPEN)
        elif situation is not Situation.OPEN:
            _note(out, path, "a guard in this log dir only", None)
    elif name.endswith(_RETIRED) and "." in name:
        _note(out, path, "a partition that was retired or set aside", None)
    else:
        out.add(
            Severity.WARNING, path, "not a partition's name: a broker refuses to start on this dir"
        )
