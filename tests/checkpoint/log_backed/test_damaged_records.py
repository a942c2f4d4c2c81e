"""A damaged record: whose it was, by what its bytes can't deny."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparklog.checkpoint.log_backed.damaged_records import DamagedRecord, examine
from sparklog.format.batch import encode_one
from sparklog.format.scan import rebase


def batch(key: str, value: bytes | None, offset: int = 5, epoch: int = 3) -> bytes:
    found = encode_one(key.encode(), value, timestamp=1_700_000_000_000)
    rebase(found, offset, epoch)
    return bytes(found)


def told(raw: bytes, *, first: int = 5, end: int = 6) -> list[DamagedRecord]:
    return examine(raw, position=1000, first=first, end=end, epoch=3)


@settings(max_examples=120, deadline=None)
@given(data=st.data())
def test_one_byte_anywhere(data: st.DataObject) -> None:
    """The key is known; all of it, where the byte isn't in the value."""
    value = data.draw(st.sampled_from([None, b"", b"v1\n{}\n" * 60, bytes(30_000)]))
    key = data.draw(st.sampled_from(["0", "101", "state/0/_metadata/v2/17", "12.delta"]))
    raw = batch(key, value)
    at = data.draw(st.integers(0, min(len(raw), 200) - 1) | st.integers(0, len(raw) - 1))
    change = data.draw(st.integers(1, 255))
    bad = bytearray(raw)
    bad[at] ^= change
    (found,) = told(bytes(bad))
    assert (found.key, found.position, found.size) == (key, 1000, len(raw))
    assert found.corrected in (None, raw)
    assert found.is_deletion == (value is None)
    if at < 61 + len(key) or at == len(raw) - 1 or value is None:
        assert found.corrected == raw


def test_noise_is_nobodys() -> None:
    """Also where a change of one byte would make the CRC hold, by chance."""
    rng = random.Random(3)
    for _ in range(300):
        noise = rng.randbytes(rng.choice([40, 80, 200, 4000]))
        assert [lost.key for lost in told(noise)] == [None]


@pytest.mark.parametrize("size", [1, 4, 16, 64, 512])
def test_a_hole_in_the_value_leaves_the_key(size: int) -> None:
    raw = bytearray(batch("12.delta", random.Random(1).randbytes(5000)))
    raw[2000 : 2000 + size] = b"\0" * size
    (found,) = told(bytes(raw))
    assert (found.key, found.corrected) == ("12.delta", None)


def test_the_tag_of_another_partition_hides_it() -> None:
    """Its bytes may be of a segment that was swapped; a batch of an older version has no tag."""
    for tag, key in ((-1, "12.delta"), (7, "12.delta"), (8, None)):
        value = random.Random(1).randbytes(5000)
        raw = encode_one(b"12.delta", value, timestamp=1_700_000_000_000, base_sequence=tag)
        rebase(raw, 5, 3)
        raw[2000:2004] = b"\0" * 4
        (found,) = examine(bytes(raw), position=0, first=5, end=6, epoch=3, tag=7)
        assert found.key == key


def test_a_hole_over_the_key_hides_it() -> None:
    raw = bytearray(batch("12.delta", random.Random(1).randbytes(5000)))
    raw[50:130] = b"\0" * 80
    assert [lost.key for lost in told(bytes(raw))] == [None]


def test_several_in_a_row() -> None:
    """Told apart by their lengths, if there are offsets for as many."""
    parts = [bytearray(batch(str(n), b"x" * (100 + n), offset=5 + n)) for n in range(3)]
    for part in parts:
        part[-5] ^= 1
    raw = b"".join(map(bytes, parts))
    found = told(raw, end=8)
    assert [(lost.key, lost.size) for lost in found] == [(str(n), len(parts[n])) for n in range(3)]
    assert [lost.key for lost in told(raw, end=7)] == [None]
    parts[1][9] ^= 0x40  # and now a length
    assert [lost.key for lost in told(b"".join(map(bytes, parts)), end=8)] == [None]
