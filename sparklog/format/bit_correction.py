"""Correct a flipped bit in data with a CRC-32C.

A CRC-32C detects every pair of flipped bits up to 2^31 bits, so at most one bit explains a wrong
CRC. With more bits flipped, no bit explains the CRC, except by chance: once in 2^32 cases per bit
of the data. Callers therefore also check that the corrected data are valid.
"""

from typing import Final

from crc32c import crc32c

_POLYNOMIAL: Final = 0x82F63B78  # CRC-32C, reflected


def corrected(data: bytes, crc: int) -> bytes | None:
    """Correct a single flipped bit: return data whose CRC-32C is `crc`, or None if impossible.

    Returns `data` unchanged if the CRC fits, or if the flipped bit is in `crc` itself. Cost: up to
    0.5 us per byte.
    """
    syndrome = crc32c(data) ^ crc
    if not syndrome & (syndrome - 1):  # no error, or a flipped bit in the stored CRC
        return data
    state = 1
    for distance in range(8 * len(data)):  # of the bit from the end, in the order of the CRC
        state = (state >> 1) ^ (_POLYNOMIAL if state & 1 else 0)
        if state == syndrome:
            fixed = bytearray(data)
            fixed[len(data) - 1 - distance // 8] ^= 1 << (7 - distance % 8)
            return bytes(fixed)
    return None
