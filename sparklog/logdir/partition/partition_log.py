"""A partition's log, for the writer. Used only under the log's write lock.

Every change is made in small steps, in an order that `truncate_to` can undo from any point: epochs
first, then data, then indexes; a roll writes the snapshot before the new segment. Changes are
durable after `sync`. Source: UnifiedLog, LocalLog, LogSegment (Kafka 4.1).
"""

import random
from dataclasses import dataclass, field
from typing import Any, Final, Self

from crc32c import crc32c
from numpy.typing import NDArray

from sparklog.clock import Clock
from sparklog.common import TopicPartition
from sparklog.config import TopicConfig
from sparklog.errors import DataCorruptionError, InvalidRequestError
from sparklog.format.batch import LOG_APPEND_TIME, Buffer
from sparklog.format.checkpoint_files import format_partition_metadata
from sparklog.format.names import PARTITION_METADATA
from sparklog.format.scan import rebase, rebase_headers, scan, stamp, stored_crcs
from sparklog.fs import File, FileSystem
from sparklog.log.producer_state import (
    EXPIRATION_MS,
    ProducerAppends,
    ProducerState,
    has_producers,
)
from sparklog.logdir.partition.leader_epochs import LeaderEpochFileCache, create_epochs
from sparklog.logdir.partition.producer_state_manager import ProducerStateManager
from sparklog.logdir.partition.rolling import entry_limits, fit
from sparklog.logdir.partition.segment import Segment
from sparklog.logdir.partition.truncation import SegmentState, truncate_to
from sparklog.logdir.partition.validation import checked, scan_file, stamp_file
from sparklog.logdir.segment_files import joined, segment_bases

Table = NDArray[Any]
FOREIGN: Final = (
    "the last batch is not the batch that was committed: the segment belongs to another partition "
    "or another log. Restore the segment from a copy"
)


class PartitionLog:
    """The log of a partition, for its writer.

    Opening is lazy: files are read on first use. `create` creates a new directory.

    Args:
        end_offset: The committed end.
        start_offset: The log start offset.
        plain: Whether no batch has a producer id, so that the first roll need not look for
            producers.

    Attributes:
        appended_crc: The CRC-32C of the CRC fields of all batches appended since this attribute was
            last set to 0.
        tail_crc: The CRC field of the last batch; -1 if unknown. A segment that ends with another
            batch belongs to another partition or log, and is not appended to.
    """

    def __init__(
        self,
        fs: FileSystem,
        path: str,
        config: TopicConfig,
        clock: Clock,
        *,
        end_offset: int,
        start_offset: int = 0,
        producer_id_expiration_ms: int = EXPIRATION_MS,
        plain: bool = False,
    ) -> None:
        self.path, self.config = path, config
        self.start_offset = start_offset
        self._fs, self._clock = fs, clock
        self._end = end_offset
        self._producer_state_manager = ProducerStateManager(
            fs, path, clock, expiration_ms=producer_id_expiration_ms, plain=plain
        )
        self.appended_crc, self.tail_crc = 0, -1
        self._reset()

    def _reset(self) -> None:
        self._segment: Segment | None = None
        self._first_base = 0
        self._fault: str | None = None
        self._epoch_cache: LeaderEpochFileCache | None = None
        self._producer_state_manager.forget()
        self._jitter_ms, self._stamped_ms = 0, -1
        self._unflushed = _Unflushed(self._fs, self.path)

    @classmethod
    def create(
        cls,
        fs: FileSystem,
        path: str,
        *,
        topic_id: str,
        config: TopicConfig,
        clock: Clock,
        start_offset: int = 0,
        key: TopicPartition | None = None,
    ) -> Self:
        """Create the directory with partition.metadata and an empty segment.

        The directory is durable after `sync` and a sync of the parent directory.

        Args:
            fs: The file system.
            path: The directory.
            topic_id: The topic's id.
            config: The topic's config.
            clock: The clock.
            start_offset: The offset of the first record.
            key: The partition. Without a key, the directory belongs to partition 0 and has a
                temporary name.

        Raises:
            FileExistsError: The directory exists.
        """
        assert key is None or path.endswith(str(key))
        fs.mkdir(path)
        metadata = fs.open(joined(path, PARTITION_METADATA), create=True)
        metadata.pwrite(format_partition_metadata(topic_id, 0 if key is None else key.partition), 0)
        log = cls(fs, path, config, clock, end_offset=start_offset, start_offset=start_offset)
        log._unflushed.files += [metadata, create_epochs(fs, path)]  # `sync` makes them durable
        log._segment = log._new_segment()
        log._jitter_ms = log._draw_jitter()
        return log

    # -- state

    @property
    def end_offset(self) -> int:
        """The offset of the next record."""
        return self._end if self._segment is None or self._fault else self._segment.end

    @property
    def state(self) -> SegmentState:
        """The present state of the log, to which `truncate_to` can return later."""
        segment = self._load()
        return SegmentState(segment.base, segment.size, segment.end)

    @property
    def stamped_ms(self) -> int:
        """The append time (ms) in the newest batch, if it was stamped; -1 if unknown.

        Batches are stamped if message.timestamp.type is LogAppendTime.
        """
        return max(self._stamped_ms, self._active.stamped_ms)

    @property
    def producers(self) -> ProducerState:
        """The producer state at the log's end. Loaded at first use, from a snapshot and the log."""
        return self._producer_state_manager.at(self._active.end, self.start_offset)

    def expire_producers(self, now: int) -> int:
        """Forget idle producers, if any are loaded; return their number."""
        return self._producer_state_manager.expire(now)

    @property
    def first_base(self) -> int:
        """The base offset of the first segment, as of when the log was loaded."""
        self._load()
        return self._first_base

    def size_on_disk(self) -> int:
        """Return the size of the active segment's file; -1 if the partition needs a recovery.

        That is the case if the file was replaced since the last call, or if the files contradict
        the committed end.
        """
        segment = self._load()
        return -1 if self._fault else segment.size_on_disk()

    def _load(self) -> Segment:
        if self._segment is not None:
            return self._segment
        bases = segment_bases(self._fs, self.path)
        self._first_base = bases[0] if bases else self._end
        # A segment past the committed end is left by a roll that a crash interrupted, or belongs to
        # another log. The fault below leads to a recovery.
        known = [base for base in bases if base <= self._end]
        if not known:
            raise DataCorruptionError(
                "no segment contains the end of the log", path=self.path, first=self._end
            )
        self._segment = Segment.load(
            self._fs,
            self.path,
            known[-1],
            self._end,
            interval_bytes=self.config.index_interval_bytes,
            now=self._clock(),
        )
        self._jitter_ms = self._draw_jitter()
        if self._segment.end != self._end:
            self._fault = f"the log ends at offset {self._segment.end}, not {self._end}"
        elif len(known) < len(bases):
            self._fault = f"segment {bases[-1]} is past the end {self._end}"
        elif self.is_foreign:
            self._fault = FOREIGN
        return self._segment

    @property
    def is_foreign(self) -> bool:
        """Whether the last batch of the log differs from the batch that was committed there.

        The CRC fields of the two batches are compared. False if one of them is unknown, or if the
        log has another end.
        """
        segment = self._load()
        if segment.end != self._end or -1 in (segment.tail_crc, self.tail_crc):
            return False
        return segment.tail_crc != self.tail_crc

    def foreign_error(self) -> DataCorruptionError:
        """Return the error for a segment of another partition or log; see `is_foreign`."""
        segment = self._load()
        return DataCorruptionError(
            FOREIGN, path=segment.log.path, first=segment.base, end=segment.end
        )

    @property
    def _active(self) -> Segment:
        segment = self._load()
        if self._fault:
            raise DataCorruptionError(
                self._fault, path=segment.log.path, first=segment.end, end=self._end
            )
        return segment

    @property
    def _epochs(self) -> LeaderEpochFileCache:
        if self._epoch_cache is None:
            self._epoch_cache = LeaderEpochFileCache(self._fs, self.path)
        return self._epoch_cache

    def _draw_jitter(self) -> int:
        bound = self.config.jitter_bound_ms
        return random.randrange(bound) if bound > 0 else 0  # noqa: S311 - not a secret

    # -- appending

    def append(
        self, data: Buffer, leader_epoch: int, *, append_time_ms: int | None = None
    ) -> tuple[int, int]:
        """Append complete v2 batches with consecutive offsets; roll segments as Kafka does.

        The offsets in `data` may start anywhere (at 0, or after the previous call's). A writable
        buffer is patched in place, which can be repeated; other buffers are copied. Producers are
        not checked here: see `producer_appends`. `append_time_ms` becomes the timestamp of all
        records (message.timestamp.type=LogAppendTime).

        Returns:
            The first offset, and the offset after the last record.

        Raises:
            InvalidRequestError: `data` is malformed. No batch is written.
            RecordTooLargeError: A batch exceeds segment.bytes. No batch is written.
        """
        table = self.scanned(data)
        active = self._active
        if not len(table):
            return active.end, active.end
        first = active.end
        if has_producers(table):
            # Load the state before these batches are in the log, or a replay would include them.
            self._producer_state_manager.at(first, self.start_offset)
        own = memoryview(data)
        if own.readonly:
            own = memoryview(bytearray(data))
        shift = first - int(table["base_offset"][0])
        rebase(own, shift, leader_epoch)
        table["base_offset"] += shift
        table["last_offset"] += shift
        if append_time_ms is not None:
            ends = (table["position"] + table["size"]).tolist()
            stamp(own, table["position"].tolist(), ends, append_time_ms)
            table["max_timestamp"] = append_time_ms
            table["attributes"] |= LOG_APPEND_TIME
        self._note_crcs(stored_crcs(own, table))
        self._epochs.assign(leader_epoch, first)
        view, at = own, 0
        while at < len(table):
            count = self._fit(table[at:])
            if count == 0:
                self.roll()
                continue
            self._write(view, table[at : at + count])
            at += count
        return first, self._active.end

    def _note_crcs(self, crcs: bytes) -> None:
        self.appended_crc = crc32c(crcs, self.appended_crc)
        self.tail_crc = int.from_bytes(crcs[-4:], "big")
        self._active.tail_crc = -1  # outdated by the append

    def scanned(self, data: Buffer) -> Table:
        """Return the table of the batches in data to append; CRCs are not checked.

        The errors are those of `append`.
        """
        what = "data to append"
        found = scan(data, path=what, check_crc=False)
        return checked(found, len(data), what=what, batch_bytes_max=self.config.roll_bytes)

    def _fit(self, table: Table) -> int:
        active = self._active
        count = fit(
            table, active.roll_params, self.config, now=self._clock(), jitter_ms=self._jitter_ms
        )
        room = active.room(table[:count], entry_limits(self.config)) if count else 0
        return max(room, 0 if active.size else 1)  # an empty segment accepts at least one batch

    def _write(self, view: memoryview, table: Table) -> None:
        active = self._active
        active.append(view, table)
        aborted = self._producer_state_manager.follow(table, view)
        if aborted:
            active.add_aborted(aborted)
            self._unflushed.names = True

    @property
    def known_producers(self) -> ProducerState | None:
        """The producer state if it is in memory, else None. A reopened log can continue from it."""
        return self._producer_state_manager.known

    def continue_from(self, producers: ProducerState) -> None:
        """Use a producer state that this log had at an earlier end, instead of a snapshot."""
        self._producer_state_manager.continue_from(producers)

    def producer_appends(self) -> ProducerAppends:
        """Return a checker for idempotent producers' batches that are appended at the log's end."""
        return ProducerAppends(lambda: self.producers, self.end_offset, self.path)

    def adopt(
        self,
        chunk_path: str,
        *,
        leader_epoch: int,
        size_bytes: int | None = None,
        append_time_ms: int | None = None,
    ) -> tuple[int, int]:
        """Make a staged file of complete batches (offsets from 0) a segment, by rename.

        The file must be on the same file system and synced; its headers are patched in place. Size
        and batches are checked first, CRCs are not. `append_time_ms`: as in `append`; costs a pass
        over the file.

        Returns:
            The first offset, and the offset after the last record.

        Raises:
            InvalidRequestError: The file does not fit into a segment, or differs from its
                announcement.
        """
        with self._fs.open(chunk_path, write=append_time_ms is not None) as file:
            size = file.size()
            if append_time_ms is not None:
                stamp_file(file, size, append_time_ms)
            found, crcs = scan_file(file)
        table = checked(found, size, what=chunk_path, batch_bytes_max=self.config.roll_bytes)
        if size_bytes not in (None, size) or size > self.config.roll_bytes or not size:
            raise InvalidRequestError(
                f"{chunk_path} has {size} bytes, but {size_bytes} were announced, and a segment "
                f"has at most {self.config.roll_bytes} (segment.bytes)"
            )
        if has_producers(table):
            raise InvalidRequestError(
                f"{chunk_path} contains batches with a producer id (of an idempotent or "
                "transactional producer); only a chunk without producer ids can be renamed to a "
                "segment, because a rename doesn't update the partition's producer state"
            )
        prefixes = rebase_headers(table, self._active.end, leader_epoch).tobytes()
        self.roll()
        first = self._active.end
        self._epochs.assign(leader_epoch, first)
        table["base_offset"] += first
        table["last_offset"] += first
        self._note_crcs(crcs)
        self._unflushed.names = True
        self._segment = self._active.replace_by(chunk_path, table, prefixes, size, self._clock())
        self._producer_state_manager.skip_to(self._segment.end)
        return first, self._segment.end

    def roll(self) -> None:
        """Close the active segment, unless empty, and start a new segment at the end."""
        active = self._active
        if not active.size:
            return
        # The order that `truncate_to` can undo: the snapshot exists before the new segment, because
        # a segment without its snapshot would need a replay from an older one.
        active.finish()
        self._snapshot()
        self._unflushed.segments.append(active)
        self._end, self._stamped_ms = active.end, self.stamped_ms
        self._segment = self._new_segment()
        self._jitter_ms = self._draw_jitter()

    def _new_segment(self) -> Segment:
        self._unflushed.names = True
        return Segment.create(
            self._fs,
            self.path,
            self._end,
            interval_bytes=self.config.index_interval_bytes,
            now=self._clock(),
        )

    def _snapshot(self) -> None:
        file = self._producer_state_manager.snapshot(self._active.end, self.start_offset)
        if file is not None:
            self._unflushed.files.append(file)
            self._unflushed.names = True

    def delete_records(self, start: int) -> None:
        """Raise the log start offset; retention deletes the files later.

        Raises:
            InvalidRequestError: `start` is past the end.
        """
        if start > self.end_offset:
            raise InvalidRequestError(
                f"{self.path}: offset {start} is past the end {self.end_offset}"
            )
        if start > self.start_offset:
            self.start_offset = start
            self._epochs.truncate_from_start(start)

    # -- durability

    def sync(self) -> None:
        """Make all appends durable: all rolled segments, and the log of the active segment.

        The active segment's indexes are not synced, because they can be rebuilt. The call must not
        be repeated after an error: truncate, and write again.
        """
        self._unflushed.sync(self._segment)
        self._unflushed = _Unflushed(self._fs, self.path)

    def truncate_to(self, state: SegmentState) -> None:
        """Return to an earlier `state`: remove later appends, durably."""
        self._close_files()
        self._reset()
        truncate_to(self._fs, self.path, state)
        self._end, self.tail_crc = state.end, -1

    def close(self) -> None:
        """Close the log cleanly, durably, so that it can be opened without a recovery.

        Writes the final time index entry and a producer snapshot at the end, and removes unused
        snapshots.
        """
        active = self._active
        if self.start_offset:  # a crash may have prevented this
            self._epochs.truncate_from_start(self.start_offset)
        active.finish()
        self._snapshot()
        self._producer_state_manager.remove_strays(active.end, self.start_offset)
        active.sync(indexes=True)
        self._unflushed.names = True
        self.sync()
        self._close_files()
        end = active.end
        self._reset()
        self._end = end

    def _close_files(self) -> None:
        self._unflushed.close()
        if self._segment is not None:
            self._segment.close()


@dataclass(slots=True)
class _Unflushed:
    """Changes of a partition that are written, but not synced yet.

    Attributes:
        segments: Rolled segments, which are closed after the sync.
        files: Other files to sync and close.
        names: Whether the directory has new or removed names.
    """

    fs: FileSystem
    path: str
    segments: list[Segment] = field(default_factory=list)
    files: list[File] = field(default_factory=list)
    names: bool = False

    def sync(self, active: Segment | None) -> None:
        """Make the changes durable, and the log of the active segment; close all other files.

        Names are synced last, so that a file that survives a crash has its contents. Must not be
        repeated after an error: a second fsync may succeed without having written anything.
        """
        for segment in self.segments:
            segment.sync(indexes=True)
            segment.close()
        for file in self.files:
            file.sync()
            file.close()
        if active is not None:
            active.sync(indexes=False)
        # Names last, so that a file that survives a crash has its contents.
        if self.names:
            self.fs.sync_dir(self.path)

    def close(self) -> None:
        """Close the files; their contents may be lost."""
        for segment in self.segments:
            segment.close()
        for file in self.files:
            file.close()


__all__ = ["PartitionLog", "SegmentState"]
