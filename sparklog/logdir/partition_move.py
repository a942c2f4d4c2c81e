"""Moves a partition to another log dir of its log, beside writers and readers.

A `-future` directory catches up without the lock; under it the last bytes follow, and one ledger
record says where the partition is from now on. Source: PROTOCOL, "Moving a partition to another
log dir"; Kafka's ReplicaAlterLogDirsThread, KIP-113.
"""

import contextlib
import logging
import os
from dataclasses import dataclass
from typing import Final, NamedTuple

from sparklog.clock import monotonic_ms
from sparklog.errors import (
    DataCorruptionError,
    InvalidRequestError,
    SparklogError,
    StorageUnavailableError,
    UnknownTopicError,
)
from sparklog.format.names import (
    EPOCH_CHECKPOINT,
    PARTITION_METADATA,
    index_name,
    log_name,
    partition_dir,
    snapshot_name,
    timeindex_name,
    txnindex_name,
)
from sparklog.fs import File, FileSystem, read_bytes
from sparklog.log.batch_windows import walk
from sparklog.log.cleaner_options import Throttle
from sparklog.logdir.commit_log import LogDirCommits
from sparklog.logdir.free_space import SPARE_BYTES
from sparklog.logdir.log_dirs import find_dirs
from sparklog.logdir.offset_checkpoints import CLEANED, CLEANER, read_offsets, write_offsets
from sparklog.logdir.partition.directories import remove_tree
from sparklog.logdir.partition.producer_snapshots import snapshot_offsets
from sparklog.logdir.recovery.redo import settle_directories
from sparklog.logdir.segment_files import joined, segment_bases
from sparklog.logdir.topics_file import future_path
from sparklog.logdir.wanted_moves import WantedMove, read_moves, write_moves
from sparklog.progress import Progress
from sparklog.storage.commits import Change
from sparklog.storage.ledger_records import TopicRecord
from sparklog.storage.moves import MovedPartition

TAIL_BYTES: Final = 1 << 20
"""What may be left to copy under the lock; a busy partition is followed until it is no more."""
ROUNDS_MAX: Final = 50  # of following; what came in the last one is copied under the lock
LOCKED_BYTES_MAX: Final = 64 << 20  # unless it is more: then it is followed until it is less
_LOGGER: Final = logging.getLogger(__name__)
_PARTS: Final = (index_name, timeindex_name, txnindex_name)


class MoveStoppedError(SparklogError):
    """It is to go on another time: whoever carried it out ends."""


class MoveCancelledError(InvalidRequestError):
    """Somebody doesn't want it any more, or wants it elsewhere."""

    def __init__(self, wish: WantedMove) -> None:
        super().__init__(
            f"the move of {wish.key} was cancelled, or it is to move elsewhere by now; it is where "
            "it was"
        )


class _Piece(NamedTuple):
    """A segment as the lock showed it: [0, size) of its log is committed; `file`: which one."""

    base: int
    size: int
    file: tuple[int, int]
    is_closed: bool


@dataclass(slots=True)
class _Copied:
    """What the copy has of a segment; `is_whole`: closed, with its indexes, and synced.

    `file`: of which one; None: an earlier mover's, nobody knows. `changed_ms`: when it was, if it
    is whole: another that took its place, by a cleaner, may have its inode number.
    """

    size: int
    file: tuple[int, int] | None
    is_whole: bool = False
    changed_ms: int = 0


def carry_out(
    session: LogDirCommits, wish: WantedMove, pace: Throttle, progress: Progress | None
) -> MovedPartition:
    """Move a partition as `wish` says; under the lock of who moves.

    `pace`: is told of each byte, and stops it by raising. `progress`: is told the bytes that were
    looked at, and how many there are by now. What fails leaves the partition where it is, and no
    copy; MoveStoppedError, the process's end and a power cut leave a copy that the next one goes
    on with. Raises: what `Log.move_partition` raises; MoveStoppedError, MoveCancelledError.
    """
    move = _begin(session, wish, pace, progress)
    try:
        rounds = 0
        while (copied := move.follow()) > TAIL_BYTES:
            rounds += 1
            if rounds >= ROUNDS_MAX and copied <= LOCKED_BYTES_MAX:
                break
            if rounds == ROUNDS_MAX:
                _LOGGER.warning(
                    "%s: its writers are as fast as it is moved to %s; it goes on until they "
                    "pause, or it may copy more bytes a second", wish.key, move.directory,
                )  # fmt: skip
        return move.finish()
    except MoveStoppedError:
        raise
    except FileNotFoundError as error:
        move.discard()
        raise StorageUnavailableError(
            f"{error} went away while {wish.key} was moved to {move.directory}; nothing was moved"
        ) from error
    except BaseException:
        move.discard()
        raise


def number_of(session: LogDirCommits, to: str) -> int:
    """The number of a log dir.

    Raises: InvalidRequestError: it is none of the log's; StorageUnavailableError: it isn't there.
    """
    wanted = os.path.abspath(to)
    there = [os.path.abspath(path) for path in session.directories]
    if wanted not in there:
        raise InvalidRequestError(
            f"{to} is no log dir of this log, which has {', '.join(session.directories)}. To add "
            "one, name it behind them whenever the log is opened: "
            f"{','.join([*session.directories, to])}"
        )
    number = there.index(wanted)
    check_present(session, number)
    return number


def check_present(session: LogDirCommits, number: int) -> None:
    """Raise StorageUnavailableError unless the log dir is there, now: not its mount point alone."""
    found = find_dirs(session.fs, session.directories)
    why = found.why_absent(session.directories, number)
    if why is None and number < len(found.known) and number not in found.files:
        why = "its sparklog.dirs is gone: is its disk mounted?"
    if why is not None:
        place = session.dirs.place(session.directories, number)
        raise StorageUnavailableError(f"nothing can be moved to {place}: {why}", path=place)


def log_bytes(fs: FileSystem, path: str) -> int:
    """Return how many bytes of records a partition's directory holds; 0 if it isn't there."""
    try:
        return sum(fs.size(joined(path, log_name(base))) for base in segment_bases(fs, path))
    except FileNotFoundError:
        return 0


def check_room(session: LogDirCommits, number: int, size: int) -> None:
    """Raise StorageUnavailableError unless so many bytes fit into a log dir."""
    directory = session.directories[number]
    free, floor = session.fs.free_bytes(directory), session.options.min_free_bytes
    if free - floor < size + SPARE_BYTES:
        kept = f", and log.min.free.bytes keeps {floor}" if floor else ""
        raise StorageUnavailableError(
            f"{directory} has {free} bytes free, what moves there takes {size}{kept}; free space "
            "there, or move it elsewhere: nothing was moved"
        )


def copy_path(session: LogDirCommits, wish: WantedMove) -> str:
    """Return where the copy lies while it isn't the partition."""
    topic = session.state.topics[wish.topic]
    return future_path(session.directories, wish.topic, topic, wish.partition, wish.number)


def _begin(
    session: LogDirCommits, wish: WantedMove, pace: Throttle, progress: Progress | None
) -> "_Move":
    """Look whether it can be, and note that it began."""
    fs, key = session.fs, wish.key
    with session.exclusive():
        known = session.state.topics.get(key.topic)
        path = session.partition_path(*key)  # raises UnknownTopicError
        if known is None or known.id != wish.topic_id:
            raise UnknownTopicError(f"{key}: its topic was deleted before it was moved")
        if key in session.offline:
            raise session.offline[key]
        check_present(session, wish.number)
        _make_way(session, wish)
        target = copy_path(session, wish)
        there = log_bytes(fs, target)
        check_room(session, wish.number, max(0, log_bytes(fs, path) - there))
        fs.sync_dir(session.home)  # who opens the log next finds that there was a mover
        if not fs.is_dir(target):
            fs.mkdir(target)
        wanted = read_moves(fs, session.home)
        began = {"began_ms": session.clock(), "began_bytes": there, "error": "", "failed_ms": 0}
        write_moves(fs, session.home, wanted.changed(wish.id, **began))
    return _Move(session, wish, path, target, pace, progress)


def _make_way(session: LogDirCommits, wish: WantedMove) -> None:
    """Let go of what the partition once left where it comes back to, if its disk failed then.

    Raises: StorageUnavailableError: it is there still.
    """
    place = joined(session.directories[wish.number], partition_dir(*wish.key))
    if session.fs.exists(place):
        settle_directories(session)
    if session.fs.exists(place):
        raise StorageUnavailableError(f"{place} exists; move it away: nothing was moved")


class _Move:
    """One move on its way."""

    def __init__(
        self,
        session: LogDirCommits,
        wish: WantedMove,
        source: str,
        target: str,
        pace: Throttle,
        progress: Progress | None,
    ) -> None:
        self._session, self._fs, self._key = session, session.fs, wish.key
        self._wish, self._number = wish, wish.number
        self._source, self._target = source, target
        self._pace, self._progress = pace, progress
        # What an earlier mover left: bytes that may not be the partition's, until they are looked
        # at. Its files were not synced, and a cleaner may have been at the partition since.
        left = segment_bases(self._fs, target)
        self._copied: dict[int, _Copied] = {base: _Copied(0, None) for base in left}
        self._began_ms = monotonic_ms()
        self._bytes = 0

    @property
    def directory(self) -> str:
        """The log dir that it goes to."""
        return self._session.directories[self._number]

    # --- without the lock ----------------------------------------------------------------------

    def follow(self) -> int:
        """Copy what there is by now; returns how many bytes that were."""
        before = self._bytes
        with self._session.exclusive():
            pieces = self._pieces()
        total = sum(piece.size for piece in pieces)
        for piece in pieces:
            with contextlib.suppress(FileNotFoundError):  # retention took it; the next look tells
                self._copy(piece, total=total)
        return self._bytes - before

    def _pieces(self) -> list[_Piece]:
        """The partition's segments, under the lock. Raises: the partition is gone, or offline."""
        session, key = self._session, self._key
        known = session.state.topics.get(key.topic)
        if known is None or known.id != self._wish.topic_id:
            raise UnknownTopicError(f"{key}: its topic was deleted while it was moved")
        if session.partition_path(*key) != self._source:
            raise InvalidRequestError(f"{key} was given up, and made anew, while it was moved")
        active = session.writer(*key).state
        found = []
        for base in segment_bases(self._fs, self._source):
            path = joined(self._source, log_name(base))
            is_closed = base != active.base
            size = self._fs.size(path) if is_closed else active.size
            found.append(_Piece(base, size, self._fs.identity(path), is_closed))
        return found

    def _copy(self, piece: _Piece, *, total: int = 0, last: bool = False) -> None:
        """Bring a segment's copy up to `piece`; with its indexes, synced, if closed or `last`."""
        known = self._copied.get(piece.base)
        if known is not None and known.file not in (None, piece.file):  # a cleaner swapped it
            self._remove(piece.base)
            known = None
        path = joined(self._source, log_name(piece.base))
        changed_ms = self._fs.changed_ms(path)
        if known is not None and known.is_whole:
            if known.size == piece.size and known.changed_ms == changed_ms:
                return
            known = _Copied(0, None)
        elif known is not None and piece.is_closed and not last:
            known = _Copied(0, None)  # it was rolled, and may have been cleaned since
        with self._fs.open(path) as file:
            if self._fs.identity(path) != piece.file:
                return
            start = 0 if known is None else known.size
            copied = self._copied[piece.base] = _Copied(start, piece.file)
            target = joined(self._target, log_name(piece.base))
            with self._fs.open(target, create=known is None, write=True) as copy:
                self._copy_batches(piece, file, copy, copied, total, last=last)
                if copy.size() > piece.size:
                    copy.truncate(piece.size)
                if piece.is_closed or last:
                    copy.sync()
        if piece.is_closed or last:
            for name_of in _PARTS:
                self._copy_file(name_of(piece.base))
            copied.is_whole, copied.changed_ms = piece.is_closed, changed_ms

    def _copy_batches(
        self, piece: _Piece, file: File, copy: File, copied: _Copied, total: int, *, last: bool
    ) -> None:
        there = copy.size()
        for window in walk(file, start=copied.size, limit=piece.size):
            if window.batches.error is not None:
                raise self._damage(piece, file, window.batches.error)
            size = window.batches.end - window.position
            if not last:  # under the lock everybody waits
                self._pace(size)
            data = memoryview(window.data)[:size]
            is_there = there >= window.batches.end
            if not is_there or copy.pread(size, window.position) != data:
                copy.pwrite(data, window.position)
            copied.size = window.batches.end
            self._bytes += size
            if self._progress is not None:
                self._progress(self._bytes, max(total, self._bytes))
        if copied.size != piece.size:
            raise self._damage(piece, file, None)

    def _damage(
        self, piece: _Piece, file: File, error: DataCorruptionError | None
    ) -> DataCorruptionError:
        bases = segment_bases(self._fs, self._source)
        following = [base for base in bases if base > piece.base]
        reason = "a batch is not whole" if error is None else error.reason
        at = self._copied[piece.base].size if error is None else error.position
        return DataCorruptionError(
            f"{reason}: {self._key} stays where it is, nothing was moved. Restore the file from a "
            "copy (`sparklog verify` shows all damage), then move the partition",
            path=file.path,
            position=at,
            first=piece.base if error is None or error.first is None else error.first,
            end=following[0] if following else None,
        )

    def _copy_file(self, name: str) -> None:
        """Copy a small file, synced; nothing if there is none."""
        try:
            data = read_bytes(self._fs, joined(self._source, name))
        except FileNotFoundError:
            return
        path = joined(self._target, name)
        with self._fs.open(path, create=not self._fs.exists(path), write=True) as copy:
            copy.truncate(0)
            copy.pwrite(data, 0)
            copy.sync()

    def _remove(self, base: int) -> None:
        for name_of in (*_PARTS, log_name):
            with contextlib.suppress(FileNotFoundError):
                self._fs.unlink(joined(self._target, name_of(base)))
        self._copied.pop(base, None)

    # --- under the lock ------------------------------------------------------------------------

    def finish(self) -> MovedPartition:
        """Copy the rest, and make the copy the partition."""
        session, key = self._session, self._key
        fs = self._fs
        with session.exclusive():
            began_ms = monotonic_ms()
            if read_moves(fs, session.home).find(self._wish.id) is None:
                raise MoveCancelledError(self._wish)
            _make_way(session, self._wish)
            pieces = self._pieces()
            self._complete(pieces)
            topic = session.state.topics[key.topic]
            moved = topic.moved(key.partition, self._number)
            record = TopicRecord.of(key.topic, moved, {})
            session.append(Change(record=record), expected=session.position)
            with contextlib.suppress(StorageUnavailableError):  # it says what is done: no harm
                wanted = read_moves(fs, session.home).without(self._wish.id)
                write_moves(fs, session.home, wanted)
            locked_ms = monotonic_ms() - began_ms
        return MovedPartition(
            topic=key.topic,
            partition=key.partition,
            source=os.path.dirname(self._source),
            target=session.directories[self._number],
            bytes=sum(piece.size for piece in pieces),
            took_ms=int(monotonic_ms() - self._began_ms),
            locked_ms=int(locked_ms),
        )

    def _complete(self, pieces: list[_Piece]) -> None:
        """Make the copy the same as the partition, and durable."""
        fs = self._fs
        for base in self._copied.keys() - {piece.base for piece in pieces}:
            self._remove(base)
        for piece in pieces:
            self._copy(piece, last=True)
        names = fs.listdir(self._source)
        snapshots = {snapshot_name(offset) for offset in snapshot_offsets(names)}
        for name in sorted(snapshots | {PARTITION_METADATA, EPOCH_CHECKPOINT}):
            self._copy_file(name)
        self._check_same(pieces)
        fs.sync_dir(self._target)
        target = os.path.dirname(self._target)
        fs.sync_dir(target)
        for name in (CLEANER, CLEANED):
            known = read_offsets(fs, os.path.dirname(self._source), name)
            if self._key in known:
                own = read_offsets(fs, target, name)
                write_offsets(fs, target, name, {**own, self._key: known[self._key]})

    def _check_same(self, pieces: list[_Piece]) -> None:
        wanted = {log_name(piece.base): piece.size for piece in pieces}
        names = [name for name in self._fs.listdir(self._target) if name.endswith(".log")]
        found = {name: self._fs.size(joined(self._target, name)) for name in names}
        if found != wanted:
            raise StorageUnavailableError(
                f"{self._target} holds {found}, not {wanted}: somebody else works there; nothing "
                "was moved"
            )

    def discard(self) -> None:
        """Remove the copy, unless it is the partition by now, or can't be reached.

        The ledger is read anew: a record that couldn't be undone may be completed by now.
        """
        session = self._session
        with contextlib.suppress(SparklogError, FileNotFoundError):
            with session.exclusive():
                known = session.state.topics.get(self._key.topic)
                if known is not None and known.dirs.get(self._key.partition) == self._number:
                    return
            remove_tree(self._fs, self._target)
