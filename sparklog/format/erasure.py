"""Erase the records that a predicate selects; all other records stay unchanged.

A predicate checks columns of many records at once (`RecordPredicate`). Batches without selected
records are not changed. A batch that loses records is rewritten as in compaction: base and last
offset, sequence, producer, leader epoch and codec stay, as do each record's offset, timestamp,
headers and bytes; count, base timestamp and largest timestamp are computed from the remaining
records. If a batch loses all records, its header (61 bytes) stays, so that offsets and sequences
have no gaps. Control batches stay. Source: MemoryRecords.filterTo,
DefaultRecordBatch.writeEmptyHeader (Kafka 4.1).
"""

from collections.abc import Collection, Iterator, Sequence
from typing import Any, Final, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from sparklog.errors import InvalidRequestError
from sparklog.format.batch import CONTROL, Buffer, encode_empty
from sparklog.format.compaction import Verdict, damage, unpacked, written
from sparklog.format.decoder import OFFSET_MAX, Decoder
from sparklog.format.offset_map import FOLDED, OffsetMapKernel
from sparklog.format.record_filter import RecordFilterKernel
from sparklog.format.scan import Table, row_header

DECODED_BYTES: Final = 32 << 20
"""Decoded bytes that are passed to the predicate at once; larger batches are passed alone."""

Mask = NDArray[np.bool_]


class RecordPredicate(Protocol):
    """Selects the records to erase. A single thread at a time calls the predicate.

    Examples:
        >>> import pyarrow.compute as pc
        >>> from sparklog.service import erase
        >>> class LateFlights:
        ...     columns = ("value",)
        ...     def __call__(self, records):
        ...         return pc.equal(records["value"].cast("string"), "599")
        >>> erase("log", "flights", predicate=LateFlights()).records
        1
    """

    @property
    def columns(self) -> Sequence[str]:
        """The columns that the predicate needs; names as in `Log.read(columns=...)`."""

    def __call__(self, records: pa.RecordBatch) -> pa.Array:
        """Return an array with a Boolean per record: True to erase the record. Null means False."""


class KeyPredicate:
    """Selects records by their keys.

    Args:
        keys: The keys.
        null_key: Whether records without a key are selected too.
        before_ms: Select only records with a timestamp (ms) below this time.

    Raises:
        InvalidRequestError: There are neither keys nor `null_key`.
    """

    def __init__(
        self, keys: Collection[bytes], *, null_key: bool = False, before_ms: int | None = None
    ) -> None:
        if not keys and not null_key:
            raise InvalidRequestError(
                "no key to erase was given: pass at least one key, or null_key=True"
            )
        self._keys = pa.array(sorted(set(keys)), pa.binary())
        self._null_key, self._before_ms = null_key, before_ms
        self.columns = ("key",) if before_ms is None else ("key", "timestamp")

    def __call__(self, records: pa.RecordBatch) -> pa.Array:
        """Return an array with a Boolean per record: whether it is selected."""
        keys = records.column("key")
        chosen = pc.is_in(keys, value_set=self._keys.cast(keys.type))
        if self._null_key:
            chosen = pc.or_(chosen, keys.is_null())
        if self._before_ms is not None:
            times = records.column("timestamp").cast(pa.int64())  # microseconds
            chosen = pc.and_(chosen, pc.less(times, self._before_ms * 1000))
        return chosen


class RecordEraser:
    """Finds and removes the records that a predicate selects. Not thread-safe.

    Args:
        predicate: Selects the records.
        end: Records from this offset on are not selected.
    """

    def __init__(self, predicate: RecordPredicate, *, end: int = OFFSET_MAX) -> None:
        self._predicate, self._end = predicate, end
        self._decoder = Decoder({*predicate.columns, "offset"}, max_bytes=DECODED_BYTES)
        self._kernel = RecordFilterKernel(OffsetMapKernel(0, 0, 1))
        self._places = np.empty((0, 5), np.int64)

    def find(
        self, buf: Buffer, batches: Table, *, path: str, position: int
    ) -> Iterator[tuple[int, Mask, NDArray[np.int64]]]:
        """Yield the batches with selected records: (row, mask, offsets).

        The row is the index in `batches`, the mask has a Boolean per record of the batch, and the
        offsets are those of the selected records. The arguments are those of `Decoder.add_many`.

        Raises:
            DataCorruptionError: A record is damaged.
            InvalidRequestError: A batch has magic 0 or 1.

        Cost: a pass over the columns of the predicate.
        """
        if len(batches) and int(batches["magic"].min()) < 2:
            raise InvalidRequestError(
                f"{path} contains record batches of magic 0 or 1, which can't be rewritten here: "
                "let a broker before 4.0 compact the topic, or copy its records to a new topic"
            )
        below = int(np.searchsorted(batches["base_offset"], self._end))
        first = 0
        while first < below:
            part = batches[first:below]
            done = self._decoder.add_many(buf, part, path=path, position=position)
            yield from self._found(part[:done], first)
            first += done

    def _found(self, part: Table, first: int) -> Iterator[tuple[int, Mask, NDArray[np.int64]]]:
        records = self._decoder.finish()
        chosen = pc.fill_null(self._predicate(records), False)
        selected: Mask = np.asarray(chosen.to_numpy(zero_copy_only=False), np.bool_)
        offsets = records.column("offset").to_numpy()
        selected = selected & (offsets < self._end)
        hits = np.flatnonzero(selected)
        if not len(hits):
            return
        # The decoder skips control batches, although their headers count a record.
        counts = np.where(part["attributes"] & CONTROL, 0, part["count"]).astype(np.int64)
        stops = counts.cumsum()
        assert int(stops[-1]) == records.num_rows
        for row in np.unique(np.searchsorted(stops, hits, side="right")).tolist():
            low, high = int(stops[row] - counts[row]), int(stops[row])
            yield first + row, selected[low:high], offsets[low:high][selected[low:high]]

    def rewritten(
        self, buf: Buffer, row: Any, erased: Mask, *, path: str, position: int
    ) -> bytes | bytearray:
        """Return a batch without the records in the mask `erased`; offsets and codec stay the same.

        `row` is the batch's row in the table of a scan. The other arguments are those of `find`.
        """
        kernel, header, view = self._kernel, row_header(row), memoryview(buf)
        remaining = np.flatnonzero(~erased)
        if not len(remaining):
            return encode_empty(header)
        records = unpacked(view, row, path, position)
        if len(self._places) < header.count:
            self._places = np.empty((header.count + header.count // 4, 5), np.int64)
            kernel.set_places(self._places.data)
        status = kernel.select(
            records, 0, len(records), header.count, header.base_offset, header.last_offset,
            Verdict.RETAIN,
        )  # fmt: skip
        if status != FOLDED:
            raise damage(status, row, path, int(row["position"]))
        # The kernel has selected all records, by RETAIN: drop the erased ones from its table.
        self._places[: len(remaining)] = self._places[remaining]
        kernel.kept = len(remaining)
        return written(kernel, header, records)
