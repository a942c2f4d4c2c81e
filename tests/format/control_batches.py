"""Transaction markers as a broker writes them; sparklog reads them only."""

import struct
from typing import Final

from sparklog.format.batch import CONTROL, HEADER, LOG_OVERHEAD, MAGIC, TRANSACTIONAL, seal

_RECORD: Final = struct.Struct(">bbbbbhhbhib")


def encode_control(
    kind: int,
    *,
    base_offset: int,
    timestamp: int,
    producer_id: int,
    producer_epoch: int,
    coordinator_epoch: int,
    leader_epoch: int = 0,
) -> bytes:
    """A transaction marker: one batch of 78 bytes; `kind` 0 aborts, 1 commits.

    Source: MemoryRecords.withEndTransactionMarker, EndTransactionMarker.
    """
    batch = bytearray(
        HEADER.pack(
            base_offset,
            78 - LOG_OVERHEAD,
            leader_epoch,
            MAGIC,
            0,
            TRANSACTIONAL | CONTROL,
            0,
            timestamp,
            timestamp,
            producer_id,
            producer_epoch,
            -1,
            1,
        )
        # zig-zag varints: record length 16, key length 4, value length 6, no headers
        + _RECORD.pack(32, 0, 0, 0, 8, 0, kind, 12, 0, coordinator_epoch, 0)
    )
    seal(batch)
    return bytes(batch)
