"""What differs between the versions of PySpark: names and signatures, defined for all of them.

A class that the installed PySpark does not have is defined here, so that the classes of sparklog
can be derived from it or compared with it in every version. The Scala sources that differ are in
sparklog/jvm/scala/spark-*.
"""

import importlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import pyspark

from sparklog.spark_support import spark_version

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

PYSPARK: Final = spark_version(pyspark.__version__)
"""The installed PySpark."""
HAS_READ_LIMITS: Final = PYSPARK >= (4, 2)
"""Whether Spark passes limits of micro-batches to stream readers in Python."""
TREE_STRING_FLAGS: Final = (False, False) if PYSPARK >= (4, 1) else (False,)
"""The last arguments of TreeNode.treeString: printOperatorId, and printOutputColumns since 4.1."""

__all__ = [
    "DataSourceStreamArrowWriter",
    "EqualTo",
    "Filter",
    "GreaterThan",
    "GreaterThanOrEqual",
    "HAS_READ_LIMITS",
    "In",
    "LessThan",
    "LessThanOrEqual",
    "PYSPARK",
    "ReadAllAvailable",
    "ReadLimit",
    "ReadMaxRows",
    "SupportsTriggerAvailableNow",
    "TREE_STRING_FLAGS",
    "to_arrow_schema",
]

if TYPE_CHECKING:
    from pyspark.sql.datasource import (
        DataSourceStreamArrowWriter,
        EqualTo,
        Filter,
        GreaterThan,
        GreaterThanOrEqual,
        In,
        LessThan,
        LessThanOrEqual,
    )
    from pyspark.sql.streaming.datasource import (
        ReadAllAvailable,
        ReadLimit,
        ReadMaxRows,
        SupportsTriggerAvailableNow,
    )
else:
    # Spark 3.5 has no Python data sources; only the sink imports this module there.
    datasource = importlib.import_module("pyspark.sql.datasource") if PYSPARK >= (4, 0) else None

    # Spark 4.0 passes no filters.
    Filter, EqualTo, In, GreaterThan, GreaterThanOrEqual, LessThan, LessThanOrEqual = (
        getattr(datasource, name, type(name, (), {}))
        for name in (
            "Filter", "EqualTo", "In",
            "GreaterThan", "GreaterThanOrEqual", "LessThan", "LessThanOrEqual",
        )
    )  # fmt: skip

    if PYSPARK >= (4, 1):
        from pyspark.sql.datasource import DataSourceStreamArrowWriter
    elif PYSPARK >= (4, 0):
        # The worker of Spark 4.0 looks only for the first base.
        class DataSourceStreamArrowWriter(
            datasource.DataSourceArrowWriter, datasource.DataSourceStreamWriter
        ):
            """A stream writer whose write() takes Arrow batches."""

    if HAS_READ_LIMITS:
        from pyspark.sql.streaming.datasource import (
            ReadAllAvailable,
            ReadLimit,
            ReadMaxRows,
            SupportsTriggerAvailableNow,
        )
    else:

        class ReadLimit:
            """A limit of a micro-batch."""

        class ReadAllAvailable(ReadLimit):
            """No limit."""

        @dataclass
        class ReadMaxRows(ReadLimit):
            """At most `max_rows` rows."""

            max_rows: int

        class SupportsTriggerAvailableNow:
            """A reader that reads up to the offsets at the start of the query."""


def to_arrow_schema(schema: "StructType") -> "pa.Schema":
    """Return the Arrow schema of rows with timestamps in UTC."""
    from pyspark.sql.pandas import types

    timezone: dict[str, Any] = {"timezone": "UTC"} if HAS_READ_LIMITS else {}  # since Spark 4.2
    return types.to_arrow_schema(schema, **timezone)
