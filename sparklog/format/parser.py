# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
# cython: initializedcheck=False, annotation_typing=False
"""Parsing: records of batches v2 -> Arrow buffers. Written as kernel.py is; see there."""

import cython

if cython.compiled:
    from cython.cimports.libc.string import memcpy

View = memoryview

# Literals over 31 bits would be Python objects to Cython: these are C variables in the pxd.
MS_MAX = (2**63 - 1) // 1000
MICROS_MAX = 2**63 - 1

HEADER = 61  # bytes of a batch's header
DONE, FULL, BAD_COUNT, BAD_LENGTH, BAD_FIELD, BAD_OFFSET, BAD_SIZE, BAD_HEADER, BAD_REST = range(9)
PARSED, NO_ROOM = DONE, FULL  # C variables are not seen from Python
FAULTS = {
    BAD_COUNT: "more records are declared than its bytes can hold",
    BAD_LENGTH: "a record's length can't be right",
    BAD_FIELD: "a record's timestamp or offset is cut",
    BAD_OFFSET: "a record's offset goes back or past the batch's last",
    BAD_SIZE: "a key or value is longer than its record",
    BAD_HEADER: "a record's headers are damaged or have a null key",
    BAD_REST: "bytes are left over",
}


def copy(dst: View, at: int, src: View, start: int, size: int) -> None:
    """dst[at : at + size] = src[start : start + size]."""
    if cython.compiled:
        memcpy(cython.address(dst[at]), cython.address(src[start]), size)
    else:
        dst[at : at + size] = src[start : start + size]


def wrap(value: int) -> int:
    """Two's complement of 64 bits, as Java's long; C does it by itself."""
    if not cython.compiled:
        return ((value + (1 << 63)) & 0xFFFFFFFFFFFFFFFF) - (1 << 63)
    return value


def to_micros(ms: int) -> int:
    """Milliseconds to microseconds; what doesn't fit 64 bits becomes the nearest that does."""
    if ms > MS_MAX:
        return MICROS_MAX
    if ms < -MS_MAX:
        return -MICROS_MAX
    return ms * 1000


def varint_bytes(buf: View, at: int, stop: int, most: int) -> int:
    """How many bytes the varint at `at` has; 0 if it is cut or longer than `most`."""
    size = 0
    while size < most and at + size < stop:
        if buf[at + size] < 128:
            return size + 1
        size += 1
    return 0


def varint_value(buf: View, at: int, size: int) -> int:
    """The i64 in the `size` bytes at `at`."""
    bits = 0
    while size > 0:
        size -= 1
        bits = (bits << 7) | (buf[at + size] & 127)
    if not cython.compiled:
        bits &= (1 << 64) - 1
    half = bits >> 1
    return -half - 1 if bits & 1 else half


class Parser:
    """Parses the records of batches v2 into buffers that grow outside (`FULL` asks for it)."""

    def __init__(self, want_key: int, want_value: int, want_headers: int) -> None:
        self.want_key, self.want_value, self.want_headers = want_key, want_value, want_headers
        self.rows = self.key_bytes = self.value_bytes = 0
        self.headers = self.name_bytes = self.content_bytes = 0
        self.fault_at = 0

    def set_rows(self, offsets: View, stamps: View, kinds: View) -> None:
        """Offset, timestamp in microseconds and timestamp type of each record."""
        self.offsets, self.stamps, self.kinds = offsets, stamps, kinds

    def set_key(self, offsets: View, data: View, valid: View) -> None:
        """Keys: offsets (one more than rows), data, and one byte a row: 0 for null."""
        self.key_offsets, self.key_data, self.key_valid = offsets, data, valid

    def set_value(self, offsets: View, data: View, valid: View) -> None:
        """Values."""
        self.value_offsets, self.value_data, self.value_valid = offsets, data, valid

    def set_headers(
        self,
        lists: View,
        keys: tuple[View, View],
        values: tuple[View, View, View],
    ) -> None:
        """Headers: offsets of the rows' lists; then offsets and data of keys; and of values."""
        self.list_offsets = lists
        self.name_offsets, self.name_data = keys
        self.content_offsets, self.content_data, self.content_valid = values

    def parse_many(
        self, buf: View, table: View, row: int, shift: int, first: int, end: int
    ) -> tuple[int, int]:
        """Parse plain batches from `row` of `table` on (columns as of `walk`, at - shift in buf).

        Returns: the next row, and DONE or what stopped it there.
        """
        status = DONE
        rows = len(table)
        while row < rows:
            status = self.parse(
                buf,
                table[row, 0] - shift + HEADER,
                table[row, 0] - shift + table[row, 1],
                table[row, 9],
                table[row, 2],
                table[row, 3],
                table[row, 4],
                table[row, 5],
                1 if table[row, 10] & 8 else 0,
                first,
                end,
            )
            if status != DONE:
                break
            row += 1
        return row, status

    def parse(
        self,
        src: View,
        at: int,
        stop: int,
        count: int,
        base: int,
        last: int,
        base_time: int,
        max_time: int,
        kind: int,
        first: int,
        end: int,
    ) -> int:
        """Take the records of src[at : stop] whose offsets are in [first, end).

        `kind`: timestamp type; with 1 (log append time) every record's time is `max_time`.
        Returns: DONE, or why nothing was taken (`fault_at`: the record's place in `src`).
        """
        key_offsets, key_data, key_valid = self.key_offsets, self.key_data, self.key_valid
        value_offsets, value_data = self.value_offsets, self.value_data
        value_valid = self.value_valid
        offsets, stamps, kinds = self.offsets, self.stamps, self.kinds
        rows, keys, values = self.rows, self.key_bytes, self.value_bytes
        key_room, value_room = len(key_data), len(value_data)
        status = DONE
        done = size = stop_at = n = m = klen = vlen = key_at = value_at = headers = 0
        offset = base - 1
        delta = step = 0
        record = at
        self.new_headers = self.headers
        self.new_name_bytes, self.new_content_bytes = self.name_bytes, self.content_bytes
        with cython.nogil:
            if count < 0 or count > (stop - at) // 7:
                status = BAD_COUNT
            elif rows + count > len(offsets):
                status = FULL
            while status == DONE and done < count:
                record = at
                n = varint_bytes(src, at, stop, 5)
                size = varint_value(src, at, n)
                at += n
                if n == 0 or size < 6 or size > stop - at:
                    status = BAD_LENGTH
                    break
                stop_at = at + size
                n = varint_bytes(src, at + 1, stop_at, 10)
                delta = varint_value(src, at + 1, n)
                at += 1 + n
                m = varint_bytes(src, at, stop_at, 5)
                step = varint_value(src, at, m)
                at += m
                if n == 0 or m == 0:
                    status = BAD_FIELD
                    break
                if step <= offset - base or step > last - base:
                    status = BAD_OFFSET
                    break
                offset = base + step
                n = varint_bytes(src, at, stop_at, 5)
                klen = varint_value(src, at, n)
                key_at = at + n
                if n == 0 or klen > stop_at - key_at:
                    status = BAD_SIZE
                    break
                at = key_at + (klen if klen > 0 else 0)
                n = varint_bytes(src, at, stop_at, 5)
                vlen = varint_value(src, at, n)
                value_at = at + n
                if n == 0 or vlen > stop_at - value_at:
                    status = BAD_SIZE
                    break
                at = value_at + (vlen if vlen > 0 else 0)
                if offset >= end:
                    break
                n = varint_bytes(src, at, stop_at, 5)
                headers = varint_value(src, at, n)
                at += n
                if n == 0 or headers < 0 or headers > (stop_at - at) // 2:
                    status = BAD_HEADER
                    break
                if headers > 0:
                    at = self.take_headers(
                        src, at, stop_at, headers, self.want_headers and offset >= first
                    )
                    if at < 0:
                        status = -at
                        break
                if at != stop_at:
                    status = BAD_REST
                    break
                done += 1
                if offset < first:
                    continue
                offsets[rows] = offset
                stamps[rows] = to_micros(max_time if kind == 1 else wrap(base_time + delta))
                kinds[rows] = kind
                if self.want_key:
                    key_valid[rows] = 1 if klen >= 0 else 0
                    if klen > 0:
                        if klen > key_room - keys:
                            status = FULL
                            break
                        copy(key_data, keys, src, key_at, klen)
                        keys += klen
                    key_offsets[rows + 1] = keys
                if self.want_value:
                    value_valid[rows] = 1 if vlen >= 0 else 0
                    if vlen > 0:
                        if vlen > value_room - values:
                            status = FULL
                            break
                        copy(value_data, values, src, value_at, vlen)
                        values += vlen
                    value_offsets[rows + 1] = values
                rows += 1
                if self.want_headers:
                    self.list_offsets[rows] = self.new_headers
            if status == DONE and done == count and at != stop:
                status = BAD_REST
        self.fault_at = record
        if status == DONE:
            self.rows, self.key_bytes, self.value_bytes = rows, keys, values
            self.headers = self.new_headers
            self.name_bytes, self.content_bytes = self.new_name_bytes, self.new_content_bytes
        return status

    def take_headers(self, src: View, at: int, stop: int, headers: int, take: int) -> int:
        """Check `headers` headers, keep them if `take`; the place behind them, or -status."""
        n = name = content = name_at = 0
        while headers > 0:
            headers -= 1
            n = varint_bytes(src, at, stop, 5)
            name = varint_value(src, at, n)
            name_at = at + n
            if n == 0 or name < 0 or name > stop - name_at:
                return -BAD_HEADER
            at = name_at + name
            n = varint_bytes(src, at, stop, 5)
            content = varint_value(src, at, n)
            at += n
            if n == 0 or content > stop - at:
                return -BAD_HEADER
            if take and not self.take_header(src, name_at, name, at, content):
                return -FULL
            if content > 0:
                at += content
        return at

    def take_header(self, src: View, name_at: int, name: int, at: int, content: int) -> int:
        """Keep one header; 0 if there is no room."""
        row = self.new_headers
        if row >= len(self.content_valid) or name > len(self.name_data) - self.new_name_bytes:
            return 0
        if content > len(self.content_data) - self.new_content_bytes:
            return 0
        copy(self.name_data, self.new_name_bytes, src, name_at, name)
        self.new_name_bytes += name
        self.name_offsets[row + 1] = self.new_name_bytes
        self.content_valid[row] = 1 if content >= 0 else 0
        if content > 0:
            copy(self.content_data, self.new_content_bytes, src, at, content)
            self.new_content_bytes += content
        self.content_offsets[row + 1] = self.new_content_bytes
        self.new_headers = row + 1
        return 1
