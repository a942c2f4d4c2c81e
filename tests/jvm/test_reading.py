"""Scala reads a batch as Python does: the same records, or the same fault."""

import itertools
import json
import struct
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from sparklog.errors import RecordTooLargeError
from sparklog.format.batch import HEADER_SIZE, LOG_APPEND_TIME
from sparklog.format.compression import Codec
from sparklog.format.parser import FAULTS
from sparklog.format.records import encode
from sparklog.format.scan import scan
from tests import paths
from tests.format import data
from tests.format.data import BATCH_A, BATCH_B, BATCH_D, BATCH_E, NOW
from tests.jvm.probe import Probe, pack, unpack
from tests.jvm.reading import (
    SOUND,
    agree,
    as_json,
    python_reads,
    resealed,
    scala_reads,
    varint,
)

LEVELS = {
    Codec.NONE: (None,), Codec.SNAPPY: (None,), Codec.GZIP: (None, 1, 9),
    Codec.LZ4: (None, 1, 17), Codec.ZSTD: (None, -100, 19),
}  # fmt: skip
CODECS = [(codec, level) for codec, levels in LEVELS.items() for level in levels]
MESSAGE_BYTES = 1 << 20  # max.message.bytes
FEW = data.rows(
    (NOW, b"key", b"value" * 9, [{"key": "h", "value": b"x"}, {"key": "h", "value": None}]),
    (NOW + 70, None, b"value" * 9), (NOW - 3, b"", None, [{"key": "", "value": b""}]),
)  # fmt: skip


def batch_of(table: pa.Table, codec: Codec = Codec.NONE, **options: Any) -> bytes:
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


@given(
    data.records, st.sampled_from(CODECS), st.integers(0, 2**62), st.sampled_from([None, NOW]),
    st.booleans(),
)  # fmt: skip
def test_what_python_writes(
    probe: Probe, records: list[Any], codec: tuple[Codec, int | None], base: int,
    append_time: int | None, transactional: bool,
) -> None:  # fmt: skip
    producer = {"producer": (9, 3, 5), "transactional": True} if transactional else {}
    batch = batch_of(
        data.rows(*records), codec[0], level=codec[1], base_offset=base,
        log_append_time=append_time, **producer,
    )  # fmt: skip
    ((status, found),) = scala_reads(probe, [batch])
    assert (status, found) == python_reads(batch)
    assert status == SOUND
    assert [(r.key, r.value) for r in found] == [(r[1], r[2]) for r in records]
    assert [r.offset for r in found] == list(range(base, base + len(records)))


@given(data.records, st.sampled_from(Codec), st.integers(0, 80), st.integers(0, 80))
def test_any_range_of_offsets(
    probe: Probe, records: list[Any], codec: Codec, first: int, until: int
) -> None:
    batch = batch_of(data.rows(*records), codec, base_offset=10)
    agree(probe, [batch], first, until)


@pytest.mark.parametrize("codec", Codec)
def test_from_no_bytes_to_max_message_bytes(probe: Probe, codec: Codec) -> None:
    """A varint gets longer where 2^6, 2^13 and 2^20 are passed."""
    sizes = [0, 1, *(2**b + d for b in (6, 13) for d in range(-12, 3)), 10**5, MESSAGE_BYTES - 90]
    noise = b"".join(struct.pack(">q", n * 0x9E3779B97F4A7C15 % 2**63) for n in range(2**17 + 8))
    batches = []
    for size in sizes:
        for key, value in ((None, noise[:size]), (noise[:size], None), (noise[:size], b"v")):
            batches.append(batch_of(data.rows((NOW, key, value)), codec))
    batches.append(batch_of(data.rows(*((NOW, None, noise[:size]) for size in sizes)), codec))
    agree(probe, batches)
    with pytest.raises(RecordTooLargeError):
        encode(
            data.rows((NOW, None, noise[: MESSAGE_BYTES + 1])), codec=Codec.NONE,
            timestamp_ms_default=NOW, max_message_bytes=MESSAGE_BYTES,
        )  # fmt: skip


# --- records as nobody should write them -------------------------------------------------------

edges = st.sampled_from(
    sorted({s * 2**b + d for b in (0, 6, 13, 31, 33, 62) for s in (1, -1) for d in (-1, 0, 1)})
)
deltas = st.one_of(st.integers(0, 5), edges, st.integers(-(2**63), 2**63 - 1))
lies = st.one_of(st.just(0), st.just(0), st.just(0), st.integers(-3, 3), edges)
"""What is added to a length that tells the truth."""
names = st.one_of(st.binary(max_size=5), st.text(max_size=3).map(str.encode))


@st.composite
def fields(draw: st.DrawFn, content: st.SearchStrategy[bytes | None]) -> bytes:
    """A length and as many bytes, or nearly so."""
    made = draw(content)
    size = -1 if made is None else len(made)
    return varint(size + draw(lies)) + (made or b"")


blobs = st.one_of(st.none(), st.binary(max_size=3))


@st.composite
def record_bytes(draw: st.DrawFn, offset_delta: int) -> bytes:
    headers = draw(st.lists(st.tuples(fields(names), fields(blobs)), max_size=2))
    body = bytes([draw(st.integers(0, 255))]) + varint(draw(deltas))
    body += varint(offset_delta + draw(lies)) + draw(fields(blobs)) + draw(fields(blobs))
    body += varint(len(headers) + draw(lies)) + b"".join(itertools.chain(*headers))
    body += draw(st.sampled_from([b"", b"", b"", b"\0", b"\x80"]))
    return varint(len(body) + draw(lies)) + body


@st.composite
def odd_batches(draw: st.DrawFn) -> bytes:
    count = draw(st.integers(0, 4))
    records = b"".join(draw(record_bytes(n)) for n in range(count))
    count = max(count + draw(st.sampled_from([0, 0, 0, -1, 1])), 0)
    return resealed(
        BATCH_A, records, count=count,
        last_offset_delta=max(count - 1 + draw(st.integers(0, 3)), 0),
        base_timestamp=draw(deltas), max_timestamp=draw(deltas),
        attributes=draw(st.sampled_from([0, LOG_APPEND_TIME])),
    )  # fmt: skip


@given(st.lists(odd_batches(), min_size=1, max_size=4), st.integers(98, 104))
def test_odd_records(probe: Probe, batches: list[bytes], until: int) -> None:
    agree(probe, batches)
    agree(probe, batches, 101, until)


@pytest.mark.parametrize("more", [2**32, 2**33])
def test_lengths_of_more_than_32_bits(probe: Probe, more: int) -> None:
    """A varint of five bytes has 34 bits, and a length's lower 32 bits must not be believed."""
    sizes = {"key": 1, "value": 2, "headers": 1, "header key": 3, "header value": 4}
    batches = []
    for wrong in (None, *sizes):
        told = {name: varint(size + more * (name == wrong)) for name, size in sizes.items()}
        body = b"\0\0\0" + told["key"] + b"k" + told["value"] + b"vv" + told["headers"]
        body += told["header key"] + b"key" + told["header value"] + b"head"
        records = varint(len(body)) + body
        batches.append(resealed(BATCH_A, records, count=1, last_offset_delta=0, attributes=0))
    of_size, of_headers = (
        next(text for text in FAULTS.values() if words in text)
        for words in ("longer than its record", "headers are damaged")
    )
    assert [status for status, _ in scala_reads(probe, batches)] == [
        SOUND, of_size, of_size, of_headers, of_headers, of_headers
    ]  # fmt: skip
    agree(probe, batches)


@given(st.binary(max_size=60), st.integers(0, 9))
def test_noise(probe: Probe, noise: bytes, count: int) -> None:
    codecs = [resealed(BATCH_A, noise, count=count, attributes=codec) for codec in Codec]
    agree(probe, [noise, *codecs])


@pytest.mark.parametrize("base", [0, -1, 2**63 - 1, -(2**63), (2**63 - 1) // 1000])
def test_times_wrap_around_and_microseconds_saturate(probe: Probe, base: int) -> None:
    ends = [0, 1, -1, 2**63 - 1, -(2**63), 2**62, 9 * 10**15, -9 * 10**15]
    records = b""
    for offset, delta in enumerate(ends):
        body = b"\0" + varint(delta) + varint(offset) + b"\1\1\0"
        records += varint(len(body)) + body
    sizes = {"count": len(ends), "last_offset_delta": len(ends) - 1, "base_timestamp": base}
    batch = resealed(BATCH_A, records, attributes=0, **sizes)
    ((_, found),) = scala_reads(probe, [batch])
    ms = [(base + delta + 2**63) % 2**64 - 2**63 for delta in ends]
    assert [r.micros for r in found] == [max(min(t * 1000, 2**63 - 1), 1 - 2**63) for t in ms]
    agree(probe, [batch])


@given(st.lists(st.one_of(st.binary(max_size=8), st.text(max_size=4).map(str.encode)), min_size=1))
@example([b"\xe0\x9f\xbf", b"\xf0\x8f\xbf\xbf", b"\xe0\xa0\x80", b"\xf0\x90\x80\x80"])
@example([b"\xed\xa0\x80", b"\xf0\x9f\x98", b"\xe2\x28\xa1", b"\xc0\xaf", b"\xf4\x90\x80\x80", b""])
def test_header_keys_become_text_as_in_python(probe: Probe, keys: list[bytes]) -> None:
    cut = [key[:size] for key in keys for size in range(len(key) + 1)]
    mended = [key.decode() for key in unpack(probe.call("header keys", pack(cut)))]
    assert mended == [key.decode(errors="replace") for key in cut]


# --- bytes that are kept ---------------------------------------------------------------------

GOLDEN = paths.GOLDEN / "kafka-4.1" / "logdir"
LOGS = sorted(str(path.relative_to(GOLDEN)) for path in GOLDEN.glob("*/*.log"))


@pytest.mark.parametrize("log", LOGS)
def test_what_a_broker_wrote(probe: Probe, log: str) -> None:
    """tests/format/test_golden.py compares what Python reads with what a consumer saw."""
    raw = (GOLDEN / log).read_bytes()
    table = scan(raw, path=log).table
    starts, sizes = table["position"].tolist(), table["size"].tolist()
    batches = [raw[at : at + size] for at, size in zip(starts, sizes, strict=True)]
    assert len(batches) > 0
    agree(probe, batches)


VECTORS = Path(__file__).with_name("vectors")


@pytest.mark.parametrize("path", sorted(VECTORS.glob("*.batch")), ids=lambda path: path.stem)
def test_vectors(probe: Probe, path: Path) -> None:
    """Both read what is written beside the bytes, of whoever's making they are."""
    batch = path.read_bytes()
    expected = json.loads(path.with_suffix(".json").read_text())
    (said,) = scala_reads(probe, [batch])
    assert (as_json(python_reads(batch)), as_json(said)) == (expected, expected)
