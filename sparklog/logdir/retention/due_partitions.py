"""Find partitions that may have expired segments, by a stat each and cached listings.

A directory with an unchanged modification time still contains the listed segments. Until the oldest
listed segment expires, or the log exceeds its maximum size, no segment is due. This works without
the write lock, so the result is a guess that the steps under the lock verify.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from sparklog.clock import system_clock
from sparklog.common import TopicPartition
from sparklog.errors import SparklogError
from sparklog.format.names import log_name
from sparklog.fs import SETTLED_MS, FileSystem
from sparklog.log.due_segments import (
    NO_CONSTRAINTS,
    DueSegments,
    LocalSegment,
    RetentionConstraints,
    retention_limits,
)
from sparklog.logdir.retention.partition_retention import PartitionRetention, segments_of
from sparklog.logdir.retention.segment_deletion import due_segments_of
from sparklog.logdir.segment_files import joined


@dataclass(frozen=True, slots=True)
class _Observation:
    place: PartitionRetention
    terms: RetentionConstraints
    changed_ms: int
    segments: list[LocalSegment]
    found: DueSegments

    def is_still_true(
        self, place: PartitionRetention, terms: RetentionConstraints, changed_ms: int, now_ms: int
    ) -> bool:
        before = self.place
        return (
            changed_ms == self.changed_ms
            and now_ms <= self.found.next_ms
            and place.config == before.config
            and place.log_start == before.log_start
            and place.local_start == before.local_start
            and terms == self.terms
            and not self.found.expired
            and not self.found.rolls
            # Records with old times may have come into the only segment.
            and (len(self.segments) > 1 or place.end == before.end)
        )


class DuePartitions:
    """Finds partitions with segments to delete or to roll, by cached listings. Not thread-safe."""

    def __init__(self, fs: FileSystem) -> None:
        self._fs = fs
        self._seen: dict[TopicPartition, _Observation] = {}

    def due(
        self,
        places: Mapping[TopicPartition, PartitionRetention],
        terms: Mapping[TopicPartition, RetentionConstraints],
        *,
        now_ms: int,
    ) -> dict[TopicPartition, DueSegments | None]:
        """Return the partitions with segments that may be due; the decision is made under the lock.

        The value is None if the segments are unknown, because the files change at this moment or
        are damaged.

        Args:
            places: All partitions; the others are forgotten.
            terms: {partition: constraints on retention there}; none by default.
            now_ms: The current time.

        Cost: about 10 us per unchanged partition, else a listing and a stat per segment.
        """
        found: dict[TopicPartition, DueSegments | None] = {}
        for key in self._seen.keys() - places.keys():
            del self._seen[key]
        for key, place in places.items():
            try:
                seen = self._refreshed(key, place, terms.get(key, NO_CONSTRAINTS), now_ms)
            except (FileNotFoundError, SparklogError):
                self._seen.pop(key, None)
                found[key] = None
                continue
            if seen.found.expired or seen.found.rolls:
                found[key] = seen.found
        return found

    def sizes(self, topics: Collection[str]) -> dict[str, int]:
        """Return {topic: size in bytes} of the logs of `topics`, as of the last call of `due`."""
        sizes: dict[str, int] = {}
        for key, seen in self._seen.items() if topics else ():
            if key.topic in topics:
                size = sum(segment.size for segment in seen.segments)
                sizes[key.topic] = sizes.get(key.topic, 0) + size
        return sizes

    def held(self, key: TopicPartition) -> list[LocalSegment] | None:
        """Return a partition's segments as of the last call of `due`; None if unknown.

        The list is the same object as long as the listing is unchanged. The active segment's size
        may be outdated.
        """
        seen = self._seen.get(key)
        return None if seen is None else seen.segments

    def idle(
        self, places: Mapping[TopicPartition, PartitionRetention], *, now_ms: int
    ) -> dict[TopicPartition, int]:
        """Return {partition: base offset} of active segments without an append for segment.idle.ms.

        Only partitions with segments that are known from the last `due`.
        """
        found = {}
        for key, place in places.items():
            limit, segments = place.config.segment_idle_ms, self.held(key)
            if limit < 0 or not segments:
                continue
            base = segments[-1].base
            path = joined(place.directory, log_name(base))
            try:
                if now_ms - self._fs.mtime_ms(path) >= limit and self._fs.size(path):
                    found[key] = base
            except FileNotFoundError:
                continue  # the segments are changing: handled in the next round
        return found

    def _refreshed(
        self,
        key: TopicPartition,
        place: PartitionRetention,
        terms: RetentionConstraints,
        now_ms: int,
    ) -> _Observation:
        changed = self._fs.mtime_ms(place.directory)
        seen = self._seen.get(key)
        if (
            seen is not None
            and seen.is_still_true(place, terms, changed, now_ms)
            and not self._is_too_large(seen.segments, place, terms)
        ):
            return seen
        segments = segments_of(self._fs, place.directory)
        found = due_segments_of(self._fs, place, segments, now_ms=now_ms, terms=terms)
        # A change within the resolution of the file system's clock would not change the directory's
        # time again, so a fresh listing is not trusted for the next round.
        settled = system_clock() - changed > SETTLED_MS
        seen = _Observation(place, terms, changed if settled else -1, segments, found)
        self._seen[key] = seen
        return seen

    def _is_too_large(
        self, segments: list[LocalSegment], place: PartitionRetention, terms: RetentionConstraints
    ) -> bool:
        size_bytes = retention_limits(place.config, local=terms.local)[0]
        if size_bytes < 0 or not place.config.delete or not segments:
            return False
        active = self._fs.size(joined(place.directory, log_name(segments[-1].base)))
        size = sum(s.size for s in segments[:-1]) + active
        return size - size_bytes >= min(segments[0].size, size)
