"""Micro-batches in the ledger: which record committed one.

A batch that a later `reset` took back counts as never committed: its records stay readable, and
who asks for the batch finds what was committed anew, or nothing.
"""

from collections.abc import Collection

from sparklog.fs import FileSystem
from sparklog.logdir.ledger import ledger_bases, replay
from sparklog.storage.log_state import Record


def find_commit(
    fs: FileSystem, directory: str, end: int, writers: Collection[str], batch: int
) -> tuple[int, Record] | None:
    """Return (ledger offset, record) of the newest commit of `batch` by one of `writers`.

    None if the ledger below `end` holds none any more, or a reset took it back.
    Cost: the ledger's segments are read from the newest back to the one that has it.
    """
    for base in reversed([b for b in ledger_bases(fs, directory) if b < end]):
        for offset, record in reversed(list(replay(fs, directory, base, end))):
            kind = record["kind"]
            if kind == "commit" and record["batch"] == batch and record["writer"] in writers:
                return offset, record
            if kind == "reset" and any(w in writers for w in taken_back(record, batch)):
                return None
            if kind == "snapshot" and not _reached(record, writers, batch):
                return None
        end = base
    return None


def taken_back(record: Record, batch: int) -> list[str]:
    """Return the writers whose `batch` a reset record takes back."""
    if "writers" not in record:
        return [record["writer"]] if record["batch"] <= batch else []
    return [w for w, last in record["writers"].items() if last is None or last[0] < batch]


def _reached(snapshot: Record, writers: Collection[str], batch: int) -> bool:
    """Tell whether a writer had come as far as `batch` when this snapshot was written."""
    lasts = (snapshot["writers"].get(writer) for writer in writers)
    return any(last is not None and last[0] >= batch for last in lasts)
