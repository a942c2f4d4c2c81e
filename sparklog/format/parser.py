# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
# cython: initializedcheck=False, annotation_typing=False
"""Parsing: decodes records of batches v2 to Arrow buffers. Compiled like kernel.py."""

import cython

if cython.compiled:
    from cython.cimports.libc.string import memcpy

View = memoryview
NOTHING = memoryview(b"")

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
    """Copy `size` bytes: dst[at : at + size] = src[start : start + size]."""
    if cython.compiled:
        memcpy(cython.address(dst[at]), cython.address(src[start]), size)
    else:
        dst[at : at + size] = src[start : start + size]


def wrap(value: int) -> int:
    """Return a number modulo 2^64 as a signed i64, as Java's long. In C the type does this."""
    if not cython.compiled:
        return ((value + (1 << 63)) & 0xFFFFFFFFFFFFFFFF) - (1 << 63)
    return value


def to_micros(ms: int) -> int:
    """Convert milliseconds to microseconds. Values out of range become the nearest valid value."""
    if ms > MS_MAX:
        return MICROS_MAX
    if ms < -MS_MAX:
        return -MICROS_MAX
    return ms * 1000


def varint_bytes(buf: View, at: int, stop: int, most: int) -> int:
    """Return the size of the varint at `at`; 0 for an invalid varint.

    An invalid varint has more than `most` bytes, or does not end before `stop`.
    """
    size = 0
    while size < most and at + size < stop:
        if buf[at + size] < 128:
            return size + 1
        size += 1
    return 0


def varint_value(buf: View, at: int, size: int) -> int:
    """Return the number that the zig-zag varint of `size` bytes at `at` encodes."""
    bits = 0
    while size > 0:
        size -= 1
        bits = (bits << 7) | (buf[at + size] & 127)
    if not cython.compiled:
        bits &= (1 << 64) - 1
    half = bits >> 1
    return -half - 1 if bits & 1 else half


class Parser:
    """Parses the records of batches v2 into buffers, which the caller sets, and grows after `FULL`.

    Attributes:
        rows: The number of records in the buffers.
        key_bytes: The bytes of their keys.
        value_bytes: The bytes of their values.
        headers: The number of their headers.
        name_bytes: The bytes of the keys of their headers.
        content_bytes: The bytes of the values of their headers.
        fault_at: The position of the record that was read last, for errors.
        refused: See `survey`.
        lowest: See `survey`.
        highest: See `survey`.
    """

    def __init__(self, want_key: int, want_value: int, want_headers: int) -> None:
        self.want_key, self.want_value, self.want_headers = want_key, want_value, want_headers
        self.rows = self.key_bytes = self.value_bytes = 0
        self.headers = self.name_bytes = self.content_bytes = 0
        self.fault_at = 0
        self.refused = self.lowest = self.highest = 0
        # The current record:
        self.delta = self.step = self.header_count = self.headers_at = self.stop_at = 0
        self.key_size = self.key_at = self.value_size = self.value_at = 0
        if not cython.compiled:  # C's memoryviews begin empty
            self.offsets = self.stamps = self.kinds = NOTHING
            self.key_offsets = self.key_data = self.key_valid = NOTHING
            self.value_offsets = self.value_data = self.value_valid = NOTHING
            self.list_offsets = self.name_offsets = self.name_data = NOTHING
            self.content_offsets = self.content_data = self.content_valid = NOTHING

    def set_rows(self, offsets: View, stamps: View, kinds: View) -> None:
        """Set the buffers of offset, timestamp (us) and timestamp type of each record."""
        self.offsets, self.stamps, self.kinds = offsets, stamps, kinds

    def set_key(self, offsets: View, data: View, valid: View) -> None:
        """Set the buffers of keys: offsets (rows + 1), data, and a byte per row (0 for null)."""
        self.key_offsets, self.key_data, self.key_valid = offsets, data, valid

    def set_value(self, offsets: View, data: View, valid: View) -> None:
        self.value_offsets, self.value_data, self.value_valid = offsets, data, valid

    def set_headers(
        self,
        lists: View,
        keys: tuple[View, View],
        values: tuple[View, View, View],
    ) -> None:
        """Set the buffers of record headers, a list of (key, value) pairs per record.

        Args:
            lists: Offsets of the lists (rows + 1).
            keys: Offsets and data of all header keys.
            values: Offsets, data, and a byte per header value (0 for null).
        """
        self.list_offsets = lists
        self.name_offsets, self.name_data = keys
        self.content_offsets, self.content_data, self.content_valid = values

    def parse_many(
        self, buf: View, table: View, row: int, shift: int, first: int, end: int
    ) -> tuple[int, int]:
        """Parse the records of uncompressed batches with offsets in [first, end).

        Args:
            buf: Bytes of a file that contain the batches.
            table: The batches, with the columns of `kernel.walk` and positions in the file.
            row: The first row of `table` to process.
            shift: The file position of buf[0].
            first: The first offset.
            end: The offset after the last offset.

        Returns:
            The next row to process, and a status: DONE, or why the call ended before that row.
            FULL: the buffers are too small; otherwise the batch is damaged.
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
        """Add the records of a batch with offsets in [first, end) to the buffers.

        Args:
            src: Uncompressed bytes that contain the records.
            at: The position of the first record in `src`.
            stop: The position after the last record.
            count: The number of records.
            base: The base offset of the batch.
            last: The last offset of the batch.
            base_time: The base timestamp of the batch.
            max_time: The largest timestamp of the batch.
            kind: The timestamp type; with 1 (LogAppendTime) every record's timestamp is `max_time`.
            first: The first offset.
            end: The offset after the last offset.

        Returns:
            DONE, or the reason why no record was added: FULL, or the damage of the record at
            `fault_at` in `src`.
        """
        rows, keys, values = self.rows, self.key_bytes, self.value_bytes
        headers, names, contents = self.headers, self.name_bytes, self.content_bytes
        done = take = 0
        previous = -1
        status = DONE
        with cython.nogil:
            if count < 0 or count > (stop - at) // 7:
                status = BAD_COUNT
            elif rows + count > len(self.offsets):
                status = FULL
            while status == DONE and done < count:
                self.fault_at = at
                status = self.read(src, at, stop)
                if status != DONE:
                    break
                if self.step <= previous or self.step > last - base:
                    status = BAD_OFFSET
                    break
                previous = self.step
                if base + self.step >= end:
                    break
                take = 1 if base + self.step >= first else 0
                at = self.take_headers(src, take)
                if at < 0:
                    status = -at
                    break
                if take:
                    if kind != 1:
                        max_time = wrap(base_time + self.delta)
                    status = self.keep(src, base + self.step, to_micros(max_time), kind)
                done += 1
            if status == DONE and done == count and at != stop:
                status = BAD_REST
        if status != DONE:
            self.rows, self.key_bytes, self.value_bytes = rows, keys, values
            self.headers, self.name_bytes, self.content_bytes = headers, names, contents
        return status

    def survey(
        self,
        src: View,
        at: int,
        stop: int,
        count: int,
        base_time: int,
        low: int,
        high: int,
        need_keys: int,
        bad: View,
    ) -> int:
        """Validate the records of a batch for an append, without storing any.

        Offsets must be 0, 1, 2, and so on. Records without a key if `need_keys`, and records with a
        timestamp outside of [low, high], are refused. The attribute `refused` then holds their
        number, and `lowest` and `highest` the range of the timestamps of all records.

        Args:
            src: Uncompressed bytes that contain the records.
            at: The position of the first record in `src`.
            stop: The position after the last record.
            count: The number of records.
            base_time: The base timestamp of the batch.
            low: The lowest timestamp (ms); -1 (no timestamp) is always valid.
            high: The highest timestamp (ms).
            need_keys: Whether each record needs a key.
            bad: Gets the index of each refused record, or -1 - index if the key is missing, as far
                as there is space.

        Returns:
            DONE, or the damage of the record at `fault_at`.
        """
        done = time = 0
        status = DONE
        self.refused = 0
        self.lowest = MICROS_MAX
        self.highest = -1 - MICROS_MAX
        with cython.nogil:
            if count < 0 or count > (stop - at) // 7:
                status = BAD_COUNT
            while status == DONE and done < count:
                self.fault_at = at
                status = self.read(src, at, stop)
                if status != DONE:
                    break
                if self.step != done:
                    status = BAD_OFFSET
                    break
                at = self.take_headers(src, 0)
                if at < 0:
                    status = -at
                    break
                time = wrap(base_time + self.delta)
                if time < self.lowest:
                    self.lowest = time
                if time > self.highest:
                    self.highest = time
                if need_keys and self.key_size < 0:
                    if self.refused < len(bad):
                        bad[self.refused] = -1 - done
                    self.refused += 1
                elif time != -1 and (time < low or time > high):
                    if self.refused < len(bad):
                        bad[self.refused] = done
                    self.refused += 1
                done += 1
            if status == DONE and at != stop:
                status = BAD_REST
        return status

    def read(self, src: View, at: int, stop: int) -> int:
        """Find the fields of the record at `at`, up to its headers; return DONE or the damage.

        The attributes then hold the timestamp delta (`delta`), the offset delta (`step`), key
        (`key_at`, `key_size`), value (`value_at`, `value_size`), headers (`headers_at`,
        `header_count`), and end of the record (`stop_at`). A size of -1 means null.
        """
        n = varint_bytes(src, at, stop, 5)
        size = varint_value(src, at, n)
        at += n
        if n == 0 or size < 6 or size > stop - at:
            return BAD_LENGTH
        stop = at + size
        at += 1  # attributes: none are in use
        n = varint_bytes(src, at, stop, 10)
        self.delta = varint_value(src, at, n)
        at += n
        m = varint_bytes(src, at, stop, 5)
        self.step = varint_value(src, at, m)
        at += m
        if n == 0 or m == 0:
            return BAD_FIELD
        n = varint_bytes(src, at, stop, 5)
        size = varint_value(src, at, n)
        at += n
        if n == 0 or size > stop - at:
            return BAD_SIZE
        self.key_size, self.key_at = size, at
        at += size if size > 0 else 0
        n = varint_bytes(src, at, stop, 5)
        size = varint_value(src, at, n)
        at += n
        if n == 0 or size > stop - at:
            return BAD_SIZE
        self.value_size, self.value_at = size, at
        at += size if size > 0 else 0
        n = varint_bytes(src, at, stop, 5)
        self.header_count = varint_value(src, at, n)
        at += n
        if n == 0 or self.header_count < 0 or self.header_count > (stop - at) // 2:
            return BAD_HEADER
        self.headers_at, self.stop_at = at, stop
        return DONE

    def keep(self, src: View, offset: int, micros: int, kind: int) -> int:
        """Append the record that `read` found to the buffers, after its headers (`take_headers`).

        Returns DONE, or FULL if a buffer is too small.

        Args:
            src: The bytes that contain the record.
            offset: The record's offset.
            micros: The record's timestamp (us).
            kind: The timestamp type.
        """
        row = self.rows
        size = self.key_size
        self.offsets[row] = offset
        self.stamps[row] = micros
        self.kinds[row] = kind
        if self.want_key:
            self.key_valid[row] = 1 if size >= 0 else 0
            if size > 0:
                if size > len(self.key_data) - self.key_bytes:
                    return FULL
                copy(self.key_data, self.key_bytes, src, self.key_at, size)
                self.key_bytes += size
            self.key_offsets[row + 1] = self.key_bytes
        if self.want_value:
            size = self.value_size
            self.value_valid[row] = 1 if size >= 0 else 0
            if size > 0:
                if size > len(self.value_data) - self.value_bytes:
                    return FULL
                copy(self.value_data, self.value_bytes, src, self.value_at, size)
                self.value_bytes += size
            self.value_offsets[row + 1] = self.value_bytes
        row += 1
        if self.want_headers:
            self.list_offsets[row] = self.headers
        self.rows = row
        return DONE

    def take_headers(self, src: View, take: int) -> int:
        """Check the headers of the record that `read` found; if `take` is set, also append them.

        Returns the position after the record; or, negated, FULL or the damage.
        """
        at, stop, left = self.headers_at, self.stop_at, self.header_count
        n = name = content = name_at = 0
        while left > 0:
            left -= 1
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
            if take and self.want_headers and not self.take_header(src, name_at, name, at, content):
                return -FULL
            if content > 0:
                at += content
        return at if at == stop else -BAD_REST

    def take_header(self, src: View, name_at: int, name: int, at: int, content: int) -> int:
        """Append a header to the buffers; return 0 if there is no space, else 1.

        Args:
            src: The bytes that contain the header.
            name_at: The position of the header's key.
            name: The size of the key.
            at: The position of the header's value.
            content: The size of the value; -1 for null.
        """
        row = self.headers
        if row >= len(self.content_valid) or name > len(self.name_data) - self.name_bytes:
            return 0
        if content > len(self.content_data) - self.content_bytes:
            return 0
        copy(self.name_data, self.name_bytes, src, name_at, name)
        self.name_bytes += name
        self.name_offsets[row + 1] = self.name_bytes
        self.content_valid[row] = 1 if content >= 0 else 0
        if content > 0:
            copy(self.content_data, self.content_bytes, src, at, content)
            self.content_bytes += content
        self.content_offsets[row + 1] = self.content_bytes
        self.headers = row + 1
        return 1
