"""What a log must hold: a model that the crash tests compare with what they find.

A *view* is what anybody can see of a log: {(topic, partition): (start, end, values)}; values are
those of the offsets [start, end), None where an offset has no record. Two views are equal or they
are not: no subset is good enough.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

View = dict[tuple[str, int], tuple[int, int, tuple[bytes | None, ...]]]


@dataclass(slots=True)
class Part:
    """One partition: `values` from offset `base` on, of which those below `start` are deleted."""

    base: int = 0
    start: int = 0
    values: list[bytes | None] = field(default_factory=list)

    @property
    def end(self) -> int:
        return self.base + len(self.values)

    def copy(self) -> Part:
        return Part(self.base, self.start, list(self.values))


@dataclass(slots=True)
class Model:
    """The committed state. `writers` holds each writer's last (batch, fingerprint)."""

    parts: dict[tuple[str, int], Part] = field(default_factory=dict)
    writers: dict[str, tuple[int, str]] = field(default_factory=dict)
    dropped: dict[tuple[str, int], int] = field(default_factory=dict)  # ends of deleted topics
    deleted: dict[str, dict[tuple[str, int], Part]] = field(default_factory=dict)  # to be had back

    def copy(self) -> Model:
        parts = {key: part.copy() for key, part in self.parts.items()}
        return Model(parts, dict(self.writers), dict(self.dropped), dict(self.deleted))

    def view(self) -> View:
        return {
            key: (part.start, part.end, tuple(part.values[part.start - part.base :]))
            for key, part in self.parts.items()
        }

    def topics(self) -> list[str]:
        return sorted({topic for topic, _ in self.parts})

    def with_topic(self, topic: str, partitions: int) -> Model:
        after = self.copy()
        for partition in range(partitions):
            base = after.dropped.get((topic, partition), 0)
            after.parts[topic, partition] = Part(base, base)
        after.deleted.pop(topic, None)  # its name is taken
        return after

    def without_topic(self, topic: str) -> Model:
        after = self.copy()
        held = {key: after.parts.pop(key) for key in self.parts if key[0] == topic}
        after.dropped |= {key: part.end for key, part in held.items()}
        after.deleted[topic] = held
        return after

    def with_topic_again(self, topic: str) -> Model:
        after = self.copy()
        after.parts |= after.deleted.pop(topic)
        return after

    def without_deleted(self) -> Model:
        after = self.copy()
        after.deleted.clear()
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
