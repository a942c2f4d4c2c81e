"""Producer snapshots."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparklog.errors import DataCorruptionError
from sparklog.format.producer_snapshot import ProducerEntry, format_snapshot, parse_snapshot
from tests.format.data import NOW, SNAPSHOT_EMPTY, SNAPSHOT_ONE

ENTRY = ProducerEntry(
    producer_id=7,
    producer_epoch=1,
    last_sequence=44,
    last_offset=102,
    offset_delta=2,
    timestamp=NOW + 5,
    coordinator_epoch=5,
    current_txn_first_offset=100,
)


def test_golden_c():
    assert format_snapshot([]) == SNAPSHOT_EMPTY
    assert format_snapshot([ENTRY]) == SNAPSHOT_ONE
    assert parse_snapshot(SNAPSHOT_ONE, "s") == [ENTRY]
    assert parse_snapshot(SNAPSHOT_EMPTY, "s") == []


@given(st.integers(0, len(SNAPSHOT_ONE) * 8 - 1))
def test_no_flipped_bit_is_accepted(bit):
    """ProducerStateManagerTest.testLoadFromCorruptSnapshotFile."""
    bad = bytearray(SNAPSHOT_ONE)
    bad[bit // 8] ^= 1 << bit % 8
    with pytest.raises(DataCorruptionError, match=r"^s at byte"):
        parse_snapshot(bytes(bad), "s")


@given(st.binary(max_size=80))
def test_noise(noise):
    with pytest.raises(DataCorruptionError):
        parse_snapshot(noise, "s")
