"""Returns the offset of each partition at a time, like kafka-get-offsets.

Source: GetOffsetShell (Kafka 4.1).
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from sparklog.errors import InvalidRequestError
from sparklog.format.names import KAFKA_INTERNAL
from sparklog.log.log import Log
from sparklog.log.positions import to_ms
from sparklog.tools.topics import matching

TIMES: Final = {
    "latest": -1, "earliest": -2, "max-timestamp": -3, "earliest-local": -4, "latest-tiered": -5,
}  # fmt: skip
_PATTERN: Final = re.compile(r"([^:,]*)(?::(?:([0-9]*)|([0-9]*)-([0-9]*)))?")


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetQuery:
    """A query for offsets. `time` is in ms since the epoch, or -1 to -5 as in TIMES."""

    topic: str | None = None
    partitions: tuple[int, ...] | None = None
    topic_partitions: str | None = None
    time: int = -1
    exclude_internal_topics: bool = False


def parse_time(text: str) -> int:
    """Parse a --time: a name, -1 to -5, ms since the epoch, or an ISO time (UTC without a zone).

    Raises:
        InvalidRequestError: The text has another form.
    """
    if text in TIMES:
        return TIMES[text]
    try:
        when = int(text)
    except ValueError:
        when = _iso_ms(text)
    if not -5 <= when < 2**63:
        names = ", ".join(f"{number} or {name}" for name, number in TIMES.items())
        raise InvalidRequestError(
            f"time {text!r} must be {names}, milliseconds since the epoch or an ISO time"
        )
    return when


def _iso_ms(text: str) -> int:
    """Return an ISO time in ms since the epoch; -6 (not a valid time) for an invalid text."""
    try:
        when = datetime.fromisoformat(text)
    except ValueError:
        return -6
    return to_ms(when if when.tzinfo is not None else when.replace(tzinfo=UTC))


def parse_partitions(text: str) -> tuple[int, ...]:
    """Parse partition numbers that are joined by commas.

    Raises:
        InvalidRequestError: The text has another form.
    """
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError:
        raise InvalidRequestError(
            f"partitions {text!r} must be numbers joined by ',', such as 0,2"
        ) from None


def get_offsets(log: Log, query: OffsetQuery) -> dict[str, dict[int, int]]:
    """Return {topic: {partition: offset}}, sorted.

    A partition is left out, as in Kafka, if it has no such offset: no record at or after the time,
    no local records, or no tiered records.

    Raises:
        InvalidRequestError: No partition matches.
    """
    chosen = _chosen(log, query)
    if not any(chosen.values()):
        raise InvalidRequestError(
            "could not match any topic-partitions with the specified filters; the log has "
            + (", ".join(sorted(log.topics())) or "no topics")
        )
    answer: dict[str, dict[int, int]] = {}
    for topic, partitions in chosen.items():
        found = log.offsets_for_times(topic, dict.fromkeys(partitions, query.time))
        known = {p: offset for p, offset in sorted(found.items()) if offset is not None}
        if known:
            answer[topic] = known
    return answer


def _chosen(log: Log, query: OffsetQuery) -> dict[str, list[int]]:
    topics = log.topics()
    if query.topic_partitions is not None:
        if query.topic is not None or query.partitions is not None:
            raise InvalidRequestError(
                "--topic-partitions can't be used with --topic or --partitions"
            )
        rules = [_rule(part) for part in query.topic_partitions.split(",")]
        hidden = KAFKA_INTERNAL if query.exclude_internal_topics else frozenset()
        return {
            name: [p for p in sorted(info.dirs) if any(rule(name, p) for rule in rules)]
            for name, info in sorted(topics.items())
            if name not in hidden
        }
    names = matching(topics, query.topic, exclude_internal=query.exclude_internal_topics)
    wanted = None if query.partitions is None else set(query.partitions)
    return {
        name: [p for p in sorted(topics[name].dirs) if wanted is None or p in wanted]
        for name in names
    }


def _rule(text: str) -> Callable[[str, int], bool]:
    """Return the predicate of an element of --topic-partitions.

    An element is TOPIC, TOPIC:2, TOPIC:2-5 (partitions 2 to 4), TOPIC:2- or TOPIC:-5.
    """
    match = _PATTERN.fullmatch(text)
    if match is None:
        raise InvalidRequestError(
            f"topic-partitions {text!r} must be a topic (or a regular expression), and after ':' "
            "a partition or a range such as 0-3"
        )
    topic, number, low, high = match.groups()
    try:
        expression = re.compile(topic or ".*")
    except re.error as error:
        raise InvalidRequestError(
            f"topic-partitions {text!r} is not a regular expression: {error}"
        ) from None

    def holds(name: str, partition: int) -> bool:
        if name != topic and not expression.fullmatch(name):
            return False
        if number:
            return partition == int(number)
        return (not low or partition >= int(low)) and (not high or partition < int(high))

    return holds
