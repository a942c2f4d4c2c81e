"""Extent tables: what is written is read; what is cut, changed or another's is refused."""

import numpy as np
import pytest

from sparklog.diskless import extent_tables
from sparklog.diskless.extent_tables import HEAD_BYTES, TableHead, block_size, pieces_of
from sparklog.diskless.extents import PIECE_DTYPE, Extent
from sparklog.diskless.object_keys import new_object_key
from sparklog.errors import DataCorruptionError, UnsupportedVersionError
from sparklog.tiered.keyring import Keyring

NAMES = ["", "staged-L/1/a", "staged-L/1/b"]
FIRST = np.array([(1, 0, 70, 2, 11, 7001), (2, 5, 80, 3, 12, 2**32 - 1)], PIECE_DTYPE)
SECOND = np.array([(2, 85, 75, 1, -1, 0)], PIECE_DTYPE)


def table(names=NAMES, keys=None):
    return extent_tables.encode(TableHead(names, keys or {}), [FIRST, SECOND])


def extent(block, *, base=100, end=105, pieces=2, **given):
    start, crc = block
    return Extent(base, end, "table", start, 150, 12, 4, 9, pieces=pieces, crc=crc, **given)


def block_of(raw, extent):
    return raw[extent.start : extent.start + block_size(extent)]


def test_pieces_come_back():
    raw, (first, second) = table()
    head = extent_tables.read_head(lambda start, end: raw[start:end], path="p")
    one, other = pieces_of(extent(first), head, block_of(raw, extent(first)), path="p")
    assert one == Extent(100, 102, "staged-L/1/a", 0, 70, 11, 4, 9, crc=7001)
    assert other == Extent(102, 105, "staged-L/1/b", 5, 80, 12, 4, 9, crc=2**32 - 1)
    whole = extent(second, base=7, end=8, pieces=1)
    (last,) = pieces_of(whole, head, block_of(raw, whole), path="p")
    assert last == Extent(7, 8, "staged-L/1/b", 85, 75, -1, 4, 9, crc=0)
    assert whole.start + block_size(whole) == len(raw)


def test_a_block_that_the_entry_did_not_record():
    raw, (first, _) = table()
    other = FIRST.copy()
    other["start"][0] += 1
    changed, _ = extent_tables.encode(TableHead(NAMES, {}), [other, SECOND])
    head = extent_tables.decode_head(raw, path="p")
    with pytest.raises(DataCorruptionError, match="isn't the block that the ledger recorded"):
        pieces_of(extent(first), head, block_of(changed, extent(first)), path="p")


@pytest.mark.parametrize("unknown", [[0], [1], [0, 1]])
def test_pieces_without_a_checksum_are_as_older_versions_wrote_them(unknown):
    rows = FIRST.copy()
    rows["crc"][unknown] = -1
    raw, (first, second) = extent_tables.encode(TableHead(NAMES, {}), [rows, SECOND])
    assert first.crc == -1
    assert second.start == first.start + 2 * 36 + 4
    head = extent_tables.decode_head(raw, path="p")
    pieces = pieces_of(extent(first), head, block_of(raw, extent(first)), path="p")
    assert [piece.crc for piece in pieces] == [-1, -1]


def test_an_older_version_reads_the_rows():
    """It knows no checksums: it reads the rows and their CRC, where the block begins."""
    raw, (first, _) = table()
    head = extent_tables.decode_head(raw, path="p")
    known = extent(first)._replace(crc=-1)
    pieces = pieces_of(known, head, block_of(raw, known), path="p")
    assert [(piece.base, piece.start, piece.size, piece.crc) for piece in pieces] == [
        (100, 0, 70, -1), (102, 5, 80, -1)
    ]  # fmt: skip


def test_stamp_is_each_pieces():
    raw, (first, _) = table()
    head = extent_tables.decode_head(raw, path="p")
    whole = extent(first, stamp_ms=77)
    for piece in pieces_of(whole, head, block_of(raw, whole), path="p"):
        assert (piece.stamp_ms, piece.max_timestamp) == (77, 77)


def test_objects_that_live_with_it():
    raw, _ = table()
    assert extent_tables.objects_of(raw, path="p") == {"staged-L/1/a", "staged-L/1/b"}
    size = extent_tables.head_size(raw, path="p")
    assert extent_tables.objects_of(raw[:size], path="p") == {"staged-L/1/a", "staged-L/1/b"}


def test_keys_of_sealed_objects():
    _, key = new_object_key(Keyring({"k": b"k" * 32}, "k"), 150)
    raw, _ = table(keys={"staged-L/1/b": key})
    assert extent_tables.decode_head(raw, path="p").keys == {"staged-L/1/b": key}


def test_many_names_take_a_second_request():
    rng = np.random.default_rng(1)
    names = ["", *(f"staged-L/{n:020}/x-{rng.bytes(16).hex()}" for n in range(5000))]
    raw, _ = table(names)
    asked = []

    def get(start, end):
        asked.append((start, end))
        return raw[start:end]

    assert extent_tables.read_head(get, path="p").names == names
    assert len(asked) == 2
    assert asked[0] == (0, HEAD_BYTES)
    assert asked[1][0] == HEAD_BYTES


def all_of(raw, first, second):
    """Read the table's head and the rows of both extents."""
    head = extent_tables.read_head(lambda start, end: raw[start:end], path="p")
    for whole in (extent(first), extent(second, base=7, end=8, pieces=1)):
        pieces_of(whole, head, block_of(raw, whole), path="p")


def test_every_changed_byte_is_found():
    raw, extents = table()
    all_of(raw, *extents)
    for at in range(len(raw)):
        bad = bytearray(raw)
        bad[at] ^= 0x10
        with pytest.raises((DataCorruptionError, UnsupportedVersionError)):
            all_of(bytes(bad), *extents)


def test_every_cut_is_found():
    raw, extents = table()
    all_of(raw, *extents)
    for size in range(len(raw)):
        with pytest.raises(DataCorruptionError):
            all_of(raw[:size], *extents)


def test_rows_of_another_extent():
    raw, (first, _) = table()
    head = extent_tables.decode_head(raw, path="p")
    block = block_of(raw, extent(first))
    with pytest.raises(DataCorruptionError, match=r"\[100, 106\)"):
        pieces_of(extent(first, end=106), head, block, path="p")
    with pytest.raises(DataCorruptionError, match="the rows don't match"):
        pieces_of(extent(first), TableHead(NAMES[:2], {}), block, path="p")
