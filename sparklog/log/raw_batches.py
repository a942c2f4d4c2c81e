"""Reads record batches as they lie, for whoever hands bytes on: nothing is decoded or copied.

What a home numbers on the way (base offset, leader epoch) is numbered; every batch passes its CRC
and begins where it is expected. Batches of magic 0 and 1 come as they are, too: who asks for a
version of Fetch that is still served reads them, and brokers convert none since 4.0 (KIP-724).
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
    """Whole record batches of one partition, in order.

    `parts`: their bytes, each of any number of whole batches. `file_range`: the batches in front of
    these, which are sent from their file. `size_bytes`: of all together.
    `next_offset`: where to go on. `aborted`: of those asked for with read_committed, the aborted
    transactions that touch them.
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
    """Return the batches from the one that holds `start` on, as many as `budget` takes.

    Args:
        end: at or below the high watermark, of read_committed at or below the last stable offset;
            a batch that reaches past it stays out.
        budget: what may come altogether; what does is taken from it.
        topic_id, incarnation: the topic's and the view's when `end` was asked for.
        allocate: gives the memory that local files are read into; `parts` may lie there.
        verified: what may come as `file_range`, and where batches that were read are noted; by
            default all come in memory.
    Returns: less than there is where a damage, or a move of segments, ends what can be read now;
        nothing where compaction left nothing.
    Raises: at once LogReplacedError, TopicReplacedError, UnknownTopicError, OffsetOutOfRangeError;
        after a second of retries what `sparklog.log.fetch.read_partition` raises.
    Memory: the batches, and what was read with them: at most 4 KiB, or as much again.
    Cost: an index look-up, one pread for each 2 MiB, one CRC pass.
    """
    tries = StaleReadRetries()
    while True:
        try:
            reader = reader_of(view, topic, partition, topic_id)
            if reader.segments.gaps:  # one of its own: no log older than its aborted transactions
                reader = PartitionReader(reader.segments)
            found = _read(reader, start, end, budget, isolation, allocate, verified)
        except _STALE as error:
            # A roll, a clean-up or an undo may have moved files under us: look again, then judge.
            check_incarnation(view, incarnation)
            judge_failed_read(view, topic, partition, topic_id, start, end, error)
            if not tries.should_retry(view, topic, partition, start, end):
                raise final_error(view, topic, partition, start, end, error) from error
            reader_of(view, topic, partition).refresh()
            continue
        check_incarnation(view, incarnation)
        check_topic_id(view, topic, partition, topic_id)
        return found


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
    # Before the batches where segments are swapped: a clean-up takes both away.
    early = reader.aborted(start, end) if committed and reader.segments.gaps else None
    parts: list[memoryview] = []
    size, following, marked, file_range = 0, start, False, None
    if verified is not None and (known := verified.find(reader, start, end, budget)) is not None:
        file_range = known.range
        size, following, marked = len(file_range), known.next_offset, known.is_transactional
    found = reader.batches(following, end, budget, allocate)
    while following < end and not budget.full:
        try:
            window = next(found, None)
        except (SparklogError, FileNotFoundError):
            if size:
                break  # what is good comes first; who asks for the rest is told
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
        marked = marked or bool((kinds == TRANSACTIONAL).any())
    if not (committed and marked):
        return RawBatches(tuple(parts), size, following, file_range=file_range)
    aborted = reader.aborted(start, following) if early is None else early
    touching = tuple(txn for txn in aborted if txn.first_offset < following)
    return RawBatches(tuple(parts), size, following, touching, file_range)


def _pieces(window: Window) -> Iterator[memoryview]:
    """Yield the bytes of a window's batches: one piece, where nothing lies between them."""
    table: Any = window.batches.table
    starts = table["position"] - window.position
    stops = starts + table["size"]
    breaks = (np.flatnonzero(starts[1:] != stops[:-1]) + 1).tolist()
    data = memoryview(window.data)
    for first, last in itertools.pairwise([0, *breaks, len(table)]):
        piece = data[int(starts[first]) : int(stops[last - 1])]
        # A small piece must not keep a large window.
        yield piece if 2 * len(piece) >= len(data) else memoryview(bytes(piece))
