"""How much memory the answers to fetches may hold, over all connections."""

from typing import Final

LEAST_BYTES: Final = 64 << 10
"""What an answer may always take, so that every client gets on."""


class ResponseMemory:
    """Bytes of records in answers that aren't sent yet. On the loop's thread.

    Each answer may take half of what is free. So nobody ever waits for memory: clients that don't
    take their answers hold less and less each, together never more than `bytes_max`, and beside
    them there is always something left for one that does. Above it come at most LEAST_BYTES, or
    one batch, a connection.
    """

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self.held_bytes = 0

    def allowance(self) -> int:
        """Return how many bytes the next answer may take."""
        return max((self._bytes_max - self.held_bytes) // 2, LEAST_BYTES)

    def hold(self, size: int) -> None:
        """Count the bytes of an answer."""
        self.held_bytes += size

    def release(self, size: int) -> None:
        """Count the bytes of an answer no more: it was sent, or nobody is there to take it."""
        self.held_bytes -= size
        assert self.held_bytes >= 0
