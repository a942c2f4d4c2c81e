"""Batches whose records keep offsets with gaps."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparklog.errors import InvalidRequestError, RecordTooLargeError
from sparklog.format.compression import Codec
from sparklog.format.records import Decoder
from sparklog.format.scan import row_header, scan
from sparklog.format.sparse_records import SPAN_MAX, Spaced, encode_spaced


def made(offsets: list[int], start: int, end: int, codec: Codec = Codec.NONE, **more) -> Spaced:
    rows = pa.RecordBatch.from_pydict(
        {
            "key": pa.array([None if n % 3 else b"k%d" % n for n in offsets], pa.binary()),
            "value": pa.array([None if n % 5 == 0 else b"v%d" % n for n in offsets], pa.binary()),
            "timestamp": pa.array([1_000 + n % 977 for n in offsets], pa.timestamp("ms")),
        }
    )
    given = {"batch_size": 200, "max_message_bytes": 10_000} | more
    where = np.array(offsets, np.int64)
    return encode_spaced(rows, where, start=start, end=end, codec=codec, **given)


def check(offsets: list[int], start: int, end: int, codec: Codec = Codec.NONE) -> np.ndarray:
    """The batches cover [start, end) without a hole, and hold the records at their offsets."""
    found = made(offsets, start, end, codec)
    whole = scan(found.data, path="x")
    table = whole.table
    assert (whole.end, whole.error) == (len(found.data), None)
    if start < end:
        assert (table["base_offset"][0], table["last_offset"][-1]) == (start, end - 1)
    assert (table["base_offset"][1:] == table["last_offset"][:-1] + 1).all()
    decoder = Decoder(["key", "value", "offset", "timestamp"])
    for row in table:
        decoder.add(found.data, int(row["position"]), row_header(row), path="x")
    read = decoder.finish().to_pylist()
    assert [row["offset"] for row in read] == offsets
    assert [row["value"] for row in read] == [None if n % 5 == 0 else b"v%d" % n for n in offsets]
    assert [row["key"] for row in read] == [None if n % 3 else b"k%d" % n for n in offsets]
    assert [round(row["timestamp"].timestamp() * 1000) for row in read] == [
        1_000 + n % 977 for n in offsets
    ]
    return table


@settings(max_examples=40)
@given(
    st.lists(st.sampled_from([1, 1, 1, 2, 3, 70, 20_000]), max_size=120),
    st.integers(0, 300),
    st.integers(0, 300),
    st.sampled_from([Codec.NONE, Codec.ZSTD]),
)
def test_any_gaps(steps: list[int], before: int, behind: int, codec: Codec) -> None:
    offsets = (100 + before + np.cumsum(steps)).tolist()
    check(offsets, 100, (offsets[-1] if offsets else 100) + 1 + behind, codec)


def test_gaps_that_no_batch_spans() -> None:
    far = 5 * SPAN_MAX
    table = check([0, 1, far, far + SPAN_MAX, far + SPAN_MAX + 1], 0, far + 3 * SPAN_MAX)
    assert (table["count"] == 0).sum() >= 5
    assert int((table["last_offset"] - table["base_offset"]).max()) == SPAN_MAX


def test_gaps_cost_little() -> None:
    """Every other record gone, as a cleaner leaves it: no batch a record."""
    every = list(range(0, 20_000, 2))
    size = len(made(every, 0, 20_000, batch_size=1 << 18, max_message_bytes=1 << 20).data)
    dense = len(made(every, 0, every[-1] + 1, batch_size=1 << 18, max_message_bytes=1 << 20).data)
    assert size == dense
    assert size < 25 * len(every)


@pytest.mark.parametrize(
    ("offsets", "start", "end"),
    [([3, 3], 0, 5), ([4, 3], 0, 5), ([3], 4, 5), ([5], 0, 5), ([], 2, 1)],
)
def test_wrong_offsets(offsets: list[int], start: int, end: int) -> None:
    with pytest.raises(InvalidRequestError):
        made(offsets, start, end)


def test_too_large() -> None:
    rows = pa.RecordBatch.from_pydict({"value": pa.array([bytes(5000)])})

    def encoded(max_message_bytes: int) -> Spaced:
        return encode_spaced(
            rows, np.array([7]), start=7, end=8, codec=Codec.NONE, batch_size=100,
            max_message_bytes=max_message_bytes,
        )  # fmt: skip

    with pytest.raises(RecordTooLargeError, match=r"max\.message\.bytes is 1000: increase it"):
        encoded(1000)
    assert scan(encoded(6000).data, path="x").table["last_offset"].tolist() == [7]


@pytest.mark.parametrize("step", [1, 2])
@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
def test_small_batches_where_the_limit_is_small(codec: Codec, step: int) -> None:
    """Headers, longer deltas and what a codec adds count, too."""
    offsets = list(range(0, 3000, step))
    found = made(offsets, 0, 3000, codec, batch_size=1 << 18, max_message_bytes=400)
    table = scan(found.data, path="x").table
    assert int(table["size"].max()) <= 400
    assert int(table["count"].sum()) == len(offsets)
    assert found.min_timestamp == 1_000
