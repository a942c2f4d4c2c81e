"""What a partition's log has written and not yet made durable."""

from dataclasses import dataclass, field

from sparklog.fs import File, FileSystem
from sparklog.logdir.partition.segment import Segment


@dataclass(slots=True)
class Pending:
    """Rolled segments, other files, and whether the directory gained or lost a name."""

    fs: FileSystem
    path: str
    segments: list[Segment] = field(default_factory=list)
    files: list[File] = field(default_factory=list)
    names: bool = False

    def sync(self, active: Segment | None) -> None:
        """Make it durable, with the log of the active segment; close all but that.

        The names come last: one that a crash keeps then has its contents. Not to be repeated after
        an error: a second fsync may succeed without having written anything.
        """
        for segment in self.segments:
            segment.sync(indexes=True)
            segment.close()
        for file in self.files:
            file.sync()
            file.close()
        if active is not None:
            active.sync(indexes=False)
        if self.names:
            self.fs.sync_dir(self.path)

    def close(self) -> None:
        """Close the files as they are; what they hold may be lost."""
        for segment in self.segments:
            segment.close()
        for file in self.files:
            file.close()
