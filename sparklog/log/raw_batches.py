"""Read undecoded record batches, for Kafka's Fetch. Batches are neither decoded nor copied.

Homes fill in base offset and leader epoch; every batch must pass its CRC and begin at the expected
offset. Batches of magic 0 and 1 are returned unchanged: clients whose Fetch version is supported
can read them, and brokers do not convert them since 4.0 (KIP-724).
"""

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from sparklog.errors import DataCorruptionError, SparklogError, UnknownTopicError
from sparklog.format.batch import CONTROL, TRANSACTIONAL
from sparklog.log.aborted_transactions import AbortedTxn
from sparklog.log.batch_windows import Window
from sparklog.log.fetch import judge_failed_read
from sparklog.log.partition_reader import Allocate, PartitionReader, ReadBudget, reader_of
from sparklog.log.read_retry import (
    StaleReadRetries,
    check_incarnation,
    check_topic_id,
    final_error,
)
from sparklog.log.verified_batches import FileRange, VerifiedBatches
from sparklog.storage.segments import StaleReadError
from sparklog.storage.view import View

_STALE: Final = (StaleReadError, FileNotFoundError, UnknownTopicError, DataCorruptionError)


@dataclass(frozen=True, slots=True)
class RawBatches:
    """Complete record batches of a partition, in order.

    `parts`: the bytes of the batches; each part contains complete batches. `file_range`: batches
    before `parts` that can be sent from their file. `size_bytes`: total size. `next_offset`: where
    to continue. `aborted`: with read_committed, the aborted transactions that overlap the batches.
    """

    parts: tuple[memoryview, ...]
    size_bytes: int
    next_offset: int
    aborted: tuple[AbortedTxn, ...] = ()
    file_range: FileRange | None = None


def read_batches(
    view: View,
    topic: str,
    partition: int,
    start: int,
    end: int,
    budget: ReadBudget,
    *,
    topic_id: str | None,
    incarnation: int,
    isolation: str = "read_uncommitted",
    allocate: Allocate | None = None,
    verified: VerifiedBatches | None = None,
) -> RawBatches:
    """Return as many batches as `budget` allows, beginning with the batch that contains `start`.

    Args:
        end: At or below the high watermark; for read_committed, the last stable offset. A batch
            that reaches past `end` is not returned.
        budget: The remaining size; the returned batches are charged to it.
        topic_id, incarnation: The topic's id and the view's incarnation when `end` was determined.
        allocate: Returns memory to read local files into; `parts` may refer to it.
        verified: Batches that can be returned as `file_range`; verified batches are added to it. By
            default all batches are returned in memory.

    Returns fewer batches if the readable range ends early because of damage or moving segments, and
    no batch if compaction removed all of them. Raises at once LogReplacedError, TopicReplacedError,
    UnknownTopicError, OffsetOutOfRangeError; after a second of retries the errors of
    `sparklog.log.fetch.read_partition`.

    Memory: the batches, and at most 4 KiB or the same size again of other data. Cost: an index
        lookup, a pread per 2 MiB, a CRC pass.
    """
    tries = StaleReadRetries()
    while True:
        try:
            reader = reader_of(view, topic, partition, topic_id)
            if reader.segments.gaps:  # a new reader: batches must match the aborted transactions
                reader = PartitionReader(reader.segments)
            batches = _read(reader, start, end, budget, isolation, allocate, verified)
        except _STALE as error:
            # A roll, a cleaning or an undo may have moved files: list again before judging.
            check_incarnation(view, incarnation)
            judge_failed_read(view, topic, partition, topic_id, start, end, error)
            if not tries.should_retry(view, topic, partition, start, end):
                raise final_error(view, topic, partition, start, end, error) from error
            reader_of(view, topic, partition).refresh()
            continue
        check_incarnation(view, incarnation)
        check_topic_id(view, topic, partition, topic_id)
        return batches


def _read(
    reader: PartitionReader,
    start: int,
    end: int,
    budget: ReadBudget,
    isolation: str,
    allocate: Allocate | None,
    verified: VerifiedBatches | None,
) -> RawBatches:
    committed = isolation == "read_committed"
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
    """Yield the bytes of a window's batches. Adjacent batches are a single piece."""
    table: Any = window.batches.table
    starts = table["position"] - window.position
    stops = starts + table["size"]
    breaks = (np.flatnonzero(starts[1:] != stops[:-1]) + 1).tolist()
    data = memoryview(window.data)
    for first, last in itertools.pairwise([0, *breaks, len(table)]):
        piece = data[int(starts[first]) : int(stops[last - 1])]
        # A small piece must not keep a large window in memory.
        yield piece if 2 * len(piece) >= len(data) else memoryview(bytes(piece))
