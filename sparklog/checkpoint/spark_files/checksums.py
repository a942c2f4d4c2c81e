"""Checksums beside a checkpoint's files.

    .<name>.crc    Hadoop, for every local file that it writes: "crc", 0, i32 bytes per chunk, then
                   the CRC-32 of each chunk
    <name>.crc     Spark, for state files (checkpoint format 2): JSON with the CRC-32C and size

Source: ChecksumFileSystem (Hadoop 3.4), ChecksumCheckpointFileManager (Spark 4.2).
"""

import json
import struct
import zlib
from typing import Final

from crc32c import crc32c

from sparklog.errors import DataCorruptionError

_HEADER: Final = struct.Struct(">4si")
_MAGIC: Final = b"crc\0"
_ALGORITHM: Final = "CRC32C"


def hadoop_name(path: str) -> str:
    """Return the path of Hadoop's checksum file of a file."""
    directory, slash, name = path.rpartition("/")
    return f"{directory}{slash}.{name}.crc"


def spark_name(path: str) -> str:
    """Return the path of Spark's checksum file of a file."""
    return f"{path}.crc"


def check_hadoop(data: bytes, checksums: bytes, path: str, checksums_path: str) -> None:
    """Compare a file with Hadoop's checksums of the file's chunks.

    Raises:
        DataCorruptionError: A chunk differs. The error has the position of the first such chunk.
    """
    if len(checksums) < _HEADER.size or not checksums.startswith(_MAGIC):
        raise DataCorruptionError("the file is not a checksum file of Hadoop", path=checksums_path)
    chunk = _HEADER.unpack_from(checksums)[1]
    count = (len(checksums) - _HEADER.size) // 4
    if chunk < 1 or (len(checksums) - _HEADER.size) % 4:
        raise DataCorruptionError("the file is not a checksum file of Hadoop", path=checksums_path)
    wanted = struct.unpack_from(f">{count}I", checksums, _HEADER.size)
    for number, at in enumerate(range(0, len(data), chunk)):
        if number >= count or zlib.crc32(data[at : at + chunk]) != wanted[number]:
            raise DataCorruptionError(
                f"the file differs from its checksum in {checksums_path}", path=path, position=at
            )
    if count != -(-len(data) // chunk):
        raise DataCorruptionError(
            f"the file has {len(data)} bytes, but {checksums_path} covers more",
            path=path,
            position=len(data),
        )


def check_spark(data: bytes, checksum: bytes, path: str, checksum_path: str) -> None:
    """Compare a state file with Spark's checksum.

    Raises:
        DataCorruptionError: The two differ.
    """
    try:
        document = json.loads(checksum)
        algorithm, value = str(document["algorithm"]), int(document["value"])
        size = int(document["mainFileSize"])
    except (ValueError, KeyError, TypeError) as error:
        raise DataCorruptionError(
            f"the file is not a checksum file of Spark: {error}", path=checksum_path
        ) from error
    if size != len(data):
        raise DataCorruptionError(
            f"the file has {len(data)} bytes, but {checksum_path} says {size}",
            path=path,
            position=min(len(data), size),
        )
    if algorithm == _ALGORITHM and crc32c(data) != value & 0xFFFFFFFF:
        raise DataCorruptionError(
            f"the file differs from its checksum in {checksum_path}", path=path
        )
