"""The stream reader for a streaming query with invalid options."""

from typing import Any, NoReturn

from pyspark.sql.datasource import DataSourceStreamReader
from pyspark.sql.streaming.datasource import SupportsTriggerAvailableNow

from sparklog.errors import SparklogError
from sparklog.spark_errors import in_worker


@in_worker
class RefusedStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """A stream reader with methods that raise an error found when the reader was made.

    Spark reports the errors of these methods, but not the errors of `streamReader`.
    """

    def __init__(self, error: SparklogError) -> None:
        self._error = error

    def initialOffset(self) -> NoReturn:
        """Raise the error. A new query calls this first."""
        raise self._error

    def getDefaultReadLimit(self) -> NoReturn:
        """Raise the error. A query that continues calls this first."""
        raise self._error

    def prepareForTriggerAvailableNow(self) -> NoReturn:
        """Raise the error. With trigger AvailableNow this is called first."""
        raise self._error

    def latestOffset(self, start: Any, limit: Any) -> NoReturn:
        """Raise the error."""
        raise self._error

    def partitions(self, start: Any, end: Any) -> NoReturn:
        """Raise the error. A query that repeats a micro-batch calls this first."""
        raise self._error

    def read(self, partition: Any) -> NoReturn:
        """Raise the error."""
        raise self._error
