"""Filters that a batch query pushes down, and the columns that a user may choose."""

from datetime import UTC, datetime
from typing import Any

import pytest
from pyspark.sql import types as t

from sparklog.common import TopicPartition
from sparklog.errors import InvalidRequestError
from sparklog.source.filters import Filters
from sparklog.source.schema import check_schema
from sparklog.spark_versions import (
    PYSPARK,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    LessThan,
    LessThanOrEqual,
)

if PYSPARK < (4, 1):
    pytest.skip("filters for Python data sources: since Spark 4.1", allow_module_level=True)

T0, T1, U0 = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0)
HELD = {T0: (0, 100), T1: (10, 50), U0: (0, 9)}
OFFSET, PARTITION, TOPIC, TIME = ("offset",), ("partition",), ("topic",), ("timestamp",)
NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


def lookup(times: dict[TopicPartition, int]) -> dict[TopicPartition, int | None]:
    assert set(times.values()) <= {int(NOON.timestamp() * 1000)}
    return {key: None if key == U0 else 30 for key in times}


def narrowed(*filters: Filter) -> tuple[dict[Any, Any], list[Filter]]:
    """What is left of the ranges, and what Spark has to evaluate."""
    taken = Filters()
    left = taken.take(filters)
    ranges = taken.narrow(HELD, lookup)
    return {key: span for key, span in ranges.items() if span[0] < span[1]}, left


@pytest.mark.parametrize(
    ("filters", "ranges"),
    [
        ([GreaterThan(OFFSET, 20)], {T0: (21, 100), T1: (21, 50)}),
        ([GreaterThanOrEqual(OFFSET, 20)], {T0: (20, 100), T1: (20, 50)}),
        ([LessThan(OFFSET, 20)], {T0: (0, 20), T1: (10, 20), U0: (0, 9)}),
        ([LessThanOrEqual(OFFSET, 20)], {T0: (0, 21), T1: (10, 21), U0: (0, 9)}),
        ([GreaterThan(OFFSET, 20), LessThan(OFFSET, 30)], {T0: (21, 30), T1: (21, 30)}),
        ([EqualTo(OFFSET, 7)], {T0: (7, 8), U0: (7, 8)}),
        ([EqualTo(TOPIC, "u")], {U0: (0, 9)}),
        ([In(TOPIC, ("t", "x")), EqualTo(TOPIC, "u")], {}),
        ([In(PARTITION, (1, 2))], {T1: (10, 50)}),
        ([EqualTo(PARTITION, 0), In(TOPIC, ("t",))], {T0: (0, 100)}),
    ],
)
def test_what_is_exact_is_not_evaluated_again(
    filters: list[Filter], ranges: dict[TopicPartition, tuple[int, int]]
) -> None:
    assert narrowed(*filters) == (ranges, [])


@pytest.mark.parametrize(
    "filters", [[GreaterThan(TIME, NOON)], [GreaterThanOrEqual(TIME, NOON)], [EqualTo(TIME, NOON)]]
)
def test_a_time_only_moves_the_start(filters: list[Filter]) -> None:
    """Records behind the first that is as young may be older."""
    assert narrowed(*filters) == ({T0: (30, 100), T1: (30, 50)}, filters)


@pytest.mark.parametrize(
    "given",
    [
        LessThan(TIME, NOON),
        In(TOPIC, ("t", None)),
        EqualTo(("key",), b"k"),
        GreaterThan(PARTITION, 0),
        In(OFFSET, (1, 2)),
    ],
)
def test_what_can_not_be_used_is_left_to_spark(given: Filter) -> None:
    assert narrowed(given) == (HELD, [given])


@pytest.mark.parametrize(
    ("name", "kind", "words"),
    [
        ("value", t.StringType(), "column value is binary, not string; cast it in the query"),
        ("origin", t.StringType(), "no column origin; choose from key, value, topic"),
        ("offset", t.IntegerType(), "column offset is bigint, not int"),
    ],
)
def test_a_schema_that_is_no_choice_of_the_columns(name: str, kind: t.DataType, words: str) -> None:
    check_schema(t.StructType([t.StructField("value", t.BinaryType())]))
    with pytest.raises(InvalidRequestError, match=words):
        check_schema(t.StructType([t.StructField(name, kind)]))
