"""The sections "Retention" (a preview of deletions) and "Compaction"."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from markupsafe import Markup

from sparklog.ui.report.charts import Bar, bar
from sparklog.ui.report.labels import rule_label
from sparklog.ui.report.model import (
    HORIZONS_MS,
    CompactionReport,
    ExpiringSegments,
    LogReport,
    PartitionReport,
    TopicReport,
    Where,
)
from sparklog.ui.templating import render
from sparklog.ui.units import duration_text, share_text, size_text

_ROWS_MAX: Final = 80
_EFFECTS: Final = {
    Where.LOCAL: "deleted from disk, the copy remains",
    Where.REMOTE: "the copy is deleted",
    Where.BOTH: "deleted permanently",
}
_STYLES: Final = {Where.LOCAL: "w-both", Where.REMOTE: "w-remote", Where.BOTH: "w-local"}


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpiringRow:
    """The row of a topic and a retention rule.

    `details`: the config and the effect of the rule; None for the row of segments that are retained
    for a reader. `cells`: the (segments, bytes) that are deleted, for each of HORIZONS_MS.
    """

    topic: str
    share: Bar
    reason: str
    details: str | None
    cells: list[tuple[int, int] | None]


@dataclass(frozen=True, slots=True)
class CompactionRow:
    """The row of a compacted partition."""

    partition: PartitionReport
    compaction: CompactionReport
    shares: Bar


def retention_section(report: LogReport) -> Markup:
    """Return the HTML of the section "Retention": upcoming deletions by time and rule.

    The preview assumes that no more records are written.
    """
    expiring = {
        t.name: sum(g.bytes for p in t.partitions for g in p.going)
        for t in report.topics
        if any(p.going or p.held_back_bytes for p in t.partitions)
    }
    topics = [t for t in report.topics if t.name in expiring]
    topics.sort(key=lambda t: -expiring[t.name])
    places = {g.where for t in topics for p in t.partitions for g in p.going}
    return render(
        "report/retention.html",
        kind=report.kind,
        has_configs=all(t.config is not None for t in report.topics),
        horizons=[
            (f"≤\N{NO-BREAK SPACE}{duration_text(ms)}" if ms else "now", "n") for ms in HORIZONS_MS
        ],
        last_ms=HORIZONS_MS[-1],
        legend=[(_STYLES[w], words) for w, words in _EFFECTS.items() if w in places],
        rows=[row for topic in topics[:_ROWS_MAX] for row in _expiring_rows(topic)],
        left=len(topics[_ROWS_MAX:]),
        soonest=min(
            (p for t in topics for p in t.partitions if p.next_ms is not None),
            key=lambda p: p.next_ms or 0,
            default=None,
        ),
        now_ms=report.time_ms,
    )


def _expiring_rows(topic: TopicReport) -> list[ExpiringRow]:
    """Return a row per rule and place, and a row of segments that are retained for a reader."""
    total = topic.bytes or 1
    by_rule: dict[tuple[str, Where], list[ExpiringSegments]] = {}
    for partition in topic.partitions:
        for expiring in partition.going:
            by_rule.setdefault((expiring.rule, expiring.where), []).append(expiring)
    rows = []
    for (rule, where), going in sorted(by_rule.items()):
        share = sum(g.bytes for g in going) / total
        label = f"{topic.name}: {share_text(share)} within {duration_text(HORIZONS_MS[-1])}"
        rows.append(ExpiringRow(
            topic=topic.name,
            share=bar([(_STYLES[where], share)], label),
            reason=rule_label(rule, topic.config),
            details=f"{rule}: {_EFFECTS[where]}",
            cells=[_cell([g for g in going if g.within_ms == h]) for h in HORIZONS_MS],
        ))  # fmt: skip
    held = [p for p in topic.partitions if p.held_back_bytes]
    if held:
        size = sum(p.held_back_bytes for p in held)
        rows.append(ExpiringRow(
            topic=topic.name,
            share=bar([("w-held", size / total)], f"{topic.name}: {size_text(size)} held back"),
            reason="expired, but a reader still needs it",
            details=None,
            cells=[(0, size), *[None] * (len(HORIZONS_MS) - 1)],
        ))  # fmt: skip
    return rows


def _cell(going: Sequence[ExpiringSegments]) -> tuple[int, int] | None:
    return (sum(g.segments for g in going), sum(g.bytes for g in going)) if going else None


def compaction_section(report: LogReport) -> Markup | None:
    """Return the HTML of the section "Compaction", or None if no topic is compacted."""
    found = [(p, p.compaction) for p in report.partitions if p.compaction is not None]
    if not found:
        return None
    found.sort(key=lambda row: (not row[1].wanted, -row[1].dirty_ratio, row[0].topic))
    return render(
        "report/compaction.html",
        rows=[_compaction_row(*row) for row in found[:_ROWS_MAX]],
        left=len(found[_ROWS_MAX:]),
    )


def _compaction_row(partition: PartitionReport, compaction: CompactionReport) -> CompactionRow:
    ratio, wanted = compaction.dirty_ratio, compaction.wanted_ratio
    label = (
        f"{partition.name}: {share_text(ratio)} not yet compacted, cleaned from "
        f"{share_text(wanted)} on"
    )
    is_empty = not compaction.clean_bytes and not compaction.cleanable_bytes
    parts = [] if is_empty else [("w-dirty", ratio), ("w-clean", 1 - ratio)]
    return CompactionRow(partition, compaction, bar(parts, label, mark=wanted))
