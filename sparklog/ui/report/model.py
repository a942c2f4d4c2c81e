"""A log as numbers: shown by a report, and written by `sparklog ui --export FILE --json`.

Everything is as of `LogReport.time_ms`. Times are ms since the epoch, UTC; None if records have
none. Sizes are bytes of log as Kafka counts them. Offset ranges are [first, end).
"""

from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any, Final

from sparklog.log.batch_figures import BatchFigures
from sparklog.quantities import DAY_MS, HOUR_MS
from sparklog.service import Severity
from sparklog.service.health import Health
from sparklog.storage.query_origin import query_text

HORIZONS_MS: Final = (0, HOUR_MS, 6 * HOUR_MS, DAY_MS, 3 * DAY_MS, 7 * DAY_MS, 30 * DAY_MS)
"""The horizons of the retention preview; the first is the next retention round."""


class Where(StrEnum):
    """The place of a segment (KIP-405's tiers)."""

    LOCAL = "local"
    BOTH = "both"
    REMOTE = "remote"

    @property
    def label(self) -> str:
        """The place in words."""
        return {"local": "local only", "both": "local, with a copy", "remote": "remote only"}[self]


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentReport:
    """Offsets [base, end) and their records' times. `codec`: that of the first batch.

    The codec is None if the segment is empty, or reading it would take a request to remote storage;
    so is `first_ms` of a segment that is only remote. `time_of_file`: its records have no time, so
    its age is that of its file, as in Kafka.
    """

    base: int
    end: int
    bytes: int
    where: Where
    codec: str | None
    first_ms: int | None
    last_ms: int | None
    time_of_file: bool = False

    @property
    def since_ms(self) -> int | None:
        """The time of its first record if known, otherwise of the last one."""
        return self.last_ms if self.first_ms is None else self.first_ms


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpiringSegments:
    """Segments that retention deletes `within_ms` from now, but not before the previous horizon.

    The forecast assumes that no more records are written. `where`: local, for a local segment that
    has a copy; remote, for a copy; both, for data that is then lost for good. `end`: the offset up
    to which it deletes.
    """

    within_ms: int
    rule: str
    where: Where
    segments: int
    bytes: int
    end: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionReport:
    """How dirty a partition is: see `sparklog.logdir.cleaning.plan.Dirt`.

    `wanted`: a cleaner would clean it now. `kept_share`: bytes an offset in the cleaned part, by
    bytes an offset in the rest, or None if either is empty. It estimates how much compaction keeps.
    """

    first_dirty: int
    first_uncleanable: int
    clean_bytes: int
    cleanable_bytes: int
    dirty_ratio: float
    wanted_ratio: float
    wanted: bool
    kept_share: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionReport:
    """A partition. `error`: why the other figures are unknown.

    `remote_bytes` of all copies, including those of local segments. `next_ms`: when age expires the
    next segment, None if never. `held_back_bytes`: expired, but kept for a registered reader.
    """

    topic: str
    partition: int
    directory: str
    log_start: int = 0
    end: int = 0
    local_bytes: int = 0
    remote_bytes: int = 0
    segments: tuple[SegmentReport, ...] = ()
    going: tuple[ExpiringSegments, ...] = ()
    next_ms: int | None = None
    held_back_bytes: int = 0
    compaction: CompactionReport | None = None
    error: str | None = None

    @property
    def bytes(self) -> int:
        """Bytes of log, each segment once, in any place."""
        return sum(s.bytes for s in self.segments)

    @property
    def name(self) -> str:
        """The topic and the partition, as in Kafka's directory names."""
        return f"{self.topic}-{self.partition}"

    @property
    def offsets(self) -> int:
        """Offsets between log start and high watermark; a compacted log holds fewer records."""
        return max(0, self.end - self.log_start)

    @property
    def oldest_ms(self) -> int | None:
        """The earliest known time of a segment."""
        return min((s.since_ms for s in self.segments if s.since_ms is not None), default=None)

    @property
    def newest_ms(self) -> int | None:
        """The latest time of a segment."""
        return max((s.last_ms for s in self.segments if s.last_ms is not None), default=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicReport:
    """A topic; `config`: values that differ from Kafka's defaults, or None if unknown.

    (A broker keeps configs in its cluster metadata: without them there is no retention preview.)
    `batches`: of its newest record batches, a row a codec; none if none were read.
    """

    name: str
    id: str
    config: dict[str, str] | None
    cleanup_policy: tuple[str, ...]
    remote_storage_enable: bool
    partitions: tuple[PartitionReport, ...]
    batches: tuple[BatchFigures, ...] = ()

    @property
    def bytes(self) -> int:
        """Bytes of log, each segment once."""
        return sum(p.bytes for p in self.partitions)

    @property
    def offsets(self) -> int:
        """Offsets of all partitions."""
        return sum(p.offsets for p in self.partitions)

    @property
    def segments(self) -> list[SegmentReport]:
        """All segments."""
        return [s for p in self.partitions for s in p.segments]


@dataclass(frozen=True, slots=True, kw_only=True)
class WriterReport:
    """A writer's commits, as far back as the ledger reaches; `writer` is None for plain appends.

    `query`: the name of the streaming query, or None if it isn't known.
    """

    writer: str | None
    query: str | None
    commits: int
    records: int
    resets: int
    first_batch: int | None
    last_batch: int | None
    first_ms: int
    last_ms: int
    topics: tuple[str, ...]
    by_time: tuple[int, ...]

    @property
    def text(self) -> str:
        """The query's name, if it is known, and the writer."""
        return "plain appends" if self.writer is None else query_text(self.writer, self.query)


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitsReport:
    """The ledger. `edges_ms` bound the bins of `WriterReport.by_time`, which hold records."""

    edges_ms: tuple[int, ...] = ()
    writers: tuple[WriterReport, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ReaderReport:
    """A registered reader's position in a partition, or None if the partition is gone or damaged.

    `query`: the name of the streaming query, or None if it isn't known.
    """

    group: str
    kind: str
    query: str | None
    topic: str | None
    partition: int | None
    offset: int | None
    lag: int | None
    time_ms: int
    expired: bool

    @property
    def text(self) -> str:
        """The query's name, if it is known, and the group."""
        return query_text(self.group, self.query)


@dataclass(frozen=True, slots=True, kw_only=True)
class GrowthReport:
    """Current bytes by the times of their records: bin i is [edges_ms[i], edges_ms[i + 1]).

    They are given by place (`bytes`) and by topic (`topics`). Bins are equally long. Bytes are
    spread evenly over each segment's time. Bytes before the first edge are in `before`, those after
    the last in `after`, those without a time in neither.
    """

    edges_ms: tuple[int, ...] = ()
    bytes: dict[str, tuple[int, ...]] = field(default_factory=dict)
    topics: dict[str, tuple[int, ...]] = field(default_factory=dict)
    before: int = 0
    after: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class DirectoryReport:
    """A log dir with its partitions and bytes; `offline`: why it can't be read."""

    path: str
    partitions: int
    bytes: int
    free_bytes: int | None
    offline: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Notice:
    """A notice to the log's owner, by severity; `where` may be empty."""

    severity: Severity
    where: str
    what: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LogReport:
    """A whole log. `kind`: log, broker (no ledger) or archive; `url`: its remote storage."""

    path: str
    kind: str
    url: str | None
    time_ms: int
    took_ms: int
    version: str
    directories: tuple[DirectoryReport, ...]
    topics: tuple[TopicReport, ...]
    growth: GrowthReport
    commits: CommitsReport
    readers: tuple[ReaderReport, ...]
    notices: tuple[Notice, ...]
    health: Health

    @property
    def partitions(self) -> Iterator[PartitionReport]:
        """All partitions."""
        return (p for topic in self.topics for p in topic.partitions)

    @property
    def is_in_store(self) -> bool:
        """Whether the whole log is in an object store: an archive, or a log in a bucket."""
        return self.url is not None and self.url == self.path.rstrip("/")

    @property
    def is_tiered(self) -> bool:
        """Whether a log on disks uses remote storage; if not, the page does not mention it."""
        has_copies = self.url is not None or any(p.remote_bytes for p in self.partitions)
        return has_copies and not self.is_in_store

    @property
    def damaged(self) -> bool:
        """Whether data can't be read, or a log dir is offline."""
        return any(notice.severity is Severity.DAMAGE for notice in self.notices)

    def to_dict(self) -> dict[str, Any]:
        """Return plain dicts and lists, for JSON."""
        return {**asdict(self), "health": self.health.to_dict()}
