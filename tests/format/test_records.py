"""Records out and in: golden bytes, limits, Arrow's many shapes, and round trips."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparklog.errors import DataCorruptionError, InvalidRequestError, RecordTooLargeError
from sparklog.format.batch import LOG_APPEND_TIME, seal
from sparklog.format.columns import HEADERS_TYPE
from sparklog.format.compression import Codec
from sparklog.format.records import Decoder, encode
from sparklog.format.scan import read_header, rebase, scan
from tests.format import data
from tests.format.data import BATCH_A, BATCH_B, BATCH_D, BATCH_E, NOW


def decoded(raw, columns=None, **options) -> pa.RecordBatch:
    found = scan(raw, path="t")
    assert found.error is None
    assert found.end == len(raw)
    decoder = Decoder(columns)
    assert decoder.add_many(raw, found.table, path="t", **options) == len(found)
    batch = decoder.finish()
    batch.validate(full=True)
    return batch


def write(table, codec=Codec.NONE, **options):
    return encode(table, codec=codec, timestamp_ms_default=NOW, **options)


def test_golden_a_is_what_we_write():
    """Trap 13: the base timestamp is the first record's, deltas are signed."""
    table = data.rows(
        (NOW, b"k", b"v1"), (NOW + 5, None, None, [{"key": "h", "value": None}]),
        (NOW - 10, b"k2", b""),
    )  # fmt: skip
    made = write(table, producer=(7, 1, 42))
    rebase(made.data, 100, 3)
    assert bytes(made.data) == BATCH_A


def test_golden_a_is_what_we_read():
    assert decoded(BATCH_A).to_pydict() == {
        "key": [b"k", None, b"k2"],
        "value": [b"v1", None, b""],
        "offset": [100, 101, 102],
        "timestamp": pa.array(
            [NOW * 1000, NOW * 1000 + 5000, NOW * 1000 - 10000], pa.timestamp("us", "UTC")
        ).to_pylist(),
        "timestampType": [0, 0, 0],
        "headers": [[], [{"key": "h", "value": None}], []],
    }


def test_times_under_a_delete_horizon():
    """MemoryRecordsTest.testBaseTimestampToDeleteHorizonConversion; trap 14."""
    read = decoded(BATCH_D)
    assert read["key"].to_pylist() == [b"b", b"a", b"c"]
    assert read["offset"].to_pylist() == [101, 102, 103]
    micros = read["timestamp"].cast(pa.int64()).to_pylist()
    assert micros == [(NOW + ms) * 1000 for ms in (5, 9, 3)]


def test_control_and_emptied_batches_add_nothing():
    read = decoded(BATCH_A + BATCH_B + BATCH_E.replace(b"\0\0\0d", b"\0\0\0h", 1))
    assert read["offset"].to_pylist() == [100, 101, 102]


def test_log_append_time():
    made = write(data.rows((5, b"k", b"v"), (7, b"k", b"v")), log_append_time=NOW)
    assert read_header(made.data, 0, path="t").attributes & LOG_APPEND_TIME
    read = decoded(made.data)
    assert read["timestamp"].cast(pa.int64()).to_pylist() == [NOW * 1000] * 2
    assert read["timestampType"].to_pylist() == [1, 1]


@given(
    data.records,
    st.sampled_from(Codec),
    st.sampled_from([1, 100, 1000, 16384]),
    st.integers(0, 2**40),
)
def test_round_trip(records, codec, batch_size, base):
    table = data.rows(*records)
    made = write(table, codec, batch_size=batch_size, base_offset=base, producer=(9, 3, 2**31 - 5))
    found = scan(made.data, path="t")
    assert np.array_equal(found.table, made.batches)
    assert made.count == len(records)
    read = decoded(made.data)
    assert read["offset"].to_pylist() == list(range(base, base + len(records)))
    assert read["key"].to_pylist() == [r[1] for r in records]
    assert read["value"].to_pylist() == [r[2] for r in records]
    assert read["headers"].to_pylist() == [r[3] or [] for r in records]
    times = [NOW if r[0] is None else r[0] for r in records]
    micros = [max(min(ms * 1000, 2**63 - 1), 1 - 2**63) for ms in times]
    assert read["timestamp"].cast(pa.int64()).to_pylist() == micros


@given(data.records, st.data())
def test_any_range_of_offsets(records, draw):
    made = write(data.rows(*records), Codec.LZ4, batch_size=200, base_offset=10)
    first = draw.draw(st.integers(0, 80))
    end = draw.draw(st.integers(0, 80))
    wanted = [o for o in range(10, 10 + len(records)) if first <= o < end]
    assert decoded(made.data, first=first, end=end)["offset"].to_pylist() == wanted
    plain = write(data.rows(*records), batch_size=200, base_offset=10)
    assert decoded(plain.data, ["offset"], first=first, end=end)["offset"].to_pylist() == wanted


@given(data.records, st.integers(0, 20), st.integers(0, 40))
def test_slices_and_chunks(records, skip, length):
    table = data.rows(*records)
    whole = pa.concat_tables([table, table, table.slice(skip, length)])
    for part in (whole, table.slice(skip, length), *table.slice(skip, length).to_batches()):
        read = decoded(write(part).data)
        for name in ("key", "value"):
            assert read[name].to_pylist() == part[name].to_pylist()
        assert read["headers"].to_pylist() == [h or [] for h in part["headers"].to_pylist()]


TEXT = ["a", None, "", "häß"]


@pytest.mark.parametrize(
    "kind",
    [
        pa.string(), pa.large_string(), pa.binary(), pa.large_binary(), pa.string_view(),
        pa.binary_view(), pa.dictionary(pa.int32(), pa.string()),
    ],
)  # fmt: skip
def test_every_kind_of_text_and_bytes(kind):
    array = pa.array(TEXT, pa.string()).cast(kind).slice(1)
    read = decoded(write(pa.table({"key": array, "value": array})).data)
    assert read["key"].to_pylist() == [None, b"", "häß".encode()]
    assert read["value"].equals(read["key"])


def test_columns_that_are_all_null_or_not_there():
    read = decoded(write(pa.table({"key": pa.nulls(2), "value": pa.nulls(2)})).data)
    assert read["key"].to_pylist() == [None, None]
    read = decoded(write(pa.table({"value": pa.array([b"v"])})).data, ["value", "key"])
    assert read.to_pydict() == {"value": [b"v"], "key": [None]}
    assert write(pa.table({"value": pa.array([], pa.binary())})).count == 0


@pytest.mark.parametrize(
    ("unit", "ticks", "ms"),
    [("s", -3, -3000), ("ms", 7, 7), ("us", -1, -1), ("us", 1999, 1), ("ns", -1_000_001, -2)],
)
def test_timestamps_are_rounded_down(unit, ticks, ms):
    stamps = pa.array([ticks], pa.timestamp(unit, "UTC"))
    made = write(pa.table({"value": [b""], "timestamp": stamps}))
    assert made.batches["max_timestamp"][0] == ms


@pytest.mark.parametrize(
    "table",
    [
        pa.table({"value": pa.array([1])}),
        pa.table({"key": pa.array([b"k"])}),
        pa.table({"value": [b"v"], "other": [1]}),
        pa.table({"value": [b"v"], "timestamp": [1]}),
        pa.table({"value": [b"v"], "headers": [1]}),
        pa.table({"value": [b"v"], "headers": pa.array([[None]], HEADERS_TYPE)}),
        pa.table({"value": [b"v"], "headers": pa.array([[{"key": None}]], HEADERS_TYPE)}),
    ],
)
def test_columns_that_are_no_records(table):
    """DefaultRecordTest.testNullHeaderKey among them."""
    with pytest.raises(InvalidRequestError):
        write(table)


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.LZ4, Codec.ZSTD])
def test_too_large_a_record_names_row_and_size(codec):
    rng = np.random.default_rng(1)
    table = pa.table({"value": [b"small", rng.bytes(3000), b"small"]})
    advice = r"row 1 makes a batch of 30\d\d bytes, .* increase it, or make the record smaller"
    with pytest.raises(RecordTooLargeError, match=advice):
        write(table, codec, max_message_bytes=1000)
    assert write(table, codec, max_message_bytes=4000).batches["count"].sum() == 3
    smaller = pa.table({"value": [b"small", rng.bytes(500), b"small"]})
    assert write(smaller, codec, max_message_bytes=1000).batches["count"].sum() == 3


def test_batches_keep_to_max_message_bytes_whatever_the_codec_makes_of_them():
    noise = np.random.default_rng(1)
    table = pa.table({"value": [noise.bytes(60) for _ in range(200)]})
    for codec in Codec:
        made = write(table, codec, batch_size=10**6, max_message_bytes=1000)
        assert made.batches["size"].max() <= 1000
        assert decoded(made.data)["value"].to_pylist() == table["value"].to_pylist()


def test_a_full_decoder_says_so():
    made = write(pa.table({"value": [b"x" * 100] * 50}), batch_size=500)
    packed = write(pa.table({"value": [b"x" * 100] * 50}), Codec.LZ4, batch_size=500)
    for one in (made, packed):
        decoder, left, offsets = Decoder(["offset", "value"], max_bytes=1200), one.batches, []
        while len(left):
            done = decoder.add_many(one.data, left, path="t")
            assert done > 0
            left = left[done:]
            offsets += decoder.finish()["offset"].to_pylist()
        assert offsets == list(range(50))


@given(st.binary(max_size=120), st.integers(-5, 200), st.sampled_from(Codec))
def test_noise_for_records_is_corruption_and_nothing_else(noise, count, codec):
    """DefaultRecordTest.testInvalidSizeOfBodyInBytes and all its neighbours."""
    bad = bytearray(BATCH_A[:61]) + noise
    bad[8:12] = (49 + len(noise)).to_bytes(4, "big")
    bad[21:23] = int(codec).to_bytes(2, "big")
    bad[23:27] = (2**31 - 1).to_bytes(4, "big")
    bad[57:61] = count.to_bytes(4, "big", signed=True)
    seal(bad)
    found = scan(bad, path="t")
    if not len(found):
        assert found.error is not None
        return
    decoder = Decoder()
    try:
        decoder.add_many(bad, found.table, path="t", position=0)
    except DataCorruptionError as error:
        assert error.path == "t"  # noqa: PT017
        assert (error.first, error.end) in ((100, 100 + 2**31), (None, None))  # noqa: PT017
    decoder.finish().validate(full=True)


@pytest.mark.parametrize("spare", [b"\0", b"\0" * 20])
def test_a_spare_byte_is_corruption(spare):
    bad = bytearray(BATCH_A + spare)
    bad[8:12] = (78 + len(spare)).to_bytes(4, "big")
    seal(bad)
    with pytest.raises(DataCorruptionError, match="left over"):
        Decoder().add(bad, 0, read_header(bad, 0, path="t"), path="t")


def test_header_keys_that_are_no_text():
    made = bytearray(write(data.rows((NOW, b"k", b"v", [{"key": "hh", "value": b"1"}]))).data)
    at = made.index(b"hh")
    made[at : at + 2] = b"\xff\xfe"
    seal(made)
    assert decoded(made)["headers"].to_pylist() == [[{"key": "��", "value": b"1"}]]


def test_unknown_columns_are_refused():
    with pytest.raises(InvalidRequestError, match="offfset"):
        Decoder(["offfset"])
