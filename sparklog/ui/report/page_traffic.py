"""Writers and readers: commits over time, their writers, and the lag of registered readers."""

from collections.abc import Sequence
from itertools import accumulate
from typing import Final

from sparklog.html import Child, Html, el, foreign
from sparklog.ui.report.charts import areas, bar, chart, columns, spark, time_axis
from sparklog.ui.report.model import CommitsReport, LogReport, ReaderReport, WriterReport
from sparklog.ui.report.page_labels import topic_name
from sparklog.ui.report.page_parts import (
    NOTHING,
    Column,
    beyond,
    chip,
    figure,
    folding_table,
    note,
    section,
    span_of,
)
from sparklog.ui.report.scales import scale
from sparklog.ui.units import (
    NONE,
    ago,
    number,
    per_text,
    plural,
    tick_text,
    time_text,
)

_ROWS_MAX: Final = 60
_TOPICS_NAMED: Final = 3


def commits_section(report: LogReport) -> Html | None:
    """Records committed over time and by writer, or None without a ledger."""
    found = report.commits
    if report.kind != "log":
        return None
    if not found.writers:
        return section("commits", "Commits", note("Nothing was committed yet."))
    resets = any(w.resets for w in found.writers)
    head = [
        Column("writer", "long"), Column("records over time", "bar"), Column("records", "n"),
        Column("commits", "n"), Column("micro-batches"), Column("last commit"),
        Column("topics", "long"), *([Column("resets", "n")] if resets else []),
    ]  # fmt: skip
    rows = [_writer_row(w, report.time_ms, resets) for w in found.writers[:_ROWS_MAX]]
    more = len(found.writers) - _ROWS_MAX
    return section(
        "commits",
        "Commits",
        _pictures(found) if len(found.edges_ms) > 2 else None,
        folding_table(
            "Commits by writer, as far as the ledger reaches back", head, rows, key="commits-more"
        ),
        note(f"{more} more writers are in the output of --json.") if more > 0 else None,
    )


def _pictures(found: CommitsReport) -> Html:
    edges = found.edges_ms
    sums = [sum(values) for values in zip(*(w.by_time for w in found.writers), strict=True)]
    limit, unit = scale(sums, cuts=True), per_text(edges[1] - edges[0])
    titles = [f"{time_text(t)}: {plural(n, 'record')}" for t, n in zip(edges, sums, strict=False)]
    words = f"Records committed {unit}"
    running = list(accumulate((0, *sums)))
    whole = scale([running[-1]])
    total = f"Records committed since the ledger begins: {running[-1]:,}"
    return el(
        "div",
        figure(
            words,
            chart(columns(sums, titles, limit, words), limit, tick_text,
                  time_axis(edges[0], edges[-1])),
            beyond(sums, edges, limit, lambda n: plural(n, "record")),
            more="by the time of the commit",
        ),
        figure(
            "Total",
            chart(areas({"area": running}, whole, total), whole, tick_text,
                  time_axis(edges[0], edges[-1])),
            more=span_of(edges[0], edges[-1]),
        ),
        class_="pair",
    )  # fmt: skip


def _writer_row(writer: WriterReport, now_ms: int, resets: bool) -> Sequence[Child]:
    topics = ", ".join(writer.topics[:_TOPICS_NAMED])
    more = len(writer.topics) - _TOPICS_NAMED
    batches: Child = NOTHING
    if writer.first_batch is not None:
        batches = el("span", number(writer.first_batch), " to ", number(writer.last_batch))
    name = el("span", writer.text) if writer.writer is None else foreign(writer.text)
    label = f"{writer.text}: records over time"
    return (
        name,
        spark(writer.by_time, label) if len(writer.by_time) > 1 else NOTHING,
        number(writer.records),
        number(writer.commits),
        batches,
        ago(writer.last_ms, now_ms),
        el("bdi", f"{topics} and {more} more" if more > 0 else topics or NONE),
        *([number(writer.resets) if writer.resets else NOTHING] if resets else []),
    )


def readers_section(report: LogReport, *, browse: bool) -> Html | None:
    """The lag of each registered reader, or None for an archive, which has none."""
    if report.kind == "archive":
        return None
    if not report.readers:
        return section("readers", "Readers", note("No reader is registered."))
    groups: dict[tuple[str, str | None], list[ReaderReport]] = {}
    for row in report.readers:
        groups.setdefault((row.group, row.topic), []).append(row)
    lags = {key: sum(r.lag or 0 for r in rows) for key, rows in groups.items()}
    top = max(lags.values()) or 1
    columns = [
        Column("reader", "long"), Column("topic", "long"), Column("lag", "bar"),
        Column("offsets behind", "n"), Column("slowest partition"), Column("partitions", "n"),
        Column("last commit"), Column("state"),
    ]  # fmt: skip
    ordered = sorted(groups, key=lambda key: -lags[key])
    rows = [
        _reader_row(groups[key], lags[key], top, report.time_ms, browse)
        for key in ordered[:_ROWS_MAX]
    ]
    left = len(ordered) - _ROWS_MAX
    return section(
        "readers",
        "Readers",
        folding_table("Lag of registered readers", columns, rows, key="readers-more"),
        note(f"{left} more are in the output of --json.") if left > 0 else None,
    )


def _reader_row(
    rows: Sequence[ReaderReport], lag: int, top: int, now_ms: int, browse: bool
) -> Sequence[Child]:
    first = rows[0]
    slowest = max(rows, key=lambda r: r.lag or 0)
    last = max(r.time_ms for r in rows)
    state: Child = first.kind
    if first.kind == "damaged":
        state = chip("damaged", "is-damage")
    elif all(r.expired for r in rows):
        state = chip("expired", "is-leftover")
    elif any(r.lag is None for r in rows):
        state = chip("topic is gone", "is-warning")
    where: Child = NOTHING
    if slowest.lag:
        where = el("span", f"{slowest.partition}, ", number(slowest.lag), " behind")
    return (
        foreign(first.text),
        topic_name(first.topic, browse=browse) if first.topic else NOTHING,
        bar([("w-lag", lag / top)], f"{first.text}: {lag:,} offsets behind"),
        number(lag),
        where,
        number(len(rows)),
        ago(last, now_ms),
        state,
    )
