"""Varints, CRCs and headers: Scala gives what Python does."""

import struct

import pytest
from crc32c import crc32c
from hypothesis import example, given
from hypothesis import strategies as st

from sparklog.errors import DataCorruptionError
from sparklog.format.batch import CRC_START, HEADER, HEADER_SIZE, encode_one, seal
from sparklog.format.scan import read_header
from tests.format.data import BATCH_A, BATCH_B, BATCH_D, BATCH_E
from tests.jvm.probe import Probe, ProbeError, pack, unpack
from tests.jvm.reading import varint

ENDS = sorted(
    {s * (1 << b) + d for b in range(63) for s in (1, -1) for d in (-1, 0, 1)}
    | {2**63 - 1, -(2**63), 2**63 - 2, -(2**63) + 1}
)  # where a varint gets one byte longer


def test_a_thrown_error_is_told_and_the_next_call_works(probe: Probe) -> None:
    with pytest.raises(ProbeError, match="unheard of"):
        probe.call("unheard of")
    big = bytes(range(256)) * 5000
    assert probe.call("echo", big) == big
    assert probe.call("echo") == b""


def test_varints_at_their_ends(probe: Probe) -> None:
    answer = probe.call("varints", struct.pack(f">{len(ENDS)}q", *ENDS))
    assert list(unpack(answer)) == [varint(value) for value in ENDS]


@given(st.binary(max_size=300))
def test_crc(probe: Probe, data: bytes) -> None:
    assert int.from_bytes(probe.call("crc32c", data), "big") == crc32c(data)


# --- headers -----------------------------------------------------------------------------------

SOUND, CUT, LEGACY = 0, 1, 2
FAULTS = {  # Scala's status: what Python says
    "batch length": 3, "magic": 4, "base offset -": 5, "crc": 6, "codec": 7, "records up to": 8,
    "is too large": 9,
}  # fmt: skip


def python_says(batch: bytes) -> tuple[int, list[int]]:
    try:
        header = read_header(batch, 0, path="t")
    except DataCorruptionError as error:
        legacy = batch[16] < 2 and "batch length" not in str(error)
        return LEGACY if legacy else next(s for t, s in FAULTS.items() if t in str(error)), []
    if header is None:
        return CUT, []
    if header.magic != 2:
        return LEGACY, []
    return SOUND, [
        header.base_offset, header.size, header.leader_epoch, header.magic, header.attributes,
        header.last_offset_delta, header.base_timestamp, header.max_timestamp, header.producer_id,
        header.producer_epoch, header.base_sequence, header.count, header.last_offset,
    ]  # fmt: skip


def scala_says(probe: Probe, batches: list[bytes]) -> list[tuple[int, list[int]]]:
    answer, at, said = probe.call("headers", pack(batches)), 0, []
    for _ in batches:
        status = int.from_bytes(answer[at : at + 4], "big")
        at += 4
        fields = list(struct.unpack_from(">13q", answer, at)) if status == SOUND else []
        at += 8 * len(fields)
        said.append((status, fields))
    assert at == len(answer)
    return said


BATCHES = [BATCH_A, BATCH_B, BATCH_D, BATCH_E, bytes(encode_one(b"k", b"v" * 300, timestamp=5))]


@pytest.mark.parametrize("batch", BATCHES)
def test_every_cut_and_flip_of_a_batch_is_the_same_fault(probe: Probe, batch: bytes) -> None:
    made = [batch, batch + b"more", *(batch[:n] for n in range(len(batch)))]
    for bit in range(8 * len(batch)):
        flipped = bytearray(batch)
        flipped[bit // 8] ^= 1 << bit % 8
        made.append(bytes(flipped))
        seal(flipped)  # what the CRC vouches for is looked at, too
        made.append(bytes(flipped))
    assert scala_says(probe, made) == [python_says(one) for one in made]


i16, i32, i64 = (st.integers(-(2**b), 2**b - 1) for b in (15, 31, 63))


@given(st.tuples(i64, i32, i16, i32, i64, i64, i64, i16, i32, i32))
@example((2**63 - 1, 0, 0, 0, 0, 0, 0, 0, 0, 0))
@example((2**63 - 1, 0, 0, 1, 0, 0, 0, 0, 0, 0))
@example((2**63 - 2, 0, 0, 1, 0, 0, 0, 0, 0, 2))
@example((0, 0, 0, 2**31 - 1, 0, 0, 0, 0, 0, 2**31 - 1))
def test_any_fields(probe: Probe, fields: tuple[int, ...]) -> None:
    base, epoch, attributes, *rest = fields
    size = HEADER_SIZE - 12
    batch = bytearray(HEADER.pack(base, size, epoch, 2, 0, attributes, *rest))
    struct.pack_into(">I", batch, CRC_START - 4, crc32c(batch[CRC_START:]))
    assert scala_says(probe, [bytes(batch)]) == [python_says(bytes(batch))]
