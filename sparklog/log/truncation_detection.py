"""Detects log truncation by the leader epochs of a reader's positions (KIP-320).

A log that is restored to an earlier state and written to has other records under numbers that were
read before. So whoever writes first to one that was copied begins a new leader epoch, the number
of which no other history has (`begin_history`); a position remembers the epoch of the record
before it (`Origin`), and leader-epoch-checkpoint tells up to where both are the same.

What can't be noticed: a copy that was put over the files in place or an image of the whole disk
(the directory is the same by device and inode, and no epoch begins), and positions that know no
epoch, which are taken to be of any epoch below HISTORY_EPOCH.
Source: OffsetsForLeaderEpoch, SubscriptionState.maybeCompleteValidation (Kafka 4.1).
"""

import logging
from collections.abc import Callable, Mapping
from typing import Final

from sparklog.common import TopicPartition
from sparklog.errors import (
    DataCorruptionError,
    OffsetOutOfRangeError,
    SparklogError,
    UnknownTopicError,
)
from sparklog.format.checkpoint_files import Epochs
from sparklog.log.partition_reader import reader_of
from sparklog.storage.groups import Origin
from sparklog.storage.leader_epochs import HISTORY_EPOCH, end_offset_for
from sparklog.storage.segments import StaleReadError
from sparklog.storage.view import View

_LOGGER: Final = logging.getLogger(__name__)


def origin_of(entries: Epochs, offset: int) -> Origin | None:
    """Return where the record before `offset` comes from; None if nobody knows."""
    before = [entry for entry in entries if entry[1] < offset]
    return Origin(*before[-1]) if before else None


def diverging_offset(
    entries: Epochs,
    offset: int,
    origin: Origin | None,
    end: int,
    epoch_at: Callable[[int], int | None],
) -> int | None:
    """Return where a log's history parts from that of a position, None if the position is in it.

    Args: entries: the log's epochs; origin: of the position, None if it remembers none;
        epoch_at: leader epoch of the batch with an offset, by the log itself. It has the last
        word: a broker under a lower epoch takes entries out of the file.
    """
    if not entries or offset <= entries[0][1]:  # what lies before the log start can't be judged
        return None
    epoch, since = origin or Origin(HISTORY_EPOCH - 1, offset)
    if any(known == epoch for known, _ in entries):
        common = end_offset_for(entries, epoch, end)[1]
    else:
        common = min(since, next((start for known, start in entries if known > epoch), end))
    if offset <= min(common, end):
        return None
    if offset <= end:
        found = epoch_at(offset - 1)
        if found == epoch or (origin is None and found is not None and found < HISTORY_EPOCH):
            return None
    return max(min(common, end), entries[0][1])


def truncation_error(
    key: TopicPartition, parted: int, offset: int, span: tuple[int, int]
) -> OffsetOutOfRangeError:
    """Return the error for one who has read up to `offset` what parts from the log at `parted`."""
    topic, partition = key
    return OffsetOutOfRangeError(
        f"offsets [{parted}, {offset}) of {topic}-{partition} were read in another history: the "
        f"log was restored to {parted} since, and holds, or will hold, other records there. To "
        f"read those give start={{{partition}: {parted}}}, to go on without them "
        f"start={{{partition}: {offset}}}",
        offset=offset,
        start=span[0],
        end=span[1],
    )


class LogTruncationDetector:
    """Tells of a view's partitions whether a position is still true. Every call looks anew.

    A leader-epoch-checkpoint that can't be read tells nothing: a warning.
    """

    def __init__(self, view: View) -> None:
        self._view = view

    def origin(self, key: TopicPartition, offset: int) -> Origin | None:
        """Return what a position at `offset` should remember. Cost: one small file."""
        return origin_of(self._epochs(key), offset)

    def origins(self, offsets: Mapping[TopicPartition, int]) -> dict[TopicPartition, Origin]:
        """Return the origins of positions, where they are known."""
        found = {key: self.origin(key, offset) for key, offset in offsets.items()}
        return {key: origin for key, origin in found.items() if origin is not None}

    def truncated_at(
        self, key: TopicPartition, offset: int, origin: Origin | None, span: tuple[int, int]
    ) -> int | None:
        """See `diverging_offset`; `span`: the log start and end. Cost: one small file."""
        start, end = span
        if offset <= start:
            return None
        entries = self._epochs(key)
        at = diverging_offset(entries, offset, origin, end, lambda o: self._epoch_at(key, o))
        return None if at is None else max(at, start)

    def _epochs(self, key: TopicPartition) -> Epochs:
        try:
            return reader_of(self._view, *key).segments.leader_epochs()
        except UnknownTopicError:  # it was just deleted: who reads it is told
            return []
        except DataCorruptionError as error:
            _LOGGER.warning("%s; that no other history is read can't be checked", error)
            return []

    def _epoch_at(self, key: TopicPartition, offset: int) -> int | None:
        try:
            reader = reader_of(self._view, *key)
            reader.refresh()  # what it keeps open may be of the log that was there before
            return reader.leader_epoch_of(offset)
        except (SparklogError, StaleReadError, FileNotFoundError) as error:
            _LOGGER.debug("%s-%d at %d: %s", *key, offset, error)
            return None
