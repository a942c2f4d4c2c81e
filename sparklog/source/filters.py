"""Push filters on offset, partition, topic and timestamp down into offset ranges.

Pushed filters only narrow the plan. Filters on offset, partition and topic are then fully applied.
A timestamp bound only moves the start, because later records can be older, so Spark evaluates it
again.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from sparklog.common import TopicPartition
from sparklog.log.positions import to_ms
from sparklog.source.offset_bounds import TimeLookup
from sparklog.spark_versions import (
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    LessThan,
    LessThanOrEqual,
)

_COLUMNS = (("offset",), ("partition",), ("topic",))


@dataclass
class Filters:
    """Pushed filters: offsets in [low, high), partitions, topics, and the earliest timestamp."""

    low: int = 0
    high: int = 2**63 - 1
    partitions: set[int] | None = None
    topics: set[str] | None = None
    since_ms: int | None = None
    _left: list[Filter] = field(default_factory=list)

    def take(self, filters: Iterable[Filter]) -> list[Filter]:
        """Use filters where possible; return the filters that Spark must evaluate."""
        return [each for each in filters if not self._use(each)]

    def _use(self, given: Filter) -> bool:
        if isinstance(given, In):
            return self._use_values(given.attribute, set(given.value))
        if isinstance(given, EqualTo):
            if given.attribute == ("timestamp",):
                self._since(given.value)
            elif given.attribute == ("offset",):
                self._between(given.value, given.value + 1)
                return True
            return self._use_values(given.attribute, {given.value})
        bounds = GreaterThan | GreaterThanOrEqual | LessThan | LessThanOrEqual
        return isinstance(given, bounds) and self._use_bound(given)

    def _use_values(self, attribute: tuple[str, ...], values: set[Any]) -> bool:
        # A comparison with null is null in SQL, not true or false. Spark evaluates such a filter.
        if None in values:
            return False
        if attribute == ("partition",):
            self.partitions = values if self.partitions is None else self.partitions & values
        elif attribute == ("topic",):
            self.topics = values if self.topics is None else self.topics & values
        else:
            return False
        return True

    def _use_bound(
        self, given: GreaterThan | GreaterThanOrEqual | LessThan | LessThanOrEqual
    ) -> bool:
        value = given.value
        above = isinstance(given, GreaterThan | GreaterThanOrEqual)
        if given.attribute == ("timestamp",):
            # Only the range is narrowed, and Spark evaluates the filter as well, because later
            # records may have earlier timestamps.
            if above:
                self._since(value)
            return False
        if given.attribute != ("offset",):
            return False
        edge = value + 1 if isinstance(given, GreaterThan | LessThanOrEqual) else value
        self._between(edge, 2**63 - 1) if above else self._between(0, edge)
        return True

    def _between(self, low: int, high: int) -> None:
        self.low, self.high = max(self.low, low), min(self.high, high)

    def _since(self, when: datetime) -> None:
        # Record timestamps are in milliseconds, so `when` can be rounded up.
        aware = when if when.tzinfo is not None else when.astimezone()
        self.since_ms = max(self.since_ms or 0, to_ms(aware))

    def narrow(
        self, ranges: dict[TopicPartition, tuple[int, int]], lookup: TimeLookup
    ) -> dict[TopicPartition, tuple[int, int]]:
        """Return the ranges restricted by the filters."""
        selected = {
            key: (max(low, self.low), min(high, self.high))
            for key, (low, high) in ranges.items()
            if (self.partitions is None or key.partition in self.partitions)
            and (self.topics is None or key.topic in self.topics)
        }
        if self.since_ms is None:
            return selected
        first = lookup(dict.fromkeys(selected, self.since_ms))
        return {
            key: (max(low, high if (at := first[key]) is None else at), high)
            for key, (low, high) in selected.items()
        }
