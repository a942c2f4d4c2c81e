"""What the service knows of a log's remote segments, shared by its threads.

All of it comes from the log's own metadata topic, so it works with the store down.

A copy is *readable* if it is finished and no later copy supersedes it; it is *valid* if it also
belongs to the log's own history (its leader epochs) and ends at or below the log's end. Only
valid copies may take the place of local segments.
"""

import contextlib
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from sparklog.clock import Clock, system_clock
from sparklog.common import TopicIdPartition, TopicPartition
from sparklog.errors import SparklogError
from sparklog.fs import FileSystem
from sparklog.log.due_segments import LocalSegment, RetentionConstraints, Tier
from sparklog.log.log import Log
from sparklog.logdir.home import commits_of
from sparklog.logdir.partition.leader_epochs import read_epochs
from sparklog.logdir.retention.local_segments import segments_of
from sparklog.logdir.retention.partition_retention import PartitionRetention, retention_by_partition
from sparklog.logdir.view import LogDirView
from sparklog.storage.lease import Lease
from sparklog.storage.topic_state import TopicState
from sparklog.tiered.copying import plan
from sparklog.tiered.copying.orphans import prefixes
from sparklog.tiered.remote_log_metadata.metadata_cache import RemoteLogMetadataCache
from sparklog.tiered.remote_log_metadata.topic import RemoteLogMetadataConsumer, publish
from sparklog.tiered.remote_segment import RemoteSegment

_SETTLED_MS: Final = 2000  # a change so long ago can't be followed by one of the same time


@dataclass(frozen=True, slots=True)
class TieredPartition:
    """A partition with something remote, or to become so, as it stood under the lock.

    `valid_copies`: ascending, see the module's text.
    """

    id: TopicIdPartition
    place: PartitionRetention
    valid_copies: tuple[RemoteSegment, ...]

    @property
    def topic_id(self) -> str:
        """The topic's id."""
        return self.id.topic_id


@dataclass(frozen=True, slots=True)
class _ValidCopies:
    """A partition's valid copies, as of the cache's list of readable ones at that time."""

    readable: list[RemoteSegment]
    place: PartitionRetention
    epoch: int
    valid_copies: list[RemoteSegment]

    def is_still_true(
        self, readable: list[RemoteSegment], place: PartitionRetention, epoch: int
    ) -> bool:
        before = self.place
        return (
            readable is self.readable  # the cache makes another list when anything changes
            and epoch == self.epoch
            and place.directory == before.directory
            and place.log_start == before.log_start
            and place.end >= before.end
        )


def is_tiered(topic: TopicState) -> bool:
    """Tell whether a topic's closed segments get copies, without reading all of its config."""
    return topic.config.get("remote.storage.enable") == "true"  # as TopicConfig.to_dict writes it


@dataclass(slots=True)
class DryRunState:
    """What a dry round would have done: {(topic id, partition): copies}, {partition: log start}."""

    copies: dict[TopicIdPartition, list[RemoteSegment]] = field(default_factory=dict)
    starts: dict[TopicPartition, int] = field(default_factory=dict)

    def valid_copies(
        self, key: TopicIdPartition, found: list[RemoteSegment]
    ) -> list[RemoteSegment]:
        """Return the copies that would be valid; a new one supersedes those that it overlaps."""
        fresh = self.copies.get(key)
        if not fresh:
            return found
        stay = [c for c in found if not any(c.base < f.end and c.end > f.base for f in fresh)]
        return sorted([*stay, *fresh], key=lambda c: c.base)


class RemoteLog:
    """Metadata of a log's remote segments, and listings of its local ones.

    `foreign_topics`: {topic id: why not} of what another log owns in the bucket, None before
    anybody looked. Nothing is done there, and local segments don't rely on what is there.
    `preview`: what a dry round would have done by now; its later steps see the log as if it had.
    """

    def __init__(self, log: Log, lease: Lease, clock: Clock) -> None:
        self.session, self.clock, self.lease = commits_of(log), clock, lease
        view = LogDirView(self.fs, self.session.directories)
        self._consumer = RemoteLogMetadataConsumer(view, clock)
        self._mutex = threading.RLock()
        self.foreign_topics: dict[str, str] | None = None
        self.preview: DryRunState | None = None
        self._listed: dict[TopicPartition, tuple[str, int, list[LocalSegment]]] = {}
        self._valid: dict[TopicIdPartition, _ValidCopies] = {}

    @property
    def fs(self) -> FileSystem:
        """The log's file system."""
        return self.session.fs

    def with_planned_starts(
        self, known: dict[TopicPartition, PartitionRetention], *, dry_run: bool
    ) -> dict[TopicPartition, PartitionRetention]:
        """Return partitions with the log starts that would hold by now in a dry round."""
        if not dry_run:
            self.preview = None  # of an earlier one
        risen = {} if self.preview is None else self.preview.starts
        return {
            key: replace(place, log_start=risen[key]) if key in risen else place
            for key, place in known.items()
        }

    @contextlib.contextmanager
    def locked_cache(self) -> Iterator[RemoteLogMetadataCache]:
        """Give the metadata as of now; while this lasts no thread deletes a copy.

        Retention deletes local segments within it, for it relies on their copies.
        Raises: DataCorruptionError if the metadata topic can't be read.
        """
        with self._mutex:
            yield self._consumer.catch_up()

    def publish(self, segments: list[RemoteSegment], *, found: bool = False) -> None:
        """Commit new states, if the lease is still ours."""
        if segments:
            with self._mutex:
                self.lease.check()
                publish(self.session, self.clock, segments, found=found)

    def topics(self, *, now_ms: int) -> dict[str, str]:
        """Return {topic id: topic} of all below whose prefixes this log may do something."""
        with self.locked_cache() as cache:
            found = {key.topic_id: d.topic for key, d in prefixes(cache, {}, now_ms=now_ms).items()}
            with self.session.exclusive():
                topics = self.session.state.topics
                return found | {t.id: name for name, t in topics.items() if is_tiered(t)}

    def is_ours(self, topic_id: str) -> bool:
        """Tell whether no other log was found to own a topic's copies."""
        return topic_id not in (self.foreign_topics or {})

    def partitions(self) -> dict[TopicPartition, TieredPartition]:
        """Return the partitions of tiered topics, and of those that still have copies.

        Those that are another log's in the bucket are left out.
        """
        with self.locked_cache() as cache:
            with_copies = {topic_id for topic_id, _ in cache.keys()}  # noqa: SIM118
            with self.session.exclusive():
                known = retention_by_partition(
                    self.session,
                    only=lambda topic: (
                        (is_tiered(topic) or topic.id in with_copies) and self.is_ours(topic.id)
                    ),
                )
                ids = {name: self.session.state.topics[name].id for name, _ in known}
            named = {key: TopicIdPartition(ids[key.topic], key.partition) for key in known}
            self._forget(set(known), set(named.values()))
            return {
                key: TieredPartition(
                    named[key], place, tuple(self._valid_copies(cache, named[key], place))
                )
                for key, place in known.items()
            }

    def has_copies(self, key: TopicPartition) -> bool:
        """Tell whether the metadata knows of any copy of a partition, in whatever state."""
        with self.locked_cache() as cache:
            with self.session.exclusive():
                topic = self.session.state.topics.get(key.topic)
            return topic is not None and bool(cache.all(TopicIdPartition(topic.id, key.partition)))

    def _forget(self, keys: set[TopicPartition], ids: set[TopicIdPartition]) -> None:
        """Drop what was seen of partitions that are gone."""
        for key in self._listed.keys() - keys:
            self._listed.pop(key, None)
        for by_id in self._valid.keys() - ids:
            self._valid.pop(by_id, None)

    def terms(
        self,
        cache: RemoteLogMetadataCache | None,
        known: Mapping[TopicPartition, PartitionRetention],
        floors: Mapping[TopicPartition, int],
    ) -> dict[TopicPartition, RetentionConstraints]:
        """Return what retention must respect; without metadata it relies on no copy.

        Nor on those that another log owns, which may delete them when it likes.
        """
        ids = {name: topic.id for name, topic in self.session.state.topics.items()}
        found = {key: RetentionConstraints(floor) for key, floor in floors.items()}
        for key, place in known.items():
            # A compacted topic's segments stay here: its cleaner would not find the older values
            # of a key elsewhere, and take away the tombstone that hides them.
            tiered = place.config.remote_storage_enable and not place.config.compact
            if tiered and key.topic in ids:
                copied: tuple[tuple[int, int], ...] = ()
                looked = self.foreign_topics is not None or self.preview is not None
                relied = looked and self.is_ours(ids[key.topic])
                if cache is not None and relied:
                    copied = plan.copied_ranges(
                        self._valid_copies(
                            cache, TopicIdPartition(ids[key.topic], key.partition), place
                        )
                    )
                tier = Tier(copied, copying=not place.config.remote_log_copy_disable)
                found[key] = RetentionConstraints(floors.get(key), tier)
        return found

    def valid_copies(
        self, cache: RemoteLogMetadataCache, key: TopicPartition, place: PartitionRetention
    ) -> list[RemoteSegment]:
        """Return a partition's valid copies, ascending; in a dry round with its own."""
        topic = self.session.state.topics.get(key.topic)  # it may have been deleted meanwhile
        return (
            []
            if topic is None
            else self._valid_copies(cache, TopicIdPartition(topic.id, key.partition), place)
        )

    def is_planned(self, copy: RemoteSegment) -> bool:
        """Tell whether a dry round would have made it by now."""
        return self.preview is not None and copy in self.preview.copies.get(copy.key, [])

    def _valid_copies(
        self, cache: RemoteLogMetadataCache, key: TopicIdPartition, place: PartitionRetention
    ) -> list[RemoteSegment]:
        found = self._valid_copies_now(cache, key, place)
        return found if self.preview is None else self.preview.valid_copies(key, found)

    def _valid_copies_now(
        self, cache: RemoteLogMetadataCache, key: TopicIdPartition, place: PartitionRetention
    ) -> list[RemoteSegment]:
        readable = cache.readable(key)
        if not readable:
            return []
        epoch = self.session.state.epoch
        seen = self._valid.get(key)
        if seen is not None and seen.is_still_true(readable, place, epoch):
            return seen.valid_copies
        try:
            lineage = read_epochs(self.fs, place.directory)
        except SparklogError:  # damaged; the next open makes it anew
            lineage = []
        found = plan.valid_copies(readable, lineage, end=place.end)
        self._valid[key] = _ValidCopies(readable, place, epoch, found)
        return found

    def segments(self, key: TopicPartition, place: PartitionRetention) -> list[LocalSegment]:
        """List a partition's segments; the last one's size may be that of an earlier look.

        FileNotFoundError: the partition is being deleted.
        """
        changed = self.fs.mtime_ms(place.directory)
        seen = self._listed.get(key)
        if seen is None or seen[:2] != (place.directory, changed):
            held = segments_of(self.fs, place.directory)
            settled = 0 < changed < system_clock() - _SETTLED_MS
            seen = self._listed[key] = place.directory, changed if settled else -1, held
        return seen[2]
