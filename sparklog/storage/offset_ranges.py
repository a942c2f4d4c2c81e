"""Sets of offsets as sorted, disjoint spans [first, end). Pure functions."""

from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np
import pyarrow as pa

from sparklog.common import TopicPartition

Span = tuple[int, int]
SpansByKey = dict[TopicPartition, list[Span]]


def merged(spans: Iterable[Span]) -> list[Span]:
    """Return spans in any order as a set: sorted, those that touch made one."""
    found: list[Span] = []
    for first, end in sorted(spans):
        if found and first <= found[-1][1]:
            found[-1] = found[-1][0], max(end, found[-1][1])
        elif first < end:
            found.append((first, end))
    return found


def clipped(spans: Iterable[Span], start: int, end: int) -> list[Span]:
    """Return what of a set lies in [start, end)."""
    inside = ((max(first, start), min(last, end)) for first, last in spans)
    return [(first, last) for first, last in inside if first < last]


def rest_of(start: int, end: int, spans: Sequence[Span], *, bridge: int) -> Iterator[Span]:
    """Yield [start, end) without `spans`; those shorter than `bridge` are left to `outside`."""
    for first, last in clipped(spans, start, end):
        if last - first >= bridge or last == end:
            if start < first:
                yield start, first
            start = last
        elif start == first:
            start = last
    if start < end:
        yield start, end


def outside(rows: pa.RecordBatch, spans: Sequence[Span]) -> pa.RecordBatch:
    """Return the rows whose column offset is in none of `spans`."""
    if not rows.num_rows:
        return rows
    offsets = rows.column("offset").to_numpy()
    inner = clipped(spans, int(offsets[0]), int(offsets[-1]) + 1)
    if not inner:
        return rows
    edges = np.array(inner)
    at = edges[:, 0].searchsorted(offsets, side="right") - 1
    kept = (at < 0) | (offsets >= edges[at, 1])
    return rows.filter(pa.array(kept))


def spans_to_json(
    spans: Mapping[TopicPartition, Sequence[Span]],
) -> dict[str, dict[str, list[list[int]]]]:
    """Return {topic: {partition: [[first, end], ...]}}."""
    nested: dict[str, dict[str, list[list[int]]]] = {}
    for (topic, partition), some in sorted(spans.items()):
        nested.setdefault(topic, {})[str(partition)] = [list(span) for span in some]
    return nested


def spans_from_json(nested: Mapping[str, Mapping[str, list[list[int]]]]) -> SpansByKey:
    """Return what `spans_to_json` was given."""
    return {
        TopicPartition(topic, int(p)): [(first, end) for first, end in some]
        for topic, by_partition in nested.items()
        for p, some in by_partition.items()
    }
