"""Bytes in log dirs that no reader uses any more, and that wait for file.delete.delay.ms.

Segments that retention, compaction or an erasure removed wait as `.deleted` files. Partitions of
deleted topics wait as directories with the suffix `-delete`; until then the topic can be undeleted.
"""

from collections.abc import Iterator, Mapping, Sequence

from sparklog.common import TopicPartition
from sparklog.errors import SparklogError
from sparklog.format.names import DELETED, parse_deleted_dir
from sparklog.fs import FileSystem
from sparklog.log.due_segments import LocalSegment
from sparklog.logdir.retention.partition_retention import PartitionRetention
from sparklog.logdir.segment_files import joined
from sparklog.service.metrics.observed import AwaitingDeletion


class DeletedFiles:
    """Sums up deleted files in log dirs; caches sizes between calls. Not thread-safe."""

    def __init__(self, fs: FileSystem) -> None:
        self._fs = fs
        self._segments: dict[TopicPartition, tuple[Sequence[LocalSegment], int]] = {}
        self._topics: dict[str, int] = {}

    def observe(
        self,
        directories: Sequence[str],
        places: Mapping[TopicPartition, PartitionRetention],
        held: Mapping[TopicPartition, Sequence[LocalSegment]],
    ) -> Iterator[AwaitingDeletion]:
        """Yield a row for each topic and kind with files that wait for deletion, by name.

        Args:
            directories: the available log dirs.
            places: the partitions.
            held: the segments of each partition; the same list object while its directory is
                unchanged.

        Cost: a listing per log dir; a listing for each changed partition, and once for each
            directory of a deleted topic.
        """
        segments: dict[str, int] = {}
        self._segments = {key: seen for key, seen in self._segments.items() if key in held}
        for key, listed in held.items():
            seen = self._segments.get(key)
            if seen is None or seen[0] is not listed:
                seen = listed, self._size(places[key].directory, DELETED)
                self._segments[key] = seen
            segments[key.topic] = segments.get(key.topic, 0) + seen[1]
        topics: dict[str, int] = {}
        known, self._topics = self._topics, {}
        for directory in directories:
            for name in self._fs.listdir(directory):
                found = parse_deleted_dir(name)
                if found is not None:
                    path = joined(directory, name)
                    size = known[path] if path in known else self._size(path)
                    self._topics[path] = size
                    topic = name.rpartition(".")[0].removesuffix(f"-{found[0]}")
                    topics[topic] = topics.get(topic, 0) + size
        for kind, sizes in (("segment", segments), ("topic", topics)):
            for topic, size in sorted(sizes.items()):
                if size:
                    yield AwaitingDeletion(topic, kind, "local", size)

    def _size(self, directory: str, suffix: str = "") -> int:
        """Return the bytes of a directory's files with a suffix."""
        size = 0
        try:
            names = self._fs.listdir(directory)
        except (SparklogError, FileNotFoundError):
            return 0
        for name in names:
            if name.endswith(suffix):
                try:
                    size += self._fs.size(joined(directory, name))
                except (SparklogError, FileNotFoundError):
                    continue
        return size
