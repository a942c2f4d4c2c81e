"""Finds the ledger record that committed a micro-batch.

A batch that a later `reset` took back counts as never committed: its records stay readable, and
who asks for the batch finds what was committed anew, or nothing.
"""

from collections.abc import Collection

from sparklog.storage.commits import Ledger
from sparklog.storage.ledger_records import CommitRecord, ResetRecord, SnapshotRecord


def find_commit(
    ledger: Ledger, end: int, writers: Collection[str], batch: int
) -> tuple[int, CommitRecord] | None:
    """Return (ledger offset, record) of the newest commit of `batch` by one of `writers`.

    None if the ledger below `end` holds none any more, or a reset took it back.
    Cost: the ledger is read from its end back to the commit, a segment at a time; where a home
    knows whose a commit is, the writers' alone.
    """
    left = set(writers)
    for offset, record in ledger.commits_of(end, writers):
        match record:
            case CommitRecord() if record.batch == batch and record.writer in writers:
                return offset, record
            case CommitRecord() if record.batch < batch:
                left.discard(record.writer)  # before that it had committed lower numbers only
                if not left:
                    return None
            case ResetRecord() if any(w in writers for w in writers_abandoning(record, batch)):
                return None
            case SnapshotRecord() if not _reached(record, writers, batch):
                return None
    return None


def writers_abandoning(record: ResetRecord, batch: int) -> list[str]:
    """Return the writers whose `batch` a reset record takes back."""
    return [writer for writer, last in record.last_batches.items() if last < batch]


def _reached(snapshot: SnapshotRecord, writers: Collection[str], batch: int) -> bool:
    """Tell whether a writer had come as far as `batch` when this snapshot was written."""
    lasts = (snapshot.writers.get(writer) for writer in writers)
    return any(last is not None and last.batch >= batch for last in lasts)
