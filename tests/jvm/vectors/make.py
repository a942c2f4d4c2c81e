"""Makes the vectors anew: batches that a reader must read so, or refuse so.

    python -m tests.jvm.vectors.make

Each is NAME.batch and NAME.json, what reads it as tests/jvm/reading.py writes it down. They are
kept so that two readers can't change together what they agree on. What differs after a run is to
be looked at, not committed as it is.
"""

import gzip
import json
import struct
import zlib
from pathlib import Path

import lz4.frame
import pyarrow as pa
import zstandard

from sparklog.format.batch import HEADER_SIZE, LOG_APPEND_TIME, Buffer
from sparklog.format.compression import Codec, compress
from sparklog.format.records import encode
from tests.format import data
from tests.format.data import BATCH_A, BATCH_B, BATCH_D, BATCH_E, NOW
from tests.jvm.reading import as_json, python_reads, resealed, varint

HERE = Path(__file__).parent
VALUES = [b"value %d " % n * 700 * n for n in range(6)]  # 84 kB: some blocks of each codec
PLAIN = bytes(
    encode(
        data.rows(*((NOW + n, b"k%d" % n, value) for n, value in enumerate(VALUES))),
        codec=Codec.NONE, timestamp_ms_default=NOW, batch_size=2**20, base_offset=1000,
    ).data
)  # fmt: skip
RECORDS = PLAIN[HEADER_SIZE:]
CUT = len(RECORDS) // 3


def record(
    offset: int, *, timestamp: int = 0, key: bytes | None = b"k", value: bytes | None = b"v",
    headers: bytes = b"\0",
) -> bytes:  # fmt: skip
    """A record; `headers` with their count."""
    body = b"\0" + varint(timestamp) + varint(offset)
    for field in (key, value):
        body += b"\1" if field is None else varint(len(field)) + field
    body += headers
    return varint(len(body)) + body


def batch(*records: bytes, **fields: int) -> bytes:
    """Records as they are, in a batch of a count and a last delta that fit, or of those given."""
    sizes = {"count": len(records), "last_offset_delta": max(len(records) - 1, 0), "attributes": 0}
    return resealed(BATCH_A, b"".join(records), **{**sizes, **fields})


def packed(codec: Codec, records: Buffer) -> bytes:
    """The records of PLAIN, compressed by whoever."""
    return resealed(PLAIN, bytes(records), attributes=codec)


def header_text(*pairs: tuple[bytes, bytes | None]) -> bytes:
    """Headers with their count; a key may be any bytes."""
    out = varint(len(pairs))
    for key, value in pairs:
        out += varint(len(key)) + key
        out += b"\1" if value is None else varint(len(value)) + value
    return out


def full_gzip() -> bytes:
    """A member with everything that its header may have."""
    head = b"\x1f\x8b\x08\x1e" + struct.pack("<I", 1) + b"\0\3" + struct.pack("<H", 5) + b"extra"
    head += b"name\0comment\0"
    head += struct.pack("<H", zlib.crc32(head) & 0xFFFF)
    deflate = zlib.compressobj(wbits=-15)
    body = deflate.compress(RECORDS) + deflate.flush()
    return head + body + struct.pack("<II", zlib.crc32(RECORDS), len(RECORDS))


def lz4_frame(**options: object) -> bytes:
    framed: bytes = lz4.frame.compress(RECORDS, **options)
    return framed


def flipped(framed: bytes, at: int) -> bytes:
    out = bytearray(framed)
    out[at] ^= 1
    return bytes(out)


def zstd_frame(records: bytes, **options: bool) -> bytes:
    return zstandard.ZstdCompressor(**options).compress(records)


SKIPPED = struct.pack("<II", 0x184D2A53, 4) + b"skip"
READABLE = {
    "golden-create-time": BATCH_A, "golden-marker": BATCH_B, "golden-compacted": BATCH_D,
    "golden-emptied": BATCH_E,
    "gzip": packed(Codec.GZIP, gzip.compress(RECORDS, mtime=0)),
    "gzip-full-header": packed(Codec.GZIP, full_gzip()),
    "gzip-two-members": packed(
        Codec.GZIP, gzip.compress(RECORDS[:CUT], mtime=0) + gzip.compress(RECORDS[CUT:], mtime=0)
    ),
    "snappy-xerial": packed(Codec.SNAPPY, compress(Codec.SNAPPY, RECORDS)),
    "snappy-raw": packed(Codec.SNAPPY, pa.compress(RECORDS, codec="snappy", asbytes=True)),
    "lz4": packed(Codec.LZ4, compress(Codec.LZ4, RECORDS)),
    "lz4-linked": packed(Codec.LZ4, lz4_frame(block_linked=True, block_size=4)),
    "lz4-sizes-and-checksums": packed(
        Codec.LZ4,
        lz4_frame(block_linked=False, block_size=5, content_checksum=True, block_checksum=True),
    ),
    "lz4-linked-sizes-and-checksums": packed(
        Codec.LZ4,
        lz4_frame(block_linked=True, block_size=4, content_checksum=True, block_checksum=True),
    ),
    "lz4-then-anything": packed(Codec.LZ4, compress(Codec.LZ4, RECORDS) + b"anything"),
    "zstd": packed(Codec.ZSTD, compress(Codec.ZSTD, RECORDS)),
    "zstd-size-and-checksum": packed(Codec.ZSTD, zstd_frame(RECORDS, write_checksum=True)),
    "zstd-frames": packed(
        Codec.ZSTD,
        SKIPPED + compress(Codec.ZSTD, RECORDS[:CUT]) + compress(Codec.ZSTD, b"") + SKIPPED
        + zstd_frame(RECORDS[CUT:], write_checksum=True),
    ),
    "nulls-and-empty": batch(
        record(0, key=None), record(1, value=None), record(2, key=b"", value=b""),
        record(3, key=None, value=None),
    ),
    "headers": batch(
        record(0, headers=header_text((b"a", b"1"), (b"a", None), (b"", b""))),
        record(1, headers=header_text((b"\xed\xa0\x80", b"surrogate"), (b"\xc3\xa4", b"umlaut"))),
        record(2, headers=header_text((b"\xff\xfe", None), (b"\xf0\x9f\x98\xf0\x9f\x98\x80", b""))),
    ),
    "gaps": batch(record(1), record(7), record(8), last_offset_delta=20),
    "append-time": batch(
        record(0, timestamp=-5), record(1, timestamp=2**62), attributes=LOG_APPEND_TIME,
        max_timestamp=NOW + 7,
    ),
    "times-wrap": batch(
        record(0, timestamp=2**63 - 1), record(1, timestamp=2**62), record(2, timestamp=-(2**63)),
        record(3, timestamp=1), base_timestamp=2**63 - 1,
    ),
    "last-offset": batch(record(0), record(1), base_offset=2**63 - 2),
    "sizes-below-null": batch(varint(6) + b"\0\0\0" + varint(-50) + varint(-64) + b"\0"),
}  # fmt: skip
ONE = record(0)
TWO = record(1)
REFUSED = {
    "cut": BATCH_A[:-1],
    "length": BATCH_A[:8] + struct.pack(">i", 48) + BATCH_A[12:],
    "magic": BATCH_A[:16] + b"\3" + BATCH_A[17:],
    "base-offset": resealed(BATCH_A, base_offset=-1),
    "crc": BATCH_A[:-1] + b"\1",
    "codec": resealed(BATCH_A, attributes=5),
    "count": resealed(BATCH_A, count=4),
    "offsets": resealed(BATCH_A, base_offset=2**63 - 2),
    "too-many": batch(ONE, count=2, last_offset_delta=5),
    "record-length": batch(ONE[:1] + ONE[1:-1]),
    "record-length-is-cut": batch(b"\xff" * 9),
    "record-field": batch(b"\x0c\0" + b"\x80" * 5),
    "record-offset-goes-back": batch(TWO, ONE, last_offset_delta=5),
    "record-offset-is-past": batch(ONE, record(6), last_offset_delta=5),
    "record-size": batch(varint(6) + b"\0\0\0" + varint(4) + b"\1\0"),
    "record-headers": batch(record(0, headers=varint(1) + varint(-1) + b"\1")),
    "record-has-more": batch(record(0, headers=b"\0\0")),
    "batch-has-more": batch(ONE, TWO, count=1),
    "gzip-cut": packed(Codec.GZIP, gzip.compress(RECORDS, mtime=0)[:-1]),
    "snappy-claims-too-much": packed(Codec.SNAPPY, b"\xff\xff\xff\xff\x07" + b"x" * 20),
    "lz4-block-checksum": packed(Codec.LZ4, flipped(lz4_frame(block_checksum=True), -5)),
    "lz4-content-checksum": packed(Codec.LZ4, flipped(lz4_frame(content_checksum=True), -1)),
    "lz4-skippable": packed(Codec.LZ4, SKIPPED),
    "zstd-window": packed(
        Codec.ZSTD, b"\x28\xb5\x2f\xfd\0" + bytes([18 << 3]) + b"\x01\x00\x00"
    ),
    "zstd-then-anything": packed(Codec.ZSTD, compress(Codec.ZSTD, RECORDS) + b"anything"),
}  # fmt: skip


def main() -> None:
    for name, made in {**READABLE, **{f"bad-{n}": b for n, b in REFUSED.items()}}.items():
        read = as_json(python_reads(made))
        assert (read["status"] == "sound") == (name in READABLE), (name, read["status"])
        (HERE / f"{name}.batch").write_bytes(made)
        text = json.dumps(read["records"]).replace("], [", "],\n[")
        (HERE / f"{name}.json").write_text(f'{{"status": "{read["status"]}", "records": {text}}}\n')


if __name__ == "__main__":
    main()
