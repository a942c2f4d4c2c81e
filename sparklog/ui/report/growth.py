"""The growth of a log: its current bytes by the timestamps of their records."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from sparklog.quantities import DAY_MS
from sparklog.ui.report.model import GrowthReport, SegmentReport, TopicReport, Where
from sparklog.ui.report.scales import bin_edges

BINS: Final = 72
_OUTLIERS: Final = 0.005  # the share of the oldest bytes that the axis may leave out,
_STRETCH: Final = 2  # if including them would make the axis longer than this factor
_PLACES: Final = tuple(Where)
Floats = NDArray[np.float64]


def growth(topics: Iterable[TopicReport], *, now_ms: int) -> GrowthReport:
    """Return the current bytes of `topics` in bins of time.

    The bytes of a segment are spread evenly over the time of its records. Cost: BINS passes in
    numpy.
    """
    # The axis ends at most a day from now, and need not include the oldest 0.5 % of the bytes: one
    # record with a wrong timestamp must not press all others into one bin.
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
    """Yield the time of the first record of each segment, or None if records have no timestamps.

    The first timestamp of a remote segment is unknown, because reading it costs a request. The
    estimate is the last timestamp of the previous segment. The first segment of a partition is
    assumed to cover as much time as the second.
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
    """Return the (start, end) of the time axis, at least a second apart."""
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
    """Return how many bytes of each segment are before a time.

    If all records of a segment have the same timestamp, all of its bytes count.
    """
    span = last - first
    share = np.where(
        span > 0, np.clip((time - first) / np.where(span > 0, span, 1), 0, 1), first < time
    )
    result: Floats = size * share
    return result


def _behind(time: float) -> float:
    """Return the next larger float, so that a segment at the end of the axis is on the axis."""
    return float(np.nextafter(time, np.inf))


def _spread(
    first: Floats, last: Floats, size: Floats, edges: Floats, group: NDArray[np.int_], groups: int
) -> Floats:
    """Return the bytes per group (row) and bin (column). The last bin includes its end."""
    times = [*edges[:-1], _behind(edges[-1])]
    sums = [
        np.bincount(group, weights=_below(first, last, size, time), minlength=groups)
        for time in times
    ]
    table: Floats = np.array(sums)
    result: Floats = (table[1:] - table[:-1]).T
    return result
