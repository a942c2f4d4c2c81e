"""What is inside a state file: Spark's compression, and the entries within.

    delta, snapshot     HDFS provider: (i32 key bytes, key, i32 value bytes or -1, value)*, i32 -1
    changelog v1        RocksDB: the same
    changelog v2        "v2" (UTF: u16 length), then entries (type, i32, key, i32, value), type 0
    changelog v3, v4    as v1 and v2, after "v3" or "v4" and the lineage as JSON (UTF)
    zip                 RocksDB's small files, and `metadata`, which names the SST and log files

Compressed as a whole, by spark.sql.streaming.stateStore.compression.codec; by the first bytes one
sees which. Source: HDFSBackedStateStoreProvider, StateStoreChangelog, RocksDBFileManager (Spark
4.2); LZ4BlockOutputStream (lz4-java).
"""

import io
import json
import struct
import zipfile
import zlib
from dataclasses import dataclass, field
from typing import Any, Final

import lz4.block
import xxhash

from sparklog.errors import DataCorruptionError
from sparklog.format.compression import Codec, decompress

_BLOCK: Final = struct.Struct("<8sBIII")  # magic, token, compressed, plain bytes, checksum
_BLOCK_MAGIC: Final = b"LZ4Block"
_RAW, _PACKED = 0x10, 0x20  # the token's upper half
_SEED: Final = 0x9747B28C
_BLOCK_MAX: Final = 1 << 25
_ZSTD_MAGIC: Final = b"\x28\xb5\x2f\xfd"
_SNAPPY_MAGIC: Final = b"\x82SNAPPY\x00"
_LZF_MAGIC: Final = b"ZV"
_INT: Final = struct.Struct(">i")
_NO_ZIP: Final = (
    zipfile.BadZipFile, zlib.error, EOFError, KeyError, ValueError, OSError, NotImplementedError,
    RuntimeError, struct.error,
)  # fmt: skip
_PUT, _DELETE, _MERGE, _DELETE_RANGE = 0x01, 0x10, 0x11, 0x20


@dataclass(frozen=True, slots=True)
class StateFile:
    """A state file's contents: how many entries, and the versions it builds on.

    `lineage`: [(version, id)] of the files before it, from the newest snapshot on (changelog v3
    and v4). `version`: of the changelog's format.
    """

    version: int
    entries: int
    lineage: list[tuple[int, str]] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Immutable:
    """A file that a RocksDB snapshot shares with others: path below the store, and its size."""

    path: str
    size_bytes: int


def plain(data: bytes, path: str) -> bytes | None:
    """Decompress a state file; None if its codec (lzf) can't be read here.

    Raises: DataCorruptionError with the position in the file, where a block's place tells it.
    """
    if data.startswith(_BLOCK_MAGIC):
        return _unblock(data, path)
    if data.startswith(_ZSTD_MAGIC):
        return bytes(decompress(Codec.ZSTD, data, path=path, position=0))
    if data.startswith(_SNAPPY_MAGIC):
        return bytes(decompress(Codec.SNAPPY, data, path=path, position=0))
    if data.startswith(_LZF_MAGIC):
        return None
    raise DataCorruptionError("it isn't compressed by any of Spark's codecs", path=path, position=0)


def read_changes(data: bytes, path: str) -> StateFile:
    """Check a delta, snapshot or changelog, already decompressed, to its end mark.

    Raises: DataCorruptionError. Cost: a loop over the entries, about a second a million.
    """
    version, at, lineage = _preface(data, path)
    walk = _count_typed if version in (2, 4) else _count_plain
    try:
        count, end = walk(data, at, path)
    except (struct.error, IndexError):
        raise DataCorruptionError("it ends without its end mark", path=path) from None
    if end != len(data):
        raise DataCorruptionError(f"{len(data) - end} bytes follow its end mark", path=path)
    return StateFile(version, count, lineage)


def read_lineage(data: bytes, path: str) -> list[tuple[int, str]]:
    """The lineage of a changelog, already decompressed; [] if it has none.

    Raises: DataCorruptionError.
    """
    return _preface(data, path)[2]


def read_zip(data: bytes, path: str, *, check: bool = False) -> list[Immutable]:
    """The SST and log files that a RocksDB snapshot needs; `check` looks at all CRCs.

    Raises: DataCorruptionError.
    """
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            if check and (bad := archive.testzip()) is not None:
                raise DataCorruptionError(
                    f"the CRC of {bad} in it is wrong",
                    path=path,
                    position=archive.getinfo(bad).header_offset,
                )
            text = archive.read("metadata").decode()
    except _NO_ZIP as error:
        raise DataCorruptionError(
            f"it is no whole zip of a snapshot: {error}", path=path
        ) from error
    version, _, document = text.partition("\n")
    try:
        if version.strip() != "v1":
            raise ValueError(f"version {version[:10]!r}")
        fields = json.loads(document)
        ssts = [_immutable("SSTs", "dfsSstFileName", f) for f in fields.get("sstFiles") or []]
        logs = [_immutable("logs", "dfsLogFileName", f) for f in fields.get("logFiles") or []]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise DataCorruptionError(f"its metadata can't be read: {error}", path=path) from error
    return ssts + logs


def _immutable(directory: str, key: str, fields: dict[str, Any]) -> Immutable:
    return Immutable(f"{directory}/{fields[key]}", int(fields["sizeBytes"]))


def _unblock(data: bytes, path: str) -> bytes:
    parts: list[bytes] = []
    at = 0
    while at < len(data):
        if len(data) - at < _BLOCK.size:
            raise DataCorruptionError("an LZ4 block's header is cut", path=path, position=at)
        magic, token, packed, size, checksum = _BLOCK.unpack_from(data, at)
        begin, end = at + _BLOCK.size, at + _BLOCK.size + packed
        if magic != _BLOCK_MAGIC or size > _BLOCK_MAX or token & 0xF0 not in (_RAW, _PACKED):
            raise DataCorruptionError("here begins no LZ4 block", path=path, position=at)
        if end > len(data):
            raise DataCorruptionError("an LZ4 block is cut", path=path, position=at)
        if not size:
            if end != len(data):
                raise DataCorruptionError("bytes follow the last block", path=path, position=end)
            return b"".join(parts)
        parts.append(_block(data[begin:end], token & 0xF0, size, checksum, path, at))
        at = end
    raise DataCorruptionError("the last LZ4 block is missing", path=path, position=at)


def _block(packed: bytes, method: int, size: int, checksum: int, path: str, at: int) -> bytes:
    try:
        found: bytes = packed
        if method == _PACKED:
            found = lz4.block.decompress(packed, uncompressed_size=size)
    except lz4.block.LZ4BlockError as error:
        raise DataCorruptionError(f"an LZ4 block: {error}", path=path, position=at) from error
    if len(found) != size or xxhash.xxh32_intdigest(found, _SEED) & 0x0FFFFFFF != checksum:
        raise DataCorruptionError("an LZ4 block's checksum is wrong", path=path, position=at)
    return found


def _preface(data: bytes, path: str) -> tuple[int, int, list[tuple[int, str]]]:
    """(format version, place of the first entry, lineage) of a changelog."""
    # v1 has no such line; it begins with a key's length, whose upper half is no 2 for a real key
    # unless that has 128 KiB and more.
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
        raise DataCorruptionError(f"its lineage can't be read: {error}", path=path) from error
    return version, 6 + size, lineage


def _count_plain(data: bytes, at: int, path: str) -> tuple[int, int]:
    count = 0
    while (size := _INT.unpack_from(data, at)[0]) != -1:
        at = _field_end(data, at, size, path)
        size = _INT.unpack_from(data, at)[0]
        at = at + 4 if size == -1 else _field_end(data, at, size, path)
        count += 1
    return count, at + 4


def _count_typed(data: bytes, at: int, path: str) -> tuple[int, int]:
    count = 0
    while kind := data[at]:
        if kind not in (_PUT, _DELETE, _MERGE, _DELETE_RANGE):
            raise DataCorruptionError(f"entry {count} has the unknown type {kind}", path=path)
        at = _field_end(data, at + 1, _INT.unpack_from(data, at + 1)[0], path)
        size = _INT.unpack_from(data, at)[0]
        at = at + 4 if kind == _DELETE and size == -1 else _field_end(data, at, size, path)
        count += 1
    return count, at + 1


def _field_end(data: bytes, at: int, size: int, path: str) -> int:
    end = at + 4 + size
    if size < 0 or end > len(data):
        raise DataCorruptionError(
            f"a key or value of {size} bytes at byte {at} of its plain {len(data)}", path=path
        )
    return end
