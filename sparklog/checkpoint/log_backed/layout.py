"""Maps a checkpoint's files to partitions and keys of its log dir, and back.

    offsets/<x>                       offsets-0                       <x>
    commits/<x>                       commits-0                       <x>
    state/<op>/<part>/<file>          state.<op>.default-<part>       <file>
    state/<op>/<part>/<store>/<file>  state.<op>.<store>-<part>       <file>
    everything else                   metadata-0                      the complete path

The log dir is `<checkpoint>/sparklog`. Files that Spark reads without its checkpoint manager stay
files. Source: sparklog/jvm/scala/checkpoint/Layout.scala, which does the same.
"""

import re
from typing import Final, NamedTuple

from crc32c import crc32c

from sparklog.errors import InvalidRequestError

LOGS: Final = "sparklog"
"""Name of the log dir within a checkpoint."""

RUNS_SCHEME: Final = "sparklog-"
"""What Spark's URL of a checkpoint in runs begins with, before the scheme of the store."""

RUNS_HOME: Final = f"{LOGS}/home"
"""The object that marks a checkpoint in runs, outside of a local disk; see stored_runs.py."""

METADATA_PARTITION: Final = "metadata-0"
RUNS: Final = "sparklog.runs"
"""Key in `metadata-0` of the checkpoint manager's own file: the query's runs, newest first."""

QUERY: Final = "sparklog.query"
"""File at a checkpoint's root: the query's name and its sink; see query_sink.py."""

RESET: Final = "sparklog.reset"
"""File at a checkpoint's root: its log still has to follow a reset; see reset.py."""

BUILDING: Final = ".sparklog.building"
"""File at the root of a checkpoint that is built beside its final name; it is locked."""

FILE_BYTES_MAX: Final = 32 << 20
"""Larger files stay files."""

_STORE: Final = r"[a-zA-Z0-9][a-zA-Z0-9._-]*"
_BATCH: Final = re.compile(r"(offsets|commits)/([^/]+)")
_DEFAULT: Final = re.compile(r"state/([0-9]+)/([0-9]+)/([^/]+)")
_NAMED: Final = re.compile(rf"state/([0-9]+)/([0-9]+)/({_STORE})/([^/]+)")
_PARTITION: Final = re.compile(rf"state\.([0-9]+)\.({_STORE})-([0-9]+)")


class RecordAddress(NamedTuple):
    """The place of a file's records: the partition's directory in the log dir, and the key."""

    partition: str
    key: str


def address_of(path: str) -> RecordAddress:
    """Return where the records of a file are; `path` is relative to the checkpoint."""
    if match := _BATCH.fullmatch(path):
        return RecordAddress(f"{match[1]}-0", match[2])
    if match := _DEFAULT.fullmatch(path):
        return RecordAddress(f"state.{match[1]}.default-{match[2]}", match[3])
    match = _NAMED.fullmatch(path)
    if match is not None and match[3] != "default":  # the default store has no directory
        return RecordAddress(f"state.{match[1]}.{match[3]}-{match[2]}", match[4])
    return RecordAddress(METADATA_PARTITION, path)


def path_of(partition: str, key: str) -> str:
    """Return the relative path of the file whose records have this key in a partition.

    Raises:
        InvalidRequestError: A checkpoint has no such partition.
    """
    if partition == METADATA_PARTITION:
        return key
    if partition in ("offsets-0", "commits-0"):
        return f"{partition[:-2]}/{key}"
    match = _PARTITION.fullmatch(partition)
    if match is None:
        raise InvalidRequestError(
            f"{partition} is no partition of a checkpoint's log dir: move it away"
        )
    directory = f"state/{match[1]}/{match[3]}"
    return f"{directory}/{key}" if match[2] == "default" else f"{directory}/{match[2]}/{key}"


def partition_tag(partition: str) -> int:
    """Return the base sequence of a partition's batches: 30 bits of the CRC-32C of the name.

    The sequence identifies batches of another partition. Readers of Kafka's format ignore the field
    in batches without a producer. Batches of sparklog 79c0b564 and older have -1 there.
    """
    return crc32c(partition.encode()) & 0x3FFFFFFF


def stays_file(path: str) -> bool:
    """Return True if a file never becomes a record, because Spark reads the file directly.

    These are RocksDB's snapshots with their SST and log files (RocksDBFileManager), and hidden
    files: Hadoop's checksums of local files, and files being written.
    """
    *directories, name = path.removesuffix(".crc").split("/")
    return (
        name.startswith(".")
        or name.endswith(".zip")
        or any(directory in ("SSTs", "logs") for directory in directories)
        or path == RESET
    )
