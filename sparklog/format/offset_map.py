# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
# cython: initializedcheck=False, annotation_typing=False
"""The offset map of compaction: newest offsets of keys of batches v2. Compiled like kernel.py.

A slot has a 128-bit digest of a key and an offset, 24 bytes, as in Kafka's SkimpyOffsetMap. The
digest is SipHash-2-4-128 with a secret key, so that a client can't produce colliding keys. In an
unused slot, the field offset + 1 is 0.
"""

import cython

if cython.compiled:
    from cython.cimports.libc.string import memcpy
    from cython.cimports.sparklog.format.intrinsics import prefetch

View = memoryview
NOTHING = memoryview(b"")

# Literals over 31 bits would be Python objects to Cython: these are C variables in the pxd.
MASK64 = 0xFFFFFFFFFFFFFFFF
SIP0, SIP1 = 0x736F6D6570736575, 0x646F72616E646F6D
SIP2, SIP3 = 0x6C7967656E657261, 0x7465646279746573

HEADER = 61  # bytes of a batch's header
BLOCK = 32  # keys that are looked up together, so that their memory accesses overlap
PENDING = BLOCK
DONE, FULL, BAD_COUNT, BAD_LENGTH, BAD_FIELD, BAD_OFFSET, BAD_SIZE, GROW, BAD_REST = range(9)
FOLDED, MAP_FULL, MAP_SMALL = DONE, FULL, GROW  # C variables are not seen from Python


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


def plus(a: int, b: int) -> int:
    """Add two unsigned 64-bit numbers, without the carry."""
    if not cython.compiled:
        return (a + b) & MASK64
    return a + b


def turn(value: int, bits: int) -> int:
    """Rotate an unsigned 64-bit number to the left by `bits`."""
    if not cython.compiled:
        return ((value << bits) | (value >> (64 - bits))) & MASK64
    return (value << bits) | (value >> (64 - bits))


def load_word(buf: View, at: int, size: int) -> int:
    """Read up to 8 bytes, little-endian."""
    word = 0
    while size > 0:
        size -= 1
        word = (word << 8) | buf[at + size]
    return word


def load_whole(buf: View, at: int) -> int:
    """Read 8 bytes in the machine's byte order, which suffices for the digest."""
    word = 0
    if cython.compiled:
        memcpy(cython.address(word), cython.address(buf[at]), 8)
    else:
        word = int.from_bytes(buf[at : at + 8], "little")
    return word


class OffsetMapKernel:
    """The offset map: a hash table of key digests and newest offsets; and the current record.

    The table consists of `shards` regions of `region` rows each, of which the first `used` are in
    use. A row is (digest, digest, offset + 1). `key0` and `key1` are the secret of the digest.

    Attributes:
        entries: The number of keys in the map.
        limit: The maximum number of keys.
        room: The number of keys at which the table must grow; 0 if it can't.
        latest: The offset up to which all records were added; -1 for none.
        h1: The first half of the current digest.
        h2: The second half of the current digest.
        fault_at: The position of the record that was read last, for errors.
    """

    def __init__(self, key0: int, key1: int, limit: int) -> None:
        self.key0, self.key1 = key0, key1
        self.limit = limit  # maximum number of entries
        self.entries = 0
        self.latest = -1  # every record up to this offset has been folded
        self.room = 0  # entries at which the table must grow; 0 if it can't
        self.shards = self.region = self.used = 0
        self.h1 = self.h2 = 0
        self.fault_at = 0
        # The current record:
        self.delta = self.step = self.key_size = self.value_size = 0
        self.tail_at = self.key_at = self.stop_at = 0
        if not cython.compiled:  # C's memoryviews begin empty
            self.table = self.pending = NOTHING

    def set_table(
        self, table: View, pending: View, shards: int, region: int, used: int, room: int
    ) -> None:
        """Set an empty table; the class describes the form.

        Args:
            table: The rows.
            pending: PENDING more rows, for keys that are looked up together.
            shards: The number of regions.
            region: The number of rows per region.
            used: The number of rows in use per region.
            room: The number of keys at which the table must grow; 0 if it can't.
        """
        self.table, self.pending = table, pending
        self.entries = 0
        self.shards, self.region, self.used, self.room = shards, region, used, room

    def digest(self, src: View, at: int, size: int) -> None:
        """Compute the digest of src[at : at + size], which the attributes `h1` and `h2` then hold.

        The digest is SipHash-2-4-128. Source: Aumasson, Bernstein, SipHash: a fast short-input PRF
        (2012), and its reference code.
        """
        v0, v1 = self.key0 ^ SIP0, self.key1 ^ SIP1 ^ 0xEE
        v2, v3 = self.key0 ^ SIP2, self.key1 ^ SIP3
        step = word = 0
        whole = size >> 3
        while step < whole + 3:  # the words, the rest with the size, then twice to finish
            rounds = 2
            if step < whole:
                word = load_whole(src, at + 8 * step)
            elif step == whole:
                word = load_word(src, at + 8 * step, size & 7) | ((size & 0xFF) << 56)
            else:
                word = 0
                rounds = 4
                if step == whole + 1:
                    v2 ^= 0xEE
                else:
                    self.h1 = v0 ^ v1 ^ v2 ^ v3
                    v1 ^= 0xDD
            v3 ^= word
            while rounds > 0:
                rounds -= 1
                v0 = plus(v0, v1)
                v2 = plus(v2, v3)
                v1 = turn(v1, 13) ^ v0
                v3 = turn(v3, 16) ^ v2
                v0 = turn(v0, 32)
                v2 = plus(v2, v1)
                v0 = plus(v0, v3)
                v1 = turn(v1, 17) ^ v2
                v3 = turn(v3, 21) ^ v0
                v2 = turn(v2, 32)
            v0 ^= word
            step += 1
        self.h2 = v0 ^ v1 ^ v2 ^ v3

    def note(self, src: View, place: int, mapped: int) -> None:
        """Store the digest of the current record's key in row `place` of `pending`, with `mapped`.

        `mapped` is the record's offset + 1, or another value for `recall`. The key's slot is
        prefetched.
        """
        self.digest(src, self.key_at, self.key_size)
        self.pending[place, 0] = self.h1
        self.pending[place, 1] = self.h2
        self.pending[place, 2] = mapped
        if cython.compiled:
            row = ((self.h1 >> 32) * self.shards >> 32) * self.region
            row += (self.h2 >> 32) * self.used >> 32
            prefetch(cython.address(self.table[row, 2]))

    def recall(self, place: int) -> int:
        """Make the digest in row `place` of `pending` the current digest; return its `mapped`."""
        self.h1 = self.pending[place, 0]
        self.h2 = self.pending[place, 1]
        return self.pending[place, 2]

    def slot(self) -> int:
        """Return the table row of the current digest, or a free row; -1 if its region is full."""
        first = ((self.h1 >> 32) * self.shards >> 32) * self.region
        at = (self.h2 >> 32) * self.used >> 32
        left = self.used
        while left > 0:
            if self.table[first + at, 2] == 0 or (
                self.table[first + at, 0] == self.h1 and self.table[first + at, 1] == self.h2
            ):
                return first + at
            at += 1
            if at == self.used:
                at = 0
            left -= 1
        return -1

    def put(self, mapped: int) -> int:
        """Store `mapped`, an offset + 1, for the current digest; return 0 if there is no space."""
        row = self.slot()
        if row < 0:
            return 0
        if self.table[row, 2] == 0:
            self.table[row, 0] = self.h1
            self.table[row, 1] = self.h2
            self.entries += 1
        self.table[row, 2] = mapped
        return 1

    def refill(self, rows: View) -> None:
        """Insert all keys of a smaller table, whose rows are `rows`."""
        row = 0
        count = len(rows)
        with cython.nogil:
            while row < count:
                if rows[row, 2] != 0:
                    self.h1 = rows[row, 0]
                    self.h2 = rows[row, 1]
                    self.put(rows[row, 2])
                row += 1

    def get(self, key: View) -> int:
        """Return the newest offset of a key, or -1."""
        self.digest(key, 0, len(key))
        return self.newest()

    def newest(self) -> int:
        """Return the newest offset of the key with the current digest, or -1."""
        row = self.slot()
        newest = self.table[row, 2] if row >= 0 else 0
        return newest - 1

    def fold_many(
        self, buf: View, table: View, row: int, shift: int, first: int
    ) -> tuple[int, int]:
        """Add the keys of uncompressed batches to the map.

        Args:
            buf: Bytes of a file that contain the batches.
            table: The batches, with the columns of `kernel.walk` and positions in the file.
            row: The first row of `table` to process.
            shift: The file position of buf[0].
            first: Records below this offset are not added.

        Returns:
            The next row to process, and a status: DONE, or why the call ended before that row. FULL
            (for
            Python: MAP_FULL) means that the map is full, GROW (MAP_SMALL) that it needs a larger
                table; with another status the batch is damaged.
        """
        status = DONE
        rows = len(table)
        while row < rows:
            status = self.fold(
                buf,
                table[row, 0] - shift + HEADER,
                table[row, 0] - shift + table[row, 1],
                table[row, 9],
                table[row, 2],
                table[row, 3],
                first,
            )
            if status != DONE:
                break
            row += 1
        return row, status

    def fold(
        self, src: View, at: int, stop: int, count: int, base: int, last: int, first: int
    ) -> int:
        """Add the keys of the records of a batch to the map.

        The attribute `latest` is set to the last offset that was added. Source:
        Cleaner.buildOffsetMapForSegment.

        Args:
            src: Uncompressed bytes that contain the records.
            at: The position of the first record in `src`.
            stop: The position after the last record.
            count: The number of records.
            base: The base offset of the batch.
            last: The last offset of the batch.
            first: Records below this offset are not added.

        Returns:
            A status as of `fold_many`.
        """
        done = noted = place = mapped = 0
        previous = -1
        status = DONE
        with cython.nogil:
            if count < 0 or count > (stop - at) // 7:
                status = BAD_COUNT
            elif self.room > 0 and self.entries + count > self.room:
                status = GROW
            while status == DONE and done < count:
                noted = 0
                while noted < BLOCK and done < count:
                    self.fault_at = at
                    status = self.read(src, at, stop)
                    if status == DONE and (self.step <= previous or self.step > last - base):
                        status = BAD_OFFSET
                    if status != DONE:
                        break
                    previous = self.step
                    at = self.stop_at
                    if self.key_size >= 0 and base + self.step >= first:
                        self.note(src, noted, base + self.step + 1)
                        noted += 1
                    done += 1
                place = 0
                while place < noted:
                    mapped = self.recall(place)
                    if self.entries >= self.limit or not self.put(mapped):
                        status = FULL
                        break
                    self.latest = mapped - 1
                    place += 1
            if status == DONE and at != stop:
                status = BAD_REST
            if status == DONE and last >= first:
                self.latest = last
        return status

    def read(self, src: View, at: int, stop: int) -> int:
        """Find the fields of the record at `at`, up to the value; return DONE or the damage.

        The attributes then hold the timestamp delta (`delta`), the offset delta (`step`), the
        position after it (`tail_at`), key (`key_at`, `key_size`), size of the value (`value_size`),
        and end of the record (`stop_at`). A size of -1 means null.
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
        self.tail_at = at
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
        self.value_size = size
        self.stop_at = stop
        return DONE
