"""A reader's view of a log in any home: topics, offsets, segments. Views take no lock.

Topics and partitions are as of the last `refresh`; log starts, high watermarks and topic ids are as
of the call. A reader that uses both compares the topic ids again after the read, because a topic
may have been deleted and created again in between.

Every method may raise StorageUnavailableError (an object store or a disk does not answer) and
DataCorruptionError.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

from sparklog.common import TopicPartition
from sparklog.config import TopicConfig
from sparklog.errors import DataCorruptionError, UnknownTopicError
from sparklog.html import foreign, table
from sparklog.pluralize import pluralize
from sparklog.storage.segments import LocalFiles, PartitionSegments

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

    Examples:
        >>> info = log.topic("flights")
        >>> info.partitions, len(info.id), info.config.retention_ms
        (2, 22, -1)
    """

    name: str
    id: str
    partitions: int
    config: TopicConfig
    dirs: dict[int, str]
    offline: Mapping[int, DataCorruptionError] = field(default_factory=dict)

    def _repr_html_(self) -> str:
        configs = [(key, value) for key, value in sorted(self.config.to_dict().items())]
        title = f"{self.name}: {pluralize(self.partitions, 'partition')}, id {self.id}"
        notes = [f"partition {p} is offline: {why}" for p, why in sorted(self.offline.items())]
        return table(title, ("config", "value"), configs, notes=notes)


class Topics(dict[str, TopicInfo]):
    """A dict {topic name: TopicInfo} that notebooks show as a table.

    Examples:
        >>> list(log.topics())
        ['flights']
    """

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
    """A cache of a partition's segments, and of objects made from the segments; for views."""

    def __init__(self, segments: PartitionSegments) -> None:
        self.segments = segments
        self._made: dict[Callable[[PartitionSegments], Any], Any] = {}

    def cached(self, make: Callable[[PartitionSegments], T]) -> T:
        """Return `make(segments)`, computed once per `make`."""
        # Concurrent threads may both build the object: the last one is cached.
        found: T | None = self._made.get(make)
        if found is None:
            found = self._made[make] = make(self.segments)
        return found


class ReadPlan(Protocol):
    """A planned read of a range of offsets, pickled to a task.

    The plan contains no secrets and only data of the range, because it is sent with every task.
    """

    def open(self, whole: "View") -> "View":
        """Return a view of the planned range that makes no requests except for the range's bytes.

        `whole`: the log's own view in this process, which has made no request yet. Topic id, span
        and segments are answered from the plan until `refresh` or until a reader looks a second
        time, because objects were deleted, merged, or are below the log start. From then on `whole`
        answers.
        """


class View(Protocol):
    """A reader's view of a log. Threads may share it. Opening a view makes no requests.

    Views derive from this class. The methods with a body are right for a home without files of
    this host, whose partitions are always online.
    """

    incarnation: int = 0
    """Increases when the log is replaced by another log under the same path; as of the last use."""

    poll_ms: float = 20
    """The time between two polls for new records; depends on the cost of a poll."""

    @property
    def home(self) -> str:
        """The path of the first log dir, or the URL, of the log."""

    def renew(self) -> int:
        """Clear all caches if the log was replaced; return the `incarnation`. Cheap."""
        return self.incarnation

    def refresh(self) -> None:
        """List topics and partitions again."""

    def forget(self) -> None:
        """Clear the listing: partitions were added or removed. The next call lists again."""
        return

    def metadata_snapshot(self) -> AbstractContextManager[None]:
        """Allow answers in this thread to be as of the first request within the context.

        Topics, ids and spans then take a single request instead of a request each. Has no effect in
        homes that make no requests.
        """
        return nullcontext()

    def topics(self) -> dict[str, TopicInfo]:
        """List the topics, without internal topics."""

    def partitions(self, topic: str) -> list[int]:
        """Return a topic's partitions in ascending order. Offline partitions are included.

        Raises:
            UnknownTopicError: A topic or partition does not exist.
        """

    def topic_id(self, topic: str, partition: int) -> str | None:
        """Return the current topic id of a partition, if it has one."""

    def bases(self, topic: str) -> Mapping[int, int]:
        """Return {partition: first offset} of partitions that start above 0.

        Partitions of a topic that was deleted and created again start at the end of the former
        topic. The result is as of the last `refresh`.
        """

    def spans(self, keys: Sequence[TopicPartition]) -> dict[TopicPartition, Offsets]:
        """Return the current {(topic, partition): (log start offset, high watermark)}."""

    def offline(self) -> Mapping[TopicPartition, DataCorruptionError]:
        """Return the missing and damaged partitions, each with the error that any use raises."""
        return {}

    def of_partition(
        self,
        topic: str,
        partition: int,
        make: Callable[[PartitionSegments], T],
        topic_id: str | None = None,
    ) -> T:
        """Return the cached result of `make(segments)` for the partition's segments.

        This is a cache, per partition, of the segments and of the objects that `make` builds from
        them, with an entry per `make`. `make` is called only for a new entry, and again if the
        partition was replaced: its place, its topic id (if it is not `topic_id`) or the log
        changed.

        Raises:
            UnknownTopicError: A topic or partition does not exist.
            PartitionOfflineError: The partition is offline.
        """

    def plan(self, key: TopicPartition, start: int, end: int) -> ReadPlan | None:
        """Return a plan with which a task reads the offsets [start, end) of a current span.

        Returns None if a task can read through the log's own view without additional cost, as in a
        log dir. Makes no requests. Size: about 100 bytes per extent in the range.
        """
        return None

    def local_files(self, key: TopicPartition) -> LocalFiles | None:
        """Return the partition's segments that are files of this host, or None without any.

        Makes no requests to an object store.
        Cost: two stats without a change since the last call, else a listing.

        Raises:
            UnknownTopicError: The topic or partition does not exist.
            PartitionOfflineError: The partition is offline.
        """
        return None

    def set_following(self) -> None:
        """From now on, wait for an unavailable store as long as a reader of new records does.

        By default this is two hours instead of a minute; see `remote.patience.ms`.
        """


def unknown_partition(view: View, topic: str, partition: int) -> UnknownTopicError:
    """Return the error for a partition that the topic lacks. Raises it for an unknown topic."""
    return UnknownTopicError(
        f"{topic}-{partition} is not in {view.home}; the topic's partitions here: "
        f"{view.partitions(topic)}"
    )
