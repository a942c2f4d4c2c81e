"""The columns that the sink takes: the columns of Spark's Kafka sink, and an optional timestamp.

    value      string or binary, required        topic      string, unless option topic is given
    key        string or binary                  partition  int; if null, by murmur2 of the key
    headers    array<struct<key string, value binary>>
    timestamp  timestamp; by default the time at which the row is framed

Other columns are ignored, as by Spark's Kafka sink.
"""

from typing import Final

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    IntegralType,
    MapType,
    StringType,
    StructType,
    TimestampType,
)

from sparklog.errors import InvalidRequestError
from sparklog.sink.options import SinkOptions

_TEXT: Final = (StringType, BinaryType)
_TYPES: Final[dict[str, tuple[type[DataType], ...]]] = {
    "key": _TEXT,
    "value": _TEXT,
    "headers": (ArrayType,),
    "topic": (StringType,),
    "partition": (IntegerType,),
    "timestamp": (TimestampType,),
}
_TEXTS: Final = ("key", "value")
_MILLIS: Final = ", of ms since 1970"
_WANTED: Final = {
    "headers": "array<struct<key:string,value:binary>>",
    "topic": "string",
    "partition": "int",
    "timestamp": "timestamp",
}


def columns_to_write(schema: StructType, options: SinkOptions) -> list[str]:
    """Return the names of the columns to write.

    Raises:
        InvalidRequestError: A column is missing, ambiguous or of a wrong type. No job has run yet.
    """
    names = [field.name for field in schema]
    if "value" not in names:
        raise InvalidRequestError(
            f"column value is missing; the columns are {', '.join(names)}. Combine the fields of a "
            "record into column value, for example by selectExpr('to_json(struct(*)) AS value')"
        )
    if options.topic is None and "topic" not in names:
        raise InvalidRequestError("the rows have no topic: set option topic, or add a column topic")
    left_out = set()
    if options.topic is not None:
        left_out.add("topic")
    if not options.include_headers:
        left_out.add("headers")
    columns = [name for name in _TYPES if name in names and name not in left_out]
    for name in columns:
        _check_is_unambiguous(name, names)
        _check(name, schema[name].dataType)
    return columns


def _check_is_unambiguous(name: str, names: list[str]) -> None:
    # Spark ignores case in names by default. The data paths treat an ambiguous name differently:
    # the JVM uses the last column with that name, and Arrow rejects the rows in the job.
    same = [at for at, other in enumerate(names) if other.lower() == name]
    if len(same) == 1:
        return
    keep = next(at for at in same if names[at] == name)
    others = [at for at in same if at != keep]
    renamed = [f"{names[at]}_{at}" if at in others else names[at] for at in range(len(names))]
    raise InvalidRequestError(
        f"column {name} is ambiguous: {len(same)} columns have this name, in upper or lower case "
        f"({', '.join(names[at] for at in same)}). Rename all but one of them, for example with "
        f"df.toDF({', '.join(map(repr, renamed))}), which names all columns by position"
    )


def _check(name: str, found: DataType) -> None:
    is_valid = isinstance(found, _TYPES[name])
    if name == "headers" and isinstance(found, ArrayType):
        is_valid = _is_header(found.elementType)
    if not is_valid:
        raise InvalidRequestError(
            f"column {name} has type {found.simpleString()}, but must have type "
            f"{_WANTED.get(name, 'string or binary')}{_way(name, found)}"
        )


def _way(name: str, found: DataType) -> str:
    """Return an expression that converts the column to the required type, if possible."""
    if name == "timestamp":
        cast = "timestamp_millis" if isinstance(found, IntegralType) else "to_timestamp"
        return f": {cast}(timestamp) AS timestamp" + _MILLIS * (cast == "timestamp_millis")
    if name == "headers":
        return ""
    nested = name in _TEXTS and isinstance(found, StructType | ArrayType | MapType)
    cast = "to_json" if nested else _WANTED.get(name, "string")
    return f": {cast}({name}) AS {name}"


def _is_header(element: DataType) -> bool:
    if not isinstance(element, StructType) or element.names != ["key", "value"]:
        return False
    key, value = (field.dataType for field in element)
    return isinstance(key, StringType) and isinstance(value, BinaryType)
