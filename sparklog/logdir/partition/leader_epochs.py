"""A partition's leader epochs: which epoch began at which offset, in `leader-epoch-checkpoint`.

Epochs and start offsets both rise. The checkpoint is written before the data that need it, so a
crash can leave an entry at or past the log's end (undo and recovery drop it), never a batch
without one. Source: LeaderEpochFileCache.java (Kafka 4.1).
"""

import os

from sparklog.errors import InvalidRequestError
from sparklog.format.checkpoint_files import Epochs, format_epochs, parse_epochs
from sparklog.format.names import EPOCH_CHECKPOINT
from sparklog.fs import FileSystem, read_bytes, write_durably
from sparklog.storage.leader_epochs import assigned, clipped, end_offset_for


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
