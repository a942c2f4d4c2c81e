"""Scala reads a batch as Python does: the same records, or the same fault."""


import pytest

from sparklog.format.batch import HEADER_SIZE
from sparklog.format.compression import Codec
from sparklog.format.records import encode
from tests.format import data
from tests.format.data import BATCH_A, BATCH_B, BATCH_D, BATCH_E, NOW
from tests.jvm.probe import Probe
from tests.jvm.reading import agree, resealed

FEW = data.rows(
    (NOW, b"key", b"value" * 9, [{"key": "h", "value": b"x"}, {"key": "h", "value": None}]),
    (NOW + 70, None, b"value" * 9), (NOW - 3, b"", None, [{"key": "", "value": b""}]),
)  # fmt: skip


def batch_of(table, codec=Codec.NONE, **options) -> bytes:
    """All rows in one batch."""
    made = encode(
        table, codec=codec, timestamp_ms_default=NOW, batch_size=2**30, max_message_bytes=2**30,
        **options,
    )  # fmt: skip
    assert len(made.batches) == 1
    return bytes(made.data)


BATCHES = {
    "golden": BATCH_A, "marker": BATCH_B, "compacted": BATCH_D, "emptied": BATCH_E,
    **{codec.name: batch_of(FEW, codec, base_offset=7) for codec in Codec},
    "append time": batch_of(FEW, log_append_time=NOW + 5),
}  # fmt: skip


@pytest.mark.parametrize("name", BATCHES)
def test_every_cut_and_flip(probe: Probe, name: str) -> None:
    """As they are found in a file, and where the CRC vouches for them."""
    batch = BATCHES[name]
    cuts = [batch[:size] for size in range(len(batch))]
    shorter = [resealed(cut) for cut in cuts[HEADER_SIZE:]]
    flips = []
    for bit in range(8 * len(batch)):
        flipped = bytearray(batch)
        flipped[bit // 8] ^= 1 << bit % 8
        flips += [bytes(flipped), resealed(flipped)]
    agree(probe, [batch, *cuts, *shorter, *flips])
