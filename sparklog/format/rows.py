"""Rows of several Arrow batches, or selected rows of them, as one sequence of records to encode."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from sparklog.format import columns
from sparklog.format.framer import Framer

RECORD_OVERHEAD: Final = 36
"""Maximum bytes of the varints and attributes of a record."""

_HEADER_OVERHEAD: Final = 10


class Rows:
    """The columns of an Arrow batch, converted for the compiled loops.

    Several partitions may share an object.
    """

    def __init__(
        self, batch: pa.RecordBatch, *, default_ms: int, append_time_ms: int | None = None
    ) -> None:
        """Check and convert the columns; see `encode`. Columns that fit are not copied.

        Raises:
            InvalidRequestError: A column is invalid.
        """
        columns.check_columns(batch.schema)
        rows = batch.num_rows
        given = {name: batch.column(name) for name in batch.schema.names}
        self.key = columns.to_binary(given.get("key", pa.nulls(rows, pa.binary())), "key")
        value = columns.to_binary(given["value"], "value")
        if append_time_ms is None:
            self._stamps = columns.to_millis(given.get("timestamp"), rows, default_ms)
        else:
            self._stamps = np.full(rows, append_time_ms, np.int64)
        self.count = rows
        self.size_bytes = columns.data_bytes(self.key) + columns.data_bytes(value)
        self._key, self._value = columns.views(self.key), columns.views(value)
        self._headers: Any = None
        headers = given.get("headers")
        if headers is not None and not pa.types.is_null(headers.type):
            self._headers = self._header_views(columns.to_headers(headers))

    def _header_views(self, lists: Any) -> Any:
        elements = lists.values
        names = columns.to_binary(elements.field("key"), "headers")
        offsets, valid, bit = columns.list_views(lists)
        name_offsets, name_data, _, _ = columns.views(names)
        content = columns.views(elements.field("value"))
        first, last = int(offsets[0]), int(offsets[-1])
        self.size_bytes += (last - first) * _HEADER_OVERHEAD
        if last > first:
            self.size_bytes += int(name_offsets[last]) - int(name_offsets[first])
            self.size_bytes += int(content[0][last]) - int(content[0][first])
        return (offsets, valid, bit), (name_offsets, name_data), content

    def framer(self, order: NDArray[np.int32] | None) -> Framer:
        """Return a framer, which encodes all rows, or the rows with the indexes in `order`."""
        framer = Framer(self._stamps.data, self._key)
        framer.set_value(*self._value)
        if self._headers is not None:
            framer.set_headers(*self._headers)
        if order is not None:
            framer.set_order(order.data)
        return framer


@dataclass(frozen=True, slots=True)
class Picked:
    """Rows of an Arrow batch that become records.

    Attributes:
        rows: All rows of the batch.
        order: The indexes of the selected rows in the order of the records; None for all rows.
    """

    rows: Rows
    order: NDArray[np.int32] | None = None

    @property
    def count(self) -> int:
        return self.rows.count if self.order is None else len(self.order)

    @property
    def size_bytes(self) -> int:
        """The approximate number of bytes of keys, values and headers of the selected rows."""
        return int(self.rows.size_bytes * self.count // max(self.rows.count, 1))


class Feed:
    """A sequence of inputs that are encoded as if they were one.

    A batch can start with rows of an input and end with rows of the next.
    """

    def __init__(self, inputs: Sequence[Picked]) -> None:
        self._framers = [picked.rows.framer(picked.order) for picked in inputs if picked.count]
        for framer in self._framers[:-1]:
            framer.more = True  # a batch may continue with the rows of the next input
        self._starts = np.cumsum([0, *(framer.rows for framer in self._framers)]).tolist()
        self._index = 0
        self.count = self._starts[-1]
        self.bound = sum(p.size_bytes + p.count * RECORD_OVERHEAD for p in inputs)

    @property
    def row(self) -> int:
        """The index of the next row to encode, among the rows of all inputs."""
        return int(self._starts[self._index] + self._now.row) if self._framers else 0

    @property
    def opened(self) -> int:
        """The position in the output of the batch that is still open; -1 without an open batch."""
        return int(self._now.opened) if self._framers else -1

    @property
    def done(self) -> bool:
        """Whether all rows are in complete batches."""
        return self.row == self.count and self.opened < 0

    @property
    def lowest(self) -> int:
        """The smallest timestamp in ms; the largest int64 without rows."""
        return min((framer.lowest for framer in self._framers), default=2**63 - 1)

    @property
    def _now(self) -> Framer:
        return self._framers[self._index]

    def frame(
        self, out: memoryview, at: int, batch_bytes: int, record_max: int, table: NDArray[np.int64]
    ) -> tuple[int, int, int]:
        """Encode up to len(table) batches; the arguments are those of `Framer.frame`.

        Rows are counted from the first input.

        Returns:
            The number of complete batches, the position after the encoded records, and the size of
            the record `row` if it exceeds `record_max` or does not fit into `out`, else 0.
        """
        count = 0
        while True:
            framer, rest = self._now, table[count:]
            made, at = framer.frame(out, at, batch_bytes, record_max, rest.data, len(rest))
            rest[:made, 0] += self._starts[self._index]
            count += made
            ended = framer.row == framer.rows and framer.more
            if framer.need or not ended:
                return count, at, framer.need
            held = framer.opened, framer.held, framer.base, framer.highest
            framer.rewind(framer.row)
            self._index += 1
            if held[0] >= 0:
                self._now.resume(*held)
            if count == len(table):
                return count, at, 0

    def moved(self, start: int) -> None:
        """Set `opened` to `start`, after the caller has moved the bytes of the open batch there."""
        framer = self._now
        framer.resume(start, framer.held, framer.base, framer.highest)

    def rewind(self, row: int) -> None:
        """Make `row` the next row to encode, without an open batch."""
        self._index = int(np.searchsorted(self._starts, row, "right")) - 1
        for framer in self._framers[self._index :]:
            framer.rewind(0)
        self._now.rewind(row - self._starts[self._index])
