"""Checks that segments hold the very batches that the ledger says were appended.

Each ledger record of an append names the offsets that a partition got, and since `crcs` exists a
checksum of the batches' CRC fields. So batches of another partition, or of another log, are found
although they are whole and have the right offsets. Records of older sparklogs have no checksum:
of those only the boundaries are compared, for an append begins and ends with a batch.
"""

from array import array
from collections.abc import Iterator, Mapping
from typing import Any, Final

import numpy as np
from crc32c import crc32c
from numpy.typing import NDArray

from sparklog.common import TopicPartition
from sparklog.format.batch import DELETE_HORIZON
from sparklog.format.scan import stored_crcs
from sparklog.log.batch_windows import Window
from sparklog.service.verification.findings import Findings, Severity

Table = NDArray[Any]
_NO_CRC: Final = -1


class Appends:
    """The appends to one partition, ascending: their offsets [first, end) and their checksums."""

    def __init__(self) -> None:
        self._rows = array("q")

    def add(self, first: int, end: int, crc: int | None) -> None:
        """Note an append. `crc` is None in records that have no checksum."""
        self._rows.extend((first, end, _NO_CRC if crc is None else crc))

    def columns(self) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
        """Return first offsets, end offsets and checksums; -1 where there is no checksum."""
        rows = np.array(self._rows, np.int64).reshape(-1, 3)
        return rows[:, 0], rows[:, 1], rows[:, 2]


class _Batches:
    """Batches that were read and belong to appends that are not complete yet."""

    def __init__(self) -> None:
        self.bases = self.ends = np.empty(0, np.int64)
        self._is_rewritten = np.empty(0, np.bool_)
        self._crcs = b""
        self._tables: list[Table] = []
        self._more_crcs: list[bytes] = []

    def add(self, window: Window, table: Table) -> None:
        fields = ["base_offset", "last_offset", "count", "attributes"]
        self._tables.append(table[fields].copy())
        self._more_crcs.append(stored_crcs(window.data, table, window.position))

    def settle(self) -> None:
        """Take in what was added, before anything is asked."""
        if not self._tables:
            return
        table = np.concatenate(self._tables)
        ends = table["last_offset"] + 1
        rewritten = table["count"] != ends - table["base_offset"]
        rewritten |= table["attributes"] & DELETE_HORIZON != 0
        self.bases = np.concatenate((self.bases, table["base_offset"]))
        self.ends = np.concatenate((self.ends, ends))
        self._is_rewritten = np.concatenate((self._is_rewritten, rewritten))
        self._crcs = b"".join((self._crcs, *self._more_crcs))
        self._tables, self._more_crcs = [], []

    def drop_below(self, offset: int) -> None:
        self.settle()
        count = int(np.searchsorted(self.bases, offset))
        self.bases, self.ends = self.bases[count:], self.ends[count:]
        self._is_rewritten, self._crcs = self._is_rewritten[count:], self._crcs[count * 4 :]

    def rows(self, first: int, end: int) -> slice | None:
        """Return the batches that are just [first, end); None unless they begin and end there."""
        low, high = (int(np.searchsorted(self.bases, offset)) for offset in (first, end))
        if low == high or self.bases[low] != first or self.ends[high - 1] != end:
            return None
        return slice(low, high)

    def crc(self, rows: slice) -> int:
        return int(crc32c(memoryview(self._crcs)[rows.start * 4 : rows.stop * 4]))

    def is_complete(self, rows: slice) -> bool:
        """Tell whether no offset is missing and no batch has lost records since the append."""
        follow = self.bases[rows][1:] == self.ends[rows][:-1]
        return bool(follow.all()) and not self._is_rewritten[rows].any()


class AppendCheck:
    """A `Consumer` over all segments of a partition.

    Compaction and erasure rewrite batches, which then have fewer records than offsets: what was
    appended as such a batch isn't compared.
    """

    def __init__(
        self,
        key: TopicPartition,
        appends: Mapping[TopicPartition, Appends],
        out: Findings,
        *,
        gaps_below: int,
    ) -> None:
        """Args: appends: those of all partitions, to name the one whose batches lie here."""
        self._key, self._appends, self._out = key, appends, out
        self._gaps_below = gaps_below
        self._firsts, self._ends, self._crcs = appends.get(key, Appends()).columns()
        self._next = 0  # the first append that isn't checked yet
        self._batches = _Batches()
        self._path = ""

    def begin(self, path: str, base: int) -> None:
        """Turn to the segment with this log, whose first offset is `base`."""
        if not self._path:
            self._skip_below(base)  # retention took the beginning
        self._path = path

    def is_known_before(self, offset: int) -> bool:
        """Tell whether the ledger has a checksum of the append that holds the offset before."""
        at = int(np.searchsorted(self._ends, offset))
        return at < len(self._ends) and self._crcs[at] != _NO_CRC and self._firsts[at] < offset

    def take(self, window: Window, table: Table) -> None:
        """Keep what is needed of the batches."""
        if len(self._firsts) > self._next and len(table):
            self._batches.add(window, table)

    def finish(self, end: int, *, damaged: bool) -> bool:
        """Check the appends that end at or below `end`, where the segment ends.

        Args: damaged: batches of the segment are missing, so nothing in it can be compared.
        Returns: whether all batches that could be compared are those that were appended.
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
        return self._batches.crc(rows) == crc

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
        """Return the partition whose append the batches from an offset on are."""
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
