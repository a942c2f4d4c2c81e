"""Detect a restarted query that lost the query id, by the offsets of the query's source.

A query's id is stored in its checkpoint and is lost with it. If the query is then restarted from
the start of its source, the log sees a new writer, and all rows would be written twice. A writer is
a restarted query if all of these are true:

- It has the same checkpoint location, query name, or plan (sources, operators and the foreachBatch
  function) as an earlier writer.
- It has the same sink name, and writes to a topic that still contains the earlier writer's rows.
- It starts below the position that the earlier writer had reached.
- The earlier writer's query is not running.

Another application with other filters has another plan.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Set
from dataclasses import dataclass, field, replace
from typing import Any, Final, Self

Offsets = tuple[str | None, ...]
"""A query's position: per source, JSON as in the checkpoint; None: no position, or unknown."""

ASIDE: Final = "#"
"""Marks an entry of a source's offsets that is not a topic, such as "flights#epoch".

Topic names cannot contain it. In a checkpoint, a source's offsets are {topic: {partition: offset}}.
"""
_BEFORE_ALL: Final = {"logOffset": -1}  # the file source stores the last batch, not an end
_EVIDENCE: Final = {"checkpoint": "checkpoint location", "name": "name", "plan": "plan"}


def query_text(known_as: str, name: str | None) -> str:
    """Return a query's description for messages: the name, if known, and the group or writer.

    The name can be any text: commands that print it replace control characters.
    """
    return f"{name} ({known_as})" if name and name != known_as else known_as


@dataclass(frozen=True, slots=True)
class BatchStart:
    """Data of Spark when a query starts a micro-batch.

    Attributes:
        starts: The positions of the query's sources at the start of the micro-batch.
        alive: The ids of the running queries.
    """

    starts: Offsets = ()
    alive: frozenset[str] = frozenset()  # ids of queries


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryOrigin:
    """The properties by which a query is recognized. Empty properties are unknown.

    Attributes:
        checkpoint: The checkpoint location.
        name: The query's name.
        plan: A hash of the query's plan.
        ends: The positions of the query's sources at the end of the micro-batch.
        topics: Topics that the writer has written to. Only in the log's state.
        is_meant: Whether the user chose the writer's name (option writerId), which is then not
            checked.
        look: Returns data of the running query. The function is called at most once, when a writer
            first writes to a topic. None: the data are unavailable.
    """

    checkpoint: str = ""
    name: str = ""
    plan: str = ""
    ends: Offsets = ()
    topics: frozenset[str] = frozenset()
    is_meant: bool = field(default=False, compare=False)
    look: Callable[[], BatchStart] | None = field(default=None, compare=False)

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Self:
        """Rebuild a query's origin from the result of `to_json`."""
        known = {name: values.get(name, "") for name in _EVIDENCE}
        return cls(
            **known, ends=tuple(values.get("ends", ())), topics=frozenset(values.get("topics", ()))
        )

    def to_json(self) -> dict[str, Any]:
        """Return the form in ledger records."""
        found: dict[str, Any] = {n: getattr(self, n) for n in _EVIDENCE if getattr(self, n)}
        found["ends"] = list(self.ends)
        return found | ({"topics": sorted(self.topics)} if self.topics else {})

    def written(self, topics: Set[str]) -> "QueryOrigin":
        """Return the origin with additional topics that the writer has written to."""
        return replace(self, topics=self.topics | topics)

    def without(self, topics: Set[str]) -> "QueryOrigin":
        return replace(self, topics=self.topics - topics)


@dataclass(frozen=True, slots=True)
class Predecessor:
    """An earlier writer that looks like the same query.

    Attributes:
        writer: The earlier writer.
        evidence: The property that both have in common, for messages.
        topics: The topics that both write to.
        ends: The positions that the earlier writer's sources had reached.
    """

    writer: str
    evidence: str
    topics: frozenset[str]
    ends: Offsets


def predecessor(
    origins: Mapping[str, QueryOrigin], writer: str, origin: QueryOrigin, topics: Set[str]
) -> Predecessor | None:
    """Return the earlier writer, if any, of the rows that `writer` is about to write again.

    `topics`: the topics that `writer` writes to and that contain records.
    """
    earlier = origins.get(writer)
    fresh = topics - (earlier.topics if earlier is not None else frozenset())
    if origin.is_meant or not fresh:
        return None
    now: BatchStart | None = None
    query, _, sink = writer.partition("/")
    for other, known in origins.items():
        other_query, _, other_sink = other.partition("/")
        shared = known.topics & fresh
        evidence = _same(known, origin)
        if other_query == query or other_sink != sink or not shared or evidence is None:
            continue
        # `look` asks the running query, so it is called only if there is a candidate.
        if now is None:
            now = BatchStart() if origin.look is None else origin.look()
        if other_query not in now.alive and _overlap(known.ends, origin.ends, now.starts):
            return Predecessor(other, evidence, shared, known.ends)
    return None


def _same(origin: QueryOrigin, other: QueryOrigin) -> str | None:
    for name, text in _EVIDENCE.items():
        if getattr(origin, name) and getattr(origin, name) == getattr(other, name):
            return text
    return None


def _overlap(before: Offsets, ends: Offsets, starts: Offsets) -> bool:
    """Return True if a query reads a part of a source that an earlier query has already read.

    A source with an unknown start may start anywhere. A bare number as position is a count since
    the query's start (sources rate and memory): such a source never overlaps.

    Args:
        before: The positions that the earlier query had reached.
        ends: The positions at the end of the new query's micro-batch.
        starts: The positions at its start; empty if unknown.
    """
    starts = starts or (None,) * len(ends)
    for old, new, start in zip(before, ends, starts, strict=False):
        reached, first = positions(old), positions(start)
        for key in reached.keys() & positions(new).keys():
            if key and first.get(key, _BEFORE_ALL.get(key[-1], 0)) < reached[key]:
                return True
    return False


def positions(offset: str | None) -> dict[tuple[str, ...], int]:
    """Return the numbers in a source's offset (JSON), each by its path of keys in the JSON.

    Malformed JSON gives an empty dict.
    """
    try:
        return dict(_numbers(json.loads(offset or "null"), ()))
    except ValueError:
        return {}


def _numbers(value: Any, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], int]]:
    if type(value) is int:
        yield path, value
    elif isinstance(value, dict):
        for name, part in value.items():
            if ASIDE not in name:  # the leader epoch of a position
                yield from _numbers(part, (*path, name))
