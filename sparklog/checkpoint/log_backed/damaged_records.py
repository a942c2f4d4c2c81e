"""Identifies a damaged record of a partition: its file, and its content if that is known.

The position of the next complete batch is known, and so is the damaged batch's length. A batch has
only one layout (a single uncompressed record, no producer, no headers), and all of it must fit.
Then

    if its CRC is right             only header fields outside the CRC are wrong
    if the CRC itself is wrong      in a single byte: with the correct byte it is right
    a wrong byte up to the key's    the only change of a byte there that makes the CRC right
    end, or the last byte

is corrected. If the wrong byte is elsewhere, such a change exists by chance once in 40,000 cases,
and then does not fit the layout. Otherwise, if the layout is complete, the damage is in the value,
and the key is correct. Any other damage may be of any file. Source:
sparklog/jvm/scala/checkpoint/DamagedRecord.scala does the same.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from crc32c import crc32c

from sparklog.format.batch import CRC_START, HEADER, HEADER_SIZE, LOG_OVERHEAD, MAGIC

_CRC_AT: Final = CRC_START - 4
_PREFIX_BYTES: Final = 128
"""Bytes after the CRC that are tried: header, lengths and a key of about 60 bytes."""

_SMALLEST: Final = HEADER_SIZE + 7


@dataclass(frozen=True, slots=True, kw_only=True)
class DamagedRecord:
    """A damaged batch of `size` bytes at `position`, or several batches that can't be separated.

    Attributes:
        first: The first offset that the batch may have.
        end: The offset after the last that the batch may have.
        key: The key, if known.
        corrected: The original bytes of the batch, if known.
        value_bytes: The size of the value of `corrected`; -1 for a deletion.
    """

    position: int
    size: int
    first: int
    end: int
    key: str | None = None
    corrected: bytes | None = None
    value_bytes: int = 0

    @property
    def is_deletion(self) -> bool:
        """Whether the record is known to be a deletion of a file, so that no content is missing."""
        return self.corrected is not None and self.value_bytes < 0


def examine(
    raw: bytes, *, position: int, first: int, end: int, epoch: int, tag: int = -1
) -> list[DamagedRecord]:
    """Identify the damaged bytes [position, position + len(raw)) of a segment.

    Args:
        raw: The bytes.
        position: The position of the bytes in the segment.
        first: The offset after the complete batch before the damage.
        end: The offset of the complete batch after the damage.
        epoch: The leader epoch of the batch before the damage.
        tag: The partition's tag (layout.partition_tag). Batches of older versions have none.

    Returns:
        The damaged batches, or a single batch without a key if they can't be separated.

    Cost:
        A CRC of all bytes, and a few hundred CRCs if only the CRC is wrong.
    """
    whole = _examine(raw, position, first, end, epoch, tag)
    if whole.key is not None:
        return [whole]
    parts = [_examine(raw[a:z], position + a, first, end, epoch, tag) for a, z in _framed(raw)]
    if len(parts) > 1 and all(part.key is not None for part in parts) and len(parts) <= end - first:
        return parts
    return [whole]


def _framed(raw: bytes) -> Iterator[tuple[int, int]]:
    """Yield batches by the lengths in their headers, which may be damaged."""
    at = 0
    while at < len(raw):
        size = LOG_OVERHEAD + int.from_bytes(raw[at + 8 : at + LOG_OVERHEAD], "big", signed=True)
        stop = at + size if _SMALLEST <= size <= len(raw) - at else len(raw)
        yield at, stop
        at = stop


def _examine(
    raw: bytes, position: int, first: int, end: int, epoch: int, tag: int
) -> DamagedRecord:
    nothing = DamagedRecord(position=position, size=len(raw), first=first, end=end)
    if len(raw) < _SMALLEST or first >= end:
        return nothing
    batch = bytearray(raw)
    offset = int.from_bytes(raw[:8], "big", signed=True)
    batch[:8] = (offset if first <= offset < end else first).to_bytes(8, "big")
    batch[8:12] = (len(raw) - LOG_OVERHEAD).to_bytes(4, "big")
    batch[12:16] = epoch.to_bytes(4, "big")
    batch[16] = MAGIC
    has_crc = _correct(batch)
    try:
        key, value_bytes = _fields(batch, tag)
    except (ValueError, IndexError):
        return nothing
    if value_bytes < 0 and not has_crc:
        return nothing  # without a value, the damage can't be in the value
    corrected = bytes(batch) if has_crc else None
    return DamagedRecord(
        position=position, size=len(raw), first=first, end=end, key=key, corrected=corrected,
        value_bytes=value_bytes,
    )  # fmt: skip


def _correct(batch: bytearray) -> bool:
    """Try to repair a single wrong byte of a batch, so that the CRC matches.

    The byte is in the CRC itself, in the header or the key, or is the last byte. Return whether
    exactly one such change makes the CRC match; `batch` is then changed.
    """
    body = memoryview(batch)[CRC_START:]
    stored = int.from_bytes(batch[_CRC_AT:CRC_START], "big")
    actual = crc32c(body)
    wrong = stored ^ actual
    if not wrong:
        return True
    if sum(byte != 0 for byte in wrong.to_bytes(4, "big")) == 1:
        batch[_CRC_AT:CRC_START] = actual.to_bytes(4, "big")
        return True
    ending = batch[-1]
    batch[-1] = 0  # no headers
    if ending and crc32c(body) == stored:
        return True
    batch[-1] = ending
    found = list(_changes(wrong, len(body)))
    if len(found) != 1:
        return False
    at, change = found[0]
    batch[CRC_START + at] ^= change
    return True


def _changes(wrong: int, size: int) -> Iterator[tuple[int, int]]:
    """Yield (position, XOR) of each change of one of the first bytes that changes a CRC by `wrong`.

    A CRC is linear: the effect of a change of a byte is the XOR of the effects of its bits; and a
    byte further to the front has the effect of the next byte with another zero byte after it.
    """
    last = min(size, _PREFIX_BYTES) - 1
    nothing = crc32c(b"\0" * (size - last))
    bits = [crc32c(bytes([1 << bit]) + b"\0" * (size - last - 1)) ^ nothing for bit in range(8)]
    for at in range(last, -1, -1):
        effects = [0]  # of each change
        for effect in bits:
            effects += [effect ^ each for each in effects]
        if wrong in effects:
            yield at, effects.index(wrong)
        bits = [_with_zero(effect) for effect in bits]


def _with_zero(effect: int) -> int:
    """Return the effect of a change on a CRC that continues over a zero byte."""
    return effect >> 8 ^ _STEP[effect & 0xFF]


def _step(byte: int) -> int:
    for _ in range(8):
        byte = byte >> 1 ^ (0x82F63B78 if byte & 1 else 0)
    return byte


_STEP: Final = [_step(byte) for byte in range(256)]


def _fields(batch: bytearray, tag: int) -> tuple[str, int]:
    """Return (key, bytes of the value) of a batch with the layout of a checkpoint's batches.

    Raises:
        ValueError: The batch has another layout.
        IndexError: The batch has another layout.
    """
    (*_, codec, last, first_ms, last_ms, producer, epoch, sequence, count) = HEADER.unpack_from(
        batch
    )
    plain = (codec, last, producer, epoch, count) == (0, 0, -1, -1, 1) and sequence in (-1, tag)
    size, at = _varint(batch, HEADER_SIZE)
    if not plain or first_ms != last_ms or at + size != len(batch) or any(batch[at : at + 3]):
        raise ValueError("the header of the batch is wrong")
    key_bytes, at = _varint(batch, at + 3)
    key = bytes(batch[at : at + key_bytes])
    value_bytes, at = _varint(batch, at + key_bytes)
    if min(key_bytes, value_bytes + 1) < 0 or at + max(0, value_bytes) + 1 != len(batch):
        raise ValueError("the lengths in the batch are wrong")
    if not key or batch[-1]:
        raise ValueError("the record has no key, or it has headers")
    return key.decode(), value_bytes


def _varint(batch: bytearray, at: int) -> tuple[int, int]:
    """Return a zig-zag number, and the position after the number."""
    number = shift = 0
    while True:
        byte = batch[at]
        at += 1
        number |= (byte & 0x7F) << shift
        shift += 7
        if not byte & 0x80:
            return number >> 1 ^ -(number & 1), at
        if shift > 28:
            raise ValueError("a length doesn't end")
