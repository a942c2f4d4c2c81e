"""Appends that the ledger recorded, and their comparison with the batches of segments.

A ledger record of an append names the offsets of each partition and a checksum of the batches' CRC
fields. The comparison therefore finds valid batches of another partition or another log, even if
they have the right offsets. Records of older versions of sparklog have no checksum. For these
records only the boundaries are compared: an append starts and ends at a batch boundary.

Compaction and erasure rewrite batches, which then have fewer records than offsets. Appends with
rewritten batches are not compared.
"""

from array import array
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
from crc32c import crc32c
from numpy.typing import NDArray

from sparklog.common import TopicPartition
from sparklog.format.batch import Buffer
from sparklog.format.scan import is_rewritten, stored_crcs
from sparklog.storage.ledger_records import AppendRecord
from sparklog.storage.log_state import LogState

Table = NDArray[Any]
NO_CRC: Final = -1
_NOT_COMMITTED_LONG: Final = (
    "the batches of these offsets, which several segments contain, are not those that were "
    "committed; if files were swapped with files of another partition, put them back, else "
    "restore the files of these segments from a copy"
)


class Appends:
    """Appends to a partition in ascending order: offsets [first, end) and checksums."""

    def __init__(self) -> None:
        self._firsts, self._ends, self._crcs = array("q"), array("q"), array("q")

    def add(self, first: int, end: int, crc: int | None) -> None:
        """Add the append [first, end). `crc` is the record's checksum, if the record has one."""
        # An array that `columns` has exported as a buffer can't grow: add all appends before.
        self._firsts.append(first)
        self._ends.append(end)
        self._crcs.append(NO_CRC if crc is None else crc)

    def columns(self) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
        """Return first offsets, end offsets and checksums (-1 for none), without a copy."""
        firsts, ends, crcs = (
            np.frombuffer(column, np.int64) for column in (self._firsts, self._ends, self._crcs)
        )
        return firsts, ends, crcs


AppendsById = dict[tuple[str, int], Appends]
"""Appends by topic id and partition."""


def note_appends(known: AppendsById, state: LogState, record: AppendRecord) -> None:
    """Add the appends of a ledger record to `known`.

    `state` is the log's state after the record, which has the topics' ids.
    """
    crcs = record.crcs or {}
    for key, (first, end) in record.ends.items():
        topic = state.topics.get(key.topic)
        if topic is not None:
            appends = known.setdefault((topic.id, key.partition), Appends())
            appends.add(first, end, crcs.get(key))


class AppendedBatches:
    """Offsets and CRC fields of consecutive batches of a partition.

    Call `settle` after `add` and before any other method. Batches are referred to by slices of
    their row numbers.

    Attributes:
        bases: The base offset of each batch.
        ends: The offset after the last record of each batch.
    """

    def __init__(self) -> None:
        self.bases = self.ends = np.empty(0, np.int64)
        self._is_rewritten = np.empty(0, np.bool_)
        self._crcs = b""
        self._tables: list[Table] = []
        self._more_crcs: list[bytes] = []

    def add(self, data: Buffer, table: Table, position: int) -> None:
        """Add the batches of a table.

        Args:
            data: Bytes that contain the batches.
            table: The positions and headers of the batches.
            position: The position of data[0] in the file.
        """
        # Copied columns: the table would keep the whole block of the file in memory.
        self._tables.append(table[["base_offset", "last_offset", "count", "attributes"]].copy())
        self._more_crcs.append(stored_crcs(data, table, position))

    def settle(self) -> None:
        """Make the batches of earlier calls of `add` available to the other methods."""
        if not self._tables:
            return
        table = np.concatenate(self._tables)
        self.bases = np.concatenate((self.bases, table["base_offset"]))
        self.ends = np.concatenate((self.ends, table["last_offset"] + 1))
        self._is_rewritten = np.concatenate((self._is_rewritten, is_rewritten(table)))
        self._crcs = b"".join((self._crcs, *self._more_crcs))
        self._tables, self._more_crcs = [], []

    def drop_below(self, offset: int) -> None:
        """Drop the batches with a base offset below `offset`."""
        self.settle()
        count = int(np.searchsorted(self.bases, offset))
        self.bases, self.ends = self.bases[count:], self.ends[count:]
        self._is_rewritten, self._crcs = self._is_rewritten[count:], self._crcs[count * 4 :]

    def rows(self, first: int, end: int) -> slice | None:
        """Return the rows of the batches with offsets [first, end).

        Returns None if these offsets are not batch boundaries.
        """
        low, high = (int(np.searchsorted(self.bases, offset)) for offset in (first, end))
        if low == high or self.bases[low] != first or self.ends[high - 1] != end:
            return None
        return slice(low, high)

    def crc(self, rows: slice) -> int:
        """Return the checksum of the batches' CRC fields."""
        return int(crc32c(memoryview(self._crcs)[rows.start * 4 : rows.stop * 4]))

    def is_complete(self, rows: slice) -> bool:
        """Return True if the batches cover all offsets, and none of them was rewritten.

        Compaction and erasure rewrite batches.
        """
        follow = self.bases[rows][1:] == self.ends[rows][:-1]
        return bool(follow.all()) and not self._is_rewritten[rows].any()

    def are_committed(self, first: int, end: int, crc: int, *, may_miss: bool) -> bool | None:
        """Compare the batches of the append [first, end) with the ledger's checksum.

        Args:
            crc: The checksum, or `NO_CRC`.
            may_miss: Whether compaction may have removed batches of the append.

        Returns:
            Whether the batches are the committed batches, or None if unknown.
        """
        rows = self.rows(first, end)
        if rows is None:
            return None if may_miss else False
        if crc == NO_CRC or not self.is_complete(rows):
            return None
        return self.crc(rows) == crc

    def owner(
        self, key: TopicPartition, appends: Mapping[TopicPartition, Appends], first: int
    ) -> TopicPartition | None:
        """Return the partition other than `key` to which the batches at `first` were appended."""
        for other, known in appends.items():
            if other == key:
                continue
            firsts, ends, crcs = known.columns()
            at = int(np.searchsorted(firsts, first))
            # Without a checksum only the boundaries could be compared, and batches of several
            # partitions can have the same boundaries.
            if at == len(firsts) or int(firsts[at]) != first or int(crcs[at]) == NO_CRC:
                continue
            rows = self.rows(first, int(ends[at]))
            if rows is not None and self.crc(rows) == int(crcs[at]):
                return other
        return None


def not_committed(owner: TopicPartition | None) -> str:
    """Return the message for batches of partition `owner`, or of an unknown log."""
    advice = "restore the segment's files from a copy"
    if owner is not None:
        advice = (
            f"they belong to {owner}: if files of the two partitions were swapped, put them "
            f"back, else {advice}"
        )
    return f"the batches of these offsets are not those that were committed; {advice}"


def runs(numbers: list[int]) -> Iterator[tuple[int, int]]:
    """Yield (first, last) of each run of consecutive numbers."""
    begin = 0
    for at in range(1, len(numbers) + 1):
        if at == len(numbers) or numbers[at] != numbers[at - 1] + 1:
            yield numbers[begin], numbers[at - 1]
            begin = at


@dataclass(frozen=True, slots=True)
class WrongAppends:
    """Appends whose batches in the segment differ from the committed batches.

    Attributes:
        first: The first offset of the appends.
        end: The offset after their last record.
        message: What is wrong.
        is_long: Whether the append spans several segments, any of which may be wrong.
    """

    first: int
    end: int
    message: str
    is_long: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class CommittedAppends:
    """Compares single segments of a partition with the appends that the ledger recorded.

    Args:
        key: The partition.
        appends: Appends to this and other partitions, which identify the owner of foreign batches.
        gaps_below: Batches below this offset may be missing because of compaction.
        read: Returns the batches that the partition's files have in [first, end), or None if they
            cannot be read. The function is called for appends that continue in another segment.
    """

    key: TopicPartition
    appends: Mapping[TopicPartition, Appends]
    gaps_below: int
    read: Callable[[int, int], AppendedBatches | None]
    _long: dict[int, AppendedBatches | None] = field(default_factory=dict)

    def first_wrong(self, batches: AppendedBatches, base: int, end: int) -> WrongAppends | None:
        """Compare the batches of the segment [base, end) with the appends that the ledger recorded.

        Returns:
            The first appends in a row that are wrong; None if all are right.
        """
        batches.settle()
        firsts, ends, crcs = self.appends.get(self.key, Appends()).columns()
        # Both columns ascend, so the appends that touch the segment are adjacent.
        # `ends` are exclusive: an append that ends at `base` has no batch in the segment.
        low = int(np.searchsorted(ends, base, side="right"))
        high = int(np.searchsorted(firsts, end))
        wrong = [
            n
            for n in range(low, high)
            if not self._is_right(batches, base, end, int(firsts[n]), int(ends[n]), int(crcs[n]))
        ]
        if not wrong:
            return None
        inside = [n for n in wrong if firsts[n] >= base and ends[n] <= end]
        if not inside:
            first, last = int(firsts[wrong[0]]), int(ends[wrong[0]])
            return WrongAppends(first, last, _NOT_COMMITTED_LONG, is_long=True)
        first, last = next(runs(inside))
        start = int(firsts[first])
        owner = batches.owner(self.key, self.appends, start)
        return WrongAppends(start, int(ends[last]), not_committed(owner))

    def _is_right(
        self, batches: AppendedBatches, base: int, end: int, first: int, last: int, crc: int
    ) -> bool:
        """Return False if the part of an append in the segment [base, end) differs from the ledger.

        Args:
            batches: The batches of the segment.
            base: The base offset of the segment.
            end: The end of the segment.
            first: The first offset of the append.
            last: The offset after the append's last record.
            crc: The append's checksum in the ledger, or `NO_CRC`.
        """
        may_miss = first < self.gaps_below
        if first >= base and last <= end:
            return batches.are_committed(first, last, crc, may_miss=may_miss) is not False
        # The other segments of the append may have lost batches to compaction, and a record
        # without a checksum has nothing that could be compared with a part of the append.
        if crc == NO_CRC or may_miss:
            return True
        if first not in self._long:  # once, however many segments the append has
            self._long[first] = self.read(first, last)
        complete = self._long[first]
        # Unreadable parts of the append are reported where they are damaged, not here.
        if complete is None:
            return True
        part = max(first, base), min(last, end)
        is_committed = complete.are_committed(first, last, crc, may_miss=False)
        if is_committed is None:
            return True
        rows, expected = batches.rows(*part), complete.rows(*part)
        same = (
            rows is not None
            and expected is not None
            and batches.crc(rows) == complete.crc(expected)
        )
        return is_committed and same
