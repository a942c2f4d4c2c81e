"""Copying batches of a log to another log, unchanged and at the same offsets.

Complete batches keep their bytes: codec, producer ids and sequences, times, headers, transaction
markers. A batch across the end of the range is cut. Batches are re-encoded, with the same codec,
only if a log can't take them unchanged: batches of magic 0 and 1, and batches above the maximum
size of a segment. Missing offsets, and aborted transactions on request, become batches without
records, so that the copy has no holes. A log cleaner leaves the same.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from sparklog.config import TopicConfig
from sparklog.format.batch import CODEC_MASK, CONTROL, CRC_START, MAGIC, TRANSACTIONAL, encode_empty
from sparklog.format.batch_cutting import cut_batch, cut_header
from sparklog.format.compression import Codec
from sparklog.format.records import Decoder
from sparklog.format.scan import rebase, row_header, seal_all
from sparklog.format.sparse_records import encode_gap, encode_spaced
from sparklog.log.batch_windows import Window
from sparklog.log.partition_reader import StreamedBatches
from sparklog.storage.staging import Framing

Table = NDArray[Any]
_RECORD: Final = ("key", "value", "headers", "timestamp")
_NONE_MS: Final = 2**63 - 1


class _CopyMode(IntEnum):
    """How a batch is copied."""

    WHOLE = 0
    PLAIN = 1  # unchanged, but not as part of a transaction
    CUT = 2
    EMPTY = 3
    GAP = 4  # the marker of a transaction that isn't copied
    REENCODED = 5


@dataclass(frozen=True, slots=True)
class Copied:
    """Batches v2 that cover the offsets [start, end). Offsets in `data` are relative to `start`.

    Attributes:
        records: The number of records that readers see, without markers.
        producers: Whether a batch has a producer id.
    """

    start: int
    end: int
    data: bytearray
    records: int
    min_timestamp: int
    max_timestamp: int
    producers: bool


class BatchCopy:
    """Takes a partition's batches at offsets [first, end); `take` returns the copy so far.

    Args:
        at: The end of the copy so far, at most `first`.
        config: The config of the topic that gets the batches.
        transactions: Whether this topic can have transactions. If not, no record is part of a
            transaction.
    """

    def __init__(
        self, at: int, first: int, end: int, config: TopicConfig, *, transactions: bool
    ) -> None:
        self._start = self._at = at
        self._first, self._end = first, end
        self._config, self._transactions = config, transactions
        self._clear()

    def _clear(self) -> None:
        self._data = bytearray()
        self._records = 0
        self._low, self._high, self._producers = _NONE_MS, -1, False

    @property
    def nbytes(self) -> int:
        """The size of the batches that `take` would return."""
        return len(self._data)

    def add(self, raw: StreamedBatches, path: str) -> None:
        """Take the next batches of the log.

        Args:
            raw: The batches.
            path: The file of the batches, for messages.

        Raises:
            DataCorruptionError: A batch that is re-encoded contains damaged records.
            RecordTooLargeError: A single record of a batch that must be divided is too large.
        """
        window, table = raw.window, raw.window.batches.table
        modes = self._modes(table, raw.aborted)
        for at, stop in _runs(table, modes):
            mode, rows = _CopyMode(modes[at]), table[at:stop]
            if mode is _CopyMode.GAP:
                continue  # the next batch fills it
            first = max(int(rows["base_offset"][0]), self._first)
            if mode is not _CopyMode.REENCODED:
                self._fill(min(first, self._end))
            self._put(mode, rows, window, path)
            self._at = min(int(rows["last_offset"][-1]) + 1, self._end)

    def take(self, end: int | None = None) -> Copied:
        """Return the batches since the last call, and fill a gap up to offset `end`."""
        if end is not None:
            self._fill(end)
        data = self._data
        if data:
            rebase(data, -self._start, 0)
        copied = Copied(
            self._start, self._at, data, self._records, self._low, self._high, self._producers
        )
        self._start = self._at
        self._clear()
        return copied

    def _modes(self, table: Table, aborted: NDArray[np.bool_]) -> NDArray[np.int64]:
        modes = np.full(len(table), int(_CopyMode.WHOLE))
        if not self._transactions:
            marked = (table["attributes"] & TRANSACTIONAL) != 0
            control = (table["attributes"] & CONTROL) != 0
            modes[marked] = _CopyMode.PLAIN
            modes[control] = _CopyMode.GAP
        first = max(self._at, self._first)
        straddles = (table["base_offset"] < first) | (table["last_offset"] >= self._end)
        # The order matters: an aborted batch across the end of the range is emptied, not cut, so
        # that its records don't become visible in a log without transactions.
        modes[straddles] = _CopyMode.CUT
        modes[aborted] = _CopyMode.EMPTY
        # LogConfig: a batch must fit a segment; Kafka 4 writes no older magic.
        large = (table["size"] > self._config.roll_bytes) & (modes < _CopyMode.EMPTY)
        modes[(table["magic"] < MAGIC) | large] = _CopyMode.REENCODED
        return modes

    def _put(self, mode: _CopyMode, rows: Table, window: Window, path: str) -> None:
        if mode is _CopyMode.REENCODED:
            self._encode(rows, window, path)
            return
        control = (rows["attributes"] & CONTROL) != 0
        if mode is _CopyMode.EMPTY:
            self._data += b"".join(self._emptied(row) for row in rows)
        elif mode is _CopyMode.CUT:
            for row in rows:
                self._cut(row, window, path)
        else:
            self._copy(rows, window, plain=mode is _CopyMode.PLAIN)
            self._records += int(rows["count"][~control].sum())
        if len(rows["max_timestamp"][~control]):
            self._note(int(rows["base_timestamp"].min()), int(rows["max_timestamp"].max()))
        self._producers |= bool((rows["producer_id"] >= 0).any())

    def _note(self, low: int, high: int) -> None:
        self._low, self._high = min(self._low, low), max(self._high, high)

    def _fill(self, upto: int) -> None:
        if upto > self._at:
            self._data += encode_gap(self._at, upto)
            self._at = upto

    def _copy(self, rows: Table, window: Window, *, plain: bool) -> None:
        first = int(rows["position"][0]) - window.position
        stop = int(rows["position"][-1] + rows["size"][-1]) - window.position
        begin = len(self._data)
        self._data += memoryview(window.data)[first:stop]
        if plain:
            starts = (rows["position"] - window.position - first + begin).tolist()
            ends = [at + size for at, size in zip(starts, rows["size"].tolist(), strict=True)]
            self._make_plain(starts, ends)

    def _make_plain(self, starts: list[int], ends: list[int]) -> None:
        for start in starts:
            self._data[start + CRC_START + 1] &= ~TRANSACTIONAL & 0xFF
        with memoryview(self._data) as view:
            seal_all(view, starts, ends)

    def _emptied(self, row: Any) -> bytes:
        header = cut_header(row_header(row), self._at, self._end)
        whole = bytearray(encode_empty(header))
        if not self._transactions:
            whole[CRC_START + 1] &= ~TRANSACTIONAL & 0xFF
            seal_all(memoryview(whole), [0], [len(whole)])
        return bytes(whole)

    def _cut(self, row: Any, window: Window, path: str) -> None:
        begin = len(self._data)
        batch = cut_batch(
            memoryview(window.data), row, self._at, self._end, path=path, position=window.position
        )
        self._data += batch
        self._records += int.from_bytes(batch[57:61], "big")
        if not self._transactions and row["attributes"] & TRANSACTIONAL:
            self._make_plain([begin], [len(self._data)])

    def _encode(self, rows: Table, window: Window, path: str) -> None:
        """Re-encode batches of the same codec, as if their records were appended."""
        config, codec = self._config, Codec(int(rows["attributes"][0]) & CODEC_MASK)
        following = min(int(rows["last_offset"][-1]) + 1, self._end)
        for decoded in _decoded(rows, window, max(self._at, self._first), self._end, path):
            offsets = np.asarray(decoded.column("offset"), np.int64)
            end = int(offsets[-1]) + 1
            made = encode_spaced(
                decoded.select([name for name in _RECORD if name in decoded.schema.names]),
                offsets, start=self._at, end=end, codec=codec,
                batch_size=Framing().batch_size,
                max_message_bytes=min(config.max_message_bytes, config.segment_bytes),
            )  # fmt: skip
            self._data += made.data
            self._records += made.records
            self._note(made.min_timestamp, made.max_timestamp)
            self._at = end
        self._fill(following)


def _runs(table: Table, modes: NDArray[np.int64]) -> Iterator[tuple[int, int]]:
    """Yield (start, end) of adjacent batches that are copied in the same way.

    Adjacent batches that are re-encoded must also have the same codec.
    """
    follows = modes[1:] == modes[:-1]
    old = modes[1:] == _CopyMode.REENCODED
    codec = table["attributes"] & CODEC_MASK
    follows &= ~old | (codec[1:] == codec[:-1])
    # Batches are copied as a single range of bytes, so they must be adjacent in the file; at a gap
    # between offsets a filler batch has to come first. Re-encoding needs neither.
    follows &= old | (
        (table["base_offset"][1:] == table["last_offset"][:-1] + 1)
        & (table["position"][1:] == table["position"][:-1] + table["size"][:-1])
    )
    starts = [0, *(np.flatnonzero(~follows) + 1).tolist()] if len(table) else []
    yield from zip(starts, [*starts[1:], len(table)], strict=False)


def _decoded(rows: Table, window: Window, first: int, end: int, path: str) -> Iterator[Any]:
    decoder = Decoder(("offset", *_RECORD), max_bytes=8 << 20)
    while len(rows):
        done = decoder.add_many(
            window.data, rows, first=first, end=end, path=path, position=window.position
        )
        rows = rows[done:]
        decoded = decoder.finish()
        if decoded.num_rows:
            yield decoded
