"""Kafka's checkpoint files of a log dir: recovery points, log starts, high watermarks.

Readers always use log-start-offset-checkpoint. The other two files are for Kafka, and are updated
at a clean close (recovery points also when a segment rolls). The cleaner's checkpoint is the start
of the dirty part. sparklog's file beside it is the offset up to which any cleaning may have read,
and is written before a cleaned segment is swapped in. Sources: LogManager
(checkpointRecoveryOffsetsInDir, checkpointLogStartOffsetsInDir), ReplicaManager.
"""

import os
from collections.abc import Mapping
from typing import Final

from sparklog.common import TopicPartition
from sparklog.errors import DataCorruptionError
from sparklog.format.checkpoint_files import format_offsets, parse_offsets
from sparklog.fs import FileSystem, read_bytes, write_durably
from sparklog.logdir.repair_advice import rebuilt_by_repair

RECOVERY_POINT: Final = "recovery-point-offset-checkpoint"
LOG_START: Final = "log-start-offset-checkpoint"
HIGH_WATERMARK: Final = "replication-offset-checkpoint"
CLEANER: Final = "cleaner-offset-checkpoint"
CLEANED: Final = "sparklog.cleaned"
Offsets = dict[TopicPartition, int]


def read_offsets(fs: FileSystem, directory: str, name: str) -> Offsets:
    """Return {(topic, partition): offset}; empty without a file.

    Raises:
        DataCorruptionError: The file is damaged. Kafka then takes the log dir offline.
    """
    path = os.path.join(directory, name)
    try:
        raw = read_bytes(fs, path)
    except FileNotFoundError:
        return {}
    try:
        return parse_offsets(raw, path=path) if raw else {}
    except DataCorruptionError as error:
        raise rebuilt_by_repair(error) from error


def write_offsets(
    fs: FileSystem, directory: str, name: str, offsets: Mapping[TopicPartition, int]
) -> None:
    """Replace a checkpoint file, durably."""
    write_durably(fs, os.path.join(directory, name), format_offsets(offsets))


def closed_offsets(ends: Offsets, starts: Mapping[TopicPartition, int]) -> dict[str, Offsets]:
    """Return {name: content} of a log dir's checkpoint files after a clean close, in writing order.

    Args:
        ends: The log end offsets of the log dir's partitions.
        starts: Log start offsets above 0, also of other partitions.
    """
    own_starts = {key: starts[key] for key in ends if key in starts}
    return {RECOVERY_POINT: ends, LOG_START: own_starts, HIGH_WATERMARK: ends}


def raise_offsets(
    fs: FileSystem, directory: str, name: str, offsets: Mapping[TopicPartition, int]
) -> None:
    """Raise the offsets in a checkpoint file to at least `offsets`, durably."""
    known = read_offsets(fs, directory, name)
    higher = {key: offset for key, offset in offsets.items() if offset > known.get(key, 0)}
    if higher:
        write_offsets(fs, directory, name, known | higher)
