"""The section of growth: bytes by the time of their records, as a rate and as a total.

Both are shown, because each hides a part of the other. In the total one large commit is a step that
flattens nothing; in the rate it is one column, cut if it would flatten the others.
"""

from collections.abc import Sequence
from itertools import accumulate, pairwise
from typing import Final

from sparklog.html import Child, Html, el
from sparklog.ui.report.charts import areas, chart, columns, time_axis
from sparklog.ui.report.model import GrowthReport, LogReport, Where
from sparklog.ui.report.page_labels import WHERE, has_tier
from sparklog.ui.report.page_parts import (
    Column,
    beyond,
    figure,
    folded,
    legend,
    note,
    section,
    span_of,
    table,
)
from sparklog.ui.report.scales import scale
from sparklog.ui.units import per_text, size, size_text, stamp, tick_text, time_text

_ROWS: Final = 12


def growth_section(report: LogReport) -> Html:
    """The current bytes, by the times of their records."""
    found = report.growth
    if not found.edges_ms:
        return section("growth", "Growth", note("Nothing here has a time yet."))
    if len(found.edges_ms) == 2:
        when = ("All of it is dated ", stamp(found.edges_ms[0], seconds=True), ".")
        return section("growth", "Growth", note(when), _outside(found))
    entries: list[tuple[str, Child]] = [
        (f"w-{w}", words) for w, words in WHERE.items() if any(found.bytes.get(str(w), ()))
    ]
    return section(
        "growth",
        "Growth",
        legend(entries) if has_tier(report) else None,
        el("div", _rate(found), _total(found), class_="pair"),
        _outside(found),
        folded("Growth as a table", _table(found, tiered=has_tier(report)), key="growth"),
    )


def _rate(found: GrowthReport) -> Html:
    edges = found.edges_ms
    values = [sum(parts) for parts in zip(*found.bytes.values(), strict=True)]
    limit = scale(values, binary=True, cuts=True)
    unit = per_text(edges[1] - edges[0])
    titles = [f"{time_text(t)}: {size_text(n)}" for t, n in zip(edges, values, strict=False)]
    words = f"Bytes {unit}, by the time of their records"
    return figure(
        f"Bytes {unit}",
        chart(columns(values, titles, limit, words), limit, _tick, time_axis(edges[0], edges[-1])),
        beyond(values, edges, limit, size_text),
        more="by the time of the records",
    )


def _total(found: GrowthReport) -> Html:
    edges = found.edges_ms
    running = {name: list(accumulate((0, *values))) for name, values in found.bytes.items()}
    series = {f"w-{w}": running[w] for w in map(str, Where) if any(running.get(w, ()))}
    if len(series) == 1:
        series = {"area": next(iter(series.values()))}
    top = max(1, sum(values[-1] for values in running.values()))
    limit = scale([top], binary=True)
    words = f"Bytes held now by the time of their records: {size_text(top)} in all"
    return figure(
        "Total",
        chart(areas(series, limit, words), limit, _tick, time_axis(edges[0], edges[-1])),
        more=span_of(edges[0], edges[-1]),
    )


def _tick(value: float) -> str:
    return tick_text(value, binary=True)


def _outside(found: GrowthReport) -> Child:
    sides = {"before the axis": found.before, "behind its end": found.after}
    parts = [f"{size_text(count)} {words}" for words, count in sides.items() if count]
    return note("Dated elsewhere: ", ", ".join(parts), ".") if parts else None


def _table(found: GrowthReport, *, tiered: bool) -> list[Child]:
    places = [(str(w), words) for w, words in WHERE.items()] if tiered else []
    columns = [Column("up to"), *(Column(words, "n") for _, words in places), Column("all", "n")]
    step = -(-(len(found.edges_ms) - 1) // _ROWS)
    rows: list[Sequence[Child]] = []
    for low, high in pairwise([*range(0, len(found.edges_ms) - 1, step), len(found.edges_ms) - 1]):
        sums = [sum(found.bytes[w][low:high]) for w, _ in places]
        whole = sum(sum(values[low:high]) for values in found.bytes.values())
        rows.append((stamp(found.edges_ms[high]), *map(size, sums), size(whole)))
    return [table("Bytes held now, by the time of their records", columns, rows)]
