"""The columns of the source: those of Spark's Kafka source, or a selection by the user."""

from typing import Final

import pyarrow as pa
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from sparklog.errors import InvalidRequestError
from sparklog.spark_versions import to_arrow_schema

HEADERS: Final = ArrayType(
    StructType([StructField("key", StringType()), StructField("value", BinaryType())])
)
COLUMNS: Final = StructType(
    [
        StructField("key", BinaryType()),
        StructField("value", BinaryType()),
        StructField("topic", StringType()),
        StructField("partition", IntegerType()),
        StructField("offset", LongType()),
        StructField("timestamp", TimestampType()),
        StructField("timestampType", IntegerType()),
        StructField("headers", HEADERS),
    ]
)
"""All columns, in the connector's order; headers only with includeHeaders."""


def full_schema(*, headers: bool) -> StructType:
    """Return the schema for a query without a user-defined schema."""
    return COLUMNS if headers else StructType(COLUMNS.fields[:-1])


def check_schema(schema: StructType, columns: StructType = COLUMNS) -> None:
    """Raise InvalidRequestError unless a user's schema is a selection of the columns."""
    known = {field.name: field.dataType for field in columns}
    for field in schema:
        if field.name not in known:
            raise InvalidRequestError(
                f"schema: there is no column {field.name}; choose from {', '.join(known)}"
            )
        if field.dataType.jsonValue() != known[field.name].jsonValue():
            raise InvalidRequestError(
                f"schema: column {field.name} is {known[field.name].simpleString()}, "
                f"not {field.dataType.simpleString()}; cast it in the query"
            )


def arrow_schema(schema: StructType) -> pa.Schema:
    """Return the exact Arrow schema that Spark expects of every batch."""
    return to_arrow_schema(schema)


def fit(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Return the columns of `schema` in the schema's order. Copies only columns to be cast."""
    if not len(schema):
        return batch.select([])  # keeps the number of rows
    columns = [
        column if column.type.equals(field.type) else column.cast(field.type)
        for field, column in ((field, batch.column(field.name)) for field in schema)
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)
