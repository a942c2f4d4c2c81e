"""The state of a topic in the commit ledger and the topics file."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, Self

from sparklog.config import TopicConfig


@dataclass(frozen=True, slots=True)
class TopicState:
    """A topic in the ledger.

    Attributes:
        id: The topic id.
        config: The configs that were set, {option: value}.
        dirs: {partition: the number of the log dir that contains the partition}.
        adopted: Whether a broker wrote a part of the topic, so that offsets may be missing because
            of compaction.
        bases: {partition: first offset} of partitions that a deleted topic of the same name had.
            The new topic starts at the end of the deleted topic. Lower offsets belong to the
            deleted topic, regardless of the log start.
        left: {partition: the number of the log dir from which the partition was last moved}.
    """

    id: str
    config: dict[str, str]
    dirs: dict[int, int]
    adopted: bool = False
    bases: dict[int, int] = field(default_factory=dict)
    left: dict[int, int] = field(default_factory=dict)

    @classmethod
    def from_json(cls, fields: Mapping[str, Any]) -> Self:
        """Rebuild a topic from the result of `to_json`.

        Raises:
            KeyError: A field is missing.
            TypeError: A field has another type.
            ValueError: A partition is not a number.
            AttributeError: A mapping is another value.
        """
        if type(fields["id"]) is not str:
            raise TypeError(f"the topic id must be a string; got {fields['id']!r}")
        dirs = by_partition(fields["dirs"])
        bases = by_partition(fields.get("bases", {}))
        nonzero = {partition: base for partition, base in bases.items() if base}
        return cls(
            fields["id"], dict(fields["config"]), dirs, fields.get("adopted", False), nonzero,
            by_partition(fields.get("left", {})),
        )  # fmt: skip

    def to_json(self) -> dict[str, Any]:
        """Return the topic's form in ledger records and the topics file."""
        dirs = {str(p): number for p, number in sorted(self.dirs.items())}
        extra: dict[str, Any] = {"adopted": True} if self.adopted else {}
        if self.bases:
            extra["bases"] = {str(p): base for p, base in sorted(self.bases.items())}
        if self.left:
            extra["left"] = {str(p): number for p, number in sorted(self.left.items())}
        return {"id": self.id, "dirs": dirs, **extra, "config": self.config}

    def moved(self, partition: int, number: int) -> Self:
        """Return the topic with a partition in another log dir."""
        left = {**self.left, partition: self.dirs[partition]}
        return replace(self, dirs={**self.dirs, partition: number}, left=left)

    def parsed(self) -> TopicConfig:
        return _parsed(frozenset(self.config.items()))


def by_partition(fields: Mapping[str, int]) -> dict[int, int]:
    """Parse {partition: number} from JSON.

    Raises the errors of `TopicState.from_json`.
    """
    found = {int(partition): number for partition, number in fields.items()}
    if not all(type(number) is int for number in found.values()):
        raise TypeError(f"expected numbers by partition, got {fields!r}")
    return found


@lru_cache(maxsize=1024)
def _parsed(config: frozenset[tuple[str, str]]) -> TopicConfig:
    # Cached: appends and listings parse configs often, and parsing costs as much as a small append.
    return TopicConfig.parse(dict(config))
