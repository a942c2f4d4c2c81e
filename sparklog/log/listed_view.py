"""`ListedView`: the part of a reader's view that all homes share."""

from abc import abstractmethod
from collections.abc import Callable, Collection, Mapping
from typing import Generic, TypeVar

from sparklog.common import TopicPartition
from sparklog.errors import DataCorruptionError, UnknownTopicError
from sparklog.log.topic_names import INTERNAL
from sparklog.storage.segments import PartitionSegments
from sparklog.storage.topic_state import TopicState
from sparklog.storage.view import CachedPartition, TopicInfo, View, unknown_partition

T = TypeVar("T")
Place = TypeVar("Place")
"""The data that a home's listing contains about a partition."""


class ListedView(View, Generic[Place]):
    """A view of the topics and partitions that the last `refresh` listed.

    A topic or partition that the listing lacks may be new, so the view lists again before it
    reports that the topic or partition is unknown. The segments of a partition are cached until the
    listing contains another partition in their place.

    A home implements `refresh`, `topic_id`, `spans` and the methods below.
    """

    def __init__(self, home: str) -> None:
        self._home = home
        self._cached: dict[TopicPartition, CachedPartition] = {}

    @property
    def home(self) -> str:
        """The path of the first log dir, or the URL, of the log."""
        return self._home

    # --- the listing of a home ------------------------------------------------------------------

    @abstractmethod
    def _described(self) -> Mapping[str, TopicInfo]:
        """Return {name: description} of the listed topics, with or without internal topics."""

    @abstractmethod
    def _topic_names(self) -> Collection[str]:
        """Return the names of the listed topics, including internal topics."""

    @abstractmethod
    def _numbers(self, topic: str) -> Collection[int]:
        """Return the numbers of a topic's listed partitions, including offline partitions."""

    @abstractmethod
    def _find(self, key: TopicPartition) -> Place | None:
        """Return the place of a listed partition, or None for an unknown or offline partition.

        The kind of place depends on the home: for log dirs it is the path of the directory of the
        partition.
        """

    def _state(self, topic: str) -> TopicState | None:
        """Return a topic's listed state in the ledger; None without a ledger, as in an archive."""

    # --- the segments of a home -----------------------------------------------------------------

    @abstractmethod
    def _open(self, key: TopicPartition, place: Place) -> PartitionSegments:
        """Return the segments of a listed partition.

        Raises:
            PartitionOfflineError: The partition is offline.
        """

    def _update(self, key: TopicPartition, segments: PartitionSegments, place: Place) -> bool:
        """Update a partition's cached segments to `place`, the place in the new listing.

        Returns False if the segments must be opened again.
        """
        return True

    def _error_without(self, key: TopicPartition) -> DataCorruptionError | UnknownTopicError:
        """Return the error for a partition for which `_find` returns None."""
        return unknown_partition(self, *key)

    # --- the view -------------------------------------------------------------------------------

    def topics(self) -> dict[str, TopicInfo]:
        """List the topics, without internal topics."""
        self.refresh()
        described = self._described()
        return {name: described[name] for name in sorted(described.keys() - INTERNAL)}

    def partitions(self, topic: str) -> list[int]:
        """Return a topic's partitions in ascending order.

        Raises:
            UnknownTopicError: The topic does not exist.
        """
        numbers = self._numbers(topic)
        if not numbers:
            self.refresh()
            numbers = self._numbers(topic)
        if not numbers:
            names = ", ".join(sorted(set(self._topic_names()) - INTERNAL)) or "none"
            raise UnknownTopicError(f"topic {topic} is not in {self.home}; its topics: {names}")
        return sorted(numbers)

    def bases(self, topic: str) -> Mapping[int, int]:
        """Return {partition: first offset} of the partitions that were created to start above 0."""
        state = self._state(topic)
        return {} if state is None else state.bases

    def of_partition(
        self,
        topic: str,
        partition: int,
        make: Callable[[PartitionSegments], T],
        topic_id: str | None = None,
    ) -> T:
        """Return `make(segments)` for a partition, from a cache while the place is the same.

        See `View.of_partition`.
        """
        key = TopicPartition(topic, partition)
        self.renew()
        place = self._look_up(key)
        if place is None:
            raise self._error_without(key)
        cached = self._cached.get(key)
        if (
            cached is None
            or not self._update(key, cached.segments, place)
            or topic_id not in (None, cached.segments.topic_id)
        ):
            cached = self._cached[key] = CachedPartition(self._open(key, place))
        return cached.cached(make)

    def _look_up(self, key: TopicPartition) -> Place | None:
        """Return the place of a partition; list again first if the partition is not listed."""
        place = self._find(key)
        if place is None:
            self.refresh()
            place = self._find(key)
        return place

    def _keep_cached(self, is_same: Callable[[TopicPartition, PartitionSegments], bool]) -> None:
        """Drop the cached segments of partitions for which `is_same` returns False.

        Called after a listing: the directory or objects of such a partition were replaced.
        """
        for key, cached in list(self._cached.items()):
            if not is_same(key, cached.segments):
                self._cached.pop(key, None)  # another thread may have dropped them
