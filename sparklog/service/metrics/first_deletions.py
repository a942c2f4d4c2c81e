"""Warns of topics in which retention's first deletion would delete more than half."""

from collections.abc import Collection, Mapping
from typing import Final

from sparklog.common import TopicPartition
from sparklog.log.due_segments import LOG_START, DueSegments
from sparklog.service.metrics.observed import LogMetrics

_PARTS: Final = 2  # warn if more than 1/2 of a topic would be deleted


def first_deletions(
    found: LogMetrics,
    due: Mapping[TopicPartition, DueSegments | None],
    ids: Mapping[str, str],
    announced: Mapping[str, bool],
) -> dict[str, tuple[int, int]]:
    """Return {topic: (bytes that retention would delete, bytes of the topic)}.

    Local segments with a copy in remote storage are not counted: their records remain readable.

    Args:
        found: the metrics of the log.
        due: segments that retention would delete.
        ids: {topic: topic id}.
        announced: {topic id: whether retention has deleted something there}.
    """
    sizes: dict[str, int] = {}
    for one in found.partitions:
        sizes[one.topic] = sizes.get(one.topic, 0) + one.size_bytes
    taken: dict[str, int] = {}
    for key, segments in due.items():
        if segments is None or segments.local or announced.get(ids.get(key.topic, ""), False):
            continue
        size = sum(one.bytes for one in segments.expired if one.rule != LOG_START)
        taken[key.topic] = taken.get(key.topic, 0) + size
    return {
        topic: (size, sizes[topic])
        for topic, size in sorted(taken.items())
        if _is_most(size, topic, sizes, ids)
    }


def _is_most(size: int, topic: str, sizes: Mapping[str, int], known: Collection[str]) -> bool:
    return topic in known and _PARTS * size > sizes.get(topic, 0) > 0
