"""Statistics of record batches: sizes and compression rates, by codec.

The terms are names of Kafka's producer metrics: batch-size-avg, compression-rate-avg. A rate is
compressed bytes divided by uncompressed bytes, so 1.0 saves nothing. A header contains a batch's
size, record count and codec. The uncompressed size is only known after decompression, so some
batches are decompressed. Source: KafkaProducer's metrics (SenderMetricsRegistry),
MemoryRecordsBuilder.compressionRatio.
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
PLAIN_MAX: Final = 16 << 20  # uncompressed bytes; larger batches do not count for a rate
_SMALL_RECORDS: Final = 2  # fewer records on average share too little to compress
_FEW: Final = 20  # fewer batches are not enough for advice
_WORTH_BYTES: Final = 1 << 20  # size of a topic; smaller topics get no advice
_EXACT_BITS: Final = 8  # numbers with more bits are rounded down, by less than 1 %
_HALF: Final = 1 << (_EXACT_BITS - 1)
_BUCKETS: Final = (32 - _EXACT_BITS + 2) * _HALF  # a batch's size is below 2**32


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchFigures:
    """Statistics of a topic's record batches with the same codec.

    Transaction markers, batches that compaction emptied, and batches of magic 0 and 1 are not
    counted.

    Attributes:
        codec: The codec, as in compression.type.
        batches: The number of batches.
        records: The number of records.
        bytes: The size of the batches, headers included.
        records_avg: The average number of records per batch.
        records_p50: The median number of records per batch.
        records_p99: The 99th percentile of the number of records per batch.
        bytes_avg: The average size of a batch.
        bytes_p50: The median size of a batch.
        bytes_p99: The 99th percentile of the size of a batch.
        compression_rate: The compressed size of records divided by their uncompressed size, without
            headers. None if no batch was decompressed, 1.0 for the codec none.
        rated_bytes: The size of the compressed records that `compression_rate` was measured on;
            batches are decompressed up to about 100 KiB.
        sampled: Whether only the newest batches of some partitions were counted.

    Examples:
        >>> from sparklog.service import verify
        >>> figures, = verify("log").batches["flights"]
        >>> figures.codec, figures.records
        ('none', 600)
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
        """Whether compression is on, but batches have too few records to be compressed well."""
        is_judged = self.codec != "none" and self.batches >= _FEW
        return is_judged and self.records_avg < _SMALL_RECORDS


class BatchTally:
    """Counts batches and their sizes by codec, in a few KiB of memory. Not thread-safe."""

    def __init__(self) -> None:
        self._of: dict[int, _Codec] = {}

    def take(self, table: Table) -> None:
        """Count the batches of a scan's table."""
        counted = _counts(table)  # complete columns, because copying a row is expensive
        codecs = (table["attributes"] & CODEC_MASK)[counted]
        if not len(codecs):
            return
        records, sizes = table["count"].astype(np.int64)[counted], table["size"][counted]
        for codec in np.bincount(codecs).nonzero()[0].tolist():
            of = codecs == codec
            self._codec(codec).take(records[of], sizes[of])

    def rate(self, table: Table, data: bytes | memoryview, position: int, *, budget: int) -> int:
        """Decompress batches to measure their compression rate; return the rest of the budget.

        Batches that can't be decompressed, or are larger than PLAIN_MAX, are skipped; verification
        reports damage elsewhere.

        Args:
            table: The batches, as parsed.
            data: Bytes of the file from byte `position` on; they contain the batches of `table`.
            position: The byte position of `data` in the file.
            budget: The number of compressed bytes that may be decompressed.

        Cost: a few ms per 128 KiB, with any codec.
        """
        view = memoryview(data)
        is_packed = _counts(table) & ((table["attributes"] & CODEC_MASK) != Codec.NONE)
        for at in np.flatnonzero(is_packed):
            if budget <= 0:
                break
            row = table[at]
            start, size, attributes = (int(row[n]) for n in ("position", "size", "attributes"))
            packed = view[start - position + HEADER_SIZE : start - position + size]
            budget -= len(packed)
            codec = attributes & CODEC_MASK
            try:
                plain = decompress(Codec(codec), packed, path="", position=start, limit=PLAIN_MAX)
            except (DataCorruptionError, ValueError):  # ValueError: Codec() knows no such number
                continue
            of = self._codec(codec)
            of.packed += len(packed)
            of.plain += len(plain)
        return budget

    def add(self, other: "BatchTally") -> None:
        """Add the counts of another tally."""
        for codec, theirs in other._of.items():
            ours = self._codec(codec)
            for name in ("batches", "records", "bytes", "packed", "plain"):
                setattr(ours, name, getattr(ours, name) + getattr(theirs, name))
            ours.by_records += theirs.by_records
            ours.by_bytes += theirs.by_bytes

    def figures(self, *, sampled: bool) -> tuple[BatchFigures, ...]:
        """Return the statistics of each codec, the codec with the most bytes first.

        `sampled`: see `BatchFigures`.
        """
        counted = [(codec, of) for codec, of in self._of.items() if of.batches]
        figures = [of.figures(_name(codec), sampled) for codec, of in counted]
        return tuple(sorted(figures, key=lambda entry: (-entry.bytes, entry.codec)))

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
    """Return a hint if batches are too small to compress well, else None.

    `size_bytes` is the size of the topic. No hint is given below 1 MiB.
    """
    for entry in figures:
        if entry.small and size_bytes >= _WORTH_BYTES:
            return (
                f"its {entry.codec} batches contain {entry.records_avg} records on average, "
                f"{entry.bytes_avg} bytes: too few to compress well, and each batch costs 61 "
                "bytes of header. Write more records at a time: to fewer partitions per "
                "micro-batch, or with longer triggers (Spark); with a larger linger.ms and "
                "batch.size (Kafka's producers)"
            )
    return None


def _counts(table: Table) -> NDArray[np.bool_]:
    """Return a mask of the batches that are counted: batches of records with magic 2."""
    mask: NDArray[np.bool_] = (
        (table["magic"] >= MAGIC) & (table["count"] > 0) & (table["attributes"] & CONTROL == 0)
    )
    return mask


def _name(codec: int) -> str:
    try:
        return Codec(codec).name.lower()
    except ValueError:
        return f"codec {codec}"


def _buckets(values: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the histogram bucket of each value.

    A bucket combines the values with the same leading bits, so it is at most 1% wide.
    """
    shift = np.maximum(np.frexp(values)[1].astype(np.int64) - _EXACT_BITS, 0)
    buckets: NDArray[np.int64] = shift * _HALF + (values >> shift)
    return buckets


def _quantile(counts: NDArray[np.int64], quantile: float) -> int:
    """Return the smallest value that reaches the quantile, rounded down by less than 1%.

    `counts` is the number of values in each bucket of `_buckets`.
    """
    sums = counts.cumsum()
    bucket = int(np.searchsorted(sums, quantile * int(sums[-1])))
    shift = max(0, bucket // _HALF - 1)
    return (bucket - shift * _HALF) << shift
