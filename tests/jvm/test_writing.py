"""Rows become batches: Scala's builder gives what Python's encode does."""

import random
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from sparklog.errors import InvalidRequestError, RecordTooLargeError
from sparklog.format.batch import HEADER_SIZE
from sparklog.format.compression import Codec, check_level
from sparklog.format.partitioner import murmur2_partitions
from sparklog.format.records import MAX_MESSAGE_BYTES, Decoder, encode
from sparklog.format.scan import scan
from tests.jvm.building import Closed, Row, TooLarge, build, table
from tests.jvm.probe import Probe, ProbeError, pack
from tests.jvm.reading import agree
from tests.oracle import Oracle
from tests.oracle.rows import make


def encoded(rows: Sequence[Row], codec: Codec, level: int | None, batch: int, most: int) -> Any:
    """What Python makes of them, or the row and size of its error."""
    try:
        return encode(
            table(rows),
            codec=codec,
            level=level,
            batch_size=batch,
            max_message_bytes=most,
            timestamp_ms_default=0,
        )
    except RecordTooLargeError as error:
        words = str(error).split()
        return TooLarge(int(words[1]), int(words[6]))


def decoded(raw: bytes) -> tuple[Any, pa.RecordBatch]:
    found = scan(raw, path="t")
    assert found.error is None
    assert found.end == len(raw)
    decoder = Decoder()
    decoder.add_many(raw, found.table, path="t")
    return found.table, decoder.finish()


def check(
    probe: Probe, made: list[Closed], rows: Sequence[Row], codec: Codec, batch: int, most: int
) -> None:
    """What Scala made are these rows, in batches as they should be."""
    raw = b"".join(closed.data for closed in made)
    batches, records = decoded(raw)
    assert records.equals(decoded(bytes(encoded(rows, Codec.NONE, None, 16384, 2**30).data))[1])
    assert set(batches["attributes"].tolist()) == {int(codec)}
    assert batches["size"].max() <= most
    assert batches["base_offset"].tolist() == [0, *(batches["last_offset"] + 1).tolist()[:-1]]
    assert (batches["producer_id"] == -1).all()
    assert (batches["producer_epoch"] == -1).all()
    assert (batches["base_sequence"] == -1).all()
    assert (batches["leader_epoch"] == 0).all()
    limit = min(batch + HEADER_SIZE, most)
    stamps, first = np.array([row[0] for row in rows]), 0
    for base, last, low, high in zip(
        batches["base_offset"].tolist(),
        batches["last_offset"].tolist(),
        batches["base_timestamp"].tolist(),
        batches["max_timestamp"].tolist(),
        strict=True,
    ):
        assert low == stamps[base]
        assert high == stamps[base : last + 1].max()
    for closed in made:
        part = stamps[first : first + closed.count]
        assert (closed.low, closed.high) == (part.min(), part.max())
        assert closed.count == 1 or closed.plain_bytes <= limit
        first += closed.count
    assert first == len(rows)
    places = zip(batches["position"].tolist(), batches["size"].tolist(), strict=True)
    agree(probe, [raw[at : at + size] for at, size in places])


small = st.binary(max_size=20)
sized = st.integers(0, 700).map(lambda n: bytes(i * 7 & 255 for i in range(n)))
even = st.integers(0, 3000).map(lambda n: b"x" * n)
data = st.one_of(st.none(), small, sized, even)
names = st.text(st.characters(codec="utf-8"), max_size=9)
headers = st.one_of(st.none(), st.lists(st.tuples(names, st.one_of(st.none(), small)), max_size=4))
times = st.one_of(
    st.integers(-1000, 1000), st.integers(-(2**63), 2**63 - 1),
    st.sampled_from([-(2**63), 2**63 - 1, -1, 0, 2**31, -(2**31) - 1, 1_750_000_000_000]),
)  # fmt: skip
row = st.tuples(times, data, data, headers)
LEVELS = [
    (Codec.NONE, None), (Codec.SNAPPY, None),
    *((Codec.GZIP, level) for level in (None, -1, 1, 6, 9)),
    *((Codec.LZ4, level) for level in (None, *range(1, 18))),
    *((Codec.ZSTD, level) for level in (None, -131072, -5, 0, 1, 3, 9, 19, 22)),
]  # fmt: skip


@given(
    st.lists(row, min_size=1, max_size=40),
    st.sampled_from(LEVELS),
    st.sampled_from([1, 64, 100, 500, 1000, 16384, 2**31 - 1]),
    st.sampled_from([62, 100, 300, 800, 5000, MAX_MESSAGE_BYTES, 2**31 - 1]),
)
@example([(2**63 - 1, None, None, None), (-(2**63), None, None, None)], LEVELS[0], 16384, 2**31 - 1)
def test_scala_builds_what_python_encodes(
    probe: Probe, rows: list[Row], codec: tuple[Codec, int | None], batch: int, most: int
) -> None:
    made, stopped = build(probe, rows, *codec, batch, most)
    wanted = encoded(rows, *codec, batch, most)
    if codec[0] == Codec.NONE:
        if isinstance(wanted, TooLarge):
            assert stopped == wanted
        else:
            assert b"".join(closed.data for closed in made) == bytes(wanted.data)
    elif stopped is not None:  # how small a codec makes a row differs by a few bytes
        alone = encoded(rows[stopped.row : stopped.row + 1], *codec, batch, most)
        assert stopped.size > most
        size = alone.size if isinstance(alone, TooLarge) else len(alone.data)
        assert abs(stopped.size - size) <= 16 + size // 8
    done = sum(closed.count for closed in made)
    assert stopped is not None or done == len(rows)
    if made:
        check(probe, made, rows[:done], codec[0], batch, most)


def noise(size: int) -> bytes:
    return random.Random(size).randbytes(size)


@pytest.mark.parametrize("codec", list(Codec))
@pytest.mark.parametrize("block", [32 << 10, 64 << 10, 128 << 10])
def test_records_around_a_codecs_blocks(probe: Probe, codec: Codec, block: int) -> None:
    for value in (noise, lambda size: b"ab" * (size // 2) + b"c" * (size & 1)):
        # 7 bytes of this record, and three of its sizes, are no value.
        rows = [(5, None, value(block + more), None) for more in range(-12, 3)]
        for row in [*rows, (5, None, value(3 * block), None)]:
            made, stopped = build(probe, [row], codec)
            assert stopped is None
            check(probe, made, [row], codec, 1, MAX_MESSAGE_BYTES)


@pytest.mark.parametrize("codec", list(Codec)[1:])
def test_what_a_codec_makes_larger_goes_in_several_batches(probe: Probe, codec: Codec) -> None:
    rows: list[Row] = [(i, None, random.Random(i).randbytes(1304), None) for i in range(60)]
    made, stopped = build(probe, rows, codec, batch=2**31 - 1, most=4000)
    assert stopped is None
    assert [closed.plain_bytes for closed in made] == [4000] * 20
    check(probe, made, rows, codec, 2**31 - 1, 4000)
    assert len(scan(made[0].data, path="t").table) == 3
    rows[34] = (34, None, noise(5000), [])
    made, stopped = build(probe, rows, codec, batch=2**31 - 1, most=4000)
    assert stopped is not None
    assert stopped.row == 34
    assert 5000 < stopped.size < 5200


@pytest.mark.parametrize("codec", list(Codec)[1:])
def test_what_a_codec_makes_small_enough_fits(probe: Probe, codec: Codec) -> None:
    row: Row = (0, b"k", b"x" * 500_000, None)
    made, stopped = build(probe, [row] * 3, codec, most=100_000)
    assert stopped is None
    check(probe, made, [row] * 3, codec, 16384, 100_000)
    assert build(probe, [row], Codec.NONE, most=100_000)[1] == TooLarge(0, 500_073)


def test_levels_that_kafka_refuses_are_refused(probe: Probe) -> None:
    for codec in Codec:
        for level in (-131073, -131072, -2, -1, 0, 1, 2, 9, 10, 17, 18, 22, 23):
            try:
                check_level(codec, level)
            except InvalidRequestError:
                with pytest.raises(ProbeError, match=f"must be from .*; got {level}"):
                    build(probe, [(0, b"", b"", None)], codec, level)
            else:
                build(probe, [(0, b"", b"", None)], codec, level)


def test_a_partition_of_few_rows_holds_little_and_a_large_record_is_let_go(probe: Probe) -> None:
    sizes = [3, 3, 900, 900, 900, 100_000, 500_000, 400_000, 3, 200_000, 900]
    limit = 16384 + HEADER_SIZE
    request = struct.pack(f">ii{len(sizes)}i", 16384, MAX_MESSAGE_BYTES, *sizes)
    held = struct.unpack(f">{len(sizes) + 1}q", probe.call("held", request))
    assert held[0] == 0
    assert max(held[1:3]) <= 512
    assert max(held[3:6]) <= 2048
    for size, kept in zip(sizes, held[1:], strict=True):
        assert kept <= limit or size <= kept <= 500_100
    assert held[-1] <= limit


def test_kafka_reads_what_scala_writes(probe: Probe, oracle: Oracle, tmp_path: Path) -> None:
    rows: list[Row] = [(stamp, key, value, headers) for key, value, headers, stamp in make(300)]
    incompressible: list[Row] = [(i, b"", noise(990 + i), []) for i in range(10)]
    log, wanted = b"", []
    for codec in Codec:
        for part, most in ((rows, MAX_MESSAGE_BYTES), (incompressible, 5000)):
            made, stopped = build(probe, part, codec, most=most, base=len(wanted))
            assert stopped is None
            log += b"".join(closed.data for closed in made)
            wanted += part
    directory = tmp_path / "t-0"
    directory.mkdir()
    (directory / f"{0:020}.log").write_bytes(log)
    opened = oracle.open(directory, clean=False, records=True)
    assert (opened.start, opened.end, opened.count) == (0, len(wanted), len(wanted))
    found = [(r.timestamp, r.key, r.value, list(r.headers)) for r in opened.records]
    assert found == wanted
    assert {b["codec"] for b in opened.batches} == {"none", "gzip", "snappy", "lz4", "zstd"}


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="reads /proc")
@pytest.mark.parametrize("codec", list(Codec))
def test_closed_compressors_leave_nothing_behind(probe: Probe, codec: Codec) -> None:
    """A context of zstd for 1 MiB has more than 1 MB, and no garbage collector frees it."""
    request = pack([codec.name.lower().encode()]) + struct.pack(">i", 300)
    before, after = struct.unpack(">2q", probe.call("compressors", request + pack([b"x" * 2**20])))
    assert after - before < 150_000


# --- partitions --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        (b"21", -973932308), (b"foobar", -790332482), (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971), (b"abc", 479470107),
    ],
)  # fmt: skip
def test_murmur2_of_kafka(probe: Probe, key: bytes, expected: int) -> None:
    """UtilsTest.testMurmur2."""
    assert struct.unpack(">i", probe.call("murmur2", pack([key]))) == (expected,)


@given(st.lists(st.one_of(st.binary(max_size=64)), max_size=20), st.integers(1, 2**31 - 1))
def test_partitions_are_pythons(probe: Probe, keys: list[bytes], partitions: int) -> None:
    keys += [noise(size) for size in range(65)]  # at places of any alignment
    wanted = murmur2_partitions(pa.array(keys, pa.binary()), partitions).tolist()
    hashes = struct.unpack(f">{len(keys)}i", probe.call("murmur2", pack(keys)))
    assert [(one & 0x7FFFFFFF) % partitions for one in hashes] == wanted
    answer = probe.call("partition", struct.pack(">i", partitions) + pack(keys[:1]))
    assert struct.unpack(">i", answer) == (wanted[0],)
