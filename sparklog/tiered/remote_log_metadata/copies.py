"""A log's copies from the metadata topic, for readers."""

import threading
from collections.abc import Sequence

from sparklog.clock import Clock, system_clock
from sparklog.common import TopicIdPartition
from sparklog.fs import FileSystem
from sparklog.logdir.view import LogDirView
from sparklog.tiered.remote_log_metadata.topic import RemoteLogMetadataConsumer
from sparklog.tiered.remote_segment import RemoteSegment


class LogCopies:
    """The copies in a log's `__remote_log_metadata`. Thread-safe."""

    def __init__(
        self, fs: FileSystem, directories: Sequence[str], clock: Clock = system_clock
    ) -> None:
        self._fs, self._directories, self._clock = fs, list(directories), clock
        self._consumer: RemoteLogMetadataConsumer | None = None
        self._lock = threading.Lock()

    def readable(self, topic_id: str, partition: int) -> Sequence[RemoteSegment]:
        """Return the valid copies, by base offset, as of now.

        Raises: DataCorruptionError, with advice how to rebuild the metadata. Cost: reading a small
            file and new records of the topic.
        """
        with self._lock:
            if self._consumer is None:
                self._consumer = RemoteLogMetadataConsumer(
                    LogDirView(self._fs, self._directories), self._clock
                )
            return list(self._consumer.catch_up().readable(TopicIdPartition(topic_id, partition)))
