# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
# cython: initializedcheck=False, annotation_typing=False
"""Scans the entries of Spark's state store files. Compiled with Cython, like kernel.py.

An entry is the size of the key (i32), the key, the size of the value (i32, -1 for a deletion) and
the value. The position of each entry follows from the sizes before it, so the scan is sequential.
In files with typed entries, a byte for the kind precedes each entry (see `walk`).
"""

import cython

View = memoryview

DONE, CUT, BAD_SIZE, BAD_KIND = range(4)
PUT, DELETE, MERGE, DELETE_RANGE = 0x01, 0x10, 0x11, 0x20
COLUMNS = (
    5  # of `walk`'s table: kind, key's position, its size, value's position, its size or -1
)


def load_int(buf: View, at: int) -> int:
    """Read the big-endian i32 at `at`."""
    value = buf[at] << 24 | buf[at + 1] << 16 | buf[at + 2] << 8 | buf[at + 3]
    return value - (1 << 32) if not cython.compiled and value >= 1 << 31 else value


def walk(buf: View, at: int, typed: int, out: View) -> tuple[int, int, int]:
    """Scan the entries in `buf`, from byte `at` on.

    Args:
        buf: The contents of the file.
        at: The position of the first entry.
        typed: Whether a byte with the kind precedes each entry. Such entries end with a kind of 0,
            other entries with a key size of -1.
        out: Gets a row per entry, as far as there is space: kind, position of the key, its size,
            position of the value, its size or -1 (a deletion). Without rows, entries are only
            counted.

    Returns:
        The status, the number of entries, and the position after the end mark or at the fault. The
        status is DONE, CUT (the file ends before the end mark), BAD_SIZE or BAD_KIND.
    """
    count, stop, rows, status = 0, len(buf), len(out), CUT
    while True:
        kind = PUT
        if typed:
            if at >= stop:
                break
            kind = buf[at]
            if kind == 0:
                at += 1
                status = DONE
                break
            if kind != PUT and kind != DELETE and kind != MERGE and kind != DELETE_RANGE:
                status = BAD_KIND
                break
            at += 1
        if stop - at < 4:
            break
        key_size = load_int(buf, at)
        if not typed and key_size == -1:
            at += 4
            status = DONE
            break
        if key_size < 0 or key_size > stop - at - 4:
            status = BAD_SIZE
            break
        key_at = at + 4
        at = key_at + key_size
        if stop - at < 4:
            break
        value_size = load_int(buf, at)
        if value_size == -1 and (kind == DELETE or not typed):
            kind = DELETE
            at += 4
        elif value_size < 0 or value_size > stop - at - 4:
            status = BAD_SIZE
            break
        else:
            at += 4 + value_size
        if count < rows:
            out[count, 0] = kind
            out[count, 1] = key_at
            out[count, 2] = key_size
            out[count, 3] = at - value_size if value_size >= 0 else at
            out[count, 4] = value_size
        count += 1
    return status, count, at
