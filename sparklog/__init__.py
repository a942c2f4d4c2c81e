"""Kafka's storage engine as a library inside Spark.

import sparklog
with sparklog.open("/data/log", mode="rw") as log:
    log.create_topic("flights", partitions=4)
    log.append("flights", pa.table({"key": ["N14228"], "value": ["{...}"]}))
    for batch in log.read("flights"): ...
"""

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from sparklog.errors import (
    BatchConflictError,
    DataCorruptionError,
    FencedError,
    InvalidRequestError,
    LogLockedError,
    OffsetOutOfRangeError,
    OutOfOrderSequenceError,
    RecordTooLargeError,
    SparklogError,
    StorageUnavailableError,
    TopicReplacedError,
    UnknownTopicError,
    UnsupportedVersionError,
)
from sparklog.log.log import Log

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__version__ = "0.1.0"
__all__ = [
    "BatchConflictError",
    "DataCorruptionError",
    "FencedError",
    "InvalidRequestError",
    "Log",
    "LogLockedError",
    "OffsetOutOfRangeError",
    "OutOfOrderSequenceError",
    "RecordTooLargeError",
    "SparklogError",
    "StorageUnavailableError",
    "TopicReplacedError",
    "UnknownTopicError",
    "UnsupportedVersionError",
    "open",
    "register",
]


def open(
    path: str | os.PathLike[str],
    mode: str = "r",
    *,
    options: Mapping[str, object] | None = None,
    until: str = "high-watermark",
    **components: Any,
) -> Log:
    """Open a log directory (several joined by ","); a context manager.

    Args:
        path: the log dir or dirs. In mode "rw" it is made where it doesn't exist; a directory
            that a broker left is taken over as it is.
        mode: "r" takes no lock and changes nothing; "rw" writes.
        options: log-wide options under Kafka's names ("flush", "log.retention.hours", ...).
        until: for a directory that a running broker writes: "high-watermark" reads as far as the
            broker's checkpoint, "log-end" as far as whole batches go.
        components: fs, clock: others than the machine's own, for tests.
    Raises: InvalidRequestError, LogLockedError, DataCorruptionError, UnsupportedVersionError.
    """
    return Log(path, mode=mode, options=options, until=until, **components)


def register(spark: "SparkSession") -> None:
    """Make `format("sparklog")` known to a Spark session, where it isn't found by itself.

    Needed where the package came by `--py-files` or `addPyFile`; an installed one is found.
    """
    from sparklog.datasource import SparklogDataSource

    spark.dataSource.register(SparklogDataSource)
