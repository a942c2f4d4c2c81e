"""How far the moves between log dirs are, by what lies in them: without a lock, from outside."""

from collections.abc import Callable, Sequence

from sparklog.clock import Clock
from sparklog.common import TopicPartition
from sparklog.errors import InvalidRequestError, SparklogError
from sparklog.format.names import index_name, log_name
from sparklog.fs import FileSystem, read_bytes
from sparklog.log.batch_windows import walk
from sparklog.log.offset_lookup import OFFSET_ITEM, Entries
from sparklog.logdir.segment_files import joined, segment_bases
from sparklog.logdir.topics_file import future_path, read_topics
from sparklog.logdir.wanted_moves import MOVING_NAME, WantedMove, read_moves
from sparklog.storage.moves import MoveStatus, UnmovableHome
from sparklog.storage.topic_state import TopicState
from sparklog.storage.view import View

_WINDOW_BYTES = 1 << 16


class ShownMoves(UnmovableHome):
    """The `Moves` of a log that is open for reading: they can be looked at."""

    def __init__(
        self,
        fs: FileSystem,
        clock: Clock,
        directories: Sequence[str],
        view: View,
        refusal: Callable[[], InvalidRequestError],
    ) -> None:
        super().__init__(refusal)
        self._fs, self._clock, self._directories, self._view = fs, clock, directories, view

    def status(self) -> list[MoveStatus]:
        """Return what isn't done, in the order in which it is done."""
        return move_status(self._fs, self._directories, self._view, now_ms=self._clock())

    def limited(self) -> float | None:
        """Return the rate that holds for all moves."""
        return read_moves(self._fs, self._directories[0]).limit


def move_status(
    fs: FileSystem, directories: Sequence[str], view: View, *, now_ms: int
) -> list[MoveStatus]:
    """Return the moves that are asked for and not done.

    Cost: nothing but a look for a file where none is; else listings of the partitions and copies.
    """
    wanted = read_moves(fs, directories[0])
    topics = (read_topics(fs, directories[0]) or {}) if wanted.moves else {}
    found = []
    for move in wanted.moves:
        topic = topics.get(move.topic)
        if topic is None or topic.id != move.topic_id or move.number >= len(directories):
            continue
        if topic.dirs.get(move.partition, move.number) == move.number:
            continue  # it is there
        rates = [rate for rate in (move.bytes_per_second, wanted.limit) if rate is not None]
        limit = min(rates, default=None)
        found.append(_status(fs, list(directories), view, move, topic, limit, now_ms))
    return found


def _status(
    fs: FileSystem,
    directories: list[str],
    view: View,
    move: WantedMove,
    topic: TopicState,
    limit: float | None,
    now_ms: int,
) -> MoveStatus:
    source = directories[topic.dirs[move.partition]]
    copy = future_path(directories, move.topic, topic, move.partition, move.number)
    path = joined(source, f"{move.topic}-{move.partition}")
    sizes, total = _sizes(fs, copy), sum(_sizes(fs, path).values())
    copied = min(sum(sizes.values()), total)
    is_moving = move.began_ms > 0 and not move.error and _is_at_work(fs, directories[0])
    rate = left_ms = None
    if is_moving:
        rate = max(0, copied - move.began_bytes) * 1000 / max(1, now_ms - move.began_ms)
        left_ms = int((total - copied) * 1000 / rate) if rate else None
    return MoveStatus(
        id=move.id, topic=move.topic, partition=move.partition, source=source,
        target=directories[move.number],
        state="moving" if is_moving else "failed" if move.error else "waiting",
        copied_bytes=copied, total_bytes=total,
        offset_lag=_lag(fs, view, move.key, path, copy, sizes), asked_ms=move.asked_ms,
        bytes_per_second=rate, left_ms=left_ms, limit=limit, error=move.error or None,
    )  # fmt: skip


def _is_at_work(fs: FileSystem, home: str) -> bool:
    """Tell whether somebody holds the lock of who moves."""
    return fs.is_locked(joined(home, MOVING_NAME), 0, 1)


def _sizes(fs: FileSystem, path: str) -> dict[int, int]:
    """Return {base offset: bytes} of a partition's segments, as far as they can be seen."""
    sizes = {}
    try:
        for base in segment_bases(fs, path):
            sizes[base] = fs.size(joined(path, log_name(base)))
    except (FileNotFoundError, SparklogError):  # it goes away just now, or its disk did
        pass
    return sizes


def _lag(
    fs: FileSystem, view: View, key: TopicPartition, path: str, copy: str, sizes: dict[int, int]
) -> int:
    """Return how many offsets the copy is behind; -1 if the partition can't be looked at."""
    try:
        start, end = view.spans([key])[key]
        if not any(sizes.values()):
            return end - start
        base = max(base for base, size in sizes.items() if size)
        return max(0, end - _end(fs, path, copy, base, sizes[base]))
    except (KeyError, FileNotFoundError, SparklogError):
        return -1


def _end(fs: FileSystem, path: str, copy: str, base: int, size: int) -> int:
    """Return the end offset of a copied segment's first `size` bytes: those of the partition."""
    index = Entries(OFFSET_ITEM, memoryview(read_bytes(fs, joined(path, index_name(base)))))
    slot = index.last(lambda entry: entry[1] < size)
    start, end = (index[slot][1], base + index[slot][0]) if slot >= 0 else (0, base)
    with fs.open(joined(copy, log_name(base))) as file:
        for window in walk(
            file, start=start, limit=size, check_crc=False, window_bytes=_WINDOW_BYTES
        ):
            if len(window.batches):
                end = int(window.batches.table["last_offset"][-1]) + 1
    return end
