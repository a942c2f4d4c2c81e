"""`LogDirMoves`: the moves of partitions between log dirs that are asked for, and who does them.

One at a time: whoever holds the lock of `sparklog.moving`. What is asked for is in a file
(`wanted_moves`), so it doesn't matter who was asked: whoever is at work takes up what others
want, hears of cancellations, and what a dead one left is gone on with.
"""

import contextlib
import logging
import os
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from sparklog.clock import attempts, monotonic_ms, pause
from sparklog.common import TopicPartition
from sparklog.errors import InvalidRequestError, LogLockedError, SparklogError, UnknownTopicError
from sparklog.log.admin import refuse_internal
from sparklog.log.cleaner_options import RateLimit
from sparklog.logdir.commit_log import LogDirCommits
from sparklog.logdir.move_status import move_status
from sparklog.logdir.partition.directories import remove_tree
from sparklog.logdir.partition_move import (
    MoveCancelledError,
    MoveStoppedError,
    carry_out,
    check_room,
    copy_path,
    log_bytes,
    number_of,
)
from sparklog.logdir.recovery.redo import leftover_copies
from sparklog.logdir.segment_files import joined
from sparklog.logdir.wanted_moves import (
    MOVING_NAME,
    FollowedMoves,
    WantedMove,
    WantedMoves,
    read_moves,
    write_moves,
)
from sparklog.progress import Progress, shows_progress
from sparklog.storage.moves import MovedPartition, MoveRequest, MoveStatus, never
from sparklog.storage.view import View

RETRY_MS: Final = 60_000  # until a move that failed is tried again by itself
_PATIENCE_MS: Final = 300  # with who holds the lock for a moment, to look whether it is held
_LOOK_MS: Final = 100  # how often a move looks whether it is still wanted, and how fast
_LOGGER: Final = logging.getLogger(__name__)


class LogDirMoves:
    """A `sparklog.storage.moves.Moves` of log dirs."""

    def __init__(self, session: LogDirCommits, view: View) -> None:
        self._session, self._fs, self._home = session, session.fs, session.home
        self._view = view
        self._wanted = FollowedMoves(session.fs, session.home)

    def status(self) -> list[MoveStatus]:
        """Return what isn't done, in the order in which it is done."""
        session = self._session
        return move_status(self._fs, session.directories, self._view, now_ms=session.clock())

    def ask(self, requests: Sequence[MoveRequest]) -> list[str]:
        """Ask for moves, all or none."""
        for request in requests:
            refuse_internal(request.topic)
            _check_rate(request.bytes_per_second)
        session, fs = self._session, self._fs
        with session.exclusive():
            before = wanted = self._live(read_moves(fs, self._home))
            ids, numbers = [], dict[str, int]()
            for request in requests:
                wanted, move = self._asked(wanted, request, numbers)
                ids += [] if move is None else [move.id]
            for number in sorted({move.number for move in wanted.moves if move.id in ids}):
                self._check_rooms(wanted, number)
            if wanted == before:
                return ids
            fs.open_lock(joined(self._home, MOVING_NAME)).close()
            fs.sync_dir(self._home)  # who opens the log next finds that there may be copies
            for move in wanted.moves:
                path = copy_path(session, move)
                if move.id in ids and not fs.is_dir(path):
                    fs.mkdir(path)  # here, for a disk that takes nothing is told of at once
            write_moves(fs, self._home, wanted)
        return ids

    def _asked(
        self, wanted: WantedMoves, request: MoveRequest, numbers: dict[str, int]
    ) -> tuple[WantedMoves, WantedMove | None]:
        """Add a request; with None where there is nothing to do. `numbers`: of log dirs, so far."""
        session = self._session
        key = TopicPartition(request.topic, request.partition)
        session.partition_path(*key)  # raises UnknownTopicError
        if request.to not in numbers:
            numbers[request.to] = number_of(session, request.to)
        number = numbers[request.to]
        topic = session.state.topics[request.topic]
        if key in session.offline:
            raise session.offline[key]
        known = wanted.of(key)
        rate = request.bytes_per_second
        if known is not None and known.number == number:  # asked again: it goes on, or once more
            wanted = wanted.changed(known.id, bytes_per_second=rate, error="", failed_ms=0)
            return wanted, wanted.of(key)
        if known is not None:
            wanted = wanted.without(known.id)
        if topic.dirs[key.partition] == number:
            return wanted, None
        move = WantedMove(
            topic=key.topic, partition=key.partition, topic_id=topic.id, number=number,
            asked_ms=session.clock(), bytes_per_second=rate,
        )  # fmt: skip
        return WantedMoves((*wanted.moves, move), wanted.limit), move

    def _check_rooms(self, wanted: WantedMoves, number: int) -> None:
        """Look whether all that is to move to a log dir's disk fits. Raises."""
        session, fs = self._session, self._fs
        device, size = fs.identity(session.directories[number])[0], 0
        for move in wanted.moves:
            if fs.identity(session.directories[move.number])[0] == device:
                source = session.partition_path(*move.key)
                size += max(0, log_bytes(fs, source) - log_bytes(fs, copy_path(session, move)))
        check_room(session, number, size)

    def _live(self, wanted: WantedMoves) -> WantedMoves:
        """Leave out what is done, and what can't be any more. Under the lock."""
        topics = self._session.state.topics

        def is_live(move: WantedMove) -> bool:
            topic = topics.get(move.topic)
            return (
                topic is not None
                and topic.id == move.topic_id
                and topic.dirs.get(move.partition, move.number) != move.number
                and move.number < len(self._session.directories)
            )

        return WantedMoves(tuple(filter(is_live, wanted.moves)), wanted.limit)

    def cancel(self, keys: Sequence[TopicPartition] | None = None) -> list[TopicPartition]:
        """Forget moves; a copy that nobody is at goes at once."""
        session = self._session
        with session.exclusive():
            wanted = read_moves(self._fs, self._home)
            live = {move.id for move in self._live(wanted).moves}
            gone = [move for move in wanted.moves if keys is None or move.key in keys]
            if gone:
                write_moves(self._fs, self._home, wanted.without(*(move.id for move in gone)))
        sweep_dead_movers(session)
        return [move.key for move in gone if move.id in live]

    def forget(self, move_id: str) -> None:
        """Forget one that failed; nothing is raised where even that fails."""
        with contextlib.suppress(SparklogError), self._session.exclusive():
            wanted = read_moves(self._fs, self._home)
            if wanted.find(move_id) is not None:
                write_moves(self._fs, self._home, wanted.without(move_id))

    def limit(self, bytes_per_second: float | None) -> None:
        """Hold all moves of the log together to a rate, from now on."""
        _check_rate(bytes_per_second)
        with self._session.exclusive():
            wanted = read_moves(self._fs, self._home)
            if wanted.limit != bytes_per_second:
                limited = WantedMoves(wanted.moves, bytes_per_second)
                write_moves(self._fs, self._home, limited)

    def limited(self) -> float | None:
        """Return what `limit` was told last."""
        return self._wanted.now().limit

    def is_due(self) -> bool:
        """Tell whether there is one to carry out, and nobody at it."""
        if self._next() is None:
            return False
        return not self._fs.is_locked(joined(self._home, MOVING_NAME), 0, 1)

    def _next(self) -> WantedMove | None:
        now_ms = self._session.clock()
        for move in self._wanted.now().moves:
            waits = 0 <= now_ms - move.failed_ms < RETRY_MS  # not for a clock that went back
            if not move.error or (move.is_retriable and not waits):
                return move
        return None

    def carry_out(
        self,
        *,
        stopping: Callable[[], bool] = never,
        progress: Progress | None = None,
        done: Callable[[MovedPartition], None] | None = None,
        failed: Callable[[str, SparklogError], None] | None = None,
    ) -> None:
        """Do what is asked for, one after the other."""
        session = self._session
        with only_mover(session):
            self._drop_dead()
            sweep_copies(session)
            while not stopping() and (move := self._next()) is not None:
                try:
                    moved = carry_out(session, move, self._pace(move, stopping), progress)
                except MoveStoppedError:
                    self._note(move, began_ms=0)
                except MoveCancelledError:
                    _LOGGER.info("%s: the move of %s was cancelled", self._home, move.key)
                except UnknownTopicError as error:
                    _LOGGER.warning("%s: %s", self._home, error)
                    self.forget(move.id)
                except SparklogError as error:
                    if failed is not None:
                        failed(move.id, error)
                    _LOGGER.warning("%s: %s can't be moved: %s", self._home, move.key, error)
                    self._note(
                        move, began_ms=0, error=str(error) or repr(error),
                        failed_ms=session.clock(), is_retriable=error.retriable,
                    )  # fmt: skip
                else:
                    if done is not None:
                        done(moved)

    def move_now(self, request: MoveRequest, *, progress: Progress | None) -> MovedPartition:
        """Move one partition, and return when it is done; see `Log.move_partition`."""
        key = TopicPartition(request.topic, request.partition)
        with only_mover(self._session):
            sweep_copies(self._session)
            ids = self.ask([request])
            move = read_moves(self._fs, self._home).find(ids[0]) if ids else None
            if move is None:
                place = os.path.abspath(request.to)
                raise InvalidRequestError(f"{key} lies in {place} already")
            try:
                return carry_out(self._session, move, self._pace(move, never), progress)
            except BaseException:
                self.forget(move.id)
                with contextlib.suppress(SparklogError, FileNotFoundError):
                    sweep_copies(self._session)  # one that it hadn't begun with
                raise

    def _drop_dead(self) -> None:
        with self._session.exclusive():
            wanted = read_moves(self._fs, self._home)
            live = self._live(wanted)
            if live != wanted:
                write_moves(self._fs, self._home, live)

    def _note(self, move: WantedMove, **values: object) -> None:
        with self._session.exclusive():
            wanted = read_moves(self._fs, self._home).changed(move.id, **values)
            write_moves(self._fs, self._home, wanted)

    def _pace(self, move: WantedMove, stopping: Callable[[], bool]) -> "_Pace":
        return _Pace(move, self._wanted, stopping)


class _Pace:
    """Holds a move to its rate, and ends it once it isn't wanted any more."""

    def __init__(
        self, move: WantedMove, wanted: FollowedMoves, stopping: Callable[[], bool]
    ) -> None:
        self._move, self._wanted, self._stopping = move, wanted, stopping
        self._rate: float | None = None
        self._limit: RateLimit | None = None
        self._look_at = 0.0

    def __call__(self, size: int) -> None:
        """Wait until `size` more bytes may be copied. Raises MoveStoppedError, MoveCancelledError.
        """
        self._look()
        if self._limit is not None:
            self._limit(size)

    def _look(self) -> None:
        if self._stopping():
            raise MoveStoppedError(f"the move of {self._move.key} is to go on later")
        if monotonic_ms() < self._look_at:
            return
        self._look_at = monotonic_ms() + _LOOK_MS
        wanted = self._wanted.now()
        move = wanted.find(self._move.id)
        if move is None:
            raise MoveCancelledError(self._move)
        rates = [rate for rate in (move.bytes_per_second, wanted.limit) if rate is not None]
        rate = min(rates, default=None)
        if rate != self._rate:
            self._rate = rate
            self._limit = None if rate is None else RateLimit(rate, sleep=self._wait)

    def _wait(self, ms: float) -> None:
        until = monotonic_ms() + ms
        rate = self._rate
        while rate == self._rate and (left := until - monotonic_ms()) > 0:
            pause(min(left, _LOOK_MS))
            self._look()


def _check_rate(bytes_per_second: float | None) -> None:
    if bytes_per_second is not None and not bytes_per_second > 0:
        raise InvalidRequestError(
            f"bytes_per_second={bytes_per_second}: want more than 0, or None for no limit"
        )


@contextlib.contextmanager
def only_mover(session: LogDirCommits) -> Iterator[None]:
    """Hold the lock of who moves partitions. Raises LogLockedError."""
    path = joined(session.home, MOVING_NAME)
    with contextlib.closing(session.fs.open_lock(path)) as file:
        for _ in attempts(_PATIENCE_MS):
            if file.try_lock(0, 1, exclusive=True):
                break
        else:
            raise LogLockedError(
                f"{path}: another process, or thread, moves a partition of this log; one at a "
                "time, wait for it (`sparklog log-dirs moves` shows how far it is)"
            )
        yield


def sweep_copies(session: LogDirCommits) -> list[str]:
    """Remove copies that nobody wants; returns them. Under the lock of who moves."""
    fs = session.fs
    with session.exclusive():
        topics = session.state.topics
        live = [
            move for move in read_moves(fs, session.home).moves
            if move.topic in topics and move.number < len(session.directories)
        ]
        wanted = {copy_path(session, move) for move in live}
        left = [path for path in leftover_copies(session) if path not in wanted]
    for path in left:
        remove_tree(fs, path)
    return left


def sweep_dead_movers(session: LogDirCommits) -> None:
    """Remove copies that nobody wants. Cost: a stat if nobody ever asked for a move."""
    path = joined(session.home, MOVING_NAME)
    if session.fs.exists(path) and not session.fs.is_locked(path, 0, 1):
        with contextlib.suppress(LogLockedError), only_mover(session):
            sweep_copies(session)


def forget_moves(session: LogDirCommits) -> None:
    """Forget all that is to move, and its copies: nobody is to go on with them."""
    with session.exclusive():
        if read_moves(session.fs, session.home).moves:
            write_moves(session.fs, session.home, WantedMoves())
    sweep_dead_movers(session)


@shows_progress("moving")
def move_partition(
    moves: LogDirMoves, request: MoveRequest, *, progress: Progress | None = None
) -> MovedPartition:
    """Move a partition, with a bar in notebooks; see `Log.move_partition`."""
    return moves.move_now(request, progress=progress)
