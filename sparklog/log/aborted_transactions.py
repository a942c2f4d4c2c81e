"""Find the batches of aborted transactions, which readers with read_committed skip.

Aborted transactions are listed in the `.txnindex` file of the segment that contains their marker. A
producer's batches are skipped from the first offset of its transaction up to the ABORT marker.
Source: LocalLog.collectAbortedTransactions; the consumer's CompletedFetch (Kafka 4.1).
"""

import heapq
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sparklog.format.batch import CONTROL, TRANSACTIONAL
from sparklog.format.index import Entries, collect_aborted
from sparklog.log.index_entries import txn_entries
from sparklog.log.offset_lookup import Lookup

Table = NDArray[Any]


class AbortedTxn(NamedTuple):
    """An aborted transaction.

    Attributes:
        producer_id: The producer.
        first_offset: The offset of the first record.
        last_offset: The offset of the ABORT marker.
    """

    producer_id: int
    first_offset: int
    last_offset: int


class TransactionIndexes:
    """The `.txnindex` files of a partition, for one listing of its segments.

    Each file is read at most once. After a new listing a new object is needed.
    """

    def __init__(self, lookup: Lookup) -> None:
        self._lookup = lookup
        self._read: dict[int, Entries] = {}

    def aborted(self, start: int, end: int) -> list[AbortedTxn]:
        """Return the aborted transactions that overlap [start, end), ordered by their markers.

        Cost: a file lookup per segment, beginning with the segment that contains `start`.
        """
        aborted: list[AbortedTxn] = []
        base: int | None = self._lookup.floor(start)
        while base is not None:
            entries = self._entries(base)
            if len(entries):
                hits, complete = collect_aborted(entries, start, end)
                aborted += (AbortedTxn(*hit) for hit in hits)
                if complete:  # a last stable offset at or above `end`: later entries begin there
                    break
            base = self._lookup.following(base)
        return aborted

    def _entries(self, base: int) -> Entries:
        entries = self._read.get(base)
        if entries is None:
            # Markers past the end are needed as well: the data before them is below it.
            entries = self._read[base] = txn_entries(self._lookup.segments, base, end=2**63 - 1)
        return entries


class AbortedFilter:
    """Removes the batches of aborted transactions from a read.

    The batches must be passed in log order.
    """

    def __init__(self, aborted: list[AbortedTxn]) -> None:
        self._waiting = [(txn.first_offset, txn.producer_id, txn.last_offset) for txn in aborted]
        heapq.heapify(self._waiting)
        self._active: dict[int, int] = {}  # producer id -> its marker's offset

    def keep(self, table: Table, is_abort: Any) -> Table:
        """Return the rows of `table` that do not belong to an aborted transaction.

        Tables must come in log order. `is_abort(row)` reads a control batch and returns whether it
        aborts its transaction.
        """
        aborted = self.aborted(table, is_abort)
        return table[~aborted] if aborted.any() else table

    def aborted(self, table: Table, is_abort: Any) -> NDArray[np.bool_]:
        """Return a mask of the batches that are data of an aborted transaction; see `keep`.

        Transaction markers are not in the mask.
        """
        mask = np.zeros(len(table), np.bool_)
        marked = np.flatnonzero(table["attributes"] & TRANSACTIONAL)
        if not len(marked) or not (self._waiting or self._active):
            return mask
        for at in marked.tolist():
            row = table[at]
            while self._waiting and self._waiting[0][0] <= int(row["last_offset"]):
                _, aborted_id, last = heapq.heappop(self._waiting)
                # The cleaner may have removed the marker of an earlier transaction of this
                # producer, which is then still active: the later marker ends both.
                self._active[aborted_id] = max(last, self._active.get(aborted_id, -1))
            producer_id = int(row["producer_id"])
            if row["attributes"] & CONTROL:
                if is_abort(row):
                    self._active.pop(producer_id, None)
            elif self._active.get(producer_id, -1) > int(row["last_offset"]):
                # Compare with the marker's offset: the cleaner may have removed the marker itself.
                mask[at] = True
        return mask
