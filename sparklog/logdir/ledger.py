"""The commit ledger: partition `__sparklog_commits-0`, a record for each change of the log.

Writing a record is the commit point. The ledger is a Kafka partition like any other: a record per
batch, key = writer or null, value = JSON (see `sparklog.storage.ledger_records`). A new segment
starts with a snapshot of the complete state, so older segments are not needed for opening.
"""

import json
import logging
import os
from collections.abc import Collection, Iterator
from dataclasses import replace
from functools import cache
from typing import Final

import numpy as np
import pyarrow as pa

from sparklog.common import TopicPartition
from sparklog.config import TopicConfig
from sparklog.errors import DataCorruptionError
from sparklog.format.batch import encode_one
from sparklog.format.names import log_name
from sparklog.format.records import Decoder
from sparklog.format.scan import misplaced_rows, scan
from sparklog.fs import FileSystem, read_bytes
from sparklog.log.partition_reader import PartitionReader
from sparklog.logdir.partition.partition_log import PartitionLog
from sparklog.logdir.partition.partition_segments import LogDirSegments
from sparklog.logdir.repair_advice import REBUILDS_LEDGER
from sparklog.logdir.segment_files import segment_bases
from sparklog.storage.ledger_records import (
    CommitRecord,
    LedgerRecord,
    ResetRecord,
    SnapshotRecord,
    decode,
    encode,
)
from sparklog.storage.log_state import LogState
from sparklog.storage.segments import StaleReadError

LEDGER_TOPIC: Final = "__sparklog_commits"
LEDGER: Final = TopicPartition(LEDGER_TOPIC, 0)
LEDGER_DIR: Final = f"{LEDGER_TOPIC}-0"
SEGMENT_BYTES: Final = 16 << 20

_LOGGER = logging.getLogger(__name__)
# The ledger rolls only for a snapshot, because every segment must start with a snapshot.
_CONFIG: Final = {
    "retention.ms": "-1",
    "max.message.bytes": str(2**31 - 1),
    "segment.ms": str(2**63 - 1),
    "segment.bytes": str(2**31 - 1),
    "segment.index.bytes": str(2**31 - 1),
}


@cache
def ledger_config() -> TopicConfig:
    return TopicConfig.parse(_CONFIG)


def ledger_path(directory: str) -> str:
    """Return the ledger's directory in the first log dir."""
    return os.path.join(directory, LEDGER_DIR)


def has_ledger(fs: FileSystem, directory: str) -> bool:
    """Return True if sparklog manages the log with this first log dir; a broker's has no ledger."""
    return fs.is_dir(ledger_path(directory))


class LedgerWriter:
    """The ledger's partition log, for appends under the write lock."""

    segment_bytes = SEGMENT_BYTES
    """The size at which a new segment starts, with a snapshot."""

    def __init__(self, log: PartitionLog) -> None:
        self.log = log

    @property
    def end(self) -> int:
        """The offset after the last record."""
        return self.log.end_offset

    @property
    def wants_snapshot(self) -> bool:
        """Whether the next record must be a snapshot in a new segment, because this one is full."""
        state = self.log.state
        # An empty segment after a roll is left by a step that failed between the roll and the
        # snapshot.
        return state.size >= self.segment_bytes or (state.size == 0 and state.end > 0)

    def append(self, record: LedgerRecord, *, epoch: int, time_ms: int, sync: bool) -> LedgerRecord:
        """Append a record with this time and leader epoch; return the record as written.

        With `sync`, the record is durable when the method returns.
        """
        # The flag tells recovery whether a damaged record can have been lost by a power cut
        # (flush=none), or whether it was synced and is damaged.
        flushed = record.flushed and sync
        stamped = replace(record, time_ms=time_ms, epoch=epoch, flushed=flushed)
        key = stamped.writer.encode() if isinstance(stamped, CommitRecord | ResetRecord) else None
        self.log.append(encode_one(key or None, encode(stamped), timestamp=time_ms), epoch)
        if sync:
            self.log.sync()
        return stamped


class LedgerFiles:
    """The ledger's records, read from its files: a `sparklog.storage.commits.Ledger`."""

    def __init__(self, fs: FileSystem, home: str) -> None:
        self._fs, self.home = fs, home

    @property
    def oldest(self) -> int:
        """The offset of the oldest available record."""
        return ledger_bases(self._fs, self.home)[0]

    def records(self, first: int, end: int) -> Iterator[tuple[int, LedgerRecord]]:
        """Yield (offset, record) of the ledger's offsets [first, end); errors as in `replay`."""
        return replay(self._fs, self.home, first, end)

    def records_backwards(self, end: int) -> Iterator[tuple[int, LedgerRecord]]:
        """Yield (offset, record) below `end`, the newest first. Cost: a segment at a time."""
        for base in reversed([b for b in ledger_bases(self._fs, self.home) if b < end]):
            yield from reversed(list(replay(self._fs, self.home, base, end)))
            end = base

    def commits_of(self, end: int, writers: Collection[str]) -> Iterator[tuple[int, LedgerRecord]]:
        """Yield (offset, record) of all writers below `end`, the newest first.

        `writers` is not used, because the writer of a record is known only after reading it.
        """
        return self.records_backwards(end)


def fold(fs: FileSystem, directory: str, end: int, *, state: LogState, first: int | None) -> None:
    """Apply the ledger records [first, end) to `state`.

    If `first` is None, `state` must be empty, and the records from the last snapshot on are
    applied.

    Cost: a pass over the ledger's last segment (at most 16 MiB, a few milliseconds per MiB).
    """
    rooted = first is not None
    if first is None:
        first = last_base(fs, directory, end)
    for offset, record in replay(fs, directory, first, end):
        if not rooted and not isinstance(record, SnapshotRecord):
            raise DataCorruptionError(
                f"this ledger segment does not begin with a snapshot; {REBUILDS_LEDGER}",
                path=ledger_path(directory),
                first=offset,
                end=end,
            )
        rooted = True
        try:
            state.apply(record)
        except KeyError as error:
            raise DataCorruptionError(
                f"a {record.kind} record contradicts earlier records (unknown: "
                f"{error}); {REBUILDS_LEDGER}",
                path=ledger_path(directory),
                first=offset,
                end=offset + 1,
            ) from error


def last_base(fs: FileSystem, directory: str, end: int) -> int:
    """Return the base offset of the ledger segment that contains the last record before `end`."""
    bases = [base for base in ledger_bases(fs, directory) if base < max(end, 1)]
    if not bases:
        raise DataCorruptionError(
            f"no segment of the commit ledger is left; {REBUILDS_LEDGER}",
            path=ledger_path(directory),
            first=0,
            end=end,
        )
    return bases[-1]


def ledger_bases(fs: FileSystem, directory: str) -> list[int]:
    """Return the base offsets of the ledger's segments, ascending."""
    return segment_bases(fs, ledger_path(directory))


def replay(
    fs: FileSystem, directory: str, first: int, end: int
) -> Iterator[tuple[int, LedgerRecord]]:
    """Yield (offset, record) of the ledger for first <= offset < end.

    Raises:
        DataCorruptionError: The ledger is damaged.
        UnsupportedVersionError: A newer version of sparklog wrote a record.
    """
    if first >= end:
        return
    path = ledger_path(directory)
    reader = PartitionReader(LogDirSegments(fs, path))
    try:
        for rows in reader.read(first, end, columns=("offset", "value")):
            yield from parse_rows(rows, path)
    except StaleReadError as error:
        raise DataCorruptionError(
            f"{error}; {REBUILDS_LEDGER}",
            path=path,
            first=first,
            end=end,
        ) from error


def parse_rows(rows: pa.RecordBatch, path: str) -> Iterator[tuple[int, LedgerRecord]]:
    """Yield (offset, record) of decoded ledger rows with the columns offset and value.

    The errors are those of `replay`.
    """
    offsets, values = rows.column("offset").to_pylist(), rows.column("value").to_pylist()
    try:
        objects = json.loads(b"[%s]" % b",".join(values))  # faster than single documents
    except (ValueError, TypeError):
        objects = values  # a malformed document raises in `decode`
    for offset, fields in zip(offsets, objects, strict=True):
        yield offset, decode(fields, path=path, offset=offset)


def whole_end(fs: FileSystem, directory: str) -> int:
    """Return the offset after the ledger's last complete record; for recovery.

    A torn last record is normal after a crash, because it was never committed. After a power cut,
    records that were written with flush=none may be lost in any order; the first damage is then the
    end.

    Raises:
        DataCorruptionError: A record that was synced follows the damage, or the segments are
            missing.
    """
    for base in reversed(ledger_bases(fs, directory)):
        path = os.path.join(ledger_path(directory), log_name(base))
        raw = read_bytes(fs, path)
        known = scan(raw, path=path).table
        # A flipped bit in a base offset leaves the CRC valid, and the records after it would be
        # read at wrong offsets.
        wrong = np.flatnonzero(misplaced_rows(known, base))  # the CRC does not cover base offsets
        if len(wrong):
            known = known[: int(wrong[0])]
        end, stop = base, 0
        if len(known):
            end = int(known["last_offset"][-1]) + 1
            stop = int(known["position"][-1] + known["size"][-1])
        behind = _records_behind(raw, stop, end, path)
        if any(record.flushed for record in behind):
            raise DataCorruptionError(
                f"the commit ledger is damaged before its last record; {REBUILDS_LEDGER}",
                path=path,
                position=stop,
                first=end,
            )
        if len(known):
            if behind:
                _LOGGER.warning("%s: cut at byte %d, flush=none was in use", path, stop)
            return end
        if not base:
            return 0  # the first record was never completed
    raise DataCorruptionError(
        f"no segment of the commit ledger is left; {REBUILDS_LEDGER}",
        path=ledger_path(directory),
        first=0,
    )


def _records_behind(raw: bytes, position: int, end: int, path: str) -> list[LedgerRecord]:
    """Return the complete records after a damaged record; the caller looks for synced records.

    The damaged record is at byte `position` of the segment's bytes `raw` and has the offset `end`.
    """
    # The damaged record's length can't be trusted, so search for the base offset of the next
    # records. At least one of the next 63 should be complete, unless the damage is long.
    for offset in range(end + 1, end + 64):
        at = raw.find(offset.to_bytes(8, "big"), position)
        while at >= 0:
            found = scan(memoryview(raw)[at:], path=path)
            if len(found) and int(found.table["base_offset"][0]) == offset:
                return [record for _, record in _records(raw[at : at + found.end], path)]
            at = raw.find(offset.to_bytes(8, "big"), at + 1)
    return []


def _records(raw: bytes, path: str) -> Iterator[tuple[int, LedgerRecord]]:
    batches = scan(raw, path=path)
    decoder = Decoder(["offset", "value"])
    decoder.add_many(raw, batches.table, path=path)
    yield from parse_rows(decoder.finish(), path)


def state_now(fs: FileSystem, home: str) -> LogState:
    """Return the log's state at the ledger's end; an empty state without a ledger.

    Cost: reads a ledger segment.
    """
    state = LogState()
    if fs.is_dir(ledger_path(home)):
        fold(fs, home, whole_end(fs, home), state=state, first=None)
    return state


def deleted_topic_ends(fs: FileSystem, home: str) -> dict[TopicPartition, int]:
    """Return {partition: end offset} of deleted topics; empty without a ledger.

    Cost: reads a ledger segment.
    """
    return {TopicPartition(*key): end for key, end in state_now(fs, home).dropped.items()}
