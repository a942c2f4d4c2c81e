"""Presents stored batches, with offsets from 0, with their committed offsets and leader epoch.

Committed data are never rewritten, so only the ledger knows where a chunk's offsets begin. Base
offset and leader epoch are not covered by a batch's CRC and are patched in for readers. An append
time changes data that the CRC covers, so the old CRC is checked first and then replaced.
"""

import bisect
import struct
from typing import Final

import numpy as np

from sparklog.errors import DataCorruptionError, InvalidRequestError
from sparklog.format.batch import HEADER_SIZE, LOG_OVERHEAD
from sparklog.format.scan import Batches, rebase, scan, stamp
from sparklog.storage.segments import SegmentLog

WINDOW_BYTES: Final = 4 << 20
_PREFIX: Final = struct.Struct(">qii")  # base offset, length, leader epoch
_MARKS_MAX: Final = 1024
_RESTORE: Final = "restore the object from a copy of the bucket"


class NumberedBatches:
    """A chunk's bytes with committed offsets: a `SegmentLog`. Immutable and thread-safe.

    Args:
        raw: the stored chunk, `size` bytes.
        base, count: the offsets are [base, base + count). epoch: leader epoch.
        stamp_ms: append time of all records; -1: their own timestamps.
        check: verify all CRCs here, so that errors contain `raw.path`.
    Cost: a pass over the batches' headers; with `stamp_ms` or `check` a CRC pass. Sequential reads
        continue at the end of the previous read; other reads begin at the nearest known batch,
        initially the chunk's start.
    """

    def __init__(
        self,
        raw: SegmentLog,
        size: int,
        *,
        base: int,
        count: int,
        epoch: int,
        stamp_ms: int = -1,
        check: bool = False,
    ) -> None:
        self.path = raw.path
        self._raw, self._size = raw, size
        self._base, self._count, self._epoch, self._stamp_ms = base, count, epoch, stamp_ms
        self._whole = check or stamp_ms >= 0  # return only complete batches, with checked CRCs
        self._marks = [(0, 0)]  # (byte, records before it) of batches, ascending

    def size(self) -> int:
        """Return the size of `raw` in bytes."""
        return self._size

    def pread(self, size: int, at: int) -> bytes:
        """Return the bytes [at, at + size) with offsets, fewer at the end or before damaged data.

        Raises:
            DataCorruptionError: Batches are incomplete, or their counts contradict the ledger.
        """
        end = min(at + size, self._size)
        if at >= end:
            return b""
        position, done = self._marks[bisect.bisect_right(self._marks, (at, 2**63)) - 1]
        while True:
            skips = at - position > WINDOW_BYTES
            upto = position + WINDOW_BYTES if skips else end
            batches, data = self._batches(position, upto, whole=skips or self._whole)
            done = self._number(batches, data, position, done)
            self._mark(batches.end, done)
            fault = batches.error
            if fault is None and batches.end < self._size == position + len(data):
                fault = self._fault("a batch extends beyond the end of the chunk", batches.end)
            if fault is not None and batches.end <= at:
                raise fault
            if fault is not None:
                end = min(end, batches.end)  # return good batches before the error
            if not skips or batches.end > at:
                end = min(end, batches.end) if skips else end
                return bytes(memoryview(data)[at - position : end - position])
            position = batches.end

    def _batches(self, position: int, end: int, *, whole: bool) -> tuple[Batches, bytearray]:
        """Read the batches in the chunk's bytes [position, end).

        Args:
            position: The beginning of a batch.
            end: The position after the last byte that is needed.
            whole: Whether the last batch must be complete. Otherwise its header is enough.

        Returns:
            The complete batches, and all bytes that were read from `position` on.
        """
        upto = min(end + HEADER_SIZE, self._size)
        data = bytearray(self._raw.pread(upto - position, position))
        while True:
            batches = scan(data, path=self.path, position=position, check_crc=self._whole)
            torn = batches.end - position
            if not whole or batches.error is not None or batches.end >= end:
                return batches, data
            if len(data) - torn < LOG_OVERHEAD:
                return batches, data
            need = torn + LOG_OVERHEAD + int.from_bytes(data[torn + 8 : torn + LOG_OVERHEAD], "big")
            if need <= len(data) or position + need > self._size:
                return batches, data
            data += self._raw.pread(need - len(data), position + len(data))

    def _number(self, found: Batches, data: bytearray, position: int, done: int) -> int:
        """Write the committed offsets, and the append time if any, into the batches in `data`.

        Args:
            found: The batches in `data`.
            data: The bytes, which are changed in place.
            position: The position of `data` in the chunk.
            done: The number of records before `data`.

        Returns:
            The number of records up to the end of the complete batches.
        """
        table, whole = found.table, found.end - position
        if len(table):
            starts, ends = table["base_offset"], table["last_offset"] + 1
            expected = np.concatenate(([done], ends[:-1]))
            wrong = np.flatnonzero(starts != expected)
            if len(wrong):
                row = int(wrong[0])
                raise self._fault(
                    f"the first offset of a batch is {starts[row]}, expected {expected[row]}",
                    int(table["position"][row]),
                )
            done = int(ends[-1])
            try:
                rebase(memoryview(data)[:whole], self._base, self._epoch)
            except InvalidRequestError as error:  # a magic other than 2
                raise self._fault(str(error), position) from error
            if self._stamp_ms >= 0:
                begins = table["position"] - position
                stops = begins + table["size"]
                stamp(data, begins.tolist(), stops.tolist(), self._stamp_ms)
        if done > self._count or (found.end == self._size and done != self._count):
            raise self._fault(
                f"the ledger recorded {self._count} records, but the batches contain {done}",
                found.end,
            )
        if found.error is None and len(data) - whole >= _PREFIX.size:  # an incomplete last batch
            first, length, _ = _PREFIX.unpack_from(data, whole)
            if first == done:  # else it is damaged, which is reported when all of it is read
                _PREFIX.pack_into(data, whole, self._base + done, length, self._epoch)
        return done

    def _mark(self, position: int, done: int) -> None:
        marks = self._marks
        if position > marks[-1][0]:
            # Bounds the memory. A read in the middle then begins at a slightly earlier batch.
            if len(marks) >= _MARKS_MAX:
                marks = marks[::2]
            self._marks = [*marks, (position, done)]

    def _fault(self, reason: str, position: int) -> DataCorruptionError:
        return DataCorruptionError(f"{reason}; {_RESTORE}", path=self.path, position=position)
