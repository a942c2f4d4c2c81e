"""A closed segment's files, for a put into a segment store (LogSegmentData)."""

from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from sparklog.errors import DataCorruptionError
from sparklog.format.checkpoint_files import Epochs
from sparklog.format.names import log_name, snapshot_name
from sparklog.format.producer_snapshot import format_snapshot, parse_snapshot
from sparklog.fs import File, FileSystem, read_bytes
from sparklog.logdir.partition.indexes import txn_entries
from sparklog.logdir.partition.leader_epochs import read_epochs
from sparklog.logdir.partition.producer_snapshots import load_producers
from sparklog.logdir.segment_files import joined
from sparklog.storage.leader_epochs import clipped
from sparklog.storage.segment_store import source_changed

_NEVER_EXPIRES: Final = 2**63 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class LogDirSegmentData:
    """The files of a closed segment with the offsets [base, end): a `LogSegmentData`.

    No file stays open between calls.

    Attributes:
        directory: The partition's directory.
        size: The size of the log file in bytes.
        log_start: The log start offset. A missing producer snapshot is rebuilt from there at the
            earliest.
    """

    fs: FileSystem
    directory: str
    base: int
    end: int
    size: int
    log_start: int

    @property
    def where(self) -> str:
        """The path of the segment's log file."""
        return joined(self.directory, log_name(self.base))

    def version(self) -> tuple[int, int]:
        """Return the device and inode of the log file. Cost: two stats.

        Raises:
            SourceChangedError: The segment was cleaned, deleted or replaced.
        """
        try:
            size = self.fs.size(self.where)
            found = self.fs.identity(self.where)
        except FileNotFoundError as error:
            raise source_changed(self.where) from error
        if size != self.size:
            raise source_changed(self.where)
        return found

    def log(self) -> File:
        """Open the segment's log file.

        Raises:
            FileNotFoundError: The segment was deleted.
        """
        return self.fs.open(self.where)

    def transaction_index(self) -> bytes:
        """Return the transaction index: the aborted transactions with markers in the segment."""
        return txn_entries(self.fs, self.directory, self.base, end=self.end).tobytes()

    def producer_snapshot(self) -> bytes:
        """Return the contents of the producer snapshot at the segment's end.

        The snapshot was written when the segment was rolled, also for topics without producer ids.
        If it is missing or damaged, it is rebuilt as in recovery: from an older snapshot and the
        log.
        """
        path = joined(self.directory, snapshot_name(self.end))
        with suppress(FileNotFoundError, DataCorruptionError):
            raw = read_bytes(self.fs, path)
            parse_snapshot(raw, path)
            return raw
        state = load_producers(
            # With `now=0` no producer expires: a copy in remote storage may be restored at any
            # later time.
            self.fs, self.directory, self.end,
            log_start=self.log_start, now=0, expiration_ms=_NEVER_EXPIRES,
        )  # fmt: skip
        return format_snapshot(state.entries())

    def leader_epochs(self) -> Epochs:
        """Return the log's leader epochs up to the segment's end. Cost: reads a small file."""
        return clipped(read_epochs(self.fs, self.directory), end=self.end)
