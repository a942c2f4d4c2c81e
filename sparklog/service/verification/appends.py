"""Checks that segments hold the batches that the ledger recorded.

A ledger record of an append names the offsets of each partition and a checksum of the batches' CRC
fields. The check therefore finds valid batches of another partition or another log, even if they
have the right offsets. Records of older versions of sparklog have no checksum. For these records
only the boundaries are compared: an append starts and ends at a batch boundary.
"""

from array import array
from collections.abc import Iterator, Mapping
from typing import Any, Final

import numpy as np
from crc32c import crc32c
from numpy.typing import NDArray

from sparklog.common import TopicPartition
from sparklog.format.scan import is_rewritten, stored_crcs
from sparklog.log.batch_windows import Window
from sparklog.service.verification.findings import Findings, Severity

Table = NDArray[Any]
_NO_CRC: Final = -1


class Appends:
    """Appends to a partition in ascending order: offsets [first, end) and checksums."""

    def __init__(self) -> None:
        self._rows = array("q")

    def add(self, first: int, end: int, crc: int | None) -> None:
        """Add an append. `crc` is None if the ledger record has no checksum."""
        self._rows.extend((first, end, _NO_CRC if crc is None else crc))

    def columns(self) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
        """Return first offsets, end offsets and checksums (-1 for none)."""
        rows = np.array(self._rows, np.int64).reshape(-1, 3)
        return rows[:, 0], rows[:, 1], rows[:, 2]


class _Batches:
    """Batches of appends that are not complete yet."""

    def __init__(self) -> None:
        self.bases = self.ends = np.empty(0, np.int64)
        self._is_rewritten = np.empty(0, np.bool_)
        self._crcs = b""
        self._tables: list[Table] = []
        self._more_crcs: list[bytes] = []

    def add(self, window: Window, table: Table) -> None:
        self._tables.append(table[["base_offset", "last_offset", "count", "attributes"]].copy())
        self._more_crcs.append(stored_crcs(window.data, table, window.position))

    def settle(self) -> None:
        """Merge added batches. Call this before the other methods."""
        if not self._tables:
            return
        table = np.concatenate(self._tables)
        self.bases = np.concatenate((self.bases, table["base_offset"]))
        self.ends = np.concatenate((self.ends, table["last_offset"] + 1))
        self._is_rewritten = np.concatenate((self._is_rewritten, is_rewritten(table)))
        self._crcs = b"".join((self._crcs, *self._more_crcs))
        self._tables, self._more_crcs = [], []

    def drop_below(self, offset: int) -> None:
        self.settle()
        count = int(np.searchsorted(self.bases, offset))
        self.bases, self.ends = self.bases[count:], self.ends[count:]
        self._is_rewritten, self._crcs = self._is_rewritten[count:], self._crcs[count * 4 :]

    def rows(self, first: int, end: int) -> slice | None:
        """Return the batches of [first, end), or None if these offsets are no batch boundaries."""
        low, high = (int(np.searchsorted(self.bases, offset)) for offset in (first, end))
        if low == high or self.bases[low] != first or self.ends[high - 1] != end:
            return None
        return slice(low, high)

    def crc(self, rows: slice) -> int:
        return int(crc32c(memoryview(self._crcs)[rows.start * 4 : rows.stop * 4]))

    def is_complete(self, rows: slice) -> bool:
        """Return whether the batches cover all offsets and none was rewritten."""
        follow = self.bases[rows][1:] == self.ends[rows][:-1]
        return bool(follow.all()) and not self._is_rewritten[rows].any()


class AppendCheck:
    """A `Consumer` over all segments of a partition.

    Compaction and erasure rewrite batches, which then have fewer records than offsets. Appends with
    rewritten batches are not compared.
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
        self._next = 0  # the first append that isn't checked yet
        self.confirmed = 0  # appends whose checksum is right
        self._batches = _Batches()
        self._path = ""

    def begin(self, path: str, base: int) -> None:
        """Begin the segment with base offset `base`."""
        if not self._path:
            self._skip_below(base)  # retention took the beginning
        self._path = path

    def is_known_before(self, offset: int) -> bool:
        """Return whether the ledger has a checksum of the append that ends at or spans `offset`."""
        at = int(np.searchsorted(self._ends, offset))
        return at < len(self._ends) and self._crcs[at] != _NO_CRC and self._firsts[at] < offset

    def take(self, window: Window, table: Table) -> None:
        """Keep offsets and CRC fields of the batches."""
        if len(self._firsts) > self._next and len(table):
            self._batches.add(window, table)

    def finish(self, end: int, *, damaged: bool) -> bool:
        """Check the appends up to the segment's end.

        Args:
            end: The segment's end offset.
            damaged: Batches of the segment are missing, so it cannot be compared.
        Returns: whether all compared appends are right.
        """
        if damaged:
            self._skip_below(end)
            return True
        self._batches.settle()
        stop = int(np.searchsorted(self._ends, end, side="right"))
        wrong = [n for n in range(self._next, stop) if not self._is_right(n)]
        for first, last in _runs(wrong):
            self._report(first, last)
        if self._next < stop:
            self._next = stop
            self._batches.drop_below(int(self._ends[stop - 1]))
        return not wrong

    def _skip_below(self, offset: int) -> None:
        self._next = int(np.searchsorted(self._firsts, offset))
        self._batches.drop_below(offset)

    def _is_right(self, number: int) -> bool:
        first, crc = int(self._firsts[number]), int(self._crcs[number])
        rows = self._batches.rows(first, int(self._ends[number]))
        may_miss = first < self._gaps_below
        if rows is None:
            return may_miss
        if crc == _NO_CRC or not self._batches.is_complete(rows):
            return True
        is_same = self._batches.crc(rows) == crc
        self.confirmed += is_same
        return is_same

    def _report(self, first: int, last: int) -> None:
        start, end = int(self._firsts[first]), int(self._ends[last])
        owner = self._owner(start)
        advice = "restore the segment's files from a copy"
        if owner is not None:
            advice = (
                f"they are those of {owner}: if files of the two partitions were swapped, put them "
                f"back, else {advice}"
            )
        self._out.add(
            Severity.DAMAGE,
            self._path,
            f"the batches of these offsets are not those that were committed; {advice}",
            first=start,
            end=end,
        )

    def _owner(self, first: int) -> TopicPartition | None:
        """Return the partition to which the batches at an offset were appended."""
        for key, appends in self._appends.items():
            if key == self._key:
                continue
            firsts, ends, crcs = appends.columns()
            at = int(np.searchsorted(firsts, first))
            if at == len(firsts) or int(firsts[at]) != first or int(crcs[at]) == _NO_CRC:
                continue
            rows = self._batches.rows(first, int(ends[at]))
            if rows is not None and self._batches.crc(rows) == int(crcs[at]):
                return key
        return None


def _runs(numbers: list[int]) -> Iterator[tuple[int, int]]:
    """Yield (first, last) of each run of consecutive numbers."""
    begin = 0
    for at in range(1, len(numbers) + 1):
        if at == len(numbers) or numbers[at] != numbers[at - 1] + 1:
            yield numbers[begin], numbers[at - 1]
            begin = at
