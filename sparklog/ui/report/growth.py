"""Bytes over time: the current bytes of the log, by the times of their records."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from sparklog.quantities import DAY_MS
from sparklog.ui.report.model import GrowthReport, SegmentReport, TopicReport, Where
from sparklog.ui.report.scales import bin_edges

BINS: Final = 72
_OUTLIERS: Final = 0.005  # the share of bytes that may be before the axis
_STRETCH: Final = 2  # how much longer they may make it
_PLACES: Final = tuple(Where)
Floats = NDArray[np.float64]


def growth(topics: Iterable[TopicReport], *, now_ms: int) -> GrowthReport:
    """Spread each segment's bytes over the time of its records, or put them at its end.

    The axis ends at most a day from now, and begins before nearly all of the bytes: one record with
    a wrong time must not press all others into one bin. Cost: BINS passes in numpy.
    """
    topics = list(topics)
    rows = [
        (begin, s.last_ms, s.bytes, at * len(_PLACES) + _PLACES.index(s.where))
        for at, topic in enumerate(topics)
        for partition in topic.partitions
        for s, begin in zip(partition.segments, begins(partition.segments), strict=True)
        if begin is not None and s.bytes
    ]
    if not rows:
        return GrowthReport()
    first, last, size = (
        np.array(column, np.float64) for column in list(zip(*rows, strict=True))[:3]
    )
    group = np.array([row[3] for row in rows])
    low, high = _span(first, last, size, now_ms + DAY_MS)
    edges = np.array(bin_edges(low, high, BINS), np.float64)
    held = _spread(first, last, size, edges, group, len(topics) * len(_PLACES))
    cube = held.reshape(len(topics), len(_PLACES), -1)
    before = float(_below(first, last, size, edges[0]).sum())
    after = float(size.sum() - _below(first, last, size, _behind(edges[-1])).sum())
    return GrowthReport(
        edges_ms=tuple(int(edge) for edge in edges),
        bytes={str(where): _whole(cube[:, at].sum(axis=0)) for at, where in enumerate(_PLACES)},
        topics={topic.name: _whole(cube[at].sum(axis=0)) for at, topic in enumerate(topics)},
        before=round(before),
        after=round(after),
    )


def begins(segments: Sequence[SegmentReport]) -> Iterator[int | None]:
    """Yield the first time of each segment of a partition, or None if its records have no time.

    For a remote segment that would take a request, so the end of the segment before is taken; the
    first is taken to be as long as the second.
    """
    before: int | None = None
    if len(segments) > 1 and segments[0].last_ms is not None and segments[1].last_ms is not None:
        before = 2 * segments[0].last_ms - segments[1].last_ms
    for segment in segments:
        since, last = segment.since_ms, segment.last_ms
        if last is not None and segment.first_ms is None and before is not None:
            since = min(before, last)
        yield since
        before = last


def _whole(values: Floats) -> tuple[int, ...]:
    return tuple(round(value) for value in values)


def _span(first: Floats, last: Floats, size: Floats, latest: float) -> tuple[float, float]:
    """Return (begin, end) of the axis; at least a second long."""
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
    """Return how many bytes of each segment are before a time; one without length counts whole."""
    span = last - first
    share = np.where(
        span > 0, np.clip((time - first) / np.where(span > 0, span, 1), 0, 1), first < time
    )
    result: Floats = size * share
    return result


def _behind(time: float) -> float:
    """Just after it: a time at the axis's end is on the axis."""
    return float(np.nextafter(time, np.inf))


def _spread(
    first: Floats, last: Floats, size: Floats, edges: Floats, group: NDArray[np.int_], groups: int
) -> Floats:
    """Return the bytes of each group in each bin; the last bin includes its end."""
    times = [*edges[:-1], _behind(edges[-1])]
    sums = [
        np.bincount(group, weights=_below(first, last, size, time), minlength=groups)
        for time in times
    ]
    table: Floats = np.array(sums)
    result: Floats = (table[1:] - table[:-1]).T
    return result
