"""Sizes, rates and lags of topics, cached and refreshed at a limited rate.

A rate is the increase of the high watermarks between two refreshes, so no rate is known before the
second refresh.
"""

import threading
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

import pyarrow as pa

from sparklog.clock import Clock, monotonic_ms, system_clock
from sparklog.common import TopicPartition
from sparklog.errors import SparklogError, StorageUnavailableError
from sparklog.log.log import Log, view_of
from sparklog.log.partition_reader import reader_of
from sparklog.storage.view import TopicInfo

_WINDOW_MS: Final = 60_000  # for rates
_AGAIN_MS: Final = 2000
_FRESH_MS: Final = 10_000  # maximum age of a topic's size
_REST: Final = 5  # minimum pause as a multiple of a refresh's duration
_PATIENCE_S: Final = 5.0  # for the first refresh by another thread
CHECK_MS: Final = 3000  # time limit for listing segments in one refresh
_KNOWN_MAX: Final = 100_000  # topics whose sizes are cached


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionFigures:
    """The offsets [start, end) and the size of a partition.

    Attributes:
        remote_segments: The number of segments without a local copy.
        offline: Why the partition can't be read, or None. The size of an offline partition is
            unknown.
    """

    partition: int
    start: int = 0
    end: int = 0
    size_bytes: int | None = None
    segments: int | None = None
    remote_segments: int = 0
    directory: str = ""
    offline: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicFigures:
    """The statistics of a topic.

    Attributes:
        info: Name, id, partitions and configs.
        records: The number of offsets from the log start to the high watermark, over all
            partitions. A compacted topic has fewer records.
        size_bytes: The size of all segments, or None before the first listing.
        rate: Records per second over the last minute, or None before the second refresh.
        readers: The number of registered readers.
        lag: The lag of the slowest reader, summed over all partitions.
    """

    info: TopicInfo
    records: int
    size_bytes: int | None = None
    rate: float | None = None
    readers: int = 0
    lag: int | None = None

    @property
    def name(self) -> str:
        return self.info.name

    @property
    def offline(self) -> int:
        """The number of partitions that can't be read."""
        return len(self.info.offline)


class Figures:
    """Cached statistics of a log's topics, refreshed on request. Thread-safe."""

    def __init__(self, clock: Clock = system_clock) -> None:
        self._clock = clock
        self._mutex = threading.Lock()
        self._known: list[TopicFigures] = []
        self._fresh_until_ms = 0.0
        self._ends: deque[tuple[float, dict[str, int]]] = deque()
        self._own_mutex = threading.Lock()
        self._own_ends: dict[str, deque[tuple[float, int]]] = {}  # recorded by `topic`
        self._sizes: dict[str, tuple[float, int | None]] = {}  # topic id: (time of listing, bytes)

    def topics(self, log: Log, stopped: Callable[[], bool] = lambda: False) -> list[TopicFigures]:
        """Return the statistics of all topics, sorted by name, at most a few seconds old.

        Cost: one read of the watermarks, and about 0.1 ms per segment. A refresh lists segments for
        at most 3 s, and starts with the oldest sizes.

        Raises:
            SparklogError, OSError: The topics can't be listed.
        """
        if self._known and monotonic_ms() < self._fresh_until_ms:
            return self._known
        if not self._mutex.acquire(timeout=0 if self._known else _PATIENCE_S):
            if self._known:  # another thread is refreshing; return its previous result
                return self._known
            raise StorageUnavailableError("the topics are still being read: try again")
        try:
            if not self._known or monotonic_ms() >= self._fresh_until_ms:
                began = monotonic_ms()
                self._known = self._look(log, stopped)
                took = monotonic_ms() - began
                self._fresh_until_ms = monotonic_ms() + max(_AGAIN_MS, _REST * took)
            return self._known
        finally:
            self._mutex.release()

    def topic(
        self, log: Log, name: str, stopped: Callable[[], bool] = lambda: False
    ) -> TopicFigures:
        """Return the current statistics of a topic, without reading the other topics.

        Cost: a listing of the log dirs, and a listing per partition of this topic unless its size
        is recent.

        Raises:
            UnknownTopicError: The topic does not exist.
            SparklogError, OSError: The topic can't be read.
        """
        info = log.topic(name)
        spans = spans_of(log, {name: info})[name]
        now, end = monotonic_ms(), sum(end for _, end in spans.values())
        with self._own_mutex:
            own = self._own_ends.setdefault(name, deque())
            while own and own[0][0] < now - _WINDOW_MS:
                own.popleft()
            before = [(at, ends[name]) for at, ends in list(self._ends) if name in ends]
            then, was = min([*(one for one in before if one[0] >= now - _WINDOW_MS), *own],
                            default=(now, end))  # fmt: skip
            own.append((now, end))
        looked_ms, size = self._sizes.get(info.id, (-_FRESH_MS, None))
        # A page that refreshes every few seconds must not list all segments each time.
        if now - looked_ms >= _FRESH_MS:
            self._list_sizes(log, {name: info}, stopped)
            size = self._sizes.get(info.id, (0.0, None))[1]
        groups, lag = _lags(reader_rows(log, name)).get(name, (0, None))
        return TopicFigures(
            info=info,
            records=sum(max(end - start, 0) for start, end in spans.values()),
            size_bytes=size,
            # A high watermark that fell belongs to another topic or log of the same name.
            rate=(end - was) / (now - then) * 1000 if now > then and end >= was else None,
            readers=groups,
            lag=lag,
        )

    def _look(self, log: Log, stopped: Callable[[], bool]) -> list[TopicFigures]:
        infos = log.topics()
        spans = spans_of(log, infos)
        now = monotonic_ms()
        ends = {name: sum(end for _, end in of.values()) for name, of in spans.items()}
        while self._ends and self._ends[0][0] < now - _WINDOW_MS:
            self._ends.popleft()
        then, before = self._ends[0] if self._ends else (now, {})
        self._ends.append((now, ends))
        self._list_sizes(log, infos, stopped)
        readers = _lags(reader_rows(log))
        found = []
        for name, info in sorted(infos.items()):
            records = sum(max(end - start, 0) for start, end in spans[name].values())
            risen = ends[name] - before[name] if name in before else -1
            groups, lag = readers.get(name, (0, None))
            found.append(
                TopicFigures(
                    info=info,
                    records=records,
                    size_bytes=self._sizes.get(info.id, (0.0, None))[1],
                    rate=risen / (now - then) * 1000 if now > then and risen >= 0 else None,
                    readers=groups,
                    lag=lag,
                )
            )
        return found

    def _list_sizes(
        self, log: Log, infos: Mapping[str, TopicInfo], stopped: Callable[[], bool]
    ) -> None:
        until = monotonic_ms() + CHECK_MS
        if len(self._sizes) > _KNOWN_MAX:  # deleted topics are never removed one by one
            self._sizes.clear()
        oldest_first = sorted(infos.values(), key=lambda i: self._sizes.get(i.id, (0.0, None))[0])
        for info in oldest_first:
            if monotonic_ms() >= until or stopped():
                return
            found = [partition_figures(log, info, p, (0, 0)) for p in sorted(info.dirs)]
            sizes = [one.size_bytes for one in found if one.size_bytes is not None]
            whole = sum(sizes) if sizes or not found else None
            self._sizes[info.id] = monotonic_ms(), whole


def spans_of(log: Log, infos: Mapping[str, TopicInfo]) -> dict[str, dict[int, tuple[int, int]]]:
    """Return {topic: {partition: (log start, high watermark)}}.

    Partitions that can't be read are left out.
    """
    found: dict[str, dict[int, tuple[int, int]]] = {name: {} for name in infos}
    keys = [TopicPartition(name, p) for name, info in infos.items() for p in info.dirs]
    try:
        spans = view_of(log).spans(keys)
    except (SparklogError, FileNotFoundError):
        # One unreadable partition fails the whole call, so read the others one by one.
        spans = {}
        for key in keys:
            try:
                spans |= view_of(log).spans([key])
            except (SparklogError, FileNotFoundError):
                continue
    for key, span in spans.items():
        found[key.topic][key.partition] = span
    return found


def partition_figures(
    log: Log, info: TopicInfo, partition: int, span: tuple[int, int]
) -> PartitionFigures:
    """Return the statistics of a partition. `offline` is set if the partition can't be read.

    `span`: its log start and high watermark. Cost: a listing, and a stat per segment.
    """
    figures = PartitionFigures(
        partition=partition, start=span[0], end=span[1], directory=info.dirs.get(partition, "")
    )
    if partition in info.offline:
        return replace(figures, offline=info.offline[partition].reason)
    try:
        segments = reader_of(view_of(log), info.name, partition).segments.metadata()
    except (SparklogError, FileNotFoundError) as error:
        return replace(figures, offline=str(error))
    return replace(
        figures,
        size_bytes=sum(one.size for one in segments),
        segments=len(segments),
        remote_segments=sum(not one.local for one in segments),
    )


def _lags(rows: Iterable[dict[str, Any]]) -> dict[str, tuple[int, int | None]]:
    """Return {topic: (number of groups, largest lag of a group)}, ignoring expired groups."""
    topics: dict[str, dict[str, int | None]] = {}
    for row in rows:
        if row["topic"] is not None and not row["expired"]:
            lags = topics.setdefault(row["topic"], {})
            lag, group = row["lag"], row["group"]
            lags[group] = lags.get(group) if lag is None else (lags.get(group) or 0) + lag
    return {
        topic: (len(lags), max((lag for lag in lags.values() if lag is not None), default=None))
        for topic, lags in topics.items()
    }


def reader_rows(log: Log, topic: str | None = None) -> list[dict[str, Any]]:
    """Return the rows of `Log.readers` as dicts; an empty list if the readers can't be read.

    `topic`: restrict to this topic. `time` is in ms since the epoch.
    """
    try:
        table = log.readers(topic)
        times = table.schema.get_field_index("time")
        rows: list[dict[str, Any]] = table.set_column(
            times, "time", table.column(times).cast(pa.int64())
        ).to_pylist()
    except (SparklogError, FileNotFoundError):
        return []
    return rows
