"""Reads a partition of a checkpoint's log dir: the newest record of each key.

Each file is a record, and each batch has a single record, so batches are found by their headers;
there are no indexes. A file exists if its newest record has a value. Readers take no lock: an
incomplete batch at the end of the last segment is a write in progress, or a torn write, and is
ignored. A damaged record is ignored, too, if its file is known (damaged_records.py) and a newer
record of the same file follows, or if it is a deletion: then no content is missing.

A torn write is at the end of a file and has too few bytes or, after a power cut, wrong bytes. If a
complete batch follows, the batch before it was complete, too, and was damaged since.
service.verification also searches for the next complete batch, but only in a range of offsets that
the ledger confirms. Here any batch with a good CRC counts, as in Segment.scala, because its offset,
which the CRC doesn't cover, may be damaged as well.

Batches are read as in any log (log.batch_windows). Unlike in logdir.partition, no ledger defines
where a partition ends: the last complete batch does. And a log dir stops at damage, whereas here
the newest record of a key may be known after it. Source:
sparklog/jvm/scala/checkpoint/Partition.scala, Segment.scala.
"""

import contextlib
import logging
import os
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from crc32c import crc32c
from numpy.typing import NDArray

from sparklog.checkpoint.log_backed.damaged_records import DamagedRecord, examine
from sparklog.checkpoint.log_backed.layout import partition_tag
from sparklog.errors import DataCorruptionError, LogLockedError
from sparklog.format.batch import CRC_START, HEADER_SIZE, LOG_OVERHEAD, MAGIC, Buffer
from sparklog.format.checkpoint_files import Epochs
from sparklog.format.decoder import Decoder
from sparklog.format.names import log_name
from sparklog.format.scan import Table
from sparklog.fs import File, FileSystem
from sparklog.log.batch_windows import walk
from sparklog.logdir.partition.leader_epochs import read_epochs
from sparklog.logdir.segment_files import joined, segment_bases

SEGMENT_BYTES: Final = 1 << 30
_OVERHEAD: Final = struct.Struct(">qi")
_TRIES: Final = 3
_COLUMNS: Final = ["key", "value"]
_LOGGER: Final = logging.getLogger(__name__)
REPAIR: Final = "`sparklog checkpoint verify PATH --repair`"
_CURE: Final = (
    f"with the query stopped, run {REPAIR}, which keeps the valid records and reports where the "
    "query can continue; or restore the checkpoint from a copy"
)


class NewestRecord(NamedTuple):
    """The newest record of a key: position of the batch, and size of the value."""

    base: int  # base offset of the segment
    position: int
    size: int  # bytes of the batch
    offset: int
    timestamp: int  # ms
    value_bytes: int  # -1: the file was deleted


@dataclass(slots=True)
class CheckpointSegment:
    """A segment file whose complete batches, up to position `end`, have been read."""

    base: int
    identity: tuple[int, int]
    end: int = 0
    size: int = 0
    next_offset: int = 0
    is_torn: bool = False  # an incomplete batch follows `end`
    is_short: bool = False  # the file ends before that batch does
    damaged: list[DamagedRecord] = field(default_factory=list)  # skipped, before `end`
    tables: list[Table] = field(default_factory=list)
    keys: list[pa.Array] = field(default_factory=list)


class CheckpointPartition:
    """The newest record of every key of a partition; `refresh` reads new records.

    Methods raise DataCorruptionError (file, position, offsets) if a batch is damaged, complete
    batches follow, and the damaged file has no newer record. Not thread-safe.

    Attributes:
        entries: The newest record of every key, including deletions, ordered by offset.
        segments: The segment files. With `lenient`, damage raises no error and is recorded in
            their `damaged`, for a repair.
    """

    def __init__(self, fs: FileSystem, directory: str, *, lenient: bool = False) -> None:
        self.directory = directory
        self.fs = fs
        self.tag = partition_tag(os.path.basename(directory))
        self._lenient = lenient
        self.segments: list[CheckpointSegment] = []
        self.entries: dict[str, NewestRecord] = {}
        self._warned: set[tuple[int, int]] = set()
        self.refresh()

    @property
    def next_offset(self) -> int:
        """The offset of the next record, at least the start offset of the last leader epoch."""
        epochs = epochs_of(self.fs, self.directory)
        start = epochs[-1][1] if epochs else 0
        return max(start, self.segments[-1].next_offset if self.segments else 0)

    @property
    def epoch(self) -> int:
        """The leader epoch of the next record."""
        epochs = epochs_of(self.fs, self.directory)
        return epochs[-1][0] if epochs else 0

    def path(self, segment: CheckpointSegment) -> str:
        """Return the path of a segment's file."""
        return joined(self.directory, log_name(segment.base))

    def refresh(self) -> None:
        """Read new records; all records if a segment was rewritten. Cost: a stat per segment.

        Raises:
            LogLockedError: The partition was rewritten during each of the attempts.
        """
        for _ in range(_TRIES):
            with contextlib.suppress(FileNotFoundError):  # a cleaning removed a segment
                self._refresh()
                # All segments must be of the same time, because cleaning removes a deletion only
                # after the records that it deleted.
                if all(self.fs.identity(self.path(s)) == s.identity for s in self.segments):
                    self._check_order()
                    self._check_damaged()
                    return
            self.segments, self.entries = [], {}
        raise LogLockedError(
            f"{self.directory} was rewritten each time that it was read: try again",
            path=self.directory,
        )

    def _refresh(self) -> None:
        bases = segment_bases(self.fs, self.directory) if self.fs.exists(self.directory) else []
        known = [segment.base for segment in self.segments]
        if known != bases[: len(known)] or not all(map(self._is_same, self.segments)):
            self.segments, self.entries = [], {}
        for base in bases[len(self.segments) :]:
            path = joined(self.directory, log_name(base))
            identity = self.fs.identity(path)
            self.segments.append(CheckpointSegment(base, identity, next_offset=base))
        first = max((n for n, s in enumerate(self.segments) if s.end), default=0)
        for segment in self.segments[first:]:
            self._read_new_batches(segment)

    def read(self, key: str) -> bytes | None:
        """Return the content of a file after checking the CRC, or None if the file does not exist.

        Raises:
            DataCorruptionError: The batch was damaged after `refresh`.
        """
        entry = self.entries.get(key)
        for _ in range(_TRIES):  # a cleaning may rewrite its segment at the same time
            if entry is None or entry.value_bytes < 0:
                return None
            found = self._read_value(entry)
            if found is not None:
                return found
            self.refresh()
            entry = self.entries.get(key)
        assert entry is not None
        raise self._damage(entry, "the record was in the segment before and is missing now")

    def _read_value(self, entry: NewestRecord) -> bytes | None:
        segment = next(s for s in self.segments if s.base == entry.base)
        path = self.path(segment)
        try:
            with self.fs.open(path) as file:
                if self.fs.identity(path) != segment.identity:
                    return None
                raw = file.pread(entry.size, entry.position)
        except FileNotFoundError:
            return None
        crc = int.from_bytes(raw[CRC_START - 4 : CRC_START], "big")
        if len(raw) < entry.size or crc32c(memoryview(raw)[CRC_START:]) != crc:
            raise self._damage(entry, "the CRC of the batch does not match")
        end = len(raw) - 1  # after the value: the number of headers, 0
        return raw[end - entry.value_bytes : end]

    def _damage(self, entry: NewestRecord, reason: str) -> DataCorruptionError:
        path = joined(self.directory, log_name(entry.base))
        return DataCorruptionError(
            reason, path=path, position=entry.position, first=entry.offset, end=entry.offset + 1
        )

    def _is_same(self, segment: CheckpointSegment) -> bool:
        """Return True if the segment that was read still exists, and was only appended to."""
        path = self.path(segment)
        try:
            if self.fs.identity(path) != segment.identity:
                return False
            if not segment.tables:
                return True
            last = segment.tables[-1][-1]
            with self.fs.open(path) as file:
                # A rewritten segment may have the same inode again; then the last known batch is
                # elsewhere.
                found = file.pread(LOG_OVERHEAD, int(last["position"]))
        except FileNotFoundError:
            return False
        return found == _OVERHEAD.pack(last["base_offset"], last["size"] - LOG_OVERHEAD)

    def _read_new_batches(self, segment: CheckpointSegment) -> None:
        """Read the batches after the known batches."""
        is_last = segment is self.segments[-1]
        with self.fs.open(self.path(segment)) as file:
            segment.size = file.size()
            while True:
                for window in walk(file, start=segment.end, limit=segment.size):
                    table = window.batches.table
                    if len(table):
                        self._add_entries(segment, file.path, window.data, window.position, table)
                    segment.end = window.batches.end
                segment.is_torn = segment.end < segment.size
                if not segment.is_torn:
                    return
                tail = TornTail.read(file, segment.end, segment.size)
                segment.is_short = tail.is_short
                if is_last and tail.next_batch is None:
                    return
                self._skip_damage(segment, file, tail.next_batch)

    def _skip_damage(self, segment: CheckpointSegment, file: File, position: int | None) -> None:
        """Record damage, and continue at the next complete batch.

        Args:
            segment: The segment with the damage.
            file: The file of the segment.
            position: The position of the next complete batch; None if the next complete batch is
                in the next segment.

        Raises:
            DataCorruptionError: The file that the damaged record belongs to is unknown.
        """
        until = segment.size if position is None else position
        raw = file.pread(until - segment.end, segment.end)
        if position is None:
            end = self.segments[self.segments.index(segment) + 1].base
        else:
            end = int.from_bytes(file.pread(8, position), "big", signed=True)
        epoch = int(segment.tables[-1][-1]["leader_epoch"]) if segment.tables else 0
        lost = examine(
            raw, position=segment.end, first=segment.next_offset, end=end, epoch=max(0, epoch),
            tag=self.tag,
        )  # fmt: skip
        if not self._lenient and any(each.key is None for each in lost):
            raise DataCorruptionError(
                "a batch is damaged, valid batches follow, and the file that the damaged batch "
                f"belongs to is unknown; {_CURE}",
                path=file.path,
                position=segment.end,
                first=segment.next_offset,
                end=end if end > segment.next_offset else None,
            )
        segment.damaged += lost
        for each in lost:
            if each.key is not None and each.is_deletion:
                self.entries.pop(each.key, None)
                at = segment.base, each.position, each.size, each.first
                self.entries[each.key] = NewestRecord(*at, timestamp=0, value_bytes=-1)
        segment.end = until
        segment.next_offset = max(segment.next_offset, end)

    def _check_damaged(self) -> None:
        """Raise DataCorruptionError if the newest record of a file may be a damaged record."""
        for segment in self.segments:
            for each in segment.damaged:
                entry = None if each.key is None else self.entries.get(each.key)
                after = (entry.base, entry.position) if entry is not None else (-1, 0)
                place = segment.base, each.position
                if after >= place:
                    if place not in self._warned:
                        self._warned.add(place)
                        _LOGGER.warning(
                            "%s at byte %d: a record of the file %s is damaged; no data are "
                            "missing, because a newer record follows", self.path(segment),
                            each.position, each.key,
                        )  # fmt: skip
                elif not self._lenient:
                    raise DataCorruptionError(
                        f"the record of the file {each.key} is damaged, and no newer record of the "
                        f"file follows; {_CURE}",
                        path=self.path(segment),
                        position=each.position,
                        first=each.first,
                        end=each.end,
                    )

    def _add_entries(
        self, segment: CheckpointSegment, path: str, data: Buffer, position: int, table: Table
    ) -> None:
        """Add the newest record of each key of some batches."""
        odd = np.flatnonzero((table["count"] != 1) | (table["magic"] != MAGIC))
        if len(odd):
            raise DataCorruptionError(
                f"the batch has {table['count'][odd[0]]} records, but a batch of a checkpoint has "
                "one record: another program wrote to this file",
                path=path,
                position=int(table["position"][odd[0]]),
            )
        keys, lengths = _fields(data, position, table, path)
        odd = np.flatnonzero(table["size"] != _batch_bytes(keys, lengths))
        if len(odd):
            raise DataCorruptionError(
                "the record has headers, but records of a checkpoint have none: another program "
                "wrote to this file",
                path=path,
                position=int(table["position"][odd[0]]),
            )
        self._check_tags(path, table)
        segment.tables.append(table)
        segment.keys.append(keys)
        rows = zip(
            table["position"].tolist(),
            table["size"].tolist(),
            table["base_offset"].tolist(),
            table["max_timestamp"].tolist(),
            lengths.tolist(),
            strict=True,
        )
        entries = self.entries
        for key, (at, size, offset, timestamp, length) in zip(keys.to_pylist(), rows, strict=True):
            entries.pop(key, None)  # keeps the entries ordered by offset
            entries[key] = NewestRecord(segment.base, at, size, offset, timestamp, length)
        segment.next_offset = int(table["last_offset"][-1]) + 1

    def _check_tags(self, path: str, table: Table) -> None:
        """Raise DataCorruptionError if the batches were written to another partition."""
        tags = table["base_sequence"]
        foreign = np.flatnonzero((tags != self.tag) & (tags != -1))
        if not len(foreign):
            return
        row = table[foreign[0]]
        names = partition_dirs(self.fs, os.path.dirname(self.directory))
        owner = next((n for n in names if partition_tag(n) == row["base_sequence"]), None)
        raise DataCorruptionError(
            f"the record was written to {owner or 'another partition'}, not to "
            f"{os.path.basename(self.directory)}. Partitions or their segment files were swapped "
            "or copied. With the query stopped, move each file back to its partition, or restore "
            "the checkpoint from a copy",
            path=path,
            position=int(row["position"]),
            first=int(row["base_offset"]),
            end=int(row["last_offset"]) + 1,
        )

    def _check_order(self) -> None:
        """Raise DataCorruptionError if a segment contains other offsets than the file name says."""
        end = 0
        for segment in self.segments:
            first = int(segment.tables[0][0]["base_offset"]) if segment.tables else segment.base
            if first < segment.base or segment.base < end:
                raise DataCorruptionError(
                    f"the segment begins with offset {first}, but its name says {segment.base}, "
                    f"and the previous segment ends at {end}. Segment files were swapped or "
                    "copied. With the query stopped, move each file back to its name, or restore "
                    "the checkpoint from a copy",
                    path=self.path(segment),
                    position=0,
                    first=first,
                )
            end = segment.next_offset

    def live(self) -> Iterator[tuple[str, NewestRecord]]:
        """Yield key and newest record of each file that was not deleted."""
        return ((key, entry) for key, entry in self.entries.items() if entry.value_bytes >= 0)


def epochs_of(fs: FileSystem, directory: str) -> Epochs:
    """Return the leader epochs of a partition; none if the file does not exist.

    Raises:
        DataCorruptionError: The file is damaged. The message names the command that repairs it.
    """
    try:
        return read_epochs(fs, directory)
    except DataCorruptionError as error:
        raise DataCorruptionError(
            f"the leader epochs can't be read; with the query stopped, {REPAIR} writes them again",
            path=error.path,
            position=error.position,
        ) from error


def _fields(
    data: Buffer, position: int, table: Table, path: str
) -> tuple[pa.Array, NDArray[np.int64]]:
    """Return the keys of batches as strings, and the lengths of their values (-1: null)."""
    decoder = Decoder(_COLUMNS)
    keys: list[pa.Array] = []
    lengths: list[pa.Array] = []
    done = 0
    while done < len(table):
        done += decoder.add_many(data, table[done:], path=path, position=position)
        batch = decoder.finish()
        keys.append(batch.column("key"))
        lengths.append(pc.fill_null(pc.binary_length(batch.column("value")), -1))
    key = pa.concat_arrays(keys)
    if key.null_count:
        raise DataCorruptionError(
            "the record has no key: another program wrote to this file",
            path=path,
            position=position,
        )
    try:
        text = key.cast(pa.string())
    except pa.ArrowInvalid as error:
        raise DataCorruptionError(f"a key is not valid UTF-8: {error}", path=path) from error
    return text, pa.concat_arrays(lengths).to_numpy(zero_copy_only=False).astype(np.int64)


def _batch_bytes(keys: pa.Array, lengths: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the sizes of single-record batches with these keys and value lengths (-1: null).

    A batch of this size has no headers, and its value ends before its last byte.
    """
    key = pc.binary_length(keys).to_numpy(zero_copy_only=False).astype(np.int64)
    value = np.maximum(lengths, 0)
    # attributes, two deltas, and the number of headers take a byte each
    body = 4 + _varint_bytes(key) + key + _varint_bytes(value) + value
    sizes: NDArray[np.int64] = HEADER_SIZE + _varint_bytes(body) + body
    return sizes


def _varint_bytes(numbers: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the sizes of zig-zag varints of numbers >= 0; -1 takes as many bytes as 0."""
    sizes = np.ones(len(numbers), np.int64)
    for bits in (6, 13, 20, 27, 34):
        sizes += numbers >> bits != 0
    return sizes


def partition_dirs(fs: FileSystem, logs: str) -> list[str]:
    """Return the names of the partition directories of a log dir."""
    names = fs.listdir(logs) if fs.is_dir(logs) else []
    return [n for n in names if not n.startswith(".") and fs.is_dir(os.path.join(logs, n))]


@dataclass(frozen=True, slots=True)
class TornTail:
    """The bytes after the last complete batch: a torn write, unless a complete batch follows."""

    is_short: bool  # the file ends before the batch does
    next_batch: int | None  # position of the next complete batch

    @classmethod
    def read(cls, file: File, position: int, size: int) -> "TornTail":
        """Examine the bytes [position, size) of a segment. Cost: a CRC for each candidate."""
        raw = file.pread(size - position, position)
        length = int.from_bytes(raw[8:LOG_OVERHEAD], "big", signed=True)
        short = len(raw) < HEADER_SIZE or length + LOG_OVERHEAD > len(raw)
        found = next((position + at for at in _candidates(raw) if _is_whole(raw, at)), None)
        return cls(short, found)


def _candidates(raw: bytes) -> list[int]:
    """Return positions after the first byte where magic and length fit a batch."""
    bytes_ = np.frombuffer(raw, np.uint8)
    last = len(raw) - HEADER_SIZE
    if last < 1:
        return []
    at = np.flatnonzero(bytes_[17 : last + 17] == MAGIC) + 1
    length = np.zeros(len(at), np.int64)
    for place in range(4):
        length = length << 8 | bytes_[at + 8 + place]
    fits = (length >= HEADER_SIZE - LOG_OVERHEAD) & (at + LOG_OVERHEAD + length <= len(raw))
    candidates: list[int] = at[fits].tolist()
    return candidates


def _is_whole(raw: bytes, at: int) -> bool:
    size = LOG_OVERHEAD + int.from_bytes(raw[at + 8 : at + LOG_OVERHEAD], "big")
    crc = int.from_bytes(raw[at + CRC_START - 4 : at + CRC_START], "big")
    return crc32c(memoryview(raw)[at + CRC_START : at + size]) == crc
