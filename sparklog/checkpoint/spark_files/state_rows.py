"""Keys and values of state stores: the encodings around the UnsafeRows.

    HDFS provider     a row
    RocksDB           version byte 0, a row; keys of stores with column families begin with the
                      family's id (i16), and may be split for scans (see KeyEncoder):
        prefix, range     i32 bytes of the first part, that part, the rest of the key; both parts
                          as above. range: its fields are binary, a byte for null or sign, then
                          the number big-endian, with inverted bits if a float is negative
        time first, last  the last column (i64, big-endian, inverted sign) before or after the rest
    lists             (i32 bytes, version byte and row)*, possibly separated by commas

Source: RocksDBStateEncoder, MultiValuedStateEncoder (Spark 4.2).
"""

from typing import Final

import numpy as np
import pyarrow as pa

from sparklog.checkpoint.spark_files.state_schema import ColumnFamily
from sparklog.checkpoint.spark_files.unsafe_row import (
    Bytes,
    Cells,
    Ints,
    Spans,
    binary,
    cells_of,
    fixed,
    load,
    read_rows,
    spans_of,
    struct,
)
from sparklog.errors import DataCorruptionError

_NULL: Final = 2
_NEGATIVE: Final = 0


def read_keys(
    family: ColumnFamily, data: Bytes, keys: Spans, path: str, *, rocksdb: bool
) -> pa.Array:
    """Decode keys to structs.

    Raises:
        DataCorruptionError: The keys are not keys of this family.
    """
    if pa.types.is_binary(family.key):
        return binary(family.key, data, keys)
    types = [field.type for field in family.key]
    kind = family.layout.kind
    if not rocksdb:
        columns = read_rows(types, data, keys, path)
    elif kind == "plain":
        columns = read_rows(types, data, _versioned(data, keys, path), path)
    elif kind in ("prefix", "range"):
        columns = _split_keys(family, types, data, keys, path)
    else:
        columns = _timed_keys(kind == "time first", types, data, keys, path)
    return struct(family.key, columns, keys.null)


def read_values(
    family: ColumnFamily, data: Bytes, values: Spans, path: str, *, rocksdb: bool
) -> pa.Array:
    """Decode values to a struct per row.

    Raises:
        DataCorruptionError: The values are not values of this family.
    """
    if pa.types.is_binary(family.value):
        return binary(family.value, data, values)
    rows = _versioned(data, values, path) if rocksdb else values
    return struct(
        family.value, read_rows([f.type for f in family.value], data, rows, path), values.null
    )


def split_lists(data: Bytes, values: Spans, path: str) -> tuple[Ints, Spans]:
    """Split lists into values. Return (the index of each value's row, the values), in order.

    The first bytes of a row are its version, 0, and of a list the size of its first value, which is
    not a multiple of 8. So the bytes distinguish rows from lists.

    Raises:
        DataCorruptionError: A list is damaged.
    """
    end = values.at + values.size
    empty = ~values.null & (values.size < 1)
    if empty.any():
        raise DataCorruptionError("a value has no bytes", path=path)
    lists = ~values.null & (load(data, values.at, values.null, "u1") != 0)
    if not lists.any():
        return np.arange(len(lists)), values
    plain = np.flatnonzero(~lists)
    rows, at, size = [plain], [values.at[plain]], [values.size[plain]]
    left, place = np.flatnonzero(lists), values.at[lists]
    while len(left):
        short = place + 4 > end[left]
        count = load(data, place, short, "<i4").astype(np.int64)
        if (short | (count < 1) | (place + 4 + count > end[left])).any():
            raise DataCorruptionError(
                "a value of a list is longer than the list (rows with checksums can't be read: "
                "spark.sql.streaming.stateStore.rowChecksum.enabled)",
                path=path,
            )
        rows.append(left)
        at.append(place + 4)
        size.append(count)
        place = place + 4 + count
        more = place < end[left]
        left, place = left[more], place[more]
        # A size is always a multiple of 8 plus 1; a comma is not.
        place = place + (load(data, place, np.zeros(len(left), np.bool_), "u1") % 8 != 1)
    order = np.argsort(np.concatenate(rows), kind="stable")
    index = np.concatenate(rows)[order]
    spans = Spans(np.concatenate(at)[order], np.concatenate(size)[order], values.null[index])
    return index, spans


def _versioned(data: Bytes, rows: Spans, path: str) -> Spans:
    """Return rows without their version byte."""
    null = rows.null | (rows.size < 1)
    wrong = (null & ~rows.null) | (~null & (load(data, rows.at, null, "u1") != 0))
    if wrong.any():
        raise DataCorruptionError(
            "a row does not begin with version 0 of its encoding (rows with checksums can't be "
            "read: spark.sql.streaming.stateStore.rowChecksum.enabled)",
            path=path,
        )
    return rows.skip(1)


def _split_keys(
    family: ColumnFamily, types: list[pa.DataType], data: Bytes, keys: Spans, path: str
) -> list[pa.Array]:
    first = family.layout.first
    rest = [n for n in range(len(types)) if n not in first]
    short = keys.null | (keys.size < 4)
    size = load(data, keys.at, short, "<i4").astype(np.int64)
    if (~keys.null & (short | (size < 0) | (size > keys.size - 4))).any():
        raise DataCorruptionError("the first part of a key is longer than the key", path=path)
    head = _versioned(data, Spans(keys.at + 4, size, keys.null), path)
    tail = Spans(keys.at + 4 + size, keys.size - 4 - size, keys.null)
    if family.layout.kind == "prefix":
        found = read_rows([types[n] for n in first], data, head, path)
    else:
        cells = cells_of(len(first), data, head, path)
        found = [_ordered(types[n], data, cell, path) for n, cell in zip(first, cells, strict=True)]
    if rest:
        found += read_rows([types[n] for n in rest], data, _versioned(data, tail, path), path)
    places = [*first, *rest]
    return [found[places.index(n)] for n in range(len(types))]


def _ordered(kind: pa.DataType, data: Bytes, cells: Cells, path: str) -> pa.Array:
    """Decode a number with bytes that sort in numeric order."""
    spans = spans_of(data, cells, path)
    if pa.types.is_boolean(kind):  # Spark doesn't write the value
        return pa.nulls(len(spans.null), kind)
    width = kind.bit_width // 8
    if (~spans.null & (spans.size != width + 1)).any():
        raise DataCorruptionError(
            f"the range-scan key is damaged: a number must take {width + 1} bytes", path=path
        )
    mark = load(data, spans.at, spans.null, "u1")
    null = spans.null | (mark == _NULL)
    values = load(data, spans.at + 1, null, f">u{width}").astype(f"u{width}")
    if pa.types.is_floating(kind):
        values = np.where(mark == _NEGATIVE, ~values, values)
    return fixed(kind, values, null)


def _timed_keys(
    is_first: bool, types: list[pa.DataType], data: Bytes, keys: Spans, path: str
) -> list[pa.Array]:
    if (~keys.null & (keys.size < 9)).any():
        raise DataCorruptionError("a key is too short to contain its timestamp", path=path)
    at = keys.at if is_first else keys.at + keys.size - 8
    times = load(data, at, keys.null, ">u8").astype(np.uint64) ^ np.uint64(1 << 63)
    rows = Spans(keys.at + 8 if is_first else keys.at, keys.size - 8, keys.null)
    columns = read_rows(types[:-1], data, _versioned(data, rows, path), path)
    return [*columns, fixed(types[-1], times, keys.null)]
