"""Sealed segments: any range opens, nothing that was changed does, wrong keys are named."""

import itertools
import json
import sys
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparklog.errors import DataCorruptionError, InvalidRequestError, UnsupportedVersionError
from sparklog.tiered.encryption.envelope import (
    CHUNK_BYTES,
    TAG_BYTES,
    DataKey,
    new_data_key,
    open_data_key,
    rewrap,
)
from sparklog.tiered.keyring import Keyring
from sparklog.tiered.layout.manifest import WrappedKey

RING = Keyring({"k1": b"1" * 32}, "k1")
SEGMENT = "AAAAAAAAAAAAAAAAAAAAAA"


def new_key(chunk_bytes: int = 10) -> tuple[DataKey, WrappedKey]:
    return new_data_key(RING, SEGMENT, chunk_bytes=chunk_bytes)


def key_of(chunk_bytes: int = 10) -> DataKey:
    return new_key(chunk_bytes)[0]


def sealed(key: DataKey, plain: bytes) -> bytes:
    return b"".join(key.seal([plain], len(plain)))


def opened(key: DataKey, stored: bytes, start: int, end: int, size: int) -> bytes:
    first, last = key.stored_range(start, end, size)
    return key.open_range(stored[first:last], start, end, size, path="bucket/log")


@given(
    st.binary(max_size=100),
    st.integers(1, 40),
    st.lists(st.integers(0, 100), max_size=8),
    st.data(),
)
def test_any_range_of_any_stream(plain, chunk_bytes, cuts, data):
    key, wrapped = new_key(chunk_bytes)
    places = sorted({0, len(plain), *(cut for cut in cuts if cut < len(plain))})
    pieces = [plain[a:b] for a, b in itertools.pairwise(places)]
    again = open_data_key(
        RING, SEGMENT, WrappedKey.parse(json.loads(json.dumps(wrapped.to_dict())))
    )
    stored = b"".join(key.seal(pieces, len(plain)))
    assert len(stored) == key.stored_size(len(plain))
    assert b"".join(key.seal([memoryview(plain)], len(plain))) == stored
    if plain:
        start = data.draw(st.integers(0, len(plain) - 1))
        end = data.draw(st.integers(start + 1, len(plain)))
        assert opened(again, stored, start, end, len(plain)) == plain[start:end]
        first, last = key.stored_range(start, end, len(plain))
        assert last - first <= (end - start) + 2 * (chunk_bytes - 1) + TAG_BYTES * (
            (end - start) // chunk_bytes + 2
        )


def test_sizes():
    key = key_of(10)
    assert [key.stored_size(size) for size in (0, 1, 10, 11, 20)] == [16, 17, 26, 43, 52]
    assert key_of(CHUNK_BYTES).stored_size(1 << 30) - (1 << 30) == TAG_BYTES << 14


def test_chunks_of_the_real_size():
    key, _ = new_data_key(RING, SEGMENT)
    plain = b"".join(number.to_bytes(8, "big") for number in range(3 * CHUNK_BYTES // 8)) + b"tail"
    stored = b"".join(
        key.seal([plain[at : at + 50_000] for at in range(0, len(plain), 50_000)], len(plain))
    )
    edge = CHUNK_BYTES
    for start, end in ((0, 1), (edge - 1, edge + 1), (edge, 2 * edge), (3 * edge, len(plain))):
        assert opened(key, stored, start, end, len(plain)) == plain[start:end]
    assert opened(key, stored, 0, len(plain), len(plain)) == plain


def test_every_flipped_byte_is_noticed():
    key, plain = key_of(), bytes(range(35))
    stored = sealed(key, plain)
    for at in range(len(stored)):
        bad = bytearray(stored)
        bad[at] ^= 1
        with pytest.raises(DataCorruptionError, match=f"chunk {at // 26} doesn't decrypt") as error:
            opened(key, bytes(bad), 0, 35, 35)
        assert error.value.path == "bucket/log"
        assert error.value.position == at // 26 * 26


def test_chunks_that_are_swapped_or_cut_off_are_noticed():
    key, plain = key_of(), bytes(range(40))
    stored = sealed(key, plain)
    chunks = [stored[at : at + 26] for at in range(0, len(stored), 26)]
    with pytest.raises(DataCorruptionError, match="chunk 0"):
        opened(key, chunks[1] + chunks[0] + chunks[2] + chunks[3], 0, 40, 40)
    with pytest.raises(DataCorruptionError, match="chunk 2"):  # as if it had been the last
        opened(key, b"".join(chunks[:3]), 0, 30, 30)
    with pytest.raises(DataCorruptionError, match="78 of 104 bytes arrived"):
        opened(key, b"".join(chunks[:3]), 0, 40, 40)
    with pytest.raises(DataCorruptionError, match="chunk 3"):  # as if there were more
        opened(key, stored + chunks[0], 35, 45, 45)


def test_another_segments_chunks_do_not_open():
    one, other = key_of(), key_of()
    with pytest.raises(DataCorruptionError, match="doesn't decrypt"):
        opened(other, sealed(one, b"x" * 20), 0, 20, 20)
    assert sealed(one, b"x" * 20) != sealed(other, b"x" * 20)


def test_a_body():
    key = key_of()
    stored = key.seal_body(b"index and all")
    assert stored != key.seal_body(b"index and all")
    assert key.open_body(stored, path="m") == b"index and all"
    assert key.open_body(key.seal_body(b""), path="m") == b""
    for bad in (stored[:-1], stored[:5], b"", b"\0" + stored[1:], sealed(key, b"index and all")):
        with pytest.raises(DataCorruptionError, match="the body doesn't decrypt"):
            key.open_body(bad, path="m")


@pytest.mark.parametrize("difference", [-1, 1])
def test_a_stream_of_another_size(difference):
    with pytest.raises(InvalidRequestError, match="the segment changed during the copy"):
        list(key_of().seal([b"x" * 25], 25 + difference))
    key = key_of()
    stored = b"".join(key.seal([b"x" * (25 + difference)], 25 + difference))  # copied anew
    assert opened(key, stored, 0, 24, 25 + difference) == b"x" * 24


def test_a_sealed_stream_can_be_sent_again():
    stream = key_of().seal([b"x" * 25], 25)
    assert list(stream) == list(stream)


def test_rotation():
    key, before = new_key()
    stored = sealed(key, b"plain")
    both = Keyring({"k1": b"1" * 32, "k2": b"2" * 32}, "k2")
    wrapped = rewrap(both, SEGMENT, before)
    assert wrapped.key_id == "k2"
    new_only = Keyring({"k2": b"2" * 32}, "k2")
    assert opened(open_data_key(new_only, SEGMENT, wrapped), stored, 0, 5, 5) == b"plain"
    with pytest.raises(InvalidRequestError, match=r"under master key 'k1'.*ring has k2: add 'k1'"):
        open_data_key(new_only, SEGMENT, before)
    assert opened(open_data_key(both, SEGMENT, before), stored, 0, 5, 5) == b"plain"


def test_a_wrong_key_is_named():
    wrong = Keyring({"k1": b"another key than that which it w"}, "k1")
    with pytest.raises(InvalidRequestError, match=f"{SEGMENT} was encrypted under another") as e:
        open_data_key(wrong, SEGMENT, new_key()[1])
    assert "InvalidTag" not in str(e.value) and e.value.__cause__ is None
    open_data_key(RING, SEGMENT, new_key()[1])  # the bytes that k1 meant then


def test_a_wrapped_key_is_bound_to_its_segment_id_and_chunks():
    wrapped = new_key()[1]
    ring = Keyring({"k1": b"1" * 32, "k2": b"1" * 32}, "k1")
    for segment, changed in (
        ("B" * 22, wrapped),
        (SEGMENT, replace(wrapped, key_id="k2")),
        (SEGMENT, replace(wrapped, chunk_bytes=11)),
        (SEGMENT, replace(wrapped, wrapped_key=wrapped.wrapped_key[:8])),
    ):
        with pytest.raises(InvalidRequestError, match="was encrypted under another master key"):
            open_data_key(ring, segment, changed)


@pytest.mark.parametrize(
    "change",
    [{"wrapped_key": "no base64!"}, {"wrapped_key": 5}, {"key_id": None}, {"chunk_bytes": "x"}],
)
def test_what_is_no_wrapped_key(change):
    with pytest.raises(DataCorruptionError, match="contains no wrapped key"):
        open_data_key(RING, SEGMENT, WrappedKey.parse({**new_key()[1].to_dict(), **change}))


def test_a_scheme_of_a_newer_version():
    with pytest.raises(UnsupportedVersionError, match="newer sparklog"):
        open_data_key(RING, SEGMENT, replace(new_key()[1], scheme="AES-512"))


def test_wrong_chunks():
    with pytest.raises(InvalidRequestError, match="chunk_bytes=0"):
        key_of(0)


def test_without_the_package_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "cryptography.hazmat.primitives.ciphers.aead", None)
    with pytest.raises(InvalidRequestError, match=r"pip install 'sparklog\[encryption\]'"):
        new_data_key(RING, SEGMENT)
