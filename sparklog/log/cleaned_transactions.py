"""Decide which aborted data and markers the cleaner may drop (CleanedTransactionMetadata).

Data of aborted transactions are dropped at once. A marker stays while the cleaner still meets a
batch of its transaction. After that the marker gets a delete horizon, and is dropped once the
horizon has passed. An index entry of an aborted transaction stays while data precede its marker.
Source: CleanedTransactionMetadata, LocalLog.collectAbortedTransactions (Kafka 4.1).
"""

import heapq
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from sparklog.format.control import ControlType, Marker
from sparklog.format.index import txn_entry
from sparklog.format.names import OFFSET_MAX
from sparklog.log.index_entries import txn_entries
from sparklog.storage.segments import PartitionSegments

AbortedEntry: TypeAlias = tuple[int, int, int, int]
"""(producer id, first offset, offset of the marker, last stable offset) of a transaction."""


class AbortedEntries:
    """The aborted transactions of a partition, from the transaction indexes of the segments.

    Each index is read once. `bases` are the base offsets of all segments, ascending.
    """

    def __init__(
        self, segments: PartitionSegments, bases: Sequence[int], *, log_start: int
    ) -> None:
        self._segments, self._bases, self._log_start = segments, bases, log_start
        self._known: dict[int, list[AbortedEntry]] = {}

    def touching(self, base: int, end: int) -> list[AbortedEntry]:
        """Return the aborted transactions that may have data in the offsets [base, end).

        Each is (producer id, first offset, offset of the marker, last stable offset at the marker).
        `base` is the base offset of a segment.
        """
        entries: list[AbortedEntry] = []
        for following in self._bases:
            if following < base:
                continue
            for entry in self._of(following):
                _, first, marker, stable = entry
                if marker >= self._log_start and first < end:
                    entries.append(entry)
                if stable >= end:  # transactions of later entries begin at or above `end`
                    return entries
        return entries

    def _of(self, base: int) -> list[AbortedEntry]:
        if base not in self._known:
            entries = txn_entries(self._segments, base, end=OFFSET_MAX)
            self._known[base] = [tuple(entry) for _, *entry in entries.tolist()]
        return self._known[base]


@dataclass(slots=True)
class _Ongoing:
    """An aborted transaction that begins before the cleaner's position, and ends later.

    `seen` is True once the cleaner has read a data batch of the transaction.
    """

    entry: AbortedEntry
    seen: bool = False


class CleanedTransactions:
    """Tracks the transactions that are open at the cleaner's position in the log.

    Batches must come in log order.
    """

    def __init__(self) -> None:
        self._waiting: list[tuple[int, AbortedEntry]] = []
        self._aborted: dict[int, _Ongoing] = {}
        self._committed: set[int] = set()
        self.index = b""  # entries for the new segment's index of aborted transactions

    def add(self, entries: Iterable[AbortedEntry]) -> None:
        """Add aborted transactions, before the cleaner comes to their first batch."""
        for entry in entries:
            heapq.heappush(self._waiting, (entry[1], entry))

    def _reach(self, offset: int) -> None:
        while self._waiting and self._waiting[0][0] <= offset:
            _, entry = heapq.heappop(self._waiting)
            self._aborted.setdefault(entry[0], _Ongoing(entry))

    def take_data(self, row: Any) -> bool:
        """Process a transactional data batch; return True if the transaction was aborted."""
        self._reach(int(row["last_offset"]))
        producer_id = int(row["producer_id"])
        ongoing = self._aborted.get(producer_id)
        if ongoing is None:
            self._committed.add(producer_id)
            return False
        ongoing.seen = True
        return True

    def take_control(self, row: Any, marker: Marker | None) -> bool:
        """Process a control batch; return True if the transaction has no data left in the log.

        Such a marker may be dropped after its delete horizon. `marker` is None if the batch
        contains no transaction marker.
        """
        self._reach(int(row["last_offset"]))
        if marker is None:
            return int(row["count"]) == 0  # emptied by an earlier cleaning, or a KRaft record
        if marker.type is ControlType.COMMIT:
            seen = marker.producer_id in self._committed
            self._committed.discard(marker.producer_id)
            return not seen
        ongoing = self._aborted.pop(marker.producer_id, None)
        if ongoing is None or not ongoing.seen:
            return True
        self.index += txn_entry(*ongoing.entry)
        return False

    def take_index(self) -> bytes:
        """Return the new entries for the transaction index of the segment that is written.

        These are the aborted transactions since the last call whose data precede their marker.
        """
        entries, self.index = self.index, b""
        return entries
