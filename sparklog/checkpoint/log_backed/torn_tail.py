"""Distinguishes a torn tail from damage, after the last complete batch of a segment.

A torn write is at the end of a file and has too few bytes or, after a power cut, wrong bytes. If a
complete batch follows, the batch before it was complete, too, and was damaged since.

service.verification also searches for the next complete batch, but only in a range of offsets that
the ledger confirms. Here any batch with a good CRC counts, as in Segment.scala, because its offset,
which the CRC doesn't cover, may be damaged as well.
"""

from dataclasses import dataclass

import numpy as np
from crc32c import crc32c

from sparklog.format.batch import CRC_START, HEADER_SIZE, LOG_OVERHEAD, MAGIC
from sparklog.fs import File


@dataclass(frozen=True, slots=True)
class TornTail:
    """The bytes after the last complete batch: a torn write, unless a complete batch follows."""

    is_short: bool  # the file ends before the batch does
    next_batch: int | None  # position of the next complete batch

    @classmethod
    def read(cls, file: File, position: int, size: int) -> "TornTail":
        """Examine the bytes [position, size) of a segment. Cost: a CRC for each candidate."""
        raw = file.pread(size - position, position)
        length = int.from_bytes(raw[8:LOG_OVERHEAD], "big", signed=True)
        short = len(raw) < HEADER_SIZE or length + LOG_OVERHEAD > len(raw)
        found = next((position + at for at in _candidates(raw) if _is_whole(raw, at)), None)
        return cls(short, found)


def _candidates(raw: bytes) -> list[int]:
    """Return positions after the first byte where magic and length fit a batch."""
    bytes_ = np.frombuffer(raw, np.uint8)
    last = len(raw) - HEADER_SIZE
    if last < 1:
        return []
    at = np.flatnonzero(bytes_[17 : last + 17] == MAGIC) + 1
    length = np.zeros(len(at), np.int64)
    for place in range(4):
        length = length << 8 | bytes_[at + 8 + place]
    fits = (length >= HEADER_SIZE - LOG_OVERHEAD) & (at + LOG_OVERHEAD + length <= len(raw))
    candidates: list[int] = at[fits].tolist()
    return candidates


def _is_whole(raw: bytes, at: int) -> bool:
    size = LOG_OVERHEAD + int.from_bytes(raw[at + 8 : at + LOG_OVERHEAD], "big")
    crc = int.from_bytes(raw[at + CRC_START - 4 : at + CRC_START], "big")
    return crc32c(memoryview(raw)[at + CRC_START : at + size]) == crc
