"""Decompresses and unzips state files; for their entries see state_changelog.py.

    delta, snapshot, changelog     compressed by the codec of
                                   spark.sql.streaming.stateStore.compression.codec
    zip                            RocksDB's small files, and `metadata`, which names the SST and
                                   log files, and the column families with their ids

Source: RocksDBFileManager (Spark 4.2), LZ4BlockOutputStream (lz4-java).
"""

import io
import json
import struct
import zipfile
import zlib
from dataclasses import dataclass
from typing import Any, Final

import lz4.block
import xxhash

from sparklog.checkpoint.spark_files import lzf
from sparklog.errors import DataCorruptionError
from sparklog.format.compression import Codec, decompress

_BLOCK: Final = struct.Struct("<8sBIII")  # magic, token, compressed, plain bytes, checksum
_BLOCK_MAGIC: Final = b"LZ4Block"
_RAW, _PACKED = 0x10, 0x20  # the token's upper half
_SEED: Final = 0x9747B28C
_BLOCK_MAX: Final = 1 << 25
_ZSTD_MAGIC: Final = b"\x28\xb5\x2f\xfd"
_SNAPPY_MAGIC: Final = b"\x82SNAPPY\x00"
_NO_ZIP: Final = (
    zipfile.BadZipFile, zlib.error, EOFError, KeyError, ValueError, OSError, NotImplementedError,
    RuntimeError, struct.error,
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class ImmutableFile:
    """A file that several RocksDB snapshots refer to: the path below the store, and the size."""

    path: str
    size_bytes: int


def plain(data: bytes, path: str) -> bytes:
    """Decompress a state file, by any of Spark's codecs.

    Raises:
        DataCorruptionError: The file is damaged. The error has the position, if a block shows it.
    """
    if data.startswith(_BLOCK_MAGIC):
        return _unblock(data, path)
    if data.startswith(_ZSTD_MAGIC):
        return bytes(decompress(Codec.ZSTD, data, path=path, position=0))
    if data.startswith(_SNAPPY_MAGIC):
        return bytes(decompress(Codec.SNAPPY, data, path=path, position=0))
    if data.startswith(lzf.MAGIC):
        return lzf.decompress(data, path)
    raise DataCorruptionError(
        "the file is not compressed by any codec of Spark", path=path, position=0
    )


def read_zip(data: bytes, path: str, *, check: bool = False) -> list[ImmutableFile]:
    """Return the SST and log files that a RocksDB snapshot needs.

    Args:
        data: The zip.
        path: The path, for errors.
        check: Whether to verify all CRCs.

    Raises:
        DataCorruptionError: The zip is damaged.
    """
    fields = _zip_metadata(data, path, check=check)
    try:
        ssts = [_immutable("SSTs", "dfsSstFileName", f) for f in fields.get("sstFiles") or []]
        logs = [_immutable("logs", "dfsLogFileName", f) for f in fields.get("logFiles") or []]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise DataCorruptionError(
            f"the metadata of the zip can't be read: {error}", path=path
        ) from error
    return ssts + logs


def read_families(data: bytes, path: str) -> dict[int, str]:
    """Return {id: name} of the column families in a RocksDB snapshot.

    Raises the errors of `read_zip`.
    """
    fields = _zip_metadata(data, path, check=False)
    try:
        return {
            int(at): str(name) for name, at in (fields.get("columnFamilyMapping") or {}).items()
        }
    except (ValueError, TypeError, AttributeError) as error:
        raise DataCorruptionError(
            f"the metadata of the zip can't be read: {error}", path=path
        ) from error


def _zip_metadata(data: bytes, path: str, *, check: bool) -> dict[str, Any]:
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            if check and (bad := archive.testzip()) is not None:
                raise DataCorruptionError(
                    f"the CRC of {bad} in the zip is wrong",
                    path=path,
                    position=archive.getinfo(bad).header_offset,
                )
            text = archive.read("metadata").decode()
    except _NO_ZIP as error:
        raise DataCorruptionError(
            f"the file is not the complete zip of a snapshot: {error}", path=path
        ) from error
    version, _, document = text.partition("\n")
    try:
        if version.strip() != "v1":
            raise ValueError(f"the version must be v1; got {version[:10]!r}")
        fields = json.loads(document)
        if not isinstance(fields, dict):
            raise TypeError("the metadata are not a JSON object")
    except (ValueError, TypeError) as error:
        raise DataCorruptionError(
            f"the metadata of the zip can't be read: {error}", path=path
        ) from error
    return fields


def _immutable(directory: str, key: str, fields: dict[str, Any]) -> ImmutableFile:
    return ImmutableFile(f"{directory}/{fields[key]}", int(fields["sizeBytes"]))


def _unblock(data: bytes, path: str) -> bytes:
    parts: list[bytes] = []
    at = 0
    while at < len(data):
        if len(data) - at < _BLOCK.size:
            raise DataCorruptionError(
                "the header of an LZ4 block is incomplete", path=path, position=at
            )
        magic, token, packed, size, checksum = _BLOCK.unpack_from(data, at)
        begin, end = at + _BLOCK.size, at + _BLOCK.size + packed
        if magic != _BLOCK_MAGIC or size > _BLOCK_MAX or token & 0xF0 not in (_RAW, _PACKED):
            raise DataCorruptionError(
                "the data have no valid LZ4 block at this position", path=path, position=at
            )
        if end > len(data):
            raise DataCorruptionError("an LZ4 block is incomplete", path=path, position=at)
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
        raise DataCorruptionError(
            f"an LZ4 block can't be decompressed: {error}", path=path, position=at
        ) from error
    if len(found) != size or xxhash.xxh32_intdigest(found, _SEED) & 0x0FFFFFFF != checksum:
        raise DataCorruptionError("the checksum of an LZ4 block is wrong", path=path, position=at)
    return found
