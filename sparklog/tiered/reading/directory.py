"""The remote segments of one partition, shown as the files of a partition directory."""

import errno
from collections.abc import Sequence

from sparklog.format.names import (
    EPOCH_CHECKPOINT,
    INDEX,
    LOG,
    SNAPSHOT,
    TIMEINDEX,
    TXNINDEX,
    parse_base,
    snapshot_name,
)
from sparklog.tiered.reading.remote_file import BytesFile, RemoteLog
from sparklog.tiered.reading.remote_objects import RemoteObjects
from sparklog.tiered.remote_segment import RemoteSegment

_LISTED = (LOG, INDEX, TIMEINDEX)


class RemoteDirectory:
    """Segments that count, ascending by base offset; a fixed choice, made anew when listed."""

    def __init__(
        self, path: str, objects: RemoteObjects, segments: Sequence[RemoteSegment]
    ) -> None:
        self.path, self._objects = path, objects
        self.segments = list(segments)
        self._by_base = {segment.base: at for at, segment in enumerate(segments)}
        self._by_end = {segment.end: at for at, segment in enumerate(segments)}

    def names(self) -> list[str]:
        """The names of the segments' files, but for transaction indexes: most have none."""
        names = [f"{s.base:020d}{suffix}" for s in self.segments for suffix in _LISTED]
        return names + [snapshot_name(segment.end) for segment in self.segments]

    def find(self, name: str) -> tuple[RemoteSegment, str] | None:
        """Return (the segment that has this file, the file's suffix)."""
        offset = parse_base(name)
        if offset is None:
            return None
        suffix = name[20:]
        places = self._by_end if suffix == SNAPSHOT else self._by_base
        at = places.get(offset)
        if at is None or suffix not in (LOG, INDEX, TIMEINDEX, TXNINDEX, SNAPSHOT):
            return None
        return self.segments[at], suffix

    def open(self, name: str) -> BytesFile:
        """Open a file. Raises FileNotFoundError if no segment has it, or the copy is gone."""
        found = self.find(name)
        if found is None:
            raise self._missing(name)
        segment, suffix = found
        if suffix == LOG:
            return self._log(self._by_base[segment.base])
        contents = self._objects.open(segment).part(suffix)
        if contents is None:
            raise self._missing(name)
        return BytesFile(f"{self.path}/{name}", contents)

    def epochs(self) -> bytes:
        """The newest segment's leader-epoch-checkpoint. Raises FileNotFoundError."""
        if self.segments:
            contents = self._objects.open(self.segments[-1]).part(EPOCH_CHECKPOINT)
            if contents is not None:
                return contents
        raise self._missing(EPOCH_CHECKPOINT)

    def _log(self, at: int) -> RemoteLog:
        segment, objects = self.segments[at], self._objects

        def following(size: int) -> None:
            if at + 1 < len(self.segments) and self.segments[at + 1].base == segment.end:
                behind = self.segments[at + 1]
                objects.fetcher.begin(
                    lambda: objects.ranges(behind, patient=False).ahead(0, min(size, behind.size))
                )

        path = f"{self.path}/{segment.base:020d}{LOG}"
        return RemoteLog(path, objects.ranges(segment), following)

    def _missing(self, name: str) -> FileNotFoundError:
        return FileNotFoundError(errno.ENOENT, "no remote segment has it", f"{self.path}/{name}")
