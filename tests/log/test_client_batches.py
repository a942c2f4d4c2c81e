"""A client's records: LogValidatorTest's behaviours, and what clients may lie about."""

import gzip
import os
import tracemalloc
from dataclasses import replace
from typing import Any

import lz4.frame
import numpy as np
import pyarrow as pa
import pytest
import zstandard
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st

from sparklog.common import TopicPartition
from sparklog.config import TopicConfig
from sparklog.errors import InvalidRequestError, RecordTooLargeError
from sparklog.format import batch as batches
from sparklog.format.batch import HEADER_SIZE, BatchHeader, unpack_header
from sparklog.format.compression import Codec, compress
from sparklog.format.decoder import Decoder
from sparklog.format.records import encode
from sparklog.log.client_batches import (
    PLAIN_BYTES_MAX,
    ClientBatch,
    Fault,
    RefusedBatchError,
    check_form,
    chunk_of,
)
from sparklog.storage.commits import Chunk
from tests.format import interpreted

KEY = TopicPartition("t", 3)
NOW = 1_700_000_000_000
HOUR = 3_600_000
MIN64, MAX64 = -(2**63), 2**63 - 1


def made(
    *values: bytes,
    codec: Codec = Codec.NONE,
    keys: list[bytes | None] | None = None,
    at: list[int] | None = None,
    producer: tuple[int, int, int] | None = None,
    headers: Any = None,
) -> bytes:
    """One batch of these values."""
    columns = {
        "key": pa.array(keys or [b"k"] * len(values), pa.binary()),
        "value": pa.array(values, pa.binary()),
        "timestamp": pa.array(at or [NOW] * len(values), pa.timestamp("ms")),
    }
    if headers is not None:
        kind = pa.struct([("key", pa.string()), ("value", pa.binary())])
        columns["headers"] = pa.array(headers, pa.list_(kind))
    encoded = encode(
        pa.record_batch(columns), codec=codec, batch_size=1 << 30, max_message_bytes=1 << 30,
        timestamp_ms_default=NOW, producer=producer,
    )  # fmt: skip
    assert len(encoded.batches) == 1
    return bytes(encoded.data)


def changed(data: bytes, records: bytes | None = None, **fields: int) -> bytes:
    """The batch with other header fields, or other bytes as records, and the CRC that fits."""
    body = data[HEADER_SIZE:] if records is None else records
    header = replace(unpack_header(data, 0), length=HEADER_SIZE - 12 + len(body))
    header = replace(header, **fields)
    head = header.pack()
    return header.pack(crc32c(body, crc32c(head[21:]))) + body


def taken(data: bytes, now: int = NOW, zstd: bool = True, **config: object) -> Chunk:
    keys = {name.replace("_", "."): value for name, value in config.items()}
    parsed = TopicConfig.parse(keys)
    return chunk_of(memoryview(data), KEY, parsed, now, topic_id="id", zstd=zstd)


def refused(data: bytes, **config: object) -> RefusedBatchError:
    with pytest.raises(RefusedBatchError) as caught:
        taken(data, **config)  # type: ignore[arg-type]
    return caught.value


def rows(chunk: Chunk) -> list[dict[str, Any]]:
    assert chunk.data is not None
    data = bytes(chunk.data)
    assert batches.unpack_header(data, 0).crc == crc32c(data[21:])
    decoder = Decoder()
    assert decoder.add(data, 0, unpack_header(data, 0), path="t")
    return decoder.finish().to_pylist()


@pytest.mark.parametrize("codec", list(Codec))
def test_a_good_batch_stays_as_it_is(codec: Codec) -> None:
    data = made(b"a" * 300, b"", b"c", codec=codec, at=[NOW, NOW - 5, NOW + 7], producer=(9, 2, 5))
    chunk = taken(data)
    assert bytes(chunk.data or b"") == data
    assert chunk.key == KEY
    assert (chunk.records, chunk.size_bytes, chunk.topic_id) == (3, len(data), "id")
    assert (chunk.min_timestamp, chunk.max_timestamp) == (NOW - 5, NOW + 7)
    assert chunk.idempotent
    assert not taken(made(b"a", codec=codec)).idempotent


GOOD = made(b"a", b"b", b"c")


@pytest.mark.parametrize(
    ("data", "fault", "why"),
    [
        (b"", Fault.INVALID_RECORD, "no record batch"),
        (GOOD[:17], Fault.INVALID_RECORD, "no record batch"),
        (GOOD[:60], Fault.INVALID_RECORD, "one complete batch"),
        (GOOD[:-1], Fault.INVALID_RECORD, "one complete batch"),
        (GOOD + b"\0", Fault.INVALID_RECORD, "one complete batch"),
        (GOOD + GOOD, Fault.INVALID_RECORD, "one complete batch"),
        (GOOD[:16] + b"\1" + GOOD[17:], Fault.INVALID_RECORD, "magic 1"),
        (GOOD[:8] + b"\0\0\0\x0a" + GOOD[12:], Fault.CORRUPT, "less than the length of a"),
        (GOOD[:8] + b"\xff\xff\xff\xff" + GOOD[12:], Fault.CORRUPT, "less than the length of a"),
        (GOOD[:-1] + b"!", Fault.CORRUPT, "CRC"),
        (changed(GOOD, base_offset=1), Fault.INVALID_RECORD, "base offset is 1"),
        (changed(GOOD, base_offset=-1), Fault.INVALID_RECORD, "base offset is -1"),
        (changed(GOOD, count=2), Fault.INVALID_RECORD, "2 records up to offset delta 2"),
        (changed(GOOD, count=0, last_offset_delta=-1), Fault.INVALID_RECORD, "0 records"),
        (changed(GOOD, count=-1), Fault.INVALID_RECORD, "-1 records"),
        (changed(GOOD, count=4, last_offset_delta=3), Fault.INVALID_RECORD, "more records"),
        (changed(GOOD, count=2, last_offset_delta=1), Fault.INVALID_RECORD, "left over"),
        (changed(GOOD, count=2**31 - 1, last_offset_delta=2**31 - 2), Fault.INVALID_RECORD,
         "more records"),
        (changed(GOOD, attributes=0x20), Fault.INVALID_RECORD, "control"),
        (changed(GOOD, attributes=0x40), Fault.INVALID_RECORD, "delete horizon"),
        (changed(GOOD, attributes=0x08), Fault.INVALID_TIMESTAMP, "LogAppendTime"),
        (changed(GOOD, attributes=0x10), Fault.TRANSACTIONAL, "transactions"),
        (changed(GOOD, attributes=5), Fault.UNSUPPORTED_CODEC, "codec 5"),
        (changed(GOOD, attributes=2), Fault.INVALID_RECORD, "snappy data are damaged"),
        (changed(GOOD, attributes=4), Fault.INVALID_RECORD, "zstd data are damaged"),
        (changed(GOOD, producer_id=5), Fault.INVALID_RECORD, "sequence -1"),
        (changed(GOOD, producer_id=5, base_sequence=1), Fault.INVALID_RECORD, "epoch -1"),
        (changed(GOOD, producer_id=5, producer_epoch=0), Fault.INVALID_RECORD, "sequence -1"),
        (changed(GOOD, records=GOOD[HEADER_SIZE:-1] + b"\2"), Fault.INVALID_RECORD, "header"),
    ],
    ids=range(29),
)  # fmt: skip
def test_what_is_wrong_is_refused(data: bytes, fault: Fault, why: str) -> None:
    error = refused(data)
    assert error.fault is fault
    assert why in str(error)
    assert error.records == ()


def test_offsets_in_a_batch_count_from_0() -> None:
    first = made(b"a")[HEADER_SIZE:]
    data = changed(GOOD, records=first * 3)
    assert "goes back" in str(refused(data))
    packed = changed(GOOD, records=compress(Codec.GZIP, first * 3), attributes=1)
    assert "goes back" in str(refused(packed))


def test_zstd_is_of_newer_clients() -> None:
    data = made(b"a" * 100, codec=Codec.ZSTD)
    assert taken(data).records == 1
    assert refused(data, zstd=False).fault is Fault.UNSUPPORTED_CODEC
    check_form(memoryview(made(b"a", codec=Codec.LZ4)), zstd=False)


def test_records_without_keys_are_named_where_the_topic_is_compacted() -> None:
    keys = [None, b"k", None]
    for codec in Codec:
        error = refused(made(b"a", b"b", b"c", keys=keys, codec=codec), cleanup_policy="compact")
        assert error.fault is Fault.INVALID_RECORD
        assert [number for number, _ in error.records] == [0, 2]
        assert "without key" in error.records[0].why
    assert taken(made(b"a", keys=[b""]), cleanup_policy="compact,delete").records == 1
    assert taken(made(b"a", keys=[None])).records == 1


def test_a_batch_is_judged_by_the_config_of_its_commit() -> None:
    """It was looked at when it came, and the topic was altered since."""
    sent = ClientBatch(KEY, memoryview(made(b"a", keys=[None])))
    plain, compacted = (TopicConfig.parse({"cleanup.policy": p}) for p in ("delete", "compact"))
    sent.look(plain, NOW)
    with pytest.raises(RefusedBatchError, match="no key"):
        sent.chunk(compacted, NOW)
    assert sent.chunk(plain, NOW).records == 1


def test_times_are_as_the_topic_says() -> None:
    late, early = NOW - 10_001, NOW + HOUR + 1
    bounds = {"message_timestamp_before_max_ms": 10_000}
    times = [late, late + 1, -1, early, early - 1]
    error = refused(made(*[b"v"] * 5, at=times), **bounds)
    assert error.fault is Fault.INVALID_TIMESTAMP
    assert [number for number, _ in error.records] == [0, 3]
    assert "number 0" in str(error)
    assert taken(made(*[b"v"] * 3, at=[late + 1, -1, early - 1]), **bounds).records == 3
    chunk = taken(made(*[b"v"] * 5, at=times), message_timestamp_type="LogAppendTime", **bounds)
    assert (chunk.min_timestamp, chunk.max_timestamp) == (-1, early)
    both = refused(made(b"a", b"b", keys=[None, b"k"], at=[NOW, 5]), cleanup_policy="compact",
                   **bounds)  # fmt: skip
    assert both.fault is Fault.INVALID_TIMESTAMP  # as LogValidator.processRecordErrors
    assert [number for number, _ in both.records] == [0, 1]


def test_no_more_than_a_thousand_records_are_named() -> None:
    error = refused(made(*[b"v"] * 5000, at=[5] * 5000), message_timestamp_before_max_ms=0)
    assert [number for number, _ in error.records] == [*range(1000)]
    assert "5000 records" in str(error)


def test_a_largest_timestamp_that_is_wrong_is_mended() -> None:
    for wrong in (-1, NOW + 99, MIN64, MAX64):
        data = changed(made(b"a", b"b", at=[NOW, NOW - 3]), max_timestamp=wrong)
        chunk = taken(data)
        assert bytes(chunk.data or b"") == made(b"a", b"b", at=[NOW, NOW - 3])
        assert chunk.max_timestamp == NOW


@pytest.mark.parametrize("target", ["uncompressed", "gzip", "snappy", "lz4", "zstd", "producer"])
@pytest.mark.parametrize("codec", list(Codec))
def test_the_topics_codec_takes_the_place_of_the_clients(codec: Codec, target: str) -> None:
    headers = [[{"key": "h", "value": b"1"}], None, []]
    data = made(b"a" * 900, b"b" * 900, b"", codec=codec, producer=(5, 1, 77), headers=headers)
    chunk = taken(data, compression_type=target)
    wanted = codec if target == "producer" else Codec.parse(target)
    header = unpack_header(bytes(chunk.data or b""), 0)
    assert header.codec is wanted
    if wanted is codec:
        assert bytes(chunk.data or b"") == data
    assert rows(chunk) == rows(taken(data))
    before = unpack_header(data, 0)
    same = {"length": 0, "crc": 0, "attributes": 0}
    assert replace(header, **same) == replace(before, **same)
    assert chunk.size_bytes == header.size == len(chunk.data or b"")


def test_what_is_too_large_is_refused_as_it_would_lie_in_the_log() -> None:
    data = made(os.urandom(1000), codec=Codec.NONE)
    for config in ({"max_message_bytes": len(data) - 1}, {"internal_segment_bytes": 1000}):
        with pytest.raises(RecordTooLargeError, match="exceeds the topic's") as caught:
            taken(data, **config)  # type: ignore[arg-type]
        assert caught.value.size_bytes == len(data)
    assert taken(data, max_message_bytes=len(data)).records == 1
    packed = made(b"a" * 1000, codec=Codec.ZSTD)
    assert taken(packed, max_message_bytes=500).records == 1
    with pytest.raises(RecordTooLargeError):
        taken(packed, max_message_bytes=500, compression_type="uncompressed")


ZEROS = bytes(1 << 20)


def _bombs() -> dict[Codec, bytes]:
    count = PLAIN_BYTES_MAX // len(ZEROS) + 40
    deflate = zstandard.ZstdCompressor().compressobj()
    zstd = b"".join(deflate.compress(ZEROS) for _ in range(count)) + deflate.flush()
    frame = lz4.frame.LZ4FrameCompressor()
    parts = [frame.begin(), *(frame.compress(ZEROS) for _ in range(count)), frame.flush()]
    block = pa.compress(ZEROS, "snappy", asbytes=True)
    snappy = b"\x82SNAPPY\x00\0\0\0\1\0\0\0\1" + (len(block).to_bytes(4, "big") + block) * count
    return {
        Codec.GZIP: gzip.compress(ZEROS, mtime=0) * count,
        Codec.ZSTD: zstd, Codec.LZ4: b"".join(parts), Codec.SNAPPY: snappy,
    }  # fmt: skip


def test_what_swells_takes_no_memory() -> None:
    for codec, records in _bombs().items():
        data = changed(GOOD, records=records, attributes=codec)
        tracemalloc.start()
        with pytest.raises(RecordTooLargeError, match=f"more than {PLAIN_BYTES_MAX} bytes"):
            taken(data, max_message_bytes=1 << 30)
        assert taken(made(bytes(1000), codec=codec)).records == 1  # made smaller
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < 2.5 * PLAIN_BYTES_MAX, codec


@given(st.integers(0, len(GOOD) * 8 - 1))
def test_no_flipped_bit_is_taken_for_the_clients_word(bit: int) -> None:
    data = bytearray(GOOD)
    data[bit // 8] ^= 1 << bit % 8
    if 12 <= bit // 8 < 16:  # the leader epoch: outside of the CRC, and set by the append
        assert taken(bytes(data)).records == 3
    else:
        with pytest.raises(RefusedBatchError):
            taken(bytes(data))


@given(st.binary(max_size=200), st.integers(0, 5), st.integers(-2, 2**31 - 1))
def test_no_bytes_under_a_good_crc_do_harm(records: bytes, attributes: int, count: int) -> None:
    """Whoever can make a CRC can send anything."""
    fields = {"attributes": attributes, "count": count, "last_offset_delta": count - 1}
    for body in (records, GOOD[HEADER_SIZE:-1] + records):
        data = changed(GOOD, records=body, **fields)
        try:
            chunk = taken(data)
        except InvalidRequestError:
            continue
        assert len(rows(chunk)) == chunk.records == count


PLAIN_PARSER = interpreted.load("parser")


@given(
    st.lists(st.tuples(st.booleans(), st.integers(-3, NOW * 2)), min_size=1, max_size=9),
    st.booleans(), st.integers(0, NOW * 2), st.integers(0, NOW * 2), st.integers(0, 4),
)  # fmt: skip
def test_compiled_and_interpreted_see_the_same(
    records: list[tuple[bool, int]], need_keys: bool, low: int, high: int, room: int
) -> None:
    from sparklog.format.parser import Parser

    keys = [b"k" if has_key else None for has_key, _ in records]
    data = made(*[b"v"] * len(records), keys=keys, at=[max(time, 0) for _, time in records])
    header: BatchHeader = unpack_header(data, 0)
    seen = []
    for kind in (Parser, PLAIN_PARSER.Parser):
        parser, bad = kind(0, 0, 0), np.zeros(room, np.int64)
        status = parser.survey(
            memoryview(data), HEADER_SIZE, len(data), header.count, header.base_timestamp,
            low, high, need_keys, bad.data,
        )  # fmt: skip
        seen.append((status, parser.refused, parser.lowest, parser.highest, bad.tolist()))
    assert seen[0] == seen[1]
    assert seen[0][0] == 0
