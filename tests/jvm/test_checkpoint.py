"""A checkpoint's batches: Scala writes what Python writes, and gives damage to the same files."""

import random
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparklog.checkpoint.log_backed.damaged_records import examine
from sparklog.format.batch import encode_one, seal
from sparklog.format.scan import rebase
from tests import depth
from tests.depth import by_depth
from tests.jvm.probe import Probe, pack

Found = list[tuple[int, str, bool]] | None
"""(position, key, whether it is a deletion) of each record; None if that isn't known."""


def batch(offset: int, epoch: int, timestamp: int, key: bytes, value: bytes | None) -> bytes:
    made = encode_one(key, value, timestamp=timestamp)
    rebase(made, offset, epoch)
    return bytes(made)


@given(
    st.integers(0, 2**62), st.integers(0, 2**31 - 1), st.integers(-(2**40), 2**45),
    st.text(min_size=1, max_size=70).map(str.encode),
    st.none() | st.binary(max_size=20) | st.integers(0, 20_000).map(bytes),
)  # fmt: skip
def test_batches(
    probe: Probe, offset: int, epoch: int, timestamp: int, key: bytes, value: bytes | None
) -> None:
    head = struct.pack(">qiqi", offset, epoch, timestamp, len(key)) + key
    asked = head + (struct.pack(">i", -1) if value is None else pack([value]))
    made = probe.call("checkpoint batch", asked)
    assert made == batch(offset, epoch, timestamp, key, value)


def python(raw: bytes, first: int, end: int) -> Found:
    found = examine(raw, position=0, first=first, end=end, epoch=3)
    if any(record.key is None for record in found):
        return None
    return [(record.position, record.key or "", record.is_deletion) for record in found]


def scala(probe: Probe, asked: list[tuple[bytes, int, int]]) -> list[Found]:
    data = b"".join(struct.pack(">qq", first, end) + pack([raw]) for raw, first, end in asked)
    answer, at, said = probe.call("damaged records", data), 0, list[Found]()
    for _ in asked:
        (count,) = struct.unpack_from(">i", answer, at)
        at += 4
        records = []
        for _ in range(count):
            position, size = struct.unpack_from(">qi", answer, at)
            at += 12 + size + 1
            key = answer[at - size - 1 : at - 1].decode()
            records.append((position, key, bool(answer[at - 1])))
        said.append(None if count < 0 else records)
    return said


KEYS = (b"0", b"state/0/_metadata/v2/17", "ü".encode() * 50)
VALUES = (None, b"", b"v1\n{}\n" * 12, bytes(70_000))
EVERY = [batch(5, 3, 1_700_000_000_000, key, value) for key in KEYS for value in VALUES]
WHOLE = by_depth(small=EVERY[2::5], ci=EVERY, all=EVERY)


@pytest.mark.parametrize("whole", WHOLE, ids=range(len(WHOLE)))
def test_damage(probe: Probe, whole: bytes) -> None:
    """A byte anywhere, two, a hole, a cut, another's CRC, and a damaged neighbour."""
    rng = random.Random(len(whole))
    asked = []
    places = [*range(min(len(whole), 200)), len(whole) - 1]
    for at in places[:: depth.by_depth(small=7, ci=2, all=1)]:
        one = bytearray(whole)
        one[at] ^= rng.randrange(1, 256)
        two = bytearray(one)
        two[rng.randrange(len(two))] ^= rng.randrange(1, 256)
        hole = bytearray(whole)
        hole[at : at + 9] = bytes(len(hole[at : at + 9]))
        other = bytearray(one)
        seal(other)
        made = [one, two, hole, other, whole[:at], one + two, whole + one, one + whole[:at]]
        asked += [(bytes(raw), 5, end) for raw in made for end in (5, 6, 7)]
    found = scala(probe, asked)
    assert found == [python(*each) for each in asked]
    assert any(found)
