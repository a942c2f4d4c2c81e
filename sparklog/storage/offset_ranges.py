"""Sets of offsets as sorted, disjoint ranges [first, end). Pure functions."""

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from sparklog.common import TopicPartition


class OffsetRange(NamedTuple):
    """Offsets [first, end) of a partition. Equals the plain tuple."""

    first: int
    end: int


SpansByKey = dict[TopicPartition, list[OffsetRange]]


def merged(spans: Iterable[OffsetRange]) -> list[OffsetRange]:
    """Return ranges in any order as a set of offsets: sorted, with adjacent ranges joined."""
    found: list[OffsetRange] = []
    for span in sorted(spans):
        if found and span.first <= found[-1].end:
            found[-1] = OffsetRange(found[-1].first, max(span.end, found[-1].end))
        elif span.first < span.end:
            found.append(span)
    return found


def clipped(spans: Iterable[OffsetRange], start: int, end: int) -> list[OffsetRange]:
    """Return the ranges of a set of offsets, limited to [start, end)."""
    inside = (OffsetRange(max(first, start), min(last, end)) for first, last in spans)
    return [span for span in inside if span.first < span.end]


def subtract(
    start: int, end: int, spans: Sequence[OffsetRange], *, bridge: int
) -> Iterator[OffsetRange]:
    """Yield the ranges of [start, end) that are not in `spans`.

    A span shorter than `bridge` between two of these ranges is not left out, because seeking past
    it costs as much as reading it. `outside` removes the rows of such spans.

    Args:
        start: The first offset.
        end: The offset after the last.
        spans: The offsets to leave out: sorted, disjoint ranges.
        bridge: The number of offsets from which a span is left out.
    """
    for first, last in clipped(spans, start, end):
        # A short span costs no additional seek if it is the last one or the first one.
        if last - first >= bridge or last == end:
            if start < first:
                yield OffsetRange(start, first)
            start = last
        elif start == first:
            start = last
    if start < end:
        yield OffsetRange(start, end)


def outside(rows: pa.RecordBatch, spans: Sequence[OffsetRange]) -> pa.RecordBatch:
    """Return the rows with offsets outside of `spans`."""
    if not rows.num_rows:
        return rows
    offsets = rows.column("offset").to_numpy()
    inner = clipped(spans, int(offsets[0]), int(offsets[-1]) + 1)
    if not inner:
        return rows
    edges = np.array(inner)
    # The last range that begins at or before each offset. -1 means that there is none: the lookup
    # below then reads the end of the wrong range, which `at < 0` overrides.
    at = edges[:, 0].searchsorted(offsets, side="right") - 1
    kept = (at < 0) | (offsets >= edges[at, 1])
    return rows.filter(pa.array(kept))
