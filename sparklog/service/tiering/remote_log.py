"""Metadata of a log's remote segments, shared by the service's threads.

The metadata come from the log's metadata topic, so they are available while the store is down.

A copy is *readable* if it is finished and no later copy supersedes it. A readable copy is *valid*
if it also belongs to the log's own history (its leader epochs) and ends at or below the log end.
Only valid copies may replace local segments.
"""

import contextlib
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from sparklog.clock import Clock, system_clock
from sparklog.common import TopicIdPartition, TopicPartition
from sparklog.errors import SparklogError
from sparklog.fs import SETTLED_MS, FileSystem
from sparklog.log.due_segments import LocalSegment, RetentionConstraints
from sparklog.log.log import Log, home_of
from sparklog.logdir.commit_log import LogDirCommits
from sparklog.logdir.home import commits_of
from sparklog.logdir.partition.leader_epochs import read_epochs
from sparklog.logdir.retention.partition_retention import (
    PartitionRetention,
    retention_by_partition,
    segments_of,
)
from sparklog.logdir.view import LogDirView
from sparklog.storage.lease import Lease
from sparklog.storage.segment_store import SegmentStore
from sparklog.storage.topic_state import TopicState
from sparklog.tiered.copying import plan
from sparklog.tiered.copying.orphans import prefixes
from sparklog.tiered.remote_log_metadata.metadata_cache import RemoteLogMetadataCache
from sparklog.tiered.remote_log_metadata.topic import RemoteLogMetadataConsumer, publish
from sparklog.tiered.remote_segment import RemoteSegment, SegmentState

_DELETED_TOGETHER: Final = 500  # copies per step: some requests, and two commits


@dataclass(frozen=True, slots=True)
class TieredPartition:
    """A partition with remote storage or remaining copies, as of a moment under the lock.

    `valid_copies` are in ascending order; the module describes which copies are valid.
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
    """A partition's valid copies, and the inputs from which they were computed."""

    readable: list[RemoteSegment]
    place: PartitionRetention
    epoch: int
    valid_copies: list[RemoteSegment]

    def is_current(
        self, readable: list[RemoteSegment], place: PartitionRetention, epoch: int
    ) -> bool:
        before = self.place
        return (
            readable is self.readable  # the cache returns another list after any change
            and epoch == self.epoch
            and place.directory == before.directory
            and place.log_start == before.log_start
            and place.end >= before.end
        )


def is_tiered(topic: TopicState) -> bool:
    """Return True if a topic's closed segments are copied. Cheaper than parsing its config."""
    return topic.config.get("remote.storage.enable") == "true"  # as TopicConfig.to_dict writes it


@dataclass(slots=True)
class DryRunState:
    """The changes that a dry run would have made so far.

    Attributes:
        copies: The planned copies by (topic id, partition).
        starts: The planned log starts by partition.
    """

    copies: dict[TopicIdPartition, list[RemoteSegment]] = field(default_factory=dict)
    starts: dict[TopicPartition, int] = field(default_factory=dict)

    def valid_copies(
        self, key: TopicIdPartition, found: list[RemoteSegment]
    ) -> list[RemoteSegment]:
        """Return the copies that would be valid; a new copy supersedes overlapping copies."""
        fresh = self.copies.get(key)
        if not fresh:
            return found
        stay = [c for c in found if not any(c.base < f.end and c.end > f.base for f in fresh)]
        return sorted([*stay, *fresh], key=lambda c: c.base)


class RemoteLog:
    """Metadata of a log's remote segments, and listings of the log's local segments.

    Attributes:
        foreign_topics: {topic id: reason} of topics with copies that another log owns; None before
            the first check. These copies are not changed, and local retention does not rely on
            them.
        preview: The changes of a dry run. Later steps of the dry run see the log as if these
            changes had been made.
    """

    def __init__(self, log: Log, lease: Lease, clock: Clock) -> None:
        self.commits, self.clock, self.lease = commits_of(log), clock, lease
        self.groups = home_of(log).groups
        view = LogDirView(self.fs, self.commits.directories)
        self._consumer = RemoteLogMetadataConsumer(view, clock)
        self._mutex = threading.RLock()
        self.foreign_topics: dict[str, str] | None = None
        self.preview: DryRunState | None = None
        self._listed: dict[TopicPartition, tuple[str, int, list[LocalSegment]]] = {}
        self._valid: dict[TopicIdPartition, _ValidCopies] = {}

    @property
    def fs(self) -> FileSystem:
        """The log's file system."""
        return self.commits.fs

    def with_planned_starts(
        self, known: dict[TopicPartition, PartitionRetention], *, dry_run: bool
    ) -> dict[TopicPartition, PartitionRetention]:
        """Return partitions with the log starts that a dry run would have set by now."""
        if not dry_run:
            self.preview = None  # discard the preview of an earlier dry run
        risen = {} if self.preview is None else self.preview.starts
        return {
            key: replace(place, log_start=risen[key]) if key in risen else place
            for key, place in known.items()
        }

    @contextlib.contextmanager
    def locked_cache(self) -> Iterator[RemoteLogMetadataCache]:
        """Provide the current metadata. No thread deletes a copy within the context.

        Retention deletes local segments within this context, because it relies on their copies.

        Raises:
            DataCorruptionError: The metadata topic can't be read.
        """
        with self._mutex:
            yield self._consumer.catch_up()

    def publish(self, segments: list[RemoteSegment], *, found: bool = False) -> None:
        """Publish new states of copies.

        Raises:
            LeaseLostError: Another service leads now.
        """
        if segments:
            with self._mutex:
                self.lease.check()
                publish(self.commits, self.clock, segments, found=found)

    def delete(
        self, store: SegmentStore[RemoteSegment], copies: Sequence[RemoteSegment]
    ) -> list[RemoteSegment]:
        """Delete copies in any state, and return the deleted copies; see `delete_copies`.

        Raises:
            LeaseLostError: Another service leads now.
            StorageUnavailableError: The store does not answer.
        """
        check = self.lease.check
        return list(delete_copies(self.commits, self.clock, store, copies, check=check))

    def log_starts(self, keys: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the current log starts, regardless of the changes of a dry run."""
        with self.commits.exclusive():
            return {key: self.commits.state.starts.get(key, 0) for key in keys}

    def topics(self, *, now_ms: int) -> dict[str, str]:
        """Return {topic id: topic} of all topics whose objects in the bucket may be this log's.

        These are the tiered topics, topics that still have copies, and topics that were deleted
        within the last week. The service claims these topics in the bucket, unless another log
        owns them.

        Args:
            now_ms: The current time, by which the age of a deletion is measured.
        """
        with self.locked_cache() as cache:
            found = {key.topic_id: d.topic for key, d in prefixes(cache, {}, now_ms=now_ms).items()}
            with self.commits.exclusive():
                topics = self.commits.state.topics
                return found | {t.id: name for name, t in topics.items() if is_tiered(t)}

    def is_ours(self, topic_id: str) -> bool:
        """Return True unless another log owns a topic's copies."""
        return topic_id not in (self.foreign_topics or {})

    def partitions(self) -> dict[TopicPartition, TieredPartition]:
        """Return the partitions of tiered topics, and other partitions that still have copies.

        Excludes partitions with copies that another log owns.
        """
        with self.locked_cache() as cache:
            with_copies = {topic_id for topic_id, _ in cache.keys()}  # noqa: SIM118
            with self.commits.exclusive():
                known = retention_by_partition(
                    self.commits,
                    only=lambda topic: (
                        (is_tiered(topic) or topic.id in with_copies) and self.is_ours(topic.id)
                    ),
                )
                ids = {name: self.commits.state.topics[name].id for name, _ in known}
            named = {key: TopicIdPartition(ids[key.topic], key.partition) for key in known}
            self._forget(set(known), set(named.values()))
            return {
                key: TieredPartition(
                    named[key], place, tuple(self._valid_copies(cache, named[key], place))
                )
                for key, place in known.items()
            }

    def has_copies(self, key: TopicPartition) -> bool:
        """Return True if the metadata contains any copy of a partition, in any state."""
        with self.locked_cache() as cache:
            with self.commits.exclusive():
                topic = self.commits.state.topics.get(key.topic)
            return topic is not None and bool(cache.all(TopicIdPartition(topic.id, key.partition)))

    def _forget(self, keys: set[TopicPartition], ids: set[TopicIdPartition]) -> None:
        """Drop cached data of deleted partitions."""
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
        """Return the constraints of retention. Without metadata, retention relies on no copy.

        Retention also never relies on copies that another log owns and may delete at any time.
        """
        ids = {name: topic.id for name, topic in self.commits.state.topics.items()}
        is_checked = self.foreign_topics is not None or self.preview is not None

        def copies(key: TopicPartition, place: PartitionRetention) -> list[RemoteSegment]:
            topic_id = ids.get(key.topic)  # None: deleted meanwhile
            if cache is None or not is_checked or topic_id is None or not self.is_ours(topic_id):
                return []
            return self._valid_copies(cache, TopicIdPartition(topic_id, key.partition), place)

        return plan.retention_terms(known, floors, copies)

    def valid_copies(
        self, cache: RemoteLogMetadataCache, key: TopicPartition, place: PartitionRetention
    ) -> list[RemoteSegment]:
        """Return a partition's valid copies, ascending; in a dry run including planned copies."""
        topic = self.commits.state.topics.get(key.topic)  # it may have been deleted
        return (
            []
            if topic is None
            else self._valid_copies(cache, TopicIdPartition(topic.id, key.partition), place)
        )

    def is_planned(self, copy: RemoteSegment) -> bool:
        """Return True if a copy is only planned by a dry run."""
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
        epoch = self.commits.state.epoch
        seen = self._valid.get(key)
        if seen is not None and seen.is_current(readable, place, epoch):
            return seen.valid_copies
        # Copies of another history (after a restore) have other epochs, and must not replace
        # local segments.
        try:
            lineage = read_epochs(self.fs, place.directory)
        except SparklogError:  # damaged; the next open rebuilds the file
            lineage = []
        found = plan.valid_copies(readable, lineage, end=place.end)
        self._valid[key] = _ValidCopies(readable, place, epoch, found)
        return found

    def segments(self, key: TopicPartition, place: PartitionRetention) -> list[LocalSegment]:
        """List a partition's segments.

        The size of the last segment may come from an earlier listing.

        Raises:
            FileNotFoundError: The partition is being deleted.
        """
        # A listing is repeated only if the directory changed. Appends don't change its time, so the
        # last size may be old. A young time is not trusted: a change within the clock's resolution
        # would not show.
        changed = self.fs.mtime_ms(place.directory)
        seen = self._listed.get(key)
        if seen is None or seen[:2] != (place.directory, changed):
            held = segments_of(self.fs, place.directory)
            settled = 0 < changed < system_clock() - SETTLED_MS
            seen = self._listed[key] = place.directory, changed if settled else -1, held
        return seen[2]


def delete_copies(
    commits: LogDirCommits,
    clock: Clock,
    store: SegmentStore[RemoteSegment],
    copies: Sequence[RemoteSegment],
    *,
    check: Callable[[], None] = lambda: None,
) -> Iterator[RemoteSegment]:
    """Delete copies in any state, in an order that may be interrupted anywhere.

        DELETE_STARTED      recorded for all copies by one commit: readers of the log ignore them
        manifests           deleted: readers of the bucket alone don't find the copies any more
        logs                deleted
        DELETE_FINISHED     recorded, and the copies are removed from the metadata

    After an interruption another process finds DELETE_STARTED and continues; missing objects are
    ignored. Before the deletion, the log start must have been raised above the copies, or other
    copies must contain their offsets: see plan.unreferenced_segments.

    Args:
        commits: The log.
        clock: The time of the records.
        store: The store of the copies.
        copies: The copies.
        check: Called before each step, also by `store`. An error of `check`, such as a lost lease,
            ends the deletion.

    Yields:
        Each copy when DELETE_FINISHED is recorded.

    Raises:
        StorageUnavailableError: The copies remain in DELETE_STARTED, for a later call.
    """
    for first in range(0, len(copies), _DELETED_TOGETHER):
        step = copies[first : first + _DELETED_TOGETHER]
        check()
        begun = [s.become(SegmentState.DELETE_STARTED, clock()) for s in step]
        fresh = [s for s, before in zip(begun, step, strict=True) if s.state is not before.state]
        if fresh:
            publish(commits, clock, fresh)
        store.delete(begun, check=check)
        check()
        done = [s.become(SegmentState.DELETE_FINISHED, clock()) for s in begun]
        publish(commits, clock, done)
        yield from done
