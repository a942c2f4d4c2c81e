"""Batches that count their offsets from 0, as readers are to see them: with offsets and epoch.

What is committed is never written again, so where a chunk's offsets begin is only known to the
ledger. Base offset and leader epoch lie outside of a batch's CRC and are put in on the way; a time
of append changes what the CRC covers, so there the CRC is checked first and made anew.
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
    """A chunk's bytes, numbered: a `SegmentLog`. Its bytes never change; threads may share it.

    Args:
        raw: the chunk as it is stored, `size` bytes.
        base, count: the offsets are [base, base + count). epoch: leader epoch.
        stamp_ms: the time of append that all its records get; -1: they keep theirs.
        check: pass every CRC here, so that damage is told by `raw.path`, whoever reads.
    Cost: a walk over the batches' headers, and a CRC pass where it is stamped or checked. Reads
    that follow one another go on where the one before ended; another begins at the nearest place
    that is known, at first the chunk's start.
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
        self._whole = check or stamp_ms >= 0  # nothing leaves but whole batches, CRC checked
        self._marks = [(0, 0)]  # (byte, records before it) of batches, ascending

    def size(self) -> int:
        """Return the size in bytes: numbering changes none."""
        return self._size

    def pread(self, size: int, at: int) -> bytes:
        """Return the bytes [at, at + size), numbered, fewer where the chunk or what is good ends.

        Raises: DataCorruptionError: the batches aren't whole, or don't count as the ledger says.
        """
        end = min(at + size, self._size)
        if at >= end:
            return b""
        position, done = self._marks[bisect.bisect_right(self._marks, (at, 2**63)) - 1]
        while True:
            skips = at - position > WINDOW_BYTES
            upto = position + WINDOW_BYTES if skips else end
            found, data = self._batches(position, upto, whole=skips or self._whole)
            done = self._number(found, data, position, done)
            self._mark(found.end, done)
            fault = found.error
            if fault is None and found.end < self._size == position + len(data):
                fault = self._fault("a batch ends behind the chunk's end", found.end)
            if fault is not None and found.end <= at:
                raise fault
            if fault is not None:
                end = min(end, found.end)  # what is good comes before the error
            if not skips or found.end > at:
                end = min(end, found.end) if skips else end
                return bytes(memoryview(data)[at - position : end - position])
            position = found.end

    def _batches(self, position: int, end: int, *, whole: bool) -> tuple[Batches, bytearray]:
        """Read the batches from `position` on, where one begins, that hold the bytes up to `end`.

        `whole`: the last one too; else it has its header at least.
        """
        upto = min(end + HEADER_SIZE, self._size)
        data = bytearray(self._raw.pread(upto - position, position))
        while True:
            found = scan(data, path=self.path, position=position, check_crc=self._whole)
            torn = found.end - position
            if not whole or found.error is not None or found.end >= end:
                return found, data
            if len(data) - torn < LOG_OVERHEAD:
                return found, data
            need = torn + LOG_OVERHEAD + int.from_bytes(data[torn + 8 : torn + LOG_OVERHEAD], "big")
            if need <= len(data) or position + need > self._size:
                return found, data
            data += self._raw.pread(need - len(data), position + len(data))

    def _number(self, found: Batches, data: bytearray, position: int, done: int) -> int:
        """Number the batches in `data`, in place; returns the records up to behind the last one."""
        table, whole = found.table, found.end - position
        if len(table):
            starts, ends = table["base_offset"], table["last_offset"] + 1
            expected = np.concatenate(([done], ends[:-1]))
            wrong = np.flatnonzero(starts != expected)
            if len(wrong):
                row = int(wrong[0])
                raise self._fault(
                    f"a batch counts its records from {starts[row]}, {expected[row]} is expected",
                    int(table["position"][row]),
                )
            done = int(ends[-1])
            self._renumber(memoryview(data)[:whole], position)
            if self._stamp_ms >= 0:
                begins = table["position"] - position
                stops = begins + table["size"]
                stamp(data, begins.tolist(), stops.tolist(), self._stamp_ms)
        if done > self._count or (found.end == self._size and done != self._count):
            raise self._fault(
                f"the ledger says that {self._count} records are here, there are {done}", found.end
            )
        if found.error is None and len(data) - whole >= _PREFIX.size:  # one that isn't all here
            first, length, _ = _PREFIX.unpack_from(data, whole)
            if first == done:  # else it is damaged, which its whole will say
                _PREFIX.pack_into(data, whole, self._base + done, length, self._epoch)
        return done

    def _renumber(self, batches: memoryview, position: int) -> None:
        try:
            rebase(batches, self._base, self._epoch)
        except InvalidRequestError as error:  # of another magic than 2
            raise self._fault(str(error), position) from error

    def _mark(self, position: int, done: int) -> None:
        marks = self._marks
        if position > marks[-1][0]:
            if len(marks) >= _MARKS_MAX:
                marks = marks[::2]
            self._marks = [*marks, (position, done)]

    def _fault(self, reason: str, position: int) -> DataCorruptionError:
        return DataCorruptionError(f"{reason}; {_RESTORE}", path=self.path, position=position)
