"""The commit log of a log dir: ordered changes, under the write lock.

Every change of a log is a *step* under the write lock:

    with commits.exclusive():                # LOCK: undoes or completes a dead holder's step
        with commits.step(...) as step:   # the intent, then the header BUSY
            ...append, make, sync...
            step.record = ...             # the ledger record = the commit point
        # effects of the record, watermarks, header IDLE, a new generation

A step that fails before its record is durable is undone. A step that fails after it is completed by
the next holder of the lock. Source: PROTOCOL, "LOCK" and "COMMIT".
"""

import contextlib
import logging
import os
import threading
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import replace

from sparklog.common import TopicPartition
from sparklog.config import TopicConfig
from sparklog.errors import (
    DataCorruptionError,
    InvalidRequestError,
    LogReplacedError,
    SparklogError,
)
from sparklog.log.timeline import find_abandoned
from sparklog.logdir.chunk_appends import (
    advance_recovery_points,
    append_chunks,
    append_time,
    check_producers,
    check_room,
    sync_logs,
)
from sparklog.logdir.file_sync import FileSync
from sparklog.logdir.intent import Intent
from sparklog.logdir.ledger import LEDGER, LedgerFiles, LedgerWriter
from sparklog.logdir.lock import State
from sparklog.logdir.log_manager import LogManager
from sparklog.logdir.partition.partition_log import PartitionLog
from sparklog.logdir.partition.segment_swap import SegmentSwap
from sparklog.logdir.partition_creation import (
    check_restorable,
    make_partitions,
    new_paths,
    placement,
)
from sparklog.logdir.recovery import log_recovery
from sparklog.logdir.recovery.redo import publish_all, redo_record
from sparklog.logdir.recovery.returned_partitions import restore_returned
from sparklog.logdir.staging import discard_chunks
from sparklog.logdir.state_copy import write_state_copy
from sparklog.storage.commits import Change, Chunk, DuplicateAppend, PositionMovedError
from sparklog.storage.leader_epochs import new_epoch
from sparklog.storage.ledger_records import (
    AppendRecord,
    DropRecord,
    LedgerRecord,
    PurgeRecord,
    ResetRecord,
    StartRecord,
    TopicRecord,
    UndeleteRecord,
)
from sparklog.storage.log_state import LogState
from sparklog.storage.segments import StaleReadError

_LOGGER = logging.getLogger(__name__)


class Step:
    """A change in progress.

    Attributes:
        record: The ledger record of the change, which the caller sets before the block ends.
    """

    def __init__(self) -> None:
        self.record: LedgerRecord | None = None
        self.written: LedgerRecord | None = None
        """The record as written to the ledger, after the block."""


class LogDirCommits:
    """The commit log of log dirs: a handle with which a process changes a log.

    A `sparklog.storage.commits.CommitLog`. Threads may share it; forked child processes may not.
    """

    def __init__(self, manager: LogManager) -> None:
        self.manager = manager
        self.fs, self.clock, self.options = manager.fs, manager.clock, manager.options
        self.directories, self.home = manager.directories, manager.home
        self.lock, self.meters, self.offline = manager.lock, manager.meters, manager.offline
        self._file_sync = FileSync()
        self._mutex = threading.Lock()
        self._closed = False
        self._turn_of: int | None = None  # the thread that is within `exclusive`
        self.reported_gaps: set[str] = set()
        self.lost: str | None = None
        """Why the log can't be used any more, or closed: it was replaced."""
        self.moving: Callable[[LogDirCommits], None] | None = None  # set when the log is open

    # --- the write lock ----------------------------------------------------------------------

    @contextlib.contextmanager
    def exclusive(self) -> Iterator[None]:
        """Acquire the write lock, and bring the state up to date: recover, or apply new records."""
        with self.hold_lock():
            with self.meters.writing():
                self.refresh()
            self._turn_of = threading.get_ident()
            try:
                yield
            finally:
                self._turn_of = None
        # After the lock is released: removing large trees takes long, and no other session needs
        # them.
        self.manager.remove_doomed()

    @contextlib.contextmanager
    def hold_lock(self) -> Iterator[None]:
        """Acquire the write lock, without reading the page (for opening and closing).

        If the path names the same log in other files, for example a restored copy, the session
        continues there.

        Raises:
            LogReplacedError: The path names no log any more, another log, or an older copy of the
                log.
        """
        self.lock.check_process()  # before the mutex, which may have been locked at the fork
        with self._mutex:
            self.check_open()
            try:
                self.lock.acquire()
                if self.moving is not None and not self._is_in_place():
                    self.moving(self)
                yield
            except LogReplacedError as error:
                if self.lock.replaced:  # permanent, unlike a missing directory
                    self._lose(str(error))
                raise
            finally:
                if not self._closed:
                    self.lock.release()

    def _is_in_place(self) -> bool:
        """Return True if no log dir was replaced since the log was opened.

        Cost: a stat for each log dir except the first.
        """
        others = self.manager.brokers_out[1:]
        return not self.lock.replaced and all(file.is_current() for file in others)

    def refresh(self) -> None:
        """Recover the log if the last holder died, else apply ledger records of other processes.

        The second half of LOCK (PROTOCOL), after the lock was acquired. Partitions whose files are
        back are brought online again.
        """
        manager, page = self.manager, self.lock.read()
        if page is None or page.state is State.FULL:
            # Ask before the recovery, which writes a new page for this file.
            restored = page is None and self.lock.is_foreign()
            lost = log_recovery.full(manager)
            if restored or lost:
                self.begin_history()
        elif page.state is State.BUSY:
            log_recovery.quick(manager, page)
        elif not manager.is_current or page.generation != manager.generation:
            fresh = page.era != manager.era  # a full recovery may have cut records that we folded
            manager.era = page.era
            self.offline.replace(page.offline)
            try:
                manager.reload(page.ledger_end, generation=page.generation, fresh=fresh)
                self._check_sizes(())  # an outdated page would hide the newest commits
            except (DataCorruptionError, StaleReadError, FileNotFoundError) as error:
                _LOGGER.warning("%s: not as its lock file says (%s)", self.home, error)
                log_recovery.full(manager)
        # Every holder checks, because a disk may be mounted again at any time, without an open.
        restore_returned(manager)

    def begin_history(self) -> None:
        """Start a leader epoch that no other copy of this log has, by a ledger record.

        Readers of the old copy then notice that later records are others.
        """
        epoch = new_epoch(self.state.epoch, self.clock())
        with self.step() as step:  # raises no start, so all versions of sparklog can read it
            step.record = StartRecord(starts={}, epoch=epoch, begins_epoch=True)
        _LOGGER.warning(
            "%s: the directory is a copy or was restored, or a power cut took its lock file's "
            "page: new records have leader epoch %d, by which readers distinguish them from "
            "earlier records", self.home, epoch,
        )  # fmt: skip

    # --- steps -------------------------------------------------------------------------------

    @contextlib.contextmanager
    def step(
        self,
        touched: Sequence[TopicPartition] = (),
        *,
        making: Sequence[str] = (),
        sync: bool = True,
    ) -> Iterator[Step]:
        """Run a change as a step, which is announced in the lock file's page.

        Leaving the block writes `step.record` to the ledger, which is the commit point. If the
        block raises, or the write fails, the step is undone.

        Args:
            touched: The partitions to which the block appends.
            making: The directories that the block creates.
            sync: Whether the ledger record is synced.
        """
        # The intent is in the page before the first byte is appended. Otherwise the next holder
        # would not know where to cut after a crash.
        intent = self._intent(touched, making=making)
        places = {*(self.partition_path(*key) for key in touched), *making}
        self.manager.write_page(State.BUSY, intent)
        step = Step()
        try:
            yield step
            assert step.record is not None
            record = step.written = self._append_record(step.record, sync=sync)
        except BaseException as error:
            self.meters.failed(error)
            # Also after a KeyboardInterrupt: without the undo, the page would stay BUSY and the
            # bytes would stay in the files, although the caller sees a failed commit.
            self._undo(intent)
            raise
        self._settle(record, places)

    @contextlib.contextmanager
    def changing_files(
        self,
        touched: Sequence[TopicPartition] = (),
        *,
        swap: tuple[TopicPartition, SegmentSwap] | None = None,
    ) -> Iterator[None]:
        """Announce a change of files in the lock's page, so that a crash leads to an undo.

        For changes of files that change no offset, and therefore have no ledger record. If the
        block fails, the change is undone or completed immediately, as the next holder of the lock
        would do.

        Args:
            touched: The partitions that the block rolls.
            swap: The partition, and the swap of segments that the block performs.
        """
        intent = self._intent(touched, swap=swap)
        places = {self.partition_path(*key) for key in touched}
        self.manager.write_page(State.BUSY, intent)
        try:
            yield
        except BaseException as error:
            self.meters.failed(error)
            self._undo(intent)
            raise
        self.manager.idle()
        self.meters.wrote(places)

    def _intent(
        self,
        touched: Sequence[TopicPartition],
        *,
        making: Sequence[str] = (),
        swap: tuple[TopicPartition, SegmentSwap] | None = None,
    ) -> Intent:
        self._check_sizes(touched)
        return Intent(
            ledger=self.ledger.log.state,
            logs={TopicPartition(*key): self.partition_log(*key).state for key in touched},
            making=tuple(making),
            swap=swap,
        )

    def _check_sizes(self, touched: Sequence[TopicPartition]) -> None:
        for key in (*touched, LEDGER):
            log = self.ledger.log if key == LEDGER else self.partition_log(*key)
            if self.manager.size_on_disk(key, log) != log.state.size:
                # Another program appended, or a file was restored. The bytes after the known end
                # would otherwise become records of this commit.
                _LOGGER.warning("%s-%d: unexpected size, recovering", *key)
                self.manager.write_page(State.FULL)
                log_recovery.full(self.manager)
                return

    def _append_record(self, record: LedgerRecord, *, sync: bool) -> LedgerRecord:
        # Times never decrease (PROTOCOL, H14), and stamped batches must have the record's time.
        stamped = isinstance(record, AppendRecord) and record.stamped
        now_ms = record.time_ms if stamped else self.clock()
        time_ms = max(now_ms, self.state.time_ms, record.time_ms)
        epoch = max(self.state.epoch, record.epoch)
        return self.ledger.append(record, epoch=epoch, time_ms=time_ms, sync=sync)

    def _settle(self, record: LedgerRecord, places: Collection[str]) -> None:
        # The commit point has passed. The next holder completes the step if it fails now.
        try:
            self.state.apply(record)
            redo_record(self.manager, record)
            publish_all(self.manager)
            self.manager.idle()
            self.meters.wrote(places)
        except Exception as error:  # noqa: BLE001 - the commit is valid despite any error
            self.meters.failed(error)
            self.manager.forget()
            self._settle_again(error)
        except BaseException:
            self.manager.forget()
            raise

    def _settle_again(self, error: Exception) -> None:
        """Complete a step that was committed, but failed before its effects were visible.

        Readers wait for the effects, so this process tries again immediately, as the next holder of
        the lock would. If that fails, `error` is logged, and the next commit or open completes the
        step.
        """
        try:
            self.refresh()
        except Exception:
            self.manager.forget()
            _LOGGER.warning(
                "%s: committed, but not yet visible to readers (%s); the next commit or open "
                "completes it",
                self.home,
                error,
                exc_info=True,
            )

    def _undo(self, intent: Intent) -> None:
        # The open logs believe that the appended bytes are there.
        self.manager.writers.drop()
        try:
            log_recovery.undo(self.manager, intent)
            self.manager.reload(intent.ledger.end, generation=self.manager.generation, fresh=True)
            self.manager.idle()
        except BaseException:
            self.manager.forget()
            _LOGGER.exception("%s: could not undo; the next holder recovers all", self.home)
            try:
                self.manager.write_page(State.FULL)
            except BaseException:  # the page is then still BUSY, which is safe too
                _LOGGER.debug("%s: page not written", self.home, exc_info=True)

    # --- as `storage.commits.CommitLog` ------------------------------------------------------

    @property
    def state(self) -> LogState:
        """The log's state after the ledger records that this process knows."""
        return self.manager.state

    @property
    def position(self) -> int:
        """The ledger's end, as far as this process knows."""
        return self.ledger.end

    @property
    def topic_defaults(self) -> TopicConfig:
        """The log's options for new topics."""
        return self.options.topics

    def catch_up(self) -> int:
        """Apply the ledger records of other processes, and return the ledger's end.

        Within `exclusive` there are none. Cost: the lock, and reading its page.
        """
        if self._turn_of == threading.get_ident():
            return self.position  # other processes are locked out
        with self.exclusive():
            return self.position

    def append(self, change: Change, *, expected: int) -> LedgerRecord:
        """Write a change to the ledger as a single step; return the written record.

        Called within `exclusive`. `expected` must be the ledger's end: see `CommitLog.append`.
        """
        if expected != self.position:
            raise PositionMovedError(
                f"{self.home}: the ledger ends at {self.position}, but the change was decided at "
                f"{expected}; decide on the change again"
            )
        record = change.record
        removes = isinstance(record, DropRecord | StartRecord | UndeleteRecord | PurgeRecord)
        irrevocable = removes or isinstance(record, ResetRecord) or (
            isinstance(record, TopicRecord)
            and (record.given_up is not None or self._moves(record))
        )
        changes_topics = removes or (
            isinstance(record, TopicRecord) and record.topic in self.state.topics
        )
        if isinstance(record, UndeleteRecord):
            check_restorable(self.manager, record)
        # Before the step, because a snapshot is a step of its own: it rolls the ledger, and steps
        # can't be nested.
        self.snapshot_if_due(irrevocable=irrevocable)
        match record:
            case TopicRecord():
                paths = new_paths(self.manager, record)
                with self.step(making=list(paths.values())) as step:
                    make_partitions(self.manager, record, paths)
                    step.record = record
            case AppendRecord():
                step = self._append_chunks(record, change)
            case _:
                with self.step() as step:
                    step.record = record
        if changes_topics:
            self.manager.forget_writers()  # their config or start has changed
        assert step.written is not None
        return step.written

    def _moves(self, record: TopicRecord) -> bool:
        """Return True if a record moves a partition to another log dir.

        The old directory is then deleted, which can't be undone.
        """
        known = self.state.topics.get(record.topic)
        return known is not None and any(record.dirs[p] != n for p, n in known.dirs.items())

    def _append_chunks(self, record: AppendRecord, change: Change) -> Step:
        touched = sorted({chunk.key for chunk in change.chunks})
        bases = {key: self.partition_log(*key).state.base for key in touched}
        with self.step(touched, sync=self.sync) as step:
            stamp_ms = append_time(self.manager, touched)
            ends = append_chunks(self.manager, change.chunks, stamp_ms)
            if self.sync:
                sync_logs(self.manager, touched)
            asked_ms = change.asked_ms
            step.record = replace(
                record,
                ends=ends,
                # The CRCs of the appended batches are a second source for `verify`: they prove
                # which partition a segment's batches were written to, even if directories were
                # swapped.
                crcs={key: self.partition_log(*key).appended_crc for key in ends},
                tails={key: self.partition_log(*key).tail_crc for key in ends},
                duration_ms=None if asked_ms is None else max(0, self.clock() - asked_ms),
                time_ms=stamp_ms or 0,  # a minimum: times never decrease
            )
        if self.sync:
            advance_recovery_points(self.manager, bases)
        return step

    def placement(self, partitions: range) -> dict[int, int]:
        """Return {partition: number of a log dir} for new partitions.

        See `partition_creation.placement`.
        """
        return placement(self.manager, partitions)

    def check(self, chunks: Sequence[Chunk]) -> None:
        """Reject chunks if a disk is full or their partition is offline."""
        check_room(self.manager, chunks)

    def check_producers(
        self, chunks: Sequence[Chunk]
    ) -> list[DuplicateAppend | SparklogError | None]:
        """Return a result per chunk of idempotent producers; see `CommitLog.check_producers`.

        The result is None if the chunk can be appended.
        """
        return check_producers(self.manager, chunks)

    def release_staged(self, chunks: Sequence[Chunk]) -> None:
        """Delete the staged files of chunks that were copied.

        Files that can't be deleted are swept later.
        """
        discard_chunks(self.fs, chunks)

    @property
    def oldest(self) -> int:
        """The offset of the oldest ledger record."""
        return LedgerFiles(self.fs, self.home).oldest

    def records(self, first: int, end: int) -> Iterator[tuple[int, LedgerRecord]]:
        return LedgerFiles(self.fs, self.home).records(first, end)

    def records_backwards(self, end: int) -> Iterator[tuple[int, LedgerRecord]]:
        """Yield (offset, record) of the ledger below `end`, the newest first."""
        return LedgerFiles(self.fs, self.home).records_backwards(end)

    def commits_of(
        self, end: int, writers: Collection[str]
    ) -> Iterator[tuple[int, LedgerRecord]]:
        """Yield (offset, record) of the ledger below `end`, the newest first.

        The records of all writers are returned, whatever `writers` is: a log dir has no index by
        writer.
        """
        return self.records_backwards(end)

    def outcome(self, position: int, attempt: str) -> LedgerRecord | None:
        """Return the ledger record at `position`.

        In a log dir, outcomes of commits are always known.

        Raises:
            InvalidRequestError: The ledger has no record at this position.
        """
        end = self.catch_up()
        if not self.oldest <= position < end:
            raise InvalidRequestError(
                f"{self.home}: there is no ledger record {position} (the ledger has records "
                f"{self.oldest} to {end - 1}). Only a log in a bucket raises CommitUnknownError, "
                "which gives this number"
            )
        return next((record for _, record in self.records(position, position + 1)), None)

    # --- snapshots ---------------------------------------------------------------------------

    def snapshot_if_due(self, *, irrevocable: bool = False) -> None:
        """Start a new ledger segment, with a snapshot of the state, if the active segment is full.

        A new segment is also started if a synced commit follows unsynced commits (flush=none).
        Recovery after a power cut drops all records after the first loss since the last snapshot,
        so a synced commit needs a snapshot before it, and so does a step whose effects can't be
        undone (`irrevocable`).
        """
        unsynced = self.state.unsynced and (self.sync or irrevocable)
        is_full = self.ledger.wants_snapshot
        if is_full or unsynced:
            self.write_snapshot()
        if is_full:
            write_state_copy(self.fs, self.home, self.ledger.end, self.state)

    def make_durable(self) -> None:
        """Sync data that were committed with flush=none; a snapshot in the ledger records that."""
        if self.state.unsynced:
            self.write_snapshot()

    def write_snapshot(self) -> None:
        """Make all commits durable, then start a new ledger segment with a snapshot."""
        for topic, partition in sorted(self.state.unsynced):
            path = self.partition_path(topic, partition)
            for name in self.fs.listdir(path):
                with self.fs.open(os.path.join(path, name), write=True) as file:
                    self._file_sync.sync(file)
            self.fs.sync_dir(path)
        if self.state.unsynced:
            self.ledger.log.sync()
        # Complete the list now, because the ledger segments with the resets may expire once this
        # snapshot exists.
        if self.state.abandoned is None:  # written by an older version
            self.state.abandoned = find_abandoned(self, self.position)
        with self.step() as step:
            # Every ledger segment must start with a snapshot, so the roll and the snapshot are one
            # step: an undo cuts both.
            self.ledger.log.roll()
            step.record = self.state.snapshot()

    # --- the open log ------------------------------------------------------------------------

    @property
    def ledger(self) -> LedgerWriter:
        """The ledger, for appends."""
        return self.manager.ledger

    @property
    def present(self) -> list[str]:
        """The available log dirs. Unavailable log dirs are neither read nor written."""
        return self.offline.dirs.present

    @property
    def sync(self) -> bool:
        """Whether commits are fsynced (flush=commit)."""
        return self.options.flush == "commit"

    def partition_log(self, topic: str, partition: int) -> PartitionLog:
        """Return the log of a partition, for appends within a step.

        The errors are those of `LogManager.partition_log`.
        """
        return self.manager.partition_log(topic, partition)

    def partition_path(self, topic: str, partition: int) -> str:
        """Return a partition's directory.

        Raises:
            UnknownTopicError: The topic or partition does not exist.
        """
        return self.manager.partition_path(topic, partition)

    @property
    def file_id(self) -> tuple[int, int]:
        """The device and inode of the lock file. They identify the log, whatever its path."""
        return self.lock.identity()

    def is_valid(self) -> bool:
        """Return True if the path still names the log that was opened.

        Cost: a stat.
        """
        return not self._closed and self.lock.is_current()

    def check_open(self) -> None:
        """Raise SparklogError if the handle is closed, LogReplacedError if the log was replaced."""
        if self.lost is not None:
            raise LogReplacedError(self.lost)
        if self._closed:
            raise SparklogError(f"{self.home}: this log is closed; open it again")

    def give_up(self, why: str) -> None:
        """Wait for a step in progress, then release all locks without changes on disk.

        Later calls raise an error with the reason `why`.
        """
        with self._mutex:
            self._lose(why)

    def _lose(self, why: str) -> None:
        self.lost = why
        self.release()

    def release(self) -> None:
        """Release all locks. Idempotent."""
        if not self._closed:
            self._closed = True
            self.manager.forget()
            self.lock.close()
            for file in self.manager.brokers_out:
                file.close()
