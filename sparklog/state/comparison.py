"""Compares the rows of a column family in two states, key by key."""

from dataclasses import dataclass
from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

_SAMPLE: Final = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class FamilyDifference:
    """The difference of a store, or of a column family of a store, between two states.

    Attributes:
        operator: The number of the operator.
        family: The store and the column family, such as "default/default".
        rows: The number of rows in each of the two states.
        only_first: The number of keys that only the first state has.
        only_second: The number of keys that only the second state has.
        changed: The number of keys with different values.
        sample: Some of these keys, as JSON.

    Examples:
        >>> from sparklog.checkpoint import diff
        >>> for family in diff("checkpoint", "checkpoint", spark=spark).families:
        ...     print(family.changed, family.sample)
    """

    operator: int
    family: str
    rows: tuple[int, int]
    only_first: int
    only_second: int
    changed: int
    sample: list[str]

    def __str__(self) -> str:
        sample = f", such as {', '.join(self.sample)}" if self.sample else ""
        return (
            f"operator {self.operator}, {self.family}: {self.rows[0]} and {self.rows[1]} rows; "
            f"{self.only_first} keys only in the first, {self.only_second} only in the second, "
            f"{self.changed} with another value{sample}"
        )


def compare(
    operator: int, family: str, first: DataFrame, second: DataFrame, rows: tuple[int, int]
) -> FamilyDifference:
    """Compare two states of a family.

    Args:
        operator: The number of the operator.
        family: The store and the column family.
        first: The rows of the first state, with the columns key and value.
        second: The rows of the second state.
        rows: The number of rows in each.

    Cost:
        Reads both, and shuffles them by key.
    """
    joined = (
        _by_key(first, "first")
        .join(_by_key(second, "second"), "key", "full_outer")
        .where("not first <=> second")
        .cache()
    )
    try:
        count = joined.agg(
            F.count_if(F.col("second").isNull()).alias("only_first"),
            F.count_if(F.col("first").isNull()).alias("only_second"),
            F.count("*").alias("total"),
        ).collect()[0]
        sample = [row.key for row in joined.orderBy("key").limit(_SAMPLE).collect()]
    finally:
        joined.unpersist()
    return FamilyDifference(
        operator=operator,
        family=family,
        rows=rows,
        only_first=count.only_first,
        only_second=count.only_second,
        changed=count.total - count.only_first - count.only_second,
        sample=sample,
    )


def _by_key(frame: DataFrame, name: str) -> DataFrame:
    """Return keys and values as JSON. Spark can't compare maps; a key of a list has many values."""
    options = {"ignoreNullFields": "false"}
    values = F.sort_array(F.collect_list(F.to_json("value", options)))
    return frame.groupBy(F.to_json("key", options).alias("key")).agg(values.alias(name))
