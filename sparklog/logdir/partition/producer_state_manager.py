"""The producer state of a partition, for the writer, and the snapshot files.

The state is loaded on first use (newest snapshot, then replay of later batch headers), because most
appends have no producer id. A partition that is reopened after other processes wrote to it
continues from its earlier state, because a snapshot has only the last batch of each producer.
Source: ProducerStateManager, UnifiedLog (Kafka 4.1).
"""

import contextlib
from typing import Any, Final

from numpy.typing import NDArray

from sparklog.clock import Clock
from sparklog.format.batch import CONTROL
from sparklog.format.names import snapshot_name
from sparklog.format.scan import Batches
from sparklog.fs import File, FileSystem
from sparklog.log.batch_windows import Window, marker_reader
from sparklog.log.producer_state import ProducerState, ReadMarker, has_producers, no_markers
from sparklog.log.producer_state_loading import replay_batches
from sparklog.logdir.partition.partition_segments import LogDirSegments
from sparklog.logdir.partition.producer_snapshots import (
    floor_of,
    is_whole,
    load_producers,
    snapshot_offsets,
    stray_offsets,
    write_snapshot,
)
from sparklog.logdir.segment_files import bases_of, joined, segment_bases

EXPIRY_CHECK_MS: Final = 600_000
Table = NDArray[Any]


class ProducerStateManager:
    """The producer state of a partition, for its writer.

    In methods, `start` is the log start offset; the first segment may start later.

    Args:
        path: The partition's directory.
        clock: The clock.
        expiration_ms: How long an idle producer stays (producer.id.expiration.ms).
        plain: Whether no batch of the log has a producer id, so that no state need be loaded.
    """

    def __init__(
        self, fs: FileSystem, path: str, clock: Clock, *, expiration_ms: int, plain: bool = False
    ) -> None:
        self._fs, self._path, self._clock = fs, path, clock
        self._expiration_ms, self._plain = expiration_ms, plain
        self._state: ProducerState | None = None
        self._earlier: ProducerState | None = None

    def forget(self) -> None:
        """Discard the state, so that it is loaded again at the next use."""
        self._state = self._earlier = None

    def continue_from(self, earlier: ProducerState) -> None:
        """Use `earlier`, the state at an earlier end of the same log, instead of a snapshot."""
        self._earlier = earlier

    @property
    def known(self) -> ProducerState | None:
        """The state in memory, at the log's end or an earlier end; None before the first use."""
        return self._earlier if self._state is None else self._state

    def at(self, end: int, start: int) -> ProducerState:
        """Return the state at the log's end. Idle producers are expired every ten minutes."""
        now = self._clock()
        if self._state is None and self._earlier is not None:
            self._state = self._caught_up(end, start)
        if self._state is None and self._plain:
            self._state = ProducerState(end, now=now, expiration_ms=self._expiration_ms)
        elif self._state is None:
            self._state = load_producers(
                self._fs,
                self._path,
                end,
                log_start=floor_of(start, segment_bases(self._fs, self._path)),
                now=now,
                expiration_ms=self._expiration_ms,
            )
        elif now - self._state.checked_ms >= EXPIRY_CHECK_MS:
            self._state.expire(now)
        return self._state

    def _caught_up(self, end: int, start: int) -> ProducerState | None:
        """Return the state of `continue_from`, advanced over the later batches up to `end`.

        Returns None if later batches were deleted, or if the log was cut below that state.
        """
        state, self._earlier = self._earlier, None
        assert state is not None
        bases = segment_bases(self._fs, self._path)
        # Batches after the earlier end were deleted by retention, or the log was cut: only a new
        # load is correct.
        if not bases or not max(start, bases[0]) <= state.end <= end:
            return None
        replay_batches(LogDirSegments(self._fs, self._path), state, end, bases=bases)
        return state

    def expire(self, now: int) -> int:
        """Forget idle producers, if the state is loaded; return their number."""
        return 0 if self._state is None else self._state.expire(now)

    def follow(self, table: Table, data: memoryview) -> bytes:
        """Apply batches that were just written to the log.

        `data` contains the batches at the positions in `table`.

        Returns:
            The new entries for the segment's transaction index (aborted transactions).
        """
        if self._state is None:
            return b""
        if not has_producers(table):
            self._state.end = int(table["last_offset"][-1]) + 1
            return b""
        self._plain = False
        reader: ReadMarker = no_markers
        if (table["attributes"] & CONTROL).any():
            batches = Batches(table, len(data), None)
            reader = marker_reader(Window(bytes(data), 0, batches), self._path)
        return self._state.apply(table, reader)

    def skip_to(self, end: int) -> None:
        """Advance to `end` over batches without producer ids."""
        if self._state is not None:
            self._state.end = end

    def snapshot(self, end: int, start: int) -> File | None:
        """Write a snapshot of the state at the log's end, and return the unsynced file.

        Returns None, and writes nothing, if a valid snapshot exists there, or if no record is below
        the end. `start` is the log start offset.
        """
        names = self._fs.listdir(self._path)
        known = [offset for offset in snapshot_offsets(names) if offset <= end]
        if end in known and not is_whole(self._fs, joined(self._path, snapshot_name(end))):
            known.remove(end)  # its writer was killed
        # Nothing happened since the newest snapshot. Kafka writes no snapshot at the log start
        # either.
        if end <= max([start, bases_of(names)[0], *known]):
            return None
        return write_snapshot(self._fs, self._path, self.at(end, start))

    def remove_strays(self, end: int, start: int) -> None:
        """Remove the snapshot files that Kafka would remove on loading; see `stray_offsets`."""
        names = self._fs.listdir(self._path)
        bases = bases_of(names)
        for offset in stray_offsets(names, bases, end=end, start=floor_of(start, bases)):
            with contextlib.suppress(FileNotFoundError):
                self._fs.unlink(joined(self._path, snapshot_name(offset)))
