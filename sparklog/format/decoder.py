"""Decode batches of any magic into a single Arrow record batch.

Uncompressed batches are parsed in place, many in a single call; compressed batches are parsed after
decompression.
Source: DefaultRecordBatch.iterator (Kafka 1eb7644).
"""

import itertools
from collections.abc import Iterable
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from sparklog.errors import DataCorruptionError, InvalidRequestError
from sparklog.format import legacy
from sparklog.format.batch import CODEC_MASK, CONTROL, HEADER_SIZE, BatchHeader, Buffer
from sparklog.format.buffers import RecordBuffers
from sparklog.format.compression import SIZE_MAX, Codec, decompress
from sparklog.format.parser import FAULTS, NO_ROOM, PARSED
from sparklog.format.scan import BATCH_DTYPE, Table, as_columns, header_row

SCHEMA: Final = RecordBuffers.SCHEMA
"""The schema of all columns, in the order of `finish`."""

OFFSET_MAX: Final = 2**63 - 1
_RECORD_MIN: Final = 7  # bytes of the shortest record
_POSITION, _SIZE, _BASE, _LAST, _BASE_TIME, _MAX_TIME = range(6)
_COUNT, _ATTRIBUTES, _MAGIC = 9, 10, 12

Rows = NDArray[np.int64]


class Decoder:
    """Collects the records of many batches until `finish` returns them. Not thread-safe.

    Control batches are skipped. Timestamps are in microseconds; values out of range become the
    nearest valid timestamp. Invalid UTF-8 in header keys becomes U+FFFD, as in Java.
    """

    def __init__(
        self,
        columns: Iterable[str] | None = None,
        *,
        max_bytes: int = SIZE_MAX,
        plain_bytes_max: int = SIZE_MAX,
    ) -> None:
        """Create an empty decoder.

        Args:
            columns: Names of SCHEMA in the wanted order; all by default. Other columns are not
                copied.
            max_bytes: Bytes of keys and values at which the decoder is full; one batch always fits.
            plain_bytes_max: Maximum uncompressed size of a batch. A larger batch of magic 2 raises
                OversizeError.

        Raises:
            InvalidRequestError: A column is unknown.
        """
        names = SCHEMA.names if columns is None else list(columns)
        if unknown := [name for name in names if name not in SCHEMA.names]:
            raise InvalidRequestError(f"unknown columns {unknown}; the columns are {SCHEMA.names}")
        self._max_bytes = min(max_bytes, SIZE_MAX)
        self._plain_bytes_max = plain_bytes_max
        self._buffers = RecordBuffers(names)
        self._expected = 0, 0

    @property
    def rows(self) -> int:
        """The number of records since the last `finish`."""
        return self._buffers.parser.rows

    @property
    def nbytes(self) -> int:
        """The number of bytes of keys, values and headers so far."""
        return self._buffers.data_bytes

    def finish(self) -> pa.RecordBatch:
        """Return the records so far and empty the decoder."""
        return self._buffers.finish()

    def add(
        self,
        buf: Buffer,
        at: int,
        header: BatchHeader | Any,
        *,
        first: int = 0,
        end: int = OFFSET_MAX,
        path: str,
        position: int = 0,
    ) -> bool:
        """Add the records with first <= offset < end of the batch at byte `at` of `buf`.

        Args:
            buf: Bytes of a file that contain the batch.
            at: The batch's first byte in `buf`.
            header: The batch's header, or the batch's row in the table of a scan.
            first, end: The range of offsets.
            path, position: The file, and the position of buf[0] in it.

        Returns:
            False if the decoder is full. No record was added then; call `finish` and repeat.

        Raises:
            DataCorruptionError: A record is damaged. No record of the batch was added.
        """
        if isinstance(header, BatchHeader):
            row = header_row(header, position + at)
        else:
            row = np.array([header], BATCH_DTYPE)
            row["position"] = position + at
        return bool(self.add_many(buf, row, first=first, end=end, path=path, position=position))

    def add_many(
        self,
        buf: Buffer,
        batches: Table,
        *,
        first: int = 0,
        end: int = OFFSET_MAX,
        path: str,
        position: int = 0,
    ) -> int:
        """Add the records with first <= offset < end of several batches.

        Args:
            buf: Bytes of a file that contain the batches.
            batches: Rows of the table of a scan, with positions in the file.
            first, end: The range of offsets.
            path, position: The file, and the position of buf[0] in it.

        Returns:
            How many of `batches` were added; fewer than all if the decoder is full. Then call
            `finish` and add the rest.

        Raises:
            DataCorruptionError: A record is damaged. The batches before it were added.
        """
        if not len(batches):
            return 0
        view = memoryview(buf).cast("B")
        table = as_columns(batches)
        starts = table[:, _POSITION] - position
        # A wrong position would make the compiled parser read memory outside of the buffer.
        assert int(starts.min()) >= 0
        assert int((starts + table[:, _SIZE]).max()) <= len(view)
        plain = ((table[:, _ATTRIBUTES] & (CODEC_MASK | CONTROL)) == 0) & (table[:, _MAGIC] == 2)
        cuts = [0, *(np.flatnonzero(plain[1:] != plain[:-1]) + 1).tolist(), len(table)]
        for low, high in itertools.pairwise(cuts):
            add = self._add_plain if plain[low] else self._add_each
            done = add(view, table[low:high], position, first, end, path)
            if done < high - low:
                return low + done
        return len(table)

    def _add_plain(
        self, view: memoryview, table: Rows, shift: int, first: int, end: int, path: str
    ) -> int:
        buffers = self._buffers
        sizes = table[:, _SIZE] - HEADER_SIZE
        fitting = self._fitting(sizes)
        payload = int(sizes[:fitting].sum())
        # A damaged header can declare any count: reserve no more than the bytes can contain.
        counts = np.minimum(table[:fitting, _COUNT], sizes[:fitting] // _RECORD_MIN)
        buffers.reserve(int(np.maximum(counts, 0).sum()), payload)
        row, rows = 0, np.ascontiguousarray(table[:fitting])
        while row < fitting:
            row, status = buffers.parser.parse_many(view, rows.data, row, shift, first, end)
            if status == NO_ROOM:
                buffers.grow(int(rows[row, _COUNT]), int(sizes[row]))
            elif status != PARSED:
                at = buffers.parser.fault_at + shift
                raise self._damage(status, rows[row], path, at)
        return fitting

    def _fitting(self, sizes: Rows) -> int:
        """Return how many batches fit; `sizes` has the number of bytes of each batch's records.

        At least one batch fits into an empty decoder.
        """
        room = self._max_bytes - self._buffers.data_bytes
        fitting = int(sizes.cumsum().searchsorted(room, side="right"))
        return fitting if fitting or self.rows else 1

    def _add_each(
        self, view: memoryview, table: Rows, shift: int, first: int, end: int, path: str
    ) -> int:
        """Add compressed, control and legacy batches one by one; return how many were processed.

        Fewer than all are processed if the decoder is full. `shift` is the file position of the
        first byte of `view`.
        """
        self._expected = int((table[:, _SIZE] - HEADER_SIZE).sum()), int(table[:, _COUNT].sum())
        for row, batch in enumerate(table):
            if batch[_LAST] < first or batch[_BASE] >= end or batch[_ATTRIBUTES] & CONTROL:
                continue
            at = int(batch[_POSITION]) - shift
            if not self._add_one(view, at, batch, shift, first, end, path):
                return row
        return len(table)

    def _add_one(
        self, view: memoryview, at: int, batch: Any, shift: int, first: int, end: int, path: str
    ) -> bool:
        _, size, base, last, base_time, max_time, *_ = batch.tolist()
        count, kind = int(batch[_COUNT]), 1 if batch[_ATTRIBUTES] & 8 else 0
        place = shift + at
        if batch[_MAGIC] == 2:
            if size == HEADER_SIZE and not count:
                return True
            codec = Codec(int(batch[_ATTRIBUTES]) & CODEC_MASK)
            packed = view[at + HEADER_SIZE : at + size]
            limit = self._plain_bytes_max
            records = memoryview(decompress(codec, packed, path=path, position=place, limit=limit))
            self._reserve(len(packed), len(records))
        else:
            converted = legacy.to_records(view[at : at + size], path=path, position=place)
            records, base, last, count = converted.records, 0, converted.last, converted.count
            base_time, max_time, kind = 0, converted.max_timestamp, converted.timestamp_type
        if self.rows and self._buffers.data_bytes + len(records) > self._max_bytes:
            return False
        parser = self._buffers.parser
        while True:
            status = parser.parse(
                records, 0, len(records), count, base, last, base_time, max_time, kind, first, end
            )
            if status == PARSED:
                return True
            if status != NO_ROOM:
                raise self._damage(status, batch, path, place)
            self._buffers.grow(count, len(records))

    def _reserve(self, packed: int, plain: int) -> None:
        """Make space for all batches of a call of `_add_each`, once the first is decompressed.

        The first batch has `packed` bytes, and `plain` bytes uncompressed. The others are assumed
        to be compressed as well.
        """
        left, count = self._expected
        if left > packed > 0:
            payload = min(plain * left // packed, self._max_bytes, 256 * left)
            self._buffers.reserve(min(count, payload // _RECORD_MIN), payload + payload // 16)
        self._expected = 0, 0

    def _damage(self, status: int, batch: Any, path: str, at: int) -> DataCorruptionError:
        return DataCorruptionError(
            FAULTS[status],
            path=path,
            position=at,
            first=int(batch[_BASE]),
            end=int(batch[_LAST]) + 1,
        )
