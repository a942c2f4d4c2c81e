"""Recognises a restarted query that lost its id, by its source offsets.

A query's id lies in its checkpoint and is gone with it: the query that is started anew, at the
beginning of its source, is a writer that nobody knows, and all its rows would be there twice.
What tells that it is the same one: it has another writer's checkpoint location, query name, or
plan (sources, operators and what foreachBatch does), writes by the same sink name into a topic
where that writer's rows still are, and begins below where that one had read to. A second
application with other filters has another plan; one that runs at this moment is no predecessor.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Set
from dataclasses import dataclass, field, replace
from typing import Any, Final, Self

from sparklog.storage.source_offsets import ASIDE

Offsets = tuple[str | None, ...]
"""A query's position: JSON as in the checkpoint for each source, None: none, or not known."""

_BEFORE_ALL: Final = {"logOffset": -1}  # the file source's is the last batch, not an end
_EVIDENCE: Final = {"checkpoint": "checkpoint location", "name": "name", "plan": "plan"}


def query_text(known_as: str, name: str | None) -> str:
    """Return how texts name a query: its name, if it has one, and its group or writer.

    The name is any text: a command that prints it replaces control characters.
    """
    return f"{name} ({known_as})" if name and name != known_as else known_as


@dataclass(frozen=True, slots=True)
class BatchStart:
    """What only the running query knows: where its micro-batch begins, and who else runs."""

    starts: Offsets = ()
    alive: frozenset[str] = frozenset()  # ids of queries


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryOrigin:
    """A query as it shows: empty is unknown. `ends`: up to where its micro-batch reads.

    `topics`: those that its writer has written to; only in the state.
    `is_meant`: the writer's name was chosen (option writerId): it is nobody else by mistake.
    `look`: asked once, when a writer first writes to a topic; None: nobody can be asked.
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
        """Rebuild it from what `to_json` gave."""
        known = {name: values.get(name, "") for name in _EVIDENCE}
        return cls(
            **known, ends=tuple(values.get("ends", ())), topics=frozenset(values.get("topics", ()))
        )

    def to_json(self) -> dict[str, Any]:
        """Return the form that records carry."""
        found: dict[str, Any] = {n: getattr(self, n) for n in _EVIDENCE if getattr(self, n)}
        found["ends"] = list(self.ends)
        return found | ({"topics": sorted(self.topics)} if self.topics else {})

    def written(self, topics: Set[str]) -> "QueryOrigin":
        """The same, of a writer that has written to these topics, too."""
        return replace(self, topics=self.topics | topics)

    def without(self, topics: Set[str]) -> "QueryOrigin":
        """The same, when these topics are gone."""
        return replace(self, topics=self.topics - topics)


@dataclass(frozen=True, slots=True)
class Predecessor:
    """The writer that a new one looks like, and by what."""

    writer: str
    evidence: str
    topics: frozenset[str]
    ends: Offsets


def predecessor(
    origins: Mapping[str, QueryOrigin], writer: str, origin: QueryOrigin, topics: Set[str]
) -> Predecessor | None:
    """Find whose rows `writer` is about to write again; None if there is nobody.

    Args: topics: what it writes to, as far as there are records in them.
    """
    mine = origins.get(writer)
    fresh = topics - (mine.topics if mine is not None else frozenset())
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
        if now is None:
            now = BatchStart() if origin.look is None else origin.look()
        if other_query not in now.alive and _overlap(known.ends, origin.ends, now.starts):
            return Predecessor(other, evidence, shared, known.ends)
    return None


def _same(one: QueryOrigin, other: QueryOrigin) -> str | None:
    for name, text in _EVIDENCE.items():
        if getattr(one, name) and getattr(one, name) == getattr(other, name):
            return text
    return None


def _overlap(before: Offsets, ends: Offsets, starts: Offsets) -> bool:
    """Tell whether a source is read again. One whose start isn't known may begin anywhere.

    A bare number is a count since the query's start (rate, memory): nothing is read again there.
    """
    starts = starts or (None,) * len(ends)
    for old, new, start in zip(before, ends, starts, strict=False):
        reached, begun = positions(old), positions(start)
        for key in reached.keys() & positions(new).keys():
            if key and begun.get(key, _BEFORE_ALL.get(key[-1], 0)) < reached[key]:
                return True
    return False


def positions(offset: str | None) -> dict[tuple[str, ...], int]:
    """Return the numbers in a source's offset by where in its JSON they stand."""
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
