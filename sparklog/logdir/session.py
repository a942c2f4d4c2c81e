"""A log opened for writing: the lock, the folded state, and a partition's writer when asked for.

Everything that changes a log is one *step* under the write lock:

    with session.locked():                # LOCK: undoes or completes what a dead holder left
        with session.step(...) as step:   # the intent, then the header BUSY
            ...append, make, sync...
            step.record = {...}           # the ledger record = the commit point
        # effects of the record, watermarks, header IDLE, a new generation

What fails before the record is durable is undone; what fails after it is completed by whoever
locks next. Source of the rules: PROTOCOL, section 1.
"""

import contextlib
import logging
import os
import threading
from collections.abc import Callable, Collection, Iterator, Sequence

from sparklog.clock import Clock
from sparklog.config import LogOptions, TopicConfig
from sparklog.errors import (
    DataCorruptionError,
    LogReplacedError,
    SparklogError,
    StorageUnavailableError,
    UnknownTopicError,
)
from sparklog.fs import File, FileSystem, LockFile
from sparklog.log.truncation_detection import begin_history
from sparklog.logdir import offline_partitions
from sparklog.logdir.ledger import LEDGER, Ledger, fold, ledger_config, ledger_path
from sparklog.logdir.lock import LogLock, Page, State, offline_from, offline_to
from sparklog.logdir.log_dirs import LogDirs
from sparklog.logdir.meters import WriteMeters
from sparklog.logdir.partition.partition_log import PartitionLog
from sparklog.logdir.recovery import log_recovery
from sparklog.logdir.recovery.redo import carry_out, publish_all
from sparklog.logdir.topics import partition_path
from sparklog.storage.log_state import LogState, Record
from sparklog.storage.segments import StaleReadError

_LOGGER = logging.getLogger(__name__)
_REWRITE_BYTES = 8 << 20


class Step:
    """One change on its way: set `record` before the block ends."""

    def __init__(self) -> None:
        self.record: Record | None = None


class Session:
    """One handle on a log. Threads may share it; a forked child may not."""

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
        self._loaded = False  # whether state, ledger and writers are those of `generation`
        self.offline: dict[tuple[str, int], DataCorruptionError] = {}
        self.dirs = LogDirs()
        self.brokers_out = brokers_out
        self._writers: dict[tuple[str, int], PartitionLog] = {}
        self._mutex = threading.Lock()
        self._suspect: set[str] = set()
        self._closed = False
        self.lost: str | None = None
        """Why there is nothing to go on with, and so nothing to close: the log was replaced."""
        self.moving: Callable[[Session], None] | None = None  # set when the log is open

    @property
    def home(self) -> str:
        """The first log dir, where sparklog's own files lie."""
        return self.directories[0]

    @property
    def present(self) -> list[str]:
        """The log dirs that are there; nothing is made or looked for in the others."""
        return self.dirs.present(self.directories)

    @property
    def sync(self) -> bool:
        """Whether commits are fsynced (flush=commit)."""
        return self.options.flush == "commit"

    @property
    def is_current(self) -> bool:
        """Whether what the last step did is published; else the next holder completes it."""
        return self._loaded

    @contextlib.contextmanager
    def exclusive(self) -> Iterator[None]:
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
    def place(self) -> tuple[int, int]:
        """Which log it is, whatever its path: device and inode of the lock file."""
        return self.lock.identity()

    def stands(self) -> bool:
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
    def locked(self) -> Iterator[None]:
        """Hold the write lock with a state that is up to date."""
        with self.exclusive():
            with self.meters.writing():
                self.refresh()
            yield

    def refresh(self) -> None:
        """LOCK's second half: recover what needs it, else catch up with other processes."""
        page = self.lock.read()
        if page is None or page.state is State.FULL:
            restored = page is None and self.lock.is_foreign()
            lost = log_recovery.full(self)
            if restored or lost:
                begin_history(self)
        elif page.state is State.BUSY:
            log_recovery.quick(self, page)
        elif not self._loaded or page.generation != self.generation:
            fresh = page.era != self.era  # a full recovery may have cut what we folded
            self.era = page.era
            self.offline = offline_from(page.body)
            try:
                self.reload(page.ledger_end, generation=page.generation, fresh=fresh)
            except (DataCorruptionError, StaleReadError, FileNotFoundError) as error:
                _LOGGER.warning("%s: not as its lock file says (%s)", self.home, error)
                log_recovery.full(self)
        offline_partitions.look_again(self)

    def reload(self, ledger_end: int, *, generation: int, fresh: bool = False) -> None:
        """Drop every cache and fold the ledger up to `ledger_end` (only its news, if it can)."""
        known = self.ledger.end if self._loaded and not fresh else -1
        self.forget()
        if not 0 <= known <= ledger_end:
            self.state, known = LogState(), -1
        first = None if known < 0 else known
        fold(self.fs, self.home, ledger_end, state=self.state, first=first)
        log = self._open(ledger_path(self.home), ledger_config(), ledger_end, 0, plain=True)
        self.ledger = Ledger(log)
        self.generation, self._loaded = generation, True

    def forget(self) -> None:
        """Make the next `refresh` load everything anew."""
        self._loaded = False
        self._writers.clear()

    def sync_file(self, file: File) -> None:
        """Sync a file that may have failed to before: its bytes are then written again first.

        After a failed fsync the kernel may call the lost pages clean; a second fsync proves
        nothing (PROTOCOL, C8).
        """
        if file.path in self._suspect:
            for at in range(0, file.size(), _REWRITE_BYTES):
                file.pwrite(file.pread(_REWRITE_BYTES, at), at)
        self._suspect.add(file.path)
        file.sync()
        self._suspect.discard(file.path)

    def forget_writers(self) -> None:
        """Open partitions anew when they are next written: their config or start changed."""
        self._writers.clear()

    def open_writers(self) -> list[PartitionLog]:
        """Return the partitions' writers that are in memory. Under the lock."""
        return list(self._writers.values())

    def writer(self, topic: str, partition: int) -> PartitionLog:
        """Return the partition's writer. Use it within a step only.

        Raises UnknownTopicError, or DataCorruptionError if the partition is offline.
        """
        key = topic, partition
        if key in self.offline:
            raise self.offline[key]
        log = self._writers.get(key)
        if log is None:
            path = self.partition_path(*key)
            config, start = self.state.topics[topic].parsed(), self.state.starts.get(key, 0)
            known = self.state.topics[topic].adopted or key in self.state.idempotent
            log = self._open(path, config, self.state.ends[key], start, plain=not known)
            offline_partitions.check_whole(self, key, log)
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
        """Return a partition's directory. Raises UnknownTopicError."""
        state = self.state.topics.get(topic)
        if state is None or partition not in state.dirs:
            held = "no such topic" if state is None else f"it has partitions {sorted(state.dirs)}"
            raise UnknownTopicError(f"{topic}-{partition} is not in {self.home}: {held}")
        return partition_path(self.directories, topic, state, partition)

    @contextlib.contextmanager
    def step(
        self,
        touched: Sequence[tuple[str, int]] = (),
        *,
        making: Sequence[str] = (),
        sync: bool = True,
    ) -> Iterator[Step]:
        """Announce what will be touched or made; see the module's text for what follows."""
        intent = self._intent(touched, making)
        places = {*(self.partition_path(*key) for key in touched), *making}
        self._write_page(State.BUSY, intent)
        step = Step()
        try:
            yield step
            assert step.record is not None
            record = self._append_record(step.record, sync=sync)
        except BaseException as error:
            self.meters.failed(error)
            self._undo(intent)
            raise
        self._settle(record, places)

    @contextlib.contextmanager
    def acting(self, touched: Sequence[tuple[str, int]] = (), **about: object) -> Iterator[None]:
        """Announce what changes files but no offset, so that no ledger record tells of it.

        A roll names what it touches, a swap of segments describes itself (`swap=`). What fails
        within is undone or completed at once, as the next holder would.
        """
        intent = {**self._intent(touched), **about}
        places = {self.partition_path(*key) for key in touched}
        self._write_page(State.BUSY, intent)
        try:
            yield
        except BaseException as error:
            self.meters.failed(error)
            self._undo(intent)
            raise
        self.idle()
        self.meters.wrote(places)

    def _intent(self, touched: Sequence[tuple[str, int]], making: Sequence[str] = ()) -> Record:
        self._check_sizes(touched)
        return {
            "ledger": self.ledger.log.state.to_json(),
            "logs": [[t, p, self.writer(t, p).state.to_json()] for t, p in touched],
            "making": list(making),
        }

    def _append_record(self, record: Record, *, sync: bool) -> Record:
        if not sync:
            record = {**record, "flush": "none"}
        # It never goes back (PROTOCOL, H14), not behind what records were stamped with either.
        time_ms = max(self.clock(), self.state.time_ms, record.get("time", 0))
        epoch = record.get("epoch", self.state.epoch)
        return self.ledger.append(record, epoch=epoch, time_ms=time_ms, sync=sync)

    def _settle(self, record: Record, places: Collection[str]) -> None:
        # The commit point has passed. Whatever fails now is completed by the next holder.
        try:
            self.state.apply(record)
            carry_out(self, record)
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

    def _undo(self, intent: Record) -> None:
        self._writers.clear()
        try:
            log_recovery.undo(self, intent)
            self.reload(int(intent["ledger"][2]), generation=self.generation, fresh=True)
            self.idle()
        except BaseException:
            self.forget()
            _LOGGER.exception("%s: could not undo; the next holder recovers all", self.home)
            try:
                self._write_page(State.FULL)
            except BaseException:  # the page then still says BUSY, which is as safe
                _LOGGER.debug("%s: page not written", self.home, exc_info=True)

    def _mark(self, number: int, failing: bool) -> None:
        with contextlib.suppress(StorageUnavailableError, ValueError):  # closed: it is gone anyway
            self.lock.mark(number, failing=failing)

    def idle(self) -> None:
        """Say that the log is whole: a new generation, so that others drop their caches."""
        self.generation += 1
        self._write_page(State.IDLE)

    def _write_page(self, state: State, intent: Record | None = None) -> None:
        page = Page(
            state=state,
            pid=os.getpid(),
            generation=self.generation,
            ledger_end=self.ledger.end,
            era=self.era,
            body={**(intent or {}), **offline_to(self.offline)},
        )
        with self.meters.writing():
            self.lock.write(page)

    def _check_sizes(self, touched: Sequence[tuple[str, int]]) -> None:
        for key in (*touched, LEDGER):
            log = self.ledger.log if key == LEDGER else self.writer(*key)
            if offline_partitions.size_on_disk(self, key, log) != log.state.size:
                _LOGGER.warning("%s-%d: unexpected size, recovering", *key)
                self._write_page(State.FULL)
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
