"""Codecs in the framing that Kafka writes. All framings that Kafka reads are supported.

  gzip    one member, mtime 0 (reads several)
  snappy  xerial: 16-byte header, then (i32 size, raw snappy) per 32 KiB; also reads raw snappy
  lz4     one frame of independent 64 KiB blocks: no sizes, no checksums (reads both)
  zstd    one frame, no size, no checksum (reads both, and several frames)

Only the records of a batch are compressed. Sizes that the data declare are never used to allocate
memory: output grows as it is decompressed, up to `SIZE_MAX`. Source: clients/.../common/compress
(Kafka 1eb7644).
"""

import contextlib
import struct
import threading
import zlib
from collections.abc import Callable
from enum import IntEnum
from typing import Any, Final

import lz4.frame
import pyarrow as pa
import zstandard

from sparklog.errors import DataCorruptionError, InvalidRequestError

Buffer = bytes | bytearray | memoryview

SIZE_MAX: Final = 2**31 - 1
"""Maximum uncompressed size of a batch: more would not fit an Arrow column."""


class Codec(IntEnum):
    """A compression codec. The number is stored in the attributes of a record batch (bits 0 to 2).

    Source: Kafka's CompressionType.

    Examples:
        >>> sparklog.Codec.parse("lz4")
        <Codec.LZ4: 3>
    """

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4

    @classmethod
    def parse(cls, name: str) -> "Codec":
        """Return the codec of a `compression.type`; "none" and "uncompressed" mean the same.

        Args:
            name: The name, as in the topic option compression.type.

        Raises:
            InvalidRequestError: There is no codec with this name.
        """
        try:
            return cls["NONE" if name.lower() == "uncompressed" else name.upper()]
        except KeyError:
            names = ", ".join(codec.name.lower() for codec in cls)
            raise InvalidRequestError(f"unknown codec {name!r}; known are {names}") from None


def compress(codec: Codec, data: Buffer, level: int | None = None) -> bytes:
    """Return the compressed bytes. Thread-safe.

    `level` None is Kafka's default (gzip -1, lz4 9, zstd 3).

    Raises:
        InvalidRequestError: The level is invalid.
    """
    if codec == Codec.LZ4:
        return _lz4(data, level)
    if codec == Codec.ZSTD:
        return _zstd(data, level)
    if codec == Codec.GZIP:
        check_level(Codec.GZIP, level)
        deflate = zlib.compressobj(-1 if level is None else level, zlib.DEFLATED, 31)
        return deflate.compress(data) + deflate.flush()
    if codec == Codec.SNAPPY:
        return _snappy(data)
    return bytes(data)


def check_level(codec: Codec, level: int | None) -> None:
    """Reject levels that Kafka rejects. Source: CompressionType.java."""
    bounds = {Codec.GZIP: (-1, 9), Codec.LZ4: (1, 17), Codec.ZSTD: (-131072, 22)}
    if level is None or codec not in bounds:
        return
    low, high = bounds[codec]
    # Level 0 of gzip means "no compression"; Kafka does not accept it.
    if not low <= level <= high or (codec == Codec.GZIP and level == 0):
        name = codec.name.lower()
        raise InvalidRequestError(f"the level of {name} must be from {low} to {high}; got {level}")


class OversizeError(DataCorruptionError):
    """The uncompressed size exceeds the limit."""


def decompress(
    codec: Codec, data: Buffer, *, path: str, position: int, limit: int = SIZE_MAX
) -> Buffer:
    """Return the uncompressed records; `data` itself for Codec.NONE. Thread-safe.

    Args:
        codec: The compression codec.
        data: The compressed records.
        path: The file, for errors.
        position: The byte position of the batch in the file, for errors.
        limit: Maximum uncompressed size, for data from clients.

    Raises:
        DataCorruptionError: The data are damaged or cut off.
        OversizeError: The uncompressed size is above `limit`.

    Cost:
        At most twice the uncompressed size of memory, regardless of the declared size.
    """
    if codec == Codec.NONE:
        return data
    try:
        return _DECOMPRESSORS[codec](data, min(limit, SIZE_MAX))
    except _TooMuch as error:
        raise OversizeError(
            f"{codec.name.lower()} data are damaged: {error}", path=path, position=position
        ) from None
    except _DAMAGE as error:
        raise DataCorruptionError(
            f"{codec.name.lower()} data are damaged: {error}", path=path, position=position
        ) from error


class _Contexts(threading.local):
    """The zstd contexts of a thread, which are expensive to create and not thread-safe."""

    def __init__(self) -> None:
        self.compressors: dict[int, zstandard.ZstdCompressor] = {}
        self.decompressor = zstandard.ZstdDecompressor()


_contexts: Final = _Contexts()
_snappy_codec: Final = pa.Codec("snappy")
# OSError is what Arrow raises for damaged snappy.
_DAMAGE: Final = (
    ValueError,
    RuntimeError,
    EOFError,
    OSError,
    zlib.error,
    zstandard.ZstdError,
    MemoryError,
)


def _lz4(data: Buffer, level: int | None) -> bytes:
    check_level(Codec.LZ4, level)
    # Kafka's default level 9 selects lz4-java's fast compressor, each other level the HC
    # compressor.
    native = 0 if level in (None, 9) else min(max(level or 0, 3), 12)
    framed: bytes = lz4.frame.compress(
        data,
        compression_level=native,
        block_size=lz4.frame.BLOCKSIZE_MAX64KB,
        # Kafka refuses dependent blocks, which the library writes by default.
        block_linked=False,
        store_size=False,
    )
    return framed


def _zstd(data: Buffer, level: int | None) -> bytes:
    check_level(Codec.ZSTD, level)
    wanted = 3 if level is None else level
    compressor = _contexts.compressors.get(wanted)
    if compressor is None:
        compressor = zstandard.ZstdCompressor(
            level=wanted, write_checksum=False, write_content_size=False
        )
        _contexts.compressors[wanted] = compressor
    return compressor.compress(data)


_XERIAL: Final = b"\x82SNAPPY\x00" + struct.pack(">ii", 1, 1)
_XERIAL_BLOCK: Final = 32 * 1024


def _snappy(data: Buffer) -> bytes:
    view = memoryview(data)
    parts: list[Any] = [_XERIAL]
    for at in range(0, len(view), _XERIAL_BLOCK):
        block = _snappy_codec.compress(view[at : at + _XERIAL_BLOCK], asbytes=True)
        parts += (struct.pack(">i", len(block)), block)
    return b"".join(parts)


class _TooMuch(Exception):
    """Raised during decompression: the output exceeds the limit."""


def _grown(size: int, limit: int) -> int:
    if size > limit:
        raise _TooMuch(f"a batch decompresses to more than {limit} bytes")
    return size


def _gunzip(data: Buffer, limit: int) -> bytes:
    parts: list[bytes] = []
    total, left = 0, bytes(data)
    # Empty data must enter the loop once, in which they are rejected as a truncated stream.
    while left or not parts:
        member = zlib.decompressobj(31)
        # One byte above the limit tells an oversize batch from a batch of exactly that size.
        parts.append(member.decompress(left, limit - total + 1))
        total = _grown(total + len(parts[-1]), limit)
        if not member.eof:
            raise EOFError("the stream is truncated")
        left = member.unused_data
    return parts[0] if len(parts) == 1 else b"".join(parts)


def _raw_snappy(data: memoryview, limit: int, before: int = 0) -> Any:
    size = shift = 0
    for at in range(min(5, len(data))):
        size |= (data[at] & 0x7F) << shift
        shift += 7
        if data[at] < 0x80:
            # A copy makes at most 64 bytes of 2, so a larger declared size is wrong.
            if size > 32 * len(data):
                raise ValueError(
                    f"a snappy block of {len(data)} bytes declares {size} uncompressed bytes, more "
                    "than it can contain"
                )
            _grown(before + size, limit)
            return _snappy_codec.decompress(data, decompressed_size=size, asbytes=True)
    raise ValueError("a block has no size")


def _unsnappy(data: Buffer, limit: int) -> bytes:
    view = memoryview(data)
    if view[:8] != _XERIAL[:8]:
        plain: bytes = _raw_snappy(view, limit)
        return plain
    if len(view) < len(_XERIAL):
        raise EOFError("the header is truncated")
    parts: list[bytes] = []
    total, at = 0, len(_XERIAL)
    while at < len(view):
        if at + 4 > len(view):
            raise EOFError("a block size is truncated")
        size = int.from_bytes(view[at : at + 4], "big")
        at += 4
        if size > len(view) - at:
            raise EOFError("a block is truncated")
        parts.append(_raw_snappy(view[at : at + size], limit, total))
        total += len(parts[-1])
        at += size
    return b"".join(parts)


_LZ4_MAGIC: Final = b"\x04\x22\x4d\x18"


def _unlz4(data: Buffer, limit: int) -> bytes:
    if bytes(data[:4]) != _LZ4_MAGIC:  # the library treats skippable frames as empty frames
        raise ValueError("the data are not an lz4 frame")
    # A declared content size is allocated at once by the library: bound it by lz4's best ratio.
    if len(data) > 14 and data[4] & 0x08:
        size = int.from_bytes(data[6:14], "little")
        if size > 255 * len(data) + 1024:
            raise ValueError(
                f"an lz4 frame of {len(data)} bytes declares {size} uncompressed bytes, more than "
                "it can contain"
            )
        _grown(size, limit)
    if limit >= 255 * len(data):  # lz4 can't exceed this ratio
        plain: bytes = lz4.frame.decompress(data)
        return plain
    frame = lz4.frame.LZ4FrameDecompressor()
    plain = frame.decompress(data, max_length=limit + 1)
    _grown(len(plain), limit)
    if not frame.eof:
        raise EOFError("the stream is truncated")
    return plain


_REPEATED_BYTE: Final = 1  # a block type that declares its uncompressed size
_ZSTD_SLICE: Final = 1024  # a block of 4 bytes can make 128 KiB, so this much makes 32 MiB


def _unzstd(data: Buffer, limit: int) -> bytes:
    view = memoryview(data)
    frame = zstandard.get_frame_parameters(data)
    size = frame.content_size
    if 0 < size <= limit or size == zstandard.CONTENTSIZE_UNKNOWN:
        # The library does not read a frame that declares to be empty, and ignores the data behind
        # a frame without a declared size.
        end = _frame_end(view, has_checksum=frame.has_checksum)
        with contextlib.suppress(zstandard.ZstdError):
            if end == len(view):
                return _contexts.decompressor.decompress(
                    data, max_output_size=min(16 * len(data) + (1 << 16), limit)
                )
    return _unzstd_slowly(view, limit)


def _frame_end(view: memoryview, *, has_checksum: bool) -> int:
    """Return the position after the first zstd frame, computed from the sizes of the blocks.

    The position may be after the end of the data, if they are cut off.
    """
    at, last = zstandard.frame_header_size(view), False
    while not last and at < len(view):
        block = int.from_bytes(view[at : at + 3], "little")
        last = bool(block & 1)
        at += 3 + (1 if block >> 1 & 3 == _REPEATED_BYTE else block >> 3)
    return at + (4 if has_checksum else 0)


def _unzstd_slowly(view: memoryview, limit: int) -> bytes:
    """Decompress zstd data slice by slice, so that the output can be limited.

    For data with several frames or an extreme compression ratio, and for damaged data.
    """
    parts: list[bytes] = []
    total = at = 0
    frame = _contexts.decompressor.decompressobj()
    while at < len(view):
        if frame.eof:
            frame = _contexts.decompressor.decompressobj()
        piece = view[at : at + _ZSTD_SLICE]
        parts.append(frame.decompress(piece))
        total = _grown(total + len(parts[-1]), limit)
        at += len(piece) - len(frame.unused_data)
    if not frame.eof:
        raise EOFError("the stream is truncated")
    return b"".join(parts)


_DECOMPRESSORS: Final[dict[Codec, Callable[[Buffer, int], Buffer]]] = {
    Codec.GZIP: _gunzip,
    Codec.SNAPPY: _unsnappy,
    Codec.LZ4: _unlz4,
    Codec.ZSTD: _unzstd,
}
