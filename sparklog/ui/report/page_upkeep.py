"""Upcoming background work: the retention preview, and compaction."""

from collections.abc import Sequence
from typing import Final

from sparklog.html import Child, Html, el, foreign
from sparklog.ui.report.charts import bar
from sparklog.ui.report.model import (
    HORIZONS_MS,
    CompactionReport,
    ExpiringSegments,
    LogReport,
    PartitionReport,
    TopicReport,
    Where,
)
from sparklog.ui.report.page_labels import rule_label
from sparklog.ui.report.page_parts import (
    NOTHING,
    Column,
    chip,
    folding_table,
    legend,
    note,
    section,
)
from sparklog.ui.units import (
    ago_text,
    duration_text,
    number,
    share_text,
    size,
    size_text,
    stamp,
)

_ROWS_MAX: Final = 80
WORDS: Final = {
    Where.LOCAL: "leaves the disk, its copy stays",
    Where.REMOTE: "copy is deleted",
    Where.BOTH: "gone for good",
}
_COLOURS: Final = {Where.LOCAL: "w-both", Where.REMOTE: "w-remote", Where.BOTH: "w-local"}


def retention_section(report: LogReport) -> Html:
    """Upcoming deletions by time and rule, if no more records are written."""
    if any(t.config is None for t in report.topics):
        return section("retention", "Retention", note(
            "The configs of these topics are in the broker's cluster, so what expires is not known."
        ))  # fmt: skip
    if report.kind == "archive":
        return section("retention", "Retention", note(
            "An archive is expired by the service of its log, by retention.ms and retention.bytes."
        ))  # fmt: skip
    going = [t for t in report.topics if any(p.going or p.held_back_bytes for p in t.partitions)]
    if not going:
        return section("retention", "Retention", note(
            f"Nothing goes within {duration_text(HORIZONS_MS[-1])}, if nothing more is written."
        ))  # fmt: skip
    going.sort(key=lambda t: -sum(g.bytes for p in t.partitions for g in p.going))
    entries = {g.where for t in going for p in t.partitions for g in p.going}
    columns = [
        Column("topic", "long"), Column("what goes", "bar"), Column("because it is", "long"),
        *map(_horizon, HORIZONS_MS),
    ]  # fmt: skip
    rows = [row for topic in going[:_ROWS_MAX] for row in _rows(topic)]
    left = len(going) - _ROWS_MAX
    return section(
        "retention",
        "Retention",
        note(
            "What the service takes if nothing more is written: in its next round, and then in "
            "addition within each time. Computed by the service's own rules."
        ),
        legend([(_COLOURS[w], words) for w, words in WORDS.items() if w in entries]),
        folding_table("What goes when", columns, rows, key="retention-more"),
        note(f"{left} more topics are in the output of --json.") if left > 0 else None,
        _next(going, report.time_ms),
    )


def _horizon(within_ms: int) -> Column:
    return Column("now" if not within_ms else f"≤\N{NO-BREAK SPACE}{duration_text(within_ms)}", "n")


def _rows(topic: TopicReport) -> list[Sequence[Child]]:
    """A row for each rule and place."""
    total = sum(s.bytes for s in topic.segments) or 1
    by_rule: dict[tuple[str, Where], list[ExpiringSegments]] = {}
    for partition in topic.partitions:
        for one in partition.going:
            by_rule.setdefault((one.rule, one.where), []).append(one)
    rows: list[Sequence[Child]] = []
    for (rule, where), gone in sorted(by_rule.items()):
        share = sum(g.bytes for g in gone) / total
        said = f"{topic.name}: {share_text(share)} within {duration_text(HORIZONS_MS[-1])}"
        rows.append(
            (
                foreign(topic.name),
                bar([(_COLOURS[where], share)], said),
                el("span", rule_label(rule, topic.config), title=f"{rule}: {WORDS[where]}"),
                *(_cell([g for g in gone if g.within_ms == h]) for h in HORIZONS_MS),
            )
        )
    held = sum(p.held_back_bytes for p in topic.partitions)
    if held:
        cells = [size(held), *([NOTHING] * (len(HORIZONS_MS) - 1))]
        waits = el("span", "due, but a reader waits for it", class_="held")
        nothing = bar([("w-held", held / total)], f"{topic.name}: {size_text(held)} wait")
        rows.append((foreign(topic.name), nothing, waits, *cells))
    return rows


def _cell(gone: Sequence[ExpiringSegments]) -> Child:
    if not gone:
        return NOTHING
    segments = sum(g.segments for g in gone)
    total = sum(g.bytes for g in gone)
    return el("span", size_text(total), title=f"{segments} segments, {total:,} bytes")


def _next(topics: Sequence[TopicReport], now_ms: int) -> Child:
    soonest = min(
        (p for t in topics for p in t.partitions if p.next_ms is not None),
        key=lambda p: p.next_ms or 0,
        default=None,
    )
    if soonest is None or soonest.next_ms is None:
        return None
    return note(
        "Next by age: ", foreign(f"{soonest.topic}-{soonest.partition}"),
        f" {ago_text(soonest.next_ms, now_ms)}, at ", stamp(soonest.next_ms), ".",
    )  # fmt: skip


def compaction_section(report: LogReport) -> Html | None:
    """How dirty compacted partitions are, or None if no topic is compacted."""
    found = [(t, p, p.compaction) for t in report.topics for p in t.partitions if p.compaction]
    if not found:
        return None
    found.sort(key=lambda row: (not row[2].wanted, -row[2].dirty_ratio, row[0].name))
    columns = [
        Column("partition", "long"), Column("compacted or not", "bar"),
        Column("to compact", "n"), Column("share", "n"), Column("cleaned from", "n"),
        Column("compacted", "n"), Column("up to offset", "n"), Column("compaction keeps", "n"),
        Column("next round"),
    ]  # fmt: skip
    rows = [_dirt_row(p, dirt) for _, p, dirt in found[:_ROWS_MAX]]
    left = len(found) - _ROWS_MAX
    return section(
        "compaction",
        "Compaction",
        legend([("w-dirty", "not yet compacted"), ("w-clean", "compacted"),
                ("mark", "from here on it is cleaned")]),
        folding_table("Compacted partitions", columns, rows, key="compaction-more"),
        note("A partition is cleaned when the share that is not yet compacted reaches ",
             el("code", "min.cleanable.dirty.ratio"), ". What compaction keeps is estimated by how "
             "dense offsets are in the part that is compacted."),
        note(f"{left} more partitions are in the output of --json.") if left > 0 else None,
    )  # fmt: skip


def _dirt_row(p: PartitionReport, dirt: CompactionReport) -> Sequence[Child]:
    name = f"{p.topic}-{p.partition}"
    ratio = dirt.dirty_ratio
    said = (
        f"{name}: {share_text(ratio)} not yet compacted, cleaned from "
        f"{share_text(dirt.wanted_ratio)} on"
    )
    empty = not dirt.clean_bytes and not dirt.cleanable_bytes
    parts = [] if empty else [("w-dirty", ratio), ("w-clean", 1 - ratio)]
    return (
        foreign(name),
        bar(parts, said, mark=dirt.wanted_ratio),
        size(dirt.cleanable_bytes),
        share_text(ratio),
        share_text(dirt.wanted_ratio),
        size(dirt.clean_bytes),
        number(dirt.first_dirty),
        NOTHING if dirt.kept_share is None else share_text(dirt.kept_share),
        chip("cleaned") if dirt.wanted else "left as it is",
    )
