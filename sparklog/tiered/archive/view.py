"""Readers' view of a bucket without its log, from a listing and a manifest per topic. Read-only.

Earlier topics of the same name are unknown, no partition is ever offline, and the archive can't be
replaced by another log: a re-created topic has another id in its prefix.
"""

import errno
import logging
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Final

from sparklog.common import TopicPartition
from sparklog.config import TopicConfig
from sparklog.errors import (
    DataCorruptionError,
    InvalidRequestError,
    StorageUnavailableError,
)
from sparklog.format.checkpoint_files import Epochs
from sparklog.log.listed_view import ListedView
from sparklog.storage.segments import IndexBytes, IndexKind, PartitionSegments, SegmentMetadata
from sparklog.storage.view import Offsets, TopicInfo
from sparklog.tiered.archive.listing import REFRESH_MS, BucketListing
from sparklog.tiered.layout.manifest import MANIFEST_BYTES_MAX, manifest_object, parse
from sparklog.tiered.layout.object_names import Directory
from sparklog.tiered.reading.partition_copies import PartitionCopies
from sparklog.tiered.reading.remote_objects import RemoteObjects
from sparklog.tiered.reading.remote_segment_log import BytesLog, RemoteSegmentLog
from sparklog.tiered.remote_segment import RemoteSegment

_LOGGER: Final = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Topic:
    """A topic of an archive, as its newest manifest describes it.

    Attributes:
        id: The topic id.
        config: The topic's options.
        gaps: Whether offsets may be missing because of compaction.
    """

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
        """Return the segments by base offset. An encrypted segment has the size of its object."""
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
        return self._copies.index(base, kind)

    def closed_index(self, base: int, kind: IndexKind) -> IndexBytes | None:
        """Return an index's bytes."""
        return self._copies.closed_index(base, kind)

    def producer_snapshots(self) -> list[int]:
        """Return the offsets of the producer snapshots, ascending."""
        return self._listed(news=True).producer_snapshots()

    def producer_snapshot(self, offset: int) -> bytes:
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


class ArchiveView(ListedView[Directory]):
    """The readers' view of an archive: `sparklog.storage.view.View`.

    Readers do not change a bucket, so `forget` has no effect. Tasks list the copies themselves.
    """

    def __init__(self, url: str, objects: RemoteObjects, *, refresh_ms: float = REFRESH_MS) -> None:
        """List the bucket. Cost: a listing, and a manifest per topic."""
        super().__init__(url.rstrip("/"))
        self.objects = objects  # `poll_ms` is short, because the age of the listing limits requests
        self._listing = BucketListing(objects, refresh_ms=refresh_ms)
        self._seen: dict[TopicPartition, list[RemoteSegment]] = {}  # listed copies at the last use
        self._topics: dict[str, _Topic] = {}
        self._partitions: dict[TopicPartition, Directory] = {}
        self._described_of: frozenset[Directory] | None = None
        self.refresh()

    def refresh(self) -> None:
        """List the bucket again, unless that was just done."""
        self._partitions = self._listing.all(news=True)
        held = frozenset(self._partitions.values())
        if self._described_of != held:
            self._topics, self._described_of = self._read_topics(), held
        ids = {(key, directory.topic_id) for key, directory in self._partitions.items()}
        self._keep_cached(lambda key, segments: (key, segments.topic_id) in ids)
        for key, cached in list(self._cached.items()):
            cached.segments.gaps = self._has_gaps(key.topic)

    def _described(self) -> dict[str, TopicInfo]:
        by_topic: dict[str, dict[int, str]] = {}
        for topic, partition in sorted(self._partitions):
            by_topic.setdefault(topic, {})[partition] = self._where(topic, partition)
        return {
            name: TopicInfo(name, known.id, max(dirs) + 1, known.config, dirs)
            for name, dirs in by_topic.items()
            if (known := self._topics.get(name)) is not None
        }

    def _topic_names(self) -> Collection[str]:
        return {topic for topic, _ in self._partitions}

    def _numbers(self, topic: str) -> Collection[int]:
        return {p for t, p in self._partitions if t == topic}

    def _find(self, key: TopicPartition) -> Directory | None:
        return self._partitions.get(key)

    def topic_id(self, topic: str, partition: int) -> str | None:
        """Return the topic id of a partition in the last listing, or None."""
        if (topic, partition) not in self._partitions:
            self.refresh()
        directory = self._listing.all().get(TopicPartition(topic, partition))
        return None if directory is None else directory.topic_id

    def spans(self, keys: Sequence[TopicPartition]) -> dict[TopicPartition, Offsets]:
        """Return {(topic, partition): (log start offset, end of the last copy)} as listed."""
        return {key: self._listing.span(key) for key in keys}

    def _open(self, key: TopicPartition, place: Directory) -> ArchiveSegments:
        self._seen[key] = self._listing.segments(key)
        return ArchiveSegments(
            self._where(*key),
            key,
            self.objects,
            self._listing,
            gaps=self._has_gaps(key.topic),
            topic_id=self.topic_id(*key),
        )

    def _update(self, key: TopicPartition, segments: PartitionSegments, place: Directory) -> bool:
        """Return False if the cached segments of a partition must be replaced.

        This is the case if a copy was deleted from the bucket after the last call, because the copy
        expired or was erased. Cost: none, unless the bucket was listed.
        """
        now = self._listing.segments(key)
        before, self._seen[key] = self._seen[key], now
        return before is now or {copy.id for copy in before} <= {copy.id for copy in now}

    def set_following(self) -> None:
        """Wait for an unavailable store as long as a reader of new records does."""
        self.objects.retry.set_following()

    def copies(self, topic: str, partition: int) -> list[RemoteSegment]:
        """Return a partition's valid copies, by base offset."""
        return self._listing.segments(TopicPartition(topic, partition))

    # --- helpers -----------------------------------------------------------------------------

    def _where(self, topic: str, partition: int) -> str:
        return f"{self.home}/{topic}-{partition}"

    def _has_gaps(self, topic: str) -> bool:
        known = self._topics.get(topic)
        return known is None or known.gaps or known.config.compact

    def _read_topics(self) -> dict[str, _Topic]:
        """Return the topics and their configs, from the newest manifest of each."""
        numbers: dict[str, list[int]] = {}
        for topic, partition in self._partitions:
            numbers.setdefault(topic, []).append(partition)
        newest = {}
        for topic, held in numbers.items():
            copies = [s for p in held for s in self._listing.segments(TopicPartition(topic, p))]
            # Each manifest has the configs at the time of its upload, so the newest has the current
            # configs.
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
            _LOGGER.warning("topic %s: the configs are unknown (%s)", topic, error)
            return {}, True
        return manifest.config, manifest.gaps


def _answered(answers: list[bytes | Exception]) -> list[bytes | Exception]:
    """Return `answers` unless an answer is a StorageUnavailableError, which is raised."""
    for answer in answers:
        if isinstance(answer, StorageUnavailableError):
            raise answer
    return answers
