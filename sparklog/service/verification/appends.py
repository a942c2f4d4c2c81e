"""Checks that segments contain the batches that the ledger recorded.

`sparklog.storage.committed_appends` compares an append with its batches.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sparklog.common import TopicPartition
from sparklog.log.batch_windows import Window
from sparklog.service.verification.findings import Findings, Severity
from sparklog.storage.committed_appends import (
    NO_CRC,
    AppendedBatches,
    Appends,
    not_committed,
    runs,
)

Table = NDArray[Any]


class AppendCheck:
    """Compares the batches of a partition with the appends that the ledger recorded.

    The check reports batches that belong to another partition or another log, and missing appends.
    The verification passes the batches of all segments to the check, in order.
    """

    def __init__(
        self,
        key: TopicPartition,
        appends: Mapping[TopicPartition, Appends],
        out: Findings,
        *,
        gaps_below: int,
    ) -> None:
        """Prepare the check of partition `key`.

        Args:
            appends: Appends to all partitions. They identify the owner of foreign batches.
            gaps_below: Batches below this offset may be missing because of compaction.
        """
        self._key, self._appends, self._out = key, appends, out
        self._gaps_below = gaps_below
        self._firsts, self._ends, self._crcs = appends.get(key, Appends()).columns()
        self._next = 0  # the first unchecked append
        self.confirmed = 0  # appends with a correct checksum
        self._batches = AppendedBatches()
        self._path = ""

    def begin(self, path: str, base: int) -> None:
        """Begin the segment with base offset `base`."""
        if not self._path:
            self._skip_below(base)  # retention deleted the appends below
        self._path = path

    def is_known_before(self, offset: int) -> bool:
        """Return whether the ledger has a checksum of the append that ends at or spans `offset`."""
        at = int(np.searchsorted(self._ends, offset))
        return at < len(self._ends) and self._crcs[at] != NO_CRC and self._firsts[at] < offset

    def take(self, window: Window, table: Table) -> None:
        """Record offsets and CRC fields of the batches."""
        if len(self._firsts) > self._next and len(table):
            self._batches.add(window.data, table, window.position)

    def finish(self, end: int, *, damaged: bool) -> bool:
        """Check the appends up to the segment's end.

        Args:
            end: The segment's end offset.
            damaged: Whether batches of the segment are missing. Its appends are then not compared.

        Returns:
            True if all compared appends are right.
        """
        if damaged:
            self._skip_below(end)
            return True
        self._batches.settle()
        stop = int(np.searchsorted(self._ends, end, side="right"))
        wrong = [n for n in range(self._next, stop) if not self._is_right(n)]
        for first, last in runs(wrong):
            self._report(first, last)
        if self._next < stop:
            self._next = stop
            self._batches.drop_below(int(self._ends[stop - 1]))
        return not wrong

    def _skip_below(self, offset: int) -> None:
        self._next = int(np.searchsorted(self._firsts, offset))
        self._batches.drop_below(offset)

    def _is_right(self, number: int) -> bool:
        first = int(self._firsts[number])
        is_committed = self._batches.are_committed(
            first,
            int(self._ends[number]),
            int(self._crcs[number]),
            may_miss=first < self._gaps_below,
        )
        self.confirmed += is_committed is True
        return is_committed is not False

    def _report(self, first: int, last: int) -> None:
        start, end = int(self._firsts[first]), int(self._ends[last])
        owner = self._batches.owner(self._key, self._appends, start)
        self._out.add(Severity.DAMAGE, self._path, not_committed(owner), first=start, end=end)
