"""Read the entries of a segment's indexes, which have no checksum and can't be trusted.

A broker's active index ends in preallocated zeros, and a power cut can leave anything. Impossible
entries are cut off here. The remaining entries are hints that the caller must verify in the log.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from sparklog.format.batch import HEADER_SIZE, MAGIC_END
from sparklog.format.index import OFFSET_ENTRY, TIME_ENTRY, TXN_ENTRY, Entries
from sparklog.format.names import INDEX, TIMEINDEX, TXNINDEX
from sparklog.format.scan import scan
from sparklog.storage.segments import PartitionSegments, SegmentLog


def whole_entries(index: SegmentLog | None, dtype: np.dtype[Any]) -> Entries:
    """Return the complete entries of an index; empty if the index is missing."""
    if index is None:
        return np.empty(0, dtype)
    data = index.pread(index.size(), 0)
    # Without `count`, numpy rejects an index that ends within an entry.
    return np.frombuffer(data, dtype, count=len(data) // dtype.itemsize)


def offset_entries(segments: PartitionSegments, base: int, *, size: int, end: int) -> Entries:
    """Return the leading entries of a segment's offset index that are plausible.

    They point into a log of `size` bytes with offsets below `end`.
    """
    entries = whole_entries(segments.index(base, INDEX), OFFSET_ENTRY)
    return entries[: plausible_offsets(entries, size=size, span=end - base)]


def plausible_offsets(entries: Entries, *, size: int, span: int) -> int:
    """Return how many leading entries of an offset index are plausible: ascending and in range.

    The first batch is never indexed, so an entry with a zero is not plausible.

    Args:
        entries: The entries.
        size: The size of the log in bytes, which positions must be below.
        span: The number of offsets of the segment, which relative offsets must be below.
    """
    offsets = entries["relative_offset"].astype(np.int64)
    positions = entries["position"].astype(np.int64)
    bad = (offsets <= _shifted(offsets, 0)) | (positions <= _shifted(positions, 0))
    return _leading(bad | (offsets >= span) | (positions >= size))


def plausible_times(entries: Entries, *, span: int) -> int:
    """Return how many leading entries of a time index are plausible: ascending and in range.

    `span` is the number of offsets of the segment, which relative offsets must be below.
    """
    offsets = entries["relative_offset"].astype(np.int64)
    stamps = entries["timestamp"].astype(np.int64)
    # As TimeIndex.maybeAppend: timestamps must grow, while two entries may share an offset.
    bad = (stamps <= _shifted(stamps, -1)) | (offsets < _shifted(offsets, 0))
    return _leading(bad | (offsets >= span))


def regular_times(segments: PartitionSegments, base: int, offsets: Entries) -> Entries:
    """Return the time index entries that were written together with the entries `offsets`.

    `offsets` are entries of the offset index. A roll or a close adds a final time entry behind the
    newest of them. This final entry is left out, because the next regular entry overwrites it, as
    if the segment had never been closed.
    """
    entries = whole_entries(segments.index(base, TIMEINDEX), TIME_ENTRY)
    reach = int(offsets["relative_offset"][-1]) + 1 if len(offsets) else 0
    return entries[: plausible_times(entries, span=reach)]


def txn_entries(segments: PartitionSegments, base: int, *, end: int) -> Entries:
    """Return the leading plausible entries of a segment's transaction index, up to offset `end`.

    These are aborted transactions. Entries with a marker at or above `end` are left out.
    """
    entries = whole_entries(segments.index(base, TXNINDEX), TXN_ENTRY)
    last = entries["last_offset"].astype(np.int64)
    bad = (entries["version"] != 0) | (last <= _shifted(last, base - 1)) | (last >= end)
    return entries[: _leading(bad)]


def position_hint(segments: PartitionSegments, base: int, log: SegmentLog, offset: int) -> int:
    """Return the position of a batch at or before `offset`, from the segment's offset index.

    The position is checked against the log, because an index may be damaged.
    """
    size = log.size()
    entries = offset_entries(segments, base, size=size, end=offset + 1)
    if not len(entries):
        return 0
    position = int(entries["position"][-1])
    last = base + int(entries["relative_offset"][-1])
    # Kafka's indexes have no checksum, so only the batch itself can confirm the position.
    return position if is_batch_at(log, position, size, last) else 0


def is_batch_at(log: SegmentLog, position: int, limit: int, last_offset: int) -> bool:
    """Return True if a batch with a valid CRC is at `position` and ends with `last_offset`.

    `limit` is the size of the log.
    """
    head = log.pread(HEADER_SIZE, position)
    if len(head) <= MAGIC_END:
        return False
    size = int.from_bytes(head[8:12], "big", signed=True) + 12
    if not MAGIC_END < size <= limit - position:
        return False
    data = head[:size] if size <= len(head) else log.pread(size, position)
    table = scan(data, path=log.path, position=position, max_batches=1).table
    return bool(len(table)) and int(table["last_offset"][0]) == last_offset


def _shifted(values: NDArray[np.int64], first: int) -> NDArray[np.int64]:
    """Return the predecessor of each value; `first` is that of the first value.

    np.diff would do, but costs more than everything else for a few entries.
    """
    before = np.empty_like(values)
    before[:1], before[1:] = first, values[:-1]
    return before


def _leading(bad: NDArray[np.bool_]) -> int:
    hits = bad.nonzero()[0]
    return int(hits[0]) if len(hits) else len(bad)
