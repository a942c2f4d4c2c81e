"""What a log must hold: a model that the crash tests compare with what they find.

A *view* is what anybody can see of a log: {(topic, partition): (start, end, values)}; values are
those of the offsets [start, end), None where an offset has no record. Two views are equal or they
are not: no subset is good enough.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

PartView = tuple[int, int, tuple[bytes | None, ...]]
View = dict[tuple[str, int], PartView]


KEYS: Final = (b"k0", b"k1", b"k2")
_VALUE: Final = re.compile(rb"(?:v|after-)(\d+)\.*")


def key_of(value: bytes | None) -> bytes | None:
    """The key of a record, which its value tells; None: it has none."""
    numbered = None if value is None else _VALUE.fullmatch(value)
    return None if numbered is None else KEYS[int(numbered[1]) % len(KEYS)]


@dataclass(slots=True)
class Part:
    """One partition: `values` from offset `base` on, of which those below `start` are deleted.

    `place`: its log dir; "" until somebody has looked.
    """

    base: int = 0
    start: int = 0
    values: list[bytes | None] = field(default_factory=list)
    place: str = ""

    @property
    def end(self) -> int:
        return self.base + len(self.values)

    def copy(self) -> Part:
        return Part(self.base, self.start, list(self.values), self.place)

    def view(self) -> PartView:
        return self.start, self.end, tuple(self.values[self.start - self.base :])

    def without(self, key: bytes, below: int) -> Part:
        """The same without a key's records at offsets below that."""
        values = [
            None if offset < below and key_of(value) == key else value
            for offset, value in enumerate(self.values, self.base)
        ]
        return Part(self.base, self.start, values, self.place)


@dataclass(frozen=True, slots=True)
class Deleted:
    """A topic that was deleted at `at_ms` and can be given back."""

    name: str
    parts: dict[tuple[str, int], Part]
    at_ms: int


@dataclass(slots=True)
class Model:
    """The committed state. `writers` holds each writer's last (batch, fingerprint).

    A topic that is made has a number, its life, which it has again when it is given back. `begun`:
    keys of which an erasure was begun in a life and isn't complete.
    """

    parts: dict[tuple[str, int], Part] = field(default_factory=dict)
    writers: dict[str, tuple[int, str]] = field(default_factory=dict)
    dropped: dict[tuple[str, int], int] = field(default_factory=dict)  # ends of deleted topics
    lives: dict[str, int] = field(default_factory=dict)
    made: int = 0
    deleted: dict[int, Deleted] = field(default_factory=dict)
    begun: frozenset[tuple[int, bytes]] = frozenset()

    def copy(self) -> Model:
        parts = {key: part.copy() for key, part in self.parts.items()}
        return Model(
            parts, dict(self.writers), dict(self.dropped), dict(self.lives), self.made,
            dict(self.deleted), self.begun,
        )  # fmt: skip

    def view(self) -> View:
        return {key: part.view() for key, part in self.parts.items()}

    def topics(self) -> list[str]:
        return sorted({topic for topic, _ in self.parts})

    def with_topic(self, topic: str, partitions: int) -> Model:
        after = self.copy()
        after.lives[topic], after.made = after.made, after.made + 1
        for partition in range(partitions):
            base = after.dropped.get((topic, partition), 0)
            after.parts[topic, partition] = Part(base, base)
        return after

    def without_topic(self, topic: str, at_ms: int, *, now: bool = False) -> Model:
        """Without it; `now`: for good, and what had its name before as well."""
        after = self.without_deleted(topic) if now else self.copy()
        held = {key: after.parts.pop(key) for key in self.parts if key[0] == topic}
        for key, part in held.items():
            after.dropped[key] = max(part.end, after.dropped.get(key, 0))
        life = after.lives.pop(topic)
        if not now:
            after.deleted[life] = Deleted(topic, held, at_ms)
        return after

    def newest(self, topic: str) -> int:
        """The life of that name that was deleted last and can be given back."""
        found = [life for life, one in self.deleted.items() if one.name == topic]
        return max(found, key=lambda life: self.deleted[life].at_ms)

    def can_have_its_name(self, life: int) -> bool:
        """Whether no topic has it, and none has given the life's next offsets."""
        held = self.deleted[life]
        ends = {key: part.end for key, part in held.parts.items()}
        gave = {key: self.dropped.get(key) for key in ends}
        return held.name not in self.lives and gave == ends

    def with_topic_again(self, life: int, name: str) -> Model:
        after = self.copy()
        held = after.deleted.pop(life)
        after.lives[name] = life
        for (_, partition), part in held.parts.items():
            after.parts[name, partition] = part.copy()
            after.dropped.pop((name, partition), None)
        return after

    def without_deleted(self, name: str) -> Model:
        after = self.copy()
        after.deleted = {life: one for life, one in self.deleted.items() if one.name != name}
        return after

    def with_erased(self, topic: str, key: bytes) -> Model:
        after = self.copy()
        for place, part in self.parts.items():
            if place[0] == topic:
                after.parts[place] = part.without(key, part.end)
        after.begun -= {(after.lives[topic], key)}
        return after

    def with_values(self, added: Mapping[tuple[str, int], Sequence[bytes | None]]) -> Model:
        after = self.copy()
        for key, values in added.items():
            after.parts[key].values.extend(values)
        return after

    def with_start(self, key: tuple[str, int], start: int) -> Model:
        after = self.copy()
        after.parts[key].start = start
        return after


def describe(view: View, allowed: Iterable[View]) -> str:
    """Say how a view differs from each allowed one; for failure messages."""
    lines: list[str] = []
    for number, other in enumerate(allowed):
        for key in sorted(view.keys() | other.keys()):
            found, wanted = view.get(key), other.get(key)
            if found == wanted:
                continue
            lines.append(f"allowed view {number}, {key[0]}-{key[1]}:")
            lines.append(f"  found  {_short(found)}")
            lines.append(f"  wanted {_short(wanted)}")
    return "\n".join(lines)


def _short(part: tuple[int, int, tuple[bytes | None, ...]] | None) -> str:
    if part is None:
        return "no such partition"
    start, end, values = part
    shown = list(values) if len(values) <= 12 else [*values[:3], b"...", *values[-8:]]
    return f"[{start}, {end}) {shown}"
