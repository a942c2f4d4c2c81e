"""`__remote_log_metadata`: the metadata of a log's copies, as an internal topic of the log.

The topic has a single partition and is compacted. Values are Kafka's records (records.py). The keys
are

    <topic id>-<partition>-<segment id>         the copy in its first state
    <topic id>-<partition>-<segment id>/state   the copy's newest state
    <topic id>-<partition>                      a partition that was deleted with all its copies

so compaction retains both records of a copy, in order, and Kafka's own store can read them as well.
A deleted copy gets its last update and tombstones for both keys. Only the service with the lease
writes to the topic, by ordinary commits: published records survive a power cut. Source:
TopicBasedRemoteLogMetadataManager (Kafka 4.1), which uses a topic without compaction.
"""

import contextlib
import logging
import threading
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from sparklog.clock import Clock, system_clock
from sparklog.common import TopicIdPartition, TopicPartition
from sparklog.errors import (
    DataCorruptionError,
    LogReplacedError,
    OffsetOutOfRangeError,
    TopicReplacedError,
    UnknownTopicError,
)
from sparklog.fs import FileSystem
from sparklog.log.admin import create_internal
from sparklog.log.appending import append
from sparklog.log.arrow_reads import read_partition, schema_of
from sparklog.log.chunk_stager import ChunksInMemory, ChunkStager
from sparklog.log.read_retry import PartitionRead
from sparklog.log.topic_names import REMOTE_METADATA
from sparklog.logdir.topics_file import describe
from sparklog.logdir.view import LogDirView
from sparklog.storage.staging import Framing
from sparklog.tiered.remote_log_metadata.metadata_cache import RemoteLogMetadataCache
from sparklog.tiered.remote_log_metadata.records import (
    PartitionDeleteRecord,
    SegmentRecord,
    UpdateRecord,
    parse,
    to_bytes,
    update_of,
)
from sparklog.tiered.remote_segment import RemoteSegment, SegmentState

if TYPE_CHECKING:
    from sparklog.logdir.commit_log import LogDirCommits

METADATA: Final = TopicPartition(REMOTE_METADATA, 0)
TOMBSTONES_KEPT_MS: Final = 7 * 24 * 3_600_000
CONFIG: Final = {
    "cleanup.policy": "compact",
    "retention.ms": "-1",
    "segment.bytes": str(4 << 20),
    "delete.retention.ms": str(TOMBSTONES_KEPT_MS),
}
CURE: Final = "stop the service and rebuild it from the bucket: `sparklog tier rebuild PATH`"

_STATE: Final = "/state"
_ROWS_MAX: Final = 5_000  # per commit; each row has about 200 bytes
_SCHEMA: Final = pa.schema([("key", pa.binary()), ("value", pa.binary())])
_LOGGER: Final = logging.getLogger(__name__)
Row = tuple[str, bytes | None]


def ensure_topic(commits: "LogDirCommits") -> bool:
    """Create the internal topic `__remote_log_metadata`; return False if the topic exists.

    Raises:
        InvalidRequestError: The log dir contains a broker's own topic of this name.
    """
    return create_internal(commits, REMOTE_METADATA, CONFIG)


def publish(
    commits: "LogDirCommits",
    clock: Clock,
    segments: Sequence[RemoteSegment],
    *,
    found: bool = False,
) -> None:
    """Commit new states of copies to the metadata topic, in order. The commit is durable on return.

    The commit is atomic up to 5,000 records. With more records, a crash may leave only the first
    of them.

    Args:
        commits: The commit log.
        clock: The clock.
        segments: The copies with their new states.
        found: Whether the copies are not in the topic yet (they were found in the bucket), so that
            their first records are written as well.
    """
    rows = [row for segment in segments for row in _rows(segment, found=found)]
    _commit(commits, clock, rows)


def publish_deleted_partitions(
    commits: "LogDirCommits", clock: Clock, partitions: Sequence[PartitionDeleteRecord]
) -> None:
    """Commit that partitions and all their copies are deleted; sweeps still use their ids."""
    _commit(commits, clock, [(f"{p.topic_id}-{p.partition}", to_bytes(p)) for p in partitions])


def _rows(segment: RemoteSegment, *, found: bool) -> Iterator[Row]:
    key = f"{segment.topic_id}-{segment.partition}-{segment.id}"
    if found or segment.state is SegmentState.COPY_STARTED:
        yield key, to_bytes(SegmentRecord(segment=segment.restarted()))
    if segment.state is not SegmentState.COPY_STARTED:
        yield key + _STATE, to_bytes(update_of(segment))
    if segment.state is SegmentState.DELETE_FINISHED:
        # The tombstone of the state comes first: a state without its first record is ignored, but a
        # first record without its state would be a copy in progress.
        yield key + _STATE, None
        yield key, None


def _commit(commits: "LogDirCommits", clock: Clock, rows: Sequence[Row]) -> None:
    with commits.exclusive():
        topic = commits.state.topics.get(REMOTE_METADATA)
    if topic is None:
        raise UnknownTopicError(
            f"{commits.home} has no {REMOTE_METADATA}; {CURE}", path=commits.home
        )
    info = describe(commits.directories, REMOTE_METADATA, topic)

    def stage(framing: Framing) -> ChunkStager:
        return ChunkStager(
            ChunksInMemory(commits.home), clock, framing, spread=commits.position
        )

    for first in range(0, len(rows), _ROWS_MAX):
        keys, values = zip(*rows[first : first + _ROWS_MAX], strict=True)
        columns = [
            pa.array([key.encode() for key in keys], pa.binary()),
            pa.array(values, pa.binary(), from_pandas=False),
        ]
        batch = pa.RecordBatch.from_arrays(columns, schema=_SCHEMA)
        append(commits, stage, info, batch, partition=0, producer=None, framing=Framing())
    with commits.exclusive():
        commits.make_durable()  # even with flush=none, as deletions in the bucket can't be undone


class RemoteLogMetadataConsumer:
    """Updates a `RemoteLogMetadataCache`: `catch_up` reads new records of the topic.

    Not thread-safe. Takes no lock and writes no data, so that readers can use it as well.
    """

    def __init__(self, view: LogDirView, clock: Clock) -> None:
        self._view, self._clock = view, clock
        self._start_over(None)

    def _start_over(self, topic_id: str | None) -> None:
        self.cache = RemoteLogMetadataCache()
        self._at, self._topic_id, self._read_ms = 0, topic_id, self._clock()
        self._incarnation = self._view.incarnation

    def catch_up(self) -> RemoteLogMetadataCache:
        """Return the copies as of now; the same object unless all records had to be read again.

        All records are read again if the topic or log was re-created, or if tombstones may have
        been removed since. Cost: reading the high watermark, and about 10 us per new record.

        Raises:
            DataCorruptionError: The topic is damaged; the message says how to rebuild it.
        """
        for _ in range(2):
            topic_id = self._view.topic_id(*METADATA)
            if topic_id is None:
                if self._topic_id is not None:
                    self._start_over(None)
                return self.cache
            silent = self._clock() - self._read_ms
            replaced = topic_id != self._topic_id or self._incarnation != self._view.renew()
            # A reader that was away longer than tombstones are kept would never learn of the
            # deletions.
            if replaced or silent > TOMBSTONES_KEPT_MS // 2:
                self._start_over(topic_id)
            with contextlib.suppress(TopicReplacedError, LogReplacedError, UnknownTopicError):
                self._read_on()
                break
        return self.cache

    def _read_on(self) -> None:
        now = self._clock()
        start, end = self._view.spans([METADATA])[METADATA]
        at = max(self._at, start)
        schema = schema_of(["key", "value", "offset"])
        read = PartitionRead(self._view, *METADATA, at, end, topic_id=self._topic_id)
        try:
            for rows in read_partition(read, schema):
                for key, value, offset in zip(
                    *(rows.column(name).to_pylist() for name in schema.names), strict=True
                ):
                    self._take(key, value)
                    self._at = offset + 1
        except OffsetOutOfRangeError as error:
            raise DataCorruptionError(f"{error}; {CURE}", path=REMOTE_METADATA) from error
        except DataCorruptionError as error:
            raise DataCorruptionError(
                f"{error.reason}; {CURE}", path=error.path, position=error.position
            ) from error
        self._at, self._read_ms = max(self._at, end), now

    def _take(self, key: bytes | None, value: bytes | None) -> None:
        if value is None:
            named = parse_key(key)
            if named is not None:
                self.cache.remove(*named)
            return
        record = parse(value, path=REMOTE_METADATA)
        match record:
            case SegmentRecord():
                self.cache.apply(record.segment)
            case UpdateRecord():
                self._update(record)
            case PartitionDeleteRecord():
                self.cache.mark_deleted(record.key, record.topic, record.time_ms)

    def _update(self, update: UpdateRecord) -> None:
        # Compaction may have removed the states in between, so no transition is checked here.
        if update.state is SegmentState.DELETE_FINISHED:
            self.cache.remove(update.key, update.id)
            return
        known = self.cache.find(update.key, update.id)
        if known is None or not known.state.may_become(update.state):
            # Kafka's cache drops such events as well (RemoteLogMetadataCache).
            _LOGGER.warning("%s-%d: %s is dropped", update.topic, update.partition, update)
            return
        self.cache.apply(known.become(update.state, update.time_ms))


def parse_key(raw: bytes | None) -> tuple[TopicIdPartition, str] | None:
    """Return (partition, segment id) for a copy's record, or None for other keys."""
    text = (raw or b"").decode(errors="replace").removesuffix(_STATE)
    head, segment_id = text[:-23], text[-22:]
    topic_id, partition = head[:22], head[23:]
    if len(topic_id) != 22 or not partition.isdecimal() or text[-23:-22] != "-":
        return None
    return TopicIdPartition(topic_id, int(partition)), segment_id


class LogCopies:
    """The copies of a log's segments, for readers: follows the log's `__remote_log_metadata`.

    Thread-safe.
    """

    def __init__(
        self, fs: FileSystem, directories: Sequence[str], clock: Clock = system_clock
    ) -> None:
        self._fs, self._directories, self._clock = fs, list(directories), clock
        self._consumer: RemoteLogMetadataConsumer | None = None
        self._lock = threading.Lock()

    def readable(self, topic_id: str, partition: int) -> Sequence[RemoteSegment]:
        """Return the copies of a partition that readers can use, ascending by base offset.

        These are the finished copies that no later copy supersedes. New records of the metadata
        topic are read first.

        Cost: reading a small file and new records of the topic.

        Raises:
            DataCorruptionError: The metadata are damaged; the message says how to rebuild them.
        """
        with self._lock:
            if self._consumer is None:
                self._consumer = RemoteLogMetadataConsumer(
                    LogDirView(self._fs, self._directories), self._clock
                )
            return list(self._consumer.catch_up().readable(TopicIdPartition(topic_id, partition)))
