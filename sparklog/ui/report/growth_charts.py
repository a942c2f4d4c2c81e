"""The section "Growth": bytes by the time of their records, as a rate and as a total.

Both charts are needed. The rate shows when the log grows fast, but a column that would flatten the
others is cut off. The total shows the full size of such a column as a step.
"""

from collections.abc import Sequence
from itertools import accumulate, pairwise
from typing import Final

from markupsafe import Markup

from sparklog.ui.report.charts import Chart, area_chart, column_chart
from sparklog.ui.report.labels import place_legend
from sparklog.ui.report.model import GrowthReport, LogReport, Where
from sparklog.ui.templating import render
from sparklog.ui.units import per_text, size_text

_ROWS: Final = 12


def growth_section(report: LogReport) -> Markup:
    """Return the HTML of the section "Growth"."""
    growth = report.growth
    edges = growth.edges_ms
    has_charts = len(edges) > 2
    outside = {"before": growth.before, "after": growth.after}
    places = tuple(Where) if report.is_tiered else ()
    return render(
        "report/growth.html",
        growth=growth,
        unit=per_text(edges[1] - edges[0]) if edges else "",
        places=place_legend(w for w in places if any(growth.bytes.get(w, ()))),
        rate=_rate(growth) if has_charts else None,
        total=_total(growth) if has_charts else None,
        outside=[f"{size_text(n)} {side}" for side, n in outside.items() if n],
        columns=[(label, "n") for label in (*(where.label for where in places), "all")],
        rows=_rows(growth, places) if has_charts else [],
    )


def _rate(growth: GrowthReport) -> Chart:
    edges = growth.edges_ms
    values = [sum(parts) for parts in zip(*growth.bytes.values(), strict=True)]
    label = f"Bytes {per_text(edges[1] - edges[0])}, by the time of their records"
    return column_chart(label, edges, values, size_text, binary=True)


def _total(growth: GrowthReport) -> Chart:
    running = {name: list(accumulate((0, *values))) for name, values in growth.bytes.items()}
    series = {f"w-{w}": running[w] for w in Where if any(running.get(w, ()))}
    if len(series) == 1:
        series = {"area": next(iter(series.values()))}
    size = size_text(sum(values[-1] for values in series.values()))
    label = f"Current bytes by the time of their records: {size} in all"
    return area_chart(label, growth.edges_ms, series, binary=True)


def _rows(growth: GrowthReport, places: Sequence[Where]) -> list[tuple[int, list[int]]]:
    """Return (end, [bytes of each place, bytes of all places]) for up to _ROWS time ranges."""
    bins = len(growth.edges_ms) - 1
    rows = []
    for low, high in pairwise([*range(0, bins, -(-bins // _ROWS)), bins]):
        sums = {place: sum(values[low:high]) for place, values in growth.bytes.items()}
        sizes = [*(sums[place] for place in places), sum(sums.values())]
        rows.append((growth.edges_ms[high], sizes))
    return rows
