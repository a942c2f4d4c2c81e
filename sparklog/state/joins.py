"""The sides of a stream-stream join, and the families that follow from their rows.

    <side>-keyToNumValues        key -> the number of rows
    <side>-keyWithIndexToValue   (key, index) -> a row; a key has the indexes 0 to n - 1
    <side>-keyWithTsToValues     (key, event time) -> rows
    <side>-tsWithKey             the same keys, each as often as it has rows -> nothing

State formats 1 and 2 have the first two, as a store each; format 3 has them as column families, and
format 4 has the last two. Source: SymmetricHashJoinStateManager (Spark 4.3).
"""

from collections.abc import Collection
from typing import Final

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from sparklog.state.tables import OperatorState, StateTables
from sparklog.state.variables import Families

SIDES: Final = ("left", "right")
_BY_TIME: Final = "keyWithTsToValues"
Name = tuple[str, str]
"""The names of a store, and of a column family in it."""


def rows_of_side(families: Collection[Name], side: str) -> Name:
    """Return the family of the buffered rows of a side."""
    found = _find(families, side, _BY_TIME) or _find(families, side, "keyWithIndexToValue")
    assert found is not None
    return found


def side_rows(tables: StateTables, state: OperatorState, side: str) -> DataFrame:
    """Return the buffered rows of a side, under the key of the join or (key, event time)."""
    families = state.families()
    family = rows_of_side(families, side)
    rows = tables.table(state, *family)
    if family == _find(families, side, _BY_TIME):
        return rows
    columns = [F.col("key")[name] for name in _names(rows, "key")[:-1]]
    return rows.withColumn("key", F.struct(*columns))


def side_families(
    tables: StateTables, state: OperatorState, side: str, rows: DataFrame
) -> Families:
    """Return the families of a side that has these rows, in the state format of `state`."""
    families = state.families()
    family = rows_of_side(families, side)
    if index := _find(families, side, "tsWithKey"):
        nothing = F.struct(F.lit(None).alias("__dummy__")).alias("value")
        return {family: rows, index: rows.select("key", nothing)}
    index = _find(families, side, "keyToNumValues")
    assert index is not None
    (count,) = _names(tables.table(state, *index), "value")
    last = _names(tables.table(state, *family), "key")[-1]
    number = F.row_number().over(Window.partitionBy("key").orderBy(F.lit(0))) - 1
    numbered = F.struct("key.*", number.cast("long").alias(last)).alias("key")
    total = F.struct(F.count("*").alias(count)).alias("value")
    return {family: rows.select(numbered, "value"), index: rows.groupBy("key").agg(total)}


def _find(families: Collection[Name], side: str, kind: str) -> Name | None:
    """Return the family of this kind for a side, or None if the state format has no such family."""
    return next((each for each in families if f"{side}-{kind}" in each), None)


def _names(rows: DataFrame, column: str) -> list[str]:
    struct = rows.schema[column].dataType
    assert isinstance(struct, StructType)
    return struct.names
