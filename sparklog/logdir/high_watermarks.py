"""`sparklog.watermarks`: the published high watermark of every partition of every log dir.

One file beside the ledger, in the text format of Kafka's replication-offset-checkpoint. Readers
go by it alone; it is replaced by one rename, so all partitions of a micro-batch show together
(PROTOCOL, H11). It never runs ahead of the durable ledger. The format has no checksum, so an
entry of a topic that can't exist carries the CRC-32C of the others; log start offsets and the
durable ledger end go along in the same way.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import crc32c

from sparklog.common import TopicPartition
from sparklog.errors import DataCorruptionError
from sparklog.format.checkpoint_files import format_offsets, parse_offsets
from sparklog.fs import FileSystem, read_bytes, write_durably

WATERMARKS_NAME: Final = "sparklog.watermarks"
_SEAL: Final = TopicPartition("__sparklog_crc", 0)
_FLOOR: Final = TopicPartition("__sparklog_durable", 0)
_START: Final = "__sparklog_start."
Offsets = dict[TopicPartition, int]


@dataclass(frozen=True, slots=True)
class Published:
    """`durable` is a ledger end that was durable for sure; 0 if none is known."""

    ends: Offsets
    starts: Offsets
    durable: int


def publish(
    fs: FileSystem,
    directory: str,
    ends: Mapping[TopicPartition, int],
    starts: Mapping[TopicPartition, int],
    *,
    durable: int | None,
) -> None:
    """Replace the file by `ends`: {(topic, partition): high watermark}. One fdatasync.

    `starts` are the log start offsets, for Kafka's own file of them has no checksum either;
    `durable` is the ledger's end if all of it was synced: recovery then knows a ledger that lost
    its tail from one that never went so far.

    The rename itself is not synced: a power cut may bring the former file back, whole, and
    recovery then publishes anew what the ledger says.
    """
    path = os.path.join(directory, WATERMARKS_NAME)
    marks = dict(ends)
    for (topic, partition), offset in starts.items():
        marks[TopicPartition(_START + topic, partition)] = offset
    if durable is not None:
        marks[_FLOOR] = durable
    write_durably(fs, path, format_offsets({**marks, _SEAL: _crc(marks)}), sync_dir=False)


def published(fs: FileSystem, directory: str) -> Published | None:
    """Return what was published last, or None if the file is missing or damaged."""
    marks = _read(fs, directory)
    if marks is None:
        return None
    durable = marks.pop(_FLOOR, 0)
    starts = {
        TopicPartition(key.topic.removeprefix(_START), key.partition): marks.pop(key)
        for key in list(marks)
        if key.topic.startswith(_START)
    }
    return Published(marks, starts, durable)


def _read(fs: FileSystem, directory: str) -> Offsets | None:
    path = os.path.join(directory, WATERMARKS_NAME)
    try:
        offsets = parse_offsets(read_bytes(fs, path), path=path)
    except (FileNotFoundError, DataCorruptionError):
        return None
    seal = offsets.pop(_SEAL, None)
    return offsets if seal == _crc(offsets) else None


def _crc(offsets: Mapping[TopicPartition, int]) -> int:
    return crc32c.crc32c(format_offsets(offsets))
