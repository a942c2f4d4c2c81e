"""Observes a log in a bucket from its state and new entries, even if other processes write it."""

import logging
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Any, Final

from sparklog.clock import Clock, monotonic_ms
from sparklog.common import TopicPartition
from sparklog.config import LogOptions
from sparklog.diskless.compacted_partitions import compacted_partitions
from sparklog.diskless.erasure_notes import unfinished_erasures
from sparklog.diskless.home import DisklessHome, open_log
from sparklog.diskless.home_object import known_home, write_refusal
from sparklog.diskless.lease import ServiceNotes, sign_of_life
from sparklog.diskless.missing_objects import UnreadableExtent, unreadable_extents
from sparklog.diskless.retention import due_extents
from sparklog.diskless.state import DisklessState, partitions_of
from sparklog.errors import DataCorruptionError, SparklogError, StorageUnavailableError
from sparklog.log.due_segments import DueSegments, RetentionConstraints
from sparklog.log.group_lag import retention_floors
from sparklog.log.log import home_of
from sparklog.log.partition_reader import reader_of
from sparklog.lru_cache import LruCache
from sparklog.service.metrics.batches import BatchObserver
from sparklog.service.metrics.commit_trail import CommitTrail
from sparklog.service.metrics.ledger import CommitCounts
from sparklog.service.metrics.observed import (
    AwaitingDeletion,
    CompactedMetrics,
    DirectoryMetrics,
    LogDetail,
    LogMetrics,
    MergeMetrics,
    PartitionMetrics,
    ReaderMetrics,
    WriterMetrics,
)
from sparklog.storage.groups import Readers, is_expired
from sparklog.storage.ledger_records import AppendRecord
from sparklog.storage.unfinished_erasure import UnfinishedErasure
from sparklog.tiered.layout.object_names import Directory
from sparklog.tiered.object_store.store import Store
from sparklog.tiered.reading.options import RemoteOptions

_LOGGER = logging.getLogger("sparklog.service")
_TIMES: Final = 10_000
HISTORY: Final = 1024
"""Entries before the first observation whose commits are counted with `history`."""
_TOPICS: Final = 4  # topics to sample per observation: each partition costs some GETs
_REST_MS: Final = 600_000
_LIST_MS: Final = 60_000  # interval of listing incomplete erasures
_OBJECTS_MS: Final = 600_000  # interval of checking that the state's objects exist
_HOLDER: Final = ("pid", "host", "since_ms")


class StoreObserver:
    """A `sparklog.service.metrics.observed.LogObserver` of a log in a bucket.

    Opens the log for reading at the first observation.
    """

    def __init__(
        self,
        path: str,
        url: str,
        *,
        history: bool = False,
        trail_entries: int = 0,
        batches: bool = True,
        options: Mapping[str, object] | None = None,
        clock: Clock,
        connect: Callable[[], Store],
    ) -> None:
        """Create an observer, which sends no request yet.

        Args:
            history: Count the commits of the last HISTORY entries at the first observation.
            trail_entries: The minimum number of earlier entries in the trail of commits.
            batches: Sample the newest batches of topics.
            connect: Opens the bucket.
        """
        self.path, self.directories = path, [url]
        self._url, self._connect = url, connect
        self._remote, rest = RemoteOptions.parse(options or {})
        self._rest, self._clock = rest, clock
        self._kept_ms = LogOptions.parse(rest).offsets_retention_ms
        self._mutex = threading.Lock()
        self._home: DisklessHome | None = None
        self._counts = CommitCounts()
        self._counted = -1  # entries below this number are counted; -1: none yet
        self._history, self._trail_entries = HISTORY if history else 0, trail_entries
        self._trail = CommitTrail()
        self._times = LruCache[int, int](_TIMES)
        self._error = ""
        self._begun: list[UnfinishedErasure] = []
        self._listed_at = float("-inf")
        self._unreadable: list[UnreadableExtent] = []
        self._looked_at = float("-inf")
        self._topics_max = _TOPICS if batches else 0
        self._batches = BatchObserver(clock, topics_max=self._topics_max, rest_ms=_REST_MS)

    def observe(self) -> LogMetrics:
        """Return the current state. Parts that can't be read are reported in `errors`.

        Cost: three GETs, a GET for each new entry and for each group, and a listing of the groups;
            many at a time a GET for each topic with unmerged extents, and for each partition that
            is due for cleaning. The first call also reads a state and the entries since. Every ten
            minutes a few more for the batch samples of up to four topics that were written to.
        """
        with self._mutex:
            began = monotonic_ms()
            found = LogMetrics(path=self.path, time_ms=self._clock(), home=self._url)
            found.remote_url = self._url
            try:
                self._observe(found)
                self._error = ""
            except (SparklogError, OSError) as error:
                found.note(error)
                if str(error) != self._error:  # log once, not at every scrape
                    _LOGGER.warning("%s: metrics are incomplete: %s", self.path, error)
                self._error = str(error)
            found.directories = self._directories()
            found.took_ms = monotonic_ms() - began
            return found

    def observe_directories(self) -> list[DirectoryMetrics]:
        """Return the bucket, and why it can't be read. Cost: two GETs."""
        with self._mutex:
            try:
                home = self._opened()
                home.head.follow(home.objects.retry)
                self._error = ""
            except (SparklogError, OSError) as error:
                self._error = str(error)
            return self._directories()

    def write_refusal(self) -> StorageUnavailableError | None:
        """Return why the store refuses writes of this process, or None if the store accepts them.

        Raises:
            StorageUnavailableError: The store did not answer.

        Cost:
            As of `sparklog.diskless.home_object.write_refusal`, and a GET at the first call.
        """
        with self._mutex:
            if self._home is None:
                self._home = self._opened()
            return write_refusal(self._home.objects.store, str(self._home.identity), self._clock)

    def _directories(self) -> list[DirectoryMetrics]:
        return [DirectoryMetrics(self._url, None, self._error)]

    def _opened(self) -> DisklessHome:
        """Return the log; if it was replaced, open the new log and drop cached results."""
        if self._home is not None:
            objects, log_id = self._home.objects, self._home.identity
            if objects.retry.call(lambda: known_home(objects.store)).log_id == log_id:
                return self._home
            self._home, self._counts, self._counted = None, CommitCounts(), -1
            self._trail = CommitTrail()
            self._times = LruCache(_TIMES)
            self._batches = BatchObserver(
                self._clock, topics_max=self._topics_max, rest_ms=_REST_MS
            )
        log = open_log(
            self._url, options=self._rest, remote=self._remote, clock=self._clock,
            store=self._connect(),
        )  # fmt: skip
        home = home_of(log)
        assert isinstance(home, DisklessHome)
        self._home = home
        return home

    def _observe(self, found: LogMetrics) -> None:
        home = self._opened()
        state = home.head.follow(home.objects.retry)
        try:
            self._count(home, state)
        except DataCorruptionError as error:  # in old entries, which no reader needs
            found.note(error)
        found.commits, found.term = self._counts.commits, state.term
        found.holder = {name: state.holder[name] for name in _HOLDER if name in state.holder}
        found.last_commit_ms = state.log.time_ms or None
        found.writers = [
            WriterMetrics(name, last.batch, last.time_ms, state.log.query_name(name))
            for name, last in sorted(state.log.writers.items())
        ]
        times = partial(self._time_of, home)
        unreadable = self._unreadable_partitions(home, state)
        found.merges = list(self._merges(home, state, found.time_ms))
        readers = home.groups.readers()
        found.readers = list(self._readers(state, readers, found.time_ms))
        found.damaged_readers = len(readers.damaged)
        paces = {r.group: r.commit_rate for r in readers.groups if r.commit_rate is not None}
        sign = home.objects.retry.call(lambda: sign_of_life(home.objects.store, state.term))
        found.awaiting_deletion = _awaiting_deletion(state, ServiceNotes.parse(sign))
        compacted = self._compacted(home, state, sign, found.time_ms)
        found.detail = LogDetail(
            trail=self._trail, paces=paces, sign=sign, compacted=compacted,
            erasures=self._begun_erasures(home, state), unreadable=unreadable,
        )  # fmt: skip
        floors = retention_floors(
            state.log, readers, now_ms=found.time_ms, retention_ms=self._kept_ms
        )
        terms = {key: RetentionConstraints(floor) for key, floor in floors.items()}
        due = due_extents(state, terms, now_ms=found.time_ms, time_of=times)
        found.partitions = list(self._partitions(state, due))
        ids = {name: topic.id for name, topic in state.log.topics.items()}
        announced = ServiceNotes.parse(sign).announced.get("segment", {})
        found.note_first_deletions(due, ids, announced)
        found.batches = self._batches.observe(
            {
                TopicPartition(p.topic, p.partition): (p.log_start_offset, p.log_end_offset)
                for p in found.partitions
            },
            lambda key: reader_of(home.view, *key).segments,
        )

    def _begun_erasures(self, home: DisklessHome, state: DisklessState) -> list[UnfinishedErasure]:
        """Return the incomplete erasures of existing topics.

        Cost: a list request per minute, a GET for each.
        """
        if monotonic_ms() - self._listed_at >= _LIST_MS:
            store = home.objects.store
            self._begun = home.objects.retry.call(lambda: unfinished_erasures(store))
            self._listed_at = monotonic_ms()
        ids = {topic.id for topic in state.log.topics.values()}
        return [one for one in self._begun if one.topic_id in ids]

    def _unreadable_partitions(
        self, home: DisklessHome, state: DisklessState
    ) -> dict[TopicPartition, str]:
        """Return {partition: reason} of partitions with missing or truncated objects.

        Leaves out extents that have been replaced by then. Cost: `unreadable_extents` every ten
        minutes.
        """
        store = home.objects.store
        if monotonic_ms() - self._looked_at >= _OBJECTS_MS:
            self._unreadable = home.objects.retry.call(lambda: unreadable_extents(store, state))
            self._looked_at = monotonic_ms()
        if not self._unreadable:
            return {}
        state = home.head.follow(home.objects.retry)
        return {
            each.key: f"{store.url}/{each.object}: {each.why}"
            for each in reversed(self._unreadable)
            if each.extent in state.extents.get(each.key, ())
        }

    def _count(self, home: DisklessHome, state: DisklessState) -> None:
        """Count the commits since the last call; a restart counts no commit twice."""
        end = state.next_number
        counted = self._counted if self._counted >= 0 else max(0, end - self._history)
        first = counted if self._counted >= 0 else max(0, min(counted, end - self._trail_entries))
        records = list(home.ledger.records(first, end))  # read all before any is counted
        self._counted = end
        for number, record in records:
            self._trail.add(record)
            self._times.put(number, record.time_ms)
            if isinstance(record, AppendRecord) and number >= counted:
                self._counts.count(record)

    def _partitions(
        self, state: DisklessState, due: Mapping[TopicPartition, DueSegments]
    ) -> Iterator[PartitionMetrics]:
        for key in partitions_of(state):
            extents = state.extents.get(key, ())
            place = Directory(*key, state.log.topics[key.topic].id).prefix.rstrip("/")
            late = sum(one.bytes for one in due[key].expired) if key in due else 0
            yield PartitionMetrics(
                *key,
                f"{self._url}/{place}",
                sum(extent.size for extent in extents),
                len(extents),
                state.log.starts.get(key, 0),
                state.log.ends[key],
                late,
                sum(not extent.segment for extent in extents),
            )

    def _compacted(
        self, home: DisklessHome, state: DisklessState, sign: Mapping[str, Any], now_ms: int
    ) -> dict[TopicPartition, CompactedMetrics]:
        """Return how dirty partitions are, as the cleaner judges.

        This is an approximation: a segment's first record counts as old as its newest record.
        """
        parts = list(
            compacted_partitions(
                state, ServiceNotes.parse(sign).cleaned, now_ms=now_ms,
                time_of=partial(self._time_of, home),
                earliest=lambda extent: extent.max_timestamp,
            )
        )  # fmt: skip
        newest = {p.key: p.newest for p in parts if p.wanted}
        times = self._times_of(home, {one.born for one in newest.values() if one is not None})
        return {
            part.key: CompactedMetrics(
                part.dirt,
                part.key in newest,
                now_ms if (one := newest.get(part.key)) is None else times[one.born],
            )
            for part in parts
        }

    def _merges(
        self, home: DisklessHome, state: DisklessState, now_ms: int
    ) -> Iterator[MergeMetrics]:
        pieces = {
            name: [
                extent
                for partition in topic.dirs
                for extent in state.extents.get(TopicPartition(name, partition), ())
                if not extent.segment
            ]
            for name, topic in sorted(state.log.topics.items())
        }
        oldest = {name: min(one.born for one in some) for name, some in pieces.items() if some}
        times = self._times_of(home, set(oldest.values()))
        for name, some in pieces.items():
            age_ms = max(0, now_ms - times[oldest[name]]) if some else 0
            yield MergeMetrics(name, sum(one.size for one in some), age_ms)

    def _time_of(self, home: DisklessHome, number: int) -> int:
        return self._times_of(home, [number])[number]

    def _times_of(self, home: DisklessHome, numbers: Iterable[int]) -> dict[int, int]:
        """Return {entry: time in ms}. Cost: a GET for each unknown entry, many at a time."""
        found = {number: self._times.get(number) for number in numbers}
        asked = sorted(number for number, time_ms in found.items() if time_ms is None)
        try:
            entries = home.objects.retry.call(lambda: home.head.entries.known(asked))
        except DataCorruptionError:  # `_count` reports it; assume that the entry is recent
            return dict.fromkeys(found, home.head.state.log.time_ms)
        for number, entry in zip(asked, entries, strict=True):
            self._times.put(number, entry.record.time_ms)
            found[number] = entry.record.time_ms
        return {number: time_ms for number, time_ms in found.items() if time_ms is not None}

    def _readers(
        self, state: DisklessState, readers: Readers, now_ms: int
    ) -> Iterator[ReaderMetrics]:
        for reader in readers.groups:
            for key, at in sorted(reader.offsets.items()):
                end = state.log.ends.get(key)
                lag = None if end is None else max(0, end - at.offset)
                expired = is_expired(at.time_ms, now_ms, self._kept_ms)
                yield ReaderMetrics(
                    reader.group, reader.kind, *key, at.offset, lag, at.time_ms, expired,
                    reader.name,
                )  # fmt: skip


def _awaiting_deletion(state: DisklessState, notes: ServiceNotes) -> list[AwaitingDeletion]:
    """Return the bytes of deleted topics, and of segments that services noted for deletion."""
    sizes: dict[tuple[str, str], int] = {}
    for topic_id, parts in state.deleted.items():
        held = sum(extent.size for extents in parts.extents.values() for extent in extents)
        topic = state.log.deleted[topic_id].name, "topic"
        sizes[topic] = sizes.get(topic, 0) + held
    for name, size in notes.let_go_bytes.values():
        sizes[name, "segment"] = sizes.get((name, "segment"), 0) + size
    return [
        AwaitingDeletion(topic, kind, "local", size)
        for (topic, kind), size in sorted(sizes.items())
        if size
    ]
