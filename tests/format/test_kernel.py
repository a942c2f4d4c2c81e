"""Both builds of the kernel do the same, byte for byte; varints and murmur2 as Kafka's."""

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparklog.format import decoder, framer, kernel, parser, records
from sparklog.format.buffers import RecordBuffers
from sparklog.format.compression import Codec
from sparklog.format.partitioner import murmur2_partitions
from sparklog.format.records import Decoder, encode
from sparklog.format.scan import scan
from tests.format import data, interpreted

PLAIN = {name: interpreted.load(name) for name in ("kernel", "framer", "parser")}
MIN, MAX = -(2**63), 2**63 - 1


def test_builds_are_the_same_everywhere():
    """A half-compiled package would be slow without saying so."""
    for module in (kernel, framer, parser):
        assert module.__file__.endswith(".py") != kernel.COMPILED


def both(table: pa.Table, batch_size: int) -> tuple[bytes, pa.RecordBatch]:
    made = encode(
        table, codec=Codec.NONE, timestamp_ms_default=1, batch_size=batch_size, producer=(1, 2, 3)
    )
    found = scan(made.data, path="t")
    reader = Decoder()
    reader.add_many(made.data, found.table, path="t")
    return bytes(made.data), reader.finish()


@given(made=data.records, batch_size=st.sampled_from([1, 300, 5000]))
def test_compiled_and_interpreted_agree(made, batch_size):
    table = data.rows(*made)
    expected = both(table, batch_size)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sparklog.format.scan.kernel", PLAIN["kernel"])
        patch.setattr("sparklog.format.rows.Framer", PLAIN["framer"].Framer)
        patch.setattr(records, "write_headers", PLAIN["framer"].write_headers)
        patch.setattr("sparklog.format.buffers.Parser", PLAIN["parser"].Parser)
        assert isinstance(RecordBuffers([]).parser, PLAIN["parser"].Parser)
        assert both(table, batch_size) == expected


def parse_with(module: Any, raw: bytes, count: int, last: int) -> tuple[Any, ...]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sparklog.format.buffers.Parser", module.Parser)
        buffers = RecordBuffers(list(decoder.SCHEMA.names))
        buffers.reserve(100, 4000)
        buffers._headers_room = 100
        for column in (buffers._name, buffers._content):
            column.data.reserve(1000, 0)
        buffers._size(0, 0, 0)
        status = buffers.parser.parse(
            memoryview(raw), 0, len(raw), count, 5, 5 + last, MAX - 3, 7, 0, 6, 90
        )
        return status, buffers.parser.fault_at, buffers.finish()


@given(st.binary(max_size=80), st.integers(-1, 12), st.integers(0, 50))
def test_they_agree_on_noise(raw, count, last):
    assert parse_with(parser, raw, count, last) == parse_with(PLAIN["parser"], raw, count, last)


framed = st.builds(
    lambda rows: bytes(
        encode(data.rows(*rows), codec=Codec.NONE, timestamp_ms_default=1).data[61:]
    ),
    st.lists(data.record, min_size=1, max_size=5),
)


@given(framed, st.integers(0, 5), st.integers(0, 200), st.integers(0, 255))
def test_they_agree_on_damaged_records(raw, count, at, byte):
    bad = bytearray(raw)
    bad[at % len(bad)] = byte
    outcomes = [parse_with(module, bytes(bad), count, 50) for module in (parser, PLAIN["parser"])]
    assert outcomes[0] == outcomes[1]


@given(st.binary(max_size=300), st.integers(0, 20))
def test_they_agree_on_walks_and_numbers(noise, at):
    raw = data.BATCH_A + data.BATCH_B + data.BATCH_D + noise
    tables = [np.zeros((9, kernel.COLUMNS), np.int64) for _ in range(2)]
    results = [
        module.walk(memoryview(raw), at * 18, table.data, 9)
        for module, table in zip((kernel, PLAIN["kernel"]), tables, strict=True)
    ]
    assert results[0] == results[1]
    assert np.array_equal(*(t[: results[0][0]] for t in tables))
    changed = [bytearray(raw), bytearray(raw)]
    ends = [
        module.renumber(memoryview(buf), 77, 9)
        for module, buf in zip((kernel, PLAIN["kernel"]), changed, strict=True)
    ]
    assert ends[0] == ends[1]
    assert changed[0] == changed[1]


@pytest.mark.parametrize(
    ("value", "raw"),
    [
        (0, "00"), (-1, "01"), (1, "02"), (63, "7e"), (-64, "7f"), (64, "8001"), (-65, "8101"),
        (8191, "fe7f"), (-8192, "ff7f"), (8192, "808001"), (2**31 - 1, "feffffff0f"),
        (-(2**31), "ffffffff0f"), (MAX, "feffffffffffffffff01"), (MIN, "ffffffffffffffffff01"),
    ],
)  # fmt: skip
def test_varints(value, raw):
    """ByteUtilsTest.testVarintSerde, testVarlongSerde."""
    buf = memoryview(bytearray(12))
    end = PLAIN["framer"].put_varint(buf, 0, value)
    assert bytes(buf[:end]).hex() == raw
    assert PLAIN["framer"].varint_size(value) == end
    assert PLAIN["parser"].varint_bytes(buf, 0, 12, 10) == end
    assert PLAIN["parser"].varint_value(buf, 0, end) == value


def test_a_sixth_byte_is_refused():
    """ByteUtilsTest.testInvalidVarint."""
    assert PLAIN["parser"].varint_bytes(memoryview(b"\xff" * 5 + b"\1"), 0, 6, 5) == 0
    assert PLAIN["parser"].varint_bytes(memoryview(b"\xff\xff"), 0, 2, 5) == 0


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        (b"21", -973932308), (b"foobar", -790332482), (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971), (b"abc", 479470107),
    ],
)  # fmt: skip
def test_murmur2_of_kafka(key, expected):
    """UtilsTest.testMurmur2."""
    partitions = 2**31 - 1
    array = pa.array([b"x", key, None], pa.binary()).slice(1)
    found = murmur2_partitions(array, partitions)
    assert found.tolist() == [(expected & 0x7FFFFFFF) % partitions, -1]
    assert PLAIN["kernel"].murmur2(memoryview(key), 0, len(key)) == expected & 0xFFFFFFFF


@given(st.lists(st.one_of(st.none(), st.binary(max_size=30)), max_size=20), st.integers(1, 50))
def test_partitions_agree(keys, partitions):
    array = pa.chunked_array([pa.array(keys, pa.binary()), pa.array(keys, pa.binary())])
    found = murmur2_partitions(array, partitions)
    plain = PLAIN["kernel"].murmur2
    one = [
        -1 if k is None else (plain(memoryview(k), 0, len(k)) & 0x7FFFFFFF) % partitions
        for k in keys
    ]
    assert found.tolist() == one * 2
