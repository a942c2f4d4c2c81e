"""The partition logs that a writer has open, and the producer states of those it has closed."""

from collections.abc import Mapping

from sparklog.clock import Clock
from sparklog.common import TopicPartition
from sparklog.fs import FileSystem
from sparklog.log.producer_state import ProducerState
from sparklog.logdir.partition.partition_log import PartitionLog
from sparklog.storage.log_state import LogState
from sparklog.storage.topic_state import TopicState


class PartitionWriters:
    """The partition logs that a writer has open. Used under the write lock.

    A log is opened at its first use. The producer state of a closed log is kept, because loading it
    again can cost a replay.
    """

    def __init__(self, fs: FileSystem, clock: Clock, *, producer_id_expiration_ms: int) -> None:
        self._fs, self._clock = fs, clock
        self._expiration_ms = producer_id_expiration_ms
        self._writers: dict[TopicPartition, PartitionLog] = {}
        self._producers: dict[TopicPartition, tuple[str, ProducerState]] = {}
        """By partition: topic id, and producers at a committed end, from earlier writers."""

    def get(self, key: TopicPartition) -> PartitionLog | None:
        """Return the partition's open log, if any."""
        return self._writers.get(key)

    def opened(self) -> list[PartitionLog]:
        return list(self._writers.values())

    def load(self, key: TopicPartition, path: str, state: LogState) -> PartitionLog:
        """Return a partition's log with the end and config in `state`; `add` keeps it open."""
        topic = state.topics[key.topic]
        log = PartitionLog(
            self._fs,
            path,
            topic.parsed(),
            self._clock,
            end_offset=state.ends[key],
            start_offset=state.starts.get(key, 0),
            producer_id_expiration_ms=self._expiration_ms,
            plain=not (topic.adopted or key in state.idempotent),
        )
        log.tail_crc = state.tails.get(key, -1)
        return log

    def add(self, key: TopicPartition, log: PartitionLog, topic: TopicState) -> None:
        """Keep a partition's log open.

        If an earlier log of the same topic was closed, the new log continues from its producers.
        """
        topic_id, producers = self._producers.pop(key, ("", None))
        if producers is not None and topic_id == topic.id:
            log.continue_from(producers)
        self._writers[key] = log

    def forget(self, topics: Mapping[str, TopicState]) -> None:
        """Close all logs, because configs or starts changed; their producers stay known."""
        for key, log in self._writers.items():
            topic, producers = topics.get(key.topic), log.known_producers
            if topic is not None and producers is not None:
                self._producers[key] = topic.id, producers
        self._writers.clear()

    def drop(self) -> None:
        """Close all logs and forget their producers, because changes were undone."""
        self._writers.clear()
        # Their state contains the sequence numbers of batches that no longer exist. With it, the
        # retry of an idempotent producer would count as a duplicate.
        self._producers.clear()
