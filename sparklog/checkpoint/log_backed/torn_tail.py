"""What lies behind the last whole batch of a segment: a write that was cut off, or damage.

A write that was cut off is followed by nothing. It leaves too few bytes, or, where the power went,
wrong ones; a whole batch further on says that what isn't one here was one once.
"""

from dataclasses import dataclass

import numpy as np
from crc32c import crc32c

from sparklog.format.batch import CRC_START, HEADER_SIZE, LOG_OVERHEAD, MAGIC
from sparklog.fs import File


@dataclass(frozen=True, slots=True)
class TornTail:
    """What lies behind the last whole batch. A write that was cut off is followed by nothing."""

    short: bool  # the file ends before the batch does
    next: int | None  # where a whole batch begins further on; None: nowhere

    @classmethod
    def of(cls, file: File, position: int, size: int) -> "TornTail":
        """Look at the bytes [position, size) of a segment. Cost: a CRC for each likeness."""
        raw = file.pread(size - position, position)
        length = int.from_bytes(raw[8:LOG_OVERHEAD], "big", signed=True)
        short = len(raw) < HEADER_SIZE or length + LOG_OVERHEAD > len(raw)
        found = next((position + at for at in _likely(raw) if _is_whole(raw, at)), None)
        return cls(short, found)


def _likely(raw: bytes) -> list[int]:
    """Places after the first byte where the fields that a batch begins with could be right."""
    bytes_ = np.frombuffer(raw, np.uint8)
    last = len(raw) - HEADER_SIZE
    if last < 1:
        return []
    at = np.flatnonzero(bytes_[17 : last + 17] == MAGIC) + 1
    length = np.zeros(len(at), np.int64)
    for place in range(4):
        length = length << 8 | bytes_[at + 8 + place]
    fits = (length >= HEADER_SIZE - LOG_OVERHEAD) & (at + LOG_OVERHEAD + length <= len(raw))
    likely: list[int] = at[fits].tolist()
    return likely


def _is_whole(raw: bytes, at: int) -> bool:
    size = LOG_OVERHEAD + int.from_bytes(raw[at + 8 : at + LOG_OVERHEAD], "big")
    crc = int.from_bytes(raw[at + CRC_START - 4 : at + CRC_START], "big")
    return crc32c(memoryview(raw)[at + CRC_START : at + size]) == crc
