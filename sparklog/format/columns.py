"""Arrow columns in the form of the kernel: binary with 32-bit offsets, times in int64 ms.

Accepts binary, string, large and view types, fixed-size binary, dictionaries and all-null columns.
Slices and chunks are handled without a copy if the type already fits.
"""

import struct
from collections.abc import Iterator
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from sparklog.errors import InvalidRequestError

Views = tuple[memoryview, memoryview, memoryview, int]
"""Offsets, data, validity bitmap and the index of the first bit in it (-1: no nulls)."""

HEADERS_TYPE: Final = pa.list_(
    pa.field("element", pa.struct([("key", pa.string()), ("value", pa.binary())]))
)
NULL_HEADER: Final = "column headers contains a null header or a null header key"
_CHUNK_MIN: Final = 1 << 20
_DATA_MAX: Final = 2**31 - 1
_ENDS: Final = struct.Struct("=2i")
_INT32: Final = struct.Struct("=i")
_EMPTY: Final = memoryview(b"")
_COLUMNS: Final = frozenset({"key", "value", "headers", "timestamp"})


def batches_of(data: pa.RecordBatch | pa.Table) -> Iterator[pa.RecordBatch]:
    """Yield the rows of `data` as record batches of Arrow.

    A table of many small chunks is combined first, because a record batch on disk never spans two
    Arrow batches. Arrow batches with more than 2^31-1 bytes of data are split.
    """
    if isinstance(data, pa.Table):
        chunks = max((column.num_chunks for column in data.columns), default=0)
        if chunks > 1 and data.nbytes < chunks * _CHUNK_MIN:
            data = data.combine_chunks()
        for batch in data.to_batches():
            yield from _fitting(batch)
    else:
        yield from _fitting(data)


def check_columns(schema: pa.Schema) -> None:
    """Raise InvalidRequestError for unknown columns, or if there is no value column."""
    unknown = [name for name in schema.names if name not in _COLUMNS]
    if unknown or "value" not in schema.names or len(set(schema.names)) != len(schema.names):
        raise InvalidRequestError(
            "the columns must be value and, optionally, key, headers and timestamp; got "
            f"{schema.names}"
        )


def _fitting(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    # The kernel's columns have 32-bit offsets.
    if batch.num_rows > 1 and batch.nbytes > _DATA_MAX:
        half = batch.num_rows // 2
        yield from _fitting(batch.slice(0, half))
        yield from _fitting(batch.slice(half))
    elif batch.num_rows:
        yield batch


def to_binary(column: Any, name: str) -> Any:
    """Return a column as an Arrow binary array.

    Raises:
        InvalidRequestError: The column is neither binary nor string.
    """
    kind = column.type
    if kind == pa.binary():
        return column
    if pa.types.is_dictionary(kind):
        return to_binary(column.dictionary_decode(), name)
    known = (
        pa.types.is_string,
        pa.types.is_large_string,
        pa.types.is_large_binary,
        pa.types.is_fixed_size_binary,
        pa.types.is_string_view,
        pa.types.is_binary_view,
        pa.types.is_null,
    )
    if not any(is_kind(kind) for is_kind in known):
        raise InvalidRequestError(f"column {name} must be binary or string; got {kind}")
    try:
        if pa.types.is_string_view(kind):  # there is no direct way from views of text to bytes
            column = column.cast(pa.string())
        return column.cast(pa.binary())
    except pa.ArrowInvalid as error:
        raise InvalidRequestError(f"column {name} can't be converted to binary: {error}") from error


def views(column: Any) -> Views:
    """Return (offsets, data, validity bitmap, bit of the first row) of a binary or string array.

    Nothing is copied. The bit is -1 if the array has no nulls.
    """
    valid, offsets, data = column.buffers()
    rows, skip = len(column), column.offset
    starts = np.frombuffer(offsets, np.int32)[skip : skip + rows + 1] if rows else _NO_ROWS
    return (starts.data, _bytes(data), *_validity(column, valid))


def allocate(size: int) -> memoryview:
    """Return writable memory from Arrow's pool, which reuses freed memory.

    Touching a new page for the first time costs more than filling it.
    """
    return np.frombuffer(pa.allocate_buffer(size), np.uint8).data if size else _EMPTY


def one_binary(value: bytes | None) -> pa.Array:
    """Return an Arrow array of a single value.

    It is made from buffers, because pa.array() would import pandas, which takes a second.
    """
    if value is None:
        return pa.nulls(1, pa.binary())
    ends = _ENDS.pack(0, len(value))
    return pa.Array.from_buffers(pa.binary(), 1, [None, pa.py_buffer(ends), pa.py_buffer(value)])


def one_int32(value: int) -> pa.Array:
    """Return an Arrow array of a single number, made from buffers as in `one_binary`."""
    return pa.Array.from_buffers(pa.int32(), 1, [None, pa.py_buffer(_INT32.pack(value))])


def data_bytes(column: Any) -> int:
    """Return the number of bytes of all values of a binary array."""
    if not len(column):
        return 0
    starts = views(column)[0]
    return int(starts[len(column)]) - int(starts[0])


def list_views(column: Any) -> tuple[memoryview, memoryview, int]:
    """Return (offsets, validity bitmap, bit of the first row) of a list array.

    The offsets of a row are the range of its elements in `column.values`. The bit is -1 if the
    array has no nulls.
    """
    valid, offsets = column.buffers()[:2]
    rows, skip = len(column), column.offset
    starts = np.frombuffer(offsets, np.int32)[skip : skip + rows + 1] if rows else _NO_ROWS
    return (starts.data, *_validity(column, valid))


def to_headers(column: Any) -> Any:
    """Return a column as list<struct<key: string, value: binary>> without null elements or keys.

    Raises:
        InvalidRequestError: The column has another type, a null header or a null header key.
    """
    try:
        # Field by field: the names decide, not their order.
        lists = column.cast(HEADERS_TYPE) if column.type != HEADERS_TYPE else column
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError) as error:
        raise InvalidRequestError(
            f"column headers must be list<struct<key: string, value: binary>>; got {column.type}"
        ) from error
    used = lists.flatten()
    if used.null_count or (len(used) and used.field("key").null_count):
        raise InvalidRequestError(NULL_HEADER)
    return lists


def to_millis(column: Any | None, rows: int, default: int) -> NDArray[np.int64]:
    """Return the timestamps of a column in ms, rounded down as in Spark.

    Null becomes `default`. Without a column, there are `rows` times `default`.
    """
    if column is None or pa.types.is_null(column.type):
        return np.full(rows, default, np.int64)
    if not pa.types.is_timestamp(column.type):
        raise InvalidRequestError(f"column timestamp must be a timestamp; got {column.type}")
    ticks = column.cast(pa.int64())
    filled = ticks.fill_null(0) if ticks.null_count else ticks
    values: NDArray[np.int64] = filled.to_numpy(zero_copy_only=False)
    unit = column.type.unit
    if unit == "s":
        # NumPy's product would wrap around without an error.
        if rows and int(np.abs(values).max()) > (2**63 - 1) // 1000:
            raise InvalidRequestError("column timestamp has seconds that don't fit into int64 ms")
        values = values * 1000
    elif unit != "ms":
        values = np.floor_divide(values, 1000 if unit == "us" else 1_000_000)
    if column.null_count:
        values = np.where(column.is_null().to_numpy(zero_copy_only=False), default, values)
    return np.ascontiguousarray(values, np.int64)


_NO_ROWS: Final = np.zeros(1, np.int32)


def _bytes(buffer: Any | None) -> memoryview:
    if buffer is None or not buffer.size:
        return _EMPTY
    return np.frombuffer(buffer, np.uint8).data


def _validity(column: Any, valid: Any | None) -> tuple[memoryview, int]:
    if valid is None or not column.null_count:
        return _EMPTY, -1
    return _bytes(valid), column.offset
