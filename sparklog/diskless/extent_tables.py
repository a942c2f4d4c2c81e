"""Extent tables: the locations of a commit's chunks, if they are too many for its entry.

A table is an object that the driver writes before the entry. Each partition then has a single
extent in it, of `pieces` rows (`extents.Extent`). The names come first, so that a reader of a
partition gets them with the head, and its rows by a second request.

    at  len  field
     0    4  magic "SLXT"
     4    4  version
     8    8  size of the names
    16    4  CRC-32C of the names
    20    4  CRC-32C of the 20 bytes before
    24       names: JSON, zlib: {"names": [object, ...], "keys": {object: its data key}}
             a block per partition: its rows in order (36 bytes each), their CRC-32C (4), the
             CRC-32C of each chunk's bytes (4 each), and the CRC-32C of rows and checksums (4)

The entry records the last of these as the checksum of the partition's extent. If the extent has no
checksum, its block ends with the CRC-32C of its rows: an older version wrote the table, or a chunk.
Little-endian. A table is never changed; its data keys are wrapped by the master key of the time
when it was written.
"""

import json
import struct
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import crc32c
import numpy as np
from numpy.typing import NDArray

from sparklog.diskless.entries import ObjectKey, key_to_json, keys_from_json
from sparklog.diskless.extents import PIECE_DTYPE, Extent, Extents
from sparklog.diskless.names import checked_object
from sparklog.errors import DataCorruptionError
from sparklog.storage.stored_json import FORMAT_VERSION, check_version, parse_json

Pieces = NDArray[np.void]
"""Rows of PIECE_DTYPE: the chunks of one partition, in order."""
Get = Callable[[int, int], bytes]
"""Returns the bytes [start, end) of a table, fewer at its end."""

_ROW_DTYPE: Final = np.dtype([(n, PIECE_DTYPE[n]) for n in PIECE_DTYPE.names or () if n != "crc"])
_SUM_DTYPE: Final = np.dtype("<u4")
HEAD_BYTES: Final = 64 << 10
"""Size of a reader's first request: the head and about 1,500 names."""
NAMES_MAX: Final = 256 << 20
"""Maximum size of the decompressed names; those of two million objects have 200 MB."""
_HEAD: Final = struct.Struct("<4sIQI")
_CRC: Final = struct.Struct("<I")
_MAGIC: Final = b"SLXT"
_NAMES_AT: Final = _HEAD.size + _CRC.size
assert _NAMES_AT == 24
_CURE: Final = "restore the object from a copy of the bucket"


@dataclass(frozen=True, slots=True)
class TableHead:
    """The names of the objects that a table refers to, and the keys of encrypted objects."""

    names: Sequence[str]
    keys: Mapping[str, ObjectKey]


class Block(NamedTuple):
    """The place of a partition's rows in an extent table.

    Attributes:
        start: The position of the block (the rows and their checksums) in the table.
        crc: The checksum of the block, which the ledger entry records.
    """

    start: int
    crc: int


def block_size(extent: Extent) -> int:
    """Return the size in bytes of the block of an extent in a table."""
    size = extent.pieces * _ROW_DTYPE.itemsize + _CRC.size
    return size if extent.crc < 0 else size + extent.pieces * _SUM_DTYPE.itemsize + _CRC.size


def encode(head: TableHead, blocks: Iterable[Pieces]) -> tuple[bytes, list[Block]]:
    """Encode a table; return the bytes, and the position and checksum of each partition's block."""
    keys = {name: key_to_json(key) for name, key in head.keys.items()}
    names = zlib.compress(json.dumps({"names": list(head.names), "keys": keys}).encode())
    fields = _HEAD.pack(_MAGIC, FORMAT_VERSION, len(names), crc32c.crc32c(names))
    parts, places = [fields, _CRC.pack(crc32c.crc32c(fields)), names], []
    at = _NAMES_AT + len(names)
    for block in blocks:
        rows, crc = _rows_of(block), -1
        written = [rows, _CRC.pack(crc32c.crc32c(rows))]
        if (block["crc"] >= 0).all():
            sums = block["crc"].astype(_SUM_DTYPE).tobytes()
            crc = crc32c.crc32c(sums, crc32c.crc32c(rows))
            written += [sums, _CRC.pack(crc)]
        places.append(Block(at, crc))
        parts += written
        at += sum(map(len, written))
    return b"".join(parts), places


def _rows_of(block: Pieces) -> bytes:
    rows = np.empty(len(block), _ROW_DTYPE)
    for name in _ROW_DTYPE.names or ():
        rows[name] = block[name]
    return rows.tobytes()


def head_size(raw: bytes, *, path: str) -> int:
    """Return the size of a table's head (up to the end of the names), from the table's first bytes.

    The errors are those of `decode_head`.
    """
    if len(raw) < _NAMES_AT:
        raise _damaged(f"the head has only {len(raw)} bytes", path, 0)
    magic, version, size, _ = _HEAD.unpack_from(raw)
    (crc,) = _CRC.unpack_from(raw, _HEAD.size)
    if magic != _MAGIC or crc != crc32c.crc32c(raw[: _HEAD.size]):
        raise _damaged("the head is damaged", path, 0)
    check_version(version, path)
    if size > NAMES_MAX:
        raise _damaged(f"the names have {size} bytes, which is too large", path, 0)
    return _NAMES_AT + int(size)


def decode_head(raw: bytes, *, path: str) -> TableHead:
    """Decode the head of a table from the first `head_size` bytes, or more bytes, of the table.

    Raises:
        DataCorruptionError: An object is damaged.
        UnsupportedVersionError: A newer sparklog wrote the table.
    """
    end = head_size(raw, path=path)
    names = raw[_NAMES_AT:end]
    if len(raw) < end or crc32c.crc32c(names) != _HEAD.unpack_from(raw)[3]:
        raise _damaged("the names are incomplete or damaged", path, _NAMES_AT)
    try:
        # A size limit, because a few damaged bytes could otherwise inflate to any size.
        inflating = zlib.decompressobj()
        fields: dict[str, Any] = parse_json(inflating.decompress(names, NAMES_MAX))
        checked = [checked_object(name) if name else "" for name in fields["names"]]
        return TableHead(checked, keys_from_json(fields["keys"]))
    except (KeyError, TypeError, ValueError, AttributeError, zlib.error) as error:
        raise _damaged(f"the names can't be decoded ({error})", path, _NAMES_AT) from error


def objects_of(raw: bytes, *, path: str) -> set[str]:
    """Return the objects that the rows of a table refer to.

    These objects are live as long as an extent refers to the table. Raises the errors of
    `decode_head`.

    Args:
        raw: The table, or its first `head_size` bytes.
    """
    return {name for name in decode_head(raw, path=path).names if name}


def read_head(get: Get, *, path: str) -> TableHead:
    """Return a table's head. Cost: a request, or two if there are many names."""
    raw = get(0, HEAD_BYTES)
    size = head_size(raw, path=path)
    if size > len(raw):
        raw += get(len(raw), size)
    return decode_head(raw, path=path)


def pieces_of(extent: Extent, head: TableHead, block: bytes, *, path: str) -> Extents:
    """Return the chunks of an extent in a table, as extents.

    Args:
        block: Bytes [extent.start, extent.start + block_size(extent)) of the table.

    Raises:
        DataCorruptionError: The block does not belong to the extent.
    """
    rows = rows_of(extent, block, path=path)
    ends = extent.base + np.cumsum(rows["count"], dtype=np.int64)
    if int(rows["object"].max(initial=0)) >= len(head.names) or int(ends[-1]) != extent.end:
        raise _damaged(f"the rows don't match offsets [{extent.base}, {extent.end})", path,
                       extent.start)  # fmt: skip
    bases = [extent.base, *ends[:-1].tolist()]
    return tuple(
        extent._replace(
            base=base, end=end, object=head.names[number], start=start, size=size, pieces=0,
            max_timestamp=latest if extent.stamp_ms < 0 else extent.stamp_ms, crc=crc,
        )
        for base, end, (number, start, size, _, latest, crc) in zip(
            bases, ends.tolist(), rows.tolist(), strict=True
        )
    )  # fmt: skip


def rows_of(extent: Extent, block: bytes, *, path: str) -> Pieces:
    """Return the rows in an extent's block.

    Raises:
        DataCorruptionError: The rows are damaged.
    """
    rows_size = extent.pieces * _ROW_DTYPE.itemsize
    sums_at = rows_size + _CRC.size
    if len(block) != block_size(extent):
        fault = f"the block has only {len(block)} of {block_size(extent)} bytes"
        raise _damaged(fault, path, extent.start)
    crc = crc32c.crc32c(block[:rows_size])
    if _CRC.unpack_from(block, rows_size)[0] != crc:
        raise _damaged("the rows are damaged", path, extent.start)
    stored = np.frombuffer(block, _ROW_DTYPE, extent.pieces)
    rows = np.empty(extent.pieces, PIECE_DTYPE)
    for name in _ROW_DTYPE.names or ():
        rows[name] = stored[name]
    rows["crc"] = -1
    if extent.crc >= 0:
        crc = crc32c.crc32c(block[sums_at : -_CRC.size], crc)
        # The table contains its other checksums itself: only the ledger identifies the block.
        if not crc == extent.crc == _CRC.unpack(block[-_CRC.size :])[0]:
            raise _damaged("the block isn't the block that the ledger recorded", path, extent.start)
        rows["crc"] = np.frombuffer(block, _SUM_DTYPE, extent.pieces, sums_at)
    return rows


def _damaged(reason: str, path: str, position: int) -> DataCorruptionError:
    return DataCorruptionError(
        f"not a valid extent table: {reason}; {_CURE}", path=path, position=position
    )
