"""Chunks and errors as rows, from the tasks of one job to the driver. Nothing is unpickled.

A task is one row, whatever it has staged: its chunks as columns (`ChunkTable`). An error travels as
a row too: raised in the task it would be tried four times, and reach the driver as a text in
somebody else's exception.
"""

import json
from collections.abc import Iterable, Iterator
from typing import Any, Final

import pyarrow as pa

from sparklog import errors
from sparklog.errors import SparklogError
from sparklog.storage.chunk_table import ChunkTable

SCHEMA_DDL: Final = "error string, chunks binary"
SCHEMA: Final = pa.schema([("error", pa.string()), ("chunks", pa.binary())])


def to_rows(table: ChunkTable) -> pa.RecordBatch:
    """A task's chunks as a row, in the SCHEMA."""
    return pa.RecordBatch.from_pylist([{"chunks": table.pack()}], schema=SCHEMA)


def error_row(error: SparklogError) -> pa.RecordBatch:
    """A row that makes `to_tables` raise this error."""
    told = json.dumps({"error": type(error).__name__, "message": str(error)})
    return pa.RecordBatch.from_pylist([{"error": told}], schema=SCHEMA)


def to_tables(rows: Iterable[Any]) -> Iterator[ChunkTable]:
    """Turn collected rows back into tables, in their order. Raises the first error sent."""
    for row in rows:
        if row["error"] is not None:
            told = json.loads(row["error"])
            kind = getattr(errors, told["error"], SparklogError)
            raise kind(told["message"])
        yield ChunkTable.unpack(row["chunks"])
