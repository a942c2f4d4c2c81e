"""Metrics of this process's writes to a log: commits, syncs, replays, failures."""

import contextlib
import os
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Final

from sparklog.clock import monotonic_ms
from sparklog.errors import SparklogError, StorageUnavailableError
from sparklog.metrics import BYTES, SECONDS, Kind, Meters, Metric, meters

COMMIT_SECONDS: Final = Metric(
    "sparklog_process_commit_duration_seconds",
    Kind.HISTOGRAM,
    "Time of a commit, from asking for the write lock until readers see it; of this process.",
    buckets=SECONDS,
)
CHUNK_BYTES: Final = Metric(
    "sparklog_process_chunk_bytes",
    Kind.HISTOGRAM,
    "Size of the chunks (one task's records for one partition) that this process committed.",
    buckets=BYTES,
)
REPLAYS: Final = Metric(
    "sparklog_process_replayed_commits_total",
    Kind.COUNTER,
    "Commits of this process that were dropped, because they were in the log already.",
)
COMMIT_ERRORS: Final = Metric(
    "sparklog_process_commit_errors_total",
    Kind.COUNTER,
    "Commits of this process that were refused or failed, by the error's class.",
    ("error",),
)
FLUSH: Final = Metric(
    "kafka_log_logflushstats_logflushrateandtimems",
    Kind.SUMMARY,
    "Time (ms) of a partition's fsync; of this process.",
    kafka="kafka.log:type=LogFlushStats,name=LogFlushRateAndTimeMs",
)
UNWRITABLE: Final = Metric(
    "sparklog_process_write_failed",
    Kind.GAUGE,
    "1 if this process's last write to the log dir failed, 0 once one has succeeded.",
    ("logDirectory",),
)
LOGS_TO_RECOVER: Final = Metric(
    "kafka_log_logmanager_remaininglogstorecover",
    Kind.GAUGE,
    "Partitions that wait for their recovery after an unclean stop; of this process.",
    ("dir",),
    kafka="kafka.log:type=LogManager,name=remainingLogsToRecover",
)
SEGMENTS_TO_RECOVER: Final = Metric(
    "kafka_log_logmanager_remainingsegmentstorecover",
    Kind.GAUGE,
    "Segments that a recovery thread still has to read of the partition at hand; of this process.",
    ("dir", "threadNum"),
    kafka="kafka.log:type=LogManager,name=remainingSegmentsToRecover",
)

METRICS: Final = (
    COMMIT_SECONDS, CHUNK_BYTES, REPLAYS, COMMIT_ERRORS, FLUSH, UNWRITABLE, LOGS_TO_RECOVER,
    SEGMENTS_TO_RECOVER,
)  # fmt: skip


class WriteMeters:
    """The metrics of a log's writer. They are looked up once, so that commits stay fast."""

    def __init__(self, directories: list[str], mark: Callable[[int, bool], None]) -> None:
        """Look up the metrics of a log's writer.

        `mark(number, failing)` shows other processes whether writing to log dir `number` failed.
        """
        self._directories, self._mark = directories, mark
        self._marked: set[str] = set()
        self.all: Meters = meters(directories[0])
        self._commit = self.all.histogram(COMMIT_SECONDS)
        self._chunk = self.all.histogram(CHUNK_BYTES)
        self._flush = self.all.summary(FLUSH)
        self._failed = self.all.gauge(UNWRITABLE)
        self.replays = self.all.counter(REPLAYS)
        self.errors = self.all.counter(COMMIT_ERRORS)
        self._logs_to_recover = self.all.gauge(LOGS_TO_RECOVER)
        self._segments_to_recover = self.all.gauge(SEGMENTS_TO_RECOVER)

    @contextlib.contextmanager
    def committing(self) -> Iterator[None]:
        """Count errors that are raised within the context."""
        try:
            yield
        except SparklogError as error:
            self.errors.add(1, type(error).__name__)
            raise

    def committed(self, began_ms: float, sizes: Iterable[int]) -> None:
        """Record a commit that began at `began_ms` (monotonic), and the sizes of its chunks."""
        self._commit.observe((monotonic_ms() - began_ms) / 1000)
        for size in sizes:
            self._chunk.observe(size)

    def replayed(self) -> None:
        """Count a replay: a commit that is in the log already."""
        self.replays.add()

    @contextlib.contextmanager
    def flushing(self) -> Iterator[None]:
        """Measure the time of a partition's sync."""
        began = monotonic_ms()
        yield
        self._flush.observe(monotonic_ms() - began)

    @contextlib.contextmanager
    def recovering(self, homes: Iterable[str]) -> Iterator[Callable[[str], None]]:
        """Show as a metric how many partitions are left to recover, by log dir, within the context.

        `homes` has the log dir of each partition to recover. Yields a function to call with the log
        dir of each recovered partition.
        """
        counts = Counter(homes)
        for home, count in counts.items():
            self._logs_to_recover.set(count, home)
        try:
            yield lambda home: self._logs_to_recover.add(-1, home)
        finally:  # also after an error
            for home in counts:
                self._logs_to_recover.set(0, home)
            for sample in self._segments_to_recover.samples():
                self._segments_to_recover.set(0, *sample.labels)

    def segments_remain(self, home: str, thread: str, count: int) -> None:
        """Record how many segments of the log dir `home` a recovery thread still has to read."""
        self._segments_to_recover.set(count, home, thread)

    @contextlib.contextmanager
    def writing(self) -> Iterator[None]:
        """Mark the log dir as failing if a StorageUnavailableError is raised in the context."""
        try:
            yield
        except StorageUnavailableError as error:
            self.failed(error)
            raise

    def wrote(self, places: Collection[str]) -> None:
        """Clear the failure marks of log dirs after a successful step.

        `places` are the directories of the partitions that were written. The first log dir is
        included.
        """
        # The usual case, in which commits should take no lock on the marks.
        if not self._marked and not any(map(self._failed.value, self._directories)):
            return
        for directory in {self._directories[0], *map(os.path.dirname, places)}:
            if self._failed.value(directory):
                self._failed.set(0, directory)
            if directory in self._marked:
                self._marked.discard(directory)
                self._mark(self._directories.index(directory), False)

    def failed(self, error: BaseException) -> None:
        """Record a failed step. If the disk failed, mark the log dir that the error names.

        If it names none, the first log dir is marked.
        """
        if isinstance(error, StorageUnavailableError):
            text = str(error)
            # The error does not have the log dir as a value; its text starts with the path of the
            # file.
            named = [d for d in self._directories if f"{d}/" in text or text.endswith(d)]
            for directory in named or self._directories[:1]:
                self._failed.set(1, directory)
                self._marked.add(directory)
                self._mark(self._directories.index(directory), True)
