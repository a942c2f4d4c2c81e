"""Transaction markers."""

import pytest

from sparklog.errors import DataCorruptionError
from sparklog.format.batch import seal
from sparklog.format.control import ControlType, read_marker
from sparklog.format.scan import read_header
from tests.format.control_batches import encode_control
from tests.format.data import BATCH_A, BATCH_B


def test_marker_of_golden_b():
    """MemoryRecordsTest.testBuildEndTxnMarker."""
    header = read_header(BATCH_A + BATCH_B, 90, path="t")
    marker = read_marker(BATCH_A + BATCH_B, 90, header, path="t")
    assert (marker.type, marker.offset, marker.coordinator_epoch) == (ControlType.ABORT, 103, 5)
    assert (marker.producer_id, marker.producer_epoch) == (7, 1)


def test_other_types_are_ignored():
    batch = encode_control(
        4, base_offset=1, timestamp=0, producer_id=1, producer_epoch=0, coordinator_epoch=0
    )
    assert read_marker(batch, 0, read_header(batch, 0, path="t"), path="t") is None


@pytest.mark.parametrize("at", range(61, 78))
def test_damaged_marker_raises_nothing_else(at):
    bad = bytearray(BATCH_B)
    bad[at] ^= 0xFF
    seal(bad)
    header = read_header(bad, 0, path="t")
    try:
        read_marker(bad, 0, header, path="t")
    except DataCorruptionError as error:
        assert error.position == 0  # noqa: PT017
