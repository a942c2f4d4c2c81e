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
    """An expired segment: offsets [base, end), `bytes` of log. `why` explains the `rule`."""

    base: int
    end: int
    bytes: int
    rule: str  # log.start.offset, retention.bytes or retention.ms; of a tiered topic local.*
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Deleted:
    """Segments that retention deleted from a partition (or would), oldest first.

    `log_start`: the new log start. `held_back_bytes`: expired, but a registered reader has not read
    them. `local`: only local segments were deleted, and their copies in remote storage stay;
    `log_start` is then the start of the local segments.
    """

    topic: str
    partition: int
    segments: tuple[Expired, ...]
    log_start: int
    held_back_bytes: int = 0
    local: bool = False

    @property
    def bytes(self) -> int:
        """Bytes of log."""
        return sum(s.bytes for s in self.segments)


@dataclass(frozen=True, slots=True, kw_only=True)
class Dirt:
    """How dirty a partition is: [first_dirty, first_uncleanable) can be cleaned.

    `clean_bytes`: below first_dirty. `overdue_ms`: by how much the oldest dirty batch exceeds
    max.compaction.lag.ms; 0 if it does not.
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
        """Return True if Kafka would clean the partition now. Source: grabFilthiestCompactedLog."""
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
    """The cleaning of a partition, or a simulated cleaning (`dry_run`: only `dirt` is set).

    `next_dirty`: the new checkpoint. Without a new checkpoint, there was no work, or the cleaning
    was `interrupted` because another process changed the files. `bytes_before` and `bytes_after`:
    of the rewritten segments. `retired`: files that wait as `.deleted` for file.delete.delay.ms.
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
        """Add segments that were rewritten into a segment of `size` bytes.

        `sizes`: their sizes. `records`: the numbers of records that were read and retained.
        """
        self.groups += 1
        self.segments += len(sizes)
        self.bytes_before += sum(sizes)
        self.bytes_after += size
        self.records_read += records[0]
        self.records_kept += records[1]


@dataclass(frozen=True, slots=True, kw_only=True)
class Uploaded:
    """A segment of offsets [base, end) that was copied to remote storage (or would be).

    `bytes`: the size of its log. `stored_bytes`: its size in the store, encrypted or not.
    """

    topic: str
    partition: int
    base: int
    end: int
    bytes: int
    stored_bytes: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Removed:
    """A copy of offsets [base, end) that was deleted from remote storage (or would be).

    `why` explains the `rule`: retention.ms, retention.bytes, log.start.offset, or topic (the topic
    was deleted).
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
    """Extents of offsets [base, end) that were merged into a segment (or would be).

    `extents`: their number. `bytes`: the size of the log. `stored_bytes`: the segment's size in the
    store.
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
    """Unused objects of a kind that were deleted from the store (or would be).

    Kinds: replaced (segments), expired (segments), past (segments of former services), staged,
    inline (data of entries; the entries stay), state, position (of groups), upload (unfinished).
    """

    kind: str
    objects: int
    bytes: int


def _sizes(entries: Sequence[Expired | Uploaded | Removed | Merged]) -> tuple[int, int]:
    return len(entries), sum(entry.bytes for entry in entries)


@dataclass(slots=True, kw_only=True)
class Report:
    """The report of a round.

    With `dry_run`, the report shows the effects of a round that was only simulated.

    `rolled`: [topic, partition, base offset of the segment that was closed]. `cleaned`: compaction.
    `purged`: files that were unlinked after file.delete.delay.ms. `locked_ms`: how long each step
    had the write lock. `errors`: steps that failed; the rest of the round was done.

    Remote storage: `uploaded`, `removed`; `orphans`: deleted objects that belonged to no copy;
    `remote_lag_bytes`: closed segments that are not copied yet.

    Bucket: `merged`, `swept`; `made_manifests`: manifests that were missing.
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
