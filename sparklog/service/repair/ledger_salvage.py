"""Finds the records of a damaged commit ledger before, after and within the damage."""

import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from sparklog.errors import DataCorruptionError, UnsupportedVersionError
from sparklog.format.batch import (
    BATCH_PREFIX,
    CRC_START,
    HEADER_SIZE,
    LOG_OVERHEAD,
    MAGIC,
    MAGIC_END,
    seal,
)
from sparklog.format.bit_correction import corrected
from sparklog.format.names import log_name
from sparklog.format.records import Decoder
from sparklog.format.scan import misplaced_rows, scan
from sparklog.fs import FileSystem, read_bytes
from sparklog.logdir.ledger import has_ledger, ledger_bases, ledger_path, parse_rows
from sparklog.service.verification.segment import resync
from sparklog.storage.ledger_records import LedgerRecord
from sparklog.tiered.reading.remote_segment_log import BytesLog

_CORRECTED_MAX: Final = 1 << 20  # largest record (bytes) in which to search for a flipped bit
_BASE_MAX: Final = 1 << 40  # above any ledger offset; zero bytes at the start of a batch are common


@dataclass(slots=True)
class SurvivingLedger:
    """The surviving records of a ledger, and the damaged segments.

    Attributes:
        records: The records by offset.
        bases: The base offsets of all segments.
        damaged: The base offsets of damaged segments.
        corrected: {base offset: bytes of the segment} of segments that only have flipped bits,
            which are corrected.
        is_torn: Whether the ledger ends with an incomplete batch.
    """

    records: dict[int, LedgerRecord] = field(default_factory=dict)
    bases: list[int] = field(default_factory=list)
    damaged: set[int] = field(default_factory=set)
    corrected: dict[int, bytes] = field(default_factory=dict)
    filled: set[int] = field(default_factory=set)
    """The bases of segments that hold any byte."""

    is_torn: bool = False
    """Whether the damage of the last segment reaches to its end."""

    @property
    def end(self) -> int:
        """The offset after the last surviving record; 0 if there is none."""
        return max(self.records, default=-1) + 1


def surviving_ledger(fs: FileSystem, home: str) -> SurvivingLedger:
    """Read all segments of the ledger.

    Raises:
        UnsupportedVersionError: A newer sparklog wrote a record.

    Cost:
        A pass over the ledger, and a second pass over the rest of a damaged segment.
    """
    found = SurvivingLedger()
    if not has_ledger(fs, home):
        return found
    found.bases = ledger_bases(fs, home)
    for number, base in enumerate(found.bases):
        path = os.path.join(ledger_path(home), log_name(base))
        raw = read_bytes(fs, path)
        if raw:
            found.filled.add(base)
        following = found.bases[number + 1] if number + 1 < len(found.bases) else None
        segment = _Segment(raw, base, following, path)
        found.records |= segment.records
        found.is_torn = segment.is_torn
        if segment.is_whole:
            continue
        found.damaged.add(base)
        if segment.is_corrected:
            found.corrected[base] = bytes(segment.bytes)
    return found


class _Segment:
    """A segment file: the surviving records, and the bytes with flipped bits corrected."""

    def __init__(self, raw: bytes, base: int, following: int | None, path: str) -> None:
        self.bytes, self._path = bytearray(raw), path
        self.records: dict[int, LedgerRecord] = {}
        self.is_whole, self.is_torn = True, False
        expected, position, is_lost = base, 0, False
        while position < len(raw):
            stop, records = self._whole_from(position, expected)
            self.records |= records
            if records:
                position, expected = stop, max(records) + 1
                continue
            self.is_whole = False
            log = BytesLog(self._path, bytes(self.bytes))
            following_batch = resync(log, position + 1, expected + 1, _BASE_MAX)
            stop = len(raw) if following_batch is None else following_batch[0]
            record = self._corrected(position, stop, expected)
            if record is not None:
                self.records[expected] = record
            else:
                is_lost = True
            if following_batch is None:
                self.is_torn = record is None
                break
            position, expected = following_batch
        end = max(self.records, default=base - 1) + 1
        if following is not None and end < following:  # its tail was cut off
            self.is_whole, is_lost = False, True
        self.is_corrected = not self.is_whole and not is_lost

    def _whole_from(self, position: int, expected: int) -> tuple[int, dict[int, LedgerRecord]]:
        """Return the end position of the complete records from a position on, and the records."""
        view = memoryview(self.bytes)[position:]
        table = scan(view, path=self._path).table
        wrong = np.flatnonzero(misplaced_rows(table, expected))
        table = table[: int(wrong[0])] if len(wrong) else table
        if not len(table):
            return position, {}
        stop = int(table["position"][-1] + table["size"][-1])
        records: dict[int, LedgerRecord] = {}
        try:
            records.update(_parsed(view[:stop], self._path))
        except DataCorruptionError as error:
            if isinstance(error, UnsupportedVersionError):
                raise
            for row in table:  # skip a complete batch that is not a ledger record
                at = int(row["position"])
                try:
                    records.update(_parsed(view[at : at + int(row["size"])], self._path))
                except DataCorruptionError:
                    self.is_whole = False
        view.release()
        for row in table:  # no CRC covers the leader epoch; the record itself has it, too
            record = records.get(int(row["base_offset"]))
            if record is not None and record.epoch != int(row["leader_epoch"]):
                self.is_whole = False
                at = position + int(row["position"])
                prefix = BATCH_PREFIX.unpack_from(self.bytes, at)
                BATCH_PREFIX.pack_into(self.bytes, at, *prefix[:2], record.epoch, prefix[3])
        return position + stop, records

    def _corrected(self, position: int, stop: int, expected: int) -> LedgerRecord | None:
        """Return the record in [position, stop) if a single flipped bit explains the damage.

        The record's bytes are then corrected. The CRC doesn't cover offset and length; the adjacent
        records determine both.
        """
        size = stop - position
        if not HEADER_SIZE < size <= _CORRECTED_MAX:
            return None
        batch = bytearray(self.bytes[position:stop])
        epoch = BATCH_PREFIX.unpack_from(batch)[2]
        BATCH_PREFIX.pack_into(batch, 0, expected, size - LOG_OVERHEAD, epoch, MAGIC)
        crc = int.from_bytes(batch[MAGIC_END:CRC_START], "big")
        content = corrected(bytes(batch[CRC_START:]), crc)
        if content is None:
            return None
        batch[CRC_START:] = content
        seal(batch)
        try:
            records = dict(_parsed(batch, self._path))
        except DataCorruptionError:
            return None
        record = records.get(expected)
        if record is None or len(records) != 1:
            return None
        BATCH_PREFIX.pack_into(batch, 0, expected, size - LOG_OVERHEAD, record.epoch, MAGIC)
        self.bytes[position:stop] = batch
        return record


def _parsed(raw: bytes | bytearray | memoryview, path: str) -> Iterator[tuple[int, LedgerRecord]]:
    batches = scan(raw, path=path)
    decoder = Decoder(["offset", "value"])
    decoder.add_many(raw, batches.table, path=path)
    yield from parse_rows(decoder.finish(), path)
