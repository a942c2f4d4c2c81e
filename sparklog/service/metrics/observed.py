"""What a log's files say at one moment, as objects. Sizes in bytes, times in ms since the epoch."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Protocol

from sparklog.common import TopicPartition
from sparklog.log.batch_figures import BatchFigures
from sparklog.log.due_segments import LocalSegment
from sparklog.logdir.retention.partition_retention import PartitionRetention
from sparklog.metrics import Distribution
from sparklog.service.metrics.commit_trail import CommitTrail
from sparklog.storage.commit_rate import CommitRate
from sparklog.storage.query_origin import query_text
from sparklog.storage.round_report import Dirt
from sparklog.storage.unfinished_erasure import UnfinishedErasure


@dataclass(frozen=True, slots=True)
class PartitionMetrics:
    """A partition's local files, and the offsets [log_start_offset, log_end_offset) it holds.

    `due_bytes`: of segments that retention should have deleted by now. `pieces`: of a log in a
    store, those of them that no service has merged yet; None in log dirs, which have no such.
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
    """A topic's remote side. `copy_lag_ms`: age of the newest record in the oldest closed segment
    without a copy; 0 if there is none."""

    topic: str
    remote_bytes: int = 0
    copy_lag_bytes: int = 0
    copy_lag_segments: int = 0
    copy_lag_ms: int = 0
    delete_lag_bytes: int = 0
    delete_lag_segments: int = 0


@dataclass(frozen=True, slots=True)
class AwaitingDeletion:
    """Bytes that nobody reads, and that wait for file.delete.delay.ms, or a store's service.

    `kind`: topic, one that was deleted, and can be given back; segment, what retention, compaction
    and merges took out of a topic. `storage`: local, the log dirs or the log's own store; remote.
    """

    topic: str
    kind: str
    storage: str
    size_bytes: int


@dataclass(frozen=True, slots=True)
class ReaderMetrics:
    """How far a registered reader (kind: query or group) is; `lag`: None if its partition is gone.

    `expired`: retention waits for it no more. `name`: the query's, empty where none is known.
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
    """A writer's last micro-batch. `name`: its query's, empty where none is known."""

    writer: str
    batch: int
    time_ms: int
    name: str = ""

    @property
    def text(self) -> str:
        """The query's name, if it is known, and the writer."""
        return query_text(self.writer, self.name)


@dataclass(frozen=True, slots=True)
class DirectoryMetrics:
    """A log dir; `error` says why it can't be read, and free_bytes is then None.

    `failing`: a session's last write there failed, in whatever process of this host.
    """

    directory: str
    free_bytes: int | None
    error: str = ""
    failing: bool = False


@dataclass(frozen=True, slots=True)
class CommitMetrics:
    """What the ledger gained: commits by kind, records by topic.

    `size_bytes`, `duration_seconds`: of the commits that tell it, all but those of old sparklogs.
    """

    commits: dict[str, int]
    records: dict[str, int]
    size_bytes: Distribution
    duration_seconds: Distribution


@dataclass(frozen=True, slots=True)
class MergeMetrics:
    """What of a topic in a store is no segment yet: bytes of its pieces, the oldest one's age."""

    topic: str
    size_bytes: int
    age_ms: int


@dataclass(frozen=True, slots=True)
class CompactedMetrics:
    """How dirty a compacted partition of a log in a store is; `wanted`: a cleaner would take it.

    `closed_ms`: if so, when the last segment that may be cleaned was merged.
    """

    dirt: Dirt
    wanted: bool
    closed_ms: int = 0


@dataclass(slots=True, kw_only=True)
class LogDetail:
    """What a look saw beside its metrics: what the log's verdict (sparklog.service.health) needs.

    `paces`: of the registered readers, by group. `held`: local segments; `places`: what retention
    goes by. `sign`: the last sign of life of the service of a log in a store; `compacted`: its
    compacted partitions; `erasures`: those of its topics that aren't complete; `unreadable`:
    {partition: the reason} for a log in a store some of whose objects are missing or too short.
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
    """A log as `Observer.observe` found it.

    `home`: what this process's own counts of it are under; "" stands for its first log dir.
    `merges`, `term`, `holder`: of a log in a store. `holder`: pid, host and since_ms of the service
    that took it last; empty if none ever did.

    `commits`: since the observer's first look, or of all that the ledger holds; None for a log
    without a ledger. `batches`: {topic: figures of its newest batches, a row a codec}, of topics
    that were sampled by now. `offline`: {(topic, partition): why}. `errors`: what wasn't read.
    `first_deletions`: {topic: (bytes that are due, of so many)} where retention has deleted nothing
    yet and would now take more than half. `tier_fault`: why remote segments can't be read, if the
    log itself says so.
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
        """Take down what could not be read."""
        self.errors.append(f"{type(error).__name__}: {error}")

    def size_bytes(self, keys: Iterable[TopicPartition]) -> int:
        """Return the bytes that some partitions take here."""
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
    """Looks at a log again and again, wherever it is kept. Threads may share it."""

    @property
    def directories(self) -> Sequence[str]:
        """Its log dirs, or the URL of its store: what can be offline. Its counts are the first's.
        """

    def observe(self) -> LogMetrics:
        """Return what is there now; what can't be read is left out and told in `errors`."""

    def observe_directories(self) -> list[DirectoryMetrics]:
        """Return the log dirs, or the store, read or not."""
