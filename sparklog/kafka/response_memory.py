"""Memory limit of the Fetch responses of all connections."""

from typing import Final

LEAST_BYTES: Final = 64 << 10
"""Bytes that a response may always use, so that every client makes progress."""


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
        """Release the bytes of a response after it was sent or its connection was closed."""
        self.held_bytes -= size
        assert self.held_bytes >= 0
