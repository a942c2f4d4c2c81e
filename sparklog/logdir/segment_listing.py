"""The bases of a partition's segment files, listed anew only when its directory has changed."""

from typing import Final

from sparklog.clock import Clock, system_clock
from sparklog.fs import FileSystem
from sparklog.logdir.segment_files import segment_bases
from sparklog.storage.segments import PartitionSegments

SETTLED_MS: Final = 2000
"""A directory that changed less than this ago may change again within its time stamp's tick: 4 ms
of ext4 and xfs, a second or two of others."""


class SegmentListing:
    """The local ones of `segments`, in `directory`. What it gives is never changed."""

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
        """Return the base offsets, ascending, as of now.

        Cost: one stat where nothing changed, else a listing. Raises: FileNotFoundError.
        """
        changed_ms = self._fs.changed_ms(self.directory)  # first: what changes from here on shows
        known = self._known
        if known is not None and known[0] == changed_ms:
            return known[1]
        bases = segment_bases(self._fs, self.directory)
        is_settled = changed_ms + SETTLED_MS <= self._clock()
        self._known = (changed_ms, bases) if is_settled else None
        return bases
