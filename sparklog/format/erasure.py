"""Erasure in batches: records that a predicate chooses go, all others stay as they were.

A predicate looks at columns of many records at once (`RecordPredicate`). A batch of which none is
chosen isn't touched. Of one that loses some, what stays is as compaction would leave it: base and
last offset, sequence, producer, leader epoch, codec, and each record's offset, time, headers and
bytes; count, base and largest timestamp become those of the survivors. One that loses all leaves
its header, 61 bytes, so that offsets and sequences go on without a hole. Control batches stay.
Source: MemoryRecords.filterTo, DefaultRecordBatch.writeEmptyHeader (Kafka 4.1).
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
"""Of columns that are looked at together; a larger batch is looked at alone."""

Mask = NDArray[np.bool_]


class RecordPredicate(Protocol):
    """Selects the records to erase. Called from one thread at a time."""

    @property
    def columns(self) -> Sequence[str]:
        """The columns that the predicate needs; names as in `Log.read(columns=...)`."""

    def __call__(self, records: pa.RecordBatch) -> pa.Array:
        """Return a Boolean per record: whether it is erased. Null means no."""


class KeyPredicate:
    """Chooses records by their keys; `null_key`: those without one too.

    `before_ms`: only records with a timestamp below it.
    Raises: InvalidRequestError: it would choose nothing.
    """

    def __init__(
        self, keys: Collection[bytes], *, null_key: bool = False, before_ms: int | None = None
    ) -> None:
        if not keys and not null_key:
            raise InvalidRequestError("no key is given: name one at least, or the null key")
        self._keys = pa.array(sorted(set(keys)), pa.binary())
        self._null_key, self._before_ms = null_key, before_ms
        self.columns = ("key",) if before_ms is None else ("key", "timestamp")

    def __call__(self, records: pa.RecordBatch) -> pa.Array:
        """Return a Boolean a record."""
        keys = records.column("key")
        chosen = pc.is_in(keys, value_set=self._keys.cast(keys.type))
        if self._null_key:
            chosen = pc.or_(chosen, keys.is_null())
        if self._before_ms is not None:
            times = records.column("timestamp").cast(pa.int64())  # microseconds
            chosen = pc.and_(chosen, pc.less(times, self._before_ms * 1000))
        return chosen


class RecordEraser:
    """Finds and takes out what a predicate chooses below offset `end`. Not thread-safe."""

    def __init__(self, predicate: RecordPredicate, *, end: int = OFFSET_MAX) -> None:
        self._predicate, self._end = predicate, end
        self._decoder = Decoder({*predicate.columns, "offset"}, max_bytes=DECODED_BYTES)
        self._kernel = RecordFilterKernel(OffsetMapKernel(0, 0, 1))
        self._places = np.empty((0, 5), np.int64)

    def find(
        self, buf: Buffer, batches: Table, *, path: str, position: int
    ) -> Iterator[tuple[int, Mask, NDArray[np.int64]]]:
        """Yield (row, which of its records go, their offsets) of the batches that lose some.

        Args: as of `Decoder.add_many`. Raises: DataCorruptionError: records are damaged;
        InvalidRequestError: batches are of magic 0 or 1.
        Cost: a pass over the columns that the predicate wants; others aren't copied.
        """
        if len(batches) and int(batches["magic"].min()) < 2:
            raise InvalidRequestError(
                f"{path} holds record batches of magic 0 or 1, which can't be rewritten here: let "
                "a broker before 4.0 compact the topic, or write it anew"
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
        gone: Mask = np.asarray(chosen.to_numpy(zero_copy_only=False), np.bool_)
        offsets = records.column("offset").to_numpy()
        gone = gone & (offsets < self._end)
        hits = np.flatnonzero(gone)
        if not len(hits):
            return
        counts = np.where(part["attributes"] & CONTROL, 0, part["count"]).astype(np.int64)
        stops = counts.cumsum()
        assert int(stops[-1]) == records.num_rows
        for row in np.unique(np.searchsorted(stops, hits, side="right")).tolist():
            low, high = int(stops[row] - counts[row]), int(stops[row])
            yield first + row, gone[low:high], offsets[low:high][gone[low:high]]

    def rewritten(
        self, buf: Buffer, row: Any, gone: Mask, *, path: str, position: int
    ) -> bytes | bytearray:
        """Return a batch without the records that go: with its own offsets, codec and a new CRC."""
        kernel, header, view = self._kernel, row_header(row), memoryview(buf)
        stay = np.flatnonzero(~gone)
        if not len(stay):
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
        self._places[: len(stay)] = self._places[stay]
        kernel.kept = len(stay)
        return written(kernel, header, records)
