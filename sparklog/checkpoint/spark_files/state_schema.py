"""Schemas of state stores: the operator's metadata and schema files.

    state/<op>/_metadata/metadata            "v1", JSON: stores, partitions, columns of the prefix
    state/<op>/_metadata/v2/<batch>          "v2", JSON: and the paths of the schema files
    state/<op>/0/[<store>/]_metadata/schema  v1, v2: a key and a value
    state/<op>/_stateSchema/<store>/<file>   v3: column families, with a key and a value each

Types are Spark's JSON. Types that Arrow lacks, or that Spark doesn't convert, are read as binary,
in their row format: calendar intervals (i32 months, i32 days, i64 microseconds), variants, geometry
and geography, objects. Intervals of months are int32. Fields of the same name are numbered (the
second field is "sum_2"), because Arrow in Java drops duplicates. Source: OperatorStateMetadata,
SchemaHelper, StateStoreColFamilySchema, KeyStateEncoderSpec (4.2).
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import pyarrow as pa

from sparklog.checkpoint.files import Checkpoint, batch_numbers
from sparklog.checkpoint.spark_files.metadata_logs import parse_offsets
from sparklog.checkpoint.spark_files.state_stores import (
    DEFAULT_STORE,
    StateStoreMetadata,
    operators_of,
    stores_info,
    stores_of,
)
from sparklog.errors import DataCorruptionError, InvalidRequestError

_SIMPLE: Final[dict[str, pa.DataType]] = {
    "boolean": pa.bool_(),
    "byte": pa.int8(),
    "short": pa.int16(),
    "integer": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", "UTC"),
    "timestamp_ntz": pa.timestamp("us"),
    "string": pa.string(),
    "binary": pa.binary(),
    "void": pa.null(),
    "null": pa.null(),
}
_PATTERNS: Final = (
    (re.compile(r"(?:char|varchar)\([0-9]+\)|string collate .*"), pa.string()),
    (re.compile(r"interval (?:day|hour|minute|second)(?: to (?:hour|minute|second))?"),
     pa.duration("us")),
    (re.compile(r"interval (?:year|month)(?: to month)?"), pa.int32()),
    (re.compile(r"time(?:\([0-9]+\))?"), pa.time64("ns")),
)  # fmt: skip
_ENCODING: Final = "spark.sql.streaming.stateStore.encodingFormat"
_DECIMAL: Final = re.compile(r"decimal\(([0-9]+),\s*(-?[0-9]+)\)")
_SCHEMA_FILE: Final = re.compile(r".*/(_stateSchema/[^/]+/[^/]+)")
_LAYOUTS: Final = {
    "NoPrefixKeyStateEncoderSpec": "plain",
    "PrefixKeyScanStateEncoderSpec": "prefix",
    "RangeKeyScanStateEncoderSpec": "range",
    "TimestampAsPrefixKeyStateEncoderSpec": "time first",
    "TimestampAsPostfixKeyStateEncoderSpec": "time last",
}


@dataclass(frozen=True, slots=True)
class KeyEncoder:
    """The RocksDB provider's key format.

    Attributes:
        kind: "plain", "prefix", "range", "time first" or "time last".
        first: The ordinals of the columns that come first, for scans.
    """

    kind: str = "plain"
    first: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class ColumnFamily:
    """A column family, or a store without families: key and value as Arrow structs.

    Key and value are binary if encoded as Avro (spark.sql.streaming.stateStore.encodingFormat).
    """

    name: str
    key: pa.DataType
    value: pa.DataType
    layout: KeyEncoder


@dataclass(frozen=True, slots=True)
class StateStoreSchema:
    """The schema of a store: {name: column family}, only "default" for a store without families."""

    operator: int
    store: str
    partitions: int
    has_families: bool
    families: dict[str, ColumnFamily]


def store_schema(
    checkpoint: Checkpoint, operator: int, store: str = DEFAULT_STORE
) -> StateStoreSchema:
    """Return the schema of an operator's store, from the operator's newest metadata.

    Raises:
        InvalidRequestError: There is no such store, or the schema isn't written yet.
        DataCorruptionError: The schema can't be read.
    """
    operators = operators_of(checkpoint)
    if operator not in operators:
        known = ", ".join(map(str, operators))
        raise InvalidRequestError(
            f"{checkpoint.path} has no stateful operator {operator}: "
            + (
                f"its operators are {known}"
                if known
                else "the query is stateless or has not run a batch yet"
            ),
            path=checkpoint.path,
        )
    infos = {info.name: info for info in stores_info(checkpoint, operator)}
    if not infos:  # Spark 3 doesn't write such metadata
        for each in stores_of(checkpoint):
            if each.operator == operator:
                known_parts = infos[each.name].partitions if each.name in infos else 0
                infos[each.name] = StateStoreMetadata(
                    each.name, max(known_parts, each.partition + 1), 0, ()
                )
    if store not in infos:
        raise InvalidRequestError(
            f"operator {operator} of {checkpoint.path} has no store {store}: its stores are "
            + ", ".join(sorted(infos))
        )
    info = infos[store]
    families, has_families = _families(checkpoint, operator, info)
    if has_families and _is_avro(checkpoint):
        families = {
            name: replace(family, key=pa.binary(), value=pa.binary())
            for name, family in families.items()
        }
    return StateStoreSchema(operator, store, info.partitions, has_families, families)


def has_all_in_one(checkpoint: Checkpoint, operator: int) -> bool:
    """Return True if an operator has all rows in a single partition, whatever the conf says.

    Such an operator has no key, as a sum over everything, or a null key, as a limit. False if the
    schema is unknown.
    """
    infos = stores_info(checkpoint, operator)
    for info in infos:
        try:
            families, _ = _families(checkpoint, operator, info)
        except (InvalidRequestError, DataCorruptionError):
            return False  # reported when the schema is read
        columns = [column for family in families.values() for column in family.key]
        if not all(pa.types.is_null(column.type) for column in columns):
            return False
    return bool(infos)


def schema_paths(operator: int, info: StateStoreMetadata) -> list[str]:
    """Return the paths of a store's schema files. Spark removes old ones of several."""
    paths = [f"state/{operator}/{m[1]}" for m in map(_SCHEMA_FILE.fullmatch, info.schemas) if m]
    inside = "" if info.name == DEFAULT_STORE else f"{info.name}/"
    return paths or [f"state/{operator}/0/{inside}_metadata/schema"]


def is_avro(conf: Mapping[str, str]) -> bool:
    """Return whether a plan's settings encode state with column families as Avro."""
    return conf.get(_ENCODING, "").lower() == "avro"


def _is_avro(checkpoint: Checkpoint) -> bool:
    batches = batch_numbers(checkpoint.names("offsets"))
    if not batches:
        return False
    path = f"offsets/{max(batches)}"
    where = checkpoint.locate(path)[0]
    plan = parse_offsets(checkpoint.read(path), batch=max(batches), path=where)
    return is_avro(plan.conf)


def _families(
    checkpoint: Checkpoint, operator: int, info: StateStoreMetadata
) -> tuple[dict[str, ColumnFamily], bool]:
    paths = schema_paths(operator, info)
    found: dict[str, ColumnFamily] = {}
    version = 0
    for path in paths:
        try:
            data = checkpoint.read(path)
        except FileNotFoundError:
            continue  # Spark removes old schema files
        where = checkpoint.locate(path)[0]
        try:
            version, families = _parse(data, info.prefix_columns)
        except (ValueError, KeyError, IndexError, TypeError, UnicodeDecodeError) as error:
            raise DataCorruptionError(
                f"the file is not a state schema: {error}", path=where
            ) from error
        found.update((family.name, family) for family in families)
    if not found:
        raise InvalidRequestError(
            f"{checkpoint.real(paths[-1])} is missing, so the state of operator {operator} can't "
            "be decoded; a running query writes the file with its first batch",
            path=checkpoint.real(paths[-1]),
        )
    return found, version >= 3


class _Input:
    """Reads data that Java's DataOutputStream wrote."""

    def __init__(self, data: bytes) -> None:
        self._data, self._at = data, 0

    def number(self, size: int) -> int:
        if self._at + size > len(self._data):
            raise ValueError("the schema is incomplete")
        self._at += size
        return int.from_bytes(self._data[self._at - size : self._at], "big", signed=True)

    def text(self) -> str:
        size = self.number(2) & 0xFFFF
        if self._at + size > len(self._data):
            raise ValueError("the schema is incomplete")
        self._at += size
        return self._data[self._at - size : self._at].decode()

    def document(self) -> Any:
        return json.loads("".join(self.text() for _ in range(self.number(4))))


def _parse(data: bytes, prefix_columns: int) -> tuple[int, list[ColumnFamily]]:
    given = _Input(data)
    version = given.text()
    if version == "v3":
        return 3, [_family(given) for _ in range(given.number(4))]
    if version not in ("v1", "v2"):
        raise ValueError(f"the version of the schema must be v1, v2 or v3; got {version[:10]!r}")
    key, value = (
        json.loads(given.text()) if version == "v1" else given.document() for _ in range(2)
    )
    layout = KeyEncoder("prefix", tuple(range(prefix_columns))) if prefix_columns else KeyEncoder()
    return int(version[1:]), [
        ColumnFamily(DEFAULT_STORE, arrow_type(key), arrow_type(value), layout)
    ]


def _family(given: _Input) -> ColumnFamily:
    name = given.text()
    given.number(2)  # the id of the key's schema, for schema evolution
    key = arrow_type(given.document())
    given.number(2)
    value = arrow_type(given.document())
    spec = given.document()
    given.document()  # the user's key of a map, which the key contains, too
    kind = _LAYOUTS[spec["keyStateEncoderType"]]
    first: Sequence[int] = ()
    if kind == "prefix":
        first = range(int(spec["numColsPrefixKey"]))
    elif kind == "range":
        first = [int(ordinal) for ordinal in spec["orderingOrdinals"]]
    return ColumnFamily(name, key, value, KeyEncoder(kind, tuple(first)))


def arrow_type(document: Any) -> pa.DataType:
    """Return the Arrow type of a Spark type in JSON; binary if there is none."""
    if isinstance(document, str):
        return _simple(document)
    kind = document["type"]
    if kind == "struct":
        types = [arrow_type(field["type"]) for field in document["fields"]]
        names = _unique([str(field["name"]) for field in document["fields"]])
        return pa.struct(list(zip(names, types, strict=True)))
    if kind == "array":
        return pa.list_(pa.field("element", arrow_type(document["elementType"])))
    if kind == "map":
        key = pa.field("key", arrow_type(document["keyType"]), nullable=False)
        return pa.map_(key, pa.field("value", arrow_type(document["valueType"])))
    if kind == "udt":
        return arrow_type(document["sqlType"])
    return pa.binary()


def _unique(names: list[str]) -> list[str]:
    """Number duplicate names: two sums of an aggregation are "sum" and "sum_2"."""
    found: list[str] = []
    for name in names:
        unique, number = name, 1
        while unique in found or (number > 1 and unique in names):
            number += 1
            unique = f"{name}_{number}"
        found.append(unique)
    return found


def _simple(name: str) -> pa.DataType:
    if name in _SIMPLE:
        return _SIMPLE[name]
    if name == "decimal":
        return pa.decimal128(10, 0)
    if match := _DECIMAL.fullmatch(name):
        return pa.decimal128(int(match[1]), int(match[2]))
    return next((kind for pattern, kind in _PATTERNS if pattern.fullmatch(name)), pa.binary())
