"""Sample the newest record batches of a partition, to see how a topic is written at present.

A sample costs little; `verify` reads and counts all batches. The newest batches show the effect of
the present producer settings.
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
PARTITIONS_MAX: Final = 4  # per topic; its partitions are usually written alike
_READ_MAX: Final = 4 << 20
_MAGIC_AT: Final = 16


def sample(segments: PartitionSegments, end: int, tally: BatchTally) -> None:
    """Count the newest batches of a partition in `tally`: about SAMPLE_BYTES below offset `end`.

    The batches come from the last segment that has any. Damaged or changing bytes give fewer
    batches, or none. Raises the errors of reading a segment.

    Cost:
        A listing, a dozen small index reads, a read of 256 KiB (up to 4 MiB if a batch is larger),
        and decompressing about 96 KiB: 1 to 3 ms. In a bucket, 2 or 3 GETs.
    """
    for base in reversed(segments.bases()):
        if base >= end:
            continue
        log = segments.log(base)
        size = log.size()
        if size:  # the active segment is empty after a roll: sample the segment before
            _take(log, _start(segments, base, log, size), size, end, tally)
            return


def _start(segments: PartitionSegments, base: int, log: SegmentLog, size: int) -> int:
    """Return the position of a batch that is at least SAMPLE_BYTES before the log's end.

    The position comes from the offset index and is checked. Returns 0 if the index has none.
    """
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
        # Rate the newest first. Without an index, the read began with the segment's first batches.
        tally.rate(table[::-1], data, start, budget=RATED_BYTES)
        return
    if len(data) >= HEADER_SIZE and data[_MAGIC_AT] == MAGIC and batches.error is None:
        header = unpack_header(data, 0)  # a batch larger than the read: count it by its header
        if header.last_offset < end:
            tally.take(header_row(header, start))


def choose_partitions(partitions: list[int], most: int = PARTITIONS_MAX) -> list[int]:
    """Return up to `most` of a topic's partitions, evenly spaced."""
    if len(partitions) <= most:
        return partitions
    return [partitions[at * len(partitions) // most] for at in range(most)]
