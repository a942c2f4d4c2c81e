"""The newest record batches of a partition, for figures of how a topic is written just now.

A sample and not a count: what tells all of it reads all of it, and `verify` does. The newest ones
are those that today's settings made.
"""

from typing import Final

from sparklog.format.batch import HEADER_SIZE, MAGIC, unpack_header
from sparklog.format.names import INDEX
from sparklog.format.scan import header_row, scan
from sparklog.log.batch_figures import BatchTally
from sparklog.log.index_entries import is_batch_at
from sparklog.log.offset_lookup import OFFSET_ITEM, Entries
from sparklog.storage.segments import PartitionSegments, SegmentLog

SAMPLE_BYTES: Final = 256 << 10
RATED_BYTES: Final = 96 << 10
PARTITIONS_MAX: Final = 4  # of a topic: they are written alike
_READ_MAX: Final = 4 << 20
_MAGIC_AT: Final = 16


def sample(segments: PartitionSegments, end: int, tally: BatchTally) -> None:
    """Count the last whole batches below offset `end`, some SAMPLE_BYTES of them, in `tally`.

    Of one segment, the last that has any. Damaged or changing bytes give fewer batches, or none.
    Raises: FileNotFoundError, StaleReadError, StorageUnavailableError: as any read of a segment.
    Cost: a listing, a dozen small reads of an index, one read of 256 KiB (of a batch's size, up to
        4 MiB, where batches are larger), and decompressing some 96 KiB: 1 to 3 ms. In a store two
        or three GETs.
    """
    for base in reversed(segments.bases()):
        if base >= end:
            continue
        log = segments.log(base)
        size = log.size()
        if size:
            _take(log, _start(segments, base, log, size), size, end, tally)
            return


def _start(segments: PartitionSegments, base: int, log: SegmentLog, size: int) -> int:
    """A position where a batch begins, SAMPLE_BYTES before the end or a bit more; else 0."""
    index = segments.index(base, INDEX) if size > SAMPLE_BYTES else None
    if index is None:
        return 0
    entries = Entries(OFFSET_ITEM, index)
    slot = entries.last(lambda entry: entry[1] <= size - SAMPLE_BYTES)
    if slot < 0:
        return 0
    relative, position = entries[slot]
    is_batch = 0 < position < size and is_batch_at(log, position, size, base + relative)
    return position if is_batch else 0


def _take(log: SegmentLog, start: int, size: int, end: int, tally: BatchTally) -> None:
    data = log.pread(min(size - start, _READ_MAX), start)
    batches = scan(data, path=log.path, position=start)
    table = batches.table[batches.table["last_offset"] < end]
    if len(table):
        tally.take(table)
        # The newest tell best; of a segment without an index the first ones were read.
        tally.rate(table[::-1], data, start, budget=RATED_BYTES)
        return
    if len(data) >= HEADER_SIZE and data[_MAGIC_AT] == MAGIC and batches.error is None:
        header = unpack_header(data, 0)  # larger than what is read: its header tells most
        if header.last_offset < end:
            tally.take(header_row(header, start))


def choose_partitions(partitions: list[int], most: int = PARTITIONS_MAX) -> list[int]:
    """Choose up to `most` of a topic's partitions, evenly over them."""
    if len(partitions) <= most:
        return partitions
    return [partitions[at * len(partitions) // most] for at in range(most)]
