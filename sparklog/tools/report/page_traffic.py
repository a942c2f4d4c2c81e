"""Who writes and who reads: commits by writer over time, and the lag of registered readers."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from sparklog.tools.report.charts import bar, stacked
from sparklog.tools.report.html import Child, Html, el, foreign
from sparklog.tools.report.model import CommitsReport, LogReport, ReaderReport, WriterReport
from sparklog.tools.report.page_parts import (
    NOTHING,
    Column,
    axis,
    chip,
    figure,
    legend,
    note,
    section,
    table,
)
from sparklog.tools.report.units import (
    NONE,
    ago_text,
    axis_time_text,
    number,
    plural,
    time_text,
)

_SERIES_MAX: Final = 6
_ROWS_MAX: Final = 60
_TOPICS_NAMED: Final = 3


def commits_section(report: LogReport) -> Html | None:
    """Records committed over time, by writer; None where there is no ledger."""
    found = report.commits
    if report.kind != "log":
        return None
    if not found.writers:
        return section("commits", "Commits", note("Nothing was committed yet."))
    drawn, left = list(found.writers[:_SERIES_MAX]), found.writers[_SERIES_MAX:]
    if left:
        sums = [sum(values) for values in zip(*(w.by_time for w in left), strict=True)]
        name = f"{len(left)} more writers"
        drawn.append(replace(left[0], writer=name, by_time=tuple(sums)))
    columns = [
        Column("writer"), Column("commits", "n"), Column("records", "n"), Column("batches"),
        Column("last commit"), Column("topics"), Column("resets", "n"),
    ]  # fmt: skip
    rows = [_writer_row(w, report.time_ms) for w in found.writers[:_ROWS_MAX]]
    more = len(found.writers) - _ROWS_MAX
    return section(
        "commits",
        "Commits",
        legend([(f"s-{at}", _name(w)) for at, w in enumerate(drawn)]),
        _picture(found, drawn),
        table("Commits by writer, as far as the ledger reaches back", columns, rows),
        note(f"{more} more writers are in the output of --json.") if more > 0 else None,
    )


def _name(writer: WriterReport) -> Html:
    return el("span", "plain appends") if writer.writer is None else foreign(writer.writer)


def _picture(found: CommitsReport, drawn: Sequence[WriterReport]) -> Html:
    edges = found.edges_ms
    sums = [sum(values) for values in zip(*(w.by_time for w in drawn), strict=True)]
    span = edges[-1] - edges[0]
    titles = [f"{time_text(t)}: {plural(n, 'record')}" for t, n in zip(edges, sums, strict=False)]
    top = max(1, *sums)
    labels: list[Child] = [
        el("span", axis_time_text(t, span), title=f"{time_text(t)} UTC")
        for t in (edges[0], edges[len(edges) // 2], edges[-1])
    ]
    series = {f"s-{at}": w.by_time for at, w in enumerate(drawn)}
    return figure(
        "Records committed, by the time of the commit",
        el("div", plural(top, "record"), class_="top"),
        stacked(series, "Records committed over time, by writer", titles, total=top),
        axis(labels),
    )


def _writer_row(writer: WriterReport, now_ms: int) -> Sequence[Child]:
    topics = ", ".join(writer.topics[:_TOPICS_NAMED])
    more = len(writer.topics) - _TOPICS_NAMED
    batches: Child = NOTHING
    if writer.first_batch is not None:
        batches = el("span", number(writer.first_batch), " to ", number(writer.last_batch))
    return (
        _name(writer),
        number(writer.commits),
        number(writer.records),
        batches,
        el("span", ago_text(writer.last_ms, now_ms), title=f"{time_text(writer.last_ms)} UTC"),
        el("bdi", f"{topics} and {more} more" if more > 0 else topics or NONE),
        number(writer.resets) if writer.resets else NOTHING,
    )


def readers_section(report: LogReport) -> Html | None:
    """How far each registered reader is behind; None for an archive, which has none."""
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
        Column("reader"), Column("topic"), Column("lag", "bar"), Column("offsets behind", "n"),
        Column("slowest partition"), Column("partitions", "n"), Column("last commit"),
        Column("state"),
    ]  # fmt: skip
    ordered = sorted(groups, key=lambda key: -lags[key])
    rows = [_reader_row(groups[key], lags[key], top, report.time_ms) for key in ordered[:_ROWS_MAX]]
    left = len(ordered) - _ROWS_MAX
    return section(
        "readers",
        "Readers",
        table("Lag of registered readers", columns, rows),
        note(f"{left} more are in the output of --json.") if left > 0 else None,
    )


def _reader_row(rows: Sequence[ReaderReport], lag: int, top: int, now_ms: int) -> Sequence[Child]:
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
        foreign(first.group),
        foreign(first.topic or NONE),
        bar([("w-lag", lag / top)], f"{first.group}: {lag:,} offsets behind"),
        number(lag),
        where,
        number(len(rows)),
        el("span", ago_text(last, now_ms), title=f"{time_text(last)} UTC"),
        state,
    )
