"""The state of a log at a moment, as objects. Sizes in bytes, times in ms since the epoch."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Protocol

from sparklog.common import TopicPartition
from sparklog.log.batch_figures import BatchFigures
from sparklog.log.due_segments import LOG_START, DueSegments, LocalSegment
from sparklog.logdir.retention.partition_retention import PartitionRetention
from sparklog.metrics import Distribution
from sparklog.service.metrics.commit_trail import CommitTrail
from sparklog.storage.commit_rate import CommitRate
from sparklog.storage.query_origin import query_text
from sparklog.storage.round_report import Dirt
from sparklog.storage.unfinished_erasure import UnfinishedErasure


@dataclass(frozen=True, slots=True)
class PartitionMetrics:
    """The local files of a partition, and the offsets [log_start_offset, log_end_offset).

    Attributes:
        due_bytes: The bytes of segments that retention should have deleted by now.
        pieces: The number of extents of a log in a bucket that are not merged yet.
    """

    topic: str
    partition: int
    directory: str
    size_bytes: int
    segments: int
    log_start_offset: int
    log_end_offset: int
    due_bytes: int = 0
    pieces: int | None = None


@dataclass(slots=True)
class TierMetrics:
    """The remote storage of a topic.

    Attributes:
        copy_lag_ms: The age of the newest record in the oldest closed segment without a copy; 0 if
            each closed segment has a copy.
    """

    topic: str
    remote_bytes: int = 0
    copy_lag_bytes: int = 0
    copy_lag_segments: int = 0
    copy_lag_ms: int = 0
    delete_lag_bytes: int = 0
    delete_lag_segments: int = 0


@dataclass(frozen=True, slots=True)
class AwaitingDeletion:
    """Bytes that no reader uses, and that wait for file.delete.delay.ms, or for a service.

    Attributes:
        kind: "topic" (a deleted topic that can be undeleted), or "segment" (segments that
            retention, compaction and merges removed from a topic).
        storage: "local" (log dirs, or the log's own bucket), or "remote".
    """

    topic: str
    kind: str
    storage: str
    size_bytes: int


@dataclass(frozen=True, slots=True)
class ReaderMetrics:
    """The position of a registered reader in a partition.

    Attributes:
        kind: "query" or "group".
        lag: The number of unread records; None after the partition was deleted.
        expired: Whether retention no longer waits for the reader.
        name: The name of the query; empty if unknown.
    """

    group: str
    kind: str
    topic: str
    partition: int
    offset: int
    lag: int | None
    time_ms: int
    expired: bool
    name: str = ""


@dataclass(frozen=True, slots=True)
class WriterMetrics:
    """A writer's last micro-batch. `name` is the name of the query, or empty if unknown."""

    writer: str
    batch: int
    time_ms: int
    name: str = ""

    @property
    def text(self) -> str:
        """The query's name, if known, and the writer."""
        return query_text(self.writer, self.name)


@dataclass(frozen=True, slots=True)
class DirectoryMetrics:
    """The state of a log dir.

    Attributes:
        free_bytes: The free space; None if the log dir can't be read.
        error: Why the log dir can't be read.
        failing: Whether the most recent write to the log dir failed, in any process on this host.
    """

    directory: str
    free_bytes: int | None
    error: str = ""
    failing: bool = False


@dataclass(frozen=True, slots=True)
class CommitMetrics:
    """New commits in the ledger: commits by kind, records by topic.

    Sizes and durations are only those of commits that recorded them, which old versions of sparklog
    did not do.
    """

    commits: dict[str, int]
    records: dict[str, int]
    size_bytes: Distribution
    duration_seconds: Distribution


@dataclass(frozen=True, slots=True)
class MergeMetrics:
    """Unmerged data of a topic in a bucket: its size, and the age of the oldest extent."""

    topic: str
    size_bytes: int
    age_ms: int


@dataclass(frozen=True, slots=True)
class CompactedMetrics:
    """How dirty a compacted partition of a log in a bucket is.

    Attributes:
        wanted: Whether the partition is due for cleaning.
        closed_ms: When the last cleanable segment was merged; only if `wanted`.
    """

    dirt: Dirt
    wanted: bool
    closed_ms: int = 0


@dataclass(slots=True, kw_only=True)
class LogDetail:
    """Observations besides the metrics, which the log's health needs (`sparklog.service.health`).

    Attributes:
        trail: recent commits.
        paces: commit rates of the registered readers, by group.
        held: local segments.
        places: partitions with their retention settings.
        sign: the last sign of life of the service of a log in a bucket.
        compacted: compacted partitions of a log in a bucket.
        erasures: incomplete erasures in the log's topics.
        unreadable: {partition: reason} for a log in a bucket with missing or truncated objects.
    """

    trail: CommitTrail = field(default_factory=CommitTrail)
    paces: dict[str, CommitRate] = field(default_factory=dict)
    held: Mapping[TopicPartition, Sequence[LocalSegment]] = field(default_factory=dict)
    places: Mapping[TopicPartition, PartitionRetention] = field(default_factory=dict)
    sign: Mapping[str, Any] = field(default_factory=dict)
    compacted: Mapping[TopicPartition, CompactedMetrics] = field(default_factory=dict)
    erasures: Sequence[UnfinishedErasure] = ()
    unreadable: Mapping[TopicPartition, str] = field(default_factory=dict)


@dataclass(slots=True, kw_only=True)
class LogMetrics:
    """The state of a log, as returned by `Observer.observe`.

    Attributes:
        home: key of this process's own counts; "" stands for the first log dir.
        commits: since the observer's first call, or all commits in the ledger, if there is a
            ledger.
        batches: {topic: figures of its newest batches, a row per codec}, of the topics sampled by
            now.
        offline: {(topic, partition): reason}.
        tier_fault: why remote segments can't be read, according to the log's own files.
        first_deletions: {topic: (bytes due, bytes of the topic)} of topics in which retention has
            deleted no records yet and would now delete more than half.
        merges: unmerged data of a log in a bucket.
        term: the term of the service of a log in a bucket.
        holder: pid, host and since_ms of the last service of a log in a bucket; empty before the
            first.
        errors: what could not be read.
    """

    path: str
    time_ms: int
    home: str = ""
    directories: list[DirectoryMetrics] = field(default_factory=list)
    partitions: list[PartitionMetrics] = field(default_factory=list)
    tiers: list[TierMetrics] = field(default_factory=list)
    awaiting_deletion: list[AwaitingDeletion] = field(default_factory=list)
    readers: list[ReaderMetrics] = field(default_factory=list)
    damaged_readers: int = 0
    writers: list[WriterMetrics] = field(default_factory=list)
    last_commit_ms: int | None = None
    commits: CommitMetrics | None = None
    batches: dict[str, tuple[BatchFigures, ...]] = field(default_factory=dict)
    offline: dict[TopicPartition, str] = field(default_factory=dict)
    remote_url: str | None = None
    tier_fault: str | None = None
    first_deletions: dict[str, tuple[int, int]] = field(default_factory=dict)
    merges: list[MergeMetrics] = field(default_factory=list)
    term: int | None = None
    holder: dict[str, object] = field(default_factory=dict)
    errors: list[str] = field(default_factory=list)
    took_ms: float = 0.0
    detail: LogDetail = field(default_factory=LogDetail, compare=False, repr=False)

    def note(self, error: BaseException) -> None:
        """Record an error."""
        self.errors.append(f"{type(error).__name__}: {error}")

    def note_first_deletions(
        self,
        due: Mapping[TopicPartition, DueSegments | None],
        ids: Mapping[str, str],
        announced: Mapping[str, bool],
    ) -> None:
        """Set `first_deletions`. Local segments with a remote copy stay readable, and don't count.

        Args:
            due: Segments that retention would delete.
            ids: {topic: topic id}.
            announced: {topic id: whether retention has deleted something there}.
        """
        sizes: dict[str, int] = {}
        for partition in self.partitions:
            sizes[partition.topic] = sizes.get(partition.topic, 0) + partition.size_bytes
        taken: dict[str, int] = {}
        for key, segments in due.items():
            if segments is None or segments.local or announced.get(ids.get(key.topic, ""), False):
                continue
            size = sum(each.bytes for each in segments.expired if each.rule != LOG_START)
            taken[key.topic] = taken.get(key.topic, 0) + size
        self.first_deletions = {
            topic: (size, sizes[topic])
            for topic, size in sorted(taken.items())
            if topic in ids and 2 * size > sizes.get(topic, 0) > 0
        }

    def size_bytes(self, keys: Iterable[TopicPartition]) -> int:
        """Return the local size of some partitions."""
        wanted = set(keys)
        return sum(p.size_bytes for p in self.partitions if (p.topic, p.partition) in wanted)

    def to_dict(self) -> dict[str, Any]:
        """Return plain dicts and lists, for JSON."""
        found = asdict(replace(self, detail=LogDetail()))
        del found["detail"]
        found["offline"] = [
            {"topic": topic, "partition": p, "error": why}
            for (topic, p), why in sorted(self.offline.items())
        ]
        for name in ("size_bytes", "duration_seconds"):
            if self.commits is not None:
                given: Distribution = getattr(self.commits, name)
                buckets = {str(bound): count for bound, count in given.at.items()}
                found["commits"][name] = {
                    "count": given.count, "sum": given.sum, "buckets": buckets,
                }  # fmt: skip
        return found


class LogObserver(Protocol):
    """Observes a log repeatedly, in any home. Thread-safe."""

    @property
    def directories(self) -> Sequence[str]:
        """The log dirs, or the URL of the bucket. This process's own counts use the first."""

    def observe(self) -> LogMetrics:
        """Return the current state. Parts that can't be read are reported in `errors`."""

    def observe_directories(self) -> list[DirectoryMetrics]:
        """Return the log dirs, or the bucket, with the errors of reading them."""
