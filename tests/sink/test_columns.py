"""Columns that the sink takes, and what is said of others: which, and by what function they fit."""

import ast
import re
from collections.abc import Callable

import pytest
from pyspark.sql import types as t

from sparklog.errors import InvalidRequestError
from sparklog.sink.columns import columns_to_write
from sparklog.sink.options import parse

VALUE = {"value": t.BinaryType()}


def chosen(columns: dict[str, t.DataType]) -> list[str]:
    schema = t.StructType([t.StructField(*column) for column in columns.items()])
    return columns_to_write(schema, parse({"path": "/log", "topic": "t"}))


def headers(**fields: t.DataType) -> t.DataType:
    return t.ArrayType(t.StructType([t.StructField(*field) for field in fields.items()]))


def test_others_are_left_aside() -> None:
    given = {"key": t.StringType(), "origin": t.StringType()}
    assert chosen(VALUE | given) == ["key", "value"]


def test_the_options_leave_columns_out() -> None:
    given = VALUE | {"headers": headers(key=t.StringType(), value=t.BinaryType())}
    schema = t.StructType([t.StructField(*column) for column in given.items()])
    options = parse({"path": "/log", "topic": "t", "includeHeaders": "false"})
    assert chosen(given) == ["value", "headers"]
    assert columns_to_write(schema, options) == ["value"]
    with pytest.raises(InvalidRequestError, match="no topic: set option topic"):
        columns_to_write(schema, parse({"path": "/log"}))


@pytest.mark.parametrize(
    ("columns", "words"),
    [
        (
            {"id": t.LongType()},
            "value is missing; the columns are id. .*'to_json(struct(*)) AS value'",
        ),
        ({"value": t.StructType()}, "must have type string or binary: to_json(value) AS value"),
        (
            {"value": t.ArrayType(t.LongType())},
            "must have type string or binary: to_json(value) AS value",
        ),
        (
            {"value": t.IntegerType()},
            "type int, but must have type string or binary: string(value) AS value",
        ),
        (VALUE | {"key": t.LongType()}, "key has type bigint, but must .*: string(key) AS key"),
        (VALUE | {"partition": t.LongType()}, "must have type int: int(partition) AS partition"),
        (VALUE | {"timestamp": t.LongType()}, "timestamp_millis(timestamp) AS timestamp, of ms"),
        (
            VALUE | {"timestamp": t.DateType()},
            "must have type timestamp: to_timestamp(timestamp) AS timest",
        ),
        (VALUE | {"timestamp": t.TimestampNTZType()}, ": to_timestamp(timestamp) AS timestamp"),
        (
            VALUE | {"headers": t.ArrayType(t.StringType())},
            "must have type array<struct<key:string,value",
        ),
        (
            VALUE | {"headers": headers(key=t.StringType(), value=t.StringType())},
            "must have type array<st",
        ),
        (
            VALUE | {"headers": headers(name=t.StringType(), value=t.BinaryType())},
            "must have type array<st",
        ),
    ],
)
def test_refused_with_the_function_that_helps(columns: dict[str, t.DataType], words: str) -> None:
    with pytest.raises(InvalidRequestError) as refused:
        chosen(columns)
    assert all(part in str(refused.value) for part in words.split(".*"))


@pytest.mark.parametrize("name", ["key", "value", "headers", "topic", "partition", "timestamp"])
@pytest.mark.parametrize("change", [str, str.upper, str.title])
def test_a_second_column_of_the_same_name_is_refused(
    name: str, change: Callable[[str], str]
) -> None:
    kinds = {
        "key": t.StringType(),
        "value": t.BinaryType(),
        "headers": headers(key=t.StringType(), value=t.BinaryType()),
        "topic": t.StringType(),
        "partition": t.IntegerType(),
        "timestamp": t.TimestampType(),
    }
    fields = [*kinds.items(), (change(name), t.LongType())]
    options = parse({"path": "/log", "includeHeaders": "true"})
    for order in (fields, fields[::-1]):
        schema = t.StructType([t.StructField(*field) for field in order])
        with pytest.raises(InvalidRequestError, match=f"column {name} is ambiguous") as refused:
            columns_to_write(schema, options)
        (advice,) = re.findall(r"df\.toDF\((.*?)\)", str(refused.value))
        assert len(set(ast.literal_eval(f"[{advice}]"))) == len(order)


def test_a_second_column_that_is_not_written_is_left_aside() -> None:
    field = t.StructField("topic", t.StringType())
    schema = t.StructType([t.StructField("value", t.StringType()), field, field])
    assert columns_to_write(schema, parse({"path": "/log", "topic": "t"})) == ["value"]
