"""Compaction of batches: the offset map, the filter, and both builds of their kernel."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparklog.errors import DataCorruptionError, InvalidRequestError
from sparklog.format import compaction, kernel, offset_map, record_filter
from sparklog.format.compaction import OffsetMap, RecordFilter, Verdict
from sparklog.format.compression import Codec
from sparklog.format.records import Decoder, encode
from sparklog.format.scan import read_header, rebase, scan
from tests.format import data, interpreted
from tests.format.control_batches import encode_control

PLAIN_MAP, PLAIN_FILTER = interpreted.load("offset_map"), interpreted.load("record_filter")
COMPILED, PLAIN = (offset_map, record_filter), (PLAIN_MAP, PLAIN_FILTER)
KEEP = int(Verdict.TOMBSTONES)
CODECS = list(Codec)


def framed(rows: list[tuple[Any, ...]], **options: Any) -> bytes:
    given = {"codec": Codec.NONE, "timestamp_ms_default": data.NOW, **options}
    return bytes(encode(data.rows(*rows), **given).data)


def mapped(raw: bytes, *, first: int = 0, memory: int = 1 << 16) -> OffsetMap:
    offsets = OffsetMap(memory)
    offsets.fold(raw, scan(raw, path="t").table, first=first, path="t", position=0)
    return offsets


def filtered(
    raw: bytes, offsets: OffsetMap, verdicts: list[int] | int = KEEP, *, horizon: int = 7
) -> bytes:
    batches = scan(raw, path="t").table
    chosen = [verdicts] * len(batches) if isinstance(verdicts, int) else verdicts
    records_filter = RecordFilter(offsets, horizon=horizon)
    pieces = records_filter.filter(raw, batches, np.array(chosen, np.uint8), path="t", position=0)
    return b"".join(bytes(piece.out[: piece.size]) for piece in pieces)


def read(raw: bytes) -> list[dict[str, Any]]:
    found = scan(raw, path="t")
    assert found.error is None
    assert found.end == len(raw)
    decoder = Decoder()
    decoder.add_many(raw, found.table, path="t")
    return decoder.finish().to_pylist()


def test_builds_are_the_same_everywhere():
    for module in COMPILED:
        assert module.__file__.endswith(".py") != kernel.COMPILED


def test_the_digest_is_siphash():
    """The reference implementation's first vectors, for keys 00 01 02 ..."""
    key = bytes(range(16))
    halves = int.from_bytes(key[:8], "little"), int.from_bytes(key[8:], "little")
    for size, want in (
        (0, "a3817f04ba25a8e66df67214c7550293"),
        (1, "da87c1d86b99af44347659119b22fc45"),
    ):
        made = PLAIN_MAP.OffsetMapKernel(*halves, 1)
        made.digest(memoryview(bytes(range(size))), 0, size)
        assert (made.h1.to_bytes(8, "little") + made.h2.to_bytes(8, "little")).hex() == want


def test_golden_batches_of_kafka():
    """Facts D and E: 100 superseded, a tombstone's horizon; the same batch emptied."""
    start = data.NOW
    raw = framed(
        [
            (start, b"a", b"1"),
            (start + 5, b"b", None),
            (start + 9, b"a", b"2"),
            (start + 3, b"c", b"3"),
        ],
        producer=(7, 1, 42),
    )
    numbered = bytearray(raw)
    rebase(numbered, 100, 3)
    raw = bytes(numbered)
    offsets = mapped(raw)
    assert filtered(raw, offsets, horizon=1_800_000_001_000) == data.BATCH_D
    assert filtered(raw, offsets, int(Verdict.DISCARD | Verdict.EMPTY)) == data.BATCH_E
    assert filtered(raw, offsets, int(Verdict.DISCARD)) == b""


class TestOffsetMap:
    def test_the_newest_offset_of_each_key(self):
        offsets = mapped(framed([(None, k, b"") for k in (b"a", b"b", b"", b"a", None, b"c")]))
        assert [offsets.get(k) for k in (b"a", b"b", b"", b"c", b"d")] == [3, 1, 2, 5, -1]
        assert len(offsets) == 4
        assert offsets.latest == 5

    def test_it_starts_within_a_batch(self):
        offsets = mapped(framed([(None, b"%d" % i, b"") for i in range(9)]), first=4)
        assert [offsets.get(b"%d" % i) for i in range(9)] == [-1] * 4 + [4, 5, 6, 7, 8]

    def test_full_in_the_middle_of_a_batch(self):
        """At 0.9 of its 24-byte slots it takes nothing more, not even a known key (LCT)."""
        raw = framed([(None, b"%d" % (i % 12), b"") for i in range(40)])
        offsets = OffsetMap(24 * 10)
        table = scan(raw, path="t").table
        assert not offsets.fold(raw, table, first=0, path="t", position=0)
        assert (len(offsets), offsets.latest) == (9, 8)
        assert offsets.utilization == 0.9

    @pytest.mark.parametrize("memory", [24 * 3000, 24 * 16384 * 16])
    def test_it_grows_within_its_memory(self, memory):
        keys = [b"key-%d" % i for i in range(2500 if memory < 10**6 else 60_000)]
        offsets = mapped(framed([(None, k, b"") for k in keys], batch_size=2000), memory=memory)
        assert [offsets.get(k) for k in keys] == list(range(len(keys)))
        assert offsets._table.nbytes <= memory

    def test_too_small(self):
        advice = r"increase log\.cleaner\.dedupe\.buffer\.size \(24 bytes per key\), with"
        with pytest.raises(InvalidRequestError, match=advice):
            OffsetMap(24)
        with pytest.raises(InvalidRequestError, match=advice):
            OffsetMap(24 * 10, 1.1)
        raw = framed([(None, b"%d" % i, b"") for i in range(9)], batch_size=1)
        for memory, factor in ((24 * 10, 0.9), (24 * 9, 1.0)):  # as advised, nine keys fit
            offsets = OffsetMap(memory, factor)
            offsets.fold(raw, scan(raw, path="t").table, first=0, path="t", position=0)
            assert [offsets.get(b"%d" % i) for i in range(9)] == [*range(9)]

    def test_damaged_records_are_told(self):
        raw = bytearray(framed([(None, b"a", b"1"), (None, b"b", b"2")]))
        raw[61] = 0x7F  # the first record's length
        table = scan(raw, path="t", check_crc=False).table
        with pytest.raises(DataCorruptionError, match="length"):
            OffsetMap(1000).fold(bytes(raw), table, first=0, path="t", position=0)


class TestRecordFilter:
    @pytest.mark.parametrize("codec", CODECS)
    def test_what_survives(self, codec):
        rows = [
            (data.NOW + i, b"%d" % (i % 3), b"v%d" % i, [{"key": "h", "value": b"x"}])
            for i in range(9)
        ]
        raw = framed(rows, codec=codec)
        out = filtered(raw, mapped(raw))
        header = read_header(memoryview(out), 0, path="t")
        assert header is not None
        assert (header.base_offset, header.last_offset, header.count) == (0, 8, 3)
        assert (header.base_timestamp, header.max_timestamp) == (data.NOW + 6, data.NOW + 8)
        assert header.codec is codec
        assert [(r["offset"], r["key"], r["value"]) for r in read(out)] == [
            (i, b"%d" % (i % 3), b"v%d" % i) for i in (6, 7, 8)
        ]
        assert all(r["headers"] == [{"key": "h", "value": b"x"}] for r in read(out))
        assert filtered(out, mapped(raw)) == out  # nothing to take away: byte for byte

    @pytest.mark.parametrize("codec", CODECS)
    def test_tombstones_go_in_their_second_round(self, codec):
        raw = framed([(data.NOW, b"a", b"1"), (data.NOW + 1, b"a", None)], codec=codec)
        offsets = mapped(raw)
        marked = filtered(raw, offsets, horizon=data.NOW * 2)
        header = read_header(memoryview(marked), 0, path="t")
        assert header is not None
        assert header.delete_horizon_ms == data.NOW * 2
        assert [(r["offset"], r["value"]) for r in read(marked)] == [(1, None)]
        assert filtered(marked, offsets, horizon=1) == marked  # a horizon is set once
        assert filtered(marked, offsets, 0) == b""
        assert len(filtered(marked, offsets, int(Verdict.EMPTY))) == 61

    def test_records_behind_the_map_stay(self):
        raw = framed([(None, k, b"v") for k in (b"a", b"a", None, b"a")])
        offsets = mapped(raw)
        offsets.skip_to(1)
        kept = [r["offset"] for r in read(filtered(raw, offsets))]
        assert kept == [2, 3]  # a's newest offset is 3, whatever is behind the map stays

    def test_log_append_time_stays(self):
        raw = framed([(1, k, b"v") for k in (b"a", b"b", b"a")], log_append_time=data.NOW)
        out = filtered(raw, mapped(raw))
        header = read_header(memoryview(out), 0, path="t")
        assert header is not None
        assert header.log_append_time == data.NOW
        assert header.base_timestamp == data.NOW

    def test_a_marker_gets_a_horizon(self):
        raw = encode_control(
            1,
            base_offset=5,
            timestamp=data.NOW,
            producer_id=3,
            producer_epoch=0,
            coordinator_epoch=0,
        )
        offsets = OffsetMap(1000)
        assert filtered(raw, offsets, int(Verdict.RETAIN)) == raw
        marked = filtered(raw, offsets, int(Verdict.RETAIN | Verdict.MARK), horizon=data.NOW + 9)
        header = read_header(memoryview(marked), 0, path="t")
        assert header is not None
        assert (header.delete_horizon_ms, header.count) == (data.NOW + 9, 1)
        assert header.is_control
        assert header.max_timestamp == data.NOW

    def test_a_batch_larger_than_its_buffer(self):
        big = [(None, b"%d" % i, b"x" * 700_000) for i in range(3)]
        raw = framed([*big, (None, b"1", None)], batch_size=10**7, max_message_bytes=10**7)
        assert [r["offset"] for r in read(filtered(raw, mapped(raw)))] == [0, 2, 3]


def run(modules: Any, made: Any, keys: list[bytes], options: tuple[int, int, bool]) -> Any:
    """Everything that both builds must agree on, for one made-up log."""
    verdict, memory, shifted = options
    raw = framed(list(made), batch_size=300, producer=(1, 2, 3))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compaction, "OffsetMapKernel", modules[0].OffsetMapKernel)
        patch.setattr(compaction, "RecordFilterKernel", modules[1].RecordFilterKernel)
        patch.setattr(compaction.secrets, "randbits", lambda _: 0x0123456789ABCDEF)
        patch.setattr(compaction, "USED_MIN", 4)
        offsets = mapped(raw, memory=memory, first=2 if shifted else 0)
        found = [offsets.get(key) for key in keys]
        return found, len(offsets), offsets.latest, filtered(raw, offsets, verdict)


@given(
    data.records,
    st.integers(0, 31),
    st.sampled_from([24 * 2, 24 * 20, 24 * 200]),
    st.booleans(),
)
def test_compiled_and_interpreted_agree(made, verdict, memory, shifted):
    keys = [row[1] for row in made if row[1] is not None]
    options = verdict, memory, shifted
    assert run(COMPILED, made, keys, options) == run(PLAIN, made, keys, options)


@given(st.binary(max_size=80), st.integers(-1, 12), st.integers(0, 50), st.integers(0, 31))
def test_they_agree_on_noise(raw, count, last, verdict):
    def with_modules(modules: Any) -> Any:
        table = np.zeros((8, 3), np.uint64)
        places = np.zeros((100, 5), np.int64)
        made = modules[0].OffsetMapKernel(1, 2, 7)
        made.set_table(table.data, np.zeros((32, 3), np.uint64).data, 1, 8, 8, 0)
        judge = modules[1].RecordFilterKernel(made)
        judge.set_places(places.data)
        folded = made.fold(memoryview(raw), 0, len(raw), count, 5, 5 + last, 6)
        filtered = judge.select(memoryview(raw), 0, len(raw), count, 5, 5 + last, verdict)
        return folded, filtered, judge.kept, judge.tombstones, made.fault_at, table.tolist()

    assert with_modules(COMPILED) == with_modules(PLAIN)


def test_verdicts_are_the_kernels():
    """The verdicts that the kernel knows by number are those of the enum."""
    names = ("DISCARD", "RETAIN", "EMPTY", "MARK", "TOMBSTONES")
    assert [getattr(PLAIN_FILTER, name) for name in names] == [int(Verdict[name]) for name in names]
