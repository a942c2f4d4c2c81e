"""Samples how large each topic's newest batches are, and how well they compress.

Batch headers don't contain uncompressed sizes, and counting every batch would read every byte that
is written. So each observation samples a few topics: those that were never sampled, or longest ago.
The cost per observation is bounded, for any number of topics and any write rate.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from sparklog.clock import Clock
from sparklog.common import TopicPartition
from sparklog.errors import SparklogError
from sparklog.log.batch_figures import BatchFigures, BatchTally
from sparklog.log.batch_sample import PARTITIONS_MAX, choose_partitions, sample
from sparklog.log.topic_names import INTERNAL
from sparklog.storage.segments import PartitionSegments

TOPICS_A_LOOK: Final = 16
TOPICS_ONCE: Final = 512  # for a single observation
REST_MS: Final = 60_000  # until a topic is sampled again
Ends = tuple[tuple[int, int], ...]  # (partition, end) of the sampled partitions


@dataclass(frozen=True, slots=True)
class _Sampled:
    ends: Ends
    time_ms: int
    turn: int
    figures: tuple[BatchFigures, ...]


class BatchObserver:
    """Samples batches, and remembers the samples. Not thread-safe.

    Args:
        topics_max: The number of topics per observation; 0 disables sampling.
        rest_ms: The shortest time between two samples of a topic.
    """

    def __init__(
        self, clock: Clock, *, topics_max: int = TOPICS_A_LOOK, rest_ms: int = REST_MS
    ) -> None:
        self._clock, self._topics_max, self._rest_ms = clock, topics_max, rest_ms
        self._known: dict[str, _Sampled] = {}
        self._turn = 0

    def observe(
        self,
        spans: Mapping[TopicPartition, tuple[int, int]],
        segments_of: Callable[[TopicPartition], PartitionSegments],
    ) -> dict[str, tuple[BatchFigures, ...]]:
        """Return {topic: figures per codec} of the topics with records that were sampled by now.

        Args:
            spans: (log start, log end) of each partition.
            segments_of: returns a partition's segments.

        Cost: 1 to 3 ms per partition, for up to four partitions of up to `topics_max` topics that
            were written to; in a bucket two or three GETs per partition.
        """
        if not self._topics_max:
            return {}
        held: dict[str, dict[int, int]] = {}
        for key, (start, end) in spans.items():
            if start < end and key.topic not in INTERNAL:
                held.setdefault(key.topic, {})[key.partition] = end
        most = max(1, min(PARTITIONS_MAX, TOPICS_ONCE // max(1, len(held))))
        wanted = {
            topic: tuple((number, ends[number]) for number in choose_partitions(sorted(ends), most))
            for topic, ends in held.items()
        }
        now_ms = self._clock()
        self._known = {topic: seen for topic, seen in self._known.items() if topic in held}
        for topic in self._due(wanted, now_ms):
            figures = _sampled(topic, wanted[topic], segments_of)
            self._turn += 1
            self._known[topic] = _Sampled(wanted[topic], now_ms, self._turn, figures)
        return {topic: self._known[topic].figures for topic in sorted(self._known)}

    def _due(self, wanted: Mapping[str, Ends], now_ms: int) -> list[str]:
        due: list[tuple[int, str]] = []
        for topic, ends in wanted.items():
            seen = self._known.get(topic)
            if seen is None:
                due.append((-1, topic))
            elif seen.ends != ends and not 0 <= now_ms - seen.time_ms < self._rest_ms:
                due.append((seen.turn, topic))
        return [topic for _, topic in sorted(due)[: self._topics_max]]


def _sampled(
    topic: str, ends: Ends, segments_of: Callable[[TopicPartition], PartitionSegments]
) -> tuple[BatchFigures, ...]:
    tally = BatchTally()
    for number, end in ends:
        try:
            sample(segments_of(TopicPartition(topic, number)), end, tally)
        except (SparklogError, OSError):
            continue  # moved or unreadable; the observer of the partitions reports it
    return tally.figures(sampled=True)
