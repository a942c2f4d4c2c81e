"""The report of a round: what it did, or would do, as objects, as JSON, in words."""

from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from typing import Any

from sparklog.logdir.cleaning.cleaner import CleanReport
from sparklog.logdir.retention.due_segments import Expired
from sparklog.pluralize import pluralize


@dataclass(frozen=True, slots=True, kw_only=True)
class Deleted:
    """What retention took of a partition (or would), oldest first, and its new log start.

    `held_back_bytes`: would be due, but a registered reader has not read it yet. `local`: only
    local segments went, which have copies in remote storage; `log_start` is that of what is local.
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
class Uploaded:
    """A segment of offsets [base, end) that got its copy (or would): `bytes` of log.

    `stored_bytes`: what they take in the store, encrypted or not.
    """

    topic: str
    partition: int
    base: int
    end: int
    bytes: int
    stored_bytes: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Removed:
    """A copy of offsets [base, end) that went from the store (or would); `rule` and its words.

    Rules: retention.ms, retention.bytes, log.start.offset, topic (it was deleted).
    """

    topic: str
    partition: int
    base: int
    end: int
    bytes: int
    rule: str
    why: str


@dataclass(slots=True, kw_only=True)
class Report:
    """One round. With `dry_run` nothing was changed, and this is what would be.

    rolled: [topic, partition, base offset of the segment that was closed]. cleaned: compaction.
    purged: files that were unlinked after file.delete.delay.ms. `locked_ms`: how long each step
    held the write lock. `errors`: what failed; the rest of the round went on.

    Remote storage: uploaded, removed; `orphans`: objects that belonged to no copy and went;
    `remote_lag_bytes`: of closed segments that still have no copy.
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
    notes: list[str] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    locked_ms: list[float] = field(default_factory=list)
    took_ms: float = 0.0

    @property
    def worked(self) -> bool:
        """Whether anything was done, or would be."""
        local = self.rolled or self.deleted or self.cleaned or self.purged
        return bool(local or self.uploaded or self.removed or self.orphans or self.notes)

    def to_dict(self) -> dict[str, Any]:
        """Return plain dicts and lists, for JSON."""
        return asdict(self)

    def __str__(self) -> str:
        return "\n".join(self._lines())

    def _lines(self) -> Iterator[str]:
        if self.standing_by:
            yield f"{self.path}: {self.standing_by} does the background work; standing by"
            return
        would = "would be " if self.dry_run else ""
        yield from self._remote_lines(would)  # in the order of a round: what has a copy may go
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
        yield from self.notes
        yield from (f"failed: {error}" for error in self.errors)
        if not self.worked and not self.errors:
            yield f"{self.path}: nothing to do"

    def _remote_lines(self, would: str) -> Iterator[str]:
        for up in self.uploaded:
            yield (
                f"{up.topic}-{up.partition}: offsets [{up.base}, {up.end}), {up.bytes} bytes, "
                f"{would}copied to remote storage"
            )
        for gone in self.removed:
            yield (
                f"{gone.topic}-{gone.partition}: offsets [{gone.base}, {gone.end}), {gone.bytes} "
                f"bytes, {would}removed from remote storage by {gone.rule}: {gone.why}"
            )
        if self.orphans:
            yield (
                f"{pluralize(len(self.orphans), 'object')} of {self.orphan_bytes} bytes of no copy "
                f"{would}removed from remote storage"
            )
        if self.remote_lag_bytes:
            yield f"{self.remote_lag_bytes} bytes of closed segments wait for their copy"
