"""Decides which aborted data and markers the cleaner may drop (CleanedTransactionMetadata).

Data of aborted transactions go at once. A marker stays as long as any batch of its transaction
was met on the way; without one it gets a delete horizon, and goes when that has passed. Entries
of aborted transactions stay as long as their markers have data before them.
Source: CleanedTransactionMetadata, LocalLog.collectAbortedTransactions (Kafka 4.1).
"""

import heapq
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sparklog.format.control import ControlType, Marker
from sparklog.format.index import txn_entry
from sparklog.format.names import TXNINDEX
from sparklog.fs import FileSystem
from sparklog.logdir.partition.indexes import txn_entries

NO_LIMIT = 2**63 - 1


@dataclass(slots=True)
class _Ongoing:
    """An aborted transaction between its first offset and its marker."""

    entry: tuple[int, int, int, int]  # producer id, first and last offset, last stable offset
    seen: bool = False


class AbortedEntries:
    """The aborted transactions of a partition, by segment; listed once."""

    def __init__(
        self, fs: FileSystem, directory: str, bases: Sequence[int], *, log_start: int
    ) -> None:
        self._fs, self._directory, self._bases = fs, directory, bases
        self._log_start = log_start
        self._any = any(name.endswith(TXNINDEX) for name in fs.listdir(directory))

    def __bool__(self) -> bool:
        return self._any

    def touching(self, base: int, end: int) -> list[tuple[int, int, int, int]]:
        """Those that begin below `end`, of segment `base` and what follows it."""
        found: list[tuple[int, int, int, int]] = []
        if not self._any:
            return found
        for following in self._bases:
            if following < base:
                continue
            for _, *entry in txn_entries(
                self._fs, self._directory, following, end=NO_LIMIT
            ).tolist():
                _, first, last, stable = entry
                if last >= self._log_start and first < end:
                    found.append((entry[0], first, last, stable))
                if stable >= end:
                    return found
        return found


class CleanedTransactions:
    """The transactions that are open at the cleaner's place in the log; batches come in order."""

    def __init__(self) -> None:
        self._waiting: list[tuple[int, tuple[int, int, int, int]]] = []
        self._aborted: dict[int, _Ongoing] = {}
        self._committed: set[int] = set()
        self.index = b""  # entries for the new segment's index of aborted transactions

    def add(self, entries: Sequence[tuple[int, int, int, int]]) -> None:
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
