"""Readers' view of a bucket without its log, from a listing and a manifest per topic. Read-only.

Earlier topics of the same name are unknown, no partition is ever offline, and the archive can't be
replaced by another log: a re-created topic has another id in its prefix.
"""

import errno
import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Final, TypeVar

from sparklog.common import TopicPartition
from sparklog.config import TopicConfig
from sparklog.errors import (
    DataCorruptionError,
    InvalidRequestError,
    StorageUnavailableError,
    UnknownTopicError,
)
from sparklog.format.checkpoint_files import Epochs
from sparklog.storage.segments import IndexBytes, IndexKind, PartitionSegments, SegmentMetadata
from sparklog.storage.view import CachedPartition, Offsets, TopicInfo, unknown_partition
from sparklog.tiered.archive.listing import REFRESH_MS, BucketListing
from sparklog.tiered.layout.manifest import MANIFEST_BYTES_MAX, manifest_object, parse
from sparklog.tiered.layout.object_names import Directory
from sparklog.tiered.reading.partition_copies import PartitionCopies
from sparklog.tiered.reading.remote_objects import RemoteObjects
from sparklog.tiered.reading.remote_segment_log import BytesLog, RemoteSegmentLog
from sparklog.tiered.remote_segment import RemoteSegment

T = TypeVar("T")
_LOGGER: Final = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Topic:
    """A topic, as described by the newest manifest."""

    id: str
    config: TopicConfig
    gaps: bool


class ArchiveSegments:
    """A partition's valid copies: `sparklog.storage.segments.PartitionSegments`.

    `bases` and `producer_snapshots` list the bucket; all other methods use the last listing.
    """

    def __init__(
        self, where: str, key: TopicPartition, objects: RemoteObjects, listing: BucketListing,
        *, gaps: bool, topic_id: str | None,
    ) -> None:  # fmt: skip
        self._key, self._objects, self._listing = key, objects, listing
        self._where, self._topic_id, self.gaps = where, topic_id, gaps
        self._found: PartitionCopies | None = None

    @property
    def where(self) -> str:
        """The partition's URL, without the topic id."""
        return self._where

    @property
    def topic_id(self) -> str | None:
        """The topic id in the prefix of the partition's objects."""
        return self._topic_id

    def bases(self) -> list[int]:
        """Return the base offsets, ascending. Raises FileNotFoundError if there are none."""
        return self._listed(news=True).bases()

    def metadata(self) -> list[SegmentMetadata]:
        """Return the segments by base offset.

        For an encrypted segment with the size of its object.
        """
        return self._listed(news=True).metadata()

    def max_timestamp(self, base: int) -> int | None:
        """Return a segment's largest timestamp (ms), from the listing."""
        segment = self._copies.find(base)
        return None if segment is None else segment.max_timestamp

    def modified_ms(self, base: int) -> int:
        """Return when the segment was copied (ms)."""
        segment = self._copies.find(base)
        if segment is None:
            raise self._missing()
        return segment.time_ms

    def log(self, base: int) -> RemoteSegmentLog:
        """Open a segment's log."""
        return self._copies.log(base)

    def index(self, base: int, kind: IndexKind) -> BytesLog | None:
        """Return an index."""
        return self._copies.index(base, kind)

    def closed_index(self, base: int, kind: IndexKind) -> IndexBytes | None:
        """Return an index's bytes."""
        return self._copies.closed_index(base, kind)

    def producer_snapshots(self) -> list[int]:
        """Return the offsets of the producer snapshots, ascending."""
        return self._listed(news=True).producer_snapshots()

    def producer_snapshot(self, offset: int) -> bytes:
        """Return a producer snapshot."""
        return self._copies.producer_snapshot(offset)

    def leader_epochs(self) -> Epochs:
        """Return the leader epochs in the newest copy's manifest."""
        return self._copies.leader_epochs()

    def first_local_base(self) -> int | None:
        """Return None: all segments are remote."""
        return None

    def remote_end(self) -> int | None:
        """Return the offset after the partition's last record."""
        return self._listing.span(self._key)[1] or None

    @property
    def _copies(self) -> PartitionCopies:
        return self._found or self._listed(news=False)

    def _listed(self, *, news: bool) -> PartitionCopies:
        segments = self._listing.segments(self._key, news=news)
        if not segments:
            raise self._missing()
        copies = self._found = PartitionCopies(self._where, self._objects, segments)
        return copies

    def _missing(self) -> FileNotFoundError:
        return FileNotFoundError(errno.ENOENT, "not in the archive", self._where)


class ArchiveView:
    """The readers' view of an archive: `sparklog.storage.view.View`."""

    def __init__(self, url: str, objects: RemoteObjects, *, refresh_ms: float = REFRESH_MS) -> None:
        """Raises: StorageUnavailableError. Cost: a listing, and a manifest per topic."""
        self._url, self.objects = url.rstrip("/"), objects
        self.incarnation, self.poll_ms = 0, 20.0  # the age of the listing limits requests
        self._listing = BucketListing(objects, refresh_ms=refresh_ms)
        self._kept: dict[TopicPartition, CachedPartition] = {}
        self._seen: dict[TopicPartition, list[RemoteSegment]] = {}  # listed copies at the last use
        self._topics: dict[str, _Topic] = {}
        self._partitions: dict[TopicPartition, Directory] = {}
        self._described_of: frozenset[Directory] | None = None
        self.refresh()

    @property
    def home(self) -> str:
        """The URL."""
        return self._url

    def renew(self) -> int:
        """Return the `incarnation`, which never changes."""
        return self.incarnation

    def refresh(self) -> None:
        """List the bucket again, unless that was just done."""
        self._partitions = self._listing.all(news=True)
        held = frozenset(self._partitions.values())
        if self._described_of != held:
            self._topics, self._described_of = self._described(), held
        for key, kept in list(self._kept.items()):
            now = self._partitions.get(key)
            if now is None or now.topic_id != kept.segments.topic_id:
                del self._kept[key]
            else:
                kept.segments.gaps = self._has_gaps(key.topic)

    def forget(self) -> None:
        """No-op: reading a bucket does not change it."""

    def metadata_snapshot(self) -> AbstractContextManager[None]:
        """Has no effect: each answer is determined separately."""
        return nullcontext()

    def topics(self) -> dict[str, TopicInfo]:
        """Return the topics; lists the bucket if the last listing is old."""
        self.refresh()
        by_topic: dict[str, dict[int, str]] = {}
        for topic, partition in sorted(self._partitions):
            by_topic.setdefault(topic, {})[partition] = self._where(topic, partition)
        return {
            name: TopicInfo(name, known.id, max(dirs) + 1, known.config, dirs)
            for name, dirs in by_topic.items()
            if (known := self._topics.get(name)) is not None
        }

    def partitions(self, topic: str) -> list[int]:
        """Return a topic's partitions, ascending. Raises UnknownTopicError."""
        for again in (False, True):
            if again:
                self.refresh()
            numbers = sorted(p for t, p in self._partitions if t == topic)
            if numbers:
                return numbers
        held = ", ".join(sorted({t for t, _ in self._partitions})) or "none"
        raise UnknownTopicError(f"topic {topic} is not in {self.home}; its topics: {held}")

    def topic_id(self, topic: str, partition: int) -> str | None:
        """Return the topic id of a partition in the last listing, or None."""
        if (topic, partition) not in self._partitions:
            self.refresh()
        directory = self._listing.all().get(TopicPartition(topic, partition))
        return None if directory is None else directory.topic_id

    def bases(self, topic: str) -> Mapping[int, int]:
        """Return no offsets: records of an earlier topic are not known."""
        return {}

    def spans(self, keys: Sequence[TopicPartition]) -> dict[TopicPartition, Offsets]:
        """Return {(topic, partition): (log start offset, end of the last copy)} as listed."""
        return {key: self._listing.span(key) for key in keys}

    def offline(self) -> Mapping[TopicPartition, DataCorruptionError]:
        """Return no partitions: a partition either is in the bucket or does not exist."""
        return {}

    def of_partition(
        self,
        topic: str,
        partition: int,
        make: Callable[[PartitionSegments], T],
        topic_id: str | None = None,
    ) -> T:
        """Return `make`'s result for a partition's segments; see `sparklog.storage.view`."""
        key = TopicPartition(topic, partition)
        if key not in self._partitions:
            self.refresh()
        if key not in self._partitions:
            raise unknown_partition(self, topic, partition)
        kept = self._kept.get(key)
        if kept is not None and self._is_replaced(key):
            kept = None
        if kept is None or topic_id not in (None, kept.segments.topic_id):
            kept = self._kept[key] = CachedPartition(
                ArchiveSegments(
                    self._where(topic, partition),
                    key,
                    self.objects,
                    self._listing,
                    gaps=self._has_gaps(topic),
                    topic_id=self.topic_id(topic, partition),
                )
            )
        return kept.cached(make)

    def _is_replaced(self, key: TopicPartition) -> bool:
        """Return True if a copy was deleted since the last use and must not be read.

        Copies are deleted when they expire and by erasures. Cost: none, unless the bucket was
        listed.
        """
        now = self._listing.segments(key)
        before = self._seen.get(key)
        self._seen[key] = now
        if before is None or before is now:
            return False
        return not {copy.id for copy in before} <= {copy.id for copy in now}

    def plan(self, key: TopicPartition, start: int, end: int) -> None:
        """Return None: tasks list the copies themselves."""

    def local_files(self, key: TopicPartition) -> None:
        """Return None, because no records are stored in files of this host."""

    def set_following(self) -> None:
        """Wait for an unavailable store as long as a follower does."""
        self.objects.retry.set_following()

    def copies(self, topic: str, partition: int) -> list[RemoteSegment]:
        """Return a partition's valid copies, by base offset."""
        return self._listing.segments(TopicPartition(topic, partition))

    # --- helpers -----------------------------------------------------------------------------

    def _where(self, topic: str, partition: int) -> str:
        return f"{self._url}/{topic}-{partition}"

    def _has_gaps(self, topic: str) -> bool:
        known = self._topics.get(topic)
        return known is None or known.gaps or known.config.compact

    def _described(self) -> dict[str, _Topic]:
        """Return the topics and their configs, from the newest manifest of each."""
        numbers: dict[str, list[int]] = {}
        for topic, partition in self._partitions:
            numbers.setdefault(topic, []).append(partition)
        newest = {}
        for topic, held in numbers.items():
            copies = [s for p in held for s in self._listing.segments(TopicPartition(topic, p))]
            newest[topic] = max(copies, key=lambda s: s.time_ms)
        raws = self.objects.retry.call(
            lambda: _answered(
                self.objects.store.get_many(
                    [manifest_object(s) for s in newest.values()], limit=MANIFEST_BYTES_MAX
                )
            )
        )
        topics = {}
        for (topic, segment), raw in zip(newest.items(), raws, strict=True):
            config, gaps = self._config(topic, manifest_object(segment), raw)
            topics[topic] = _Topic(segment.topic_id, TopicConfig.parse(config), gaps)
        return topics

    def _config(self, topic: str, name: str, raw: bytes | Exception) -> tuple[dict[str, str], bool]:
        """Return the topic's config and whether offsets may be missing, from a manifest."""
        try:
            if isinstance(raw, Exception):
                raise raw
            manifest, _ = parse(raw, path=f"{self.objects.store.url}/{name}")
        except (FileNotFoundError, DataCorruptionError, InvalidRequestError) as error:
            _LOGGER.warning("%s: its configs are unknown (%s)", topic, error)
            return {}, True
        return manifest.config, manifest.gaps


def _answered(answers: list[bytes | Exception]) -> list[bytes | Exception]:
    """Return the store's answers. Raises StorageUnavailableError if an answer is missing."""
    for answer in answers:
        if isinstance(answer, StorageUnavailableError):
            raise answer
    return answers
