"""Offset ranges to tasks: what one Spark partition reads. Source: KafkaOffsetRangeCalculator."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise

from sparklog.log.histories import Origin
from sparklog.log.spans import Span, clipped
from sparklog.source.offsets import Offsets, Partition
from sparklog.source.options import SourceOptions
from sparklog.source.sizes import SizeMap

Sizes = Callable[[Partition, int, int], SizeMap]


@dataclass(frozen=True, slots=True)
class Piece:
    """Offsets [start, end) of one partition, read by one task.

    `topic_id` is the topic's that was planned; None where a broker's directory carries none.
    `without`: spans of offsets that are left out.
    """

    topic: str
    partition: int
    start: int
    end: int
    topic_id: str | None = None
    without: tuple[Span, ...] = ()

    @property
    def size(self) -> int:
        """Number of offsets."""
        return self.end - self.start


@dataclass(frozen=True, slots=True)
class FirstPiece:
    """A micro-batch's first piece; whoever reads it registers the query at `start`, too.

    `origins`: of `start`, where known; `planner`: see `sparklog.source.registration.Planner`.
    """

    piece: Piece
    start: Offsets
    origins: dict[Partition, Origin] = field(default_factory=dict)
    planner: str | None = None


def pieces(
    ranges: Mapping[Partition, tuple[int, int]], ids: Mapping[str, str | None]
) -> list[Piece]:
    """Make one piece a partition that has something to read, in order. `ids`: {topic: its id}."""
    found = (
        Piece(topic, p, start, end, ids.get(topic))
        for (topic, p), (start, end) in sorted(ranges.items())
    )
    return [piece for piece in found if piece.size > 0]


def leave_out(planned: list[Piece], spans: Mapping[Partition, Sequence[Span]]) -> list[Piece]:
    """Return the pieces with what of `spans` lies in them, but those that are left out whole."""
    found: list[Piece] = []
    for piece in planned:
        inner = clipped(spans.get((piece.topic, piece.partition), ()), piece.start, piece.end)
        if inner != [(piece.start, piece.end)]:
            found.append(replace(piece, without=tuple(inner)) if inner else piece)
    return found


def split(whole: list[Piece], options: SourceOptions, sizes: Sizes) -> list[Piece]:
    """Cut pieces by maxRecordsPerPartition, maxBytesPerPartition and minPartitions.

    The first two are limits and come first; minPartitions is a hint and shares the tasks out by
    the pieces' length.
    """
    cut = whole
    if options.max_records_per_partition is not None:
        most = options.max_records_per_partition
        cut = [part for piece in cut for part in _evenly(piece, -(-piece.size // most))]
    most_bytes = options.split_bytes
    if most_bytes is not None:
        cut = [part for piece in cut for part in _by_bytes(piece, most_bytes, sizes)]
    if options.min_partitions is not None and len(cut) < options.min_partitions:
        cut = _at_least(cut, options.min_partitions)
    return cut


def _evenly(piece: Piece, parts: int) -> list[Piece]:
    parts = max(1, min(parts, piece.size))
    edges = [piece.start + piece.size * k // parts for k in range(parts + 1)]
    return [replace(piece, start=a, end=b) for a, b in pairwise(edges)]


def _by_bytes(piece: Piece, most: int, sizes: Sizes) -> list[Piece]:
    size = sizes((piece.topic, piece.partition), piece.start, piece.end)
    total = size.between(piece.start, piece.end)
    parts = max(1, min(-(-total // most), piece.size))
    cuts = {size.offset_after(piece.start, total * k / parts) for k in range(1, parts)}
    edges = sorted({piece.start, piece.end, *(c for c in cuts if piece.start < c < piece.end)})
    return [replace(piece, start=a, end=b) for a, b in pairwise(edges)]


def _at_least(cut: list[Piece], wanted: int) -> list[Piece]:
    total = sum(piece.size for piece in cut)
    found: list[Piece] = []
    for piece in cut:
        # As Kafka's: a piece gets the share of tasks that it has of the records, at least one.
        found += _evenly(piece, max(1, round(piece.size / total * wanted)))
    return found
