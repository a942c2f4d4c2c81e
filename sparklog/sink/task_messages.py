"""Chunks and errors as rows, from the tasks of one job to the driver. Nothing is unpickled.

A task is one row, whatever it has staged: its chunks as columns (`ChunkTable`). An error travels as
a row too: raised in the task it would be tried four times, and reach the driver as a text in
somebody else's exception.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
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
    """An error as a row."""
    told = json.dumps(error_fields(error))
    return pa.RecordBatch.from_pylist([{"error": told}], schema=SCHEMA)


def error_fields(error: SparklogError) -> dict[str, Any]:
    """Describe an error for `error_of`, as JSON has it."""
    return {"error": type(error).__name__, "message": str(error), "path": error.path}


def error_of(told: Mapping[str, Any]) -> SparklogError:
    """Return the error that a task told: its class in `errors`, its text, what it is about.

    What else the class holds is for people, and in the text.
    """
    kind = getattr(errors, told["error"], SparklogError)
    error: SparklogError = kind.__new__(kind, told["message"])
    error.args = (told["message"],)
    if told.get("path") is not None:
        error.path = told["path"]
    return error


def to_tables(rows: Iterable[Any]) -> Iterator[ChunkTable | SparklogError]:
    """Turn collected rows back into tables, or errors, in their order."""
    for row in rows:
        if row["error"] is not None:
            yield error_of(json.loads(row["error"]))
        else:
            yield ChunkTable.unpack(row["chunks"])
