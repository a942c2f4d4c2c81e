"""The commit ledger for readers: its files, up to the published end. Takes no lock."""

from collections.abc import Iterator

from sparklog.common import TopicPartition
from sparklog.errors import OffsetOutOfRangeError
from sparklog.fs import FileSystem
from sparklog.log.arrow_reads import read_partition, schema_of
from sparklog.log.partition_reader import reader_of
from sparklog.log.read_retry import PartitionRead
from sparklog.logdir.ledger import (
    LEDGER,
    LedgerFiles,
    deleted_topic_ends,
    fold,
    ledger_path,
    parse_rows,
    state_now,
)
from sparklog.storage.deleted_topic import DeletedTopic
from sparklog.storage.ledger_records import LedgerRecord
from sparklog.storage.log_state import LogState
from sparklog.storage.view import View


class LedgerReader(LedgerFiles):
    """The ledger of a log in log dirs, up to the offset that readers see.

    Implements `sparklog.storage.commits.FollowedLedger` for the log of a `View`.
    """

    def __init__(self, fs: FileSystem, view: View) -> None:
        super().__init__(fs, view.home)
        self._view = view

    @property
    def exists(self) -> bool:
        """Always True: log dirs can have a ledger."""
        return True

    def identity(self) -> object | None:
        """Return the identity of the ledger's directory; None in a broker's log dir."""
        path = ledger_path(self.home)
        return self._fs.identity(path) if self._fs.is_dir(path) else None

    @property
    def end(self) -> int:
        """The offset after the last visible record."""
        return self._view.spans([LEDGER])[LEDGER][1]

    def fold(self, state: LogState, end: int, *, first: int | None) -> None:
        """Apply the ledger records [first, end) to `state`; see `sparklog.logdir.ledger.fold`."""
        fold(self._fs, self.home, end, state=state, first=first)

    def dropped(self) -> dict[TopicPartition, int]:
        """Return {partition: end offset} of deleted topics. Cost: reads a ledger segment."""
        return deleted_topic_ends(self._fs, self.home)

    def deleted(self) -> list[DeletedTopic]:
        """Return the deleted topics that can be restored. Cost: reads a ledger segment."""
        return list(state_now(self._fs, self.home).deleted.values())

    def retained(self) -> Iterator[tuple[int, LedgerRecord]]:
        """Yield (offset, record) of all available records.

        The iteration ends with the newest record at its start. Records that expire meanwhile are
        skipped.
        """
        view = self._view
        reader_of(view, *LEDGER).refresh()  # cached open files may be deleted by now
        at, end = view.spans([LEDGER])[LEDGER]
        path = ledger_path(self.home)
        schema = schema_of(["offset", "value"])
        while at < end:
            try:
                for batch in read_partition(PartitionRead(view, *LEDGER, at, end), schema):
                    for at, record in parse_rows(batch, path):
                        yield at, record
                    at += 1
                return
            except OffsetOutOfRangeError as error:
                # Ledger segments expired during the read: continue with the oldest segment that is
                # left.
                at = error.start
