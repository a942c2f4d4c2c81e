"""Read undecoded record batches: for Kafka's Fetch, and as a stream of a range of offsets.

Batches are neither decoded nor copied.

Homes fill in base offset and leader epoch; every batch must pass its CRC and begin at the expected
offset. Batches of magic 0 and 1 are returned unchanged: clients whose Fetch version is supported
can read them, and brokers do not convert them since 4.0 (KIP-724).
"""

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from sparklog.errors import SparklogError
from sparklog.format.batch import CONTROL, TRANSACTIONAL
from sparklog.log.aborted_transactions import AbortedTxn
from sparklog.log.batch_windows import Window
from sparklog.log.partition_reader import (
    Allocate,
    PartitionReader,
    ReadBudget,
    StreamedBatches,
)
from sparklog.log.read_retry import STALE_READ_ERRORS, PartitionRead, StaleReadRetries
from sparklog.log.verified_batches import FileRange, VerifiedBatches


@dataclass(frozen=True, slots=True)
class RawBatches:
    """Complete record batches of a partition, in order.

    Attributes:
        parts: The bytes of the batches; each part contains complete batches.
        size_bytes: The total size.
        next_offset: The offset to continue at.
        aborted: With read_committed, the aborted transactions that overlap the batches.
        file_range: Batches before `parts` that can be sent from their file. These bytes are not
            read into this process: `FileRange.send` reads them from the file when the response is
            sent.
    """

    parts: tuple[memoryview, ...]
    size_bytes: int
    next_offset: int
    aborted: tuple[AbortedTxn, ...] = ()
    file_range: FileRange | None = None


def read_batches(
    read: PartitionRead,
    budget: ReadBudget,
    *,
    allocate: Allocate | None = None,
    verified: VerifiedBatches | None = None,
) -> RawBatches:
    """Return as many batches as `budget` allows, beginning with the batch that contains the start.

    Args:
        read: Its `topic_id` and `incarnation` are those when its end was determined. For
            read_committed, the end is at or below the last stable offset. A batch that reaches
            past the end is not returned.
        budget: The remaining size; the returned batches are charged to it.
        allocate: Returns memory to read local files into; `parts` may refer to it.
        verified: Batches that can be returned as `file_range`; verified batches are added to it. By
            default all batches are returned in memory.

    Returns fewer batches if the readable range ends early because of damage or moving segments, and
    no batch if compaction removed all of them. Raises at once LogReplacedError, TopicReplacedError,
    UnknownTopicError, OffsetOutOfRangeError; after a second of retries the errors of
    `sparklog.log.arrow_reads.read_partition`.

    Memory: the batches, and at most 4 KiB or the same size again of other data. Cost: an index
        lookup, a pread per 2 MiB, a CRC pass.
    """
    retries = StaleReadRetries()
    while True:
        try:
            reader = read.reader()
            if reader.segments.gaps:  # a new reader: batches must match the aborted transactions
                reader = PartitionReader(reader.segments)
            batches = _read_range(reader, read, budget, allocate, verified)
        except STALE_READ_ERRORS as error:
            read.prepare_retry(error, retries)
            continue
        read.check()
        return batches


def stream_batches(read: PartitionRead) -> Iterator[StreamedBatches]:
    """Yield the batches that contain offsets of `read`.

    The first batch may begin before the start, the last may end behind the end. Control batches and
    aborted batches are included. In a compacted topic, offsets may be missing between batches.
    Raises: see `sparklog.log.arrow_reads.read_partition`. Memory: a few MiB, or the size of the
    largest batch.
    """
    read, retries = read.begun(), StaleReadRetries()
    while read.start < read.end:
        try:
            batches = read.reader().touching(read.start, read.end, isolation=read.isolation)
            for raw in batches:
                read.check()
                following = int(raw.window.batches.table["last_offset"][-1]) + 1
                # Advanced before the yield, so that a retry does not return these batches twice.
                # After progress, a read has the full period of retries again.
                read, retries = read._replace(start=following), StaleReadRetries()
                yield raw
            return
        except STALE_READ_ERRORS as error:
            read.prepare_retry(error, retries)


def _read_range(
    reader: PartitionReader,
    read: PartitionRead,
    budget: ReadBudget,
    allocate: Allocate | None,
    verified: VerifiedBatches | None,
) -> RawBatches:
    start, end = read.start, read.end
    committed = read.isolation == "read_committed"
    # If segments can be replaced, read these before the batches: a cleaning removes both.
    early = reader.aborted(start, end) if committed and reader.segments.gaps else None
    parts: list[memoryview] = []
    size, following, is_transactional, file_range = 0, start, False, None
    if verified is not None and (known := verified.find(reader, start, end, budget)) is not None:
        file_range = known.range
        size, following = len(file_range), known.next_offset
        is_transactional = known.is_transactional
    windows = reader.batches(following, end, budget, allocate)
    while following < end and not budget.full:
        try:
            window = next(windows, None)
        except (SparklogError, FileNotFoundError):
            if size:
                break  # return the valid batches; the next request gets the error
            raise
        if window is None:
            break
        table = window.batches.table
        parts += _pieces(window)
        if verified is not None:
            verified.remember(reader, window)
        size += int(table["size"].sum())
        following = int(table["last_offset"][-1]) + 1
        kinds = table["attributes"] & (TRANSACTIONAL | CONTROL)
        is_transactional = is_transactional or bool((kinds == TRANSACTIONAL).any())
    if not (committed and is_transactional):
        return RawBatches(tuple(parts), size, following, file_range=file_range)
    aborted = reader.aborted(start, following) if early is None else early
    touching = tuple(txn for txn in aborted if txn.first_offset < following)
    return RawBatches(tuple(parts), size, following, touching, file_range)


def _pieces(window: Window) -> Iterator[memoryview]:
    """Yield the bytes of a window's batches; adjacent batches are in a single buffer."""
    table: Any = window.batches.table
    starts = table["position"] - window.position
    stops = starts + table["size"]
    breaks = (np.flatnonzero(starts[1:] != stops[:-1]) + 1).tolist()
    data = memoryview(window.data)
    for first, last in itertools.pairwise([0, *breaks, len(table)]):
        piece = data[int(starts[first]) : int(stops[last - 1])]
        # A small piece must not keep a large window in memory.
        yield piece if 2 * len(piece) >= len(data) else memoryview(bytes(piece))
