"""Message sets of magic 0 and 1, written here by hand and by kafka-python's rules."""

import struct
import zlib

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparklog.errors import DataCorruptionError
from sparklog.format import legacy
from sparklog.format.compression import Codec, compress
from sparklog.format.legacy import _xxh32
from sparklog.format.records import Decoder
from sparklog.format.scan import read_header, scan
from tests.format.data import BATCH_A


def message(offset, key, value, *, magic=1, attributes=0, time=0) -> bytes:
    body = struct.pack(">bb", magic, attributes) + (struct.pack(">q", time) if magic else b"")
    for field in (key, value):
        body += struct.pack(">i", -1 if field is None else len(field)) + (field or b"")
    return struct.pack(">qiI", offset, len(body) + 4, zlib.crc32(body)) + body


def wrapper(offset, inner, codec, *, magic=1, attributes=0, time=0) -> bytes:
    packed = compress(codec, inner)
    if codec == Codec.LZ4 and magic == 0:  # Kafka hashed the frame's magic number as well
        packed = packed[:6] + bytes([_xxh32(packed[:6]) >> 8 & 0xFF]) + packed[7:]
    return message(offset, None, packed, magic=magic, attributes=int(codec) | attributes, time=time)


def decoded(raw) -> pa.RecordBatch:
    found = scan(raw, path="t")
    assert found.error is None
    decoder = Decoder()
    assert decoder.add_many(raw, found.table, path="t") == len(found)
    return decoder.finish()


def test_plain_messages():
    raw = message(5, b"k", None, time=77) + message(6, None, b"v", magic=0) + BATCH_A
    found = scan(raw, path="t")
    assert found.table["magic"].tolist() == [1, 0, 2]
    assert found.table["base_offset"].tolist() == [5, 6, 100]
    read = decoded(raw)
    assert read["offset"].to_pylist() == [5, 6, 100, 101, 102]
    assert read["key"].to_pylist()[:2] == [b"k", None]
    assert read["value"].to_pylist()[:2] == [None, b"v"]
    assert read["timestamp"].cast(pa.int64()).to_pylist()[:2] == [77000, -1000]
    assert read["timestampType"].to_pylist()[:2] == [0, -1]
    assert read["headers"].to_pylist()[:2] == [[], []]


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY, Codec.LZ4])
@pytest.mark.parametrize("magic", [0, 1])
def test_wrapped_messages(codec, magic):
    first = 40 if magic == 0 else 0  # magic 1 counts from 0 inside
    inner = b"".join(
        message(first + step, b"k%d" % step, b"v" * 50, magic=magic, time=9 - step)
        for step in (0, 1, 3)
    )
    raw = wrapper(43, inner, codec, magic=magic, time=9)
    header = read_header(raw, 0, path="t")
    assert (header.base_offset, header.last_offset, header.count) == (40, 43, 3)
    assert header.max_timestamp == (9 if magic else -1)
    assert decoded(raw)["offset"].to_pylist() == [40, 41, 43]
    decoder = Decoder(["key"])
    decoder.add(raw, 0, header, first=41, end=43, path="t")
    assert decoder.finish()["key"].to_pylist() == [b"k1"]


def test_log_append_time():
    inner = message(0, None, b"a", time=5) + message(1, None, b"b", time=6)
    raw = wrapper(1, inner, Codec.GZIP, attributes=8, time=99)
    read = decoded(raw)
    assert read["timestamp"].cast(pa.int64()).to_pylist() == [99000, 99000]
    assert read["timestampType"].to_pylist() == [1, 1]


def test_crc():
    """LegacyRecordTest.testChecksum."""
    raw = bytearray(message(5, b"k", b"v"))
    raw[-1] ^= 1
    with pytest.raises(DataCorruptionError, match="CRC"):
        read_header(raw, 0, path="t")
    assert scan(raw, path="t").error is not None


@given(st.binary(max_size=60), st.integers(0, 1), st.integers(0, 4))
def test_noise_raises_nothing_else(noise, magic, codec):
    body = struct.pack(">bb", magic, codec) + noise
    raw = struct.pack(">qiI", 3, len(body) + 4, zlib.crc32(body)) + body + bytes(20)
    scan(raw, path="t")
    wrapped = message(3, None, noise, magic=magic, attributes=codec)
    found = scan(wrapped, path="t")
    if len(found):
        Decoder().add_many(wrapped, found.table, path="t")


@pytest.mark.parametrize(
    "inner",
    [b"", message(0, None, b"a", magic=0), message(0, None, b"a")[:-1],
     message(1, None, b"a") + message(0, None, b"b"), message(0, None, b"", attributes=1)],
)  # fmt: skip
def test_damaged_inner_sets(inner):
    with pytest.raises(DataCorruptionError):
        read_header(wrapper(3, inner, Codec.GZIP), 0, path="t")


@pytest.mark.parametrize(("inner", "said"), [
    (message(0, None, b"\0" * (1 << 20)), "more than 1048576 bytes"),
    (b"".join(message(n, None, b"") for n in range(1001)), "more than 1000 messages"),
], ids=["bytes", "messages"])  # fmt: skip
def test_a_set_that_unpacks_to_anything(inner, said, monkeypatch):
    """A megabyte of gzip holds gigabytes: who only looks for its offsets doesn't get them."""
    monkeypatch.setattr(legacy, "PLAIN_BYTES_MAX", 1 << 20)
    monkeypatch.setattr(legacy, "MESSAGES_MAX", 1000)
    found = scan(wrapper(0, inner, Codec.GZIP), path="t")
    assert len(found) == 0
    assert said in str(found.error)


def test_xxh32_of_the_specification():
    assert _xxh32(b"") == 0x02CC5D05
    assert _xxh32(b"a") == 0x550D7456
    assert _xxh32(b"abc") == 0x32D153FF
