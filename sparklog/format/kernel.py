# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
# cython: initializedcheck=False, annotation_typing=False
"""The loops over records and batches, in Cython's pure-Python mode: one source for both builds.

The compiled build (kernel.pxd has the C types) frames and parses about 100 million records per
second. Without a compiler, Python runs this file up to 60 times slower, with equal results. The
loops create no Python objects and release the GIL.

Callers pass C-contiguous memoryviews of the right item type ("B", "i", "l") and have checked the
lengths of columns. Everything read from a file is checked here, because a wrong length must never
become a wrong address. Layouts: see README.md.
"""

import logging

import cython

COMPILED: bool = bool(cython.compiled)
"""Whether this is the compiled build."""

View = memoryview

# Literals over 31 bits would be Python objects to Cython: these are C variables in the pxd.
MASK32 = 0xFFFFFFFF
MURMUR_SEED = 0x9747B28C

if not COMPILED:
    logging.getLogger("sparklog").warning(
        "sparklog runs its record kernel interpreted, up to 60 times slower than compiled. "
        "sparklog's wheels for Linux contain the compiled kernel, also in a zip for --py-files. To "
        "compile it here: install a C compiler, then `pip install --force-reinstall --no-deps "
        "--no-cache-dir --no-binary sparklog sparklog` (in a checkout: `python setup.py build_ext "
        "--inplace`)."
    )


# --- bytes -----------------------------------------------------------------------------------


def load32(buf: View, at: int) -> int:
    """Read a big-endian i32."""
    high: int = buf[at]
    high = high - ((high & 0x80) << 1)
    return high * 16777216 + (buf[at + 1] << 16) + (buf[at + 2] << 8) + buf[at + 3]


def load64(buf: View, at: int) -> int:
    """Read a big-endian i64."""
    low = load32(buf, at + 4) & MASK32
    return (load32(buf, at) << 32) + low


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


def is_set(bitmap: View, bit: int) -> int:
    """Return the bit with index `bit` of an Arrow validity bitmap; 1 means not null."""
    return (bitmap[bit >> 3] >> (bit & 7)) & 1


# --- batches ---------------------------------------------------------------------------------

POSITION, SIZE, BASE, LAST, BASE_TIME, MAX_TIME, PRODUCER = 0, 1, 2, 3, 4, 5, 6
PRODUCER_EPOCH, SEQUENCE, COUNT, ATTRIBUTES, LEADER_EPOCH, MAGIC, CRC = 7, 8, 9, 10, 11, 12, 13
COLUMNS = 14
"""Columns of the tables of batches (rows of i64)."""


def walk(buf: View, at: int, table: View, most: int) -> tuple[int, int, bool]:
    """Read the headers of up to `most` batches v2 in `buf`, from byte `at` on, into `table`.

    `table` gets a row per batch with the columns POSITION, SIZE, BASE and so on of this module;
    positions are in `buf`. CRCs are not checked.

    Returns:
        The number of batches, the position after the last batch, and whether the walk stopped there
        before the table was full: at the end, at a torn tail, another magic, or an invalid field.
        The caller determines which.
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
            table[rows, 3] = wrap(table[rows, 2] + load32(buf, at + 23))
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
    """Add `base_offset` to the offsets of all batches v2 in `buf`, and set their leader epoch.

    Both fields are outside of the CRC.

    Returns:
        The offset after the last batch. If `buf` has other bytes than complete batches v2, no batch
        is changed, and the result is -1 - the position of the first such byte.
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
    """Choose the batches that get an index entry. Source: LogSegment.append (Kafka 4.1).

    Args:
        sizes: The size of each batch in bytes.
        interval: The topic's index.interval.bytes.
        since: The number of bytes since the last entry, before these batches.
        picked: Gets the indexes of the chosen batches.

    Returns:
        The number of chosen batches, and the number of bytes since the last entry.
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
    """Compute Kafka's default partition of each key: toPositive(murmur2(key)) % partitions.

    Source: Utils.murmur2, BuiltInPartitioner.partitionForKey.

    Args:
        offsets: The offsets of the keys in `data`, as in Arrow.
        data: The bytes of the keys.
        valid: The validity bitmap.
        bit: The index of the first row's bit in the bitmap; -1 if there are no nulls.
        partitions: The number of partitions.
        out: Gets the partition of each row; -1 for a null key.
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


def group_rows(numbers: View, starts: View, order: View) -> None:
    """Sort rows by partition; rows of the same partition keep their order.

    Args:
        numbers: The partition of each row.
        starts: Has an element more than there are partitions. Gets the index in `order` where each
            partition begins, and the number of rows.
        order: Gets the rows: order[starts[p] : starts[p + 1]] are the rows of partition p.
    """
    row = 0
    rows = len(numbers)
    place = 0
    last = len(starts) - 1
    with cython.nogil:
        while place <= last:
            starts[place] = 0
            place += 1
        while row < rows:
            starts[numbers[row] + 1] += 1
            row += 1
        place = 1
        while place <= last:
            starts[place] += starts[place - 1]
            place += 1
        row = 0
        while row < rows:
            order[starts[numbers[row]]] = row
            starts[numbers[row]] += 1
            row += 1
        place = last
        while place > 0:  # each element is now the start of the next partition
            starts[place] = starts[place - 1]
            place -= 1
        starts[0] = 0


def murmur2(data: View, at: int, stop: int) -> int:
    """Return Kafka's 32-bit hash (unsigned) of data[at : stop]."""
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
