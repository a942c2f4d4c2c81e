"""Both builds walk a state file's entries alike, also those that are damaged."""

import struct

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from sparklog.format import state_entries
from tests.format import interpreted

PLAIN = interpreted.load("state_entries")
KINDS = (0x01, 0x10, 0x11, 0x20)
PAIRS = st.lists(
    st.tuples(st.sampled_from(KINDS), st.binary(max_size=20), st.none() | st.binary(max_size=20)),
    max_size=20,
)


def sized(data: bytes | None) -> bytes:
    return struct.pack(">i", -1) if data is None else struct.pack(">i", len(data)) + data


def encode(pairs: list[tuple[int, bytes, bytes | None]], typed: bool) -> bytes:
    entry = b"".join(
        (bytes([kind]) if typed else b"") + sized(key) + sized(value) for kind, key, value in pairs
    )
    return entry + (b"\0" if typed else sized(None))


def walk(module, data: bytes, at: int, typed: bool) -> tuple[tuple[int, int, int], np.ndarray]:
    table = np.full((25, 5), -9, np.int64)
    found = module.walk(memoryview(data), at, typed, table.data)
    return found, table


@given(pairs=PAIRS, typed=st.booleans(), before=st.binary(max_size=9))
def test_entries_are_found(pairs, typed, before):
    wanted = [(k, key, None if k == 0x10 and typed else value) for k, key, value in pairs]
    if typed:  # only a deletion has no value there
        wanted = [(k, key, v if k == 0x10 else v or b"") for k, key, v in wanted]
    data = before + encode(wanted, typed)
    found, table = walk(state_entries, data, len(before), typed)
    assert found == (0, len(wanted), len(data))
    for (kind, key, value), row in zip(wanted, table.tolist(), strict=False):
        assert row[0] == (kind if typed else 0x10 if value is None else 0x01)
        assert data[row[1] : row[1] + row[2]] == key
        assert row[4] == (-1 if value is None else len(value))
        assert value is None or data[row[3] : row[3] + row[4]] == value


@given(
    pairs=PAIRS,
    typed=st.booleans(),
    cut=st.integers(0, 60),
    flips=st.lists(st.tuples(st.integers(0, 400), st.integers(0, 255)), max_size=3),
)
def test_builds_agree_on_damage(pairs, typed, cut, flips):
    data = bytearray(encode(pairs, typed))
    for at, value in flips:
        if at < len(data):
            data[at] = value
    short = bytes(data[: len(data) - cut])
    compiled, plain = walk(state_entries, short, 0, typed), walk(PLAIN, short, 0, typed)
    assert compiled[0] == plain[0]
    assert (compiled[1] == plain[1]).all()


def test_it_counts_without_a_table():
    data = encode([(1, b"k", b"v")] * 3, typed=False)
    assert state_entries.walk(memoryview(data), 0, False, np.empty((0, 5), np.int64).data)[1] == 3
