"""The statistics of a log that a report shows, and `sparklog ui --export FILE --json` writes.

All values are as of `LogReport.time_ms`. Times are ms since the epoch (UTC), or None if records
have no timestamps. Sizes are bytes of log as Kafka counts them. Offset ranges are [first, end).
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
    """The place of a segment: the tiers of KIP-405."""

    LOCAL = "local"
    BOTH = "both"
    REMOTE = "remote"

    @property
    def label(self) -> str:
        """The label of the place on the pages."""
        return {"local": "local only", "both": "local, with a copy", "remote": "remote only"}[self]


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentReport:
    """A segment.

    Attributes:
        base: The first offset.
        end: The offset after the segment.
        bytes: The size of the `.log` file.
        where: The place of the segment.
        codec: The compression codec of the first batch. None for an empty segment, and for a
            remote segment, because reading the codec would cost a request.
        first_ms: The time of the first record. None for a remote segment, for the same reason.
        last_ms: The largest time of a record, or the time of the file.
        time_of_file: The records have no timestamps, so retention uses the time of the file, as in
            Kafka.
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
        """The time of the first record, or of the last record if the first is unknown."""
        return self.last_ms if self.first_ms is None else self.first_ms


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpiringSegments:
    """Segments that a retention rule deletes between two horizons of the preview.

    The preview assumes that no more records are written.

    Attributes:
        within_ms: The horizon, in ms from now.
        rule: The topic config that causes the deletion, such as `retention.ms`.
        where: LOCAL if a remote copy remains, REMOTE if the copy is deleted, BOTH if the data is
            deleted permanently.
        segments: The number of segments.
        bytes: The size of the segments.
        end: The offset after the deleted segments.
    """

    within_ms: int
    rule: str
    where: Where
    segments: int
    bytes: int
    end: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionReport:
    """How dirty a compacted partition is; see `sparklog.service.Dirt`.

    `wanted`: the cleaner would clean the partition now. `kept_share`: an estimate of the share of
    bytes that remains after compaction: the bytes per offset in the cleaned part, divided by the
    bytes per offset in the rest. If either part is empty, the estimate is None.
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
    """A partition.

    Attributes:
        topic: The topic.
        partition: The number of the partition.
        directory: The directory or the prefix of the partition.
        log_start: The log start offset.
        end: The high watermark.
        local_bytes: The size of the local segments.
        remote_bytes: The size of all copies, including copies of local segments.
        segments: The segments in ascending order.
        going: The deletions of the retention preview.
        next_ms: When the next segment expires by age, or None without such a segment.
        held_back_bytes: The size of expired segments that retention retains for a registered
            reader.
        compaction: How dirty a compacted partition is, otherwise None.
        error: Why the partition can't be read. The other statistics are unknown then.
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
        """The size of all segments. A segment that is both local and remote counts once."""
        return sum(s.bytes for s in self.segments)

    @property
    def name(self) -> str:
        """The name of the partition, TOPIC-PARTITION."""
        return f"{self.topic}-{self.partition}"

    @property
    def offsets(self) -> int:
        """The number of offsets from log start to high watermark; compaction leaves gaps."""
        return max(0, self.end - self.log_start)

    @property
    def oldest_ms(self) -> int | None:
        """The time (ms) of the first record, as far as the segments show it; None if unknown."""
        return min((s.since_ms for s in self.segments if s.since_ms is not None), default=None)

    @property
    def newest_ms(self) -> int | None:
        """The largest time of a record in the segments, or None if no time is known."""
        return max((s.last_ms for s in self.segments if s.last_ms is not None), default=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicReport:
    """A topic.

    `config`: the configs that differ from Kafka's defaults. None for a broker's log dirs, because a
    broker stores configs in its cluster metadata. Without configs there is no retention preview.
    `batches`: statistics of the newest record batches, a row per codec. Empty if none were read.
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
        """The size of all segments. A segment that is both local and remote counts once."""
        return sum(p.bytes for p in self.partitions)

    @property
    def offsets(self) -> int:
        """The number of offsets from log start to high watermark, over all partitions."""
        return sum(p.offsets for p in self.partitions)

    @property
    def segments(self) -> list[SegmentReport]:
        """The segments of all partitions."""
        return [s for p in self.partitions for s in p.segments]


@dataclass(frozen=True, slots=True, kw_only=True)
class WriterReport:
    """The commits of a writer since the start of the ledger.

    Attributes:
        writer: The writer, or None for appends that did not name a writer.
        query: The name of the streaming query, or None if unknown.
        commits: The number of commits.
        records: The number of appended records.
        resets: The number of resets.
        first_batch: The id of the first micro-batch, or None.
        last_batch: The id of the last micro-batch, or None.
        first_ms: The time of the first commit.
        last_ms: The time of the last commit.
        topics: The topics with appended records.
        by_time: The number of records per bin of `CommitsReport.edges_ms`.
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
        """The label of the writer on the pages, with the query's name if known."""
        return "plain appends" if self.writer is None else query_text(self.writer, self.query)


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitsReport:
    """The commits of all writers. `edges_ms`: the bounds of the bins of `WriterReport.by_time`."""

    edges_ms: tuple[int, ...] = ()
    writers: tuple[WriterReport, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ReaderReport:
    """The position of a registered reader in a partition.

    Attributes:
        group: The consumer group, or the name of the query's reader.
        kind: The kind of the reader, or "damaged" if its file can't be read.
        query: The name of the streaming query, or None if unknown.
        topic: The topic, or None for a damaged reader.
        partition: The partition, or None for a damaged reader.
        offset: The committed offset, or None for a damaged reader.
        lag: The lag, or None if the partition does not exist.
        time_ms: The time of the last commit.
        expired: Whether retention ignores the reader, because it has not committed for too long.
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
        """The label of the reader on the pages, with the query's name if known."""
        return query_text(self.group, self.query)


@dataclass(frozen=True, slots=True, kw_only=True)
class GrowthReport:
    """The current bytes of a log by the time of their records.

    Bins are equally long. Bin i is [edges_ms[i], edges_ms[i + 1]). The bytes of a segment are
    spread evenly over its time. Bytes without a time are in no bin.

    Attributes:
        edges_ms: The bounds of the bins.
        bytes: For each place, the bytes per bin.
        topics: For each topic, the bytes per bin.
        before: The bytes before the first bin.
        after: The bytes after the last bin.
    """

    edges_ms: tuple[int, ...] = ()
    bytes: dict[str, tuple[int, ...]] = field(default_factory=dict)
    topics: dict[str, tuple[int, ...]] = field(default_factory=dict)
    before: int = 0
    after: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class DirectoryReport:
    """A log dir. `offline`: why the log dir can't be read, or None."""

    path: str
    partitions: int
    bytes: int
    free_bytes: int | None
    offline: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Notice:
    """A warning, or a report of damage. `where`: a path or partition, possibly empty."""

    severity: Severity
    where: str
    what: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LogReport:
    """The statistics of a log.

    Attributes:
        path: The path of the log.
        kind: "log", "broker" (a broker's log dirs, without a ledger) or "archive".
        url: The URL of the remote storage, or None.
        time_ms: The time of the report.
        took_ms: How long the report took.
        version: The version of sparklog.
        directories: The log dirs.
        topics: The topics.
        growth: The bytes of the log by time.
        commits: The commits of all writers.
        readers: The positions of registered readers.
        notices: Damage and warnings, damage first.
        health: The health of the log.
    """

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
        """The partitions of all topics."""
        return (p for topic in self.topics for p in topic.partitions)

    @property
    def is_in_store(self) -> bool:
        """Whether all data is in an object store: an archive, or a log in a bucket."""
        return self.url is not None and self.url == self.path.rstrip("/")

    @property
    def is_tiered(self) -> bool:
        """Whether a log in log dirs uses remote storage. The page mentions tiers only then."""
        has_copies = self.url is not None or any(p.remote_bytes for p in self.partitions)
        return has_copies and not self.is_in_store

    @property
    def damaged(self) -> bool:
        """Whether data can't be read, or a log dir is offline."""
        return any(notice.severity is Severity.DAMAGE for notice in self.notices)

    def to_dict(self) -> dict[str, Any]:
        """Return the report as dicts and lists, for JSON."""
        return {**asdict(self), "health": self.health.to_dict()}
