"""Remove expired producers, unused snapshots, expired ledger segments and staged files.

The service calls these functions once per round. Each searches without the lock, takes the lock
briefly only if there is work, and checks again under the lock. Each function can be interrupted at
any point. With `dry_run` the log stays unchanged, and the same result is returned.
"""

import contextlib
import logging
from dataclasses import dataclass
from itertools import pairwise
from typing import Final, NamedTuple

from sparklog.common import TopicPartition
from sparklog.errors import StorageUnavailableError
from sparklog.format.names import log_name, snapshot_name
from sparklog.log.batch_windows import first_timestamp
from sparklog.logdir.chunk_files import dead_chunks
from sparklog.logdir.commit_log import LogDirCommits
from sparklog.logdir.ledger import LEDGER, ledger_bases, ledger_path
from sparklog.logdir.partition.producer_snapshots import floor_of, snapshot_offsets, stray_offsets
from sparklog.logdir.recovery.leftover_files import segment_names
from sparklog.logdir.segment_files import bases_of, joined
from sparklog.logdir.topics_file import partition_path

LEDGER_SEGMENTS_KEPT: Final = 2
"""The active segment, and the previous segment, in case a power cut undoes the last roll."""

_GRACE_MS: Final = 600_000  # an abandoned task may still write its file
_LOGGER: Final = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class LedgerSegment:
    """A segment of the ledger.

    Attributes:
        base: The base offset.
        end: The offset after the last record.
        size_bytes: The size of the log file.
        newest_ms: A time (ms) that no record of the segment exceeds.
    """

    base: int
    end: int
    size_bytes: int
    newest_ms: int


def expire_ledger(
    commits: LogDirCommits, *, retention_ms: int, now_ms: int, dry_run: bool = False
) -> list[LedgerSegment]:
    """Delete and return ledger segments with only records older than `retention_ms`.

    The newest two segments stay. Commits need no older segment: each segment starts with a snapshot
    of the complete state, including the last micro-batch of each writer, so a replay of this
    micro-batch is still recognized; a replay of an older micro-batch raises BatchConflictError.
    `Log.commits` starts later.
    Cost: per segment, three unlinks and an fsync of the directory, under the lock.
    """
    old = _old_segments(commits, now_ms - retention_ms)
    if dry_run:
        return old
    expired = []
    path = ledger_path(commits.home)
    for segment in old:
        with commits.exclusive():
            bases = ledger_bases(commits.fs, commits.home)
            # Another service may have deleted segments since the search, which ran without the
            # lock.
            if len(bases) <= LEDGER_SEGMENTS_KEPT or bases[0] != segment.base:
                break  # another process deletes them
            for name in segment_names(segment.base):
                with contextlib.suppress(FileNotFoundError):
                    commits.fs.unlink(joined(path, name))
            commits.fs.sync_dir(path)  # in order, so that a power cut leaves no hole
        expired.append(segment)
        _LOGGER.info("%s: offsets [%d, %d) expired", path, segment.base, segment.end)
    return expired


def _old_segments(commits: LogDirCommits, before_ms: int) -> list[LedgerSegment]:
    """Return the segments with only records older than `before_ms`, without the newest two."""
    fs, path = commits.fs, ledger_path(commits.home)
    found = []
    for base, following in pairwise(ledger_bases(fs, commits.home)[: 1 - LEDGER_SEGMENTS_KEPT]):
        try:
            # The next segment's snapshot is younger than every record of this segment, so this
            # segment need not be read.
            newest_ms = _first_time(commits, following)
            size = fs.size(joined(path, log_name(base)))
        except FileNotFoundError:
            break
        if newest_ms is None or newest_ms >= before_ms:
            break
        found.append(LedgerSegment(base, following, size, newest_ms))
    return found


def _first_time(commits: LogDirCommits, base: int) -> int | None:
    """Return the time of a ledger segment's snapshot; no earlier record is newer.

    Returns None if the snapshot is damaged. Times in the ledger never decrease (PROTOCOL, H14).
    """
    with commits.fs.open(joined(ledger_path(commits.home), log_name(base))) as file:
        return first_timestamp(file, check_crc=True)


def expire_producers(commits: LogDirCommits, *, now_ms: int) -> int:
    """Forget producers that were idle for producer.id.expiration.ms; return their number.

    Only producers of cached partitions are removed; other partitions expire producers when loaded.
    As in Kafka, idle time counts from the newest batch, and producers with an open transaction
    stay. The check runs every 600000 ms (producer.id.expiration.check.interval.ms). Source:
    ProducerStateManager.
    """
    with commits.exclusive():
        return sum(log.expire_producers(now_ms) for log in commits.manager.writers.opened())


def prune_snapshots(commits: LogDirCommits, *, dry_run: bool = False) -> list[str]:
    """Delete producer snapshots that belong to no segment, as Kafka does on loading.

    Each clean close writes a snapshot at the log's end, which is useless once the log has grown
    past a segment's end. Snapshots of segments are deleted with them. The newest snapshot past the
    last segment's base stays. Returns the paths.
    Cost: a listing per partition without the lock; the lock for each partition with such snapshots.
    """
    with commits.exclusive():
        state = commits.state
        topics, starts, ends = dict(state.topics), dict(state.starts), dict(state.ends)
        ledger_end = commits.ledger.end
    strays = _strays(commits, ledger_path(commits.home), 0, ledger_end)
    pruned = _prune(commits, LEDGER, strays, dry_run=dry_run)
    for key, end in ends.items():
        path = partition_path(commits.directories, key.topic, topics[key.topic], key.partition)
        strays = _strays(commits, path, starts.get(key, 0), end)
        pruned += _prune(commits, key, strays, dry_run=dry_run)
    return pruned


def _prune(
    commits: LogDirCommits, key: TopicPartition, found: list[str], *, dry_run: bool
) -> list[str]:
    """Delete a partition's snapshots that belong to no segment; return their paths.

    They are searched again under the lock. `found` are the paths found without the lock, which are
    returned in a dry run.
    """
    if not found or dry_run:
        return found
    with commits.exclusive():
        state = commits.state
        if key == LEDGER:
            path, start, end = ledger_path(commits.home), 0, commits.ledger.end
        elif key in state.ends:
            path = commits.partition_path(*key)
            start, end = state.starts.get(key, 0), state.ends[key]
        else:
            return []  # deleted by another process
        found = _strays(commits, path, start, end)
        for stray in found:
            commits.fs.unlink(stray)
    return found


def _strays(commits: LogDirCommits, path: str, start: int, end: int) -> list[str]:
    """Return the paths of a partition's producer snapshots that belong to no segment.

    `start` and `end` are the log start and end offset. The newest snapshot up to the end is not
    listed.
    """
    try:
        names = commits.fs.listdir(path)
    except FileNotFoundError:
        return []
    bases = bases_of(names)
    known = snapshot_offsets(names)
    if not bases or not known:
        return []
    newest = max((offset for offset in known if offset <= end), default=end)
    # The newest snapshot saves the replay of the active segment at the next open.
    kept = [*bases, newest] if newest > bases[-1] else bases
    strays = stray_offsets(names, kept, end=end, start=floor_of(start, bases))
    # A snapshot past the end belongs to a roll in progress; recovery handles it.
    return [joined(path, snapshot_name(offset)) for offset in strays if offset <= end]


class Swept(NamedTuple):
    """A staged file that was deleted, or in a dry run would be."""

    path: str
    size_bytes: int


def sweep(commits: LogDirCommits, *, now_ms: int, dry_run: bool = False) -> list[Swept]:
    """Delete and return staged files that will not be committed.

    These are files of micro-batches that the writer has committed (from failed or slower attempts)
    and that were not written to for ten minutes, and all files older than a week.
    Cost: a listing of each log dir; the lock for a moment, to read the writers' last commits.
    """
    with commits.exclusive():
        writers = {name: last.batch for name, last in commits.state.writers.items()}
    swept = []
    for path in dead_chunks(commits.fs, commits.present, writers, now_ms=now_ms):
        with contextlib.suppress(FileNotFoundError):
            if now_ms - commits.fs.mtime_ms(path) < _GRACE_MS:
                continue
            found = Swept(path, commits.fs.size(path))
            if not dry_run:
                try:
                    commits.fs.unlink(path)
                except StorageUnavailableError as error:
                    _LOGGER.warning("%s stays for now: %s", path, error)
                    continue
            swept.append(found)
    return swept
