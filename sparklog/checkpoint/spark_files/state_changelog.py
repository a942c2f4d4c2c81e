"""The entries of a decompressed state file (state_files.py): key, value, kind of change.

    delta, snapshot     HDFS provider: (i32 key bytes, key, i32 value bytes or -1, value)*, i32 -1
    changelog v1        RocksDB: the same
    changelog v2        "v2" (UTF: u16 length), then entries (kind, i32, key, i32, value), kind 0
    changelog v3, v4    as v1 and v2, after "v3" or "v4" and the lineage as JSON (UTF)

Files with kinds (v2, v4) are of stores with column families. Source: HDFSBackedStateStoreProvider,
StateStoreChangelog (Spark 4.2).
"""

import json
from dataclasses import dataclass, field
from typing import Final

import numpy as np
from numpy.typing import NDArray

from sparklog.errors import DataCorruptionError
from sparklog.format import state_entries

PUT, DELETE, MERGE, DELETE_RANGE = 0x01, 0x10, 0x11, 0x20
# The same values as in format/state_entries.py, which may be compiled.
_CUT, _BAD_SIZE, _BAD_KIND = 1, 2, 3
_COLUMNS: Final = 5
_NONE: Final = np.empty((0, _COLUMNS), np.int64)


@dataclass(frozen=True, slots=True)
class StateFile:
    """The number of entries in a state file, and the versions that the file builds on.

    Attributes:
        lineage: [(version, id)] of the preceding files, from the newest snapshot on (changelog v3
            and v4).
        version: The version of the changelog's format.
    """

    version: int
    entries: int
    lineage: list[tuple[int, str]] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Entries:
    """The entries of a file, in order, as positions in `data` (bytes).

    Attributes:
        kinds: PUT, DELETE, MERGE or DELETE_RANGE. The value size of a deletion is -1.
        has_families: Whether keys begin with the id of a column family.
    """

    data: NDArray[np.uint8]
    has_families: bool
    kinds: NDArray[np.int64]
    key_at: NDArray[np.int64]
    key_size: NDArray[np.int64]
    value_at: NDArray[np.int64]
    value_size: NDArray[np.int64]


def read_changes(data: bytes, path: str) -> StateFile:
    """Check a delta, snapshot or changelog up to the end mark.

    Raises:
        DataCorruptionError: The file is damaged or incomplete.
    """
    version, at, lineage = _preface(data, path)
    return StateFile(version, _walk(data, at, version, path, _NONE), lineage)


def read_entries(data: bytes, path: str) -> Entries:
    """Return all entries of a delta, snapshot or changelog.

    Raises:
        DataCorruptionError: The file is damaged or incomplete.
    """
    version, at, _ = _preface(data, path)
    table = np.empty((_walk(data, at, version, path, _NONE), _COLUMNS), np.int64)
    _walk(data, at, version, path, table)
    kinds, key_at, key_size, value_at, value_size = np.ascontiguousarray(table.T)
    return Entries(
        data=np.frombuffer(data, np.uint8),
        has_families=version in (2, 4),
        kinds=kinds,
        key_at=key_at,
        key_size=key_size,
        value_at=value_at,
        value_size=value_size,
    )


def read_lineage(data: bytes, path: str) -> list[tuple[int, str]]:
    """Return the lineage of a changelog, or []. Raises: DataCorruptionError."""
    return _preface(data, path)[2]


def _walk(data: bytes, at: int, version: int, path: str, out: NDArray[np.int64]) -> int:
    status, count, end = state_entries.walk(memoryview(data), at, version in (2, 4), out.data)
    if status == _CUT:
        raise DataCorruptionError("the file has no end mark", path=path)
    if status == _BAD_KIND:
        raise DataCorruptionError(
            f"entry {count} has the unknown type {data[end]}, at byte {end} of the {len(data)} "
            "decompressed bytes",
            path=path,
        )
    if status == _BAD_SIZE:
        raise DataCorruptionError(
            f"the key or value of entry {count} has a wrong size, at byte {end} of the {len(data)} "
            "decompressed bytes",
            path=path,
        )
    if end != len(data):
        raise DataCorruptionError(f"{len(data) - end} bytes follow the end mark", path=path)
    return int(count)


def _preface(data: bytes, path: str) -> tuple[int, int, list[tuple[int, str]]]:
    """Return (format version, position of the first entry, lineage) of a changelog."""
    # v1 has no such line. It begins with a key's length, whose upper half is 2 only for keys of
    # 128 KiB and more.
    if data[:3] != b"\0\2v" or data[3:4] not in (b"2", b"3", b"4"):
        return 1, 0, []
    version = int(data[3:4])
    if version == 2:
        return version, 4, []
    size = int.from_bytes(data[4:6], "big")
    try:
        lineage = [
            (int(item["version"]), str(item["checkpointUniqueId"]))
            for item in json.loads(data[6 : 6 + size])
        ]
    except (ValueError, KeyError, TypeError) as error:
        raise DataCorruptionError(
            f"the lineage of the changelog can't be read: {error}", path=path
        ) from error
    return version, 6 + size, lineage
