"""Headers, control batches and emptied batches, byte for byte as Kafka writes them."""

import contextlib
import dataclasses

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparklog.errors import DataCorruptionError
from sparklog.format.batch import HEADER_SIZE, TRANSACTIONAL, encode_empty, encode_one, seal
from sparklog.format.compression import Codec
from sparklog.format.records import encode
from sparklog.format.scan import read_header
from tests.format.control_batches import encode_control
from tests.format.data import BATCH_A, BATCH_B, BATCH_D, BATCH_E, NOW


def header(data: bytes):
    read = read_header(data, 0, path="t")
    assert read is not None
    return read


def test_every_field_of_golden_a():
    read = header(BATCH_A)
    assert dataclasses.asdict(read) == {
        "base_offset": 100, "length": 78, "leader_epoch": 3, "magic": 2, "crc": 0x4763D9C8,
        "attributes": 0, "last_offset_delta": 2, "base_timestamp": NOW, "max_timestamp": NOW + 5,
        "producer_id": 7, "producer_epoch": 1, "base_sequence": 42, "count": 3,
    }  # fmt: skip
    assert (read.size, read.last_offset, read.next_offset) == (90, 102, 103)
    assert (read.last_sequence, read.codec, read.log_append_time) == (44, Codec.NONE, None)
    assert read.pack() == BATCH_A[:HEADER_SIZE]


def test_control_batch_is_golden_b():
    made = encode_control(
        0,
        base_offset=103,
        timestamp=NOW + 100,
        producer_id=7,
        producer_epoch=1,
        coordinator_epoch=5,
        leader_epoch=3,
    )
    assert made == BATCH_B
    assert header(made).is_control
    assert header(made).attributes & TRANSACTIONAL


def test_emptied_batch_is_golden_e():
    """MemoryRecordsTest.testFilterToEmptyBatchRetention, testWriteEmptyHeader."""
    assert encode_empty(header(BATCH_D)) == BATCH_E
    assert header(BATCH_E).next_offset == 104


def test_delete_horizon_of_golden_d():
    assert header(BATCH_D).delete_horizon_ms == 1_800_000_001_000
    assert header(BATCH_A).delete_horizon_ms is None


def test_sequence_wraps_by_offset_delta():
    """buildDefaultRecordBatchWithSequenceWrapAround; trap 12: delta, not count."""
    read = dataclasses.replace(
        header(BATCH_D), base_sequence=2**31 - 2, last_offset_delta=3, count=1
    )
    assert read.last_sequence == 1
    assert dataclasses.replace(read, base_sequence=-1).last_sequence == -1


def test_leader_epoch_and_base_offset_are_outside_the_crc():
    """DefaultRecordBatchTest.testSetPartitionLeaderEpoch."""
    changed = bytearray(BATCH_A)
    changed[12:16] = (500).to_bytes(4, "big")
    changed[0:8] = (2**40).to_bytes(8, "big")
    assert header(bytes(changed)).leader_epoch == 500


@pytest.mark.parametrize("left", range(90))
def test_torn_tail_is_no_error(left):
    """FileRecordsTest.testIterationOverPartialAndTruncation."""
    assert read_header(BATCH_A[:left], 0, path="t") is None


def test_zero_tail_is_corrupt():
    with pytest.raises(DataCorruptionError, match="t at byte 190: batch length 0") as caught:
        read_header(BATCH_A + bytes(100), 90, path="t", position=100)
    assert caught.value.position == 190


@pytest.mark.parametrize("magic", [3, 7, -1])
def test_unknown_magic(magic):
    bad = bytearray(BATCH_A)
    bad[16] = magic & 0xFF
    with pytest.raises(DataCorruptionError, match="magic"):
        read_header(bytes(bad), 0, path="t")


@pytest.mark.parametrize(
    ("at", "value", "what"), [(21, b"\0\5", "codec"), (57, b"\0\0\0\4", "records")]
)
def test_fields_under_a_right_crc(at, value, what):
    bad = bytearray(BATCH_A)
    bad[at : at + len(value)] = value
    seal(bad)
    with pytest.raises(DataCorruptionError, match=what):
        read_header(bytes(bad), 0, path="t")


@given(st.integers(16 * 8, len(BATCH_A) * 8 - 1))
def test_no_single_bit_flip_is_accepted(bit):
    """From magic on; readers compare the base offset with what they expect."""
    bad = bytearray(BATCH_A)
    bad[bit // 8] ^= 1 << bit % 8
    with pytest.raises(DataCorruptionError):
        read_header(bytes(bad), 0, path="t")


@pytest.mark.parametrize("bit", range(64, 96))
def test_a_flipped_length_is_torn_or_corrupt(bit):
    bad = bytearray(BATCH_A)
    bad[bit // 8] ^= 1 << bit % 8
    with contextlib.suppress(DataCorruptionError):
        assert read_header(bytes(bad), 0, path="t") is None


@given(
    st.none() | st.binary(max_size=200),
    st.integers(0, 40_000).map(bytes) | st.binary(max_size=200),
    st.integers(0, 2**62),
)
def test_one_record_without_arrow_is_what_encode_makes_of_it(
    key: bytes | None, value: bytes, timestamp: int
) -> None:
    columns = {"key": pa.array([key], pa.binary()), "value": pa.array([value], pa.binary())}
    rows = pa.RecordBatch.from_pydict(columns)
    made = encode(rows, codec=Codec.NONE, timestamp_ms_default=timestamp)
    assert encode_one(key, value, timestamp=timestamp) == bytes(made.data)
