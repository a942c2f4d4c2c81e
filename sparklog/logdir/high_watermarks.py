"""`sparklog.watermarks`: the published high watermarks of all partitions of all log dirs.

The file is beside the ledger, in the text format of Kafka's replication-offset-checkpoint. Readers
use only this file. The file is replaced by a rename, so all partitions of a micro-batch become
visible together (PROTOCOL, H11), and it never exceeds the durable ledger. The format has no
checksum, so an entry of a topic that can't exist contains the CRC-32C of the other entries. Log
start offsets and the durable ledger end are stored in the same way.
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
    """The offsets that a log publishes to readers.

    Attributes:
        ends: The high watermark of each partition.
        starts: The log start offset of each partition.
        durable: An offset up to which the ledger was certainly synced; 0 if unknown.
    """

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
    """Replace the file of published offsets. Cost: an fdatasync.

    Args:
        fs: The file system.
        directory: The first log dir.
        ends: The high watermark of each partition.
        starts: The log start offsets. Kafka's own file of log starts has no checksum.
        durable: The ledger's end if the complete ledger is synced, else None. Recovery compares it,
            and so detects a ledger that lost its tail.
    """
    path = os.path.join(directory, WATERMARKS_NAME)
    marks = dict(ends)
    for (topic, partition), offset in starts.items():
        marks[TopicPartition(_START + topic, partition)] = offset
    if durable is not None:
        marks[_FLOOR] = durable
    # The rename is not synced, which saves an fsync per commit: a power cut may restore the former
    # file, intact, and recovery then publishes the ledger's offsets again.
    write_durably(fs, path, format_offsets({**marks, _SEAL: _crc(marks)}), sync_dir=False)


def published(fs: FileSystem, directory: str) -> Published | None:
    """Return the published offsets, unless the file is missing or damaged."""
    return PublishedFile(fs, directory).read()


class PublishedFile:
    """The file of published offsets, for repeated reads. Threads may share it."""

    def __init__(self, fs: FileSystem, directory: str) -> None:
        self._fs, self._path = fs, os.path.join(directory, WATERMARKS_NAME)
        self._last: tuple[bytes, Published] | None = None

    def read(self) -> Published | None:
        """Return the same as `published`; the result must not be modified.

        Cost: a read if the file is unchanged.
        """
        try:
            raw = read_bytes(self._fs, self._path)
        except FileNotFoundError:
            return None
        last = self._last
        # Compare the bytes, not the file's times: two renames within a clock tick may have the same
        # time.
        if last is not None and last[0] == raw:
            return last[1]
        found = _parsed(raw, self._path)
        self._last = None if found is None else (raw, found)
        return found


def _parsed(raw: bytes, path: str) -> Published | None:
    try:
        marks = parse_offsets(raw, path=path)
    except DataCorruptionError:
        return None
    if marks.pop(_SEAL, None) != _crc(marks):
        return None
    durable = marks.pop(_FLOOR, 0)
    starts = {
        TopicPartition(key.topic.removeprefix(_START), key.partition): marks.pop(key)
        for key in list(marks)
        if key.topic.startswith(_START)
    }
    return Published(marks, starts, durable)


def _crc(offsets: Mapping[TopicPartition, int]) -> int:
    return crc32c.crc32c(format_offsets(offsets))
