"""Growing Arrow buffers, which the parser fills."""

from collections.abc import Sequence
from typing import Any, ClassVar, Final

import numpy as np
import pyarrow as pa
from numpy.typing import DTypeLike, NDArray

from sparklog.format.columns import HEADERS_TYPE
from sparklog.format.parser import Parser

_ROWS_MIN: Final = 64
_BYTES_MIN: Final = 1024


class _Buffer:
    """A growing array, which ends as an Arrow buffer.

    Growth copies the items to an array of at least double the size.
    """

    def __init__(self, dtype: DTypeLike) -> None:
        self._dtype: np.dtype[Any] = np.dtype(dtype)
        self._buffer: Any = None
        self.array: NDArray[Any] = np.empty(0, self._dtype)

    def reserve(self, items: int, used: int) -> bool:
        """Make space for `items` items in total, and keep the first `used` items.

        Returns True if the array was replaced by a larger array.
        """
        if items <= len(self.array):
            return False
        items = max(items, 2 * len(self.array))
        self._buffer = pa.allocate_buffer(items * self._dtype.itemsize)
        array = np.frombuffer(self._buffer, self._dtype)
        used = min(used, len(self.array))
        array[:used] = self.array[:used]
        self.array = array
        return True

    def grow_for(self, more: int, used: int) -> bool:
        """Grow to at least double the size if `more` items may not fit behind the `used` items.

        Returns True if the array was replaced by a larger array.
        """
        short = used + more > len(self.array)
        if short:
            self.reserve(max(2 * len(self.array), used + more // 4 + _BYTES_MIN), used)
        return short

    def take(self, used: int) -> Any:
        """Return the first `used` items as an Arrow buffer; copy if more than half is unused."""
        size = used * self._dtype.itemsize
        # A slice keeps the whole buffer in memory for as long as the caller keeps the column.
        if self._buffer is None or 2 * size < self._buffer.size:
            exact = pa.allocate_buffer(size)
            if size:
                np.frombuffer(exact, self._dtype)[:] = self.array[:used]
            return exact
        return self._buffer.slice(0, size)


class _Binary:
    """A growing binary column: offsets, data, and validity (a byte per row; 0 for null)."""

    def __init__(self) -> None:
        self.offsets, self.data, self.valid = (
            _Buffer(np.int32),
            _Buffer(np.uint8),
            _Buffer(np.uint8),
        )

    def reserve_rows(self, rows: int, used: int) -> bool:
        grew = self.offsets.reserve(rows + 1, used + 1)
        self.offsets.array[0] = 0  # the parser writes the end of each row, never the first start
        return self.valid.reserve(rows, used) or grew

    @property
    def views(self) -> tuple[memoryview, memoryview, memoryview]:
        return self.offsets.array.data, self.data.array.data, self.valid.array.data

    def take(self, kind: Any, rows: int, used: int) -> Any:
        valid = self.valid.array[:rows]
        nulls = rows - int(np.count_nonzero(valid))
        bitmap = pa.py_buffer(np.packbits(valid, bitorder="little")) if nulls else None
        buffers = [bitmap, self.offsets.take(rows + 1), self.data.take(used)]
        return pa.Array.from_buffers(kind, rows, buffers, nulls)


class RecordBuffers:
    """The growing columns of the records that a `Parser` reads; `parser` writes into them."""

    SCHEMA: ClassVar[Any] = pa.schema(
        [
            ("key", pa.binary()),
            ("value", pa.binary()),
            ("offset", pa.int64()),
            ("timestamp", pa.timestamp("us", tz="UTC")),
            ("timestampType", pa.int32()),
            ("headers", HEADERS_TYPE),
        ]
    )

    def __init__(self, names: Sequence[str]) -> None:
        self._names = list(names)
        self._schema = pa.schema([self.SCHEMA.field(name) for name in names])
        self._clear()

    def _clear(self) -> None:
        names = self._names
        self.parser = Parser(int("key" in names), int("value" in names), int("headers" in names))
        self._bare = True  # buffers are allocated on first use; a lookup needs them only once

    def _make(self) -> None:
        self._bare = False
        names = self._names
        self._offsets, self._stamps = _Buffer(np.int64), _Buffer(np.int64)
        self._kinds = _Buffer(np.int32)
        self._key = _Binary() if "key" in names else _UNUSED
        self._value = _Binary() if "value" in names else _UNUSED
        self._lists = _UNUSED_LISTS
        self._name = self._content = _UNUSED
        if "headers" in names:
            self._lists, self._name, self._content = _Buffer(np.int32), _Binary(), _Binary()
        self._rows_room = self._headers_room = 0

    @property
    def data_bytes(self) -> int:
        """The number of bytes of keys, values and headers so far."""
        parser = self.parser
        return parser.key_bytes + parser.value_bytes + parser.name_bytes + parser.content_bytes

    def reserve(self, rows: int, payload: int) -> None:
        """Make space for `rows` more records, which have about `payload` bytes together."""
        parser = self.parser
        self._size(
            parser.rows + rows, parser.key_bytes + payload // 4, parser.value_bytes + payload
        )

    def grow(self, rows: int, payload: int) -> None:
        """Make space for a batch of `rows` records and `payload` bytes that did not fit.

        One call may not suffice: the caller parses the batch again, and repeats the call until it
        fits.
        """
        if self._bare:
            self._size(0, 0, 0)
        parser = self.parser
        short = parser.rows + rows > self._rows_room
        if "key" in self._names:
            short |= self._key.data.grow_for(payload, parser.key_bytes)
        if "value" in self._names:
            short |= self._value.data.grow_for(payload, parser.value_bytes)
        if not short and "headers" in self._names:
            self._headers_room = max(2 * self._headers_room, _ROWS_MIN)
            self._name.data.grow_for(payload, parser.name_bytes)
            self._content.data.grow_for(payload, parser.content_bytes)
        self._size(parser.rows + rows, 0, 0)
        self._show()

    def _size(self, rows: int, key_bytes: int, value_bytes: int) -> None:
        """Grow the columns to at least these sizes.

        If any column has grown, all are passed to the parser again.
        """
        grew = self._bare
        if self._bare:
            self._make()
        parser, names = self.parser, self._names
        if rows > self._rows_room or not self._rows_room:
            grew = True
            self._rows_room = max(rows, 2 * self._rows_room, _ROWS_MIN)
            used = parser.rows
            for column in (self._offsets, self._stamps, self._kinds):
                column.reserve(self._rows_room, used)
            if "key" in names:
                self._key.reserve_rows(self._rows_room, used)
            if "value" in names:
                self._value.reserve_rows(self._rows_room, used)
            if "headers" in names:
                self._lists.reserve(self._rows_room + 1, used + 1)
                self._lists.array[0] = 0
        if "key" in names:
            grew |= self._key.data.reserve(key_bytes, parser.key_bytes)
        if "value" in names:
            grew |= self._value.data.reserve(value_bytes, parser.value_bytes)
        if "headers" in names:
            for pair in (self._name, self._content):
                grew |= pair.reserve_rows(self._headers_room, parser.headers)
        if grew:
            self._show()

    def _show(self) -> None:
        parser = self.parser
        parser.set_rows(self._offsets.array.data, self._stamps.array.data, self._kinds.array.data)
        parser.set_key(*self._key.views)
        parser.set_value(*self._value.views)
        offsets, data, _ = self._name.views
        parser.set_headers(self._lists.array.data, (offsets, data), self._content.views)

    def finish(self) -> pa.RecordBatch:
        """Return the columns as a record batch, and start again without records."""
        if self._bare:
            self._size(0, 0, 0)
        parser, rows = self.parser, self.parser.rows
        made: dict[str, Any] = {}
        for name in self._names:
            kind = self._schema.field(name).type
            if name == "key":
                made[name] = self._key.take(kind, rows, parser.key_bytes)
            elif name == "value":
                made[name] = self._value.take(kind, rows, parser.value_bytes)
            elif name == "headers":
                made[name] = self._take_headers(rows)
            else:
                numbers = {
                    "offset": self._offsets,
                    "timestamp": self._stamps,
                    "timestampType": self._kinds,
                }[name]
                made[name] = pa.Array.from_buffers(kind, rows, [None, numbers.take(rows)], 0)
        batch = pa.RecordBatch.from_arrays([made[n] for n in self._names], schema=self._schema)
        self._clear()
        return batch

    def _take_headers(self, rows: int) -> Any:
        parser = self.parser
        names = self._name
        names.valid.array[: parser.headers] = 1  # the format has no null header key
        keys = _utf8(names.take(pa.binary(), parser.headers, parser.name_bytes))
        contents = self._content.take(pa.binary(), parser.headers, parser.content_bytes)
        element = HEADERS_TYPE.value_type
        pairs = pa.StructArray.from_arrays([keys, contents], fields=list(element))
        return pa.Array.from_buffers(
            HEADERS_TYPE, rows, [None, self._lists.take(rows + 1)], 0, children=[pairs]
        )


_UNUSED: Final = _Binary()  # for columns that aren't requested: the parser never writes there
_UNUSED.reserve_rows(0, 0)
_UNUSED_LISTS: Final = _Buffer(np.int32)
_UNUSED_LISTS.reserve(1, 0)
_UNUSED_LISTS.array[0] = 0


def _utf8(names: Any) -> Any:
    """Return header keys as text; invalid UTF-8 becomes U+FFFD. Source: Utils.utf8."""
    text = names.view(pa.string())
    try:
        text.validate(full=True)
    except pa.ArrowInvalid:
        return pa.array([name.decode(errors="replace") for name in names.to_pylist()], pa.string())
    return text
