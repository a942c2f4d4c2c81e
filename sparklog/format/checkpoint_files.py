"""Kafka's small text files: offset checkpoints, leader epochs, partition.metadata.

Checkpoints are UTF-8 lines: "0" (the version), the number of entries, one entry per line, and a
final newline; an empty file has no entries. partition.metadata is `version: 0`, newline, `topic_id:
<22 characters>`, without a final newline. sparklog adds a third line, `partition: <number>`, which
brokers do not read.
Source: CheckpointFile.java, OffsetCheckpointFile, LeaderEpochCheckpointFile,
PartitionMetadataFile.java (Kafka 1eb7644).
"""

import base64
import binascii
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from sparklog.common import TopicPartition
from sparklog.errors import DataCorruptionError

CLEAN_SHUTDOWN: Final = ".kafka_cleanshutdown"
CLEAN_SHUTDOWN_CONTENT: Final = b'{"version":0,"brokerEpoch":-1}'

Offsets = dict[TopicPartition, int]
Epochs = list[tuple[int, int]]


def parse_offsets(data: bytes, path: str) -> Offsets:
    """Return {(topic, partition): offset} of an offset checkpoint.

    Raises:
        DataCorruptionError: The version, the count or a line is wrong.
    """
    offsets: Offsets = {}
    for line in _entries(data, path):
        fields = line.split()
        if len(fields) != 3:
            raise _damaged(path, f"the line {line!r} must consist of topic, partition and offset")
        key = TopicPartition(fields[0], _int(fields[1], path))
        offsets[key] = _int(fields[2], path)
    return offsets


def format_offsets(offsets: Mapping[TopicPartition, int]) -> bytes:
    """Return the bytes of an offset checkpoint, sorted by topic and partition."""
    return _checkpoint(f"{topic} {p} {offset}" for (topic, p), offset in sorted(offsets.items()))


def parse_epochs(data: bytes, path: str) -> Epochs:
    """Return [(epoch, start offset)] of a leader-epoch-checkpoint, ascending.

    Raises:
        DataCorruptionError: The version, the count, a line or the order is wrong.
    """
    epochs: Epochs = []
    for line in _entries(data, path):
        fields = line.split()
        if len(fields) != 2:
            raise _damaged(path, f"{line!r} is not `epoch startOffset`")
        entry = _int(fields[0], path), _int(fields[1], path)
        # Two epochs may start at the same offset: no record was appended in the first of them.
        if epochs and (entry[0] <= epochs[-1][0] or entry[1] < epochs[-1][1]):
            raise _damaged(path, f"epoch {entry} comes after {epochs[-1]}")
        epochs.append(entry)
    return epochs


def format_epochs(epochs: Sequence[tuple[int, int]]) -> bytes:
    """Return the bytes of a leader-epoch-checkpoint."""
    return _checkpoint(f"{epoch} {start}" for epoch, start in epochs)


class PartitionMetadata(NamedTuple):
    """Contents of a partition.metadata file.

    `partition` is None in files that a broker or an older sparklog has written.
    """

    topic_id: str
    partition: int | None


def parse_partition_metadata(data: bytes, path: str) -> PartitionMetadata:
    """Return the topic id (22 characters of URL-safe base64) and the partition's number.

    Raises:
        DataCorruptionError: The version is not 0, the id is missing or zero, or the partition is
            not a number.
    """
    fields = dict(line.split(": ", 1) for line in _lines(data, path) if ": " in line)
    if fields.get("version", "").strip() != "0":
        raise _damaged(path, "the line `version: 0` is missing")
    topic_id = fields.get("topic_id", "").strip()
    try:
        raw = topic_id_bytes(topic_id)
    except ValueError:
        raise _damaged(path, f"topic_id {topic_id!r} is not a UUID in base64") from None
    if not any(raw):  # Kafka's Uuid.ZERO_UUID, which means "no id"
        raise _damaged(path, "the topic id is zero")
    number = fields.get("partition")
    return PartitionMetadata(topic_id, None if number is None else _int(number, path))


def format_partition_metadata(topic_id: str, partition: int | None) -> bytes:
    """Return the bytes of a partition.metadata file, without a final newline.

    Source: PartitionMetadataFile.java, which reads the first two lines and no more.
    """
    third = "" if partition is None else f"\npartition: {partition}"
    return f"version: 0\ntopic_id: {topic_id}{third}".encode()


def topic_id_text(raw: bytes) -> str:
    """Return a UUID's 16 bytes in Kafka's text form: URL-safe base64 without padding."""
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()


def topic_id_bytes(text: str) -> bytes:
    """Return the 16 bytes of a topic id.

    Raises:
        ValueError: The text is not a topic id.
    """
    try:
        # Kafka's text form has no padding.
        raw = base64.b64decode(text + "==", altchars=b"-_", validate=True)
    except binascii.Error as error:
        raise ValueError(str(error)) from None
    if len(raw) != 16:
        raise ValueError(f"a topic id must have 16 bytes, but has {len(raw)}")
    return raw


def _checkpoint(lines: Iterable[str]) -> bytes:
    entries = list(lines)
    return "\n".join(["0", str(len(entries)), *entries, ""]).encode()


def _entries(data: bytes, path: str) -> list[str]:
    lines = _lines(data, path)
    if not lines:
        return []
    if _int(lines[0], path) != 0:
        raise _damaged(path, f"version {lines[0]} is unknown")
    if len(lines) < 2 or _int(lines[1], path) != len(lines) - 2:
        raise _damaged(
            path, f"line 2 is {lines[1:2]}, but must be the number of entries, {len(lines) - 2}"
        )
    return lines[2:]


def _lines(data: bytes, path: str) -> list[str]:
    try:
        return data.decode().splitlines()
    except UnicodeDecodeError:
        raise _damaged(path, "the file is not text") from None


def _int(text: str, path: str) -> int:
    try:
        value = int(text)
    except ValueError:
        raise _damaged(path, f"{text!r} is not a number") from None
    if not -(2**63) <= value < 2**63:
        raise _damaged(path, f"{text} is out of range")
    return value


def _damaged(path: str, reason: str) -> DataCorruptionError:
    return DataCorruptionError(reason, path=path)
