"""Checks of the arguments of public calls, the same for every home.

Each function returns its argument in the form that the engine uses, or raises InvalidRequestError
with the argument's name, the value, and the expected form. An integer is anything with
`__index__` (a NumPy integer, too) except a bool: True would name partition 1 in memory and a
directory `t-True` on disk.
"""

import operator
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any, Final

from sparklog.common import TopicPartition
from sparklog.errors import InvalidRequestError

_SHOWN_CHARS_MAX: Final = 80  # a table or a long list would hide the rest of the message


def refused(name: str, value: object, expected: str) -> InvalidRequestError:
    """Return the error for the argument `name` with an invalid value.

    `expected` describes valid values, for the message.
    """
    shown = repr(value)
    if len(shown) > _SHOWN_CHARS_MAX:
        shown = f"{shown[:_SHOWN_CHARS_MAX]}... ({type(value).__name__})"
    return InvalidRequestError(f"{name}={shown}: expected {expected}")


def text(name: str, value: object, expected: str) -> str:
    if not isinstance(value, str):
        raise refused(name, value, expected)
    return value


def topic_name(value: object, name: str = "topic") -> str:
    """Return the checked name of a topic. The topic need not exist."""
    return text(name, value, "the name of a topic, a string")


def optional_text(name: str, value: object, expected: str) -> str | None:
    """Return a string argument that may be None; `expected` describes the argument in errors."""
    return None if value is None else text(name, value, f"{expected}, or None")


def integer(name: str, value: Any, expected: str = "an integer") -> int:
    if not _is_integer(value):
        raise refused(name, value, expected)
    return operator.index(value)


def _is_integer(value: object) -> bool:
    return hasattr(value, "__index__") and not isinstance(value, bool)


def partition_number(value: object, name: str = "partition") -> int:
    """Return the checked number of a partition. The partition need not exist."""
    return integer(name, value, "the number of a partition, an integer")


def partition_numbers(value: object, name: str = "partitions") -> list[int] | None:
    """Return the checked partition numbers, without duplicates, in the order given.

    None, which means all partitions, is returned unchanged.
    """
    if value is None:
        return None
    expected = "a list of partition numbers such as [0, 1], or None for all partitions"
    # Text is iterable too: b"0" would become partition 48.
    if isinstance(value, str | bytes) or not isinstance(value, Iterable):
        raise refused(name, value, expected)
    numbers = list(value)
    if not all(map(_is_integer, numbers)):
        raise refused(name, numbers, expected)
    return list(dict.fromkeys(map(operator.index, numbers)))


def mapping(name: str, value: object, expected: str) -> Mapping[Any, Any]:
    """Return an argument that must be a dict or another Mapping.

    `expected` describes the argument in errors.
    """
    if not isinstance(value, Mapping):
        raise refused(name, value, expected)
    return value


def partition_offsets(name: str, value: object) -> dict[int, int]:
    """Return a checked mapping {partition: offset} as a dict of integers."""
    expected = "{partition: offset}, both integers"
    offsets = mapping(name, value, expected)
    if not all(_is_integer(number) for pair in offsets.items() for number in pair):
        raise refused(name, value, expected)
    return {operator.index(p): operator.index(offset) for p, offset in offsets.items()}


def topic_offsets(name: str, value: object) -> dict[str, dict[int, int]]:
    """Return a checked mapping {topic: {partition: offset}} as dicts."""
    expected = "{topic: {partition: offset}}, such as {'flights': {0: 42}}"
    offsets: dict[str, dict[int, int]] = {}
    for topic, by_partition in mapping(name, value, expected).items():
        try:
            offsets[text(name, topic, expected)] = partition_offsets(name, by_partition)
        except InvalidRequestError:
            raise refused(name, value, expected) from None
    return offsets


def topic_partitions(name: str, value: object) -> list[TopicPartition]:
    """Return all partitions of a checked mapping {topic: partition numbers}."""
    expected = "{topic: partition numbers}, such as {'flights': [0, 1]}"
    keys = []
    for topic, numbers in mapping(name, value, expected).items():
        try:
            known = partition_numbers(numbers, name)
        except InvalidRequestError:
            known = None
        if known is None or not isinstance(topic, str):
            raise refused(name, value, expected)
        keys += [TopicPartition(topic, number) for number in known]
    return keys


def position(name: str, value: object) -> str | datetime | dict[int, int]:
    """Return a checked start or end position. Offsets are not compared with the log."""
    if isinstance(value, Mapping):
        return partition_offsets(name, value)
    if isinstance(value, datetime):
        return zoned(name, value)
    if isinstance(value, str) and value in ("earliest", "latest"):
        return value
    raise refused(
        name, value,
        "'earliest', 'latest', a datetime with a time zone, or {partition: offset}",
    )  # fmt: skip


def zoned(name: str, value: datetime) -> datetime:
    """Return a datetime, which must have a time zone."""
    if value.tzinfo is None:  # the same call would mean another time on another host
        expected = "a datetime with a time zone, such as datetime(..., tzinfo=timezone.utc)"
        raise refused(name, value, expected)
    return value


def point_in_time(name: str, value: object) -> int | datetime:
    """Return a time: ms since the epoch, -1 to -5 as in Kafka's ListOffsets, or a datetime."""
    if isinstance(value, datetime):
        return zoned(name, value)
    expected = "a datetime with a time zone, milliseconds since 1970, or -1 to -5 as in ListOffsets"
    time_ms = integer(name, value, expected)
    if time_ms < -5:
        raise refused(name, value, expected)
    return time_ms


def commit_attempt(name: str, value: object) -> tuple[int, str]:
    """Return the checked (position, attempt) of a CommitUnknownError."""
    if isinstance(value, tuple | list) and len(value) == 2 and _is_integer(value[0]):
        position, attempt = value
        if isinstance(attempt, str):
            return operator.index(position), attempt
    expected = "a CommitUnknownError, or its (position, attempt): an integer and a string"
    raise refused(name, value, expected)


def producer_id(value: object) -> tuple[int, int, int]:
    """Return the checked (producer id, epoch, first sequence) of an idempotent append."""
    expected = "(producer id, epoch, sequence of the first row), integers from 0"
    if isinstance(value, tuple | list) and len(value) == 3 and all(map(_is_integer, value)):
        first, second, third = map(operator.index, value)
        if min(first, second, third) >= 0:
            return first, second, third
    raise refused("producer", value, expected)
