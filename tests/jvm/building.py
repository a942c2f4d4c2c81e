"""Rows, and what Scala's BatchBuilder makes of them."""

import struct
from collections.abc import Sequence
from typing import Final, NamedTuple

import pyarrow as pa

from sparklog.format.compression import Codec
from sparklog.format.records import MAX_MESSAGE_BYTES
from tests.jvm.probe import Probe, pack

Header = tuple[str, bytes | None]
Row = tuple[int, bytes | None, bytes | None, Sequence[Header] | None]
"""Timestamp in ms, key, value, headers."""

_HEADERS: Final = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
_NO_LEVEL: Final = -(2**31)


class Closed(NamedTuple):
    """What one close gave."""

    data: bytes
    count: int
    plain_bytes: int
    low: int
    high: int


class TooLarge(NamedTuple):
    """Which row is too large, and how large the batch would be."""

    row: int
    size: int


def _field(data: bytes | None) -> bytes:
    return struct.pack(">i", -1) if data is None else struct.pack(">i", len(data)) + data


def _packed(row: Row) -> bytes:
    timestamp, key, value, headers = row
    parts = [struct.pack(">q", timestamp), _field(key), _field(value)]
    parts.append(struct.pack(">i", -1 if headers is None else len(headers)))
    for name, content in headers or ():
        parts += [_field(name.encode()), _field(content)]
    return b"".join(parts)


def build(
    probe: Probe,
    rows: Sequence[Row],
    codec: Codec = Codec.NONE,
    level: int | None = None,
    batch: int = 16384,
    most: int = MAX_MESSAGE_BYTES,
    base: int = 0,
) -> tuple[list[Closed], TooLarge | None]:
    """What Scala makes of rows, and the row at which it stopped, if it did."""
    request = pack([codec.name.lower().encode()])
    request += struct.pack(">iiiq", _NO_LEVEL if level is None else level, batch, most, base)
    answer = probe.call("build", request + b"".join(map(_packed, rows)))
    made, at = [], 0
    while at < len(answer):
        (size,) = struct.unpack_from(">i", answer, at)
        if size < 0:
            return made, TooLarge(*struct.unpack_from(">iq", answer, at + 4))
        data = answer[at + 4 : at + 4 + size]
        at += 4 + size
        made.append(Closed(data, *struct.unpack_from(">4q", answer, at)))
        at += 32
    return made, None


def table(rows: Sequence[Row]) -> pa.Table:
    """The rows as Python's encode takes them."""
    headers = [r[3] and [{"key": k, "value": v} for k, v in r[3]] for r in rows]
    return pa.table(
        {
            "timestamp": pa.array([r[0] for r in rows], pa.timestamp("ms")),
            "key": pa.array([r[1] for r in rows], pa.binary()),
            "value": pa.array([r[2] for r in rows], pa.binary()),
            "headers": pa.array(headers, _HEADERS),
        }
    )
