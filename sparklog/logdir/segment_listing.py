"""The base offsets of a partition's segment files, listed again only if the directory changed."""

from typing import Final

from sparklog.clock import Clock, system_clock
from sparklog.fs import FileSystem
from sparklog.logdir.segment_files import segment_bases
from sparklog.storage.segments import PartitionSegments

SETTLED_MS: Final = 2000
"""The age (ms) at which a directory's change time is reliable.

A directory that changed more recently may change again within the resolution of its timestamp: 4 ms
on ext4 and xfs, a second or two on other file systems.
"""


class SegmentListing:
    """The local segments of `segments`, in `directory`. Results must not be modified."""

    def __init__(
        self, fs: FileSystem, segments: PartitionSegments, clock: Clock = system_clock
    ) -> None:
        self._fs, self._segments, self._clock = fs, segments, clock
        self.directory = segments.where
        self._known: tuple[int, list[int]] | None = None

    @property
    def gaps(self) -> bool:
        """Whether offsets may be missing."""
        return self._segments.gaps

    def bases(self) -> list[int]:
        """Return the current base offsets, ascending.

        Cost: a stat if the directory is unchanged, else a listing. Raises: FileNotFoundError.
        """
        changed_ms = self._fs.changed_ms(self.directory)  # first, so that later changes are noticed
        known = self._known
        if known is not None and known[0] == changed_ms:
            return known[1]
        bases = segment_bases(self._fs, self.directory)
        is_settled = changed_ms + SETTLED_MS <= self._clock()
        self._known = (changed_ms, bases) if is_settled else None
        return bases
