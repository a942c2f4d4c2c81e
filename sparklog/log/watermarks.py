"""`sparklog.watermarks`: the published high watermark of every partition of every log dir.

One file beside the ledger, in the text format of Kafka's replication-offset-checkpoint. Readers
go by it alone; it is replaced by one rename, so all partitions of a micro-batch show together
(PROTOCOL, H11). It never runs ahead of the durable ledger. The format has no checksum, so a last
entry of a topic that can't exist carries the CRC-32C of the others.
"""

import os
from collections.abc import Mapping
from typing import Final

import crc32c

from sparklog.errors import DataCorruptionError
from sparklog.format.checkpoint import format_offsets, parse_offsets
from sparklog.fs import FileSystem, read_bytes, write_durably

WATERMARKS_NAME: Final = "sparklog.watermarks"
_SEAL: Final = ("__sparklog_crc", 0)
_FLOOR: Final = ("__sparklog_durable", 0)
Offsets = dict[tuple[str, int], int]


def publish(
    fs: FileSystem, directory: str, ends: Mapping[tuple[str, int], int], *, durable: int | None
) -> None:
    """Replace the file by `ends`: {(topic, partition): high watermark}. One fdatasync.

    `durable` is the ledger's end if all of it was synced: recovery then knows a ledger that lost
    its tail from one that never went so far.

    The rename itself is not synced: a power cut may bring the former file back, whole, and
    recovery then publishes anew what the ledger says.
    """
    path = os.path.join(directory, WATERMARKS_NAME)
    marks = {**ends} if durable is None else {**ends, _FLOOR: durable}
    write_durably(fs, path, format_offsets({**marks, _SEAL: _crc(marks)}), sync_dir=False)


def published(fs: FileSystem, directory: str) -> Offsets | None:
    """Return what was published last, or None if the file is missing or damaged."""
    marks = _read(fs, directory)
    if marks is not None:
        marks.pop(_FLOOR, None)
    return marks


def durable_floor(fs: FileSystem, directory: str) -> int:
    """Return a ledger end that is known to have been durable; 0 if none is."""
    return (_read(fs, directory) or {}).get(_FLOOR, 0)


def _read(fs: FileSystem, directory: str) -> Offsets | None:
    path = os.path.join(directory, WATERMARKS_NAME)
    try:
        offsets = parse_offsets(read_bytes(fs, path), path=path)
    except (FileNotFoundError, DataCorruptionError):
        return None
    seal = offsets.pop(_SEAL, None)
    return offsets if seal == _crc(offsets) else None


def _crc(offsets: Mapping[tuple[str, int], int]) -> int:
    return crc32c.crc32c(format_offsets(offsets))
