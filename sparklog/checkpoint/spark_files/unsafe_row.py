"""Decodes Spark's UnsafeRow by column, with numpy gathers over all rows at once.

    row       null bits (8 bytes for 64 fields), a word of 8 bytes for each field, then the rest
    array     i64 count, null bits, elements (1, 2, 4 or 8 bytes each, by type), then the rest
    map       i64 bytes of the array of keys, that array, the array of values

All little-endian. Values without a fixed size are in the rest: the field's word is offset << 32 |
bytes, counted from the start of the row or array. Strings are UTF-8, which neither Spark nor this
module checks; decimals of more than 18 digits are big-endian two's complement; structs are rows.
The Arrow type defines how to read a field; a field of a Spark type without an Arrow type is binary
(state_schema.py), with these bytes. Source: UnsafeRow, UnsafeArrayData, UnsafeMapData (Spark 4.2).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from sparklog.errors import DataCorruptionError

Bytes = NDArray[np.uint8]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]
_SHORT_DIGITS: Final = 18
_ITEMS_MAX: Final = 2**31 - 1


@dataclass(frozen=True, slots=True)
class Spans:
    """Byte ranges [at, at + size) of a buffer, one per row.

    Where `null` is True, the row has no range, and `at` and `size` have no meaning.
    """

    at: Ints
    size: Ints
    null: Bools

    def skip(self, count: int | Ints) -> "Spans":
        """Return the ranges without their first `count` bytes (a number, or a number per row)."""
        return Spans(self.at + count, self.size - count, self.null)

    def only(self, kept: Bools) -> "Spans":
        """Return the ranges, null where not `kept`."""
        return Spans(self.at, self.size, self.null | ~kept)


@dataclass(frozen=True, slots=True)
class Cells:
    """The words of a field, and for each word the row or array from which offsets are counted."""

    at: Ints
    around: Spans
    null: Bools


def cells_of(fields: int, data: Bytes, rows: Spans, path: str) -> list[Cells]:
    """Return the words of each field of rows.

    Raises:
        DataCorruptionError: The rows are too short.
    """
    bits = (fields + 63) // 64 * 8
    at, size = _known(rows)
    wrong = ~rows.null & ((size < bits + 8 * fields) | (size % 8 != 0))
    if wrong.any():
        raise _damage(f"a row with {fields} fields can't have {size[wrong][0]} bytes", path)
    around = Spans(at, size, rows.null)
    cells = []
    for field in range(fields):
        null = rows.null
        if not null.all():
            null = null | (data[at + field // 8] >> (field % 8) & 1).astype(np.bool_)
        cells.append(Cells(at + bits + 8 * field, around, null))
    return cells


def read_rows(types: Sequence[pa.DataType], data: Bytes, rows: Spans, path: str) -> list[pa.Array]:
    """Decode rows with fields of these types: a column per field, null where the row is null.

    Raises:
        DataCorruptionError: The rows don't have these fields. `path` is for the message.
    """
    cells = cells_of(len(types), data, rows, path)
    return [read_column(kind, data, c, path) for kind, c in zip(types, cells, strict=True)]


def read_column(kind: pa.DataType, data: Bytes, cells: Cells, path: str) -> pa.Array:
    """Decode the cells of a field of type `kind`.

    Raises:
        DataCorruptionError: The cells have another type.
    """
    if pa.types.is_null(kind) or cells.null.all():
        return pa.nulls(len(cells.null), kind)
    if pa.types.is_decimal(kind) and kind.precision <= _SHORT_DIGITS:
        low = load(data, cells.at, cells.null, "<i8")
        return fixed(kind, np.stack([low, low >> 63], axis=1), cells.null)
    if pa.types.is_boolean(kind):
        bits = np.packbits(load(data, cells.at, cells.null, "i1") != 0, bitorder="little")
        return fixed(kind, bits, cells.null)
    if _is_fixed(kind):
        return fixed(kind, load(data, cells.at, cells.null, f"<i{kind.bit_width // 8}"), cells.null)
    spans = spans_of(data, cells, path)
    if pa.types.is_decimal(kind):
        return fixed(kind, _big_decimals(data, spans, path), spans.null)
    if pa.types.is_struct(kind):
        return struct(kind, read_rows([f.type for f in kind], data, spans, path), spans.null)
    if pa.types.is_map(kind):
        return _maps(kind, data, spans, path)
    if pa.types.is_list(kind):
        counts, items = _items(kind.value_type, data, spans, path)
        return _nested(kind, counts, items, spans.null)
    return binary(kind, data, spans)


def spans_of(data: Bytes, cells: Cells, path: str) -> Spans:
    """Return the ranges of values without a fixed size.

    Raises:
        DataCorruptionError: A range is outside of the data.
    """
    words = load(data, cells.at, cells.null, "<i8")
    offset, size = words >> 32, words & 0xFFFFFFFF
    around = cells.around
    wrong = ~cells.null & ((offset < 0) | (offset + size > around.size))
    if wrong.any():
        raise _damage(
            f"the value of a field, at byte {offset[wrong][0]} of the row, is outside of the row",
            path,
        )
    return Spans(around.at + offset, np.where(cells.null, 0, size), cells.null)


def load(data: Bytes, at: Ints, null: Bools, kind: str) -> NDArray[Any]:
    """Gather numbers of a numpy type from any positions in `data`; undefined where null."""
    dtype = np.dtype(kind)
    if null.all():
        return np.zeros(len(at), dtype)
    # A view with an element at every byte; elements overlap.
    view: NDArray[Any] = np.ndarray(
        (len(data) - dtype.itemsize + 1,), dtype, buffer=data, strides=(1,)
    )
    return view[np.where(null, 0, at)]


def fixed(kind: pa.DataType, values: NDArray[Any], null: Bools) -> pa.Array:
    """Return an array of numbers from their memory layout."""
    values = np.ascontiguousarray(values)
    return pa.Array.from_buffers(kind, len(null), [_validity(null), pa.py_buffer(values)])


def binary(kind: pa.DataType, data: Bytes, spans: Spans) -> pa.Array:
    """Return an array of strings or bytes, gathered from `data`."""
    size = np.where(spans.null, 0, spans.size)
    offsets = _offsets(size)
    buffers = [_validity(spans.null), pa.py_buffer(offsets.astype(np.int32))]
    gathered = data[_within(spans.at, offsets)]
    return pa.Array.from_buffers(kind, len(size), [*buffers, pa.py_buffer(gathered)])


def struct(kind: pa.DataType, columns: list[pa.Array], null: Bools) -> pa.Array:
    """Return a struct array of these columns."""
    return pa.Array.from_buffers(kind, len(null), [_validity(null)], children=columns)


def _is_fixed(kind: pa.DataType) -> bool:
    types = pa.types
    return bool(types.is_integer(kind) or types.is_floating(kind) or types.is_temporal(kind))


def _known(spans: Spans) -> tuple[Ints, Ints]:
    """Return (at, size), both 0 where null."""
    return np.where(spans.null, 0, spans.at), np.where(spans.null, 0, spans.size)


def _validity(null: Bools) -> pa.Buffer | None:
    return pa.py_buffer(np.packbits(~null, bitorder="little")) if null.any() else None


def _offsets(counts: Ints) -> Ints:
    offsets = np.zeros(len(counts) + 1, np.int64)
    np.cumsum(counts, out=offsets[1:])
    return offsets


def _within(at: Ints, offsets: Ints, step: int = 1) -> Ints:
    """Return at[i], at[i] + step, ...: offsets[i + 1] - offsets[i] positions for each i."""
    counts = np.diff(offsets)
    places: Ints = np.arange(offsets[-1]) * step + np.repeat(at - offsets[:-1] * step, counts)
    return places


def _big_decimals(data: Bytes, spans: Spans, path: str) -> NDArray[Any]:
    """Convert big-endian numbers of 1 to 16 bytes to 16 bytes, little-endian."""
    at, size = _known(spans)
    if ((size > 16) | (~spans.null & (size < 1))).any():
        raise _damage("a decimal must have 1 to 16 bytes", path)
    out = np.zeros((len(at), 16), np.uint8)
    negative = ~spans.null & (data[at] >= 0x80)
    out[negative] = 0xFF
    for byte in range(16):
        has = size > byte
        out[has, byte] = data[at[has] + size[has] - 1 - byte]
    return out


def _maps(kind: pa.DataType, data: Bytes, spans: Spans, path: str) -> pa.Array:
    at, size = _known(spans)
    key_bytes = np.where(spans.null, 0, load(data, at, spans.null | (size < 8), "<i8"))
    if (~spans.null & ((size < 8) | (key_bytes < 0) | (key_bytes > size - 8))).any():
        raise _damage("the keys of a map are longer than the map", path)
    key_spans = Spans(at + 8, key_bytes, spans.null)
    value_spans = Spans(at + 8 + key_bytes, size - 8 - key_bytes, spans.null)
    counts, keys = _items(kind.key_type, data, key_spans, path)
    value_counts, values = _items(kind.item_type, data, value_spans, path)
    if (counts != value_counts).any():
        raise _damage("a map has different numbers of keys and values", path)
    pairs = pa.struct([kind.key_field, kind.item_field])
    return _nested(
        kind, counts, struct(pairs, [keys, values], np.zeros(len(keys), np.bool_)), spans.null
    )


def _nested(kind: pa.DataType, counts: Ints, items: pa.Array, null: Bools) -> pa.Array:
    offsets = pa.py_buffer(_offsets(counts).astype(np.int32))
    return pa.Array.from_buffers(kind, len(null), [_validity(null), offsets], children=[items])


def _items(kind: pa.DataType, data: Bytes, spans: Spans, path: str) -> tuple[Ints, pa.Array]:
    """Return (element count of each array, all elements)."""
    at, size = _known(spans)
    counts = np.where(spans.null, 0, load(data, at, spans.null | (size < 8), "<i8"))
    width = _width(kind)
    wrong = ~spans.null & ((size < 8) | (counts < 0) | (counts > size))
    header = 8 + (np.where(wrong, 0, counts) + 63) // 64 * 8
    if (wrong | (~spans.null & (header + counts * width > size))).any():
        raise _damage("the elements of an array are longer than the array", path)
    offsets = _offsets(counts)
    if offsets[-1] > _ITEMS_MAX:
        raise _damage(f"{offsets[-1]} elements of arrays are too many at once", path)
    null_at = _within(np.zeros_like(at), offsets)
    row = np.repeat(np.arange(len(at)), counts)
    null = (data[at[row] + 8 + null_at // 8] >> (null_at % 8).astype(np.uint8) & 1).astype(np.bool_)
    around = Spans(at[row], size[row], np.zeros(len(row), np.bool_))
    cells = Cells(_within(at + header, offsets, width), around, null)
    return counts, read_column(kind, data, cells, path)


def _width(kind: pa.DataType) -> int:
    """Return the bytes of an array element."""
    if pa.types.is_boolean(kind):
        return 1
    return int(kind.bit_width) // 8 if _is_fixed(kind) else 8


def _damage(reason: str, path: str) -> DataCorruptionError:
    return DataCorruptionError(
        f"{reason}: the rows do not match the schema of the state", path=path
    )
