"""Finds segment files that are copies of other segments, under a wrong base offset.

Readers stop at such a file, because the segment before it overlaps it. The segment before the file
also proves that the file is not needed: it contains all offsets up to the next segment.
"""

from collections.abc import Sequence

from sparklog.format.names import log_name
from sparklog.fs import FileSystem
from sparklog.logdir.segment_files import first_offset, joined
from sparklog.service.verification.findings import Findings
from sparklog.service.verification.log_dir_state import ExpectedPartition
from sparklog.service.verification.segment import SegmentWalk


def copied_segments(
    fs: FileSystem, part: ExpectedPartition, bases: Sequence[int]
) -> dict[int, int]:
    """Return {base offset in the name: first offset in the file} of copied segments.

    A segment is not a copy if its first batch has a flipped base offset: the segment before it ends
    at the base offset in the name. Cost: 8 bytes per segment; for a possible copy, a pass over the
    segment before it.
    """
    found: dict[int, int] = {}
    before = bases[0] if bases else 0
    for at, base in enumerate(bases[1:], 1):
        first = first_offset(fs, joined(part.path, log_name(base)))
        following = bases[at + 1] if at + 1 < len(bases) else None
        if first is not None and first < base and _reaches(fs, part, before, following):
            found[base] = first
        else:
            before = base
    return found


def _reaches(fs: FileSystem, part: ExpectedPartition, base: int, following: int | None) -> bool:
    """Return True if a segment contains all offsets up to the next segment, or to the log end."""
    walk = SegmentWalk(fs, part, base, Findings(), following=following, expected=base)
    walked = walk.run([])
    return not walked.damaged and walked.end >= (part.end if following is None else following)
