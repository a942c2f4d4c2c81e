"""The report of a service round or a dry run: as objects, as JSON, and as text."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Final

from sparklog.common import TopicPartition
from sparklog.config import TopicConfig
from sparklog.html import foreign, table
from sparklog.pluralize import pluralize

_GARBAGE: Final = {
    "replaced": "merged or compacted since",
    "expired": "deleted by retention",
    "past": "left by a service that ended",
    "staged": "staged, and merged since or never committed",
    "inline": "data in entries, merged since or deleted",
    "state": "older states",
    "position": "older positions of groups",
    "upload": "uploads that nobody finished",
    "trial": "left by the trial of a new home",
}


@dataclass(frozen=True, slots=True)
class Expired:
    """A segment that retention deleted, or would delete.

    Attributes:
        base: The base offset of the segment.
        end: The offset after its last record.
        bytes: The size of its log.
        rule: log.start.offset, retention.bytes or retention.ms; for the local copy of a tiered
            segment local.retention.bytes or local.retention.ms.
        why: An explanation of the rule, with figures.

    Examples:
        >>> import time
        >>> from sparklog.service import Service
        >>> info = log.alter_topic("flights", config={"retention.ms": 3_600_000})
        >>> tomorrow_ms = int(time.time() * 1000) + 86_400_000
        >>> report = Service("log").retain(now_ms=tomorrow_ms, dry_run=True)
        >>> {segment.rule for deleted in report.deleted for segment in deleted.segments}
        {'retention.ms'}
    """

    base: int
    end: int
    bytes: int
    rule: str  # log.start.offset, retention.bytes or retention.ms; of a tiered topic local.*
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Deleted:
    """Segments that retention deleted from a partition, or would delete, oldest first.

    Attributes:
        topic: The topic.
        partition: The partition.
        segments: The segments.
        log_start: The new log start offset; with `local` the start of the local segments.
        held_back_bytes: The size of expired segments that a registered reader has not read.
        local: Whether only local segments were deleted, and their copies in remote storage stay.

    Examples:
        >>> import time
        >>> from sparklog.service import Service
        >>> info = log.alter_topic("flights", config={"retention.ms": 3_600_000})
        >>> tomorrow_ms = int(time.time() * 1000) + 86_400_000
        >>> report = Service("log").retain(now_ms=tomorrow_ms)
        >>> sorted((deleted.topic, deleted.partition) for deleted in report.deleted)
        [('flights', 0), ('flights', 1)]
    """

    topic: str
    partition: int
    segments: tuple[Expired, ...]
    log_start: int
    held_back_bytes: int = 0
    local: bool = False

    @property
    def bytes(self) -> int:
        """The size of the deleted segments."""
        return sum(s.bytes for s in self.segments)


@dataclass(frozen=True, slots=True, kw_only=True)
class Dirt:
    """How dirty a partition of a compacted topic is.

    The offsets [first_dirty, first_uncleanable) can be cleaned.

    Source: Kafka's LogToClean.

    Attributes:
        first_dirty: The first offset that was not compacted yet.
        first_uncleanable: The first offset that can't be compacted yet.
        clean_bytes: The size of the segments below `first_dirty`.
        cleanable_bytes: The size of the segments that can be cleaned.
        overdue_ms: By how much (ms) the oldest dirty batch exceeds max.compaction.lag.ms; 0 if it
            does not.

    Examples:
        >>> from sparklog.service import Dirt
        >>> Dirt(first_dirty=10, first_uncleanable=20, clean_bytes=300, cleanable_bytes=100).ratio
        0.25
    """

    first_dirty: int
    first_uncleanable: int
    clean_bytes: int
    cleanable_bytes: int
    overdue_ms: int = 0

    @property
    def ratio(self) -> float:
        """The dirty ratio: dirty bytes of all bytes that a cleaning reads; 0 for an empty log."""
        total = self.clean_bytes + self.cleanable_bytes
        return self.cleanable_bytes / total if total else 0.0

    def wants_cleaning(self, config: TopicConfig) -> bool:
        """Return whether Kafka would clean the partition now.

        Args:
            config: The topic's options.

        Source: LogCleanerManager.grabFilthiestCompactedLog.
        """
        overdue = self.overdue_ms > 0 and self.cleanable_bytes > 0
        return overdue or self.ratio > config.min_cleanable_dirty_ratio


@dataclass(frozen=True, slots=True, kw_only=True)
class Cleanable:
    """A partition of a compacted topic and the partition's dirty ratio."""

    topic: str
    partition: int
    topic_id: str
    dirt: Dirt
    wanted: bool  # by min.cleanable.dirty.ratio or max.compaction.lag.ms

    @property
    def key(self) -> TopicPartition:
        """The partition."""
        return TopicPartition(self.topic, self.partition)


@dataclass(slots=True, kw_only=True)
class CleanReport:
    """The cleaning of a partition. In a dry run only `topic`, `partition` and `dirt` are set.

    Attributes:
        topic: The topic.
        partition: The partition.
        dirt: How dirty the partition was.
        dry_run: Whether the cleaning was only simulated.
        next_dirty: The new cleaner checkpoint. None if there was no work, or if the cleaning was
            `interrupted`.
        interrupted: Whether another process changed the files, so that the result was discarded.
        groups: The number of segments that were written.
        segments: The number of segments that were read.
        bytes_before: The size of the segments that were read.
        bytes_after: The size of the segments that were written.
        records_read: The number of records that were read.
        records_kept: The number of records that were retained.
        keys: The number of distinct keys.
        utilization: The fullness of the offset map, from 0 to 1.
        retired: Files that wait as `.deleted` for file.delete.delay.ms.
        took_ms: The duration, in milliseconds.
        locked_ms_max: The longest time (ms) that a step held the write lock.

    Examples:
        >>> from sparklog.service import Service
        >>> info = log.alter_topic("flights", config={"cleanup.policy": "compact"})
        >>> [cleaned.dirt.ratio for cleaned in Service("log").compact(dry_run=True).cleaned]
        [...]
    """

    topic: str
    partition: int
    dirt: Dirt
    dry_run: bool = False
    next_dirty: int | None = None
    interrupted: bool = False
    groups: int = 0
    segments: int = 0
    bytes_before: int = 0
    bytes_after: int = 0
    records_read: int = 0
    records_kept: int = 0
    keys: int = 0
    utilization: float = 0.0
    retired: list[str] = field(default_factory=list)
    took_ms: float = 0.0
    locked_ms_max: float = 0.0

    def add_group(self, sizes: Sequence[int], size: int, records: tuple[int, int]) -> None:
        """Add segments that were rewritten into a single segment.

        Args:
            sizes: The sizes of the segments that were read.
            size: The size of the segment that was written.
            records: The numbers of records that were read and retained.
        """
        self.groups += 1
        self.segments += len(sizes)
        self.bytes_before += sum(sizes)
        self.bytes_after += size
        self.records_read += records[0]
        self.records_kept += records[1]


@dataclass(frozen=True, slots=True, kw_only=True)
class Uploaded:
    """A segment that was copied to remote storage, or would be.

    Attributes:
        topic: The topic.
        partition: The partition.
        base: The base offset.
        end: The offset after the last record.
        bytes: The size of the log.
        stored_bytes: The size in the store, encrypted or not.

    Examples:
        >>> from sparklog.service import Service
        >>> info = log.create_topic("tiered", config={"remote.storage.enable": True})
        >>> report = Service("log", remote=bucket).run_once(dry_run=True)
        >>> [segment.bytes for segment in report.uploaded]  # no segment is closed yet
        []
    """

    topic: str
    partition: int
    base: int
    end: int
    bytes: int
    stored_bytes: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Removed:
    """A copy that was deleted from remote storage, or would be.

    Attributes:
        topic: The topic.
        partition: The partition.
        base: The base offset.
        end: The offset after the last record.
        bytes: The size of the log.
        rule: retention.ms, retention.bytes, log.start.offset, or topic (the topic was deleted).
        why: An explanation of the rule, with figures.

    Examples:
        >>> from sparklog.service import Service
        >>> [copy.rule for copy in Service("log").run_once(dry_run=True).removed]
        []
    """

    topic: str
    partition: int
    base: int
    end: int
    bytes: int
    rule: str
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Merged:
    """Extents that were merged into a segment of a log in a bucket, or would be.

    Attributes:
        topic: The topic.
        partition: The partition.
        base: The base offset.
        end: The offset after the last record.
        extents: The number of extents.
        bytes: The size of the log.
        stored_bytes: The size of the segment in the store.

    Examples:
        >>> from sparklog.service import Service
        >>> with sparklog.open(bucket, mode="rw") as bucket_log:
        ...     info = bucket_log.create_topic("flights", config={"retention.ms": -1})
        ...     ends = bucket_log.append("flights", pa.table({"value": ["1", "2"]}))
        >>> Service(bucket).run_once(dry_run=True).merged  # the extent is too young and too small
        []
    """

    topic: str
    partition: int
    base: int
    end: int
    extents: int
    bytes: int
    stored_bytes: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Swept:
    """Unused objects of a kind that were deleted from the store of a log in a bucket, or would be.

    Attributes:
        kind: replaced (segments), expired (segments), past (segments of former services), staged,
            inline (data of entries; the entries stay), state, position (of groups), upload
            (unfinished).
        objects: The number of objects.
        bytes: The size of the objects.

    Examples:
        >>> from sparklog.service import Service
        >>> sparklog.open(bucket, mode="rw").close()
        >>> [swept.kind for swept in Service(bucket).run_once(dry_run=True).swept]
        []
    """

    kind: str
    objects: int
    bytes: int


def _sizes(entries: Sequence[Expired | Uploaded | Removed | Merged]) -> tuple[int, int]:
    return len(entries), sum(entry.bytes for entry in entries)


@dataclass(slots=True, kw_only=True)
class Report:
    """The report of a round of a service, or of a dry run.

    Attributes:
        path: The log.
        time_ms: The time of the round, in milliseconds since the epoch.
        dry_run: Whether the round was only simulated; the report shows what it would do.
        standing_by: The process that leads, if this service did nothing because it stands by.
        rolled: (topic, partition, base offset) of each segment that was closed.
        deleted: Segments that retention deleted.
        cleaned: Partitions that were compacted.
        purged: Files that were unlinked after file.delete.delay.ms.
        purged_bytes: The size of `purged`.
        uploaded: Segments that were copied to remote storage.
        removed: Copies that were deleted from remote storage.
        orphans: Deleted objects that belonged to no copy.
        orphan_bytes: The size of `orphans`.
        remote_lag_bytes: The size of closed segments that are not copied yet.
        merged: In a bucket, extents that were merged.
        swept: In a bucket, unused objects that were deleted.
        made_manifests: In a bucket, the number of missing manifests that were written.
        notes: Sentences about other changes.
        errors: Steps that failed; the rest of the round was done.
        locked_ms: How long (ms) each step held the write lock.
        took_ms: The duration, in milliseconds.

    Examples:
        >>> from sparklog.service import Service
        >>> report = Service("log").run_once()
        >>> report.worked, report.errors
        (False, [])
    """

    path: str
    time_ms: int
    dry_run: bool = False
    standing_by: str = ""
    rolled: list[tuple[str, int, int]] = field(default_factory=list)
    deleted: list[Deleted] = field(default_factory=list)
    cleaned: list[CleanReport] = field(default_factory=list)
    purged: list[str] = field(default_factory=list)
    purged_bytes: int = 0
    uploaded: list[Uploaded] = field(default_factory=list)
    removed: list[Removed] = field(default_factory=list)
    orphans: list[str] = field(default_factory=list)
    orphan_bytes: int = 0
    remote_lag_bytes: int = 0
    merged: list[Merged] = field(default_factory=list)
    swept: list[Swept] = field(default_factory=list)
    made_manifests: int = 0
    notes: list[str] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    locked_ms: list[float] = field(default_factory=list)
    took_ms: float = 0.0

    @property
    def worked(self) -> bool:
        """Whether anything was done, or would be."""
        local = self.rolled or self.deleted or self.cleaned or self.purged
        remote = self.uploaded or self.removed or self.orphans
        return bool(local or remote or self.merged or self.swept or self.notes)

    def to_dict(self) -> dict[str, Any]:
        """Return the report as dicts and lists, for JSON."""
        return asdict(self)

    @property
    def moved(self) -> dict[str, tuple[int, int]]:
        """{action: (count, bytes)} of everything that was copied, merged or deleted."""
        expired = [segment for deleted in self.deleted for segment in deleted.segments]
        found = {
            "segments copied to remote storage": _sizes(self.uploaded),
            "segments deleted": _sizes(expired),
            "copies deleted from remote storage": _sizes(self.removed),
            "files unlinked": (len(self.purged), self.purged_bytes),
            "objects without a copy deleted": (len(self.orphans), self.orphan_bytes),
            "segments merged": _sizes(self.merged),
            "objects deleted from the store": (
                sum(swept.objects for swept in self.swept), sum(s.bytes for s in self.swept),
            ),
        }  # fmt: skip
        return {action: sizes for action, sizes in found.items() if sizes[0]}

    def __str__(self) -> str:
        return "\n".join(self._lines())

    def _repr_html_(self) -> str:
        done = "What a round would do" if self.dry_run else "A round"
        rows = [(foreign(line),) for line in self._lines()]
        return table(foreign(f"{done}: {self.path}, {self.took_ms / 1000:.1f} s"), ("",), rows)

    def _lines(self) -> Iterator[str]:
        if self.standing_by:
            yield f"{self.path}: {self.standing_by} does the background work; standing by"
            return
        would = "would be " if self.dry_run else ""
        yield from self._remote_lines(would)  # first: only copied segments are deleted
        for topic, partition, base in self.rolled:
            yield f"{topic}-{partition}: segment {base} {would}closed, as it is idle"
        for deleted in self.deleted:
            name = f"{deleted.topic}-{deleted.partition}"
            for segment in deleted.segments:
                yield (
                    f"{name}: offsets [{segment.base}, {segment.end}), {segment.bytes} bytes, "
                    f"{would}deleted {'here ' * deleted.local}by {segment.rule}: {segment.why}"
                )
            if deleted.held_back_bytes:
                yield f"{name}: {deleted.held_back_bytes} bytes wait for registered readers"
        for cleaned in self.cleaned:
            name = f"{cleaned.topic}-{cleaned.partition}"
            dirt = cleaned.dirt
            if self.dry_run:
                yield (
                    f"{name}: offsets [{dirt.first_dirty}, {dirt.first_uncleanable}), "
                    f"{dirt.cleanable_bytes} bytes, would be compacted"
                )
            else:
                yield (
                    f"{name}: compacted {cleaned.bytes_before} bytes into "
                    f"{cleaned.bytes_after}, {cleaned.keys} keys, {cleaned.took_ms:.0f} ms"
                )
        if self.purged:
            yield (
                f"{pluralize(len(self.purged), 'retired file')} {would}unlinked, "
                f"{self.purged_bytes} bytes"
            )
        yield from self._store_lines(would)
        yield from self.notes
        yield from (f"failed: {error}" for error in self.errors)
        if not self.worked and not self.errors:
            yield f"{self.path}: nothing to do"

    def _store_lines(self, would: str) -> Iterator[str]:
        for merged in self.merged:
            yield (
                f"{merged.topic}-{merged.partition}: offsets [{merged.base}, {merged.end}), "
                f"{merged.bytes} bytes in {pluralize(merged.extents, 'piece')}, "
                f"{would}merged into a segment"
            )
        for swept in self.swept:
            yield (
                f"{pluralize(swept.objects, 'object')} of {swept.bytes} bytes {would}removed from "
                f"the store: {_GARBAGE.get(swept.kind, swept.kind)}"
            )
        if self.made_manifests:
            yield f"{pluralize(self.made_manifests, 'manifest')} that missed {would}made"

    def _remote_lines(self, would: str) -> Iterator[str]:
        for uploaded in self.uploaded:
            yield (
                f"{uploaded.topic}-{uploaded.partition}: "
                f"offsets [{uploaded.base}, {uploaded.end}), {uploaded.bytes} bytes, "
                f"{would}copied to remote storage"
            )
        for removed in self.removed:
            yield (
                f"{removed.topic}-{removed.partition}: offsets [{removed.base}, {removed.end}), "
                f"{removed.bytes} bytes, {would}removed from remote storage by {removed.rule}: "
                f"{removed.why}"
            )
        if self.orphans:
            yield (
                f"{pluralize(len(self.orphans), 'object')} of {self.orphan_bytes} bytes of no copy "
                f"{would}removed from remote storage"
            )
        if self.remote_lag_bytes:
            yield f"{self.remote_lag_bytes} bytes of closed segments wait for their copy"
