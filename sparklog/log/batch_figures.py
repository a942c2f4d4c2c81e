"""How large record batches are and what compression makes of them, by codec.

Terms are those of Kafka's producers: batch-size-avg, compression-rate-avg; a rate is compressed
bytes by bytes in plain, so 1.0 saves nothing. A header holds a batch's size, records and codec,
but not what its records were in plain: that takes decompressing some.
Source: KafkaProducer's metrics (SenderMetricsRegistry), MemoryRecordsBuilder.compressionRatio.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from sparklog.errors import DataCorruptionError
from sparklog.format.batch import CODEC_MASK, CONTROL, HEADER_SIZE, MAGIC
from sparklog.format.compression import Codec, decompress

Table = NDArray[Any]
PLAIN_MAX: Final = 16 << 20  # bytes of one batch in plain; a larger one doesn't count for a rate
_SMALL_RECORDS: Final = 2  # so few records on average have little in common to compress
_FEW: Final = 20  # batches that say too little for a word of advice
_WORTH_BYTES: Final = 1 << 20  # of a topic: what is smaller may be as it likes
_EXACT_BITS: Final = 8  # of a number; larger ones are rounded down, by less than 1 %
_HALF: Final = 1 << (_EXACT_BITS - 1)
_BUCKETS: Final = (32 - _EXACT_BITS + 2) * _HALF  # a batch's size is below 2**32


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchFigures:
    """A topic's record batches of one codec (its name, as in compression.type).

    Transactions' markers and batches that compaction emptied don't count, nor does magic 0 and 1.
    `bytes` are those of whole batches, headers included. `sampled`: these are the newest batches of
    some partitions, not all. `compression_rate`: compressed bytes of records by their bytes in
    plain, headers left out; of `rated_bytes` of compressed records, for batches are decompressed
    until some 100 KiB were. None: not one was. 1.0 for the codec none.
    """

    codec: str
    batches: int
    records: int
    bytes: int
    records_avg: float
    records_p50: int
    records_p99: int
    bytes_avg: float
    bytes_p50: int
    bytes_p99: int
    compression_rate: float | None
    rated_bytes: int
    sampled: bool

    @property
    def small(self) -> bool:
        """Whether compression is on and batches hold too few records for it."""
        is_told = self.codec != "none" and self.batches >= _FEW
        return is_told and self.records_avg < _SMALL_RECORDS


class BatchTally:
    """Counts batches. Memory: some KiB, however many come. Not shared between threads."""

    def __init__(self) -> None:
        self._of: dict[int, _Codec] = {}

    def take(self, table: Table) -> None:
        """Count the batches of a scan's table."""
        counted = _counts(table)  # columns alone: a row is copied dearly
        codecs = (table["attributes"] & CODEC_MASK)[counted]
        if not len(codecs):
            return
        records, sizes = table["count"].astype(np.int64)[counted], table["size"][counted]
        for codec in np.bincount(codecs).nonzero()[0].tolist():
            of = codecs == codec
            self._codec(codec).take(records[of], sizes[of])

    def rate(self, table: Table, data: bytes | memoryview, position: int, *, budget: int) -> int:
        """Decompress batches of `table` until `budget` compressed bytes were; returns what is left.

        Args: data: bytes of the file from byte `position` on, which hold those batches whole.
            Batches that can't be decompressed, or are huge in plain, are passed over: who checks a
            log says so elsewhere.
        Cost: some ms for 128 KiB, whatever the codec.
        """
        view = memoryview(data)
        packed_ones = _counts(table) & ((table["attributes"] & CODEC_MASK) != Codec.NONE)
        for at in np.flatnonzero(packed_ones):
            if budget <= 0:
                break
            row = table[at]
            start, size, attributes = (int(row[n]) for n in ("position", "size", "attributes"))
            packed = view[start - position + HEADER_SIZE : start - position + size]
            budget -= len(packed)
            codec = attributes & CODEC_MASK
            try:
                plain = decompress(Codec(codec), packed, path="", position=start, limit=PLAIN_MAX)
            except (DataCorruptionError, ValueError):
                continue
            of = self._codec(codec)
            of.packed += len(packed)
            of.plain += len(plain)
        return budget

    def add(self, other: "BatchTally") -> None:
        """Count what another counted, too."""
        for codec, theirs in other._of.items():
            ours = self._codec(codec)
            for name in ("batches", "records", "bytes", "packed", "plain"):
                setattr(ours, name, getattr(ours, name) + getattr(theirs, name))
            ours.by_records += theirs.by_records
            ours.by_bytes += theirs.by_bytes

    def figures(self, *, sampled: bool) -> tuple[BatchFigures, ...]:
        """Return the figures of each codec, by bytes, the most first."""
        found = [of.figures(_name(codec), sampled) for codec, of in self._of.items() if of.batches]
        return tuple(sorted(found, key=lambda each: (-each.bytes, each.codec)))

    def _codec(self, codec: int) -> "_Codec":
        return self._of.setdefault(codec, _Codec())


class _Codec:
    def __init__(self) -> None:
        self.batches = self.records = self.bytes = self.packed = self.plain = 0
        self.by_records = np.zeros(_BUCKETS, np.int64)
        self.by_bytes = np.zeros(_BUCKETS, np.int64)

    def take(self, records: NDArray[np.int64], sizes: NDArray[np.int64]) -> None:
        self.batches += len(records)
        self.records += int(records.sum())
        self.bytes += int(sizes.sum())
        self.by_records += np.bincount(_buckets(records), minlength=_BUCKETS)
        self.by_bytes += np.bincount(_buckets(sizes), minlength=_BUCKETS)

    def figures(self, codec: str, sampled: bool) -> BatchFigures:
        rate = 1.0 if codec == "none" else self.packed / self.plain if self.plain else None
        return BatchFigures(
            codec=codec,
            batches=self.batches,
            records=self.records,
            bytes=self.bytes,
            records_avg=self.records / self.batches,
            records_p50=_quantile(self.by_records, 0.5),
            records_p99=_quantile(self.by_records, 0.99),
            bytes_avg=self.bytes / self.batches,
            bytes_p50=_quantile(self.by_bytes, 0.5),
            bytes_p99=_quantile(self.by_bytes, 0.99),
            compression_rate=rate,
            rated_bytes=self.packed,
            sampled=sampled,
        )


def small_batches(figures: Iterable[BatchFigures], size_bytes: int) -> str | None:
    """Say that batches are too small for compression, and what helps; None where they aren't.

    `size_bytes`: of the topic; below a MiB nothing is worth a word.
    """
    for each in figures:
        if each.small and size_bytes >= _WORTH_BYTES:
            return (
                f"its {each.codec} batches hold {each.records_avg:.1f} records on average, "
                f"{each.bytes_avg:.0f} bytes: compression has little to work on, and each batch "
                "costs 61 bytes of header. Write more records at a time: to fewer partitions a "
                "micro-batch, or in longer triggers (Spark); with a larger linger.ms and "
                "batch.size (Kafka's producers)"
            )
    return None


def _counts(table: Table) -> NDArray[np.bool_]:
    """Which rows are batches of records."""
    found: NDArray[np.bool_] = (
        (table["magic"] >= MAGIC) & (table["count"] > 0) & (table["attributes"] & CONTROL == 0)
    )
    return found


def _name(codec: int) -> str:
    try:
        return Codec(codec).name.lower()
    except ValueError:
        return f"codec {codec}"


def _buckets(values: NDArray[np.int64]) -> NDArray[np.int64]:
    """The bucket of each value: its leading bits, and how many follow them."""
    shift = np.maximum(np.frexp(values)[1].astype(np.int64) - _EXACT_BITS, 0)
    found: NDArray[np.int64] = shift * _HALF + (values >> shift)
    return found


def _quantile(counts: NDArray[np.int64], quantile: float) -> int:
    """The least value that at least this share of all is at or below, less what is rounded off."""
    sums = counts.cumsum()
    bucket = int(np.searchsorted(sums, quantile * int(sums[-1])))
    shift = max(0, bucket // _HALF - 1)
    return (bucket - shift * _HALF) << shift
