"""failOnDataLoss: raise an error, or warn, with the exact range of the missing records.

Source: reportDataLoss of Spark's Kafka source.
"""

import logging
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from sparklog.common import TopicPartition
from sparklog.errors import OffsetOutOfRangeError, SparklogError, TopicReplacedError
from sparklog.source.offsets import Offsets, Ranges

_LOGGER = logging.getLogger("sparklog.source")
NO_BASES: Final[Mapping[TopicPartition, int]] = MappingProxyType({})


class DataLossPolicy:
    """Reports data loss: raises an error if failOnDataLoss is true, else logs a warning."""

    def __init__(self, fail: bool) -> None:
        self._fail = fail

    def lost_offsets(
        self,
        partition: TopicPartition,
        first: int,
        end: int | None,
        why: str,
        *,
        held: tuple[int, int],
    ) -> None:
        """Report that offsets [first, end) of a partition are lost.

        Args:
            partition: The partition.
            first: The first lost offset.
            end: The offset after the last lost record, or None if it is unknown.
            why: Why the records are lost, for the message.
            held: The offsets [start, end) that the log contains.

        Raises:
            OffsetOutOfRangeError: failOnDataLoss is true.
        """
        lost = f"offsets [{first}, {'?' if end is None else end}) of {partition}"
        self._lost(lost, first, why, held)

    def lost_batches(
        self, store: str, first: int, end: int, why: str, *, held: tuple[int, int]
    ) -> None:
        """Report that the changes of a state store in batches [first, end) are lost.

        Raises:
            OffsetOutOfRangeError: failOnDataLoss is true.
        """
        self._lost(f"changes of batches [{first}, {end}) of {store}", first, why, held)

    def _lost(self, lost: str, first: int, why: str, held: tuple[int, int]) -> None:
        start, end = held
        self._raise_or_warn(
            OffsetOutOfRangeError(
                f"data loss: {lost} can't be read: {why}. To continue without them set "
                "failOnDataLoss=false, or start over with another checkpoint",
                offset=first, start=start, end=end,
            ),
            f"data loss: {lost} are skipped: {why}",
        )  # fmt: skip

    def reset_batches(self, store: str, first: int, end: int) -> None:
        """Report that a query was reset after this reader had read changes of the query's state.

        The reset abandoned the query's micro-batches [first, end), so the changes that were read
        from them are no longer valid. Logs a warning if failOnDataLoss is false.

        Args:
            store: The name of the state store whose changes are read.
            first: The first abandoned micro-batch.
            end: The micro-batch after the last abandoned one that was read.

        Raises:
            OffsetOutOfRangeError: failOnDataLoss is true.
        """
        text = (
            f"batches [{first}, {end}) of {store} were read, but their query was reset since: it "
            "computes new changes under the same numbers"
        )
        self._raise_or_warn(
            OffsetOutOfRangeError(
                f"{text}. To go back and read the changes from batch {first} on set "
                "failOnDataLoss=false; to discard the old changes, start over with another "
                "checkpoint and another sink",
                offset=end, start=0, end=first,
            ),
            f"{text}; going back to batch {first}",
        )  # fmt: skip

    def diverged(
        self, partition: TopicPartition, first: int, end: int, *, held: tuple[int, int]
    ) -> None:
        """Report that offsets [first, end) that were read or planned belong to another history.

        Raises:
            OffsetOutOfRangeError: failOnDataLoss is true.
        """
        text = (
            f"offsets [{first}, {end}) of {partition} belong to another history: the log was "
            f"restored to {first} since this query read or planned them, and other records have "
            "been, or will be, written under those numbers"
        )
        low, high = held
        self._raise_or_warn(
            OffsetOutOfRangeError(
                f"{text}. To go back to {first} and read those records set failOnDataLoss=false "
                "(the old records that were read stay in the sink), or start over with another "
                "checkpoint",
                offset=end, start=low, end=high,
            ),
            f"{text}; going back to offset {first}",
        )  # fmt: skip

    def replaced_topic(self, partition: TopicPartition, at: int, begins: int | None) -> None:
        """Report that a topic was re-created, so that the old records from offset `at` are lost.

        Args:
            partition: The partition.
            at: The first offset of the old topic that was not read.
            begins: The first offset of the new topic, if it was looked up.

        Raises:
            TopicReplacedError: failOnDataLoss is true.
        """
        where = "" if begins is None else f", which begins at offset {begins}"
        self._raise_or_warn(
            TopicReplacedError(
                f"{partition} was deleted and created again: this query has read the old topic up "
                f"to offset {at} and would continue in the new one{where}. To do so set "
                "failOnDataLoss=false; to keep the two apart, start over with another checkpoint "
                "and another sink"
            ),
            f"{partition} was deleted and created again: records of the old topic from offset "
            f"{at} on are skipped, continuing in the new one{where}",
        )

    def _raise_or_warn(self, error: SparklogError, warning: str) -> None:
        if self._fail:
            raise error
        _LOGGER.warning("%s", warning)


def latest_offsets(
    start: Offsets, held: Ranges, dropped: Mapping[TopicPartition, int], loss: DataLossPolicy
) -> Offsets:
    """Return the latest offsets after `start`, including new and deleted partitions.

    A deleted topic retains its old end offset, where a re-created topic continues. Reports the loss
    if the log ends before `start`.

    Args:
        start: The start offsets.
        held: The offsets that the log contains now.
        dropped: End offsets of deleted topics.
        loss: Reports data loss.
    """
    latest = {p: high for p, (_, high) in held.items()}
    for partition, offset in start.items():
        if partition not in held:
            latest[partition] = max(offset, dropped.get(partition, offset))
        elif held[partition][1] < offset:
            high = held[partition][1]
            why = f"the log ends at {high}: it was restored or replaced since they were read"
            loss.lost_offsets(partition, high, offset, why, held=held[partition])
    return latest


def readable_ranges(
    start: Offsets,
    end: Offsets,
    held: Ranges,
    dropped: Mapping[TopicPartition, int],
    loss: DataLossPolicy,
    *,
    bases: Mapping[TopicPartition, int] = NO_BASES,
) -> dict[TopicPartition, tuple[int, int]]:
    """Return the readable part of [start, end), and report the rest as lost.

    Args:
        start: Partitions that are missing here are new and should start at 0, as in the connector.
        end: The planned end offsets.
        held: The offsets that the log contains now.
        dropped: End offsets of deleted topics.
        bases: First offsets of re-created topics; lower offsets belong to the old topic.
    """
    ranges: dict[TopicPartition, tuple[int, int]] = {}
    for partition, last in sorted(end.items()):
        first = start.get(partition, 0)
        if partition not in held:
            deleted_end = dropped.get(partition, last)
            if first < deleted_end:
                why = "its topic was deleted"
                loss.lost_offsets(partition, first, deleted_end, why, held=(0, 0))
            continue
        low, high = held[partition]
        base = bases.get(partition, 0)
        if partition in start and first < min(base, last):
            loss.replaced_topic(partition, first, base)
        first = max(first, base)
        if first < min(low, last):
            why = f"the log starts at {low}"
            loss.lost_offsets(partition, first, min(low, last), why, held=(low, high))
        first = max(first, low)
        if max(first, high) < last:
            why = f"the log ends at {high}: it was restored or replaced since they were planned"
            loss.lost_offsets(partition, max(first, high), last, why, held=(low, high))
        # A planned end can be above the log end after a restore: the rest was reported above.
        last = min(last, high)
        if first < last:
            ranges[partition] = (first, last)
    return ranges
