"""What a reader sees of a log, wherever it is kept: topics, offsets, segments. No lock.

What may be stale: topics and partitions are those of the last `refresh`; log starts, high
watermarks and topic ids are as of the call. A reader that takes both looks at the topic ids again
after it has read, for a topic may have been deleted and made again meanwhile.

Every method may raise StorageUnavailableError (a store or a disk doesn't answer) and
DataCorruptionError.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

from sparklog.common import TopicPartition
from sparklog.config import TopicConfig
from sparklog.errors import DataCorruptionError, UnknownTopicError
from sparklog.html import foreign
from sparklog.notebook import table
from sparklog.pluralize import pluralize
from sparklog.storage.local_files import LocalFiles
from sparklog.storage.segments import PartitionSegments

T = TypeVar("T")
Offsets = tuple[int, int]
"""(log start offset, high watermark)"""


@dataclass(frozen=True, slots=True)
class TopicInfo:
    """A topic of a log.

    Attributes:
        name: The name.
        id: The topic id: 22 characters, the URL-safe base64 form of its UUID.
        partitions: The number of partitions.
        config: The topic's configs, with defaults for those that are not set.
        dirs: {partition: its directory}.
        offline: {partition: the error that using it raises} of partitions that cannot be used.
    """

    name: str
    id: str
    partitions: int
    config: TopicConfig
    dirs: dict[int, str]
    offline: Mapping[int, DataCorruptionError] = field(default_factory=dict)

    def _repr_html_(self) -> str:
        configs = [(key, value) for key, value in sorted(self.config.to_dict().items())]
        said = f"{self.name}: {pluralize(self.partitions, 'partition')}, id {self.id}"
        notes = [f"partition {p} is offline: {why}" for p, why in sorted(self.offline.items())]
        return table(said, ("config", "value"), configs, notes=notes)


class Topics(dict[str, TopicInfo]):
    """A dict {topic name: TopicInfo} that notebooks show as a table."""

    def _repr_html_(self) -> str:
        rows = [
            (
                foreign(name),
                topic.partitions,
                ", ".join(f"{key}={value}" for key, value in topic.config.to_dict().items()),
                pluralize(len(topic.offline), "partition") + " offline" if topic.offline else "",
            )
            for name, topic in sorted(self.items())
        ]
        columns = ("topic", "partitions", "configs that were set", "")
        return table(pluralize(len(self), "topic"), columns, rows)


class CachedPartition:
    """A partition's segments, and what `of_partition` was told to make of them; for views."""

    def __init__(self, segments: PartitionSegments) -> None:
        self.segments = segments
        self._made: dict[Callable[[PartitionSegments], Any], Any] = {}

    def cached(self, make: Callable[[PartitionSegments], T]) -> T:
        """Return what `make` gives for the segments; made once."""
        found: T | None = self._made.get(make)
        if found is None:
            found = self._made[make] = make(self.segments)
        return found


class ReadPlan(Protocol):
    """What a task needs to read a range of offsets that a view planned; pickled to it.

    It holds no secret, and no more than belongs to the range: it goes with every task.
    """

    def open(self, whole: "View") -> "View":
        """Return a view of the planned range that asks for nothing but its bytes.

        `whole`: the log's own view in this process, of which nothing was asked yet. Topic id, span
        and segments are the planned ones until `refresh` or a reader's second look (the objects
        are gone, merged or below the log start by now); from then on `whole` answers.
        """


class View(Protocol):
    """What a reader sees. Threads may share it. Opening one asks for nothing."""

    incarnation: int
    """Rises whenever the log was replaced by another one in its place; as of the last use."""

    poll_ms: float
    """How long who follows waits between two questions, by what one costs."""

    @property
    def home(self) -> str:
        """Where the log is: its first log dir, or a URL."""

    def renew(self) -> int:
        """Drop all that is kept if the log was replaced; returns the `incarnation`. Cheap."""

    def refresh(self) -> None:
        """List topics and partitions anew."""

    def forget(self) -> None:
        """Make the next question list anew: partitions came or went."""

    def metadata_snapshot(self) -> AbstractContextManager[None]:
        """Within it, in this thread, answers may be as of its first question.

        So topics, ids and spans of one round take one request where each is one. Where nothing is
        asked of a store it changes nothing.
        """

    def topics(self) -> dict[str, TopicInfo]:
        """Return the topics, without internal ones. Lists anew."""

    def partitions(self, topic: str) -> list[int]:
        """Return a topic's partitions, offline ones too, ascending. Raises UnknownTopicError."""

    def topic_id(self, topic: str, partition: int) -> str | None:
        """Return the topic id that a partition carries now; None if it is gone, or has none."""

    def bases(self, topic: str) -> Mapping[int, int]:
        """Return where partitions begin that a former topic of this name had: at its old end.

        {partition: offset}, without those that begin at 0. As of the last `refresh`.
        """

    def spans(self, keys: Sequence[TopicPartition]) -> dict[TopicPartition, Offsets]:
        """Return {(topic, partition): (log start offset, high watermark)} as of now."""

    def offline(self) -> Mapping[TopicPartition, DataCorruptionError]:
        """Return what using a partition raises, of those that are missing or damaged, as of now."""

    def of_partition(
        self,
        topic: str,
        partition: int,
        make: Callable[[PartitionSegments], T],
        topic_id: str | None = None,
    ) -> T:
        """Return what `make` gave for the partition's segments; made once, and kept with them.

        Both are made anew when the partition is found to be another one: in another place, of
        another topic than `topic_id`, or in a log that was replaced.
        Raises: UnknownTopicError, PartitionOfflineError.
        """

    def plan(self, key: TopicPartition, start: int, end: int) -> ReadPlan | None:
        """Return what a task reads offsets [start, end) with, which were in the span a moment ago.

        None: a task finds its way by the log's own view, at no cost (a log dir's listing, which it
        has anyhow). Asks for nothing. Size: some 100 bytes an extent that the range touches.
        """

    def local_files(self, key: TopicPartition) -> LocalFiles | None:
        """Return which of a partition's segments are this host's files now; None if none is.

        Asks no store. Cost: two stats where nothing changed since the last time, else a listing.
        Raises: UnknownTopicError, PartitionOfflineError.
        """

    def set_following(self) -> None:
        """Wait for remote storage as a reader does that goes on for ever, from now on."""


def unknown_partition(view: View, topic: str, partition: int) -> UnknownTopicError:
    """Return the error for a partition that the topic hasn't. Raises it for a topic that isn't."""
    return UnknownTopicError(
        f"{topic}-{partition} is not in {view.home}; the topic's partitions here: "
        f"{view.partitions(topic)}"
    )
