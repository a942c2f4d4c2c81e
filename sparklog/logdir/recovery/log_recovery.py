"""Crash recovery when the lock is taken: QUICK and FULL.

QUICK: the holder died in this boot, so the page cache has everything that it wrote, and its intent
describes the step. If its ledger record is complete, the step is completed; otherwise the step is
undone. QUICK takes milliseconds at any size. FULL: the machine may have lost unsynced data, or the
page is invalid. The ledger defines what is committed: below the committed ends all data must be
intact, and all data after the ends are removed. Source: PROTOCOL, "QUICK recovery".
"""

import logging
import os
import threading
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Final

from sparklog.common import TopicPartition
from sparklog.errors import DataCorruptionError
from sparklog.format.names import (
    index_name,
    log_name,
    parse_base,
    snapshot_name,
    timeindex_name,
)
from sparklog.format.scan import scan
from sparklog.fs import FileSystem, read_bytes
from sparklog.logdir.high_watermarks import published
from sparklog.logdir.intent import Intent
from sparklog.logdir.ledger import (
    fold,
    last_base,
    ledger_bases,
    ledger_config,
    ledger_path,
    replay,
)
from sparklog.logdir.ledger_end import checked_end
from sparklog.logdir.lock import Page
from sparklog.logdir.log_manager import LogManager
from sparklog.logdir.partition.directories import remove_tree
from sparklog.logdir.partition.repairs import remove
from sparklog.logdir.partition.segment_swap import settle
from sparklog.logdir.partition.truncation import truncate_to
from sparklog.logdir.recovery.partition_recovery import CommittedState, recover, valid_end
from sparklog.logdir.recovery.redo import publish_all, redo_all, settle_directories
from sparklog.logdir.recovery.single_partition import recover_partition, recovery_points
from sparklog.storage.ledger_records import AppendRecord, LedgerRecord
from sparklog.storage.log_state import LogState
from sparklog.storage.segments import StaleReadError

_LOGGER: Final = logging.getLogger(__name__)
_THREADS: Final = "sparklog-recovery"


def quick(manager: LogManager, page: Page) -> None:
    """Complete or undo the step of a holder that died in this boot. Idempotent.

    If files contradict the intent (restored from a copy, cut by hand), runs `full`.
    """
    try:
        _quick(manager, page)
    except (DataCorruptionError, StaleReadError, FileNotFoundError) as error:
        _LOGGER.warning("%s: the last step can't be undone (%s)", manager.home, error)
        full(manager)


def _quick(manager: LogManager, page: Page) -> None:
    fs, home = manager.fs, manager.home
    manager.era = page.era
    manager.offline.replace(page.offline)
    generation = max(page.generation, manager.generation)
    if make_durable(fs, home, page.ledger_end):
        manager.reload(page.ledger_end + 1, generation=generation, fresh=True)
        _LOGGER.warning("%s: completing the step of process %d, which died", home, page.pid)
        ((_, record),) = replay(fs, home, page.ledger_end, page.ledger_end + 1)
        redo_all(manager, record)
        publish_all(manager)
    else:
        manager.state = LogState()
        fold(fs, home, page.ledger_end, state=manager.state, first=None)
        _LOGGER.warning("%s: undoing the step of process %d, which died", home, page.pid)
        if page.intent is None:
            raise DataCorruptionError("the lock file lacks the step in progress", path=home)
        undo(manager, page.intent)
        manager.reload(page.ledger_end, generation=generation, fresh=True)
    manager.idle()


def undo(manager: LogManager, intent: Intent) -> None:
    """Return the ledger and all logs in the intent to their state before the step. Idempotent.

    The ledger is truncated first, so that no process finds a record without data: the step's record
    may be complete although its fsync failed. `manager.state` must be the state before the step.
    """
    fs = manager.fs
    # The ledger first, so that no process finds a record without data.
    truncate_to(fs, ledger_path(manager.home), intent.ledger)
    for key, state in intent.logs.items():
        truncate_to(fs, manager.partition_path(*key), state)
    for path in intent.making:
        remove_tree(fs, path)
    if intent.swap is not None:
        key, swap = intent.swap
        settle(fs, manager.partition_path(*key), swap)


def full(manager: LogManager) -> bool:
    """Recover every partition from the files alone; return True if commits were lost.

    Commits can be lost only with flush=none. Cost: a CRC scan from the recovery points.
    """
    fs, home = manager.fs, manager.home
    manager.offline.clear()
    manager.offline.read_dirs()
    end = checked_end(fs, home)
    _LOGGER.warning("%s: recovering after an unclean stop; ledger end %d", home, end)
    state = LogState()
    fold(fs, home, end, state=state, first=None)
    found_end = end
    end = _durable_prefix(manager, state, end)
    recover(
        fs,
        ledger_path(home),
        ledger_config(),
        manager.clock,
        CommittedState(
            end=end,
            start=ledger_bases(fs, home)[0],  # older segments may have expired
            recovery_point=_recovery_point(fs, home, end),
        ),
    )
    _remove_empty_segments(fs, ledger_path(home), end)
    make_durable(fs, home, end - 1)
    # The new era makes other sessions drop their fold of the ledger, whose tail may have been cut.
    generation = manager.era = max(manager.generation + 1, manager.clock() * 1000)
    manager.reload(end, generation=generation, fresh=True)
    settle_directories(manager)  # first, because a topic may just have been restored
    _recover_partitions(manager)
    redo_all(manager, None)
    publish_all(manager)
    manager.idle()
    return end < found_end


def _recovery_point(fs: FileSystem, home: str, end: int) -> int:
    """Return an offset in the ledger: all segments before the offset's segment are durable.

    A segment and its indexes are synced before the first record of the next segment is synced. So
    after a power cut the next segment's file may exist although a segment or its indexes were lost.
    """
    marks = published(fs, home)
    base = last_base(fs, home, end)
    if marks is None or not marks.durable:
        return max(base - 1, 0)
    return min(base, marks.durable - 1)


def _remove_empty_segments(fs: FileSystem, path: str, end: int) -> None:
    """Remove ledger segments at or after `end`, which an interrupted roll has left empty."""
    names = [n for n in fs.listdir(path) if (parse_base(n) or 0) >= end]
    for name in sorted(names, key=lambda n: n.endswith(".log")):  # the log last
        if not name.endswith(".snapshot"):
            remove(fs, os.path.join(path, name), "a roll of the ledger was interrupted")
    if names:
        fs.sync_dir(path)


def _recover_partitions(manager: LogManager) -> None:
    points = recovery_points(manager)
    manager.offline.note_missing(manager.state, segments=False)

    def recover_key(key: TopicPartition) -> None:
        remaining = partial(manager.meters.segments_remain, homes[key], _thread_number())
        recover_partition(manager, key, points, remaining)
        if key in manager.offline:  # recovery has completed a cleaner's swaps
            error = manager.offline.missing(manager.state, key)
            if error is not None:
                manager.offline[key] = error

    keys = sorted(key for key in manager.state.ends if key not in manager.offline)
    homes = {key: os.path.dirname(manager.partition_path(*key)) for key in keys}
    threads = manager.options.recovery_threads * len(manager.directories)
    with manager.meters.recovering(homes.values()) as done:

        def counted(key: TopicPartition) -> None:
            recover_key(key)
            done(homes[key])

        if threads == 1:
            for key in keys:
                counted(key)
            return
        with ThreadPoolExecutor(threads, thread_name_prefix=_THREADS) as pool:
            list(pool.map(counted, keys))


def _thread_number() -> str:
    name = threading.current_thread().name
    return name.rpartition("_")[2] if name.startswith(f"{_THREADS}_") else "0"


def _durable_prefix(manager: LogManager, state: LogState, end: int) -> int:
    """Return the ledger offset up to which the data of all commits are on disk.

    That is `end`, unless commits with flush=none were lost in a power cut: then it is the offset of
    the first lost commit, and `state`, the state at `end`, is changed to the state there.
    """
    fs, home = manager.fs, manager.home
    first = last_base(fs, home, end)
    records = list(replay(fs, home, first, end))
    unsynced = [offset for offset, record in records if not record.flushed]
    if not unsynced:
        return end
    prefix = LogState()
    for offset, record in records:
        if offset >= unsynced[0] and not _whole(manager, prefix, record):
            _LOGGER.warning(
                "%s: flush=none lost the commits from ledger offset %d on", home, offset
            )
            state.topics, state.ends, state.starts = prefix.topics, prefix.ends, prefix.starts
            state.writers, state.dropped = prefix.writers, prefix.dropped
            state.origins = prefix.origins
            state.local_starts, state.abandoned = prefix.local_starts, prefix.abandoned
            state.deleted, state.tails = prefix.deleted, prefix.tails
            return offset
        prefix.apply(record)
    return end


def _whole(manager: LogManager, prefix: LogState, record: LedgerRecord) -> bool:
    """Return True if all bytes that a record commits are on disk. Missing disks are not checked.

    `prefix` is the state before the record. `manager.state` is set to the state after it.
    """
    after = LogState()
    after.apply(prefix.snapshot())
    after.apply(record)
    manager.state = after
    if not isinstance(record, AppendRecord):
        return True
    for key, (first, end) in record.ends.items():
        path = manager.partition_path(*key)
        if os.path.dirname(path) not in manager.offline.dirs.present:
            # The disk is missing. To count its commits as lost would drop those of all other disks.
            continue
        if not manager.fs.is_dir(path):
            return False
        if valid_end(manager.fs, path, first) < end:
            return False
    return True


def make_durable(fs: FileSystem, home: str, offset: int) -> bool:
    """Write the ledger record at `offset` again in place, and sync it.

    Returns False if the record is incomplete. If a holder of the lock died between write and fsync,
    the next holder sees the record only in the page cache: without this step a power cut could lose
    a record on which later records depend (PROTOCOL, C8). The previous segment is synced too,
    because it may have been rolled for this record.
    """
    bases = [base for base in ledger_bases(fs, home) if base <= offset]
    if not bases:
        return False
    path = os.path.join(ledger_path(home), log_name(bases[-1]))
    raw = read_bytes(fs, path)
    table = scan(raw, path=path).table
    found = table[table["base_offset"] == offset]
    if not found.size:
        return False
    at, size = int(found["position"][0]), int(found["size"][0])
    for base in bases[-2:-1]:
        _sync_rolled(fs, ledger_path(home), base, bases[-1])
    with fs.open(path, write=True) as file:
        # Write the record again, because an fsync alone writes nothing if the page cache marks the
        # pages as clean after an earlier failed fsync.
        file.pwrite(raw[at : at + size], at)
        file.sync()
    fs.sync_dir(ledger_path(home))
    return True


def _sync_rolled(fs: FileSystem, directory: str, base: int, end: int) -> None:
    for name in (log_name(base), index_name(base), timeindex_name(base), snapshot_name(end)):
        path = os.path.join(directory, name)
        if fs.exists(path):
            with fs.open(path, write=True) as file:
                file.sync()
