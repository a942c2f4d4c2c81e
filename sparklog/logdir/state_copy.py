"""`sparklog.state`: a copy of the ledger's state, for a repair of a damaged or missing ledger.

The file contains a snapshot record, and the ledger offset up to which the snapshot is complete, in
a checksummed document. The file is written at each clean close and whenever the ledger rolls to a
new segment. The ledger is authoritative; only a repair reads this file. Older versions of sparklog
don't write the file, so the copy may be older than the ledger.
"""

import json
import os
from dataclasses import dataclass
from typing import Final

from sparklog.errors import DataCorruptionError, UnsupportedVersionError
from sparklog.fs import FileSystem, read_bytes, write_durably
from sparklog.storage.ledger_records import SnapshotRecord, decode, encode
from sparklog.storage.log_state import LogState
from sparklog.storage.stored_json import seal, unseal

STATE_NAME: Final = "sparklog.state"


@dataclass(frozen=True, slots=True)
class StateCopy:
    """A copy of a log's state.

    Attributes:
        offset: The ledger offset up to which the state is complete.
        record: The state, as a snapshot record.
    """

    offset: int
    record: SnapshotRecord


def write_state_copy(fs: FileSystem, home: str, offset: int, state: LogState) -> None:
    """Replace the copy of the ledger's state at `offset`. Cost: an fdatasync.

    A power cut may restore the former copy.
    """
    content = {"offset": offset, "record": json.loads(encode(state.snapshot()))}
    # The rename is not synced: an older copy only makes a repair fold more records.
    write_durably(fs, os.path.join(home, STATE_NAME), seal("state", content), sync_dir=False)


def read_state_copy(fs: FileSystem, home: str) -> StateCopy | None:
    """Return the copy, unless the file is missing, damaged or newer than this sparklog."""
    path = os.path.join(home, STATE_NAME)
    try:
        content = unseal("state", read_bytes(fs, path), path=path, cure="the next close writes it")
        record = decode(content["record"], path=path, offset=content["offset"])
    except (FileNotFoundError, DataCorruptionError, UnsupportedVersionError, KeyError):
        return None
    return StateCopy(content["offset"], record) if isinstance(record, SnapshotRecord) else None
