"""Entries: bytes and back, cut, damaged, too large."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparklog.common import TopicPartition
from sparklog.diskless.entries import (
    ENTRY_BYTES_MAX,
    Entry,
    FloorRecord,
    ImportRecord,
    MergeRecord,
    NoOpRecord,
    ObjectKey,
    ProducerBatch,
    TermRecord,
    decode,
    encode,
)
from sparklog.diskless.extents import Extent
from sparklog.errors import DataCorruptionError, InvalidRequestError, UnsupportedVersionError
from sparklog.storage.ledger_records import CommitRecord, ResetRecord
from sparklog.storage.offset_ranges import OffsetRange
from sparklog.tiered.layout.manifest import WrappedKey

T0 = TopicPartition("t", 0)
INLINE = Extent(5, 8, "", 0, 90, 1000, 3, -1)
STAGED = Extent(8, 9, "staged-x/1/a", 7, 30, -1, 3, -1, "", 1234, 0)
COMMIT = CommitRecord(
    time_ms=7, epoch=3, ends={T0: OffsetRange(5, 9)}, writer="q", batch=4, fingerprint="f"
)
KEY = ObjectKey("id", WrappedKey("AES", "k", "w", 64), 90, 0)
RECORDS = [
    COMMIT,
    ResetRecord(time_ms=7, writer="q", batch=3, writers={"q": None}, abandoned={}),
    MergeRecord(
        time_ms=1, epoch=2, term=9, topic="t", topic_id="i", partition=0,
        sources=((1, 2, "o", 3), (2, 5, "p", 0)), gaps=True,
    ),
    ImportRecord(epochs={T0: ((0, 0), (3, 5))}, gaps=frozenset({T0})),
    TermRecord(term=3, holder={"host": "h"}),
    FloorRecord(term=3, floor=17),
    NoOpRecord(time_ms=5),
]  # fmt: skip


@pytest.mark.parametrize("record", RECORDS, ids=lambda record: record.kind)
def test_an_entry_comes_back_as_it_was(record) -> None:  # type: ignore[no-untyped-def]
    entry = Entry(
        id="a" * 32, prev="b" * 32, record=record, extents=((T0, INLINE), (T0, STAGED)), seen=2,
        before=1, keys={"": KEY, "o": KEY}, producers={T0: (ProducerBatch(1, 0, 2, 5, 8, 99),)},
    )  # fmt: skip
    raw = encode(17, entry, b"inline")
    found = decode(raw, number=17, path="p")
    assert found == Entry(**{**_fields(entry), "data_at": len(raw) - 6})
    assert decode(raw[: found.data_at], number=17, path="p") == found  # cut
    assert found.has_data


def test_a_reset_says_where_each_writer_goes_on() -> None:
    entry = Entry(id="a", prev="b", record=RECORDS[1], kept_commits={"q": 5, "r": -1})
    assert decode(encode(1, entry), number=1, path="p").kept_commits == {"q": 5, "r": -1}


def _fields(entry: Entry) -> dict:  # type: ignore[type-arg]
    return {name: getattr(entry, name) for name in Entry.__slots__}


WHOLE = encode(3, Entry(id="a", prev="b", record=COMMIT, extents=((T0, INLINE),)), b"data")


@given(st.integers(0, len(WHOLE) - 5), st.integers(0, 7))
def test_a_flipped_bit_is_damage(at: int, bit: int) -> None:
    damaged = bytearray(WHOLE)
    damaged[at] ^= 1 << bit
    if 12 <= at < 16:  # the leader epoch: outside of the CRC, and of no meaning here
        return
    with pytest.raises(DataCorruptionError) as caught:
        decode(bytes(damaged), number=3, path="s3://b/ledger/3")
    assert caught.value.path == "s3://b/ledger/3"
    assert caught.value.first == 3


@given(st.integers(0, len(WHOLE) - 5))
def test_half_an_entry_is_damage(size: int) -> None:
    with pytest.raises(DataCorruptionError):
        decode(WHOLE[:size], number=3, path="p")


def test_an_entry_under_another_number_is_damage() -> None:
    with pytest.raises(DataCorruptionError, match="contains entry 3"):
        decode(WHOLE, number=4, path="p")


def test_an_entry_has_a_limit() -> None:
    entry = Entry(id="a", prev="b", record=NoOpRecord())
    assert encode(0, entry, bytes(ENTRY_BYTES_MAX - 200))
    with pytest.raises(InvalidRequestError, match="the maximum is 8388608"):
        encode(0, entry, bytes(ENTRY_BYTES_MAX))


def test_a_kind_or_version_of_tomorrow_stops_the_reader() -> None:
    entry = Entry(id="a", prev="b", record=NoOpRecord())
    raw = encode(0, entry)
    assert b'"noop"' in raw
    with pytest.raises(DataCorruptionError, match="kind"):
        decode(_resealed(raw.replace(b'"noop"', b'"noob"')), number=0, path="p")
    with pytest.raises(UnsupportedVersionError):
        decode(_resealed(raw.replace(b'{"v":1', b'{"v":9')), number=0, path="p")


def _resealed(raw: bytes) -> bytes:
    from sparklog.format.batch import seal

    batch = bytearray(raw)
    seal(batch)
    return bytes(batch)
