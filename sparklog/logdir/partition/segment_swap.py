"""A swap: a new segment replaces source segments, atomically for readers and crashes.

The new segment is a cleaned copy of the sources, in files with the suffix `.cleaned`. The caller
has the log's write lock, and the swap is in the intent (the record of a step in progress):

1. The `.cleaned` files are renamed to `.swap`, the log last, and the directory is synced. From then
   on the swap is completed even if this process dies: another process completes it, as Kafka's own
   loading would.
2. A second name of the `.swap` log is renamed over the first source. At that moment readers see the
   new segment; a segment with its base always exists (PROTOCOL, H6).
3. The index files are renamed. Before that, the old index files remain as hints, which readers
   check.
4. Sources with a base in the new segment's offsets are retired: their files are renamed to
   `.deleted`, the lowest segment first. A reader that has listed a source still reads the old
   records or, past the new segment, no records. The snapshots of the sources are retired with them.
   When all this is durable, the `.swap` log is deleted.
5. Sources after the new segment's last offset, which have no remaining records, are retired one by
   one.

Readers that have opened a source can continue, because its inode stays. After a crash, `settle`
completes or discards the swap that the intent describes. `finish_swaps` (in FULL recovery, and when
a broker's log is loaded) does so by the file names alone. Source: PROTOCOL, "Retention, rolls and
swaps"; LocalLog.replaceSegments (Kafka 4.1) for the names.
"""

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

from sparklog.format.names import (
    CLEANED,
    DELETED,
    SWAP,
    index_name,
    log_name,
    parse_base,
    snapshot_name,
    timeindex_name,
    txnindex_name,
)
from sparklog.fs import FileSystem
from sparklog.logdir.segment_files import joined


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentSwap:
    """A swap of segments, as recorded in the intent (the record of a step in progress).

    Attributes:
        base: The base offset of the new segment and of the first source.
        parts: The names of the new segment's files, except the log, without a suffix.
        log: Device and inode of the new segment's log.
        covered: The base offsets of the other sources up to the last offset of the new segment.
        trailing: The base offsets of the sources after the last offset of the new segment.
    """

    base: int
    parts: tuple[str, ...]
    log: tuple[int, int]
    covered: tuple[int, ...]
    trailing: tuple[int, ...]

    def to_json(self) -> dict[str, Any]:
        """Return the swap as the JSON object that the lock file's intent stores."""
        return {
            "base": self.base, "parts": list(self.parts), "log": list(self.log),
            "covered": list(self.covered), "trailing": list(self.trailing),
        }  # fmt: skip

    @classmethod
    def from_json(cls, fields: dict[str, Any]) -> Self:
        """Parse the JSON object that `to_json` returned.

        Raises:
            KeyError, TypeError, ValueError: The object is malformed.
        """
        device, inode = fields["log"]
        return cls(
            base=int(fields["base"]),
            parts=tuple(fields["parts"]),
            log=(int(device), int(inode)),
            covered=tuple(int(base) for base in fields["covered"]),
            trailing=tuple(int(base) for base in fields["trailing"]),
        )


def perform(fs: FileSystem, directory: str, swap: SegmentSwap) -> None:
    """Replace the sources by the new segment, whose files must exist as `.cleaned`."""
    for name in (*swap.parts, log_name(swap.base)):
        # The log is last: when its `.swap` name exists, all other files have theirs.
        fs.rename(joined(directory, name + CLEANED), joined(directory, name + SWAP))
    fs.sync_dir(directory)
    _complete(fs, directory, swap)


def settle(fs: FileSystem, directory: str, swap: SegmentSwap) -> None:
    """Complete an interrupted swap, or discard it if no `.swap` log exists yet. Idempotent.

    If the new log already has its final name, only the trailing sources are left to retire.
    """
    log = joined(directory, log_name(swap.base))
    if fs.exists(log + SWAP):
        fs.sync_dir(directory)  # the process that renamed them may have died before the sync
        _complete(fs, directory, swap)
    # The `.swap` log is deleted as the last file, so only the trailing sources may be left.
    elif fs.identity(log) == swap.log:
        _retire_trailing(fs, directory, swap)
    else:
        remove_made(fs, directory, swap.base, swap.parts, SWAP)
        remove_made(fs, directory, swap.base, swap.parts, CLEANED)


def remove_made(
    fs: FileSystem, directory: str, base: int, parts: Sequence[str], suffix: str
) -> None:
    """Remove the files of a new segment that still have `suffix`. Idempotent.

    Args:
        fs: The file system.
        directory: The partition's directory.
        base: The base offset of the segment.
        parts: The names of the files except the log, without the suffix.
        suffix: `.cleaned` or `.swap`.
    """
    for name in (*parts, log_name(base)):
        with contextlib.suppress(FileNotFoundError):
            fs.unlink(joined(directory, name + suffix))


def _complete(fs: FileSystem, directory: str, swap: SegmentSwap) -> None:
    log = joined(directory, log_name(swap.base))
    if fs.identity(log) != fs.identity(log + SWAP):
        with contextlib.suppress(FileNotFoundError):
            fs.unlink(log + DELETED)
        fs.link(log + SWAP, log + DELETED)  # a name that loading always removes
        fs.rename(log + DELETED, log)
    for name in swap.parts:
        with contextlib.suppress(FileNotFoundError):
            fs.rename(joined(directory, name + SWAP), joined(directory, name))
    for base in swap.covered:
        retire(fs, directory, base)
    # Only when the retirements are durable: the `.swap` log makes the next process complete the
    # swap.
    fs.sync_dir(directory)
    fs.unlink(log + SWAP)
    aborted = joined(directory, txnindex_name(swap.base))
    if fs.exists(aborted) and not fs.size(aborted):
        fs.unlink(aborted)  # Kafka has no such file without entries
    _retire_trailing(fs, directory, swap)


def _retire_trailing(fs: FileSystem, directory: str, swap: SegmentSwap) -> None:
    for base in swap.trailing:
        retire(fs, directory, base)
        fs.sync_dir(directory)


def retire(fs: FileSystem, directory: str, base: int) -> list[str]:
    """Hide a segment from new readers by renaming the files to `.deleted`. Idempotent.

    Returns:
        The new paths.
    """
    waiting = []
    # The log first: a segment without an index is slow, but an index without a log would be a
    # stray.
    for name in (log_name, index_name, timeindex_name, txnindex_name, snapshot_name):
        path = joined(directory, name(base))
        with contextlib.suppress(FileNotFoundError):
            fs.rename(path, path + DELETED)
            waiting.append(path + DELETED)
    return waiting


def retired_paths(fs: FileSystem, directory: str, swap: SegmentSwap) -> list[str]:
    """Return the paths of the sources' files that a swap has renamed to `.deleted`."""
    bases = {*swap.covered, *swap.trailing}
    return [
        joined(directory, name)
        for name in fs.listdir(directory)
        if name.endswith(DELETED) and parse_base(name) in bases
    ]
