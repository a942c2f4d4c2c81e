"""Offsets and positions as text, in exactly the JSON of Spark's Kafka source.

    offsets     {"topic": {"0": 23, "1": -1}}     -1 latest, -2 earliest
                {"topic#epoch": {"0": 217518351}, "topic#since": {"0": 4}}     added for a log that
                was restored, or written by brokers: the leader epoch of the record before the
                position, if it is not 0, and the first offset of this epoch
                {"#waiting": {}}    alone: the query waits for its topics (waitForTopics)
    timestamps  {"topic": {"0": 1700000000000}}   ms since the epoch
    assign      {"topic": [0, 1]}

Source: JsonUtils (spark-sql-kafka-0-10). Pure functions without files and without Spark.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from sparklog.common import TopicPartition
from sparklog.errors import InvalidRequestError
from sparklog.storage.groups import Origin, Origins
from sparklog.storage.query_origin import ASIDE

Offsets = dict[TopicPartition, int]
Ranges = Mapping[TopicPartition, tuple[int, int]]
"""{(topic, partition): (log start offset, end)}, end exclusive."""

_ASIDES: Final = (f"{ASIDE}epoch", f"{ASIDE}since")

_WAITING: Final = f"{ASIDE}waiting"

LATEST: Final = -1
EARLIEST: Final = -2


@dataclass(frozen=True, slots=True)
class Bound:
    """A position at which reading starts or ends.

    Attributes:
        kind: "offsets" or "times" if each partition has its own value in `values`; "offset" or
            "time" if `value` applies to all partitions.
        value: An offset, LATEST, EARLIEST, or a time in ms.
        values: The same by partition.
    """

    kind: str
    value: int = 0
    values: Offsets = field(default_factory=dict)


def waiting() -> dict[str, dict[str, int]]:
    """Return the offset of a query that waits until the selected topics exist.

    A micro-batch that starts or ends at this offset has no rows. The next offset is the query's
    start. An older version of sparklog treats it as an empty offset, and reads new topics from
    their beginning.
    """
    return {_WAITING: {}}


def is_waiting(nested: Mapping[str, Mapping[str, int]]) -> bool:
    """Return whether an offset is the offset of a query that waits until its topics exist."""
    return _WAITING in nested


def to_json(
    offsets: Mapping[TopicPartition, int], origins: Origins | None = None
) -> dict[str, dict[str, int]]:
    """Return offsets in the form of a checkpoint, nested and sorted: {"topic": {"0": 123}}."""
    nested: dict[str, dict[str, int]] = {}
    for (topic, partition), offset in sorted(offsets.items()):
        nested.setdefault(topic, {})[str(partition)] = offset
    for (topic, partition), origin in sorted((origins or {}).items()):
        if origin.epoch:
            for aside, value in zip(_ASIDES, origin, strict=True):
                nested.setdefault(topic + aside, {})[str(partition)] = value
    return nested


def from_json(nested: Mapping[str, Mapping[str, int]]) -> Offsets:
    """Return the offsets of a checkpoint as {(topic, partition): offset}."""
    return {
        TopicPartition(topic, int(p)): offset
        for topic, by in nested.items()
        if ASIDE not in topic
        for p, offset in by.items()
    }


def origins_from_json(nested: Mapping[str, Mapping[str, int]]) -> dict[TopicPartition, Origin]:
    """Return the origins that are stored with a checkpoint's offsets."""
    epoch, since = _ASIDES
    return {
        TopicPartition(topic.removesuffix(epoch), int(p)): Origin(
            value, nested[topic.removesuffix(epoch) + since][p]
        )
        for topic, by in nested.items()
        if topic.endswith(epoch)
        for p, value in by.items()
    }


def parse_offsets(text: str, *, option: str) -> Offsets:
    """Parse an option `{"topic": {"0": 123}}`.

    Raises:
        InvalidRequestError: The text has another form. The message names the option.
    """
    document = _object(text, option, '{"topicA":{"0":23,"1":-1},"topicB":{"0":-2}}')
    offsets: Offsets = {}
    for topic, by_partition in document.items():
        if ASIDE in topic:  # copied from a checkpoint
            continue
        if not isinstance(by_partition, dict):
            raise _wrong(option, text, '{"topicA":{"0":23,"1":-1}}')
        for partition, offset in by_partition.items():
            # `type` and not `isinstance`, because JSON's true and false are of a subclass of int.
            if not partition.isdecimal() or type(offset) is not int:
                raise _wrong(option, text, '{"topicA":{"0":23,"1":-1}}')
            offsets[TopicPartition(topic, int(partition))] = offset
    return offsets


def parse_assign(text: str) -> list[TopicPartition]:
    """Parse the option assign: `{"topic": [0, 1]}`.

    Raises:
        InvalidRequestError: The text has another form.
    """
    shape = '{"topicA":[0,1],"topicB":[2,4]}'
    document = _object(text, "assign", shape)
    partitions_of_topics: list[TopicPartition] = []
    for topic, partitions in document.items():
        if not isinstance(partitions, list) or not all(type(p) is int for p in partitions):
            raise _wrong("assign", text, shape)
        partitions_of_topics += [TopicPartition(topic, p) for p in partitions]
    return sorted(set(partitions_of_topics))


def parse_bound(text: str, *, option: str) -> Bound:
    """Parse "earliest", "latest" (in any case) or the JSON of offsets."""
    word = text.strip().lower()
    if word in ("earliest", "latest"):
        return Bound("offset", EARLIEST if word == "earliest" else LATEST)
    values = parse_offsets(text, option=option)
    for partition, offset in values.items():
        if offset < EARLIEST:
            raise InvalidRequestError(
                f"{option}: the offset of {partition} must be 0 or more, -1 for latest or -2 for "
                f"earliest; got {offset}"
            )
    return Bound("offsets", values=values)


def _object(text: str, option: str, shape: str) -> dict[str, Any]:
    try:
        document = json.loads(text)
    except json.JSONDecodeError as error:
        raise _wrong(option, text, shape) from error
    if not isinstance(document, dict):
        raise _wrong(option, text, shape)
    return document


def _wrong(option: str, text: str, shape: str) -> InvalidRequestError:
    alternatives = "" if option == "assign" or "Timestamp" in option else ' or "earliest", "latest"'
    return InvalidRequestError(f"{option}={text}: expected JSON such as {shape}{alternatives}")
