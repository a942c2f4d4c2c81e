"""Local segment files of a partition, for a reader with a plan and without a view.

Such a reader makes no listings and no requests. The reader has this object, the offsets to read and
the topic id. If the files differ from the plan, a reader with a view decides how to continue.
"""

import bisect
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class FileIdentity:
    """Device and inode of `path`; they change if the log is replaced."""

    path: str
    device: int
    inode: int


@dataclass(frozen=True, slots=True)
class LocalFiles:
    """The segments of a partition that are files of this host.

    `directory`: the partition's directory. `bases`: base offsets of all local segments, ascending,
    immutable. No local segment starts below the first. `gaps`: as in `PartitionSegments`.
    `identities`: the log dirs when listed; they detect a replaced log.
    """

    directory: str
    bases: Sequence[int]
    gaps: bool
    identities: tuple[FileIdentity, ...]

    def holding(self, start: int, end: int) -> Sequence[int]:
        """Return the base offsets of the segments that may contain offsets [start, end).

        The result is empty if there is no segment, or if the first segment starts above `start`.
        """
        first = bisect.bisect_right(self.bases, start) - 1
        return self.bases[first : bisect.bisect_left(self.bases, end)] if first >= 0 else ()

    def following(self, end: int) -> int | None:
        """Return the base offset of the first segment at or after `end`, or None."""
        at = bisect.bisect_left(self.bases, end)
        return self.bases[at] if at < len(self.bases) else None
