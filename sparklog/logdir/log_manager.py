"""The partition logs of a handle on a log dir: the folded state, and the cached writers.

Recovery, redo and the commit log use this class. The class makes no decisions and takes no lock:
the caller has the write lock (`sparklog.logdir.commit_log`).
"""

import contextlib
import logging
import os
from collections.abc import Mapping

from sparklog.clock import Clock
from sparklog.common import TopicPartition
from sparklog.config import LogOptions, TopicConfig
from sparklog.errors import (
    DataCorruptionError,
    InvalidRequestError,
    StorageUnavailableError,
    UnknownTopicError,
)
from sparklog.fs import FileSystem, LockFile
from sparklog.log.producer_state import ProducerState
from sparklog.log.topic_names import INTERNAL
from sparklog.logdir.file_sync import FileSync
from sparklog.logdir.intent import Intent
from sparklog.logdir.ledger import Ledger, fold, ledger_config, ledger_path
from sparklog.logdir.lock import LogLock, Page, State
from sparklog.logdir.log_dirs import LogDirs, LogDirUnnamedError, find_dirs
from sparklog.logdir.meters import WriteMeters
from sparklog.logdir.offline_partitions import missing
from sparklog.logdir.partition.directories import is_empty, remove_tree
from sparklog.logdir.partition.partition_log import PartitionLog
from sparklog.logdir.topics_file import deleted_path, partition_path
from sparklog.storage.ledger_records import TopicRecord, UndeleteRecord
from sparklog.storage.log_state import LogState
from sparklog.storage.topic_state import TopicState

_LOGGER = logging.getLogger(__name__)


class LogManager:
    """The known and open partitions of a log; current as of `generation` while `_loaded`.

    Source: LogManager (Kafka 4.1), which has the same role for a broker's log dirs.
    """

    def __init__(
        self,
        fs: FileSystem,
        clock: Clock,
        directories: list[str],
        options: LogOptions,
        brokers_out: list[LockFile],
    ) -> None:
        self.fs, self.clock, self.directories, self.options = fs, clock, directories, options
        self.lock = LogLock(fs, directories[0], timeout_ms=options.lock_timeout_ms)
        self.state = LogState()
        self.meters = WriteMeters(directories, self._mark)
        self.ledger: Ledger
        self.generation = self.era = 0
        self._loaded = False  # whether state, ledger and writers belong to `generation`
        self.offline: dict[TopicPartition, DataCorruptionError] = {}
        self.dirs = LogDirs()
        self.brokers_out = brokers_out
        self._writers: dict[TopicPartition, PartitionLog] = {}
        self._producers: dict[TopicPartition, tuple[str, ProducerState]] = {}
        """By partition: topic id, and producers at a committed end, from earlier writers."""
        self.file_sync = FileSync()
        self.doomed: set[str] = set()
        """Unused directories that `remove_doomed` removes without the lock."""

    @property
    def home(self) -> str:
        """The first log dir, which contains sparklog's own files."""
        return self.directories[0]

    @property
    def present(self) -> list[str]:
        """The available log dirs; sparklog neither reads nor writes the others."""
        return self.dirs.present(self.directories)

    @property
    def sync(self) -> bool:
        """Whether commits are fsynced (flush=commit)."""
        return self.options.flush == "commit"

    @property
    def is_current(self) -> bool:
        """Whether the last step is published.

        If not, the next holder of the lock completes the step.
        """
        return self._loaded

    def reload(self, ledger_end: int, *, generation: int, fresh: bool = False) -> None:
        """Clear all caches and fold the ledger up to `ledger_end` (only new records if possible).

        Raises: LogDirUnnamedError, before any file is recovered or written.
        """
        known = self.ledger.end if self._loaded and not fresh else -1
        self.forget()
        if known < 0:
            self._producers.clear()  # the history may have been cut
        if not 0 <= known <= ledger_end:
            self.state, known = LogState(), -1
        first = None if known < 0 else known
        fold(self.fs, self.home, ledger_end, state=self.state, first=first)
        log = self._open(ledger_path(self.home), ledger_config(), ledger_end, 0, plain=True)
        self.ledger = Ledger(log)
        self.generation, self._loaded = generation, True
        self._check_all_named()

    def _check_all_named(self) -> None:
        """Raise LogDirUnnamedError if partitions are in log dirs that this handle was not given."""
        count = len(self.directories)
        for name, topic in self.state.topics.items():
            for partition, number in topic.dirs.items():
                if number >= count:
                    self._loaded, self.state = False, LogState()  # incomplete
                    place = self.read_dirs().place(self.directories, number)
                    raise LogDirUnnamedError(TopicPartition(name, partition), number, place)

    def forget(self) -> None:
        """Make the next `refresh` reload everything."""
        self._loaded = False
        self.forget_writers()

    def forget_writers(self) -> None:
        """Close cached writers, because configs or starts changed; they are reopened on demand."""
        for key, log in self._writers.items():
            topic, producers = self.state.topics.get(key.topic), log.known_producers
            if topic is not None and producers is not None:
                self._producers[key] = topic.id, producers
        self._writers.clear()

    def drop_writers(self) -> None:
        """Close cached writers and forget their producers, because their changes were undone."""
        self._writers.clear()
        self._producers.clear()

    def open_writers(self) -> list[PartitionLog]:
        """Return the cached writers. The caller must have the lock."""
        return list(self._writers.values())

    def writer(self, topic: str, partition: int) -> PartitionLog:
        """Return the partition's writer. Use it within a step only.

        Raises: UnknownTopicError, or DataCorruptionError if the partition is offline.
        """
        key = TopicPartition(topic, partition)
        if key in self.offline:
            raise self.offline[key]
        log = self._writers.get(key)
        if log is None:
            path = self.partition_path(*key)
            config, start = self.state.topics[topic].parsed(), self.state.starts.get(key, 0)
            known = self.state.topics[topic].adopted or key in self.state.idempotent
            log = self._open(path, config, self.state.ends[key], start, plain=not known)
            log.tail_crc = self.state.tails.get(key, -1)
            self._check_whole(key, log)
            topic_id, producers = self._producers.pop(key, ("", None))
            if producers is not None and topic_id == self.state.topics[topic].id:
                log.continue_from(producers)
            self._writers[key] = log
        return log

    def _open(
        self, path: str, config: TopicConfig, end: int, start: int, *, plain: bool
    ) -> PartitionLog:
        return PartitionLog(
            self.fs,
            path,
            config,
            self.clock,
            end_offset=end,
            start_offset=start,
            producer_id_expiration_ms=self.options.producer_id_expiration_ms,
            plain=plain,
        )

    def partition_path(self, topic: str, partition: int) -> str:
        """Return a partition's directory. Raises: UnknownTopicError."""
        state = self.state.topics.get(topic)
        if state is None or partition not in state.dirs:
            reason = "no such topic" if state is None else f"it has partitions {sorted(state.dirs)}"
            raise UnknownTopicError(f"{topic}-{partition} is not in {self.home}: {reason}")
        return partition_path(self.directories, topic, state, partition)

    def _mark(self, number: int, failing: bool) -> None:
        with contextlib.suppress(StorageUnavailableError, ValueError):  # closed: no mark left
            self.lock.mark(number, failing=failing)

    def idle(self) -> None:
        """Mark the log as consistent; a new generation invalidates other processes' caches."""
        self.generation += 1
        self.write_page(State.IDLE)

    def write_page(self, state: State, intent: Intent | None = None) -> None:
        """Write the lock's page: BUSY with an intent, IDLE, or FULL for a full recovery."""
        page = Page(
            state=state,
            pid=os.getpid(),
            generation=self.generation,
            ledger_end=self.ledger.end,
            era=self.era,
            intent=intent,
            offline=self.offline,
        )
        with self.meters.writing():
            self.lock.write(page)

    # --- new partitions ------------------------------------------------------------------------

    def placement(self, partitions: range) -> dict[int, int]:
        """Assign new partitions to the log dirs with the fewest partitions.

        Source: LogManager.nextLogDirs.
        """
        counts = dict.fromkeys((number for number, _ in self.dirs.numbered(self.directories)), 0)
        for topic in self.state.topics.values():
            for number in topic.dirs.values():
                if number in counts:
                    counts[number] += 1
        chosen = {}
        for partition in partitions:
            number = min(counts, key=lambda n: (counts[n], n))
            counts[number] += 1
            chosen[partition] = number
        return chosen

    def new_paths(self, record: TopicRecord) -> dict[int, str]:
        """Return the paths at which a topic record's new partitions are to be created.

        Leftovers of an interrupted creation of an internal topic are removed.
        Raises: InvalidRequestError: a path exists.
        """
        topic = TopicState(record.id, dict(record.config), dict(record.dirs))
        paths = {p: partition_path(self.directories, record.topic, topic, p) for p in record.bases}
        for path in paths.values():
            if record.topic in INTERNAL and self.fs.is_dir(path) and is_empty(self.fs, path):
                remove_tree(self.fs, path)
            if self.fs.exists(path):
                raise InvalidRequestError(
                    f"{path} exists and is in no topic of this log: move it away, nothing was made"
                )
        return paths

    def make_partitions(self, record: TopicRecord, paths: Mapping[int, str]) -> None:
        """Create the directories of a topic record's new partitions, durably."""
        config = TopicConfig.parse(record.config)
        for p, path in paths.items():
            PartitionLog.create(
                self.fs,
                path,
                topic=record.topic,
                partition=p,
                topic_id=record.id,
                config=config,
                clock=self.clock,
                start_offset=record.bases[p],
            ).sync()
        for directory in sorted({os.path.dirname(path) for path in paths.values()}):
            self.fs.sync_dir(directory)

    def check_restorable(self, record: UndeleteRecord) -> None:
        """Raise InvalidRequestError unless a deleted topic is complete and the paths are free."""
        deleted, directories = self.state.deleted[record.id], self.directories
        for p, number in deleted.topic.dirs.items():
            why = self.dirs.why_absent(directories, number)
            if why is None:
                path = deleted_path(directories, deleted.name, deleted.topic, p)
                why = None if self.fs.is_dir(path) else f"{path} is gone"
            if why is not None:
                raise InvalidRequestError(
                    f"topic {deleted.name} can't be restored completely: "
                    f"{deleted.name}-{p}: {why}; bring it  back and try again. Nothing was changed"
                )
            path = partition_path(directories, record.topic, deleted.topic, p)
            if self.fs.exists(path):
                raise InvalidRequestError(
                    f"{path} exists and is in no topic of this log: move it away, nothing was "
                    "changed"
                )

    def remove_doomed(self) -> None:
        """Remove unused directories; failures are retried later. Needs no lock."""
        while self.doomed:
            path = self.doomed.pop()
            try:
                remove_tree(self.fs, path)
            except StorageUnavailableError as error:
                _LOGGER.warning("%s stays for now: %s", path, error)

    # --- missing partitions --------------------------------------------------------------------

    def missing(
        self, key: TopicPartition, *, number: int | None = None, segments: bool = True
    ) -> DataCorruptionError | None:
        """Return why a partition can't be used; see `offline_partitions.missing`."""
        return missing(
            self.fs, self.directories, self.dirs, self.state, key, number=number, segments=segments
        )

    def note_missing(self, *, segments: bool) -> bool:
        """Take missing partitions offline. Return True if more partitions are offline than before.

        Cost: a stat and a small file per partition, and a listing with `segments`.
        """
        before = len(self.offline)
        for key in self.state.ends:
            if TopicPartition(*key) not in self.offline:
                error = self.missing(key, segments=segments)
                if error is not None:
                    self.go_offline(key, error)
        return len(self.offline) > before

    def go_offline(self, key: TopicPartition, error: DataCorruptionError) -> None:
        """Take a partition offline, and log a message."""
        self.offline[TopicPartition(*key)] = error
        _LOGGER.critical("%s-%d is offline: %s", *key, error)

    def size_on_disk(self, key: TopicPartition, log: PartitionLog) -> int:
        """Return `PartitionLog.size_on_disk`.

        Raises: PartitionOfflineError: the files are missing.
        """
        try:
            return log.size_on_disk()
        except FileNotFoundError:
            if key not in self.state.ends:
                raise
            raise self._files_removed(key) from None

    def _check_whole(self, key: TopicPartition, log: PartitionLog) -> None:
        """Raise PartitionOfflineError if a partition to write to has missing segments."""
        try:
            is_short = log.first_base > self.state.local_start(*key)
        except (FileNotFoundError, DataCorruptionError):
            if self.missing(key) is None:
                raise
            is_short = True
        if is_short:
            raise self._files_removed(key)

    def _files_removed(self, key: TopicPartition) -> DataCorruptionError:
        """Return the error for a partition of which the files were removed just now."""
        self.forget_writers()  # a cached writer may have the old path
        self.dirs = self.read_dirs()
        error = self.missing(key)
        if error is None:  # the files exist again
            path = self.partition_path(*key)
            return DataCorruptionError("its files are being replaced; try again", path=path)
        self.go_offline(key, error)
        return error

    def read_dirs(self) -> LogDirs:
        """Find out again which log dirs are available, for recovery. Never raises.

        A log dir that was absent stays absent until `recovery.returned_partitions` includes it.
        """
        try:
            found = find_dirs(self.fs, self.directories)
        except InvalidRequestError as error:  # their partitions are identified by topic ids
            _LOGGER.warning("%s: %s", self.home, error)
            return self.dirs
        found.absent = {**self.dirs.absent, **found.absent}
        return found
