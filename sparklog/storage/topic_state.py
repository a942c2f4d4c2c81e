"""A topic as the commit ledger and the topics file describe it."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, Self

from sparklog.config import TopicConfig


@dataclass(frozen=True, slots=True)
class TopicState:
    """A topic as the ledger knows it. `dirs` is the log dir's number of each partition.

    `adopted`: a broker wrote part of it, so offsets may be missing (its cleaner was at work).
    `bases`: where partitions begin that a former topic of this name had, which is its old end:
    a lower offset is that topic's, whatever the log start is by now.
    `left`: the log dir's number that a partition was moved away from last.
    """

    id: str
    config: dict[str, str]
    dirs: dict[int, int]
    adopted: bool = False
    bases: dict[int, int] = field(default_factory=dict)
    left: dict[int, int] = field(default_factory=dict)

    @classmethod
    def from_json(cls, fields: Mapping[str, Any]) -> Self:
        """Rebuild a topic from what `to_json` gave.

        Raises: KeyError, TypeError, ValueError, AttributeError: it isn't that.
        """
        if type(fields["id"]) is not str:
            raise TypeError(f"id={fields['id']!r}")
        dirs = by_partition(fields["dirs"])
        bases = by_partition(fields.get("bases", {}))
        nonzero = {partition: base for partition, base in bases.items() if base}
        return cls(
            fields["id"], dict(fields["config"]), dirs, fields.get("adopted", False), nonzero,
            by_partition(fields.get("left", {})),
        )  # fmt: skip

    def to_json(self) -> dict[str, Any]:
        """Return the form that records and the topics file carry."""
        dirs = {str(p): number for p, number in sorted(self.dirs.items())}
        extra: dict[str, Any] = {"adopted": True} if self.adopted else {}
        if self.bases:
            extra["bases"] = {str(p): base for p, base in sorted(self.bases.items())}
        if self.left:
            extra["left"] = {str(p): number for p, number in sorted(self.left.items())}
        return {"id": self.id, "dirs": dirs, **extra, "config": self.config}

    def moved(self, partition: int, number: int) -> Self:
        """Return it with a partition in another log dir."""
        left = {**self.left, partition: self.dirs[partition]}
        return replace(self, dirs={**self.dirs, partition: number}, left=left)

    def parsed(self) -> TopicConfig:
        """Return the config, checked."""
        return _parsed(frozenset(self.config.items()))


def by_partition(fields: Mapping[str, int]) -> dict[int, int]:
    """Return {partition: number} of its JSON form. Raises what `TopicState.from_json` does."""
    found = {int(partition): number for partition, number in fields.items()}
    if not all(type(number) is int for number in found.values()):
        raise TypeError(f"want numbers by partition, not {fields!r}")
    return found


@lru_cache(maxsize=1024)
def _parsed(config: frozenset[tuple[str, str]]) -> TopicConfig:
    """Every append and every listing asks; to check all keys costs as much as a small append."""
    return TopicConfig.parse(dict(config))
