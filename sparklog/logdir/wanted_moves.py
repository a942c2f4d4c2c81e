"""`sparklog.moves` in the first log dir: which partitions are to move, and how fast.

So a request outlives who was asked: a service, an endpoint or a command goes on with it. It is a
wish and no more: where a partition is says the ledger. Text: a sealed JSON document, which is
replaced under the write lock.
"""

import contextlib
import logging
import uuid
from dataclasses import dataclass, field, fields, replace
from typing import Any, Final

from sparklog.common import TopicPartition
from sparklog.errors import DataCorruptionError, UnsupportedVersionError
from sparklog.fs import FileSystem, read_bytes, write_durably
from sparklog.logdir.segment_files import joined
from sparklog.storage.checksummed_json import seal, unseal

MOVES_NAME: Final = "sparklog.moves"
MOVING_NAME: Final = "sparklog.moving"
"""Locked by who carries them out."""
_CURE: Final = "remove it, and ask again for the moves that were asked for"
_LOGGER: Final = logging.getLogger(__name__)
Stamp = tuple[tuple[int, int], int]


@dataclass(frozen=True, slots=True, kw_only=True)
class WantedMove:
    """A partition is to move to log dir `number`. `began_ms` 0: nobody is at it.

    `began_bytes`: what its copy had when the present attempt began. `error`, `failed_ms`: of the
    last one; `is_retriable`: another one may do better without anybody's help.
    """

    topic: str
    partition: int
    topic_id: str
    number: int
    asked_ms: int
    bytes_per_second: float | None = None
    began_ms: int = 0
    began_bytes: int = 0
    error: str = ""
    failed_ms: int = 0
    is_retriable: bool = True
    id: str = field(default_factory=lambda: uuid.uuid4().hex)

    @property
    def key(self) -> TopicPartition:
        """The partition."""
        return TopicPartition(self.topic, self.partition)


_FIELDS: Final = tuple(each.name for each in fields(WantedMove))


@dataclass(frozen=True, slots=True)
class WantedMoves:
    """All that are wanted, in the order in which they are done; `limit`: bytes a second of all."""

    moves: tuple[WantedMove, ...] = ()
    limit: float | None = None

    def find(self, move_id: str) -> WantedMove | None:
        """Return one by its id; None: it is done, or was cancelled."""
        return next((move for move in self.moves if move.id == move_id), None)

    def of(self, key: TopicPartition) -> WantedMove | None:
        """Return that of a partition."""
        topic, partition = key
        return next(
            (m for m in self.moves if m.partition == partition and m.topic == topic), None
        )

    def without(self, *ids: str) -> "WantedMoves":
        """Return the others."""
        return WantedMoves(tuple(move for move in self.moves if move.id not in ids), self.limit)

    def changed(self, move_id: str, **values: Any) -> "WantedMoves":
        """Return these with one changed."""
        moves = (replace(m, **values) if m.id == move_id else m for m in self.moves)
        return WantedMoves(tuple(moves), self.limit)


def read_moves(fs: FileSystem, home: str) -> WantedMoves:
    """Return what is wanted; nothing of a file that is damaged or isn't there."""
    path = joined(home, MOVES_NAME)
    try:
        found = unseal("moves", read_bytes(fs, path), path=path, cure=_CURE)
        return WantedMoves(tuple(WantedMove(**each) for each in found["wanted"]), found["limit"])
    except FileNotFoundError:
        pass
    except (DataCorruptionError, UnsupportedVersionError, KeyError, TypeError) as error:
        _LOGGER.warning("%s: no move is carried out: %s", path, error)
    return WantedMoves()


def write_moves(fs: FileSystem, home: str, wanted: WantedMoves) -> None:
    """Replace the file, durably. Under the write lock."""
    # Writers wait meanwhile: no copies of copies, and the encoder that is in C.
    moves = [{name: getattr(move, name) for name in _FIELDS} for move in wanted.moves]
    content = {"limit": wanted.limit, "wanted": moves}
    write_durably(fs, joined(home, MOVES_NAME), seal("moves", content))


class FollowedMoves:
    """The file as it is now. Cost: two stats while it doesn't change. Threads may share it."""

    def __init__(self, fs: FileSystem, home: str) -> None:
        self._fs, self._home = fs, home
        self._seen: tuple[Stamp | None, WantedMoves] = None, WantedMoves()

    def now(self) -> WantedMoves:
        """Return what is wanted."""
        stamp = self._stamp()
        known, wanted = self._seen
        if stamp is None:
            return WantedMoves()
        if stamp != known:
            wanted = read_moves(self._fs, self._home)
            self._seen = stamp, wanted
        return wanted

    def _stamp(self) -> Stamp | None:
        path = joined(self._home, MOVES_NAME)
        with contextlib.suppress(FileNotFoundError):
            return self._fs.identity(path), self._fs.changed_ms(path)
        return None
