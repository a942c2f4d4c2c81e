"""Split offset ranges into Spark input partitions. Source: KafkaOffsetRangeCalculator."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Final

from sparklog.common import TopicPartition
from sparklog.source.admission import BytesByOffset
from sparklog.source.offsets import Offsets
from sparklog.source.options import SourceOptions
from sparklog.storage.groups import Origin
from sparklog.storage.offset_ranges import OffsetRange, SpansByKey, clipped
from sparklog.storage.view import ReadPlan

TASKS: Final = 32
"""Up to this number of tasks, ranges are never combined."""
SMALL_RECORDS: Final = 10_000
"""Maximum number of offsets of a task that reads several ranges."""
Sizes = Callable[[TopicPartition, int, int], BytesByOffset]


@dataclass(frozen=True, slots=True)
class PlannedRange:
    """Offsets [start, end) of a partition, read by a single task.

    Attributes:
        topic: The topic.
        partition: The partition.
        start: The first offset.
        end: The offset after the last record.
        topic_id: The topic's id at planning time. A broker's directory may have no ids.
        without: Offset ranges to leave out.
        plan: How the task reads the range, if the log's home makes plans.
    """

    topic: str
    partition: int
    start: int
    end: int
    topic_id: str | None = None
    without: tuple[OffsetRange, ...] = ()
    plan: ReadPlan | None = field(default=None, repr=False)

    @property
    def topic_partition(self) -> TopicPartition:
        """The partition that is read."""
        return TopicPartition(self.topic, self.partition)

    @property
    def size(self) -> int:
        """The number of offsets."""
        return self.end - self.start


@dataclass(frozen=True, slots=True)
class FirstTask:
    """The first task of a micro-batch.

    The executor that runs it also registers the query at `start`.

    Attributes:
        pieces: The offset ranges to read.
        start: The start offsets of the micro-batch.
        origins: Known origins of `start`.
        planner: See `sparklog.source.group_registration.Planner`.
    """

    pieces: tuple[PlannedRange, ...]
    start: Offsets
    origins: dict[TopicPartition, Origin] = field(default_factory=dict)
    planner: str | None = None


def plan_ranges(
    ranges: Mapping[TopicPartition, tuple[int, int]], ids: Mapping[str, str | None]
) -> list[PlannedRange]:
    """Return a range for each partition that has records to read, in order.

    Args:
        ranges: {partition: (start, end)} offsets of the micro-batch.
        ids: {topic: topic id}.
    """
    ranges_of_partitions = (
        PlannedRange(topic, p, start, end, ids.get(topic))
        for (topic, p), (start, end) in sorted(ranges.items())
    )
    return [piece for piece in ranges_of_partitions if piece.size > 0]


def exclude_abandoned(planned: list[PlannedRange], spans: SpansByKey) -> list[PlannedRange]:
    """Return the ranges without the offsets of `spans`.

    Ranges that are abandoned entirely are left out.
    """
    remaining: list[PlannedRange] = []
    for piece in planned:
        inner = clipped(spans.get(piece.topic_partition, ()), piece.start, piece.end)
        if inner != [(piece.start, piece.end)]:
            remaining.append(replace(piece, without=tuple(inner)) if inner else piece)
    return remaining


def split(whole: list[PlannedRange], options: SourceOptions, sizes: Sizes) -> list[PlannedRange]:
    """Split ranges by maxRecordsPerPartition, maxBytesPerPartition and minPartitions.

    The first two are limits and are applied first. minPartitions is a hint; the tasks are shared
    out by the size of the ranges.
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


def _evenly(piece: PlannedRange, parts: int) -> list[PlannedRange]:
    """Split where Spark would: the last parts get the remainder."""
    edges = [piece.start]
    for left in range(max(1, min(parts, piece.size)), 0, -1):
        edges.append(edges[-1] + (piece.end - edges[-1]) // left)
    return [replace(piece, start=a, end=b) for a, b in pairwise(edges)]


def _by_bytes(piece: PlannedRange, most: int, sizes: Sizes) -> list[PlannedRange]:
    size = sizes(piece.topic_partition, piece.start, piece.end)
    total = size.between(piece.start, piece.end)
    parts = max(1, min(-(-total // most), piece.size))
    cuts = {size.offset_after(piece.start, total * k / parts) for k in range(1, parts)}
    edges = sorted({piece.start, piece.end, *(c for c in cuts if piece.start < c < piece.end)})
    return [replace(piece, start=a, end=b) for a, b in pairwise(edges)]


def _at_least(cut: list[PlannedRange], wanted: int) -> list[PlannedRange]:
    """Split ranges, so that each gets tasks in proportion to the number of records, at least one.

    A range with a share of one task is not split, and the others share the rest (SPARK-36576).
    """
    total = sum(piece.size for piece in cut)
    small = [piece for piece in cut if _share(piece.size, total, wanted) == 1]
    whole = {piece.topic_partition for piece in small}
    rest, tasks = total - sum(piece.size for piece in small), max(wanted - len(small), 1)
    parts: list[PlannedRange] = []
    for piece in cut:
        stays_whole = piece.topic_partition in whole
        parts += _evenly(piece, 1 if stays_whole else _share(piece.size, rest, tasks))
    return parts


def _share(size: int, total: int, wanted: int) -> int:
    return max(1, math.floor(size / total * wanted + 0.5))  # as Java rounds: 2.5 is 3


def coalesce(
    cut: list[PlannedRange], options: SourceOptions, sizes: Sizes
) -> list[tuple[PlannedRange, ...]]:
    """Return the ranges of each task: a single range, or several small ranges if there are many.

    A task costs about 6 ms in addition to reading. If there are more than TASKS ranges, adjacent
    ranges share a task, up to SMALL_RECORDS and the limits of the options; at least TASKS tasks and
    minPartitions remain.
    """
    fewest = max(TASKS, options.min_partitions or 1)
    if len(cut) <= fewest:
        return [(piece,) for piece in cut]
    most = min(SMALL_RECORDS, options.max_records_per_partition or SMALL_RECORDS)
    most_bytes = options.max_bytes_per_partition
    tasks: list[tuple[PlannedRange, ...]] = []
    group: list[PlannedRange] = []
    records = size = 0
    spare = len(cut) - fewest  # how many tasks can still be saved
    for piece in cut:
        own = 0
        if most_bytes is not None and piece.size <= most:
            own = sizes(piece.topic_partition, piece.start, piece.end).between(
                piece.start, piece.end
            )
        fits = records + piece.size <= most and size + own <= (most_bytes or own + size)
        if group and fits and spare > 0 and len(group) < -(-len(cut) // fewest):
            spare -= 1
            group.append(piece)
            records, size = records + piece.size, size + own
            continue
        if group:
            tasks.append(tuple(group))
        group, records, size = [piece], piece.size, own
    return [*tasks, tuple(group)]
