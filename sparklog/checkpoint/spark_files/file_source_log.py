"""The log of a file source, `sources/<i>/`: the files that each of its own batches found.

    <n>             a line `v1`, then {"path": ..., "timestamp": ..., "batchId": n} for each file
    <n>.compact     the same for all batches up to n; every 10th file

An offset {"logOffset": n} is the newest entry that a query's batch has read. A truncation must
remove later entries: Spark would consider their files as seen, and read them all at once. Source:
FileStreamSource, CompactibleFileStreamLog (Spark 4.2).
"""

import re
from typing import Final

from sparklog.checkpoint.files import Checkpoint

_ENTRY: Final = re.compile(r"([0-9]+)(\.compact)?")


def entries_of(checkpoint: Checkpoint, source: str) -> dict[int, str]:
    """Return {number of the entry: file name}."""
    names = checkpoint.names(f"sources/{source}")
    matches = {name: _ENTRY.fullmatch(name) for name in names}
    return {int(match[1]): name for name, match in matches.items() if match is not None}


def missing_entries(checkpoint: Checkpoint, source: str, log_offset: int) -> str | None:
    """Return why a source can't go back to `log_offset`, or None."""
    entries = entries_of(checkpoint, source)
    at = log_offset
    while at in entries:
        if entries[at].endswith(".compact") or at == 0:
            return None
        at -= 1
    if log_offset < 0:
        return None
    return f"sources/{source}/{at} is gone, the file source's list of what it has read"


def entries_after(checkpoint: Checkpoint, source: str, log_offset: int) -> list[str]:
    """Return the paths of the entries that must be removed to go back to `log_offset`."""
    entries = entries_of(checkpoint, source)
    return [f"sources/{source}/{name}" for n, name in entries.items() if n > log_offset]
