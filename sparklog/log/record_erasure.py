"""Erase records window by window, in any home, and count the erased offsets and batches.

The home reads the windows and writes the output of `WindowEraser.filter`; `look` only counts.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from numpy.typing import NDArray

from sparklog.format.decoder import OFFSET_MAX
from sparklog.format.erasure import RecordEraser, RecordPredicate
from sparklog.log.batch_windows import Window
from sparklog.storage.erasure_report import ErasedOffsets


@dataclass(slots=True)
class Tally:
    """The number of records and batches that were read and selected, and the selected `offsets`."""

    bytes_read: int = 0
    records: int = 0
    batches: int = 0
    offsets: ErasedOffsets = field(default_factory=ErasedOffsets)


class WindowEraser:
    """Erases records in a segment's windows, in order. For a single pass; not thread-safe.

    `end`: records from this offset on stay, regardless of the predicate.
    """

    def __init__(self, predicate: RecordPredicate, *, end: int = OFFSET_MAX) -> None:
        self._eraser = RecordEraser(predicate, end=end)
        self.tally = Tally()

    def look(self, window: Window, path: str) -> None:
        """Count the selected records of a window without changing the window."""
        for _ in self._found(window, path):
            pass

    def filter(self, window: Window, path: str) -> Iterator[memoryview | bytes | bytearray]:
        """Yield a window's batches without the selected records, in pieces.

        Other batches do not change.

        Raises as `RecordEraser.find`.
        """
        view, table, at = memoryview(window.data), window.batches.table, 0
        for row, erased in self._found(window, path):
            start = int(table["position"][row]) - window.position
            if start > at:
                yield view[at:start]
            yield self._eraser.rewritten(
                view, table[row], erased, path=path, position=window.position
            )
            at = start + int(table["size"][row])
        end = window.batches.end - window.position
        if end > at:
            yield view[at:end]

    def _found(self, window: Window, path: str) -> Iterator[tuple[int, NDArray[Any]]]:
        batches = window.batches
        self.tally.bytes_read += batches.end - window.position
        for row, erased, offsets in self._eraser.find(
            window.data, batches.table, path=path, position=window.position
        ):
            self.tally.batches += 1
            self.tally.records += len(offsets)
            self.tally.offsets.add(offsets)
            yield row, erased
