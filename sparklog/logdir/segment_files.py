"""Segment files of a partition directory: base offsets and sizes, by their names."""

import itertools
import os

from sparklog.clock import Clock, system_clock
from sparklog.format.names import LOG, PARTITION_METADATA, log_name, parse_base
from sparklog.fs import SETTLED_MS, FileSystem
from sparklog.storage.segments import PartitionSegments


def segment_bases(fs: FileSystem, directory: str) -> list[int]:
    """Return the base offsets of the segments in a partition directory, ascending."""
    return bases_of(fs.listdir(directory))


class SegmentListing:
    """A cached listing of the segment files in a partition's directory.

    The directory is that of `segments`. Results must not be modified.
    """

    def __init__(
        self, fs: FileSystem, segments: PartitionSegments, clock: Clock = system_clock
    ) -> None:
        self._fs, self._segments, self._clock = fs, segments, clock
        self.directory = segments.where
        self._known: tuple[int, list[int]] | None = None

    @property
    def gaps(self) -> bool:
        """Whether offsets may be missing, as after compaction."""
        return self._segments.gaps

    def bases(self) -> list[int]:
        """Return the current base offsets, ascending.

        Raises:
            FileNotFoundError: The directory does not exist.

        Cost:
            A stat if the directory is unchanged, else a listing.
        """
        changed_ms = self._fs.changed_ms(self.directory)  # first, so that later changes are noticed
        known = self._known
        if known is not None and known[0] == changed_ms:
            return known[1]
        bases = segment_bases(self._fs, self.directory)
        # Within the resolution of the file system's clock, a second change of the directory would
        # leave the same time.
        is_settled = changed_ms + SETTLED_MS <= self._clock()
        self._known = (changed_ms, bases) if is_settled else None
        return bases


def bases_of(names: list[str]) -> list[int]:
    """Return the base offsets of the `.log` files among `names`, ascending."""
    return offsets_of(names, LOG)


def offsets_of(names: list[str], suffix: str) -> list[int]:
    """Return the offsets in the names of files with this suffix, ascending."""
    return sorted(
        offset
        for name in names
        if name.endswith(suffix) and (offset := parse_base(name)) is not None
    )


def is_partition(fs: FileSystem, path: str) -> bool:
    """Return True if a directory contains a partition's files.

    Other names can end in a number too, such as jdk-17.
    """
    names = fs.listdir(path) if fs.is_dir(path) else []
    return any(name == PARTITION_METADATA or name.endswith(LOG) for name in names)


def joined(directory: str, name: str) -> str:
    """Return the path of the file `name` in a partition's directory."""
    return f"{directory}{os.sep}{name}"  # faster than os.path.join; called thousands of times


def closed_segment_bytes(fs: FileSystem, directory: str, base: int, end: int) -> int | None:
    """Return the size of the log of the closed segment [base, end), if the log exists.

    Cost: a listing and a stat.
    """
    try:
        if (base, end) not in itertools.pairwise(segment_bases(fs, directory)):
            return None
        return fs.size(joined(directory, log_name(base)))
    except FileNotFoundError:
        return None


def first_offset(fs: FileSystem, path: str) -> int | None:
    """Return the base offset of a segment file's first batch; None if the file is empty."""
    with fs.open(path) as file:
        head = file.pread(8, 0)
    return int.from_bytes(head, "big") if len(head) == 8 else None
