"""Index files as arrays: offset, time and aborted-transaction entries. Pure functions of bytes.

  .index      8 bytes  i32 relative_offset, i32 position: a batch's LAST offset and its position
  .timeindex 12 bytes  i64 timestamp, i32 relative_offset: the largest timestamp so far in the
                       segment and the last offset of the earliest batch that has it
  .txnindex  34 bytes  i16 0, i64 producer_id, i64 first_offset, i64 last_offset (the marker's),
                       i64 last_stable_offset

Big-endian, no header, no checksum; offsets are relative to the segment's base offset. Source:
OffsetIndex, TimeIndex, TransactionIndex, LogSegment.append (Kafka 4.1).
"""

from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from sparklog.errors import DataCorruptionError, InvalidRequestError
from sparklog.format import kernel
from sparklog.format.batch import Buffer

OFFSET_ENTRY: Final = np.dtype([("relative_offset", ">i4"), ("position", ">i4")])
TIME_ENTRY: Final = np.dtype([("timestamp", ">i8"), ("relative_offset", ">i4")])
TXN_ENTRY: Final = np.dtype(
    [
        ("version", ">i2"),
        ("producer_id", ">i8"),
        ("first_offset", ">i8"),
        ("last_offset", ">i8"),
        ("last_stable_offset", ">i8"),
    ]
)
assert (OFFSET_ENTRY.itemsize, TIME_ENTRY.itemsize, TXN_ENTRY.itemsize) == (8, 12, 34)

RELATIVE_MAX: Final = 2**31 - 1
Entries = NDArray[np.void]


def parse_entries(data: Buffer, dtype: np.dtype[Any], *, path: str) -> Entries:
    """Return the bytes of an index file as entries, without a copy.

    Raises:
        DataCorruptionError: The size is not a multiple of the entry size.
    """
    if len(data) % dtype.itemsize:
        raise DataCorruptionError(
            f"the index has {len(data)} bytes, which is not a multiple of the entry size, "
            f"{dtype.itemsize} bytes",
            path=path,
            position=len(data) - len(data) % dtype.itemsize,
        )
    return np.frombuffer(data, dtype)


def check_txn_entries(entries: Entries, base: int, *, path: str) -> None:
    """Raise DataCorruptionError if an entry of a transaction index is invalid.

    Its version must be 0, and the markers' offsets must ascend from the segment's `base` on.
    Source: TransactionIndex.sanityCheck.
    """
    bad = (entries["version"] != 0) | (entries["last_offset"] < base)
    bad[1:] |= np.diff(entries["last_offset"]) <= 0
    if (fault := _first(bad)) is not None:
        raise DataCorruptionError(
            "the entry of an aborted transaction is invalid: its version is not 0, or its marker's "
            f"offset does not follow the entry before it or the segment's base offset {base}",
            path=path,
            position=fault * TXN_ENTRY.itemsize,
        )


def txn_entry(producer_id: int, first: int, last: int, last_stable: int) -> bytes:
    """Return the 34 bytes of a transaction index entry: an aborted transaction.

    `first` is its first offset, `last` the offset of its marker, and `last_stable` the last stable
    offset after the marker.
    """
    return np.array([(0, producer_id, first, last, last_stable)], TXN_ENTRY).tobytes()


def collect_aborted(
    entries: Entries, fetch_offset: int, upper_bound: int
) -> tuple[list[tuple[int, int, int]], bool]:
    """Return the aborted transactions that overlap [fetch_offset, upper_bound).

    Source: TransactionIndex.collectAbortedTxns.

    Returns:
        [(producer id, first offset, last offset)] of the entries of a segment's index; and True if
        the indexes of later segments contain no further transactions of the range.
    """
    # Transactions of later entries start at or above this entry's last stable offset.
    done = np.flatnonzero(entries["last_stable_offset"] >= upper_bound)
    seen = entries[: int(done[0]) + 1] if len(done) else entries
    hit = seen[(seen["last_offset"] >= fetch_offset) & (seen["first_offset"] < upper_bound)]
    transactions = zip(
        hit["producer_id"].tolist(),
        hit["first_offset"].tolist(),
        hit["last_offset"].tolist(),
        strict=True,
    )
    return list(transactions), bool(len(done))


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexState:
    """The state of the indexing rule between appends. A new segment starts with `IndexState()`.

    Attributes:
        bytes_since_entry: The bytes of the batches since the last offset entry.
        max_timestamp: The largest timestamp (ms) so far; -1 for none.
        max_offset: The last offset of the first batch with that timestamp.
        last_timestamp: The timestamp of the newest time entry; -1 for none.
    """

    bytes_since_entry: int = 0
    max_timestamp: int = -1
    max_offset: int = -1
    last_timestamp: int = -1


def index_entries(
    batches: Entries, base_offset: int, interval_bytes: int, state: IndexState
) -> tuple[bytes, bytes, IndexState]:
    """Return the index entries of the next batches of a segment.

    Kafka 4.1's rule, for each batch: update the largest timestamp; if more than `interval_bytes`
    came since the last entry, write an offset entry, and a time entry if the largest timestamp
    grew, and reset the count of bytes; then add the batch's size to the count. The first batch is
    therefore never indexed, and the entries do not depend on how batches are grouped in appends.

    Args:
        batches: The batches, rows of `scan.BATCH_DTYPE`.
        base_offset: The base offset of the segment.
        interval_bytes: The topic's index.interval.bytes.
        state: The state after the batches before.

    Returns:
        The bytes for .index, the bytes for .timeindex, and the state for the next call.

    Raises:
        InvalidRequestError: An offset or position exceeds int32: the segment must be rolled first.
    """
    count = len(batches)
    if not count:
        return b"", b"", state
    last, position = batches["last_offset"], batches["position"]
    if int(last[-1]) - base_offset > RELATIVE_MAX or int(position[-1]) > RELATIVE_MAX:
        raise InvalidRequestError(
            f"offset {last[-1]} at byte {position[-1]} exceeds the 32-bit fields of the indexes of "
            f"segment {base_offset}: roll first"
        )
    sizes = batches["size"].astype(np.int64)  # a copy: fields of packed rows aren't aligned
    picked = np.empty(count, np.int64)
    chosen, left = kernel.pick_entries(
        sizes.data, interval_bytes, state.bytes_since_entry, picked.data
    )
    if not chosen:
        return b"", b"", _without_entry(batches, state, left)
    rows = picked[:chosen]
    highest, highest_offset = _running_max(batches, state)
    index = np.empty(chosen, OFFSET_ENTRY)
    index["relative_offset"] = last[rows] - base_offset
    index["position"] = position[rows]
    times = highest[rows]
    grown = np.empty(chosen, np.bool_)
    grown[:1], grown[1:] = times[:1] > state.last_timestamp, times[1:] > times[:-1]
    timeindex = np.empty(int(grown.sum()), TIME_ENTRY)
    timeindex["timestamp"] = times[grown]
    timeindex["relative_offset"] = highest_offset[rows][grown] - base_offset
    return (
        index.tobytes(),
        timeindex.tobytes(),
        IndexState(
            bytes_since_entry=left,
            max_timestamp=int(highest[-1]),
            max_offset=int(highest_offset[-1]),
            last_timestamp=int(timeindex["timestamp"][-1]) if grown.any() else state.last_timestamp,
        ),
    )


def _without_entry(batches: Entries, state: IndexState, left: int) -> IndexState:
    """Return the state after batches that get no index entry, as most small appends.

    `left` is the number of bytes since the last entry, with these batches.
    """
    top = int(batches["max_timestamp"].argmax())
    latest = int(batches["max_timestamp"][top])
    if latest <= state.max_timestamp:
        return replace(state, bytes_since_entry=left)
    return replace(
        state,
        bytes_since_entry=left,
        max_timestamp=latest,
        max_offset=int(batches["last_offset"][top]),
    )


def final_time_entry(base_offset: int, state: IndexState) -> tuple[bytes, IndexState]:
    """Return the time entry that a roll or a clean close adds, and the state after it.

    The entry is empty if the largest timestamp has an entry already. Source:
    LogSegment.onBecomeInactiveSegment.
    """
    if state.max_timestamp <= state.last_timestamp:
        return b"", state
    entry = np.array([(state.max_timestamp, state.max_offset - base_offset)], TIME_ENTRY)
    return entry.tobytes(), IndexState(
        bytes_since_entry=state.bytes_since_entry,
        max_timestamp=state.max_timestamp,
        max_offset=state.max_offset,
        last_timestamp=state.max_timestamp,
    )


class SegmentIndexes:
    """Builds the offset index and the time index of a segment from its batches.

    The attributes `index` and `timeindex` hold the bytes of the files.
    """

    def __init__(self, base: int, interval_bytes: int) -> None:
        self.base = base
        self.index, self.timeindex = bytearray(), bytearray()
        self._interval_bytes, self._state = interval_bytes, IndexState()

    def take(self, batches: Entries) -> None:
        """Add the index entries of the next batches; errors as in `index_entries`."""
        index, timeindex, self._state = index_entries(
            batches, self.base, self._interval_bytes, self._state
        )
        self.index += index
        self.timeindex += timeindex

    def finish(self) -> None:
        """Add the final time entry after the last batch, as a roll does."""
        entry, self._state = final_time_entry(self.base, self._state)
        self.timeindex += entry


def _running_max(batches: Entries, state: IndexState) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return for each batch the largest timestamp so far, and the offset for its time entry.

    The offset is the last offset of the first batch with that timestamp.
    """
    stamps = np.concatenate(([state.max_timestamp], batches["max_timestamp"]))
    offsets = np.concatenate(([state.max_offset], batches["last_offset"]))
    highest = np.maximum.accumulate(stamps)
    rises = np.zeros(len(stamps), np.int64)
    rises[1:] = np.where(highest[1:] > highest[:-1], np.arange(1, len(stamps)), 0)
    return highest[1:], offsets[np.maximum.accumulate(rises)][1:]


def _first(mask: NDArray[np.bool_]) -> int | None:
    hits = mask.nonzero()[0]
    return int(hits[0]) if len(hits) else None
