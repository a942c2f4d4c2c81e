"""Names of topics, partition directories and files. Text in, text out; no lookups.

The directory of a partition is `<topic>-<partition>`, split at the last "-". Its files are named by
their base offset in 20 digits. Source: LogFileUtils.java, LocalLog.parseTopicPartitionName,
Topic.java (Kafka 1eb7644).
"""

import re
from typing import Final

from sparklog.common import TopicPartition
from sparklog.errors import InvalidRequestError

LOG: Final = ".log"
INDEX: Final = ".index"
TIMEINDEX: Final = ".timeindex"
TXNINDEX: Final = ".txnindex"
SNAPSHOT: Final = ".snapshot"
DELETED: Final = ".deleted"
CLEANED: Final = ".cleaned"
SWAP: Final = ".swap"
EPOCH_CHECKPOINT: Final = "leader-epoch-checkpoint"
PARTITION_METADATA: Final = "partition.metadata"

TOPIC_LENGTH_MAX: Final = 249
OFFSET_MAX: Final = 2**63 - 1
KAFKA_INTERNAL: Final = frozenset(
    {"__consumer_offsets", "__transaction_state", "__share_group_state"}
)
"""A broker's own topics, which clients may read and never write. Source: Topic.isInternal."""

RESERVED: Final = KAFKA_INTERNAL | {
    "__cluster_metadata",
    "__remote_log_metadata",
    "__sparklog_commits",
}
"""Topic names that Kafka or sparklog reserve."""

TOPIC_REFUSED: Final = "topic name {name} is not allowed; choose another"
TOPIC_TOO_LONG: Final = "topic name {name}... has {length} characters, more than {most}"
TOPIC_CHARACTERS: Final = (
    "topic name {name} holds other characters than letters, digits, '.', '_' and '-'"
)
"""Why a name is rejected. `name` is Python's repr."""

_TOPIC: Final = re.compile(r"[a-zA-Z0-9._-]+")
_DELETED_DIR: Final = re.compile(r".+-([0-9]{1,10})\.([0-9a-f]{32})-delete")
_RETIRED_DIR: Final = re.compile(r".+-([0-9]{1,10})\.([0-9a-f]{32})-(delete|stray|future)")
_FUTURE_DIR: Final = re.compile(r".+-([0-9]{1,10})\.([0-9a-f]{32})-future")
_DIR_NAME_MAX: Final = 255  # bytes; a topic's name has one byte per character
_DIRECTORY: Final = re.compile(r"(.+)-([0-9]{1,10})", re.ASCII | re.DOTALL)
_STEM_MAX: Final = f"{OFFSET_MAX:020d}"


def log_name(base: int) -> str:
    """Return the name of the segment's log file, e.g. `00000000000000000100.log`."""
    return f"{base:020d}{LOG}"


def index_name(base: int) -> str:
    """Return the name of the segment's offset index."""
    return f"{base:020d}{INDEX}"


def timeindex_name(base: int) -> str:
    """Return the name of the segment's time index."""
    return f"{base:020d}{TIMEINDEX}"


def txnindex_name(base: int) -> str:
    """Return the name of the segment's index of aborted transactions."""
    return f"{base:020d}{TXNINDEX}"


def snapshot_name(offset: int) -> str:
    """Return the name of the producer snapshot of all records below `offset`."""
    return f"{offset:020d}{SNAPSHOT}"


def parse_base(name: str) -> int | None:
    """Return the base offset at the beginning of a file name, or None."""
    stem = name[:20]
    # isdigit() alone accepts digits of other scripts; 20 digits can exceed an offset's 64 bits.
    if name[20:21] != "." or not (stem.isascii() and stem.isdigit()) or stem > _STEM_MAX:
        return None
    return int(stem)


def partition_dir(topic: str, partition: int) -> str:
    """Return the directory of a partition, relative to the log dir."""
    return f"{topic}-{partition}"


def parse_partition_dir(name: str) -> TopicPartition | None:
    """Return (topic, partition) of a live partition's directory name. Other names give None.

    `-delete`, `-stray` and `-future` directories don't end with a number, so they give None.
    """
    match = _DIRECTORY.fullmatch(name)
    if match is None or not _TOPIC.fullmatch(match[1]) or match[1] in (".", ".."):
        return None
    partition = int(match[2])
    # Only the canonical spelling: "t-00" would be a second directory for partition 0.
    if partition > 2**31 - 1 or str(partition) != match[2]:
        return None
    return TopicPartition(match[1], partition)


def retired_dir(topic: str, partition: int, mark: str, why: str) -> str:
    """Return the name of a retired partition directory, truncated to the file system's limit.

    Args:
        topic: The name of the topic.
        partition: The number of the partition.
        mark: 32 hexadecimal digits, which make the name unique: random, or the topic id.
        why: delete, stray or future.

    Source: LocalLog.logDirNameWithSuffixCappedLength.
    """
    suffix = f"-{partition}.{mark}-{why}"
    return topic[: _DIR_NAME_MAX - len(suffix)] + suffix


def is_retired_dir_of(name: str, topic: str) -> bool:
    """Return whether a retired directory was a partition of a topic, by the directory's name.

    A truncated name can also belong to another topic with the same first 200 characters.
    """
    match = _RETIRED_DIR.fullmatch(name)
    return match is not None and name == retired_dir(topic, int(match[1]), match[2], match[3])


def parse_deleted_dir(name: str) -> tuple[int, str] | None:
    """Return (partition, mark) of a `-delete` directory's name; None for other names.

    The mark is 32 hexadecimal digits: see `retired_dir`.
    """
    match = _DELETED_DIR.fullmatch(name)
    return None if match is None else (int(match[1]), match[2])


def parse_future_dir(name: str) -> tuple[int, str] | None:
    """Return (partition, mark) of a `-future` directory's name; None for other names.

    Such a directory is a copy that will replace the partition's directory. The mark is 32
    hexadecimal digits: see `retired_dir`.
    """
    match = _FUTURE_DIR.fullmatch(name)
    return None if match is None else (int(match[1]), match[2])


def check_topic(name: str) -> None:
    """Reject topic names that Kafka rejects. Source: Topic.validate.

    Raises:
        InvalidRequestError: The name is empty, ".", "..", has more than 249 characters, or has
            characters other than [a-zA-Z0-9._-].
    """
    if not name or name in (".", ".."):
        raise InvalidRequestError(TOPIC_REFUSED.format(name=repr(name)))
    if len(name) > TOPIC_LENGTH_MAX:
        fields = {"name": repr(name[:20]), "length": len(name), "most": TOPIC_LENGTH_MAX}
        raise InvalidRequestError(TOPIC_TOO_LONG.format(**fields))
    if not _TOPIC.fullmatch(name):
        raise InvalidRequestError(TOPIC_CHARACTERS.format(name=repr(name)))


def collides(a: str, b: str) -> bool:
    """Return whether two topics have the same metric names, where '.' and '_' are equal."""
    return a.replace(".", "_") == b.replace(".", "_")
