"""Memory of the Fetch responses of all connections: its limit, and reusable read buffers.

New memory costs more than the read of a segment, because the kernel clears each page and frees it
again a moment later. Measured with windows of 2 MiB: 0.5 s of CPU time per GB, and 0.1 s with
reused memory.
"""

from collections import deque
from typing import Final

from sparklog.log.partition_reader import MOST_BYTES

LEAST_BYTES: Final = 64 << 10
"""Bytes that a response may always use, so that every client makes progress."""

KEPT_BYTES: Final = 32 << 20
"""Bytes of free buffers that are kept."""


class ResponseMemory:
    """Bytes of records in unsent Fetch responses. Used on the event loop's thread.

    Each response may use half of the free memory, so no response ever waits for memory. Clients
    that do not read their responses get less and less, together at most `bytes_max`, and leave room
    for other clients. Beyond `bytes_max`, each connection can use LEAST_BYTES or a single batch.
    """

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self.held_bytes = 0

    def allowance(self) -> int:
        """Return the number of bytes that the next response may use."""
        return max((self._bytes_max - self.held_bytes) // 2, LEAST_BYTES)

    def hold(self, size: int) -> None:
        """Count the bytes of a response as used."""
        self.held_bytes += size

    def release(self, size: int) -> None:
        """Release the bytes of a response that was sent, or whose connection was closed."""
        self.held_bytes -= size
        assert self.held_bytes >= 0


class ReadBuffers:
    """A pool of free memory blocks of MOST_BYTES each, into which files are read. Thread-safe."""

    def __init__(self, kept_bytes: int = KEPT_BYTES) -> None:
        self._free: deque[bytearray] = deque(maxlen=max(kept_bytes // MOST_BYTES, 1))

    def lease(self) -> "BufferLease":
        """Return a lease for a response."""
        return BufferLease(self._free)


class BufferLease:
    """The buffers of a response. Not thread-safe.

    Only `close` returns the buffers, after the response was sent. If the client disconnects during
    a read, the buffers are never reused.
    """

    __slots__ = ("_free", "_taken")

    def __init__(self, free: deque[bytearray]) -> None:
        self._free = free
        self._taken: list[bytearray] = []

    def allocate(self, size: int) -> memoryview:
        """Return `size` bytes with undefined content.

        New memory if a block would be far too large.
        """
        if not MOST_BYTES // 2 < size <= MOST_BYTES:
            return memoryview(bytearray(size))
        try:
            block = self._free.pop()
        except IndexError:
            block = bytearray(MOST_BYTES)
        self._taken.append(block)
        return memoryview(block)[:size]

    def close(self) -> None:
        """Return the buffers, which must not be used any more. Idempotent."""
        self._free.extend(self._taken)
        self._taken = []
