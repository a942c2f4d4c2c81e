# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
# cython: initializedcheck=False, annotation_typing=False
"""Framing: encodes rows of Arrow columns as the records of batches v2. Compiled like kernel.py.

The framer writes the records, and `write_headers` the headers in front of them.
"""

import cython

if cython.compiled:
    from cython.cimports.libc.string import memcpy

View = memoryview
NOTHING = memoryview(b"")

HEADER = 61  # bytes of a batch's header


def copy(dst: View, at: int, src: View, start: int, size: int) -> None:
    """Copy `size` bytes: dst[at : at + size] = src[start : start + size]."""
    if cython.compiled:
        memcpy(cython.address(dst[at]), cython.address(src[start]), size)
    else:
        dst[at : at + size] = src[start : start + size]


def store(buf: View, at: int, value: int, width: int) -> None:
    """Write the low `width` bytes of `value` at byte `at`, big-endian."""
    while width > 0:
        width -= 1
        buf[at + width] = value & 0xFF
        value >>= 8


def wrap(value: int) -> int:
    """Return a number modulo 2^64 as a signed i64, as Java's long. In C the type does this."""
    if not cython.compiled:
        return ((value + (1 << 63)) & 0xFFFFFFFFFFFFFFFF) - (1 << 63)
    return value


def varint_size(value: int) -> int:
    """Return the size of the zig-zag varint of an i64."""
    rest = value ^ -1 if value < 0 else value  # zig-zag's bits, less the lowest
    size = 1
    while rest > 63:
        rest >>= 7
        size += 1
    return size


def put_varint(buf: View, at: int, value: int) -> int:
    """Write an i64 as a zig-zag varint at byte `at`; return the position after it."""
    rest = value ^ -1 if value < 0 else value
    low = 1 if value < 0 else 0
    if rest <= 63:
        buf[at] = rest * 2 + low
        return at + 1
    buf[at] = ((rest & 63) * 2 + low) | 0x80
    rest >>= 6
    at += 1
    while rest > 127:
        buf[at] = (rest & 127) | 128
        rest >>= 7
        at += 1
    buf[at] = rest
    return at + 1


def field_size(offsets: View, valid: View, bit: int, row: int) -> int:
    """Return the size of the value of a binary column in `row`; -1 for null.

    `bit` is the index of row 0 in the bitmap `valid`; -1 if the column has no nulls.
    """
    if bit >= 0 and not is_set(valid, bit + row):
        return -1
    return offsets[row + 1] - offsets[row]


def put_start(out: View, at: int, body: int, delta: int, step: int) -> int:
    """Write the first fields of a record; return the position after the fields.

    Args:
        out: The output.
        at: The position in `out`.
        body: The length of the record, without the length field.
        delta: The timestamp delta.
        step: The offset delta.
    """
    at = put_varint(out, at, body)
    out[at] = 0
    at = put_varint(out, at + 1, delta)
    return put_varint(out, at, step)


def is_set(bitmap: View, bit: int) -> int:
    """Return the bit with index `bit` of an Arrow validity bitmap; 1 means not null."""
    return (bitmap[bit >> 3] >> (bit & 7)) & 1


def write_headers(
    out: View,
    table: View,
    base_offset: int,
    attributes: int,
    producer_id: int,
    producer_epoch: int,
    base_sequence: int,
) -> None:
    """Write the headers, without CRCs, of the batches that `Framer.frame` has listed in `table`.

    The first column of `table` has the index of each batch's first row, which is added to
    `base_offset` and `base_sequence` (-1: no producer).
    """
    rows = len(table)
    row = at = 0
    sequence = -1
    with cython.nogil:
        while row < rows:
            at = table[row, 2]
            if base_sequence >= 0:
                sequence = (base_sequence + table[row, 0]) & 0x7FFFFFFF
            store(out, at, base_offset + table[row, 0], 8)
            store(out, at + 8, table[row, 3] - at - 12, 4)
            store(out, at + 12, 0, 4)  # the leader epoch, which the append sets
            out[at + 16] = 2
            store(out, at + 21, attributes, 2)
            store(out, at + 23, table[row, 1] - 1, 4)
            store(out, at + 27, table[row, 4], 8)
            store(out, at + 35, table[row, 5], 8)
            store(out, at + 43, producer_id, 8)
            store(out, at + 51, producer_epoch, 2)
            store(out, at + 53, sequence, 4)
            store(out, at + 57, table[row, 1], 4)
            row += 1


class Framer:
    """Encodes the rows of Arrow columns as the records of batches v2.

    Columns have Arrow's layout: offsets (rows + 1 of i32), data, validity bitmap, and the index of
    the first row's bit in the bitmap (-1: no nulls). If the rows continue in another framer (`more`
    is set), the last batch stays open, and the other framer resumes it.

    Attributes:
        rows: The number of rows.
        row: The next row to encode.
        need: The size of the record that ended the last call of `frame`, else 0.
        more: Whether another framer has more rows.
        opened: The position in the output of the batch that is still open; -1 without an open
            batch.
        held: The number of records in the open batch.
        base: The base timestamp of the open batch.
        highest: The largest timestamp of the open batch.
        lowest: The smallest timestamp (ms) of all rows so far; the largest int64 without rows.
    """

    def __init__(self, stamps: View, key: tuple[View, View, View, int]) -> None:
        self.stamps = stamps
        self.rows = len(stamps)
        self.row = 0
        self.need = 0
        self.key_offsets, self.key_data, self.key_valid, self.key_bit = key
        self.has_headers = self.has_order = self.more = 0
        self.opened, self.held, self.base, self.highest = -1, 0, 0, 0
        self.lowest = 0x7FFFFFFFFFFFFFFF
        self.value_bit = self.list_bit = self.content_bit = -1
        if not cython.compiled:  # C's memoryviews begin empty
            self.order = self.value_offsets = self.value_data = self.value_valid = NOTHING
            self.list_offsets = self.list_valid = self.name_offsets = self.name_data = NOTHING
            self.content_offsets = self.content_data = self.content_valid = NOTHING

    def set_order(self, order: View) -> None:
        """Encode only the rows with these indexes (i32), in this order."""
        self.order = order
        self.has_order = 1
        self.rows = len(order)

    def resume(self, opened: int, held: int, base: int, highest: int) -> None:
        """Continue the open batch of another framer, which encoded the rows before.

        The arguments are that framer's attributes with the same names.
        """
        self.opened, self.held, self.base, self.highest = opened, held, base, highest

    def rewind(self, row: int) -> None:
        """Make `row` the next row to encode, without an open batch."""
        self.row, self.opened = row, -1

    def set_value(self, offsets: View, data: View, valid: View, bit: int) -> None:
        self.value_offsets, self.value_data = offsets, data
        self.value_valid, self.value_bit = valid, bit

    def set_headers(
        self,
        lists: tuple[View, View, int],
        keys: tuple[View, View],
        values: tuple[View, View, View, int],
    ) -> None:
        """Set the column of record headers, a list of (key, value) pairs per row.

        Args:
            lists: Offsets, validity bitmap and first bit of the lists.
            keys: Offsets and data of all header keys.
            values: Offsets, data, validity bitmap and first bit of all header values.
        """
        self.has_headers = 1
        self.list_offsets, self.list_valid, self.list_bit = lists
        self.name_offsets, self.name_data = keys
        self.content_offsets, self.content_data, self.content_valid, self.content_bit = values

    def frame(
        self, out: View, at: int, batch_bytes: int, record_max: int, table: View, most: int
    ) -> tuple[int, int]:
        """Encode rows, from the attribute `row` on, as up to `most` batches in `out`.

        A batch is closed before its records would exceed `batch_bytes`, unless it is a single
        record. The first 61 bytes of each batch are left free for its header.

        The attribute `row` is then the next row. If a record exceeds `record_max` or does not fit
        into `out`, the call ends before it, and `need` is its size, else 0. In that case, and at
        the last row if `more` is set, the last batch stays open and is not in `table`: see `opened`
        and `held`.

        Args:
            out: The output.
            at: The position in `out` for the next batch, or after the records of an open batch.
            batch_bytes: The maximum number of bytes of the records of a batch.
            record_max: The maximum size of a record.
            table: Gets a row per complete batch: the index of the first row (negative if another
                framer encoded it), the number of records, the position of the batch in `out`, the
                position after it, the timestamp of the first record, and the largest timestamp.
            most: The maximum number of batches.

        Returns:
            The number of complete batches, and the position after all encoded records.
        """
        stamps = self.stamps
        key_offsets, key_valid = self.key_offsets, self.key_valid
        value_offsets, value_valid = self.value_offsets, self.value_valid
        key_bit, value_bit, rows, row = self.key_bit, self.value_bit, self.rows, self.row
        base, highest, lowest, opened = self.base, self.highest, self.lowest, self.opened
        room = len(out)
        count = need = first = start = end = klen = vlen = headers = body = size = full = 0
        delta = stamp = one = 0
        with cython.nogil:
            while count < most and (row < rows or (opened >= 0 and not self.more)):
                if opened >= 0:
                    start, first, end, opened = opened, row - self.held, at, -1
                else:
                    start, first, end = at, row, at + HEADER
                    base = highest = stamps[self.order[row] if self.has_order else row]
                full = 0
                while row < rows:
                    one = self.order[row] if self.has_order else row
                    stamp = stamps[one]
                    klen = field_size(key_offsets, key_valid, key_bit, one)
                    vlen = field_size(value_offsets, value_valid, value_bit, one)
                    headers = 0
                    delta = wrap(stamp - base)
                    body = 2 + varint_size(delta) + varint_size(row - first)
                    body += varint_size(klen) + varint_size(vlen)
                    body += (klen if klen > 0 else 0) + (vlen if vlen > 0 else 0)
                    if self.has_headers:
                        headers = self.count_headers(one)
                        body += self.size_headers(one, headers) - 1
                    size = varint_size(body) + body
                    if row > first and end + size - start - HEADER > batch_bytes:
                        full = 1
                        break
                    if size > record_max or end + size > room:
                        need = size
                        break
                    end = put_start(out, end, body, delta, row - first)
                    end = self.put_rest(out, end, one, klen, vlen, headers)
                    if stamp > highest:
                        highest = stamp
                    if stamp < lowest:
                        lowest = stamp
                    row += 1
                at = end
                if need or (self.more and not full):
                    opened = start
                    break
                table[count, 0], table[count, 1] = first, row - first
                table[count, 2], table[count, 3] = start, end
                table[count, 4], table[count, 5] = base, highest
                count += 1
        self.row, self.need, self.opened, self.held = row, need, opened, row - first
        self.base, self.highest, self.lowest = base, highest, lowest
        return count, at

    def put_rest(self, out: View, end: int, row: int, klen: int, vlen: int, headers: int) -> int:
        """Write key, value and headers of a row; return the position after the record.

        Args:
            out: The output.
            end: The position in `out`.
            row: The row.
            klen: The size of the key; -1 for null.
            vlen: The size of the value; -1 for null.
            headers: The number of headers.
        """
        end = put_varint(out, end, klen)
        if klen > 0:
            copy(out, end, self.key_data, self.key_offsets[row], klen)
            end += klen
        end = put_varint(out, end, vlen)
        if vlen > 0:
            copy(out, end, self.value_data, self.value_offsets[row], vlen)
            end += vlen
        if headers > 0:
            return self.put_headers(out, end, row, headers)
        out[end] = 0
        return end + 1

    def count_headers(self, row: int) -> int:
        if self.list_bit >= 0 and not is_set(self.list_valid, self.list_bit + row):
            return 0
        return self.list_offsets[row + 1] - self.list_offsets[row]

    def size_headers(self, row: int, headers: int) -> int:
        """Return the encoded size of a row's headers, including their number `headers`."""
        at = self.list_offsets[row]
        stop = at + headers
        size = varint_size(headers)
        length = 0
        while at < stop:
            length = self.name_offsets[at + 1] - self.name_offsets[at]
            size += varint_size(length) + length
            length = self.content_size(at)
            size += varint_size(length) + (length if length > 0 else 0)
            at += 1
        return size

    def content_size(self, at: int) -> int:
        """Return the size of the value of the header with index `at`; -1 for null.

        The index counts the headers of all rows.
        """
        return field_size(self.content_offsets, self.content_valid, self.content_bit, at)

    def put_headers(self, out: View, end: int, row: int, headers: int) -> int:
        """Write a row's headers, with their number `headers`; return the position after them."""
        at = self.list_offsets[row]
        stop = at + headers
        length = 0
        end = put_varint(out, end, headers)
        while at < stop:
            length = self.name_offsets[at + 1] - self.name_offsets[at]
            end = put_varint(out, end, length)
            if length > 0:
                copy(out, end, self.name_data, self.name_offsets[at], length)
                end += length
            length = self.content_size(at)
            end = put_varint(out, end, length)
            if length > 0:
                copy(out, end, self.content_data, self.content_offsets[at], length)
                end += length
            at += 1
        return end
