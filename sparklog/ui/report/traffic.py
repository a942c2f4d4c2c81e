"""The sections "Commits" (records over time and by writer) and "Readers" (lag)."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Final

from markupsafe import Markup

from sparklog.ui.report.charts import Bar, Spark, area_chart, bar, column_chart, spark
from sparklog.ui.report.labels import topic_link
from sparklog.ui.report.model import LogReport, ReaderReport, WriterReport
from sparklog.ui.templating import render
from sparklog.ui.units import per_text, plural

_ROWS_MAX: Final = 60
_TOPICS_NAMED: Final = 3


@dataclass(frozen=True, slots=True)
class WriterRow:
    """The row of a writer. `by_time`: the records over time, or None if all have the same time."""

    writer: WriterReport
    by_time: Spark | None
    topics: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ReaderRow:
    """The row of a registered reader of a topic.

    `slowest`: the partition with the greatest lag, or None without lag. `chip`: the style of
    `state` if the state needs attention, otherwise None.
    """

    name: str
    topic: str | None
    link: str
    lag: int
    lag_bar: Bar
    slowest: ReaderReport | None
    partitions: int
    last_ms: int
    state: str
    chip: str | None


def commits_section(report: LogReport) -> Markup | None:
    """Return the HTML of the section "Commits", or None for a log without a ledger."""
    if report.kind != "log":
        return None
    edges, writers = report.commits.edges_ms, report.commits.writers
    rate = total = None
    unit = ""
    if writers and len(edges) > 2:
        unit = per_text(edges[1] - edges[0])
        sums = [sum(values) for values in zip(*(w.by_time for w in writers), strict=True)]
        rate = column_chart(f"Records committed {unit}", edges, sums, lambda n: plural(n, "record"))
        running = list(accumulate((0, *sums)))
        label = f"Records committed since the start of the ledger: {running[-1]:,}"
        total = area_chart(label, edges, {"area": running})
    return render(
        "report/commits.html",
        now_ms=report.time_ms,
        unit=unit,
        rate=rate,
        total=total,
        has_resets=any(w.resets for w in writers),
        rows=[_writer_row(w) for w in writers[:_ROWS_MAX]],
        left=len(writers[_ROWS_MAX:]),
    )


def _writer_row(writer: WriterReport) -> WriterRow:
    topics = ", ".join(writer.topics[:_TOPICS_NAMED])
    more = len(writer.topics[_TOPICS_NAMED:])
    has_line = len(writer.by_time) > 1
    line = spark(writer.by_time, f"{writer.text}: records over time") if has_line else None
    return WriterRow(writer, line, f"{topics} and {more} more" if more else topics)


def readers_section(report: LogReport, *, browse: bool) -> Markup | None:
    """Return the HTML of the section "Readers", or None for an archive, which has no readers."""
    if report.kind == "archive":
        return None
    groups: dict[tuple[str, str | None], list[ReaderReport]] = {}
    for row in report.readers:
        groups.setdefault((row.group, row.topic), []).append(row)
    lags = {key: sum(r.lag or 0 for r in rows) for key, rows in groups.items()}
    top = max(lags.values(), default=0) or 1
    ordered = sorted(groups, key=lambda key: -lags[key])
    return render(
        "report/readers.html",
        now_ms=report.time_ms,
        rows=[_reader_row(groups[key], lags[key], top, browse) for key in ordered[:_ROWS_MAX]],
        left=len(ordered[_ROWS_MAX:]),
    )


def _reader_row(rows: Sequence[ReaderReport], lag: int, top: int, browse: bool) -> ReaderRow:
    first, slowest = rows[0], max(rows, key=lambda r: r.lag or 0)
    state, chip = first.kind, None
    if first.kind == "damaged":
        chip = "is-damage"
    elif all(r.expired for r in rows):
        state, chip = "expired", "is-leftover"
    # A reader of a topic that was deleted has a position, but no lag.
    elif any(r.lag is None for r in rows):
        state, chip = "topic deleted", "is-warning"
    return ReaderRow(
        name=first.text,
        topic=first.topic,
        link=topic_link(first.topic or "", browse=browse),
        lag=lag,
        lag_bar=bar([("w-lag", lag / top)], f"{first.text}: {lag:,} offsets behind"),
        slowest=slowest if slowest.lag else None,
        partitions=len(rows),
        last_ms=max(r.time_ms for r in rows),
        state=state,
        chip=chip,
    )
