"""A rewritten segment in a temporary file, to be uploaded to a store; reads of its sources."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import IO

from sparklog.errors import DataCorruptionError
from sparklog.format.checkpoint_files import Epochs
from sparklog.log.batch_windows import Window, walk
from sparklog.storage.segments import SegmentLog


class FileLog:
    """A log in a temporary file: `sparklog.storage.segments.SegmentLog`."""

    def __init__(self, path: str, file: IO[bytes], size: int) -> None:
        self.path, self._file, self._size = path, file, size

    def size(self) -> int:
        """Return the size in bytes."""
        return self._size

    def pread(self, size: int, at: int) -> bytes:
        """Return the bytes [at, at + size)."""
        self._file.seek(at)
        return self._file.read(size)


@dataclass(frozen=True, slots=True)
class RewrittenData:
    """A segment in a temporary file: `sparklog.storage.segment_store.LogSegmentData`.

    Attributes:
        where: The path of the log, for messages.
        file: The temporary file.
        size: The size of the log in bytes.
        epochs: The leader epochs up to the segment's end.
        snapshot: The producer snapshot at the segment's end.
        aborted: The index of aborted transactions.
    """

    where: str
    file: IO[bytes]
    size: int
    epochs: tuple[tuple[int, int], ...]
    snapshot: bytes
    aborted: bytes = b""

    def version(self) -> object:
        """Return a constant: no other process has access to the file."""
        return self.size

    @contextmanager
    def log(self) -> Iterator[FileLog]:
        yield FileLog(self.where, self.file, self.size)

    def transaction_index(self) -> bytes:
        return self.aborted

    def producer_snapshot(self) -> bytes:
        return self.snapshot

    def leader_epochs(self) -> Epochs:
        """Return the leader epochs up to the end."""
        return list(self.epochs)


def intact_windows(log: SegmentLog, *, subject: str = "it") -> Iterator[Window]:
    """Yield the batches of an entire log in windows. Unlike `walk`, raise an error for damage.

    Raises:
        DataCorruptionError: The log is damaged; `subject` names the log in the message.
    """
    at = 0
    for window in walk(log):
        if window.batches.error is not None:
            raise window.batches.error
        if len(window.batches):
            yield window
        at = window.batches.end
    if at != log.size():
        raise DataCorruptionError(
            f"{subject} ends in a torn batch before byte {log.size()}; restore the object "
            "from a copy of the bucket",
            path=log.path,
            position=at,
        )
