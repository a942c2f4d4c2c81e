"""Cached bucket listing with refresh.

While the store is unavailable, the last listing remains valid until the readers' timeout, so that
pollers are not delayed.
"""

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from sparklog.clock import monotonic_ms
from sparklog.common import TopicPartition
from sparklog.errors import StorageUnavailableError
from sparklog.tiered.archive.bucket import chosen, group, listed_segments, log_start
from sparklog.tiered.layout.object_names import Directory
from sparklog.tiered.reading.remote_objects import RemoteObjects
from sparklog.tiered.remote_segment import RemoteSegment

REFRESH_MS: Final = 30_000  # maximum age of a listing
NEWS_MS: Final = 250  # maximum age of a listing for callers that ask for news
AGAIN_MS: Final = (500, 10_000)  # pause after the first failure, and longest pause
_LOGGER: Final = logging.getLogger(__name__)


@dataclass(slots=True)
class _Listed:
    directory: Directory
    segments: list[RemoteSegment]
    start: int  # the log start offset
    listed_ms: float
    served: bool = False


class BucketListing:
    """Partitions of a bucket by topic and number, with their valid copies. Thread-safe.

    If the bucket contains several topics of the same name (deleted and re-created), the topic with
    the newest copy is shown.
    """

    def __init__(
        self,
        objects: RemoteObjects,
        *,
        refresh_ms: float = REFRESH_MS,
        timer: Callable[[], float] = monotonic_ms,
    ) -> None:
        self._objects, self._refresh_ms, self._timer = objects, refresh_ms, timer
        self._known: dict[TopicPartition, _Listed] = {}
        self._listed_ms = float("-inf")
        self._away_ms: float | None = None  # since when the store has been unavailable
        self._again_ms = float("-inf")  # no listing before this time
        self._lock = threading.RLock()

    def all(self, *, news: bool = False) -> dict[TopicPartition, Directory]:
        """Return {partition: directory in the bucket} of the last listing.

        Lists the bucket again if the last listing is too old. With `news` it must be newer than
        usual.
        """
        with self._lock:
            age = self._timer() - self._listed_ms
            if self._listed_ms == float("-inf"):
                self._objects.retry.call(self._list)
            elif age > (NEWS_MS if news else self._refresh_ms):
                self._renew(self._list)
            return {key: listed.directory for key, listed in self._known.items()}

    def segments(self, key: TopicPartition, *, news: bool = False) -> list[RemoteSegment]:
        """Return a partition's valid copies, by base offset; an unknown partition has none.

        With `news` the partition is listed again, unless the last listing is very new, or was not
        yet returned to a call with `news`.
        """
        with self._lock:
            self.all()
            listed = self._known.get(key)
            if listed is None:
                return []
            if news and listed.served and self._timer() - listed.listed_ms > NEWS_MS:
                directory = listed.directory
                self._renew(lambda: self._list_one(key, directory))
                listed = self._known[key]
            listed.served = listed.served or news
            return listed.segments

    def span(self, key: TopicPartition) -> tuple[int, int]:
        """Return (log start offset, end) of a partition in the last listing; (0, 0) if unknown."""
        segments = self.segments(key)
        if not segments:
            return 0, 0
        with self._lock:
            start = self._known[key].start
        return min(max(start, segments[0].base), segments[-1].end), segments[-1].end

    def _renew(self, look: Callable[[], object]) -> None:
        """Call `look`, which lists again. While the store is unavailable, keep the last listing.

        The last listing is used until the readers' timeout. Pauses between the attempts get longer.

        Raises:
            StorageUnavailableError: The error is not transient, or the readers' timeout is over.
        """
        now = self._timer()
        if now < self._again_ms:
            return
        try:
            look()
        except StorageUnavailableError as error:
            away_ms = 0.0 if self._away_ms is None else now - self._away_ms
            left_ms = self._objects.retry.timeout_ms - away_ms
            if not error.passing or left_ms <= 0:
                raise
            first_ms, longest_ms = AGAIN_MS
            # Wait as long as the store has been away already, within limits: a poller must not send
            # a request per poll to a store that is down.
            self._again_ms = self._timer() + min(max(away_ms, first_ms), longest_ms)
            if self._away_ms is None:
                self._away_ms = now
                _LOGGER.warning(
                    "%s; using the last listing, for %.0f s at most (remote.patience.ms)",
                    error, left_ms / 1000,
                )  # fmt: skip
        else:
            self._away_ms, self._again_ms = None, float("-inf")

    def _list(self) -> None:
        now = self._timer()
        partitions: dict[TopicPartition, _Listed] = {}
        for directory, objects in group(self._objects.store.list()).items():
            segments = listed_segments(directory, objects)
            if not segments:
                continue
            key = TopicPartition(directory.topic, directory.partition)
            newest = max(segment.time_ms for segment in segments)
            # A topic that was deleted and created again has two prefixes, as long as its old copies
            # are not deleted.
            other = partitions.get(key)
            if other is None or max(s.time_ms for s in other.segments) < newest:
                partitions[key] = _Listed(directory, segments, log_start(objects), now)
        for listed in partitions.values():
            listed.segments = chosen(listed.segments, self._objects)
        self._known, self._listed_ms = partitions, now

    def _list_one(self, key: TopicPartition, directory: Directory) -> None:
        now = self._timer()
        objects = group(self._objects.store.list(directory.prefix)).get(directory, [])
        segments = chosen(listed_segments(directory, objects), self._objects)
        start = log_start(objects)
        self._known[key] = _Listed(directory, segments, start, now, served=True)
