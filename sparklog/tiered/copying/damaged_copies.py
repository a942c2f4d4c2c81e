"""`sparklog.damaged-<segment id>`: a damaged copy of records that local segments still contain.

`tier verify` and local retention write such a file in the first log dir. While the file exists,
local retention does not delete the segments. The next round of the service copies the local
segments again and removes the file. Each copy has a separate file, so two processes never overwrite
each other's findings.
"""

import json
import os
from typing import Final

from sparklog.fs import FileSystem, write_durably

PREFIX: Final = "sparklog.damaged-"


def note_damaged(fs: FileSystem, home: str, segment_id: str, what: str) -> None:
    """Record that a copy is damaged; durable on return. Raises: StorageUnavailableError."""
    path = _path(home, segment_id)
    if not fs.exists(path):
        write_durably(fs, path, json.dumps({"damage": what}).encode() + b"\n")


def damaged_copies(fs: FileSystem, home: str) -> set[str]:
    """Return the segment ids of the copies that were found damaged. Cost: a directory listing."""
    names = (name for name in fs.listdir(home) if name.startswith(PREFIX))
    return {name.removeprefix(PREFIX) for name in names if not name.endswith(".tmp")}


def forget_damaged(fs: FileSystem, home: str, segment_id: str) -> None:
    """Remove the record of a copy, which was replaced or deleted."""
    if fs.exists(_path(home, segment_id)):
        fs.unlink(_path(home, segment_id))


def _path(home: str, segment_id: str) -> str:
    return os.path.join(home, PREFIX + segment_id)
