"""A partition's leader epochs and their start offsets, in `leader-epoch-checkpoint`.

No other module writes this file. Epochs and start offsets both increase. The checkpoint is written
before the data that need it, so a crash can leave an entry at or past the log's end (truncation and
recovery drop it), but never a batch without an entry. Source: LeaderEpochFileCache.java (Kafka
4.1).
"""

import os

from sparklog.errors import DataCorruptionError, InvalidRequestError
from sparklog.format.checkpoint_files import Epochs, format_epochs, parse_epochs
from sparklog.format.names import EPOCH_CHECKPOINT
from sparklog.fs import File, FileSystem, read_bytes, write_durably
from sparklog.logdir.partition.repairs import replace
from sparklog.logdir.repair_advice import rebuilt_by_repair
from sparklog.storage.leader_epochs import assigned, clipped


class LeaderEpochFileCache:
    """The leader epochs of a partition, cached from leader-epoch-checkpoint.

    Changes are durable when a method returns.

    Raises:
        DataCorruptionError: The file can't be read. Recovery rebuilds it.
    """

    def __init__(self, fs: FileSystem, directory: str) -> None:
        self._fs, self._path = fs, os.path.join(directory, EPOCH_CHECKPOINT)
        self.entries: Epochs = read_epochs(fs, directory)

    @property
    def latest(self) -> int:
        """The newest epoch, or -1."""
        return self.entries[-1][0] if self.entries else -1

    def assign(self, epoch: int, start: int) -> None:
        """Record that the batches from offset `start` on have the leader epoch `epoch`.

        Assigning the latest epoch again has no effect. Entries with a higher epoch, or at or after
        the offset, are removed.

        Raises:
            InvalidRequestError: The epoch or the offset is negative.
        """
        if epoch < 0 or start < 0:
            raise InvalidRequestError(
                f"leader epoch {epoch} at offset {start}: neither of the two may be negative"
            )
        after = assigned(self.entries, epoch, start)
        if after is not self.entries:
            self._replace(after)

    def truncate_from_end(self, end: int) -> None:
        """Remove the epochs that start at or after `end`."""
        self._replace(clipped(self.entries, end=end))

    def truncate_from_start(self, start: int) -> None:
        """Remove the epochs that end at or below offset `start`, the new log start.

        The epoch that contains `start` gets `start` as its start offset.
        """
        self._replace(clipped(self.entries, start=start))

    def _replace(self, entries: Epochs) -> None:
        if entries != self.entries:
            write_epochs(self._fs, os.path.dirname(self._path), entries)
            self.entries = entries


def read_epochs(fs: FileSystem, directory: str) -> Epochs:
    """Return the (epoch, start offset) entries of leader-epoch-checkpoint; empty without a file."""
    path = os.path.join(directory, EPOCH_CHECKPOINT)
    try:
        return parse_epochs(read_bytes(fs, path), path)
    except FileNotFoundError:
        return []
    except DataCorruptionError as error:
        raise rebuilt_by_repair(error) from error


def create_epochs(fs: FileSystem, directory: str) -> File:
    """Create an empty leader-epoch-checkpoint for a new partition. The caller syncs the file."""
    file = fs.open(os.path.join(directory, EPOCH_CHECKPOINT), create=True)
    file.pwrite(format_epochs([]), 0)
    return file


def write_epochs(fs: FileSystem, directory: str, entries: Epochs, *, sync_dir: bool = True) -> None:
    """Replace the checkpoint by these (epoch, start offset) entries, durably.

    Without `sync_dir` the caller syncs the directory.
    """
    path = os.path.join(directory, EPOCH_CHECKPOINT)
    write_durably(fs, path, format_epochs(entries), sync_dir=sync_dir)


def repair_epochs(fs: FileSystem, directory: str, entries: Epochs) -> None:
    """Replace the checkpoint by these (epoch, start offset) entries, durably; log the change."""
    replace(fs, os.path.join(directory, EPOCH_CHECKPOINT), format_epochs(entries), sync_dir=True)


def truncate_epochs(fs: FileSystem, directory: str, end: int) -> None:
    """Remove the epochs that start at or after `end`, as a repair. Idempotent."""
    entries = read_epochs(fs, directory)
    kept = clipped(entries, end=end)
    if kept != entries:
        repair_epochs(fs, directory, kept)
