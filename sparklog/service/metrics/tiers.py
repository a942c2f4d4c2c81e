"""Tiering lag per topic, from the log's metadata topic, so also while the store is down."""

from collections.abc import Callable, Collection, Mapping, Sequence

from sparklog.clock import Clock
from sparklog.common import TopicIdPartition, TopicPartition
from sparklog.errors import SparklogError
from sparklog.fs import FileSystem
from sparklog.log.due_segments import LocalSegment, RetentionConstraints, Tier, largest_timestamps
from sparklog.logdir.partition.leader_epochs import read_epochs
from sparklog.logdir.partition.partition_segments import LogDirSegments
from sparklog.logdir.retention.partition_retention import PartitionRetention
from sparklog.logdir.view import LogDirView
from sparklog.service.metrics.observed import AwaitingDeletion, TierMetrics
from sparklog.tiered.copying import plan
from sparklog.tiered.remote_log_metadata.metadata_cache import RemoteLogMetadataCache
from sparklog.tiered.remote_log_metadata.topic import RemoteLogMetadataConsumer
from sparklog.tiered.remote_segment import RemoteSegment, SegmentState


class TierObserver:
    """Observes tiering; caches valid copies, and the age of the oldest waiting segments."""

    def __init__(self, fs: FileSystem, clock: Clock, directories: Sequence[str]) -> None:
        self._fs, self._clock = fs, clock
        self._consumer = RemoteLogMetadataConsumer(LogDirView(fs, directories), clock)
        self._cache = RemoteLogMetadataCache()
        self._valid: dict[
            TopicPartition, tuple[list[RemoteSegment], PartitionRetention, list[RemoteSegment]]
        ] = {}
        self._largest: dict[tuple[TopicPartition, int], int] = {}
        self.awaiting_deletion: list[AwaitingDeletion] = []
        """Copies of deleted topics that can be undeleted, as of the last observation."""

    def catch_up(self) -> None:
        """Read new records of the metadata topic.

        Raises:
            DataCorruptionError: The metadata topic is damaged.
        """
        self._cache = self._consumer.catch_up()

    def fault(
        self,
        ids: Mapping[str, str],
        places: Mapping[TopicPartition, PartitionRetention],
        starts: Callable[[], Mapping[TopicPartition, int]],
    ) -> str | None:
        """Return offsets that neither a local segment nor a known copy contains, or None.

        `starts` returns the current log starts, because copies may just have expired.
        """
        for key, place in places.items():
            start, local = place.log_start, place.local_start
            if start >= local:
                continue
            copies = self._cache.readable(TopicIdPartition(ids[key.topic], key.partition))
            known = Tier(plan.copied_ranges(copies))
            if not known.holds(start, local) and not known.holds(starts().get(key, start), local):
                offsets = f"offsets [{start}, {local}) of {key}"
                return f"no local segment and no known copy holds {offsets}"
        return None

    def terms(
        self,
        ids: Mapping[str, str],
        places: Mapping[TopicPartition, PartitionRetention],
        floors: Mapping[TopicPartition, int],
    ) -> dict[TopicPartition, RetentionConstraints]:
        """Return the constraints of each partition's retention: groups and valid copies."""
        return plan.retention_terms(
            places, floors, lambda key, place: self._valid_copies(ids[key.topic], key, place)
        )

    def observe(
        self,
        ids: Mapping[str, str],
        places: Mapping[TopicPartition, PartitionRetention],
        held: Mapping[TopicPartition, Sequence[LocalSegment]],
        deleted: Collection[str] = (),
    ) -> list[TierMetrics]:
        """Return a row for each topic that is tiered or has remaining copies, by name.

        `deleted` has the ids of deleted topics that can be undeleted: their copies are not overdue.
        """
        rows: dict[str, TierMetrics] = {}
        waiting_bytes: dict[str, int] = {}
        named = {
            TopicIdPartition(ids[key.topic], key.partition): key
            for key in places
            if key.topic in ids
        }
        waiting: set[tuple[TopicPartition, int]] = set()
        for key, place in places.items():
            if _is_tiered(place):
                row = rows.setdefault(key.topic, TierMetrics(key.topic))
                segments = held.get(key, ())
                waiting |= self._copy_lag(row, ids[key.topic], key, place, segments)
        for by_id in self._cache.keys():  # noqa: SIM118
            found = named.get(by_id)
            start = None if found is None else places[found].log_start
            for segment in self._cache.all(by_id):
                if by_id.topic_id in deleted:
                    size = waiting_bytes.get(segment.topic, 0) + segment.size
                    waiting_bytes[segment.topic] = size
                    continue
                row = rows.setdefault(segment.topic, TierMetrics(segment.topic))
                self._count(row, segment, start)
        self._largest = {k: at for k, at in self._largest.items() if k in waiting}
        self.awaiting_deletion = [
            AwaitingDeletion(topic, "topic", "remote", size)
            for topic, size in sorted(waiting_bytes.items())
        ]
        self._valid = {key: stood for key, stood in self._valid.items() if key in places}
        return [rows[topic] for topic in sorted(rows)]

    def _count(self, row: TierMetrics, segment: RemoteSegment, log_start: int | None) -> None:
        """Add a copy to the row of its topic. `log_start` is None for a deleted topic."""
        if segment.state is SegmentState.COPY_FINISHED:
            row.remote_bytes += segment.size
        gone = log_start is None or segment.end <= log_start
        if segment.state is SegmentState.DELETE_STARTED or gone:
            row.delete_lag_bytes += segment.size
            row.delete_lag_segments += 1

    def _copy_lag(
        self,
        row: TierMetrics,
        topic_id: str,
        key: TopicPartition,
        place: PartitionRetention,
        segments: Sequence[LocalSegment],
    ) -> set[tuple[TopicPartition, int]]:
        valid_copies = self._valid_copies(topic_id, key, place)
        waiting = plan.segments_to_copy(
            segments, valid_copies, place.config, log_start=place.log_start, stable=place.end
        )
        row.copy_lag_bytes += sum(one.size for one in waiting)
        row.copy_lag_segments += len(waiting)
        if not waiting:
            return set()
        oldest = key, waiting[0].base
        if oldest not in self._largest:
            at = largest_timestamps(LogDirSegments(self._fs, place.directory), place.end)
            self._largest[oldest] = at(waiting[0].base)
        row.copy_lag_ms = max(row.copy_lag_ms, self._clock() - self._largest[oldest])
        return {oldest}

    def _valid_copies(
        self, topic_id: str, key: TopicPartition, place: PartitionRetention
    ) -> list[RemoteSegment]:
        readable = self._cache.readable(TopicIdPartition(topic_id, key.partition))
        if not readable:
            return []
        seen = self._valid.get(key)
        if (
            seen is not None
            and seen[0] is readable  # the cache returns another list after any change
            and seen[1].log_start == place.log_start
            and seen[1].end <= place.end
        ):
            return seen[2]
        try:
            lineage = read_epochs(self._fs, place.directory)
        except SparklogError:  # damaged; the next open rebuilds the file
            lineage = []
        found = plan.valid_copies(readable, lineage, end=place.end)
        self._valid[key] = readable, place, found
        return found


def _is_tiered(place: PartitionRetention) -> bool:
    return place.config.remote_storage_enable
