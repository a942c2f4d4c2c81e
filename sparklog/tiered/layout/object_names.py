"""Names of objects below the target URL: builds and parses them.

    <topic>-<partition>-<topic id>/<base>-<segment id>.log
    <topic>-<partition>-<topic id>/<base>-<segment id>.<end>.<max timestamp>.manifest
    <topic>-<partition>-<topic id>/<offset>.log-start

The first is the segment's log, byte for byte (or encrypted); the second its manifest with all its
indexes (manifest.py). The manifest is written last and deleted first: a segment exists if its
manifest does. Its name contains all data for finding offsets and times, so a single listing of a
prefix opens a partition, without a request per segment. The third is empty: its name raises the log
start offset if that is within a segment (delete_records). Source of the first form:
LocalTieredStorage (Kafka 4.1).
"""

import re
from dataclasses import dataclass
from typing import Final

from sparklog.errors import InvalidRequestError
from sparklog.format.names import LOG, check_topic

MANIFEST: Final = ".manifest"
LOG_START: Final = ".log-start"
_ID: Final = "[A-Za-z0-9_-]{22}"
_DIRECTORY: Final = re.compile(rf"(.+)-([0-9]{{1,10}})-({_ID})", re.ASCII | re.DOTALL)
_LOG: Final = re.compile(rf"([0-9]{{20}})-({_ID})\.log", re.ASCII)
_LOG_START: Final = re.compile(r"([0-9]{20})\.log-start", re.ASCII)
_MANIFEST: Final = re.compile(
    rf"([0-9]{{20}})-({_ID})\.([0-9]{{20}})\.(-1|[0-9]{{1,19}})\.manifest", re.ASCII
)


@dataclass(frozen=True, slots=True)
class Directory:
    """The prefix of a partition's object names: topic, partition and topic id."""

    topic: str
    partition: int
    topic_id: str

    @property
    def prefix(self) -> str:
        """The common prefix of the partition's object names, including the slash."""
        return f"{self.topic}-{self.partition}-{self.topic_id}/"


@dataclass(frozen=True, slots=True)
class Listed:
    """The facts in the name of a manifest.

    Attributes:
        base: The base offset of the segment.
        id: The segment id.
        end: The offset after the segment's last record.
        max_timestamp: The largest timestamp in ms.
    """

    base: int
    id: str
    end: int
    max_timestamp: int


def parse_directory(name: str) -> Directory | None:
    """Return the partition of a prefix (without slashes), or None for other names.

    The topic's name is valid in Kafka, so it can be used as the name of a directory.
    """
    match = _DIRECTORY.fullmatch(name)
    # A number with leading zeros would be a second prefix of the same partition.
    if match is None or str(int(match[2])) != match[2]:
        return None
    try:
        check_topic(match[1])
    except InvalidRequestError:
        return None
    return Directory(match[1], int(match[2]), match[3])


def remote_log_name(base: int, segment_id: str) -> str:
    """Return the name of a segment's log, within the partition's prefix."""
    return f"{base:020d}-{segment_id}{LOG}"


def manifest_name(base: int, segment_id: str, end: int, max_timestamp: int) -> str:
    """Return the name of a segment's manifest, within the partition's prefix."""
    return f"{base:020d}-{segment_id}.{end:020d}.{max_timestamp}{MANIFEST}"


def log_start_name(offset: int) -> str:
    """Return the name of the object that raises a partition's log start offset."""
    return f"{offset:020d}{LOG_START}"


def parse_log_start(name: str) -> int | None:
    """Return the log start offset in an object's name, or None for other names."""
    match = _LOG_START.fullmatch(name)
    return None if match is None else int(match[1])


def parse_log(name: str) -> tuple[int, str] | None:
    """Return (base offset, segment id) of a log's object name, or None for other names."""
    match = _LOG.fullmatch(name)
    return None if match is None else (int(match[1]), match[2])


def parse_manifest(name: str) -> Listed | None:
    """Parse a manifest's object name; return None for other names."""
    match = _MANIFEST.fullmatch(name)
    if match is None:
        return None
    return Listed(int(match[1]), match[2], int(match[3]), int(match[4]))
