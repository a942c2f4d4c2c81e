"""Lists a partition's local segments for retention."""

from sparklog.format.names import log_name
from sparklog.fs import FileSystem
from sparklog.log.due_segments import LocalSegment
from sparklog.logdir.segment_files import joined, segment_bases


def segments_of(fs: FileSystem, directory: str) -> list[LocalSegment]:
    """List a partition's segments. Cost: a listing, and a stat per segment."""
    return [
        LocalSegment(base, fs.size(joined(directory, log_name(base))))
        for base in segment_bases(fs, directory)
    ]
