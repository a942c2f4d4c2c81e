"""Scala takes and refuses the compressed bytes that Python does, within bounds."""

import functools
import gzip
import itertools
import struct
import zlib
from typing import Final

import lz4.frame
import pyarrow as pa
import pytest
import zstandard
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st

from sparklog.errors import DataCorruptionError
from sparklog.format.compression import Codec, compress, decompress
from tests import depth
from tests.jvm.probe import Probe, pack

MOST: Final = 1 << 24
Result = tuple[str, int, int]
"""How it went, the size of what comes out, and its CRC."""
DAMAGED, TOO_LARGE = ("damaged", 0, 0), ("too large", 0, 0)
Data = list[tuple[Codec, bytes]]
COMPRESSED = [codec for codec in Codec if codec != Codec.NONE]

WORDS = b" ".join(b"w%d" % (n * n % 997) for n in range(700))
LINES = b"".join(b"%d: all work and no play %s\n" % (n, WORDS[n : n + n % 90]) for n in range(1500))
SKIPPED = struct.pack("<II", 0x184D2A5F, 3) + b"abc"


def good(made: bytes) -> Result:
    return "good", len(made), crc32c(made)


def scala(probe: Probe, data: Data, most: int = MOST) -> list[Result]:
    """What comes out of each, or why nothing does."""
    asked = b"".join(struct.pack(">i", codec) + pack([raw]) for codec, raw in data)
    answer = probe.call("decompress", struct.pack(">i", most) + asked)
    found = struct.iter_unpack(">iiI", answer)
    return [(("good", "damaged", "too large")[status], size, crc) for status, size, crc in found]


def python(codec: Codec, raw: bytes) -> Result:
    try:
        made = bytes(decompress(codec, raw, path="t", position=0))
    except DataCorruptionError:
        return DAMAGED
    return good(made) if len(made) <= MOST else TOO_LARGE


def agree(probe: Probe, data: Data) -> None:
    while data:
        some, data = data[:1000], data[1000:]
        for (codec, raw), said in zip(some, scala(probe, some), strict=True):
            assert said == python(codec, raw) or is_left_to_python(raw, said), (codec, raw.hex())


def is_left_to_python(raw: bytes, said: Result) -> bool:
    """A block of zstd that is compressed to no bytes at all: its streams take that for an empty
    one. What Scala refuses Python reads, so that there is no harm in it."""
    return said == DAMAGED and b"\x28\xb5\x2f\xfd" in raw and b"\5\0\0" in raw


def lz4_frames() -> list[bytes]:
    flags = ("block_linked", "content_checksum", "block_checksum", "store_size")
    made = []
    for values in itertools.product((False, True), repeat=len(flags)):
        for size, text in ((4, LINES[:70_000]), (5, LINES), (7, WORDS)):
            options = dict(zip(flags, values, strict=True))
            made.append(lz4.frame.compress(text, block_size=size, **options))
    return made


def zstd_frames() -> list[bytes]:
    made = []
    for size, checksum, level in itertools.product((False, True), (False, True), (-50, 1, 19)):
        compressor = zstandard.ZstdCompressor(
            level=level, write_content_size=size, write_checksum=checksum
        )
        made += [compressor.compress(text) for text in (b"", WORDS, LINES, bytes(300_000))]
    made += [a + b for a, b in itertools.product([*made[:3], SKIPPED], repeat=2)]
    return [*made, SKIPPED, SKIPPED[:-1], made[1] + b"\0", made[1] + SKIPPED[:5], b""]


def gzip_members() -> list[bytes]:
    made = [gzip.compress(text, level) for text in (b"", WORDS, LINES) for level in (1, 9)]
    made += [a + b for a, b in itertools.product(made[:4], repeat=2)]
    head = b"\x1f\x8b\x08%c" + bytes(6)
    body = made[2][10:]
    for flags in range(256):
        start = head % flags
        start += b"\2\0ab" if flags & 4 else b""
        start += b"name\0" if flags & 8 else b""
        start += b"comment\0" if flags & 16 else b""
        made.append(start + body)
        made.append(start + struct.pack("<H", zlib.crc32(start) & 0xFFFF) + body)
    return [*made, made[2] + b"\0", made[2] + made[2][:7], head % 4, head % 8, b""]


def snappy_blocks() -> list[bytes]:
    raw = [pa.compress(text, codec="snappy", asbytes=True) for text in (b"", b"a", WORDS, LINES)]
    head = b"\x82SNAPPY\0"
    made = [*raw, b"", b"\x80", b"\x80\0", b"\xff\xff\xff\xff\x7f", b"\0\0", head, head + bytes(7)]
    for blocks in itertools.product(raw[:3], repeat=2):
        made.append(head + bytes(8) + b"".join(struct.pack(">i", len(b)) + b for b in blocks))
    return [*made, *(made[-1][:-n] for n in range(1, 60)), head + bytes(12), head + b"\xff" * 12]


@functools.cache
def framings(codec: Codec) -> list[bytes]:
    make = {
        Codec.LZ4: lz4_frames, Codec.ZSTD: zstd_frames, Codec.GZIP: gzip_members,
        Codec.SNAPPY: snappy_blocks,
    }[codec]  # fmt: skip
    return make()


@pytest.mark.parametrize("codec", COMPRESSED)
def test_every_framing(probe: Probe, codec: Codec) -> None:
    made = framings(codec)
    agree(probe, [(codec, raw) for raw in made])
    agree(probe, [(other, raw) for other in COMPRESSED for raw in made[:8]])
    agree(probe, [(codec, compress(codec, text)) for text in (b"", b"a", WORDS, LINES)])


@pytest.mark.parametrize("codec", COMPRESSED)
def test_every_flip_and_cut_of_some_framings(probe: Probe, codec: Codec) -> None:
    """Linked lz4 blocks among them: those are decompressed by code of our own."""
    made = [raw for raw in framings(codec) if len(raw) > 20]
    step = depth.by_depth(small=41, ci=11, all=1)
    data = []
    for place, raw in enumerate(made[:: -(-len(made) // 10)]):
        dense = min(len(raw), 200)
        places = [*range(8 * dense), *range(8 * dense + place, 8 * len(raw), 37)]
        for bit in places[place % step :: step]:
            bad = bytearray(raw)
            bad[bit // 8] ^= 1 << bit % 8
            data.append((codec, bytes(bad)))
            data.append((codec, raw[: bit // 8]))
    agree(probe, data)


def test_sizes_and_checksums_that_are_not_those_of_the_data(probe: Probe) -> None:
    """Each of them by itself: what comes out is as good as ever."""
    flags = dict.fromkeys(("content_checksum", "block_checksum", "store_size"), True)
    frame, other = (lz4.frame.compress(text, **flags) for text in (WORDS, LINES))
    header_bytes = 4 + 2 + 8 + 1
    swapped = other[:header_bytes] + frame[header_bytes:]  # its header's checksum is right
    ends = [
        (Codec.GZIP, gzip.compress(WORDS), 8),  # CRC and length
        (Codec.LZ4, frame, 12),  # the only block's checksum, the end, the content's checksum
        (Codec.ZSTD, zstandard.ZstdCompressor(write_checksum=True).compress(WORDS), 4),
    ]
    data = [(Codec.LZ4, swapped)]
    for codec, raw, size in ends:
        for bit in range(8 * (len(raw) - size), 8 * len(raw)):
            bad = bytearray(raw)
            bad[bit // 8] ^= 1 << bit % 8
            data.append((codec, bytes(bad)))
    assert {*scala(probe, [(codec, raw) for codec, raw, _ in ends])} == {good(WORDS)}
    assert {*scala(probe, data)} == {DAMAGED}
    agree(probe, data)


def test_a_match_at_a_distance_of_0(probe: Probe) -> None:
    """Otherwise it would copy what an earlier batch left in the buffer."""
    linked = lz4.frame.compress(LINES, block_size=4, block_linked=True, store_size=False)
    blocks = [b"\x40abcd" + bytes([distance, 0]) + b"\xc0" + b"z" * 12 for distance in (4, 0)]
    frames = [linked[:7] + struct.pack("<I", len(b)) + b + bytes(4) for b in blocks]
    assert scala(probe, [(Codec.LZ4, frame) for frame in frames]) == [
        good(b"abcdabcd" + b"z" * 12), DAMAGED
    ]  # fmt: skip


def zstd_frame(window: int, text: bytes) -> bytes:
    """One raw block behind a header without a content size; `window` as its descriptor has it."""
    head = struct.pack("<IBB", 0xFD2FB528, 0, window)
    return head + struct.pack("<I", len(text) << 3 | 1)[:3] + text


def test_bounds_of_windows(probe: Probe) -> None:
    """zstd's own way of decompressing in one go reads these frames, other readers do not."""
    largest, too_large = 17 << 3, 17 << 3 | 1  # 128 MiB, and an eighth more
    frames = [zstd_frame(largest, WORDS), zstd_frame(too_large, WORDS)]
    frames += [zstd_frame(0, WORDS[:1024]), zstd_frame(0, WORDS[:1025])]  # a window of 1 KiB
    data = [(Codec.ZSTD, frame) for frame in frames]
    assert scala(probe, data) == [good(WORDS), DAMAGED, good(WORDS[:1024]), DAMAGED]
    agree(probe, data)


@given(st.sampled_from(COMPRESSED), st.binary(max_size=80), st.data())
def test_noise(probe: Probe, codec: Codec, noise: bytes, draw: st.DataObject) -> None:
    start = draw.draw(st.sampled_from(framings(codec)[:20]))[: draw.draw(st.integers(0, 40))]
    agree(probe, [(codec, noise), (codec, start + noise)])


@pytest.mark.parametrize("codec", COMPRESSED)
def test_output_ends_at_the_bound(probe: Probe, codec: Codec) -> None:
    """And what comes afterwards, in the buffer that was full, is as good as ever."""
    bomb, fine = compress(codec, bytes(10**7)), compress(codec, LINES)
    data = [(codec, fine), (codec, bomb), (codec, fine), (codec, fine[:-9]), (codec, fine)]
    said = scala(probe, data, most=1 << 20)
    assert said == [good(LINES), TOO_LARGE, good(LINES), DAMAGED, good(LINES)]
    assert scala(probe, [(codec, bomb)]) == [good(bytes(10**7))]


def test_memory_is_what_comes_out_and_not_what_is_claimed(probe: Probe) -> None:
    claims = [
        (Codec.LZ4, lz4.frame.compress(b"x" * 99)[:6] + struct.pack("<Q", 2**30) + bytes(30)),
        (Codec.SNAPPY, b"\xff\xff\xff\xff\x07" + b"x" * 20),
        (Codec.ZSTD, b"\x28\xb5\x2f\xfd\xe0" + struct.pack("<Q", 2**30) + b"x" * 20),
    ]
    for codec, raw in claims:
        assert scala(probe, [(codec, raw)], most=2**31 - 1) == [DAMAGED]
    held = [probe.call("held when read", struct.pack(">i", c) + pack([r])) for c, r in claims]
    assert [struct.unpack(">q", size)[0] for size in held] == [0, 0, 0]
    fine = struct.pack(">i", Codec.ZSTD) + pack([compress(Codec.ZSTD, LINES)])
    (size,) = struct.unpack(">q", probe.call("held when read", fine))
    assert len(LINES) <= size <= 1 << 21
