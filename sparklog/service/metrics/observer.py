"""Observes a log from its files, even if other processes write it, without locks or writes.

An observer caches results, so that repeated observations cost a stat per partition and the new
ledger records. A directory that a broker owns, or wrote to since sparklog closed it, is read as
`Log` reads it, which is slower: it lists every partition.
"""

import contextlib
import logging
import os
import threading
from collections.abc import Iterator, Mapping

from sparklog.clock import Clock, monotonic_ms, system_clock
from sparklog.common import TopicPartition
from sparklog.config import LogOptions
from sparklog.errors import InvalidRequestError, SparklogError
from sparklog.format.names import log_name
from sparklog.fs import LOCAL, FileSystem
from sparklog.log.due_segments import DueSegments, LocalSegment, RetentionConstraints
from sparklog.log.group_lag import retention_floors
from sparklog.log.topic_names import REMOTE_METADATA
from sparklog.logdir.broker_lockout import is_marked_open, was_closed_by_us
from sparklog.logdir.group_offsets import GroupFiles
from sparklog.logdir.high_watermarks import published
from sparklog.logdir.ledger import (
    LEDGER,
    has_ledger,
    ledger_bases,
    ledger_config,
    ledger_path,
    whole_end,
)
from sparklog.logdir.lock import Page, State, is_failing, peek
from sparklog.logdir.log_dir_identity import LogDirIdentity
from sparklog.logdir.log_dirs import find_dirs
from sparklog.logdir.partition.partition_segments import LogDirSegments
from sparklog.logdir.paths import split_path
from sparklog.logdir.retention.due_partitions import DuePartitions
from sparklog.logdir.retention.partition_retention import PartitionRetention, retention_of
from sparklog.logdir.segment_files import joined
from sparklog.logdir.topics_file import partition_path
from sparklog.logdir.view import LogDirView
from sparklog.service.announcement_file import AnnouncementFile
from sparklog.service.metrics.awaiting_deletion import DeletedFiles
from sparklog.service.metrics.batches import TOPICS_A_LOOK, TOPICS_ONCE, BatchObserver
from sparklog.service.metrics.ledger import LedgerTail
from sparklog.service.metrics.observed import (
    DirectoryMetrics,
    LogDetail,
    LogMetrics,
    PartitionMetrics,
    ReaderMetrics,
    WriterMetrics,
)
from sparklog.service.metrics.tiers import TierObserver
from sparklog.storage.group_store import Groups
from sparklog.storage.groups import Readers, is_expired
from sparklog.storage.log_state import LogState
from sparklog.tiered.settings import read_settings, settings_missing

_LOGGER = logging.getLogger("sparklog.service")


class Observer:
    """Observes a log repeatedly. Thread-safe; concurrent calls run in sequence.

    Args:
        history: Count all commits in the ledger at the first observation.
        batches: Sample the newest batches of topics.
        options: Options of `sparklog.open`. Only offsets.retention.minutes has an effect.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        history: bool = False,
        batches: bool = True,
        options: Mapping[str, object] | None = None,
        fs: FileSystem = LOCAL,
        clock: Clock = system_clock,
    ) -> None:
        self.path = os.fspath(path)
        self.directories = split_path(path)
        self._fs, self._clock, self._history = fs, clock, history
        self._topics_max = 0 if not batches else TOPICS_ONCE if history else TOPICS_A_LOOK
        self._kept_ms = LogOptions.parse(options or {}).offsets_retention_ms
        self._mutex = threading.Lock()
        self._known_error = ""
        self._valid_copies = LogDirIdentity(fs, self.directories)
        self._start_over()

    def _start_over(self) -> None:
        self._tail = LedgerTail(self._fs, self.directories[0], history=self._history)
        self._due_partitions = DuePartitions(self._fs)
        self._sizes: dict[TopicPartition, tuple[list[LocalSegment], int, int]] = {}
        self._tiers: TierObserver | None = None
        self._batches = BatchObserver(self._clock, topics_max=self._topics_max)
        self._deleted_files = DeletedFiles(self._fs)

    def observe(self) -> LogMetrics:
        """Return the current state. Parts that can't be read are missing, and reported in `errors`.

        Raises: no error of the log: if it was deleted, its log dirs are offline.
        Cost: the first call lists every partition, about 0.2 ms each. Later calls take about 20 us
            per partition, 1 ms per new segment, and 10 ms for the batch samples of each of up to 16
            topics that were written to.
        """
        with self._mutex:
            began = monotonic_ms()
            found = LogMetrics(path=self.path, time_ms=self._clock())
            found.directories = self.observe_directories()
            found.errors += [f"{d.directory}: {d.error}" for d in found.directories if d.error]
            if not self._valid_copies.is_current():  # replaced: cached results are of another log
                self._valid_copies.renew()
                self._start_over()
            try:
                self._observe(found)
            except (SparklogError, OSError) as error:
                found.note(error)
                self._start_over()
            self._warn_once(found)
            found.took_ms = monotonic_ms() - began
            return found

    def _warn_once(self, found: LogMetrics) -> None:
        """Log errors once, not at every scrape."""
        now = "; ".join(found.errors)
        if now != self._known_error:
            self._known_error = now
            if now:
                _LOGGER.warning("%s: metrics are incomplete: %s", self.path, now)

    def observe_directories(self) -> list[DirectoryMetrics]:
        """Return the log dirs, and why they can't be read. Cost: a listing and a statvfs each."""
        return [self._directory(*numbered) for numbered in enumerate(self.directories)]

    def _directory(self, number: int, directory: str) -> DirectoryMetrics:
        try:
            absent = self._absent(number)
            if number in absent:
                return DirectoryMetrics(directory, None, absent[number])
            self._fs.listdir(directory)
            failing = is_failing(self._fs, self.directories[0], number)
            return DirectoryMetrics(directory, self._fs.free_bytes(directory), failing=failing)
        except FileNotFoundError:
            return DirectoryMetrics(directory, None, "it does not exist: is its disk mounted?")
        except (SparklogError, OSError) as error:
            return DirectoryMetrics(directory, None, str(error))

    def _absent(self, number: int) -> dict[int, str]:
        """Return {number of a log dir: why it is missing}.

        If the first log dir has no ledger, only this log dir is reported: the others can't be
        judged.
        """
        try:
            return find_dirs(self._fs, self.directories).absent
        except InvalidRequestError as error:
            if number and not has_ledger(self._fs, self.directories[0]):
                return {}
            return {number: str(error)}

    def _observe(self, found: LogMetrics) -> None:
        fs, home = self._fs, self.directories[0]
        page = peek(fs, home)
        if page is not None:
            found.offline = {
                TopicPartition(*key): str(error) for key, error in page.offline.items()
            }
        try:
            settings = read_settings(fs, home)
            found.remote_url = None if settings is None else settings.url
        except SparklogError as error:
            found.note(error)
            found.tier_fault = str(error)
        readers = Groups(GroupFiles(fs, home)).readers()
        state = self._state(page)
        if state is None:
            ids, places = self._as_seen()
            floors: dict[TopicPartition, int] = {}
        else:
            ids = {name: topic.id for name, topic in state.topics.items()}
            places = self._places(state)
            floors = retention_floors(
                state, readers, now_ms=found.time_ms, retention_ms=self._kept_ms
            )
            found.commits, found.last_commit_ms = self._tail.commits, state.time_ms or None
            with self._noting(found):
                fault = self._tail.history_fault()
                if fault is not None:
                    found.errors.append(str(fault))
            found.writers = [
                WriterMetrics(name, last.batch, last.time_ms, state.query_name(name))
                for name, last in sorted(state.writers.items())
            ]
        terms = {key: RetentionConstraints(floor) for key, floor in floors.items()}
        tiers = self._tiering(found, ids, places)
        if tiers is not None:
            terms = tiers.terms(ids, places, floors)
        due = self._due_partitions.due(places, terms, now_ms=found.time_ms)
        held = {key: h for key in places if (h := self._due_partitions.held(key)) is not None}
        paces = {r.group: r.commit_rate for r in readers.groups if r.commit_rate is not None}
        found.detail = LogDetail(trail=self._tail.trail, paces=paces, held=held, places=places)
        missed: list[TopicPartition] = []
        found.partitions = list(self._partitions(places, held, due, missed))
        announced = AnnouncementFile(fs, home).read().get("segment", {})
        found.note_first_deletions(due, ids, announced)
        quiet = page is None or page.state is State.IDLE
        if missed and quiet and peek(fs, home) == page:
            # The page is unchanged, so no writer has deleted the files.
            names = (f"{t}-{p}" for t, p in missed if (t, p) not in found.offline)
            found.errors += [f"{name}: its files could not be read" for name in names]
        with self._noting(found):  # the page may be older, if the log was not opened since
            missing = LogDirView(fs, self.directories).offline()
            found.offline |= {key: str(error) for key, error in missing.items()}
        available = [one.directory for one in found.directories if not one.error]
        with self._noting(found):
            found.awaiting_deletion += self._deleted_files.observe(available, places, held)
        if tiers is not None:
            held_topics = {} if state is None else state.deleted
            with self._noting(found):
                found.tiers = tiers.observe(ids, places, held, held_topics)
                found.awaiting_deletion += tiers.awaiting_deletion
        found.batches = self._batches.observe(
            {key: (place.log_start, place.end) for key, place in places.items()},
            lambda key: LogDirSegments(fs, places[key].directory),
        )
        found.readers = list(self._readers(readers, places, found.time_ms))
        found.damaged_readers = len(readers.damaged)

    @contextlib.contextmanager
    def _noting(self, found: LogMetrics) -> Iterator[None]:
        try:
            yield
        except (SparklogError, OSError) as error:
            found.note(error)

    # --- offsets and topics --------------------------------------------------------------------

    def _state(self, page: Page | None) -> LogState | None:
        """Return the state according to the ledger.

        Returns None without a ledger, or if a broker may have written to the log since sparklog
        closed it.
        """
        fs, home = self._fs, self.directories[0]
        if not has_ledger(fs, home):
            return None
        own = find_dirs(fs, self.directories).own
        if not is_marked_open(fs, home) and not was_closed_by_us(fs, own):
            return None
        if page is not None and page.state is State.IDLE:
            return self._tail.catch_up(page.ledger_end)
        marks = published(fs, home)
        end = None if marks is None else marks.ends.get(LEDGER)
        return self._tail.catch_up(whole_end(fs, home) if end is None else end)

    def _places(self, state: LogState) -> dict[TopicPartition, PartitionRetention]:
        places: dict[TopicPartition, PartitionRetention] = {}
        for name, topic in state.topics.items():
            config = topic.parsed()
            for partition, number in topic.dirs.items():
                if number >= len(self.directories):
                    continue  # the path lacks its log dir; the view reports it as offline
                key = TopicPartition(name, partition)
                directory = partition_path(self.directories, name, topic, partition)
                places[key] = retention_of(state, key, directory, config)
        home = self.directories[0]
        bases = ledger_bases(self._fs, home)
        places[TopicPartition(*LEDGER)] = PartitionRetention(
            ledger_path(home), ledger_config(), bases[0] if bases else 0, self._tail.at
        )
        return places

    def _as_seen(self) -> tuple[dict[str, str], dict[TopicPartition, PartitionRetention]]:
        view = LogDirView(self._fs, self.directories)
        topics = view.topics()
        keys = [TopicPartition(name, p) for name, info in topics.items() for p in info.dirs]
        if not keys:
            return {}, {}
        spans = view.spans(keys)
        return {name: info.id for name, info in topics.items()}, {
            TopicPartition(name, p): PartitionRetention(
                topics[name].dirs[p], topics[name].config, start, end, gaps=True
            )
            for (name, p), (start, end) in spans.items()
        }

    def _tiering(
        self,
        found: LogMetrics,
        ids: Mapping[str, str],
        places: Mapping[TopicPartition, PartitionRetention],
    ) -> TierObserver | None:
        tiered = any(p.config.remote_storage_enable for p in places.values())
        metadata = places.get(TopicPartition(REMOTE_METADATA, 0))
        knows_copies = metadata is not None and metadata.end > 0
        if found.remote_url is None and found.tier_fault is None and knows_copies:
            found.tier_fault = str(settings_missing(self.directories[0]))
        if not tiered and found.remote_url is None:
            return None
        if self._tiers is None:
            self._tiers = TierObserver(self._fs, self._clock, self.directories)
        try:
            self._tiers.catch_up()
            if knows_copies and found.tier_fault is None:
                found.tier_fault = self._tiers.fault(ids, places, self._published_starts)
        except (SparklogError, OSError) as error:
            found.note(error)
            found.tier_fault = found.tier_fault or str(error)
        return self._tiers

    def _published_starts(self) -> Mapping[TopicPartition, int]:
        marks = published(self._fs, self.directories[0])
        return {} if marks is None else marks.starts

    # --- rows ----------------------------------------------------------------------------------

    def _partitions(
        self,
        places: Mapping[TopicPartition, PartitionRetention],
        held: Mapping[TopicPartition, list[LocalSegment]],
        due: Mapping[TopicPartition, DueSegments | None],
        missed: list[TopicPartition],
    ) -> Iterator[PartitionMetrics]:
        self._sizes = {key: seen for key, seen in self._sizes.items() if key in places}
        for key in sorted(places):
            place, segments, overdue = places[key], held.get(key), due.get(key)
            size = None if segments is None else self._size(key, place, segments)
            if segments is None or size is None:
                missed.append(key)
                continue
            late = sum(e.bytes for e in overdue.expired) if overdue is not None else 0
            yield PartitionMetrics(
                *key, place.directory, size, len(segments), place.log_start, place.end, late
            )

    def _size(
        self, key: TopicPartition, place: PartitionRetention, segments: list[LocalSegment]
    ) -> int | None:
        seen = self._sizes.get(key)
        if seen is not None and seen[0] is segments and seen[1] == place.end:
            return seen[2]
        active = joined(place.directory, log_name(segments[-1].base)) if segments else ""
        try:
            size = sum(s.size for s in segments[:-1]) + (self._fs.size(active) if active else 0)
        except (SparklogError, FileNotFoundError):
            return None
        self._sizes[key] = segments, place.end, size
        return size

    def _readers(
        self, readers: Readers, places: Mapping[TopicPartition, PartitionRetention], now_ms: int
    ) -> Iterator[ReaderMetrics]:
        for reader in readers.groups:
            for key, at in sorted(reader.offsets.items()):
                place = places.get(key)
                lag = None if place is None else max(0, place.end - at.offset)
                expired = is_expired(at.time_ms, now_ms, self._kept_ms)
                yield ReaderMetrics(
                    reader.group, reader.kind, *key, at.offset, lag, at.time_ms, expired,
                    reader.name,
                )  # fmt: skip
