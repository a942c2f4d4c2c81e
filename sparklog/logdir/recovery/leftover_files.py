"""Cleans up `.swap`, `.cleaned` and `.deleted` files, and indexes without a log.

Kafka's cleaner writes a new segment to `.cleaned` files, and renames them to `.swap`, the `.log`
first. This rename is the commit point. Then the `.swap` files are renamed over the old names. Files
to delete are renamed to `.deleted`. sparklog uses the same names (`partition.segment_swap`).
Source: LogLoader (Kafka 4.1).
"""

import logging
from collections.abc import Iterable
from typing import Final

from sparklog.format.names import (
    CLEANED,
    DELETED,
    LOG,
    SWAP,
    index_name,
    log_name,
    parse_base,
    snapshot_name,
    timeindex_name,
    txnindex_name,
)
from sparklog.fs import FileSystem
from sparklog.log.batch_windows import walk
from sparklog.logdir.partition.repairs import remove
from sparklog.logdir.segment_files import joined

_LOGGER: Final = logging.getLogger(__name__)


def finish_swaps(fs: FileSystem, directory: str) -> list[str]:
    """Remove temporary files and complete an interrupted swap; return the actions. Idempotent.

    First all `.deleted` and `.cleaned` files are removed, and the `.swap` files with the base of
    the first `.cleaned` file or a higher one, because their rename was incomplete. Then the
    segments that the remaining `.swap` files replace are removed, and these files get their final
    names. The logs are renamed last, when the other changes are durable, so that after a crash the
    segments to remove are still known. Unlike Kafka, this preserves the producer snapshot at the
    base of a new segment, because its state precedes the swapped batches.
    """
    done: list[str] = []
    names = fs.listdir(directory)
    cleaned = [name for name in names if name.endswith(CLEANED)]
    first_cleaned = min((_base(name) for name in cleaned), default=2**63)
    swaps = []
    for name in names:
        if name.endswith(DELETED) or (name.endswith(SWAP) and _base(name) >= first_cleaned):
            _remove(fs, directory, name, done)
        elif name.endswith(SWAP):
            swaps.append(name)
    for name in cleaned:
        _remove(fs, directory, name, done)
    low, high = _span(fs, directory, swaps)
    # Unlike Kafka, keep the producer snapshot at the base of a new segment, because its state
    # precedes the swapped batches.
    kept = {*swaps, *(snapshot_name(_base(name)) for name in swaps)}
    for name in fs.listdir(directory):
        base = parse_base(name)
        if name not in kept and base is not None and low <= base < high:
            _remove(fs, directory, name, done)
    # The logs are renamed last, when the other changes are durable, so that after a crash the
    # segments to remove are still known.
    for name in sorted(swaps, key=lambda name: name.endswith(LOG + SWAP)):
        path = joined(directory, name)
        if name.endswith(LOG + SWAP):
            # A power cut could otherwise undo the removal of a source, but not this last step.
            # A killed process may have removed it too, so sync in any case.
            fs.sync_dir(directory)
        target = path.removesuffix(SWAP)
        if fs.exists(target) and fs.identity(target) == fs.identity(path):
            fs.unlink(path)  # both names exist; a rename would leave both
        else:
            fs.rename(path, target)
        done.append(f"renamed {name}")
    if done:
        fs.sync_dir(directory)
        _LOGGER.info("%s: %s", directory, ", ".join(done))
    return done


def orphaned_indexes(names: Iterable[str]) -> list[str]:
    """Return the index files without a log among the names of a partition's files, sorted."""
    found, existing = [], set(names)
    for name in sorted(existing):
        base = parse_base(name)
        if base is None or log_name(base) in existing:
            continue
        if name in (index_name(base), timeindex_name(base), txnindex_name(base)):
            found.append(name)
    return found


def remove_orphans(fs: FileSystem, directory: str) -> None:
    """Remove index files without a log."""
    for name in orphaned_indexes(fs.listdir(directory)):
        remove(fs, joined(directory, name), "there is no log beside it")


def segment_names(base: int) -> tuple[str, ...]:
    """Return a segment's files in the order of removal.

    The log and then the snapshot are last, so that after a crash the segment is still listed.
    """
    helpers = (txnindex_name(base), timeindex_name(base), index_name(base))
    return (*helpers, log_name(base), snapshot_name(base))


def remove_segment(fs: FileSystem, directory: str, base: int, why: str) -> None:
    """Remove a segment's files, as a repair."""
    for name in segment_names(base):
        remove(fs, joined(directory, name), why)


def _span(fs: FileSystem, directory: str, swaps: list[str]) -> tuple[int, int]:
    """Return the offsets [first base, end) that the logs among the `.swap` files `swaps` cover.

    Without a log among them, the range is empty.
    """
    low, high = 2**63, -1
    for name in swaps:
        if name.endswith(LOG + SWAP):
            end = base = _base(name)
            with fs.open(joined(directory, name)) as file:
                for window in walk(file, check_crc=False):
                    if len(window.batches):
                        end = int(window.batches.table["last_offset"][-1]) + 1
            low, high = min(low, base), max(high, end)
    return low, high


def _base(name: str) -> int:
    base = parse_base(name)
    return -1 if base is None else base


def _remove(fs: FileSystem, directory: str, name: str, done: list[str]) -> None:
    if remove(fs, joined(directory, name), "a cleaning was interrupted"):
        done.append(f"removed {name}")
