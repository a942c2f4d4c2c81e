"""State variables of transformWithState, and the column families that follow from their rows.

    v                            a key, or (key, userKey) of a map -> a value; values of a list
    $ttl_v                       (the least expiration, the key of v) -> nothing
    $min_v                       of a list with expirations: key -> the least expiration
    $count_v                     of a list with expirations: key -> the number of values
    $rowCounter_v                of another list: key -> the number of values
    $procTimers_keyToTimestamp   (key, time) -> nothing; $eventTimers_... of event time
    $procTimers_timestampToKey   (time, key) -> nothing

A value that expires is stored as (value, ttlExpirationMs). Source: TTLState, ListStateImplWithTTL,
TimerStateImpl (Spark 4.3).
"""

from collections.abc import Iterable
from functools import reduce
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from sparklog.checkpoint.spark_files.state_stores import DEFAULT_STORE
from sparklog.state.operators import Operator
from sparklog.state.tables import OperatorState, StateTables

TIMERS: Final = "timers"
Families = dict[tuple[str, str], DataFrame]
_EXPIRATION: Final = "array_min(entries.ttlExpirationMs) AS expirationMs"
_TTL: Final = (f"struct({_EXPIRATION}, key AS elementKey)", "struct(null AS __empty__)")
_MIN: Final = ("key", f"struct({_EXPIRATION})")
_COUNT: Final = ("key", "struct(bigint(size(entries)) AS count)")
_TIMER: Final = ("struct(key.expiryTimestampMs, key.key)", "value")
_INTERNAL: Final = {
    (False, False): {},
    (False, True): {"$ttl_": _TTL},
    (True, False): {"$rowCounter_": _COUNT},
    (True, True): {"$ttl_": _TTL, "$min_": _MIN, "$count_": _COUNT},
}
"""{(is a list, has expirations): {prefix of an internal family: its key and value in SQL}}."""


def changeable_names(operator: Operator, wanted: Operator) -> tuple[str, ...]:
    """Return the names under which two operators have rows: state variables, and the timers."""
    names = sorted(operator.variables.keys() & wanted.variables.keys())
    has_timers = operator.timers and wanted.timers and TIMERS not in names
    return (*names, TIMERS) if has_timers else tuple(names)


def variable_rows(tables: StateTables, state: OperatorState, name: str) -> DataFrame:
    """Return the rows of a state variable, or of the timers. A list is one row, with an array."""
    rows = tables.table(state, DEFAULT_STORE, state.operator.family(name))
    if name not in state.operator.lists:
        return rows
    # A shuffle does not keep the order of the values.
    numbered = rows.withColumn("at", F.monotonically_increasing_id())
    entries = F.array_sort(
        F.collect_list(F.struct("at", "value")),
        lambda left, right: F.when(left["at"] < right["at"], -1).otherwise(1),
    )
    return numbered.groupBy("partition_id", "key").agg(entries["value"].alias("value"))


def variable_families(rows: DataFrame, operator: Operator, name: str) -> Families:
    """Return the families of a state variable, or of the timers, that has these rows.

    A key or a value with a missing part becomes null, which the jar refuses.
    """
    family = operator.family(name)
    is_list, expires = name in operator.lists, operator.variables.get(name, False)
    is_timer = family == operator.timers
    if is_timer or name in operator.maps:
        rows = rows.withColumn("key", _whole(F.col("key"), rows.select("key.*").columns))
    if expires and is_list:
        rows = rows.withColumn("value", F.transform("value", _whole_value))
    elif expires:
        rows = rows.withColumn("value", _whole_value(F.col("value")))
    entries = F.col("value") if is_list else F.array("value")
    # The values are needed several times, and a function may return others the next time.
    rows = rows.withColumn("entries", entries).localCheckpoint()
    internal = {f"{prefix}{name}": sql for prefix, sql in _INTERNAL[is_list, expires].items()}
    if is_timer:
        internal = {family.replace("_keyToTimestamp", "_timestampToKey"): _TIMER}
    found = {family: rows.select("key", "value")}
    if is_list:
        # A null array stays, as a null value; an empty list is the absence of its key.
        kept = rows.where("entries IS NULL OR size(entries) > 0")
        found[family] = kept.select("key", F.explode_outer("entries").alias("value"))
    for other, (key, value) in internal.items():
        columns = F.expr(key).alias("key"), F.expr(value).alias("value")
        found[other] = rows.where("size(entries) > 0").select(*columns)
    return {(DEFAULT_STORE, each): frame for each, frame in found.items()}


def _whole_value(value: Column) -> Column:
    return _whole(value, ("value", "ttlExpirationMs"))


def _whole(struct: Column, parts: Iterable[str]) -> Column:
    return F.when(reduce(Column.__and__, (struct[part].isNotNull() for part in parts)), struct)
