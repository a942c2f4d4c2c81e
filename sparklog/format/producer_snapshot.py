"""Producer state snapshots: `<offset>.snapshot` bytes <-> entries.

  at  len  field                          type
   0    2  version                        i16   1
   2    4  crc                            u32   CRC-32C of byte 6 to the end
   6    4  count                          i32
  10   46  each: producer_id i64, producer_epoch i16, last_sequence i32, last_offset i64,
           offset_delta i32, timestamp i64, coordinator_epoch i32, current_txn_first_offset i64
Big-endian. Source: ProducerStateManager.java (Kafka 1eb7644).
"""

import struct
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from crc32c import crc32c

from sparklog.errors import DataCorruptionError

HEAD: Final = struct.Struct(">hIi")
ENTRY: Final = struct.Struct(">qhiqiqiq")
assert (HEAD.size, ENTRY.size) == (10, 46)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerEntry:
    """The state of a producer id in a snapshot: its newest batch and its open transaction.

    Without a batch of data, last_sequence and last_offset are -1 and offset_delta is 0. Without an
    open transaction, current_txn_first_offset is -1. The timestamp (ms) is that of the newest batch
    or marker.
    """

    producer_id: int
    producer_epoch: int
    last_sequence: int = -1
    last_offset: int = -1
    offset_delta: int = 0
    timestamp: int
    coordinator_epoch: int = -1
    current_txn_first_offset: int = -1


def parse_snapshot(data: bytes, path: str) -> list[ProducerEntry]:
    """Return the entries of a snapshot file.

    Raises:
        DataCorruptionError: The version, size or CRC is wrong. Kafka then uses an older snapshot.
    """
    if len(data) < HEAD.size:
        raise DataCorruptionError(
            f"{len(data)} bytes are not a snapshot, which has at least {HEAD.size} bytes",
            path=path, position=0,
        )  # fmt: skip
    version, crc, count = HEAD.unpack_from(data)
    if version != 1:
        raise DataCorruptionError(f"version {version} is unknown", path=path, position=0)
    if crc != (actual := crc32c(memoryview(data)[6:])):
        raise DataCorruptionError(
            f"the CRC of the snapshot is {actual}, but its header has {crc}", path=path, position=2
        )
    if len(data) != HEAD.size + count * ENTRY.size:
        raise DataCorruptionError(
            f"the snapshot has {len(data)} bytes, but {count} entries need "
            f"{HEAD.size + count * ENTRY.size}",
            path=path, position=6,
        )  # fmt: skip
    return [
        ProducerEntry(
            producer_id=producer_id,
            producer_epoch=epoch,
            last_sequence=sequence,
            last_offset=offset,
            offset_delta=delta,
            timestamp=timestamp,
            coordinator_epoch=coordinator,
            current_txn_first_offset=txn,
        )
        for producer_id, epoch, sequence, offset, delta, timestamp, coordinator, txn in (
            ENTRY.iter_unpack(memoryview(data)[HEAD.size :])
        )
    ]


def format_snapshot(entries: Iterable[ProducerEntry]) -> bytes:
    """Return the bytes of a snapshot file, with entries in the given order."""
    packed = [
        ENTRY.pack(
            entry.producer_id,
            entry.producer_epoch,
            entry.last_sequence,
            entry.last_offset,
            entry.offset_delta,
            entry.timestamp,
            entry.coordinator_epoch,
            entry.current_txn_first_offset,
        )
        for entry in entries
    ]
    body = struct.pack(">i", len(packed)) + b"".join(packed)
    return struct.pack(">hI", 1, crc32c(body)) + body
