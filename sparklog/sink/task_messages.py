"""Chunks and errors as rows, from the tasks of one job to the driver. Nothing is unpickled.

An error travels as a row too: raised in the task it would be tried four times, and reach the
driver as a text in somebody else's exception.
"""

import json
from collections.abc import Iterable, Iterator
from dataclasses import fields
from typing import Any, Final

import pyarrow as pa

from sparklog import errors
from sparklog.errors import SparklogError
from sparklog.storage.commits import Chunk

_META: Final = tuple(f.name for f in fields(Chunk) if f.name != "data")
SCHEMA_DDL: Final = "meta string, data binary"
SCHEMA: Final = pa.schema([("meta", pa.string()), ("data", pa.binary())])


def to_rows(chunks: Iterable[Chunk]) -> pa.RecordBatch:
    """One row a chunk, in the SCHEMA."""
    metas, data = [], []
    for chunk in chunks:
        metas.append(json.dumps({name: getattr(chunk, name) for name in _META}))
        data.append(None if chunk.data is None else bytes(chunk.data))
    arrays = [pa.array(metas, pa.string()), pa.array(data, pa.binary())]
    return pa.RecordBatch.from_arrays(arrays, schema=SCHEMA)


def error_row(error: SparklogError) -> pa.RecordBatch:
    """A row that makes `to_chunks` raise this error."""
    meta = json.dumps({"error": type(error).__name__, "message": str(error)})
    return pa.RecordBatch.from_pylist([{"meta": meta}], schema=SCHEMA)


def to_chunks(rows: Iterable[Any]) -> Iterator[Chunk]:
    """Turn collected rows back into chunks, in their order. Raises the first error sent."""
    for row in rows:
        meta = json.loads(row["meta"])
        if "error" in meta:
            kind = getattr(errors, meta["error"], SparklogError)
            raise kind(meta["message"])
        data = row["data"]
        yield Chunk(**meta, data=None if data is None else bytes(data))
