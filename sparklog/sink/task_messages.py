"""The answer of a task to the driver: its chunks or its error as bytes, never pickled.

The first byte is TABLE (a packed `ChunkTable` follows), ERROR (JSON follows) or TOO_MUCH. Tasks in
Spark's JVM answer in the same form (scala/sink/StageJob.scala). An error that a task raised would
be retried four times, and reach the driver as text inside another exception.
"""

import json
from collections.abc import Callable, Mapping
from typing import Any

from sparklog import errors
from sparklog.errors import SparklogError
from sparklog.storage.chunk_table import ChunkTable

TABLE, ERROR, TOO_MUCH = range(3)
"""TOO_MUCH: a task in the JVM that must not stage files has more rows than the driver takes."""


def answer_of(stage: Callable[[], ChunkTable]) -> bytes:
    """Return a task's answer: the chunks that `stage` returns, or the error that it raises.

    Raises retriable errors: Spark tries the task again.
    """
    try:
        return bytes([TABLE]) + stage().pack()
    except SparklogError as error:
        if error.retriable:
            raise
        fields = {"error": type(error).__name__, "message": str(error), "path": error.path}
        return bytes([ERROR]) + json.dumps(fields).encode()


def parse_answer(answer: bytes | bytearray | memoryview) -> ChunkTable | SparklogError:
    """Return the chunks or the error of a task that had not too many rows."""
    content = memoryview(answer)[1:]
    if answer[0] == ERROR:
        return error_of(json.loads(bytes(content)))
    return ChunkTable.unpack(content)


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
