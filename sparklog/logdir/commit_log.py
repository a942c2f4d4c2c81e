"""The commit log of a log dir: changes in one order, under the write lock.

Everything that changes a log is one *step* under the write lock:

    with commits.exclusive():                # LOCK: undoes or completes what a dead holder left
        with commits.step(...) as step:   # the intent, then the header BUSY
            ...append, make, sync...
            step.record = ...             # the ledger record = the commit point
        # effects of the record, watermarks, header IDLE, a new generation

What fails before the record is durable is undone; what fails after it is completed by whoever
locks next. Source of the rules: PROTOCOL, section 1.
"""

import contextlib
import logging
import os
import threading
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import replace

from sparklog.clock import Clock
from sparklog.common import TopicPartition
from sparklog.config import LogOptions, TopicConfig
from sparklog.errors import (
    DataCorruptionError,
    InvalidRequestError,
    LogReplacedError,
    SparklogError,
    StorageUnavailableError,
)
from sparklog.fs import FileSystem, LockFile
from sparklog.log.timeline import find_abandoned
from sparklog.logdir.chunk_appends import (
    advance_recovery_points,
    append_chunks,
    append_time,
    check_producers,
    check_room,
    sync_logs,
)
from sparklog.logdir.intent import Intent
from sparklog.logdir.ledger import LEDGER, LedgerFiles
from sparklog.logdir.lock import State
from sparklog.logdir.log_manager import LogManager
from sparklog.logdir.partition.segment_swap import SegmentSwap
from sparklog.logdir.recovery import log_recovery
from sparklog.logdir.recovery.redo import publish_all, redo_record
from sparklog.logdir.recovery.returned_partitions import restore_returned
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
from sparklog.storage.segments import StaleReadError

_LOGGER = logging.getLogger(__name__)


class Step:
    """One change on its way: set `record` before the block ends."""

    def __init__(self) -> None:
        self.record: LedgerRecord | None = None
        self.written: LedgerRecord | None = None
        """The record as it lies in the ledger, once the block has ended."""


class LogDirCommits(LogManager):
    """One handle on a log. Threads may share it; a forked child may not."""

    def __init__(
        self,
        fs: FileSystem,
        clock: Clock,
        directories: list[str],
        options: LogOptions,
        brokers_out: list[LockFile],
    ) -> None:
        super().__init__(fs, clock, directories, options, brokers_out)
        self._mutex = threading.Lock()
        self._closed = False
        self._turn_of: int | None = None  # the thread that is within `exclusive`
        self.reported_gaps: set[str] = set()
        self.lost: str | None = None
        """Why there is nothing to go on with, and so nothing to close: the log was replaced."""
        self.moving: Callable[[LogDirCommits], None] | None = None  # set when the log is open

    @contextlib.contextmanager
    def hold_lock(self) -> Iterator[None]:
        """Hold the write lock, without a look at the page (for opening and closing).

        Raises LogReplacedError if the path names no log any more, or another one: see `moving`.
        """
        self.lock.check_process()  # before the mutex, which a thread may have held at the fork
        with self._mutex:
            self.check_open()
            try:
                self.lock.acquire()
                if self.moving is not None and not self._is_in_place():
                    self.moving(self)
                yield
            except LogReplacedError as error:
                if self.lock.replaced:  # and stays so; a directory that is gone may come back
                    self._lose(str(error))
                raise
            finally:
                if not self._closed:
                    self.lock.release()

    def check_open(self) -> None:
        """Raise SparklogError if it is closed, LogReplacedError if the log was replaced."""
        if self.lost is not None:
            raise LogReplacedError(self.lost)
        if self._closed:
            raise SparklogError(f"{self.home}: this log is closed; open it again")

    @property
    def file_id(self) -> tuple[int, int]:
        """Which log it is, whatever its path: device and inode of the lock file."""
        return self.lock.identity()

    def is_valid(self) -> bool:
        """Tell whether the path still names the log that this session has open. Cost: one stat."""
        return not self._closed and self.lock.is_current()

    def give_up(self, why: str) -> None:
        """Let a step that is under way end, give every lock back, and change nothing on disk."""
        with self._mutex:
            self._lose(why)

    def _lose(self, why: str) -> None:
        self.lost = why
        self.release()

    def _is_in_place(self) -> bool:
        """Cost: a stat for each log dir but the first, whose lock file was looked at."""
        return not self.lock.replaced and all(file.is_current() for file in self.brokers_out[1:])

    @contextlib.contextmanager
    def exclusive(self) -> Iterator[None]:
        """Hold the write lock with a state that is up to date."""
        with self.hold_lock():
            with self.meters.writing():
                self.refresh()
            self._turn_of = threading.get_ident()
            try:
                yield
            finally:
                self._turn_of = None
        self.remove_doomed()

    def refresh(self) -> None:
        """LOCK's second half: recover what needs it, else catch up with other processes."""
        page = self.lock.read()
        if page is None or page.state is State.FULL:
            restored = page is None and self.lock.is_foreign()
            lost = log_recovery.full(self)
            if restored or lost:
                self.begin_history()
        elif page.state is State.BUSY:
            log_recovery.quick(self, page)
        elif not self._loaded or page.generation != self.generation:
            fresh = page.era != self.era  # a full recovery may have cut what we folded
            self.era = page.era
            self.offline = page.offline
            try:
                self.reload(page.ledger_end, generation=page.generation, fresh=fresh)
                self._check_sizes(())  # an older page would hide the newest commits
            except (DataCorruptionError, StaleReadError, FileNotFoundError) as error:
                _LOGGER.warning("%s: not as its lock file says (%s)", self.home, error)
                log_recovery.full(self)
        restore_returned(self)

    def begin_history(self) -> None:
        """Write from now on under a leader epoch that no other copy of this log has."""
        epoch = new_epoch(self.state.epoch, self.clock())
        with self.step() as step:  # no start is raised: a record that any sparklog can read
            step.record = StartRecord(starts={}, epoch=epoch, begins_epoch=True)
        _LOGGER.warning(
            "%s: the directory is a copy or was restored, or a power cut took its lock file's "
            "page: what is written now has leader epoch %d, by which readers tell it from what was "
            "there", self.home, epoch,
        )  # fmt: skip

    @contextlib.contextmanager
    def step(
        self,
        touched: Sequence[TopicPartition] = (),
        *,
        making: Sequence[str] = (),
        sync: bool = True,
    ) -> Iterator[Step]:
        """Announce what will be touched or made; see the module's text for what follows."""
        intent = self._intent(touched, making=making)
        places = {*(self.partition_path(*key) for key in touched), *making}
        self.write_page(State.BUSY, intent)
        step = Step()
        try:
            yield step
            assert step.record is not None
            record = step.written = self._append_record(step.record, sync=sync)
        except BaseException as error:
            self.meters.failed(error)
            self._undo(intent)
            raise
        self._settle(record, places)

    # --- as `storage.commits.CommitLog` ------------------------------------------------------

    @property
    def position(self) -> int:
        """The ledger's end."""
        return self.ledger.end

    @property
    def topic_defaults(self) -> TopicConfig:
        """What the log's options say of new topics."""
        return self.options.topics

    def catch_up(self) -> int:
        """Fold what other processes have written. Cost: the lock, and its page."""
        if self._turn_of == threading.get_ident():
            return self.position  # nobody else had a turn since ours began
        with self.exclusive():
            return self.position

    def append(self, change: Change, *, expected: int) -> LedgerRecord:
        """Write a change as one step, within `exclusive`; see `CommitLog.append`."""
        if expected != self.position:
            raise PositionMovedError(
                f"{self.home}: the ledger ends at {self.position}, a change was decided at "
                f"{expected}; decide it again"
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
            self.check_restorable(record)
        self.snapshot_if_due(irrevocable=irrevocable)
        match record:
            case TopicRecord():
                paths = self.new_paths(record)
                with self.step(making=list(paths.values())) as step:
                    self.make_partitions(record, paths)
                    step.record = record
            case AppendRecord():
                step = self._append_chunks(record, change)
            case _:
                with self.step() as step:
                    step.record = record
        if changes_topics:
            self.forget_writers()  # their config or start is another one now
        assert step.written is not None
        return step.written

    def _moves(self, record: TopicRecord) -> bool:
        """Whether a partition that is there gets another place: its old directory then goes."""
        known = self.state.topics.get(record.topic)
        return known is not None and any(record.dirs[p] != n for p, n in known.dirs.items())

    def _append_chunks(self, record: AppendRecord, change: Change) -> Step:
        touched = sorted({chunk.key for chunk in change.chunks})
        bases = {key: self.writer(*key).state.base for key in touched}
        with self.step(touched, sync=self.sync) as step:
            stamp_ms = append_time(self, touched)
            ends = append_chunks(self, change.chunks, stamp_ms)
            if self.sync:
                sync_logs(self, touched)
            asked_ms = change.asked_ms
            step.record = replace(
                record,
                ends=ends,
                crcs={key: self.writer(*key).appended_crc for key in ends},
                tails={key: self.writer(*key).tail_crc for key in ends},
                duration_ms=None if asked_ms is None else max(0, self.clock() - asked_ms),
                time_ms=stamp_ms or 0,  # at the least: the next one's can't lie before
            )
        if self.sync:
            advance_recovery_points(self, bases)
        return step

    def check(self, chunks: Sequence[Chunk]) -> None:
        """Refuse chunks that the disks have no room for, or whose partition is offline."""
        check_room(self, chunks)

    def check_producers(
        self, chunks: Sequence[Chunk]
    ) -> list[DuplicateAppend | SparklogError | None]:
        """Check idempotent producers' batches; see `CommitLog.check_producers`."""
        return check_producers(self, chunks)

    def discard(self, chunks: Sequence[Chunk]) -> None:
        """Unlink staged files that were copied; what can't go now is swept another time."""
        for chunk in chunks:
            if chunk.path is not None:
                with contextlib.suppress(FileNotFoundError, StorageUnavailableError):
                    self.fs.unlink(chunk.path)

    @property
    def oldest(self) -> int:
        """The offset of the oldest record that the ledger holds."""
        return LedgerFiles(self.fs, self.home).oldest

    def records(self, first: int, end: int) -> Iterator[tuple[int, LedgerRecord]]:
        """Yield (offset, record) of the ledger."""
        return LedgerFiles(self.fs, self.home).records(first, end)

    def records_backwards(self, end: int) -> Iterator[tuple[int, LedgerRecord]]:
        """Yield (offset, record) of the ledger below `end`, the newest first."""
        return LedgerFiles(self.fs, self.home).records_backwards(end)

    def commits_of(
        self, end: int, writers: Collection[str]
    ) -> Iterator[tuple[int, LedgerRecord]]:
        """Yield (offset, record) of the ledger below `end`, the newest first: all of them."""
        return self.records_backwards(end)

    def outcome(self, position: int, attempt: str) -> LedgerRecord | None:
        """Return the record at `position`: a log dir always knows, for it recovers at once."""
        end = self.catch_up()
        if not self.oldest <= position < end:
            raise InvalidRequestError(
                f"{self.home}: the ledger holds records {self.oldest} to {end - 1}, none at "
                f"{position}; no commit to a log dir ends with CommitUnknownError"
            )
        return next((record for _, record in self.records(position, position + 1)), None)

    # --- snapshots ---------------------------------------------------------------------------

    def snapshot_if_due(self, *, irrevocable: bool = False) -> None:
        """Begin a new ledger segment, with a snapshot of the state, when the active one is full.

        Also when a synced commit follows unsynced ones (flush=none): recovery after a power cut
        gives up what lies behind the first loss since the last snapshot, so a synced commit needs
        one, and so does a step whose effects can't be taken back (`irrevocable`).
        """
        unsynced = self.state.unsynced and (self.sync or irrevocable)
        is_full = self.ledger.wants_snapshot
        if is_full or unsynced:
            self.write_snapshot()
        if is_full:
            write_state_copy(self.fs, self.home, self.ledger.end, self.state)

    def make_durable(self) -> None:
        """Sync what was committed with flush=none, and say so by a snapshot."""
        if self.state.unsynced:
            self.write_snapshot()

    def write_snapshot(self) -> None:
        """Make all that was committed durable, then begin a new ledger segment with a snapshot."""
        for topic, partition in sorted(self.state.unsynced):
            path = self.partition_path(topic, partition)
            for name in self.fs.listdir(path):
                with self.fs.open(os.path.join(path, name), write=True) as file:
                    self.file_sync.sync(file)
            self.fs.sync_dir(path)
        if self.state.unsynced:
            self.ledger.log.sync()
        if self.state.abandoned is None:  # an older sparklog wrote here: its segments may expire
            self.state.abandoned = find_abandoned(self, self.position)
        with self.step() as step:
            self.ledger.log.roll()
            step.record = self.state.snapshot()

    # --- steps -------------------------------------------------------------------------------

    @contextlib.contextmanager
    def changing_files(
        self,
        touched: Sequence[TopicPartition] = (),
        *,
        swap: tuple[TopicPartition, SegmentSwap] | None = None,
    ) -> Iterator[None]:
        """Announce what changes files but no offset, so that no ledger record tells of it.

        A roll names what it touches, a swap of segments describes itself (`swap=`). What fails
        within is undone or completed at once, as the next holder would.
        """
        intent = self._intent(touched, swap=swap)
        places = {self.partition_path(*key) for key in touched}
        self.write_page(State.BUSY, intent)
        try:
            yield
        except BaseException as error:
            self.meters.failed(error)
            self._undo(intent)
            raise
        self.idle()
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
            logs={TopicPartition(*key): self.writer(*key).state for key in touched},
            making=tuple(making),
            swap=swap,
        )

    def _append_record(self, record: LedgerRecord, *, sync: bool) -> LedgerRecord:
        if not sync:
            record = replace(record, flushed=False)
        # It never goes back (PROTOCOL, H14), and what was stamped with it has this very time.
        stamped = isinstance(record, AppendRecord) and record.stamped
        now_ms = record.time_ms if stamped else self.clock()
        time_ms = max(now_ms, self.state.time_ms, record.time_ms)
        epoch = max(self.state.epoch, record.epoch)
        return self.ledger.append(record, epoch=epoch, time_ms=time_ms, sync=sync)

    def _settle(self, record: LedgerRecord, places: Collection[str]) -> None:
        # The commit point has passed. Whatever fails now is completed by the next holder.
        try:
            self.state.apply(record)
            redo_record(self, record)
            publish_all(self)
            self.idle()
            self.meters.wrote(places)
        except Exception as error:  # noqa: BLE001 - the commit stands, whatever this is
            self.meters.failed(error)
            self.forget()
            self._settle_again(error)
        except BaseException:
            self.forget()
            raise

    def _settle_again(self, error: Exception) -> None:
        """Complete the step once more, as the next holder would; readers are waiting for it."""
        try:
            self.refresh()
        except Exception:
            self.forget()
            _LOGGER.warning(
                "%s: committed, but not yet visible to readers (%s); the next commit or open "
                "completes it",
                self.home,
                error,
                exc_info=True,
            )

    def _undo(self, intent: Intent) -> None:
        self.drop_writers()
        try:
            log_recovery.undo(self, intent)
            self.reload(intent.ledger.end, generation=self.generation, fresh=True)
            self.idle()
        except BaseException:
            self.forget()
            _LOGGER.exception("%s: could not undo; the next holder recovers all", self.home)
            try:
                self.write_page(State.FULL)
            except BaseException:  # the page then still says BUSY, which is as safe
                _LOGGER.debug("%s: page not written", self.home, exc_info=True)

    def _check_sizes(self, touched: Sequence[TopicPartition]) -> None:
        for key in (*touched, LEDGER):
            log = self.ledger.log if key == LEDGER else self.writer(*key)
            if self.size_on_disk(key, log) != log.state.size:
                _LOGGER.warning("%s-%d: unexpected size, recovering", *key)
                self.write_page(State.FULL)
                log_recovery.full(self)
                return

    def release(self) -> None:
        """Give every lock back. Idempotent."""
        if not self._closed:
            self._closed = True
            self.forget()
            self.lock.close()
            for file in self.brokers_out:
                file.close()
