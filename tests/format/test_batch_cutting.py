"""A batch cut to a range of offsets is the same batch with fewer records."""

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparklog.errors import DataCorruptionError
from sparklog.format.batch import SEQUENCE_MAX
from sparklog.format.batch_cutting import cut_batch
from sparklog.format.columns import HEADERS_TYPE
from sparklog.format.compression import Codec
from sparklog.format.records import Decoder, encode
from sparklog.format.scan import rebase, row_header, scan
from tests.format.data import BATCH_D

BASE = 1000


def batch(count: int, codec: Codec, **more) -> bytes:
    numbers = range(count)
    rows = pa.RecordBatch.from_pydict(
        {
            "key": pa.array([None if n % 3 else b"k%d" % n for n in numbers], pa.binary()),
            "value": pa.array([None if n % 5 == 4 else b"v" * n for n in numbers], pa.binary()),
            "headers": pa.array(
                [[{"key": "h", "value": b"%d" % n}] * (n % 3) for n in numbers], HEADERS_TYPE
            ),
            "timestamp": pa.array([5000 - 7 * (n % 4) for n in numbers], pa.timestamp("ms")),
        }
    )
    given = {"batch_size": 1 << 20, "timestamp_ms_default": 0} | more
    raw = bytearray(encode(rows, codec=codec, **given).data)
    rebase(raw, BASE, 9)
    return bytes(raw)


def cut(raw: bytes, first: int, end: int) -> bytes:
    (row,) = scan(raw, path="x").table
    return bytes(cut_batch(memoryview(raw), row, first, end, path="x", position=0))


def read(raw: bytes, first: int = 0, end: int = 2**62) -> list[dict]:
    found = scan(raw, path="x")
    assert (found.end, found.error) == (len(raw), None)
    decoder = Decoder()
    decoder.add_many(raw, found.table, first=first, end=end, path="x")
    return decoder.finish().to_pylist()


@settings(max_examples=60)
@given(
    st.integers(1, 40), st.sampled_from(list(Codec)), st.data(), st.sampled_from([None, 77_000])
)
def test_the_parts_are_the_whole(count: int, codec: Codec, data, append_time: int | None) -> None:
    sequence = data.draw(st.sampled_from([0, 5, SEQUENCE_MAX - 3]))
    whole = batch(count, codec, producer=(4, 2, sequence), transactional=True,
                  log_append_time=append_time)  # fmt: skip
    at = data.draw(st.integers(BASE + 1, BASE + count)) if count > 1 else BASE + 1
    parts = [cut(whole, 0, at)] + ([cut(whole, at, 2**40)] if at < BASE + count else [])
    assert [row for part in parts for row in read(part)] == read(whole)
    before = row_header(scan(whole, path="x").table[0])
    headers = [row_header(scan(part, path="x").table[0]) for part in parts]
    assert headers[0].base_offset == BASE
    assert headers[-1].last_offset == BASE + count - 1
    assert headers[0].base_sequence == sequence
    assert headers[-1].last_sequence == before.last_sequence
    if len(headers) == 2:
        assert headers[1].base_offset == at == headers[0].next_offset
        assert headers[1].base_sequence == (headers[0].last_sequence + 1) & SEQUENCE_MAX
    for header in headers:
        assert (header.producer_id, header.producer_epoch, header.leader_epoch) == (4, 2, 9)
        assert header.attributes == before.attributes
        assert header.log_append_time == append_time


def test_both_ends_at_once() -> None:
    whole = batch(10, Codec.LZ4)
    middle = cut(whole, BASE + 3, BASE + 5)
    assert read(middle) == read(whole, BASE + 3, BASE + 5)
    assert len(read(middle)) == 2
    header = row_header(scan(middle, path="x").table[0])
    assert (header.base_sequence, header.producer_id, header.codec) == (-1, -1, Codec.LZ4)


def test_a_compacted_batch() -> None:
    """Offsets are missing in it, and its base timestamp is a delete horizon."""
    header = row_header(scan(BATCH_D, path="x").table[0])
    found = read(BATCH_D)
    offsets = [row["offset"] for row in found]
    assert header.delete_horizon_ms is not None or len(offsets) < header.last_offset_delta + 1
    for at in range(header.base_offset + 1, header.last_offset + 1):
        low, high = cut(BATCH_D, 0, at), cut(BATCH_D, at, 2**40)
        assert read(low) + read(high) == found
        for part in (low, high):
            changed = row_header(scan(part, path="x").table[0])
            if changed.count:
                assert changed.delete_horizon_ms == header.delete_horizon_ms
    nothing = next(
        (at for at in range(header.base_offset, header.last_offset + 1) if at not in offsets), None
    )
    if nothing is not None:
        empty = row_header(scan(cut(BATCH_D, nothing, nothing + 1), path="x").table[0])
        assert (empty.count, empty.base_offset, empty.last_offset) == (0, nothing, nothing)


def test_damaged_records() -> None:
    raw = bytearray(batch(5, Codec.NONE))
    raw[61] = 0x7F  # the first record's length
    (row,) = scan(bytes(raw), path="x", check_crc=False).table
    with pytest.raises(DataCorruptionError, match="the batch can't be cut") as raised:
        cut_batch(memoryview(bytes(raw)), row, BASE + 2, BASE + 4, path="x", position=0)
    assert (raised.value.first, raised.value.end) == (BASE, BASE + 5)
