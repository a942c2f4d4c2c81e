# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
# cython: initializedcheck=False, annotation_typing=False
"""The loops over records and batches, in Cython's pure-Python mode: one source for both builds.

Compiled (kernel.pxd gives the C types) it frames and parses about 100 million records a second;
where no compiler is, Python runs this very file, some hundred times slower, with equal results.
No Python object is made per record, and the GIL is released in the loops.

Callers pass C-contiguous memoryviews of the right item type ("B", "i", "l") and have checked the
lengths of columns; everything that comes from a file is checked here, for a wrong length must
never become a wrong address. Layouts: see README.md.
"""

import logging

import cython

if cython.compiled:
    from cython.cimports.libc.string import memcpy

COMPILED: bool = bool(cython.compiled)
"""Whether this is the compiled build."""

View = memoryview

# Literals over 31 bits would be Python objects to Cython: these are C variables in the pxd.
MASK32 = 0xFFFFFFFF
MURMUR_SEED = 0x9747B28C
MS_MAX = (2**63 - 1) // 1000
MICROS_MAX = 2**63 - 1

if not COMPILED:
    logging.getLogger("sparklog").warning(
        "sparklog runs its record kernel interpreted, some hundred times slower than compiled. "
        "To compile it: install a C compiler, then `pip install --no-binary sparklog sparklog` "
        "(in a checkout: `python setup.py build_ext --inplace`)."
    )


# --- bytes -----------------------------------------------------------------------------------


def copy(dst: View, at: int, src: View, start: int, size: int) -> None:
    """dst[at : at + size] = src[start : start + size]."""
    if cython.compiled:
        memcpy(cython.address(dst[at]), cython.address(src[start]), size)
    else:
        dst[at : at + size] = src[start : start + size]


def load32(buf: View, at: int) -> int:
    """Big-endian i32."""
    high: int = buf[at]
    high = high - ((high & 0x80) << 1)
    return high * 16777216 + (buf[at + 1] << 16) + (buf[at + 2] << 8) + buf[at + 3]


def load64(buf: View, at: int) -> int:
    """Big-endian i64."""
    low = load32(buf, at + 4) & MASK32
    return (load32(buf, at) << 32) + low


def store(buf: View, at: int, value: int, width: int) -> None:
    """Write the low `width` bytes of `value`, big-endian."""
    while width > 0:
        width -= 1
        buf[at + width] = value & 0xFF
        value >>= 8


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


def varint_size(value: int) -> int:
    """Bytes of the zig-zag varint of an i64."""
    rest = value ^ -1 if value < 0 else value  # zig-zag's bits, less the lowest
    size = 1
    while rest > 63:
        rest >>= 7
        size += 1
    return size


def put_varint(buf: View, at: int, value: int) -> int:
    """Write the zig-zag varint of an i64 and return the place behind it."""
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


def is_set(bitmap: View, bit: int) -> int:
    """One bit of an Arrow validity bitmap."""
    return (bitmap[bit >> 3] >> (bit & 7)) & 1


# --- batches ---------------------------------------------------------------------------------

POSITION, SIZE, BASE, LAST, BASE_TIME, MAX_TIME, PRODUCER = 0, 1, 2, 3, 4, 5, 6
PRODUCER_EPOCH, SEQUENCE, COUNT, ATTRIBUTES, LEADER_EPOCH, MAGIC, CRC = 7, 8, 9, 10, 11, 12, 13
COLUMNS = 14
"""Columns of the tables of batches (rows of i64)."""


def walk(buf: View, at: int, table: View, most: int) -> tuple[int, int, bool]:
    """Read the headers of up to `most` batches v2 from byte `at` on into `table`.

    CRCs are not looked at. Returns: rows filled, the place behind the last, and whether the walk
    stopped there for something other than a full table: the end, a torn tail, another magic, a
    field that can't be right. The caller then looks closer.
    """
    rows = 0
    stopped = 0
    left = 0
    length = 0
    size = len(buf)
    with cython.nogil:
        while rows < most:
            left = size - at
            if left < 61:
                stopped = 1
                break
            length = load32(buf, at + 8)
            if length < 49 or length > left - 12 or buf[at + 16] != 2:
                stopped = 1
                break
            table[rows, 0] = at
            table[rows, 1] = length + 12
            table[rows, 2] = load64(buf, at)
            table[rows, 3] = table[rows, 2] + load32(buf, at + 23)
            table[rows, 4] = load64(buf, at + 27)
            table[rows, 5] = load64(buf, at + 35)
            table[rows, 6] = load64(buf, at + 43)
            table[rows, 7] = load32(buf, at + 51) >> 16
            table[rows, 8] = load32(buf, at + 53)
            table[rows, 9] = load32(buf, at + 57)
            table[rows, 10] = load32(buf, at + 21) >> 16
            table[rows, 11] = load32(buf, at + 12)
            table[rows, 12] = 2
            table[rows, 13] = load32(buf, at + 17) & MASK32
            if (
                table[rows, 2] < 0
                or (table[rows, 10] & 7) > 4
                or table[rows, 3] < table[rows, 2]
                or table[rows, 9] < 0
                or table[rows, 9] > table[rows, 3] - table[rows, 2] + 1
            ):
                stopped = 1
                break
            at += length + 12
            rows += 1
    return rows, at, stopped != 0


def renumber(buf: View, base_offset: int, leader_epoch: int) -> int:
    """Add `base_offset` to every batch's and set its leader epoch; both are outside the CRC.

    Returns: the offset behind the last batch, or -1 - place of the first byte that is no whole
        batch v2 (nothing was changed then).
    """
    at = 0
    last = -1
    length = 0
    size = len(buf)
    with cython.nogil:
        while at < size:
            if size - at < 61 or buf[at + 16] != 2:
                break
            length = load32(buf, at + 8)
            if length < 49 or length > size - at - 12:
                break
            at += length + 12
        if at == size:
            at = 0
            while at < size:
                last = load64(buf, at) + base_offset
                store(buf, at, last, 8)
                store(buf, at + 12, leader_epoch, 4)
                last += load32(buf, at + 23)
                at += load32(buf, at + 8) + 12
        else:
            last = -2 - at
    return last + 1


def pick_entries(sizes: View, interval: int, since: int, picked: View) -> tuple[int, int]:
    """Rows of the batches that get an index entry. Source: LogSegment.append (Kafka 4.1).

    Returns: how many were put into `picked`, and the bytes since the last entry.
    """
    count = 0
    row = 0
    rows = len(sizes)
    with cython.nogil:
        while row < rows:
            if since > interval:
                picked[count] = row
                count += 1
                since = 0
            since += sizes[row]
            row += 1
    return count, since


def hash_keys(offsets: View, data: View, valid: View, bit: int, partitions: int, out: View) -> None:
    """Kafka's default partition of each key: toPositive(murmur2(key)) % partitions; null: -1.

    `bit` is the place of the first row's bit in the bitmap `valid`, -1 if there are no nulls.
    Source: Utils.murmur2, BuiltInPartitioner.partitionForKey.
    """
    row = 0
    rows = len(out)
    with cython.nogil:
        while row < rows:
            if bit >= 0 and not is_set(valid, bit + row):
                out[row] = -1
            else:
                out[row] = (murmur2(data, offsets[row], offsets[row + 1]) & 0x7FFFFFFF) % partitions
            row += 1


def murmur2(data: View, at: int, stop: int) -> int:
    """Kafka's 32-bit hash (unsigned) of data[at : stop]."""
    left = stop - at
    h = MURMUR_SEED ^ left
    k = 0
    while left >= 4:
        k = data[at] | (data[at + 1] << 8) | (data[at + 2] << 16) | (data[at + 3] << 24)
        k = ((k & MASK32) * 0x5BD1E995) & MASK32
        k ^= k >> 24
        k = (k * 0x5BD1E995) & MASK32
        h = ((h * 0x5BD1E995) & MASK32) ^ k
        at += 4
        left -= 4
    if left == 3:
        h ^= data[at + 2] << 16
    if left >= 2:
        h ^= data[at + 1] << 8
    if left >= 1:
        h = ((h ^ data[at]) * 0x5BD1E995) & MASK32
    h ^= h >> 13
    h = (h * 0x5BD1E995) & MASK32
    return h ^ (h >> 15)


# --- records out -----------------------------------------------------------------------------

HEADER = 61  # bytes of a batch's header


class Framer:
    """Frames the rows of Arrow columns as the records of batches v2.

    A column is given as Arrow keeps it: offsets (rows + 1 of i32), data, validity bitmap and the
    place of the first row's bit in it (-1: no nulls).
    """

    def __init__(self, stamps: View, key: tuple[View, View, View, int]) -> None:
        self.stamps = stamps
        self.rows = len(stamps)
        self.row = 0
        self.need = 0
        self.key_offsets, self.key_data, self.key_valid, self.key_bit = key
        self.has_headers = 0

    def set_value(self, offsets: View, data: View, valid: View, bit: int) -> None:
        """The values."""
        self.value_offsets, self.value_data = offsets, data
        self.value_valid, self.value_bit = valid, bit

    def set_headers(
        self,
        lists: tuple[View, View, int],
        keys: tuple[View, View],
        values: tuple[View, View, View, int],
    ) -> None:
        """The headers: rows' lists (offsets, validity, bit), then their keys and values."""
        self.has_headers = 1
        self.list_offsets, self.list_valid, self.list_bit = lists
        self.name_offsets, self.name_data = keys
        self.content_offsets, self.content_data, self.content_valid, self.content_bit = values

    def frame(
        self, out: View, at: int, batch_bytes: int, record_max: int, table: View, most: int
    ) -> tuple[int, int]:
        """Frame from `row` on, up to `most` batches, into `out` from byte `at` on.

        A batch is closed before its records would pass `batch_bytes`; one record always fits.
        Before each batch's records 61 bytes are left for its header. A row of `table` is (first
        row, count, first byte, byte behind the last, first timestamp, largest timestamp).

        Returns: batches made, the byte behind them; `row` is then the next row. If it stopped for
            a record of more than `record_max` bytes or one that `out` has no room for, `need` is
            that record's size, `row` its batch's first row and `at_row` the record's row.
        """
        stamps = self.stamps
        key_offsets, key_data, key_valid = self.key_offsets, self.key_data, self.key_valid
        value_offsets, value_data = self.value_offsets, self.value_data
        value_valid = self.value_valid
        key_bit, value_bit, rows, row = self.key_bit, self.value_bit, self.rows, self.row
        room, count, need = len(out), 0, 0
        first = start = end = klen = vlen = headers = body = size = 0
        base = highest = delta = 0
        with cython.nogil:
            while count < most and row < rows:
                start, first, end = at, row, at + HEADER
                base = highest = stamps[row]
                while row < rows:
                    klen = vlen = -1
                    headers = 0
                    if key_bit < 0 or is_set(key_valid, key_bit + row):
                        klen = key_offsets[row + 1] - key_offsets[row]
                    if value_bit < 0 or is_set(value_valid, value_bit + row):
                        vlen = value_offsets[row + 1] - value_offsets[row]
                    delta = wrap(stamps[row] - base)
                    body = 2 + varint_size(delta) + varint_size(row - first)
                    body += varint_size(klen) + varint_size(vlen)
                    body += (klen if klen > 0 else 0) + (vlen if vlen > 0 else 0)
                    if self.has_headers:
                        headers = self.count_headers(row)
                        body += self.size_headers(row, headers) - 1
                    size = varint_size(body) + body
                    if size > record_max or end + size > room:
                        need = size
                        break
                    if row > first and end + size - start - HEADER > batch_bytes:
                        break
                    end = put_varint(out, end, body)
                    out[end] = 0
                    end = put_varint(out, end + 1, delta)
                    end = put_varint(out, end, row - first)
                    end = put_varint(out, end, klen)
                    if klen > 0:
                        copy(out, end, key_data, key_offsets[row], klen)
                        end += klen
                    end = put_varint(out, end, vlen)
                    if vlen > 0:
                        copy(out, end, value_data, value_offsets[row], vlen)
                        end += vlen
                    if headers > 0:
                        end = self.put_headers(out, end, row, headers)
                    else:
                        out[end] = 0
                        end += 1
                    if stamps[row] > highest:
                        highest = stamps[row]
                    row += 1
                if need:
                    self.at_row = row
                    row = first
                    break
                table[count, 0], table[count, 1] = first, row - first
                table[count, 2], table[count, 3] = start, end
                table[count, 4], table[count, 5] = base, highest
                at = end
                count += 1
        self.row, self.need = row, need
        return count, at

    def count_headers(self, row: int) -> int:
        """Headers of a row."""
        if self.list_bit >= 0 and not is_set(self.list_valid, self.list_bit + row):
            return 0
        return self.list_offsets[row + 1] - self.list_offsets[row]

    def size_headers(self, row: int, headers: int) -> int:
        """Bytes of the headers of a row, their count included."""
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
        """Bytes of a header's value; -1 for null."""
        if self.content_bit >= 0 and not is_set(self.content_valid, self.content_bit + at):
            return -1
        return self.content_offsets[at + 1] - self.content_offsets[at]

    def put_headers(self, out: View, end: int, row: int, headers: int) -> int:
        """Write the headers of a row and return the place behind them."""
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


# --- records in ------------------------------------------------------------------------------

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
        rows = table.shape[0]
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
            if take:
                if not self.take_header(src, name_at, name, at, content):
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
