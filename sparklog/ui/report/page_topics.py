"""The section of topics: all of them in one table, the largest first."""

from collections.abc import Sequence
from typing import Final

from sparklog.html import Child, Html, el
from sparklog.ui.report.charts import bar, spark
from sparklog.ui.report.model import LogReport, TopicReport, Where
from sparklog.ui.report.page_labels import WHERE, has_tier, retention_label, topic_name
from sparklog.ui.report.page_parts import (
    NOTHING,
    Column,
    chip,
    legend,
    note,
    section,
    span_of,
    table,
)
from sparklog.ui.units import number, size, size_text

_TOPICS_MAX: Final = 200


def topics_section(report: LogReport, *, browse: bool) -> Html:
    """All topics in one table, the largest first. `browse`: their names link to their pages."""
    if not report.topics:
        return section("topics", "Topics", note("This log has no topics yet."))
    batches = any(t.batches for t in report.topics)
    columns = [
        Column("topic", "long"), Column("written over time", "bar"),
        Column("where" if has_tier(report) else "share", "bar"), Column("size", "n"),
        Column("partitions", "n"), Column("segments", "n"), Column("offsets", "n"),
        *([Column("records a batch", "n"), Column("compression", "long")] if batches else []),
        Column("retention"),
    ]  # fmt: skip
    found = sorted(report.topics, key=lambda t: (-t.bytes, t.name))
    top = max((t.bytes for t in found), default=0) or 1
    rows = [_row(report, topic, top, batches, browse) for topic in found[:_TOPICS_MAX]]
    left = found[_TOPICS_MAX:]
    more: Child = None
    if left:
        rest = size_text(sum(t.bytes for t in left))
        more = note(f"{len(left)} smaller topics, {rest} in all, are in the output of --json.")
    when: Child = None
    if report.growth.edges_ms:
        when = note("Written over time: bytes by the time of their records, ",
                    span_of(report.growth.edges_ms[0], report.growth.edges_ms[-1]),
                    "; each topic to its own scale.")  # fmt: skip
    caption = "Topics by size"
    return section("topics", "Topics", _legend(report), table(caption, columns, rows), more, when)


def _legend(report: LogReport) -> Html | None:
    """The colours of places, or None without a tier."""
    if not has_tier(report):
        return None
    held = {s.where for t in report.topics for s in t.segments if s.bytes}
    return legend([(f"w-{w}", words) for w, words in WHERE.items() if w in held])


def _row(
    report: LogReport, topic: TopicReport, top: int, batches: bool, browse: bool
) -> Sequence[Child]:
    sums = {w: sum(s.bytes for s in topic.segments if s.where is w) for w in Where}
    said = ", ".join(f"{size_text(n)} {WHERE[w]}" for w, n in sums.items() if n) or "nothing"
    tiered = has_tier(report)
    parts = [(f"w-{w}", n / top) for w, n in sums.items()]
    written, line = report.growth.topics.get(topic.name, ()), NOTHING
    if len(written) > 1 and any(written):
        line = spark(written, f"{topic.name}: written over time")
    return (
        topic_name(topic.name, browse=browse),
        line,
        bar(parts if tiered else [("w-local", topic.bytes / top)],
            f"{topic.name}: {said if tiered else size_text(topic.bytes)}"),
        size(topic.bytes),
        number(len(topic.partitions)),
        number(sum(len(p.segments) for p in topic.partitions)),
        number(sum(p.offsets for p in topic.partitions)),
        *((_batch_size(topic), _compression(topic)) if batches else ()),
        retention_label(topic),
    )  # fmt: skip


def _batch_size(topic: TopicReport) -> Child:
    """Average records of a batch, over all codecs."""
    count = sum(of.batches for of in topic.batches)
    if not count:
        return NOTHING
    average = sum(of.records for of in topic.batches) / count
    said = "; ".join(
        f"{of.codec}: half of them hold up to {of.records_p50:,} records, 99 % up to "
        f"{of.records_p99:,}; {size_text(of.bytes_avg)} on average"
        for of in topic.batches
    )
    words = f"{average:.1f}" if average < 10 else number(round(average))
    small = any(of.small for of in topic.batches)
    return el("span", chip(words, "is-amber") if small else words, title=said)


def _compression(topic: TopicReport) -> Child:
    """How well each codec compresses the newest batches: bytes of records in one byte."""
    if not topic.batches:
        return NOTHING
    parts = []
    for of in topic.batches:
        if of.codec == "none":
            parts.append("none")
        elif not of.compression_rate:
            parts.append(of.codec)
        else:
            parts.append(f"{of.codec}\N{NO-BREAK SPACE}{1 / of.compression_rate:.1f}:1")
    return ", ".join(parts)
