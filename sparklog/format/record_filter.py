# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
# cython: initializedcheck=False, annotation_typing=False
"""The filter of compaction: batches v2 without the records that an `OffsetMapKernel` supersedes.

Compiled like kernel.py. Remaining records are copied from behind their offset delta on; only their
first varints and the affected header fields are rewritten.
"""

from typing import Any

import cython

if cython.compiled:
    from cython.cimports.libc.string import memcpy

View = memoryview
NOTHING = memoryview(b"")

HEADER = 61  # bytes of a batch's header
DONE, FULL, BAD_COUNT, BAD_LENGTH, BAD_FIELD, BAD_OFFSET, BAD_SIZE, GROW, BAD_REST = range(9)
DISCARD, RETAIN, EMPTY, MARK, TOMBSTONES = 1, 2, 4, 8, 16  # as `compaction.Verdict`
STAYS, IS_NULL = 1, 2  # flags of a record
BLOCK = 32  # as offset_map.py's
DELETE_HORIZON = 0x40
HEADER_ONLY = 0x38  # attributes that stay in an emptied batch: append time, transactional, control


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


class RecordFilterKernel:
    """The loops of compaction: chooses the records of a batch that stay, and writes a new batch.

    `keys` is the offset map, an `OffsetMapKernel` of the same build.

    Attributes:
        kept: The number of records of the last batch that stay.
        tombstones: How many of these have a null value.
        base_time: The base timestamp of the last batch that was written.
        largest: The largest timestamp of that batch.
        records_read: The number of records in all batches so far.
        records_kept: How many of these stayed.
        seals: See `filter_many`.
    """

    def __init__(self, keys: Any) -> None:
        self.keys = keys
        self.kept = self.tombstones = 0  # records of the last filtered batch
        self.records_read = self.records_kept = 0
        self.base_time = self.largest = -1  # of the last written batch
        self.seals = 0  # batches that `filter_many` has rewritten and that need a CRC
        if not cython.compiled:  # C's memoryviews begin empty
            self.places = NOTHING

    def set_places(self, places: View) -> None:
        """Set the table in which `select` stores the records of a batch that stay.

        A row is: position after the record's offset delta, position after the record, timestamp
        delta, offset delta, flags. There must be a row per record of the largest batch.
        """
        self.places = places

    def select(
        self, src: View, at: int, stop: int, count: int, base: int, last: int, verdict: int
    ) -> int:
        """Find the records of a batch that stay.

        The table of `set_places` then has a row per record that stays, and the attributes `kept`
        and `tombstones` hold the numbers of these records, and of those with a null value.

        Args:
            src: Uncompressed bytes that contain the records.
            at: The position of the first record in `src`.
            stop: The position after the last record.
            count: The number of records.
            base: The base offset of the batch.
            last: The last offset of the batch.
            verdict: The flags of `Verdict` for the batch.

        Returns:
            DONE, or the kind of damage in the batch.
        """
        done = kept = tombstones = read = place = first = known = 0
        previous = -1
        status = DONE
        if verdict & DISCARD:
            count = 0
            stop = at
        elif count < 0 or count > (stop - at) // 7:
            status = BAD_COUNT
        while status == DONE and done < count:
            read = kept  # a block's records are stored behind the remaining records so far
            while read < kept + BLOCK and done < count:
                self.keys.fault_at = at
                status = self.keys.read(src, at, stop)
                if status == DONE and (self.keys.step <= previous or self.keys.step > last - base):
                    status = BAD_OFFSET
                if status != DONE:
                    break
                previous = self.keys.step
                at = self.keys.stop_at
                done += 1
                known = STAYS
                if not (verdict & RETAIN or base + self.keys.step > self.keys.latest):
                    if self.keys.key_size < 0:
                        continue
                    if self.keys.value_size < 0 and not verdict & TOMBSTONES:
                        continue
                    self.keys.note(src, read - kept, 0)
                    known = 0
                self.places[read, 0] = self.keys.tail_at
                self.places[read, 1] = self.keys.stop_at
                self.places[read, 2] = self.keys.delta
                self.places[read, 3] = self.keys.step
                self.places[read, 4] = known | (IS_NULL if self.keys.value_size < 0 else 0)
                read += 1
            place = first = kept
            while place < read:
                known = self.places[place, 4]
                if not known & STAYS:
                    self.keys.recall(place - first)
                    if self.keys.newest() <= base + self.places[place, 3]:
                        known |= STAYS
                if known & STAYS:
                    self.places[kept, 0] = self.places[place, 0]
                    self.places[kept, 1] = self.places[place, 1]
                    self.places[kept, 2] = self.places[place, 2]
                    self.places[kept, 3] = self.places[place, 3]
                    kept += 1
                    tombstones += 1 if known & IS_NULL else 0
                place += 1
        if status == DONE and at != stop:
            status = BAD_REST
        self.kept, self.tombstones = kept, tombstones
        return status

    def write(
        self,
        src: View,
        out: View,
        at: int,
        base_time: int,
        kind: int,
        max_time: int,
        new_base: int,
        keep_base: int,
    ) -> int:
        """Write the records that `select` has found to `out`; return the position after them.

        The attributes `base_time` and `largest` then hold the base timestamp and the largest
        timestamp for the header of the new batch.

        Args:
            src: The uncompressed bytes that were passed to `select`.
            out: The output.
            at: The position in `out`.
            base_time: The base timestamp of the old batch.
            kind: The timestamp type; with 1 (LogAppendTime) every record has the timestamp
                `max_time`.
            max_time: The largest timestamp of the old batch.
            new_base: The base timestamp of the new batch, for example its delete horizon.
            keep_base: Whether to use `new_base`. Otherwise the base timestamp is the first record's
                timestamp.

        Source: MemoryRecords.buildRetainedRecordsInto.
        """
        row = 0
        stamp = 0
        delta = 0
        tail = 0
        self.largest = -1
        while row < self.kept:
            stamp = max_time if kind == 1 else wrap(base_time + self.places[row, 2])
            if row == 0:
                self.base_time = new_base if keep_base else stamp
            if stamp > self.largest:
                self.largest = stamp
            delta = wrap(stamp - self.base_time)
            tail = self.places[row, 1] - self.places[row, 0]
            at = put_varint(
                out, at, 1 + varint_size(delta) + varint_size(self.places[row, 3]) + tail
            )
            out[at] = 0
            at = put_varint(out, at + 1, delta)
            at = put_varint(out, at, self.places[row, 3])
            copy(out, at, src, self.places[row, 0], tail)
            at += tail
            row += 1
        return at

    def filter_many(
        self,
        buf: View,
        table: View,
        verdicts: View,
        row: int,
        shift: int,
        out: View,
        at: int,
        horizon: int,
        sealed: View,
    ) -> tuple[int, int, int]:
        """Copy uncompressed batches to `out`, without the records that a newer record supersedes.

        Batches that have changed get no CRC. The attribute `seals` then holds their number. Source:
        MemoryRecords.filterTo.

        Args:
            buf: Bytes of a file that contain the batches.
            table: The batches, with the columns of `kernel.walk` and positions in the file.
            verdicts: A byte per row of `table`: flags of `Verdict`.
            row: The first row of `table` to process.
            shift: The file position of buf[0].
            out: The output.
            at: The position in `out`.
            horizon: The delete horizon (ms) for batches that need one.
            sealed: Gets the position in `out` of each batch that has changed.

        Returns:
            The next row to process, the position after the output, and a status: DONE, or why the
            call ended before that row. GROW (for Python: MAP_SMALL) means that `out` is too small;
            with another status the batch is damaged.
        """
        status = DONE
        rows = len(table)
        with cython.nogil:
            self.seals = 0
            while row < rows:
                if len(out) - at < table[row, 1] + 20 * table[row, 9] + HEADER:
                    status = GROW
                    break
                status = self.select(
                    buf,
                    table[row, 0] - shift + HEADER,
                    table[row, 0] - shift + table[row, 1],
                    table[row, 9],
                    table[row, 2],
                    table[row, 3],
                    verdicts[row],
                )
                if status != DONE:
                    break
                at = self.take(buf, table, verdicts[row], row, shift, out, at, horizon, sealed)
                row += 1
        return row, at, status

    def take(
        self,
        buf: View,
        table: View,
        verdict: int,
        row: int,
        shift: int,
        out: View,
        at: int,
        horizon: int,
        sealed: View,
    ) -> int:
        """Write a batch with the records that `select` has found; return the position after it.

        An unchanged batch is copied. Without records, the header is written if `verdict` has EMPTY,
        else nothing. The arguments are those of `filter_many`.
        """
        attributes = table[row, 10]
        start = table[row, 0] - shift
        end = at
        marks = 0
        self.records_read += table[row, 9]
        self.records_kept += self.kept
        if self.kept == 0 and not verdict & EMPTY:
            return at
        if self.tombstones > 0 or verdict & MARK:
            marks = 0 if attributes & DELETE_HORIZON else 1
        if self.kept > 0 and self.kept == table[row, 9] and not marks:
            copy(out, at, buf, start, table[row, 1])
            return at + table[row, 1]
        copy(out, at, buf, start, HEADER)
        if self.kept == 0:
            end = at + HEADER
            attributes &= HEADER_ONLY
            self.base_time, self.largest = -1, table[row, 5]
        else:
            if marks:
                attributes |= DELETE_HORIZON
            end = self.write(
                buf,
                out,
                at + HEADER,
                table[row, 4],
                1 if attributes & 8 else 0,
                table[row, 5],
                horizon if marks else table[row, 4],
                attributes & DELETE_HORIZON,
            )
            if attributes & 8:
                self.largest = table[row, 5]
        store(out, at + 8, end - at - 12, 4)
        store(out, at + 21, attributes, 2)
        store(out, at + 27, self.base_time, 8)
        store(out, at + 35, self.largest, 8)
        store(out, at + 57, self.kept, 4)
        sealed[self.seals] = at
        self.seals += 1
        return end
