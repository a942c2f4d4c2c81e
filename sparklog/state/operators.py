"""The stateful operators of Spark: which columns of a key determine the partition of a row.

The columns are those by which Spark shuffles the operator's input. Source: the operators' key
expressions, and StatePartitionKeyExtractorFactory (Spark 4.2).
"""

import json
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from sparklog.checkpoint.files import Checkpoint
from sparklog.checkpoint.spark_files.state_schema import ColumnFamily, StateStoreSchema
from sparklog.checkpoint.spark_files.state_stores import metadata_path, parse_metadata
from sparklog.errors import InvalidRequestError

_ALL_COLUMNS: Final = frozenset(
    {
        "stateStoreSave",
        "dedupe",
        "dedupeWithinWatermark",
        "flatMapGroupsWithState",
        "applyInPandasWithState",
        "globalLimit",
    }
)
_SESSION_WINDOW: Final = "sessionWindowStateStoreSaveExec"
_JOIN: Final = "symmetricHashJoin"
_JOIN_FAMILIES: Final = {
    "keyToNumValues": (0, False),
    "keyWithIndexToValue": (1, False),
    "keyWithTsToValues": (1, True),
    "tsWithKey": (1, True),
}
"""{a side's state: (columns of its key after the join's key, whether a key has several values)}.

State formats 1 and 2 have a store for each, formats 3 and 4 a column family.
"""
_TRANSFORM: Final = "transformWithState"
_TIMER: Final = "TimerState"
_NESTED: Final = ("elementKey", "key")
_BESIDE: Final = {"expirationMs", "expiryTimestampMs", "userKey"}


@dataclass(frozen=True, slots=True)
class FamilyRule:
    """How the rows of a column family are placed and written.

    Attributes:
        path: The names of the nested structs of the key that lead to the partition key.
        columns: The number of columns of the partition key; 0 if all rows are in partition 0.
        is_list: Whether a key has several values.
    """

    path: tuple[str, ...]
    columns: int
    is_list: bool = False


@dataclass(frozen=True, slots=True)
class Operator:
    """A stateful operator, from its metadata.

    Attributes:
        id: The number in the directory `state`.
        name: Spark's name of the operator.
        lists: The state variables that are lists.
        maps: The state variables that are maps.
        variables: {state variable: whether its values expire}, of transformWithState.
        timers: The column family with the timers by key; None without timers.
    """

    id: int
    name: str
    lists: frozenset[str]
    maps: frozenset[str]
    variables: dict[str, bool]
    timers: str | None

    @property
    def is_join(self) -> bool:
        """Whether the operator joins two streams."""
        return self.name == _JOIN

    @property
    def is_transform(self) -> bool:
        """Whether the operator is transformWithState, which needs RocksDB."""
        return self.name.startswith(_TRANSFORM)

    def family(self, name: str) -> str:
        """Return the column family of a state variable, or of the timers."""
        return self.timers if self.timers and name not in self.variables else name


def read_operator(checkpoint: Checkpoint, operator: int, batch: int) -> Operator:
    """Read an operator's metadata, as of a batch.

    Raises:
        InvalidRequestError: The operator has no metadata.
        DataCorruptionError: The metadata can't be read.
    """
    path = metadata_path(checkpoint, operator, batch)
    if path is None:
        raise InvalidRequestError(
            f"operator {operator} of {checkpoint.path} has no metadata, as if Spark 3 had written "
            "it: run a batch of the query with Spark 4",
            path=checkpoint.path,
        )
    return parse_metadata(checkpoint, path, partial(_parse, operator))


def _parse(operator: int, document: dict[str, Any]) -> Operator:
    properties: dict[str, Any] = json.loads(document.get("operatorPropertiesJson") or "{}")
    found = {v["stateName"]: v for v in properties.get("stateVariables", [])}
    kinds = {name: v["stateVariableType"] for name, v in found.items()}
    return Operator(
        id=operator,
        name=document["operatorInfo"]["operatorName"],
        lists=frozenset(name for name, kind in kinds.items() if kind == "ListState"),
        maps=frozenset(name for name, kind in kinds.items() if kind == "MapState"),
        variables={
            name: bool(v["ttlEnabled"]) for name, v in found.items() if kinds[name] != _TIMER
        },
        timers=next((name for name, kind in kinds.items() if kind == _TIMER), None),
    )


def family_rules(operator: Operator, schema: StateStoreSchema) -> dict[str, FamilyRule]:
    """Return the rules of a store's column families.

    Raises:
        InvalidRequestError: The rows of this operator can't be placed.
    """
    return {name: _rule(operator, schema, family) for name, family in schema.families.items()}


def _rule(operator: Operator, schema: StateStoreSchema, family: ColumnFamily) -> FamilyRule:
    columns = len(family.key)
    if operator.is_transform and schema.has_families:
        return _rule_of_variable(operator, family)
    if operator.is_join:
        _, _, kind = (family.name if schema.has_families else schema.store).partition("-")
        if kind in _JOIN_FAMILIES:
            more, is_list = _JOIN_FAMILIES[kind]
            return FamilyRule((), columns - more, is_list)
    if operator.name == _SESSION_WINDOW:
        return FamilyRule((), columns - 1)
    if operator.name in _ALL_COLUMNS:
        is_in_one = all(field.type.equals("null") for field in family.key)
        return FamilyRule((), 0 if is_in_one else columns)
    raise InvalidRequestError(
        f"operator {operator.id} ({operator.name}, store {schema.store}) can't be rewritten: "
        "operators and state formats newer than Spark 4.3 are not supported"
    )


def _rule_of_variable(operator: Operator, family: ColumnFamily) -> FamilyRule:
    """Return the rule of a family of transformWithState.

    The grouping key is the key itself, or the column `key` beside a map's key or a timer's time, or
    the column `elementKey` of the index by expiration.
    """
    path: tuple[str, ...] = ()
    fields = {field.name: field.type for field in family.key}
    is_compound = family.layout.kind != "plain"
    for name in _NESTED if is_compound else ():
        # A column of the grouping key may have the same name, but has no such neighbour.
        if len(fields) == 2 and name in fields and fields.keys() - {name} <= _BESIDE:
            path += (name,)
            fields = {field.name: field.type for field in fields[name]}
    return FamilyRule(path, len(fields), family.name in operator.lists)
