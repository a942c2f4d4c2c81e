"""The log of a file source, `sources/<i>/`: which files each of its own batches saw.

    <n>             a line `v1`, then {"path": ..., "timestamp": ..., "batchId": n} for each file
    <n>.compact     the same of all batches up to n; every 10th is one

An offset {"logOffset": n} is the newest entry that a query's batch has read. Entries behind it
must go with the batches: Spark would take their files for seen, and read them all at once.
Source: FileStreamSource, CompactibleFileStreamLog (Spark 4.2).
"""

import re
from typing import Final

from sparklog.checkpoint.files import Checkpoint

_ENTRY: Final = re.compile(r"([0-9]+)(\.compact)?")


def entries_of(checkpoint: Checkpoint, source: str) -> dict[int, str]:
    """{number of the entry: file name}."""
    names = checkpoint.names(f"sources/{source}")
    matches = {name: _ENTRY.fullmatch(name) for name in names}
    return {int(match[1]): name for name, match in matches.items() if match is not None}


def missing_entries(checkpoint: Checkpoint, source: str, log_offset: int) -> str | None:
    """Tell what keeps a source from going back to `log_offset`; None if nothing does."""
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
    """The paths of the entries that a query which goes back to `log_offset` must not see."""
    entries = entries_of(checkpoint, source)
    return [f"sources/{source}/{name}" for n, name in entries.items() if n > log_offset]
