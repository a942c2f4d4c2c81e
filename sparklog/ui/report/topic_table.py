"""The section "Topics": a table of all topics, the largest first."""

from dataclasses import dataclass
from typing import Final

from markupsafe import Markup

from sparklog.ui.report.charts import Bar, Spark, bar, spark, time_axis
from sparklog.ui.report.labels import place_legend, retention_label, topic_link
from sparklog.ui.report.model import LogReport, TopicReport, Where
from sparklog.ui.templating import render
from sparklog.ui.units import count_text, share_text, size_text

_TOPICS_MAX: Final = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicRow:
    """The row of a topic.

    `written`: the bytes over time, or None if unknown. `batches`: None if no batches were read.
    """

    topic: TopicReport
    link: str
    written: Spark | None
    bytes: int
    size: Bar
    segments: int
    batches: "BatchLabels | None"
    retention: str


@dataclass(frozen=True, slots=True)
class BatchLabels:
    """Labels of a topic's newest batches: average number of records, compression rate per codec.

    `is_small`: the batches are too small to be compressed well.
    """

    records: str
    is_small: bool
    details: str
    compression: str


def topics_section(report: LogReport, *, browse: bool) -> Markup:
    """Return the HTML of the section. `browse`: names of topics are links to their pages."""
    sizes = {topic.name: topic.bytes for topic in report.topics}
    topics = sorted(report.topics, key=lambda t: (-sizes[t.name], t.name))
    # A bar shows the topic's share of the log; in a tiered log, the places of its bytes relative to
    # the largest topic.
    top = (max(sizes.values(), default=0) if report.is_tiered else sum(sizes.values())) or 1
    edges = report.growth.edges_ms
    return render(
        "report/topics.html",
        is_tiered=report.is_tiered,
        places=place_legend(s.where for t in topics for s in t.segments if s.bytes),
        rows=[_row(report, topic, top, browse) for topic in topics[:_TOPICS_MAX]],
        has_batches=any(t.batches for t in topics),
        left=len(topics[_TOPICS_MAX:]),
        left_bytes=sum(sizes[t.name] for t in topics[_TOPICS_MAX:]),
        axis=time_axis(edges[0], edges[-1]) if edges else None,
    )


def _row(report: LogReport, topic: TopicReport, top: int, browse: bool) -> TopicRow:
    sums = dict.fromkeys(Where, 0)
    for segment in topic.segments:
        sums[segment.where] += segment.bytes
    whole = sum(sums.values())
    label, parts = f"{share_text(whole / top)} of the log", [("w-local", whole / top)]
    if report.is_tiered:
        label = ", ".join(f"{size_text(n)} {w.label}" for w, n in sums.items() if n) or "nothing"
        parts = [(f"w-{where}", n / top) for where, n in sums.items()]
    written = report.growth.topics.get(topic.name, ())
    has_line = len(written) > 1 and any(written)
    return TopicRow(
        topic=topic,
        link=topic_link(topic.name, browse=browse),
        written=spark(written, f"{topic.name}: written over time") if has_line else None,
        bytes=whole,
        size=bar(parts, f"{topic.name}: {label}"),
        segments=sum(len(p.segments) for p in topic.partitions),
        batches=_batches(topic),
        retention=retention_label(topic),
    )


def _batches(topic: TopicReport) -> BatchLabels | None:
    count = sum(each.batches for each in topic.batches)
    if not count:
        return None
    average = sum(each.records for each in topic.batches) / count
    details = "; ".join(
        f"{each.codec}: half of the batches hold up to {each.records_p50:,} records, 99 % up to "
        f"{each.records_p99:,}; {size_text(each.bytes_avg)} on average"
        for each in topic.batches
    )
    rates = [
        f"{each.codec}\N{NO-BREAK SPACE}{1 / each.compression_rate:.1f}:1"
        if each.compression_rate and each.codec != "none" else each.codec
        for each in topic.batches
    ]  # fmt: skip
    return BatchLabels(
        f"{average:.1f}" if average < 10 else count_text(round(average)),
        any(each.small for each in topic.batches),
        details,
        ", ".join(rates),
    )
