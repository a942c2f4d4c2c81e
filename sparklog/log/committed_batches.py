"""Find the ledger record that committed a micro-batch.

A batch that a later reset abandoned counts as not committed. Its records stay readable; a lookup
finds the new commit of the batch, or none.
"""

from collections.abc import Collection

from sparklog.storage.commits import Ledger
from sparklog.storage.ledger_records import CommitRecord, ResetRecord, SnapshotRecord


def find_commit(
    ledger: Ledger, end: int, writers: Collection[str], batch: int
) -> tuple[int, CommitRecord] | None:
    """Return (ledger offset, record) of the newest commit of `batch` by any of `writers`.

    Returns None if the ledger below `end` no longer contains the commit, or if a reset abandoned
    it.

    Cost: reads the ledger backwards to the commit, segment by segment. A home that indexes commits
        by writer reads only the commits of `writers`.
    """
    left = set(writers)
    for offset, record in ledger.commits_of(end, writers):
        match record:
            case CommitRecord() if record.batch == batch and record.writer in writers:
                return offset, record
            case CommitRecord() if record.batch < batch:
                left.discard(record.writer)  # its earlier commits have lower numbers
                if not left:
                    return None
            case ResetRecord() if any(w in writers for w in writers_abandoning(record, batch)):
                return None
            case SnapshotRecord() if not _reached(record, writers, batch):
                return None
    return None


def writers_abandoning(record: ResetRecord, batch: int) -> list[str]:
    """Return the writers of which a reset record abandons `batch`."""
    return [writer for writer, last in record.last_batches.items() if last < batch]


def _reached(snapshot: SnapshotRecord, writers: Collection[str], batch: int) -> bool:
    """Return whether a writer had committed `batch`, or a later batch, before the snapshot."""
    lasts = (snapshot.writers.get(writer) for writer in writers)
    return any(last is not None and last.batch >= batch for last in lasts)
