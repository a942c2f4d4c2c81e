"""Estimate the bytes of log at an offset from index entries, for limits in bytes."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt


@dataclass(frozen=True, slots=True)
class BytesByOffset:
    """Ascending points (offset, bytes of log before it), with linear interpolation."""

    offsets: npt.NDArray[np.float64]
    positions: npt.NDArray[np.float64]

    @classmethod
    def of(cls, points: list[tuple[int, int]]) -> "BytesByOffset":
        """Return the map of (offset, position) pairs; at least one is required."""
        table = np.array(sorted(points), dtype=np.float64)
        return cls(table[:, 0], table[:, 1])

    def between(self, start: int, end: int) -> int:
        """Return approximately how many bytes the offsets [start, end) take."""
        low, high = np.interp([start, end], self.offsets, self.positions)
        return int(high - low)

    def offset_after(self, start: int, size: float) -> int:
        """Return the offset about `size` bytes behind offset `start`."""
        at = float(np.interp(start, self.offsets, self.positions))
        return int(np.interp(at + size, self.positions, self.offsets))
