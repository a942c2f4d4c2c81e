"""A topic's batch figures for a report, of its newest batches: no report reads a whole log."""

from collections.abc import Sequence
from typing import Final

from sparklog.errors import SparklogError
from sparklog.log.batch_figures import BatchFigures, BatchTally
from sparklog.log.batch_sample import PARTITIONS_MAX, choose_partitions, sample
from sparklog.log.partition_reader import reader_of
from sparklog.storage.view import View
from sparklog.ui.report.model import PartitionReport
from sparklog.ui.report.segments import ReportCache

_SAMPLES_MAX: Final = 512  # partitions of all topics together, at least one a topic
IN_STORE_MAX: Final = 16  # topics of a log in a store, where each costs some GETs


def topic_batches(
    view: View, partitions: Sequence[PartitionReport], topics: int, memory: ReportCache
) -> tuple[BatchFigures, ...]:
    """Return the figures of a topic out of `topics`, or () if nothing can be read.

    Cost: 1 to 3 ms for each of up to four partitions; nothing if `memory` has them.
    """
    held = {p.partition: p.end for p in partitions if p.error is None and p.bytes}
    if not held:
        return ()
    most = max(1, min(PARTITIONS_MAX, _SAMPLES_MAX // max(topics, 1)))
    chosen = choose_partitions(sorted(held), most)
    topic = partitions[0].topic

    def look() -> tuple[BatchFigures, ...]:
        tally = BatchTally()
        for number in chosen:
            try:
                sample(reader_of(view, topic, number).segments, held[number], tally)
            except (SparklogError, OSError):
                continue  # listing its segments reported the error
        return tally.figures(sampled=True)

    return memory.batches(topic, tuple((n, held[n]) for n in chosen), look)
