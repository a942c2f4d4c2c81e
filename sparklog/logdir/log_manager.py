"""The partition logs of an open log in log dirs: their state, the ledger, and the lock's page.

Recovery, redo and the commit log use this class. The class makes no decisions and takes no lock:
the caller has the write lock (`sparklog.logdir.commit_log`).
"""

import contextlib
import logging
import os

from sparklog.clock import Clock
from sparklog.common import TopicPartition
from sparklog.config import LogOptions
from sparklog.errors import DataCorruptionError, StorageUnavailableError, UnknownTopicError
from sparklog.fs import FileSystem, LockFile
from sparklog.logdir.intent import Intent
from sparklog.logdir.ledger import LedgerWriter, fold, ledger_config, ledger_path
from sparklog.logdir.lock import LogLock, Page, State
from sparklog.logdir.log_dirs import LogDirUnnamedError
from sparklog.logdir.meters import WriteMeters
from sparklog.logdir.offline_partitions import OfflinePartitions
from sparklog.logdir.partition.directories import remove_tree
from sparklog.logdir.partition.partition_log import PartitionLog
from sparklog.logdir.partition_writers import PartitionWriters
from sparklog.logdir.topics_file import partition_path
from sparklog.storage.log_state import LogState

_LOGGER = logging.getLogger(__name__)


class LogManager:
    """The state of an open log in log dirs, and its open partition logs.

    State, ledger and partition logs are those of `generation` (the number in the lock's page that
    increases with each change of the log) while `is_current` is True.

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
        self.ledger: LedgerWriter
        self.generation = self.era = 0
        self.is_current = False  # whether state, ledger and writers belong to `generation`
        self.offline = OfflinePartitions(fs, directories)
        self.writers = PartitionWriters(
            fs, clock, producer_id_expiration_ms=options.producer_id_expiration_ms
        )
        self.brokers_out = brokers_out
        self.doomed: set[str] = set()
        """Unused directories that `remove_doomed` removes without the lock."""

    @property
    def home(self) -> str:
        """The first log dir, which contains sparklog's own files."""
        return self.directories[0]

    def reload(self, ledger_end: int, *, generation: int, fresh: bool = False) -> None:
        """Bring the known state up to date with the ledger, and close all partition logs.

        Only the ledger's new records are read if the known state is a valid earlier state.

        Args:
            ledger_end: The end offset of the ledger up to which records are applied.
            generation: The generation of the log that the new state belongs to.
            fresh: Read the whole ledger, because its history may have been cut.

        Raises:
            LogDirUnnamedError: The ledger names a log dir that this handle was not given. No file
                was recovered or written.
        """
        known = self.ledger.end if self.is_current and not fresh else -1
        self.forget()
        if known < 0:
            self.writers.drop()  # the history may have been cut
        if not 0 <= known <= ledger_end:
            self.state, known = LogState(), -1
        first = None if known < 0 else known
        fold(self.fs, self.home, ledger_end, state=self.state, first=first)
        log = PartitionLog(
            self.fs,
            ledger_path(self.home),
            ledger_config(),
            self.clock,
            end_offset=ledger_end,
            plain=True,
        )
        self.ledger = LedgerWriter(log)
        self.generation, self.is_current = generation, True
        # Last, because the folded state is needed for the check; before any recovery, because a
        # recovery without a log dir would declare its partitions missing.
        self._check_all_named()

    def _check_all_named(self) -> None:
        """Raise LogDirUnnamedError if partitions are in log dirs that this handle was not given."""
        count = len(self.directories)
        for name, topic in self.state.topics.items():
            for partition, number in topic.dirs.items():
                if number >= count:
                    self.is_current, self.state = False, LogState()  # incomplete
                    self.offline.read_dirs()
                    place = self.offline.dirs.place(number)
                    raise LogDirUnnamedError(TopicPartition(name, partition), number, place)

    def forget(self) -> None:
        """Mark the state as outdated and close all partition logs; the next `refresh` reloads."""
        self.is_current = False
        self.forget_writers()

    def forget_writers(self) -> None:
        """Close all partition logs, because configs or starts changed."""
        self.writers.forget(self.state.topics)

    def partition_log(self, topic: str, partition: int) -> PartitionLog:
        """Return the log of a partition, for appends within a step.

        Raises:
            UnknownTopicError: The log has no such partition.
            DataCorruptionError: The partition is offline.
        """
        key = TopicPartition(topic, partition)
        if key in self.offline:
            raise self.offline[key]
        log = self.writers.get(key)
        if log is None:
            log = self.writers.load(key, self.partition_path(*key), self.state)
            # A new record after a missing segment would hide the loss: check before the first
            # append.
            self._check_whole(key, log)
            self.writers.add(key, log, self.state.topics[topic])
        return log

    def partition_path(self, topic: str, partition: int) -> str:
        """Return a partition's directory.

        Raises:
            UnknownTopicError: The topic or partition does not exist.
        """
        state = self.state.topics.get(topic)
        if state is None or partition not in state.dirs:
            reason = (
                "the topic does not exist"
                if state is None
                else f"the topic has partitions {sorted(state.dirs)}"
            )
            raise UnknownTopicError(f"{topic}-{partition} is not in {self.home}: {reason}")
        return partition_path(self.directories, topic, state, partition)

    def _mark(self, number: int, failing: bool) -> None:
        with contextlib.suppress(StorageUnavailableError, ValueError):  # closed: no mark left
            self.lock.mark(number, failing=failing)

    def idle(self) -> None:
        """Write the lock's page as IDLE, with a new generation, which invalidates all caches."""
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

    def remove_doomed(self) -> None:
        """Remove the directories in `doomed`, which are out of use. Needs no lock.

        A failure is logged, and the removal is tried again later.
        """
        while self.doomed:
            path = self.doomed.pop()
            try:
                remove_tree(self.fs, path)
            except StorageUnavailableError as error:
                _LOGGER.warning("%s stays for now: %s", path, error)

    def size_on_disk(self, key: TopicPartition, log: PartitionLog) -> int:
        """Return the size of a partition's active segment; see `PartitionLog.size_on_disk`.

        Raises:
            PartitionOfflineError: The files of the partition `key` are missing.
        """
        try:
            return log.size_on_disk()
        except FileNotFoundError:
            if key not in self.state.ends:
                raise
            raise self._files_removed(key) from None

    def _check_whole(self, key: TopicPartition, log: PartitionLog) -> None:
        """Raise PartitionOfflineError if a partition lacks its first segments.

        Called before the first append to a partition.
        """
        try:
            is_short = log.first_base > self.state.local_start(*key)
        except (FileNotFoundError, DataCorruptionError):
            if self.offline.missing(self.state, key) is None:
                raise
            is_short = True
        if is_short:
            raise self._files_removed(key)

    def _files_removed(self, key: TopicPartition) -> DataCorruptionError:
        """Return the error for a partition of which the files were removed just now."""
        self.forget_writers()  # a cached writer may have the old path
        self.offline.read_dirs()
        error = self.offline.missing(self.state, key)
        if error is None:  # the files exist again
            path = self.partition_path(*key)
            return DataCorruptionError("the files are being replaced; try again", path=path)
        self.offline.add(key, error)
        return error
