"""Decides which aborted data and markers the cleaner may drop (CleanedTransactionMetadata).

Data of aborted transactions go at once. A marker stays as long as any batch of its transaction
was met on the way; without one it gets a delete horizon, and goes when that has passed. Entries
of aborted transactions stay as long as their markers have data before them.
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
    """The aborted transactions of a partition, from the indexes of its segments.

    Each index is read once. Args of the constructor: `bases`: of all segments, ascending.
    """

    def __init__(
        self, segments: PartitionSegments, bases: Sequence[int], *, log_start: int
    ) -> None:
        self._segments, self._bases, self._log_start = segments, bases, log_start
        self._known: dict[int, list[AbortedEntry]] = {}

    def touching(self, base: int, end: int) -> list[AbortedEntry]:
        """Return those of segment `base` and the following ones that begin below `end`."""
        found: list[AbortedEntry] = []
        for following in self._bases:
            if following < base:
                continue
            for entry in self._of(following):
                _, first, marker, stable = entry
                if marker >= self._log_start and first < end:
                    found.append(entry)
                if stable >= end:
                    return found
        return found

    def _of(self, base: int) -> list[AbortedEntry]:
        if base not in self._known:
            entries = txn_entries(self._segments, base, end=OFFSET_MAX)
            self._known[base] = [tuple(entry) for _, *entry in entries.tolist()]
        return self._known[base]


@dataclass(slots=True)
class _Ongoing:
    """An aborted transaction between its first offset and its marker."""

    entry: AbortedEntry
    seen: bool = False


class CleanedTransactions:
    """The transactions that are open at the cleaner's place in the log; batches come in order."""

    def __init__(self) -> None:
        self._waiting: list[tuple[int, AbortedEntry]] = []
        self._aborted: dict[int, _Ongoing] = {}
        self._committed: set[int] = set()
        self.index = b""  # entries for the new segment's index of aborted transactions

    def add(self, entries: Iterable[AbortedEntry]) -> None:
        """Learn of aborted transactions before their batches come."""
        for entry in entries:
            heapq.heappush(self._waiting, (entry[1], entry))

    def _reach(self, offset: int) -> None:
        while self._waiting and self._waiting[0][0] <= offset:
            _, entry = heapq.heappop(self._waiting)
            self._aborted.setdefault(entry[0], _Ongoing(entry))

    def take_data(self, row: Any) -> bool:
        """Meet a transactional batch of data; tell whether its transaction was aborted."""
        self._reach(int(row["last_offset"]))
        producer_id = int(row["producer_id"])
        ongoing = self._aborted.get(producer_id)
        if ongoing is None:
            self._committed.add(producer_id)
            return False
        ongoing.seen = True
        return True

    def take_control(self, row: Any, marker: Marker | None) -> bool:
        """Meet a control batch; tell whether nothing of its transaction is left.

        `marker` None: it holds no marker of a transaction.
        """
        self._reach(int(row["last_offset"]))
        if marker is None:
            return int(row["count"]) == 0  # emptied before, or KRaft's
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
        """The entries since the last call."""
        entries, self.index = self.index, b""
        return entries
