"""Rows picked from shared Arrow batches are framed as if they had been copied out first."""

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparklog.errors import RecordTooLargeError
from sparklog.format import kernel, records
from sparklog.format.compression import Codec
from sparklog.format.partitioner import grouped
from sparklog.format.records import Scratch, encode
from sparklog.format.rows import Picked, Rows
from tests.format import data, interpreted

PLAIN = {name: interpreted.load(name) for name in ("kernel", "framer")}
NOW = 1


def encoded(rows: Any, codec: Codec, batch_size: int, scratch: Scratch | None = None) -> bytes:
    made = encode(
        rows, codec=codec, timestamp_ms_default=NOW, batch_size=batch_size, scratch=scratch
    )
    assert made.count == sum(made.batches["count"])
    return bytes(made.data)


@given(
    made=st.lists(data.records, min_size=1, max_size=4),
    codec=st.sampled_from([Codec.NONE, Codec.LZ4]),
    batch_size=st.sampled_from([1, 100, 300, 5000, 1 << 18]),
    pick=st.randoms(use_true_random=False),
    compiled=st.booleans(),
)
def test_picked_rows_equal_copied_ones(made, codec, batch_size, pick, compiled):
    """Also where a batch on disk begins in one Arrow batch and ends in the next."""
    parts = [data.rows(*one).combine_chunks().to_batches() for one in made]
    batches = [batch for some in parts for batch in some]
    orders = [
        np.array(pick.sample(range(b.num_rows), pick.randint(0, b.num_rows)), np.int32)
        for b in batches
    ]
    picked = [
        Picked(Rows(b, default_ms=NOW), order) for b, order in zip(batches, orders, strict=True)
    ]
    copied = [b.take(pa.array(order)) for b, order in zip(batches, orders, strict=True)]
    table = pa.Table.from_batches(copied, schema=data.rows(*made[0]).schema).combine_chunks()
    with pytest.MonkeyPatch.context() as patch:
        if not compiled:
            patch.setattr("sparklog.format.rows.Framer", PLAIN["framer"].Framer)
            patch.setattr(records, "write_headers", PLAIN["framer"].write_headers)
        found = encoded(picked, codec, batch_size, Scratch())
    assert found == encoded(table, codec, batch_size)


def test_scratch_is_used_again():
    scratch = Scratch()
    table = pa.table({"value": [b"a" * 1000] * 50})
    first = encoded(table, Codec.NONE, 16384, scratch)
    size = scratch.size_bytes
    assert encoded(table, Codec.NONE, 16384, scratch) == first
    assert scratch.size_bytes == size


def test_output_grows_where_the_estimate_was_short():
    """One large row among small ones: a share by rows is too little for it."""
    batch = pa.RecordBatch.from_pydict({"value": [b"x"] * 999 + [b"y" * 500_000]})
    rows = Rows(batch, default_ms=NOW)
    found = encoded([Picked(rows, np.array([999, 0], np.int32))], Codec.NONE, 1 << 18)
    assert found == encoded(batch.take(pa.array([999, 0])), Codec.NONE, 1 << 18)


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.ZSTD])
def test_a_large_row_in_the_second_input_is_named(codec):
    noise = np.random.default_rng(1).bytes(5000)
    small = Rows(pa.RecordBatch.from_pydict({"value": [b"x"] * 3}), default_ms=NOW)
    large = Rows(pa.RecordBatch.from_pydict({"value": [b"x", noise]}), default_ms=NOW)
    with pytest.raises(RecordTooLargeError, match="row 4 "):
        encode(
            [Picked(small), Picked(large)],
            codec=codec,
            timestamp_ms_default=NOW,
            max_message_bytes=3000,
        )


def test_codec_that_helps_nothing_halves_batches_across_inputs():
    """Batches that come out larger than max.message.bytes are framed again, in smaller ones."""
    rng = np.random.default_rng(2)
    batches = [
        pa.RecordBatch.from_pydict({"value": [rng.bytes(90) for _ in range(10)]}) for _ in range(4)
    ]
    made = encode(
        [Picked(Rows(b, default_ms=NOW)) for b in batches],
        codec=Codec.GZIP,
        timestamp_ms_default=NOW,
        max_message_bytes=1000,
    )
    assert made.batches["size"].max() <= 1000
    assert made.batches["base_offset"].tolist() == [
        0,
        *(made.batches["last_offset"][:-1] + 1).tolist(),
    ]
    assert made.count == made.batches["count"].sum() == 40


@given(st.lists(st.integers(0, 40), min_size=1, max_size=200))
def test_grouped_is_a_stable_sort(numbers):
    array = np.array(numbers, np.int32)
    expected = {n: [i for i, m in enumerate(numbers) if m == n] for n in sorted(set(numbers))}
    assert {n: order.tolist() for n, order in grouped(array)} == expected
    starts, order = np.empty(42, np.int64), np.empty(len(array), np.int32)
    again = starts.copy(), order.copy()
    kernel.group_rows(array.data, starts.data, order.data)
    PLAIN["kernel"].group_rows(array.data, again[0].data, again[1].data)
    assert np.array_equal(starts, again[0])
    assert np.array_equal(order, again[1])
