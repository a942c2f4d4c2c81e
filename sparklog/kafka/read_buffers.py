"""Memory that segments are read into, used again and again.

Fresh memory costs more than the read: the kernel has to clear each page of it, and gets it back a
moment later. Measured for windows of 2 MiB: 0.5 s of CPU a GB, and 0.1 s into memory that is there.
"""

from collections import deque
from typing import Final

from sparklog.log.partition_reader import MOST_BYTES

KEPT_BYTES: Final = 32 << 20
"""So much is kept for answers to come."""


class ReadBuffers:
    """Blocks of MOST_BYTES that nobody uses now. Threads may share it."""

    def __init__(self, kept_bytes: int = KEPT_BYTES) -> None:
        self._free: deque[bytearray] = deque(maxlen=max(kept_bytes // MOST_BYTES, 1))

    def lease(self) -> "Lease":
        """Begin an answer."""
        return Lease(self._free)


class Lease:
    """What one answer is read into. One thread at a time.

    It is given back by `close` alone, which whoever has sent the answer calls. If nobody does (the
    client went away while a read was under way), it is never used again.
    """

    __slots__ = ("_free", "_taken")

    def __init__(self, free: deque[bytearray]) -> None:
        self._free = free
        self._taken: list[bytearray] = []

    def allocate(self, size: int) -> memoryview:
        """Return `size` bytes, whatever they hold; fresh ones where a block is far too large."""
        if not MOST_BYTES // 2 < size <= MOST_BYTES:
            return memoryview(bytearray(size))
        try:
            block = self._free.pop()
        except IndexError:
            block = bytearray(MOST_BYTES)
        self._taken.append(block)
        return memoryview(block)[:size]

    def close(self) -> None:
        """Give it back: nothing that was read into it is looked at any more. Idempotent."""
        self._free.extend(self._taken)
        self._taken = []
