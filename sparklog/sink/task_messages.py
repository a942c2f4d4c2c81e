"""Messages from the tasks of a job to the driver: chunks and errors as rows, never pickled.

A task returns a single row, with all its chunks as columns (`ChunkTable`) or with an error. An
error that a task raised would be retried four times, and reach the driver as text inside another
exception.
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
    """Return a task's chunks as a row of SCHEMA."""
    return pa.RecordBatch.from_pylist([{"chunks": table.pack()}], schema=SCHEMA)


def error_row(error: SparklogError) -> pa.RecordBatch:
    """Return an error as a row of SCHEMA."""
    fields = json.dumps(error_fields(error))
    return pa.RecordBatch.from_pylist([{"error": fields}], schema=SCHEMA)


def error_fields(error: SparklogError) -> dict[str, Any]:
    """Return the fields of an error as JSON, for `error_of`."""
    return {"error": type(error).__name__, "message": str(error), "path": error.path}


def error_of(fields: Mapping[str, Any]) -> SparklogError:
    """Return the error that a task sent: its class in `errors`, its message and its path.

    Other attributes are not sent; the message contains them.
    """
    kind = getattr(errors, fields["error"], SparklogError)
    error: SparklogError = kind.__new__(kind, fields["message"])
    error.args = (fields["message"],)
    if fields.get("path") is not None:
        error.path = fields["path"]
    return error


def to_tables(rows: Iterable[Any]) -> Iterator[ChunkTable | SparklogError]:
    """Yield the tables and errors of collected rows, in their order."""
    for row in rows:
        if row["error"] is not None:
            yield error_of(json.loads(row["error"]))
        else:
            yield ChunkTable.unpack(row["chunks"])
