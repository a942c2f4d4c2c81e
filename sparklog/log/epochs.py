"""A partition's leader epochs: which epoch began at which offset, in `leader-epoch-checkpoint`.

Epochs and start offsets both rise. The checkpoint is written before the data that need it, so a
crash can leave an entry at or past the log's end (undo and recovery drop it), never a batch
without one. Source: LeaderEpochFileCache.java (Kafka 4.1).
"""

import os
from typing import Final

from sparklog.errors import InvalidRequestError
from sparklog.format.checkpoint import Epochs, format_epochs, parse_epochs
from sparklog.format.names import EPOCH_CHECKPOINT
from sparklog.fs import FileSystem, read_bytes, write_durably

UNDEFINED: Final = (-1, -1)
ASIDE: Final = "#"
"""In a source's offsets it marks what is no topic: "flights#epoch"; no topic's name may have it."""


class EpochCache:
    """The epochs of one partition directory; changes are durable when a call returns.

    Raises DataCorruptionError on construction if the file can't be read; recovery rebuilds it.
    """

    def __init__(self, fs: FileSystem, directory: str) -> None:
        self._fs, self._path = fs, os.path.join(directory, EPOCH_CHECKPOINT)
        self.entries: Epochs = read_epochs(fs, directory)

    @property
    def latest(self) -> int:
        """The newest epoch, -1 if there is none."""
        return self.entries[-1][0] if self.entries else -1

    def assign(self, epoch: int, start: int) -> None:
        """Note that `epoch` begins at offset `start`; nothing happens if it is the latest.

        Entries that contradict it go. Raises InvalidRequestError for a negative epoch or offset.
        """
        if epoch < 0 or start < 0:
            raise InvalidRequestError(f"leader epoch {epoch} at offset {start}: want both >= 0")
        after = assigned(self.entries, epoch, start)
        if after is not self.entries:
            self._replace(after)

    def truncate_from_end(self, end: int) -> None:
        """Drop the epochs that begin at or past `end`."""
        self._replace([entry for entry in self.entries if entry[1] < end])

    def truncate_from_start(self, start: int) -> None:
        """Drop what lies before `start`; the epoch that holds `start` then begins there."""
        self._replace(clipped(self.entries, start))

    def end_offset_for(self, epoch: int, log_end: int) -> tuple[int, int]:
        """Return (epoch, end offset) of the greatest epoch that is at most `epoch`."""
        return end_offset_for(self.entries, epoch, log_end)

    def _replace(self, entries: Epochs) -> None:
        if entries != self.entries:
            write_epochs(self._fs, os.path.dirname(self._path), entries)
            self.entries = entries


def assigned(entries: Epochs, epoch: int, start: int) -> Epochs:
    """Return `entries` with `epoch` from `start` on; the same object if nothing changes."""
    if entries and entries[-1][0] == epoch and start >= entries[-1][1]:
        return entries
    kept = list(entries)
    while kept and (kept[-1][0] >= epoch or kept[-1][1] >= start):
        kept.pop()
    return [*kept, (epoch, start)]


def end_offset_for(entries: Epochs, epoch: int, log_end: int) -> tuple[int, int]:
    """Return the greatest epoch that is at most `epoch`, and the offset behind its last record.

    UNDEFINED for an epoch that is above all. Source: LeaderEpochFileCache.endOffsetFor.
    """
    latest = entries[-1][0] if entries else -1
    if epoch < 0 or epoch > latest:
        return UNDEFINED
    if epoch == latest:
        return epoch, log_end
    following = next(entry for entry in entries if entry[0] > epoch)
    floor = [known for known, _ in entries if known <= epoch]
    return (floor[-1] if floor else epoch), following[1]


def clipped(entries: Epochs, start: int) -> Epochs:
    """Return `entries` from offset `start` on."""
    before = [entry for entry in entries if entry[1] <= start]
    after = [entry for entry in entries if entry[1] > start]
    return [(before[-1][0], start), *after] if before else after


def read_epochs(fs: FileSystem, directory: str) -> Epochs:
    """Return the checkpoint's entries; none if there is no file."""
    path = os.path.join(directory, EPOCH_CHECKPOINT)
    try:
        return parse_epochs(read_bytes(fs, path), path)
    except FileNotFoundError:
        return []


def write_epochs(fs: FileSystem, directory: str, entries: Epochs) -> None:
    """Write the checkpoint durably."""
    write_durably(fs, os.path.join(directory, EPOCH_CHECKPOINT), format_epochs(entries))
