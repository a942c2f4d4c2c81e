"""Registered readers of a log: streaming queries, and groups of plain readers, and where they are.

A position is the next offset to read. It remembers the leader epoch of the record before it, so
that a log which was restored meanwhile is told from the one that was read.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final, NamedTuple, Protocol

from sparklog.common import TopicPartition
from sparklog.errors import InvalidRequestError

GROUP_CHARS_MAX: Final = 249


class Origin(NamedTuple):
    """`epoch` of the record before a position, and the offset `since` which that epoch held."""

    epoch: int
    since: int


Origins = Mapping[TopicPartition, Origin]
NO_ORIGINS: Final[Origins] = MappingProxyType({})


class Committed(NamedTuple):
    """`offset` is the next one to read; `time_ms` when that was said; `origin` of what is read."""

    offset: int
    time_ms: int
    origin: Origin | None = None


@dataclass(frozen=True, slots=True)
class Reader:
    """A group, as its file has it. `batch` is the micro-batch of a query's last commit.

    `planners`: {who plans for a source of the query in its `run`: the topics of that source}.
    """

    group: str
    kind: str
    host: str = ""
    app: str = ""
    batch: int | None = None
    offsets: Mapping[TopicPartition, Committed] = field(default_factory=dict)
    run: str = ""
    planners: Mapping[str, list[str]] = field(default_factory=dict)

    def is_alone(self, planner: str, topics: Collection[str]) -> bool:
        """Tell whether no other source of the query reads one of `topics`."""
        others = (held for each, held in self.planners.items() if each != planner)
        return all(set(topics).isdisjoint(held) for held in others)


@dataclass(frozen=True, slots=True)
class Readers:
    """All registered readers. `damaged`: {path: time (ms)} of files that can't be read."""

    groups: list[Reader]
    damaged: Mapping[str, int]

    def slowest(self, *, now_ms: int, retention_ms: int) -> dict[TopicPartition, int]:
        """Return {(topic, partition): lowest offset} of all commits that haven't expired."""
        found: dict[TopicPartition, int] = {}
        for reader in self.groups:
            for key, at in reader.offsets.items():
                if not is_expired(at.time_ms, now_ms, retention_ms):
                    found[key] = min(at.offset, found.get(key, at.offset))
        return found


class Expired(NamedTuple):
    """A commit that was, or would be, forgotten."""

    group: str
    topic: str
    partition: int
    offset: int
    time_ms: int


def is_expired(time_ms: int, now_ms: int, retention_ms: int) -> bool:
    """Tell whether a commit of that time no longer counts."""
    return now_ms - time_ms >= retention_ms


def check_group(group: str) -> None:
    """Raise InvalidRequestError unless `group` can name a group."""
    if not (0 < len(group) <= GROUP_CHARS_MAX and group.isprintable() and group == group.strip()):
        raise InvalidRequestError(
            f"group {group!r}: want 1 to {GROUP_CHARS_MAX} printable characters, without spaces "
            "at the ends"
        )


class Groups(Protocol):
    """How far a log's readers are, by group. They write it themselves, without the log's turn."""

    def positions(self, group: str) -> Mapping[TopicPartition, Committed]:
        """Return what a group has committed; empty if nobody knows it.

        Raises: InvalidRequestError: no such name can be. DataCorruptionError: what it had
        committed can't be read, and to begin elsewhere would lose its place.
        """

    def commit(
        self,
        group: str,
        offsets: Mapping[TopicPartition, int],
        *,
        now_ms: int,
        host: str,
        origins: Origins = NO_ORIGINS,
    ) -> None:
        """Register {partition: the next offset to read}, durably; others of the group stay.

        Members of a group commit at the same time: none of them is lost. A commit may go back.
        Raises: InvalidRequestError, LogLockedError, StorageUnavailableError.
        """

    def readers(self) -> Readers:
        """Return all groups, by name."""

    def delete(self, group: str) -> bool:
        """Forget a group; tells whether it was known. One that still reads registers again."""
