"""Observes a log in a store by its state, whoever writes it: asks for the ledger's news alone."""

import logging
import threading
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, Final

from sparklog.clock import Clock, monotonic_ms
from sparklog.common import TopicPartition
from sparklog.config import LogOptions
from sparklog.diskless.home import DisklessHome, open_log
from sparklog.diskless.home_object import known_home
from sparklog.diskless.retention import due_extents
from sparklog.diskless.state import DisklessState, partitions_of
from sparklog.errors import SparklogError
from sparklog.log.due_segments import RetentionConstraints
from sparklog.log.group_lag import retention_floors
from sparklog.lru_cache import LruCache
from sparklog.service.metrics.ledger import CommitCounts
from sparklog.service.metrics.observed import (
    DirectoryMetrics,
    LogMetrics,
    MergeMetrics,
    PartitionMetrics,
    ReaderMetrics,
    WriterMetrics,
)
from sparklog.service.tiering.remote_log_manager import OpenStore
from sparklog.storage.groups import Readers, is_expired
from sparklog.storage.ledger_records import AppendRecord
from sparklog.tiered.layout.object_names import Directory
from sparklog.tiered.reading.options import RemoteOptions

_LOGGER = logging.getLogger("sparklog.service")
_TIMES: Final = 10_000
HISTORY: Final = 1024
"""Entries of before the first look whose commits count, where they are asked for."""
_HOLDER: Final = ("pid", "host", "since_ms")


class StoreObserver:
    """A `sparklog.service.metrics.observed.LogObserver` of a log in a store.

    It opens the log for reading, beside whoever works on it, at the first look.
    """

    def __init__(
        self,
        path: str,
        url: str,
        *,
        history: bool = False,
        options: Mapping[str, object] | None = None,
        storage_options: Mapping[str, Any] | None = None,
        clock: Clock,
        opening: OpenStore,
    ) -> None:
        """`history`: count the commits of the last HISTORY entries at the first look."""
        self.path, self.directories = path, [url]
        self._url, self._storage_options, self._opening = url, storage_options, opening
        self._remote, rest = RemoteOptions.parse(options or {})
        self._rest, self._clock = rest, clock
        self._kept_ms = LogOptions.parse(rest).offsets_retention_ms
        self._mutex = threading.Lock()
        self._home: DisklessHome | None = None
        self._counts = CommitCounts()
        self._counted = -1  # entries below it are counted; -1: nothing was looked at yet
        self._history = HISTORY if history else 0
        self._times = LruCache[int, int](_TIMES)
        self._error = ""

    def observe(self) -> LogMetrics:
        """Return what the ledger says now; what can't be read is told in `errors`.

        Cost: two gets, and one for each new entry; for each partition one, of its oldest piece; for
        each group one, and their listing. At first a state and the entries since.
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
                if str(error) != self._error:  # once, not at every scrape
                    _LOGGER.warning("%s: metrics are incomplete: %s", self.path, error)
                self._error = str(error)
            found.directories = self._directories()
            found.took_ms = monotonic_ms() - began
            return found

    def observe_directories(self) -> list[DirectoryMetrics]:
        """Return the store, and why it can't be read. Cost: two gets."""
        with self._mutex:
            try:
                home = self._opened()
                home.head.follow(home.objects.retry)
                self._error = ""
            except (SparklogError, OSError) as error:
                self._error = str(error)
            return self._directories()

    def _directories(self) -> list[DirectoryMetrics]:
        return [DirectoryMetrics(self._url, None, self._error)]

    def _opened(self) -> DisklessHome:
        """The log that lies there now: where it was replaced, what is known tells of another."""
        if self._home is not None:
            objects, log_id = self._home.objects, self._home.identity
            if objects.retry.call(lambda: known_home(objects.store)).log_id == log_id:
                return self._home
            self._home, self._counts, self._counted = None, CommitCounts(), -1
            self._times = LruCache(_TIMES)
        log = open_log(
            self._url, options=self._rest, remote=self._remote, clock=self._clock,
            store=self._opening(self._url, self._storage_options),
        )  # fmt: skip
        assert isinstance(log.home, DisklessHome)
        self._home = log.home
        return log.home

    def _observe(self, found: LogMetrics) -> None:
        home = self._opened()
        state = home.head.follow(home.objects.retry)
        self._count(home, state)
        found.commits, found.term = self._counts.commits, state.term
        found.holder = {name: state.holder[name] for name in _HOLDER if name in state.holder}
        found.last_commit_ms = state.log.time_ms or None
        found.writers = [
            WriterMetrics(name, last.batch, last.time_ms)
            for name, last in sorted(state.log.writers.items())
        ]
        times = partial(self._time_of, home)
        found.merges = list(self._merges(state, found.time_ms, times))
        readers = home.groups.readers()
        found.readers = list(self._readers(state, readers, found.time_ms))
        found.damaged_readers = len(readers.damaged)
        floors = retention_floors(
            state.log, readers, now_ms=found.time_ms, retention_ms=self._kept_ms
        )
        found.partitions = list(self._partitions(state, floors, found.time_ms, times))

    def _count(self, home: DisklessHome, state: DisklessState) -> None:
        """Count the commits since the last look; a restart counts nothing twice."""
        end = state.next_number
        first = self._counted if self._counted >= 0 else max(0, end - self._history)
        records = list(home.ledger.records(first, end))  # all of them, or none is counted
        self._counted = end
        for _, record in records:
            if isinstance(record, AppendRecord):
                self._counts.count(record)

    def _partitions(
        self,
        state: DisklessState,
        floors: Mapping[TopicPartition, int],
        now_ms: int,
        time_of: Callable[[int], int],
    ) -> Iterator[PartitionMetrics]:
        terms = {key: RetentionConstraints(floor) for key, floor in floors.items()}
        due = due_extents(state, terms, now_ms=now_ms, time_of=time_of)
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

    def _merges(
        self, state: DisklessState, now_ms: int, time_of: Callable[[int], int]
    ) -> Iterator[MergeMetrics]:
        for name, topic in sorted(state.log.topics.items()):
            pieces = [
                extent
                for partition in topic.dirs
                for extent in state.extents.get(TopicPartition(name, partition), ())
                if not extent.segment
            ]
            oldest = min((extent.born for extent in pieces), default=-1)
            age_ms = max(0, now_ms - time_of(oldest)) if pieces else 0
            size = sum(extent.size for extent in pieces)
            yield MergeMetrics(name, size, age_ms)

    def _time_of(self, home: DisklessHome, number: int) -> int:
        found = self._times.get(number)
        if found is None:
            entries = home.head.entries
            (entry,) = home.objects.retry.call(lambda: entries.known([number]))
            found = entry.record.time_ms
            self._times.put(number, found)
        return found

    def _readers(
        self, state: DisklessState, readers: Readers, now_ms: int
    ) -> Iterator[ReaderMetrics]:
        for reader in readers.groups:
            for key, at in sorted(reader.offsets.items()):
                end = state.log.ends.get(key)
                lag = None if end is None else max(0, end - at.offset)
                expired = is_expired(at.time_ms, now_ms, self._kept_ms)
                yield ReaderMetrics(
                    reader.group, reader.kind, *key, at.offset, lag, at.time_ms, expired
                )
