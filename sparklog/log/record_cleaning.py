"""Decide which records stay when batches are compacted, window by window, in any home.

The home reads the windows and writes the result. `dirty_ratio` computes the part to clean. Source:
Cleaner.buildOffsetMapForSegment, Cleaner.cleanInto (Kafka 4.1).
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from sparklog.format.batch import CONTROL, DELETE_HORIZON, TRANSACTIONAL
from sparklog.format.compaction import Filtered, OffsetMap, RecordFilter, Verdict
from sparklog.log.batch_windows import Window, marker_reader
from sparklog.log.cleaned_transactions import AbortedEntry, CleanedTransactions
from sparklog.log.cleaner_options import CleanerOptions

Table = NDArray[Any]
Windows = Iterable[tuple[Window, str]]
"""Windows of a segment, each with the path for messages."""
_MARKED: Final = TRANSACTIONAL | CONTROL


def with_aborted(
    windows: Windows,
    transactions: CleanedTransactions,
    aborted: Callable[[], Iterable[AbortedEntry]],
) -> Iterator[tuple[Window, str]]:
    """Yield a segment's windows, and add the aborted transactions to `transactions` before use.

    Args:
        windows: The segment's windows.
        transactions: The transactions that are open at the current position.
        aborted: Returns the aborted transactions that overlap the segment. The function is not
            called for a segment without transactions, so such a segment costs no index read.
    """
    is_loaded = False
    for window, path in windows:
        if not is_loaded and has_transactions(window.batches.table):
            transactions.add(aborted())
            is_loaded = True
        yield window, path


def transactional(table: Table) -> NDArray[np.bool_]:
    """Return a mask of the batches that belong to transactions or contain markers."""
    marked: NDArray[np.bool_] = (table["attributes"] & _MARKED) != 0
    return marked


def has_transactions(table: Table) -> bool:
    """Return whether any batch belongs to a transaction or contains a marker."""
    return bool(transactional(table).any())


def build_offset_map(
    options: CleanerOptions,
    segments: Iterable[tuple[int, Windows]],
    transactions: CleanedTransactions,
    first_dirty: int,
) -> OffsetMap:
    """Return the newest offset of each key in the dirty part, as far as memory allows.

    Args:
        options: The options of the cleaner, which limit the memory.
        segments: (end offset, windows) of the dirty segments, from `with_aborted`.
        transactions: The transactions that are open at the current position.
        first_dirty: The first dirty offset.

    Source: Cleaner.buildOffsetMap (Kafka 4.1).
    """
    offsets = OffsetMap(options.dedupe_buffer_bytes, options.load_factor)
    for end, windows in segments:
        for window, path in windows:
            if not fold_window(offsets, transactions, window, first_dirty, path):
                return offsets
        offsets.skip_to(end - 1)
    return offsets


def fold_window(
    offsets: OffsetMap, transactions: CleanedTransactions, window: Window, first: int, path: str
) -> bool:
    """Add the keys of a window's records to the offset map, without those of aborted transactions.

    Args:
        offsets: The offset map.
        transactions: The transactions that are open at the window.
        window: The batches.
        first: The first dirty offset. Records below it are not added.
        path: The segment file, for messages.

    Returns:
        False if the map is full.
    """
    table = window.batches.table
    read = marker_reader(window, path)
    start = 0
    for at in np.flatnonzero(transactional(table)).tolist():
        row = table[at]
        if row["attributes"] & CONTROL:
            transactions.take_control(row, read(row))
        elif not transactions.take_data(row):
            continue
        data = table[start:at]
        if not offsets.fold(window.data, data, first=first, path=path, position=window.position):
            return False
        # The map covers these offsets too, although aborted data and markers add no keys.
        if int(row["last_offset"]) >= first:
            offsets.skip_to(int(row["last_offset"]))
        start = at + 1
    return offsets.fold(
        window.data, table[start:], first=first, path=path, position=window.position
    )


class WindowFilter:
    """Copies windows of batches without the records that a newer record of their key supersedes.

    One object processes all segments of a cleaning.

    Args:
        offsets: The newest offset of each key.
        transactions: The transactions that are open at the current position.
        now_ms: The time of the cleaning.
        delete_retention_ms: How long tombstones stay: until their delete horizon.
        first_uncleanable: The batch before this offset stays, at least as an empty batch.
        producers: {id: (last data offset or -1, epoch)} of the active producers, of which the last
            batches stay in the same way.
    """

    def __init__(
        self,
        offsets: OffsetMap,
        transactions: CleanedTransactions,
        *,
        now_ms: int,
        delete_retention_ms: int,
        first_uncleanable: int,
        producers: Mapping[int, tuple[int, int]],
    ) -> None:
        self._transactions, self._now_ms = transactions, now_ms
        self._first_uncleanable, self._producers = first_uncleanable, producers
        self._filter = RecordFilter(offsets, horizon=now_ms + delete_retention_ms)
        last = [offset for offset, _ in producers.values() if offset >= 0]
        self._last_offsets = np.array(sorted(last), np.int64)
        self._without_data = {p: e for p, (offset, e) in producers.items() if offset < 0}

    @property
    def records(self) -> tuple[int, int]:
        """The number of records that were read so far, and the number of those that stay."""
        return self._filter.records

    @property
    def rewritten(self) -> int:
        """The number of batches that were changed so far."""
        return self._filter.rewritten

    def filter(self, window: Window, path: str) -> Iterator[Filtered]:
        """Yield the remaining bytes of a window's batches, in pieces.

        The caller must write each piece before it requests the next, which reuses the memory.
        """
        yield from self._filter.filter(
            window.data,
            window.batches.table,
            self._verdicts(window, path),
            path=path,
            position=window.position,
        )

    def _verdicts(self, window: Window, path: str) -> NDArray[np.uint8]:
        """Return what to do with each batch of a window: flags of `Verdict`.

        Source: Cleaner.cleanInto, its RecordFilter.
        """
        table, now = window.batches.table, self._now_ms
        marked = (table["attributes"] & DELETE_HORIZON) != 0
        # With this attribute, the field of the base timestamp contains the delete horizon.
        expired = marked & (table["base_timestamp"] <= now)
        stays = table["last_offset"] + 1 == self._first_uncleanable
        if self._producers:
            stays |= self._is_newest(table)
        verdicts = np.where(expired, 0, int(Verdict.TOMBSTONES))
        verdicts[stays] |= Verdict.EMPTY
        read = marker_reader(window, path)
        for at in np.flatnonzero(transactional(table)).tolist():
            row = table[at]
            if not row["attributes"] & CONTROL:
                if self._transactions.take_data(row):
                    verdicts[at] |= Verdict.DISCARD
                continue
            is_over = self._transactions.take_control(row, read(row))
            verdicts[at] |= Verdict.DISCARD if is_over and expired[at] else Verdict.RETAIN
            if is_over:
                verdicts[at] |= Verdict.MARK
        return verdicts.astype(np.uint8)

    def _is_newest(self, table: Table) -> NDArray[np.bool_]:
        """Return a mask of the batches with the last sequence, or epoch, of an active producer."""
        mask = (table["producer_id"] >= 0) & np.isin(table["last_offset"], self._last_offsets)
        for at in np.flatnonzero(mask).tolist():
            offset, _ = self._producers.get(int(table["producer_id"][at]), (-1, -1))
            mask[at] = offset == int(table["last_offset"][at])
        if self._without_data:
            for at in np.flatnonzero(table["attributes"] & CONTROL).tolist():
                epoch = self._without_data.get(int(table["producer_id"][at]))
                mask[at] |= epoch == int(table["producer_epoch"][at])
        return mask
