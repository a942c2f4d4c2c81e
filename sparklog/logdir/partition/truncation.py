"""Truncate a partition directory to the state at the start of a step.

Truncation needs only the files, so the next holder of the lock can truncate for a dead process.
Only data at or after the old end are removed. Truncation is idempotent and can be interrupted at
any point. An intact page cache is required (a process died, not the machine); otherwise the log
must be recovered. Source: PROTOCOL, "QUICK recovery".
"""

from dataclasses import dataclass
from typing import Any, Final, Self

from sparklog.errors import DataCorruptionError
from sparklog.format.index import Entries
from sparklog.format.names import (
    EPOCH_CHECKPOINT,
    SNAPSHOT,
    index_name,
    log_name,
    parse_base,
    snapshot_name,
    timeindex_name,
    txnindex_name,
)
from sparklog.fs import FileSystem
from sparklog.logdir.partition.indexes import offset_entries, regular_times, txn_entries
from sparklog.logdir.partition.leader_epochs import truncate_epochs
from sparklog.logdir.partition.producer_snapshots import is_whole, snapshot_offsets
from sparklog.logdir.partition.repairs import cut, remove
from sparklog.logdir.segment_files import joined

_WHY: Final = "of a commit that was undone"


@dataclass(frozen=True, slots=True)
class SegmentState:
    """The state of a partition's log.

    Attributes:
        base: The base offset of the active segment.
        size: The size of the active segment in bytes.
        end: The log end offset.
    """

    base: int
    size: int
    end: int

    def to_json(self) -> list[int]:
        """Return [base, size, end], the form in which the lock file's intent stores the state."""
        return [self.base, self.size, self.end]

    @classmethod
    def from_json(cls, values: list[Any]) -> Self:
        """Parse the list that `to_json` returned."""
        base, size, end = values
        return cls(int(base), int(size), int(end))


def truncate_to(fs: FileSystem, directory: str, state: SegmentState) -> None:
    """Remove everything after `state`, durably.

    Raises:
        DataCorruptionError: The log is shorter than in `state`. A FULL recovery is needed.
    """
    # Before any change: a log that is too short means that the page cache is not intact, and then
    # the files must not be cut by this state.
    size = _check(fs, directory, state)
    # Later segments go before the cut, so that a crash in between never leaves a hole.
    _remove_above(fs, directory, state)
    if size > state.size:
        why = f"offsets from {state.end} on, {_WHY}"
        cut(fs, joined(directory, log_name(state.base)), state.size, why, sync=True)
    _cut_indexes(fs, directory, state)
    truncate_epochs(fs, directory, state.end)
    fs.sync_dir(directory)


def _check(fs: FileSystem, directory: str, state: SegmentState) -> int:
    path = joined(directory, log_name(state.base))
    size = fs.size(path) if fs.exists(path) else -1
    if size < state.size:
        raise DataCorruptionError(
            f"the log has {size} bytes, but had {state.size} before the step",
            path=path,
            position=max(size, 0),
            first=state.base,
            end=state.end,
        )
    return size


def _remove_above(fs: FileSystem, directory: str, state: SegmentState) -> None:
    """Remove the segments and snapshots after `state`.

    The highest are removed first, so that a crash leaves no hole.
    """
    names = fs.listdir(directory)
    doomed = []
    for name in names:
        base = parse_base(name)
        if name.endswith(SNAPSHOT) or base is None or base <= state.base:
            continue
        doomed.append((base, name))
    doomed += [
        (offset, snapshot_name(offset))
        for offset in snapshot_offsets(names)
        if offset > state.end or (offset == state.end and _is_ours(fs, directory, state))
    ]
    if f"{EPOCH_CHECKPOINT}.tmp" in names:
        doomed.append((-1, f"{EPOCH_CHECKPOINT}.tmp"))
    for _, name in sorted(doomed, reverse=True):
        remove(fs, joined(directory, name), _WHY)


def _is_ours(fs: FileSystem, directory: str, state: SegmentState) -> bool:
    """Return True if the snapshot at the log's end marks a clean close and must be removed.

    The snapshot may be older than the step, but its loss costs only a replay. At the base of an
    empty segment the snapshot was written by the roll, and stays if it is intact.
    """
    path = joined(directory, snapshot_name(state.end))
    return state.base != state.end or not is_whole(fs, path)


def _cut_indexes(fs: FileSystem, directory: str, state: SegmentState) -> None:
    base = state.base
    offsets = offset_entries(fs, directory, base, size=state.size, end=state.end)
    _keep(fs, joined(directory, index_name(base)), offsets)
    times = regular_times(fs, directory, base, offsets)
    _keep(fs, joined(directory, timeindex_name(base)), times)
    aborted = txn_entries(fs, directory, base, end=state.end)
    path = joined(directory, txnindex_name(base))
    if len(aborted):
        _keep(fs, path, aborted)
    else:
        remove(fs, path, _WHY)


def _keep(fs: FileSystem, path: str, entries: Entries) -> None:
    """Truncate an index file to `entries`, and write these entries again.

    The undone step may have failed at an fsync. Then the page cache marks the entries as clean, and
    the next fsync succeeds without writing.
    """
    cut(fs, path, entries.nbytes, _WHY, sync=False)
    if len(entries):
        with fs.open(path, write=True) as file:
            file.pwrite(entries.tobytes(), 0)


__all__ = ["SegmentState", "truncate_to"]
