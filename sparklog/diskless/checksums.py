"""Checksums of extents: the CRC-32C that an entry records is compared with the bytes read.

The checksum covers an extent's bytes as they were staged: before encryption, with offsets that
count from 0 and leader epoch 0. The checksum of a closed segment covers its log. An extent that was
committed by an older version has no checksum, and its bytes are not compared.
"""

from collections.abc import Iterable
from typing import Final

import crc32c

from sparklog.diskless.extents import Extent
from sparklog.errors import DataCorruptionError
from sparklog.format.scan import scan
from sparklog.fs import Buffer
from sparklog.storage.segments import SegmentLog
from sparklog.tiered.reading.range_fetcher import BLOCK_BYTES

WHOLE_BYTES: Final = BLOCK_BYTES
"""Extents up to this size are compared before any of their bytes is returned."""


def checksum(parts: Iterable[Buffer]) -> int:
    """Return the CRC-32C of the concatenation of the buffers."""
    crc = 0
    for part in parts:
        crc = crc32c.crc32c(part, crc)
    return crc


class ExtentSum:
    """The checksum of an extent's bytes, computed by sequential reads.

    Reads may overlap, and a pass may begin where an earlier read began or ended. A read that skips
    bytes leaves the checksum incomplete. Thread-safe.
    """

    def __init__(self, extent: Extent) -> None:
        self._extent = extent
        self._reached = 0, 0  # (bytes, their CRC)
        self._marks = {0: 0}  # bytes: their CRC

    def take(self, data: Buffer, at: int, *, path: str) -> None:
        """Add bytes that were read at position `at` of the extent.

        Args:
            path: The extent's object, for errors.

        Raises:
            DataCorruptionError: All bytes were read, and they differ from the committed bytes.
        """
        extent = self._extent
        if extent.crc < 0:
            return
        position, crc = (at, self._marks[at]) if at in self._marks else self._reached
        end = at + len(memoryview(data))
        if not at <= position < end:
            return
        crc = crc32c.crc32c(memoryview(data)[position - at :], crc)
        self._reached = end, crc
        self._marks[end] = crc
        if end == extent.size and crc != extent.crc:
            # A later pass must compare again: the object may have been restored by then.
            self._marks = {0: 0}
            raise self._wrong(crc, data if at == 0 else b"", path)

    def _wrong(self, crc: int, whole: Buffer, path: str) -> DataCorruptionError:
        """Return the error for bytes that differ from the committed bytes.

        Args:
            crc: The CRC-32C of the bytes.
            whole: All bytes of the extent, in which a damaged batch is searched; empty if unknown.
            path: The extent's object, for the message.
        """
        extent = self._extent
        batches = scan(whole, path=path, position=extent.start)
        if batches.error is not None:
            reason, position = batches.error.reason, batches.end
            done = int(batches.table["last_offset"][-1]) + 1 if len(batches) else 0
            first = max(extent.base, done) if extent.segment else extent.base + done
        else:
            position, first = extent.start, extent.base
            reason = (
                f"the object does not hold the bytes that were committed: the CRC-32C is {crc}, "
                f"but the ledger recorded {extent.crc}; restore the object from a copy of the "
                "bucket"
            )
        return DataCorruptionError(
            reason, path=path, position=position, first=first, end=extent.end
        )


class SummedLog:
    """A `SegmentLog` of an extent that compares the bytes read with the extent's checksum.

    An extent of up to WHOLE_BYTES is compared at the first read, a longer extent when a reader has
    read all bytes in order. If only a batch with a wrong CRC differs from the committed bytes, the
    damage is reported when that batch is read, so that earlier batches can be read. Thread-safe.
    """

    def __init__(self, log: SegmentLog, extent: Extent, path: str) -> None:
        """`path`: the extent's object, for errors."""
        self.path = log.path
        self._log, self._extent, self._object = log, extent, path
        self._sum = ExtentSum(extent)
        self._is_checked = extent.crc < 0

    def size(self) -> int:
        """Return the size in bytes."""
        return self._log.size()

    def pread(self, size: int, at: int) -> bytes:
        """Return the bytes [at, at + size), fewer where the log ends.

        Raises:
            DataCorruptionError: The extent's bytes differ from the committed bytes.
        """
        if self._is_checked:
            return self._log.pread(size, at)
        if self._extent.size <= WHOLE_BYTES:
            whole = self._log.pread(self._extent.size, 0)
            try:
                self._sum.take(whole, 0, path=self._object)
            except DataCorruptionError:
                # A batch with a wrong CRC is reported when that batch is read, so that the batches
                # before it can still be read.
                if not _has_damaged_batch(whole, self._extent):
                    raise
            self._is_checked = True
            return whole[at : at + size]
        data = self._log.pread(size, at)
        self._sum.take(data, at, path=self._object)
        return data


def _has_damaged_batch(whole: bytes, extent: Extent) -> bool:
    """Return True if the batches have the extent's layout, but the CRC of a batch is wrong."""
    batches = scan(whole, path="", check_crc=False)
    if batches.error is not None or batches.end != extent.size or not len(batches):
        return False
    first, end = int(batches.table["base_offset"][0]), int(batches.table["last_offset"][-1]) + 1
    if extent.segment:  # a compacted segment may lack its first and last offsets
        is_same = extent.base <= first and end <= extent.end
    else:
        is_same = (first, end) == (0, extent.end - extent.base)
    return is_same and scan(whole, path="").error is not None
