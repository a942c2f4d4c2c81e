"""Bytes over time: what the log holds now, by the times of its records."""

from collections.abc import Iterable
from typing import Final

import numpy as np
from numpy.typing import NDArray

from sparklog.tools.report.model import DAY_MS, GrowthReport, SegmentReport, Where

BINS: Final = 72
_OUTLIERS: Final = 0.005  # the share of bytes that may lie before the axis
_STRETCH: Final = 2  # how much longer they may make it
Floats = NDArray[np.float64]


def growth(segments: Iterable[SegmentReport], *, now_ms: int) -> GrowthReport:
    """Spread each segment's bytes over the time of its records, or put them at its end.

    The axis ends a day from now at the latest, and begins where nearly all bytes lie behind: one
    record with a wrong time must not press all others into one bin.
    """
    dated = [s for s in segments if s.last_ms is not None and s.bytes]
    if not dated:
        return GrowthReport()
    first = np.array([s.since_ms for s in dated], np.float64)
    last = np.array([s.last_ms for s in dated], np.float64)
    size = np.array([s.bytes for s in dated], np.float64)
    low, high = _span(first, last, size, now_ms + DAY_MS)
    edges = np.linspace(low, high, BINS + 1)
    total = {}
    for where in Where:
        mine = np.array([s.where is where for s in dated])
        total[str(where)] = _spread(first[mine], last[mine], size[mine], edges)
    before = float(_below(first, last, size, low).sum())
    after = float(size.sum() - _below(first, last, size, _behind(high)).sum())
    return GrowthReport(
        edges_ms=tuple(int(edge) for edge in edges),
        bytes={where: tuple(int(n) for n in held) for where, held in total.items()},
        before=round(before),
        after=round(after),
    )


def _span(first: Floats, last: Floats, size: Floats, latest: float) -> tuple[float, float]:
    """(begin, end) of the axis; at least a second long."""
    order = np.argsort(first)
    below = np.cumsum(size[order]) / size.sum()
    usual = last[last <= latest]
    high = float(usual.max()) if len(usual) else latest
    oldest, low = float(first.min()), float(first[order][np.searchsorted(below, _OUTLIERS)])
    if high - oldest <= _STRETCH * (high - low):
        low = oldest
    low = min(low, high)
    return low, max(high, low + 1000)


def _below(first: Floats, last: Floats, size: Floats, time: float) -> Floats:
    """How many bytes of each segment are dated before a time; a point in time counts whole."""
    span = last - first
    share = np.where(
        span > 0, np.clip((time - first) / np.where(span > 0, span, 1), 0, 1), first < time
    )
    result: Floats = size * share
    return result


def _behind(time: float) -> float:
    """Just after it: what is dated at the axis's end is on the axis."""
    return float(np.nextafter(time, np.inf))


def _spread(first: Floats, last: Floats, size: Floats, edges: Floats) -> Floats:
    """Bytes in each bin; the last one takes what lies just on its end."""
    sums = [float(_below(first, last, size, edge).sum()) for edge in edges[:-1]]
    on_end = float(_below(first, last, size, _behind(edges[-1])).sum())
    result: Floats = np.diff([*sums, on_end])
    return result
