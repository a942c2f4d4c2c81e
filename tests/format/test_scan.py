"""Walking and renumbering whole batches."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparklog.errors import InvalidRequestError
from sparklog.format.batch import unpack_header
from sparklog.format.compression import Codec
from sparklog.format.records import encode
from sparklog.format.scan import (
    is_rewritten,
    read_header,
    rebase,
    rebase_headers,
    row_header,
    scan,
    stored_crcs,
)
from tests.format.data import BATCH_A, BATCH_B, BATCH_D

TWO = BATCH_A + BATCH_B


def test_positions_are_those_of_the_file():
    found = scan(TWO, path="t", position=1000)
    assert found.table["position"].tolist() == [1000, 1090]
    assert (found.end, found.error, len(found)) == (1168, None, 2)
    header = row_header(found.table[0])
    assert header.pack(crc=0x4763D9C8) == BATCH_A[:61]


@pytest.mark.parametrize("cut", [0, 1, 16, 17, 60, 77])
def test_a_torn_tail_ends_quietly(cut):
    found = scan(TWO[: 90 + cut], path="t")
    assert (len(found), found.end, found.error) == (1, 90, None)


def test_a_zero_tail_is_damage():
    found = scan(BATCH_A + bytes(30), path="t", position=5)
    assert (len(found), found.end) == (1, 95)
    assert found.error is not None
    assert found.error.position == 95


def test_max_batches():
    assert len(scan(TWO * 3, path="t", max_batches=4)) == 4
    assert scan(TWO * 3, path="t", max_batches=4).end == 2 * len(TWO)
    assert len(scan(TWO, path="t", max_batches=0)) == 0


def test_more_batches_than_one_step_takes():
    found = scan(TWO * 20000, path="t")
    assert (len(found), found.end, found.error) == (40000, 20000 * len(TWO), None)


@given(st.integers(0, 3), st.integers(16 * 8, 78 * 8 - 1))
def test_the_first_damage_ends_the_scan(batch, bit):
    bad = bytearray(BATCH_B * 4)
    bad[batch * 78 + bit // 8] ^= 1 << bit % 8
    found = scan(bad, path="t")
    assert (len(found), found.end) == (batch, batch * 78)
    assert found.error is not None
    assert found.error.position == batch * 78
    if bit >= 21 * 8:
        assert scan(bad, path="t", check_crc=False).end >= found.end


@given(st.binary(max_size=200))
def test_scan_never_raises(noise):
    for check_crc in (True, False):
        found = scan(TWO + noise, path="t", check_crc=check_crc)
        assert len(found) >= 2
        assert found.end <= len(TWO + noise)


def test_rebase_keeps_the_crc():
    made = encode(
        pa.table({"value": [b"x" * 50] * 100}),
        codec=Codec.LZ4, timestamp_ms_default=1, batch_size=1000,
    )  # fmt: skip
    prefixes = rebase_headers(made.batches, 2**40, 8).tobytes()
    assert rebase(made.data, 2**40, 8) == 2**40 + 100
    found = scan(made.data, path="t")
    assert found.error is None
    assert found.table["base_offset"][0] == 2**40
    assert set(found.table["leader_epoch"].tolist()) == {8}
    assert prefixes[:16] == bytes(made.data[:16])
    assert np.array_equal(found.table["base_offset"], made.batches["base_offset"] + 2**40)


@pytest.mark.parametrize("bad", [BATCH_A[:-1], BATCH_A + b"x", BATCH_A[:16] + b"\1" + BATCH_A[17:]])
def test_rebase_refuses_and_changes_nothing(bad):
    buf = bytearray(BATCH_B + bad)
    with pytest.raises(InvalidRequestError, match="byte"):
        rebase(buf, 5, 1)
    assert bytes(buf) == BATCH_B + bad
    assert rebase(bytearray(), 5, 1) == 5


def test_read_header_and_scan_agree():
    for raw in (BATCH_A, BATCH_B, BATCH_D):
        assert read_header(raw, 0, path="t") == unpack_header(raw, 0)
        row = scan(raw, path="t").table[0]
        assert row_header(row).pack(crc=unpack_header(raw, 0).crc) == raw[:61]


def test_an_offset_past_the_highest_is_damage():
    raw = bytearray(BATCH_A)
    raw[:8] = (2**63 - 2).to_bytes(8, "big")  # its last record would have 2^63
    found = scan(raw, path="t")
    assert (len(found), found.end) == (0, 0)
    assert "too large" in str(found.error)


@pytest.mark.parametrize("count", [1, 3, 50])
def test_stored_crcs_are_those_of_the_headers(count):
    data = BATCH_A + BATCH_B * count
    table = scan(data, path="f", position=1000).table
    crcs = stored_crcs(data, table, 1000)
    starts = [int(at) - 1000 for at in table["position"]]
    assert crcs == b"".join(data[at + 17 : at + 21] for at in starts)
    assert unpack_header(data, 0).crc == int.from_bytes(crcs[:4], "big")


def test_compacted_batches_are_known():
    found = [is_rewritten(scan(data, path="f").table).tolist() for data in (BATCH_A, BATCH_D)]
    assert found == [[False], [True]]
