"""A stream reader for Spark 4.0 and 4.1, which can't limit micro-batches of Python data sources.

Their Python worker calls only initialOffset, latestOffset without arguments, partitions and commit.
With sparklog's jar, the JVM makes the other calls through these: an offset that describes a call
comes as the start of `partitions`, and the next `latestOffset` returns the result of the call. See
CallingStream in jvm/scala/spark-4.0/PythonStreams.scala.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import pyarrow as pa
import pyspark
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from sparklog.errors import InvalidRequestError
from sparklog.spark_errors import in_worker
from sparklog.spark_versions import HAS_READ_LIMITS, ReadAllAvailable, ReadLimit, ReadMaxRows
from sparklog.storage.query_origin import ASIDE

Json = dict[str, Any]
_CALL: Final = f"{ASIDE}call"
_LIMITS: Final = (
    "maxOffsetsPerTrigger", "maxBytesPerTrigger", "minOffsetsPerTrigger", "maxBatchesPerTrigger"
)  # fmt: skip


@in_worker
class CalledReader(DataSourceStreamReader):
    """Passes the calls of Spark 4.0 and 4.1 to a reader with the methods of Spark 4.2."""

    def __init__(self, reader: Any) -> None:
        self._reader = reader
        self._call: Json | None = None  # of the JVM, answered by latestOffset
        self._begin: Json | None = None  # without the jar: where the next micro-batch starts

    def initialOffset(self) -> Json:
        """Return the start of a new query."""
        start: Json = self._reader.initialOffset()
        self._begin = self._begin or start
        return start

    def latestOffset(self) -> Any:  # type: ignore[override]  # no arguments before Spark 4.2
        """Return the result of the JVM's call, or without the jar the end of a micro-batch."""
        call, self._call = self._call, None
        if call is None:
            # Trigger AvailableNow, and a query that continues, call this before Spark has named the
            # start. The start is then taken as unknown, and checked by `partitions`.
            return self._reader.latestOffset(self._begin or {}, ReadAllAvailable())
        method = call[_CALL]
        if method == "latestOffset":
            limit: ReadLimit = ReadMaxRows(2**63 - 1) if call["limited"] else ReadAllAvailable()
            return self._reader.latestOffset(call["start"], limit)
        result = getattr(self._reader, method)()
        return isinstance(result, ReadMaxRows) if isinstance(result, ReadLimit) else result

    def partitions(self, start: Json, end: Json) -> Sequence[InputPartition]:
        """Keep the JVM's call, or plan a micro-batch."""
        if _CALL in start:
            self._call, self._begin = start, self._begin or {}
            return []
        if self._begin is None:
            # Reports a log that was replaced since the query stopped; see `latestOffset`.
            self._reader.latestOffset(start, ReadAllAvailable())
        self._begin = end
        planned: Sequence[InputPartition] = self._reader.partitions(start, end)
        return planned

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read a task's rows. Runs in an executor."""
        rows: Iterator[pa.RecordBatch] = self._reader.read(partition)
        return rows

    def commit(self, end: Json) -> None:
        """Pass the end of a finished micro-batch."""
        self._reader.commit(end)

    def stop(self) -> None:
        """Release the reader's resources."""
        self._reader.stop()


def callable_by_spark(reader: DataSourceStreamReader) -> DataSourceStreamReader:
    """Return the reader in the form that the installed Spark can call."""
    return reader if HAS_READ_LIMITS else CalledReader(reader)


def check_limits(options: Mapping[str, str], *, has_jar: bool) -> None:
    """Check that Spark can keep the limits of micro-batches that are set.

    Args:
        options: The options of the stream, with names in any case.
        has_jar: Whether the JVM calls the reader with sparklog's jar.

    Raises:
        InvalidRequestError: The installed Spark would ignore a limit.
    """
    if HAS_READ_LIMITS or has_jar:
        return
    given = {name.lower() for name in options}
    for name in _LIMITS:
        if name.lower() in given:
            raise InvalidRequestError(
                f"option {name} needs sparklog's jar in Spark {pyspark.__version__}, which ignores "
                "limits of Python data sources: call sparklog.enable(spark) before the query "
                "starts, use Spark 4.2 or later, or leave the option out"
            )
