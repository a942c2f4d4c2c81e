"""Stream a range of a partition's offsets as undecoded record batches."""

import logging
from collections.abc import Iterator
from typing import Final

from sparklog.errors import DataCorruptionError, UnknownTopicError
from sparklog.log.fetch import judge_failed_read
from sparklog.log.partition_reader import StreamedBatches, reader_of
from sparklog.log.read_retry import (
    StaleReadRetries,
    check_incarnation,
    check_topic_id,
    final_error,
)
from sparklog.storage.segments import StaleReadError
from sparklog.storage.view import View

_LOGGER: Final = logging.getLogger(__name__)


def stream_batches(
    view: View,
    topic: str,
    partition: int,
    start: int,
    end: int,
    *,
    isolation: str = "read_uncommitted",
    topic_id: str | None = None,
) -> Iterator[StreamedBatches]:
    """Yield the batches that contain offsets of [start, end); `end` <= the high watermark.

    The first batch may begin before `start`, the last may end behind `end`. Control batches and
    aborted batches are included. In a compacted topic, offsets may be missing between batches. Args
    and Raises: see `sparklog.log.fetch.read_partition`. Memory: a few MiB, or the size of the
    largest batch.
    """
    begun = view.renew()
    topic_id = topic_id or view.topic_id(topic, partition)
    at, tries = start, StaleReadRetries()
    while at < end:
        try:
            reader = reader_of(view, topic, partition, topic_id)
            for raw in reader.touching(at, end, isolation=isolation):
                check_incarnation(view, begun)
                check_topic_id(view, topic, partition, topic_id)
                at = int(raw.window.batches.table["last_offset"][-1]) + 1
                tries = StaleReadRetries()
                yield raw
            return
        except (StaleReadError, FileNotFoundError, UnknownTopicError, DataCorruptionError) as error:
            # A roll, a cleaning or an undo may have moved files: list again before judging.
            check_incarnation(view, begun)
            judge_failed_read(view, topic, partition, topic_id, at, end, error)
            if not tries.should_retry(view, topic, partition, at, end):
                raise final_error(view, topic, partition, at, end, error) from error
            _LOGGER.debug("%s-%d at %d: %s; reading again", topic, partition, at, error)
            reader_of(view, topic, partition).refresh()
