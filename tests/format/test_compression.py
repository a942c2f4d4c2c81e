"""Codecs: the framing that Kafka writes, all that it reads, and damage."""

import contextlib
import gzip

import lz4.frame
import pyarrow as pa
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from sparklog.errors import DataCorruptionError, InvalidRequestError
from sparklog.format.compression import Codec, check_level, compress, decompress

COMPRESSED = [c for c in Codec if c != Codec.NONE]
BIG = bytes(range(256)) * 1000 + b"tail"


def plain(codec, data) -> bytes:
    return bytes(decompress(codec, data, path="t", position=7))


@given(st.sampled_from(Codec), st.binary(max_size=3000), st.integers(1, 60))
def test_round_trip(codec, data, times):
    assert plain(codec, compress(codec, data * times)) == data * times


def test_lz4_blocks_are_independent():
    """Trap 16: 64 KiB blocks, FLG 60, BD 40, HC 82, end mark."""
    made = compress(Codec.LZ4, BIG)
    assert made[:7].hex() == "04224d18604082"
    assert made[-4:] == bytes(4)


def test_snappy_is_xerial():
    made = compress(Codec.SNAPPY, BIG)
    assert made[:16].hex() == "82534e41505059000000000100000001"
    size = int.from_bytes(made[16:20], "big")
    assert len(pa.decompress(made[20 : 20 + size], 32768, codec="snappy", asbytes=True)) == 32768


def test_gzip_is_one_member_without_a_time():
    assert compress(Codec.GZIP, b"x")[:8] == b"\x1f\x8b\x08\0\0\0\0\0"


def test_zstd_has_neither_size_nor_checksum():
    frame = zstandard.get_frame_parameters(compress(Codec.ZSTD, BIG))
    assert frame.content_size == zstandard.CONTENTSIZE_UNKNOWN
    assert not frame.has_checksum


READABLE = {
    "gzip members": (Codec.GZIP, gzip.compress(BIG[:99]) + gzip.compress(BIG[99:])),
    "raw snappy": (Codec.SNAPPY, pa.compress(BIG, codec="snappy", asbytes=True)),
    "lz4 sizes and checksums": (
        Codec.LZ4,
        lz4.frame.compress(BIG, block_linked=False, content_checksum=True, block_size=7),
    ),
    "zstd size and checksum": (Codec.ZSTD, zstandard.compress(BIG)),
    "zstd frames": (Codec.ZSTD, zstandard.compress(BIG[:9]) + compress(Codec.ZSTD, BIG[9:])),
    "zstd frames without sizes": (
        Codec.ZSTD, compress(Codec.ZSTD, BIG[:9]) + compress(Codec.ZSTD, BIG[9:])
    ),
    "zstd of extreme ratio": (Codec.ZSTD, compress(Codec.ZSTD, BIG)),
}


@pytest.mark.parametrize("case", READABLE)
def test_what_kafka_reads_is_read(case):
    codec, data = READABLE[case]
    assert plain(codec, data) == BIG


def test_many_bytes_of_nothing():
    for codec in COMPRESSED:
        assert plain(codec, compress(codec, bytes(10**7))) == bytes(10**7)


@pytest.mark.parametrize("codec", COMPRESSED)
@pytest.mark.parametrize("cut", [0, 1, 5, 8, 20, -1])
def test_cut_streams(codec, cut):
    with pytest.raises(DataCorruptionError, match="t at byte 7") as caught:
        plain(codec, compress(codec, BIG)[:cut])
    assert caught.value.path == "t"


def test_bad_lz4_frame_checksum_and_block_size():
    """Lz4CompressionTest.testBadFrameChecksum, testBadBlockSize."""
    good = bytearray(compress(Codec.LZ4, BIG))
    for at, value in ((6, good[6] ^ 1), (5, 0x10), (4, 0x20)):
        bad = bytearray(good)
        bad[at] = value
        with pytest.raises(DataCorruptionError):
            plain(Codec.LZ4, bad)


@given(st.sampled_from(COMPRESSED), st.data())
def test_damage_is_found_or_harmless(codec, draw):
    bad = bytearray(compress(codec, BIG[:500]))
    at = draw.draw(st.integers(0, len(bad) - 1))
    bad[at] = draw.draw(st.integers(0, 255))
    with contextlib.suppress(DataCorruptionError):
        assert len(plain(codec, bad)) < 10**7


@given(st.sampled_from(COMPRESSED), st.binary(max_size=100))
def test_noise_raises_nothing_else(codec, noise):
    with contextlib.suppress(DataCorruptionError):
        plain(codec, noise)


LIES = {
    "snappy size": (Codec.SNAPPY, b"\xff\xff\xff\xff\x07" + b"x" * 20),
    "lz4 size": (Codec.LZ4, lz4.frame.compress(b"x" * 99)[:6] + b"\xff" * 7 + b"\0" * 30),
    "zstd size": (Codec.ZSTD, b"\x28\xb5\x2f\xfd\xe0" + b"\xff" * 7 + b"\x7f" + b"x" * 20),
}


@pytest.mark.parametrize("case", LIES)
def test_declared_sizes_are_not_trusted(case):
    codec, data = LIES[case]
    with pytest.raises(DataCorruptionError):
        plain(codec, data)


def test_names():
    assert Codec.parse("LZ4") == Codec.LZ4
    assert Codec.parse("uncompressed") == Codec.parse("none") == Codec.NONE
    with pytest.raises(InvalidRequestError, match="zstd"):
        Codec.parse("lzo")


@pytest.mark.parametrize(
    ("codec", "level"), [(Codec.GZIP, 0), (Codec.GZIP, 10), (Codec.LZ4, 18), (Codec.ZSTD, 23)]
)
def test_levels(codec, level):
    with pytest.raises(InvalidRequestError, match="level"):
        check_level(codec, level)
    with pytest.raises(InvalidRequestError, match="level"):
        compress(codec, b"", level)
    for good in (1, 9):
        assert plain(codec, compress(codec, BIG, good)) == BIG
