"""Rows for Scala: written as Staging.scala reads them, and as Arrow has them for Python."""

import struct
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructType,
    TimestampType,
)

from tests.jvm.probe import pack

ARROW = {
    StringType(): pa.string(),
    BinaryType(): pa.binary(),
    IntegerType(): pa.int32(),
    LongType(): pa.int64(),
    TimestampType(): pa.timestamp("us", tz="UTC"),
}
HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))

Row = Mapping[str, Any]


def written(rows: Iterable[Row], schema: StructType) -> bytes:
    """Rows, a column after the other. Text may be bytes; a timestamp is in microseconds."""
    out = bytearray()
    for row in rows:
        for field in schema:
            _write(out, row[field.name], field.dataType)
    return bytes(out)


def _write(out: bytearray, value: Any, kind: DataType) -> None:
    out.append(value is not None)
    if value is None:
        return
    if isinstance(kind, StringType | BinaryType):
        out += pack([value.encode() if isinstance(value, str) else value])
    elif isinstance(kind, ArrayType):
        out += struct.pack(">i", len(value))
        for each in value:
            _write(out, each, kind.elementType)
    elif isinstance(kind, StructType):
        for name, each in zip(kind.names, value, strict=True):
            _write(out, each, kind[name].dataType)
    else:
        out += struct.pack(">i" if isinstance(kind, IntegerType) else ">q", value)


def batches(rows: Sequence[Row], schema: StructType, size: int) -> list[pa.RecordBatch]:
    """The same rows as Arrow batches of `size` rows, as a task in Python gets them."""
    names = [field.name for field in schema]
    kinds = [ARROW.get(field.dataType, HEADERS) for field in schema]
    return [
        pa.RecordBatch.from_arrays(
            [
                _array([row[name] for row in part], kind)
                for name, kind in zip(names, kinds, strict=True)
            ],
            names=names,
        )
        for part in (rows[at : at + size] for at in range(0, len(rows), size))
    ]


def _array(values: list[Any], kind: pa.DataType) -> pa.Array:
    if kind == HEADERS:
        values = [
            None
            if headers is None
            else [
                None if each is None else dict(zip(("key", "value"), each, strict=True))
                for each in headers
            ]
            for headers in values
        ]
    return pa.array(values, kind)
