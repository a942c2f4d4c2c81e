"""What of a partition lies in this host's files, for a reader that goes by a plan, without a view.

Such a reader lists nothing and asks for nothing else: it has this, the offsets to read and the
topic's id. Whatever it then doesn't find as planned is for a reader with a view to judge.
"""

import bisect
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class FileIdentity:
    """A file or directory that is another one if the log was replaced: `path` as it was found."""

    path: str
    device: int
    inode: int


@dataclass(frozen=True, slots=True)
class LocalFiles:
    """The segments of a partition that are files of this host.

    `directory` holds them, each by its base offset's name; `bases`: all of them, ascending, which
    nobody changes. None that is local begins before the first. `gaps`: as of `PartitionSegments`.
    `identities`: what tells that the log is still the one that was listed.
    """

    directory: str
    bases: Sequence[int]
    gaps: bool
    identities: tuple[FileIdentity, ...]

    def holding(self, start: int, end: int) -> Sequence[int]:
        """Return the bases of the segments that offsets [start, end) may lie in.

        None if there is no segment, or the first begins behind `start`.
        """
        first = bisect.bisect_right(self.bases, start) - 1
        return self.bases[first : bisect.bisect_left(self.bases, end)] if first >= 0 else ()

    def following(self, end: int) -> int | None:
        """Return the base of the first segment at or behind `end`; None if there is none."""
        at = bisect.bisect_left(self.bases, end)
        return self.bases[at] if at < len(self.bases) else None
