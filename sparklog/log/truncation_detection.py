"""Detect log truncation by the leader epochs of a reader's positions (KIP-320).

When a log is restored to an earlier state and then written to, used offsets are assigned to other
records. The first writer to a copied log therefore begins a leader epoch with a number that no
other history has (`begin_history`). The origin of a position is the leader epoch of the record
before it, with the epoch's first offset (`Origin`). It is stored with the position, and
leader-epoch-checkpoint then shows up to which offset both histories are the same.

Two cases can't be detected. A copy over the files in place, or a disk image, keeps the directory's
device and inode, so no epoch begins. A position without an origin is treated as a position of any
epoch below HISTORY_EPOCH. Source: OffsetsForLeaderEpoch, SubscriptionState.maybeCompleteValidation
(Kafka 4.1).
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
    """Return the leader epoch of the record before `offset`, and the epoch's first offset.

    `entries` are the log's leader epochs. Without an epoch below `offset` the result is None.
    """
    before = [entry for entry in entries if entry[1] < offset]
    return Origin(*before[-1]) if before else None


def diverging_offset(
    entries: Epochs,
    offset: int,
    origin: Origin | None,
    end: int,
    epoch_at: Callable[[int], int | None],
) -> int | None:
    """Return the offset from which a log has other records than a reader at `offset` has read.

    The result is None for a reader that has read the log's own records, as far as known.

    Args:
        entries: The log's leader epochs.
        offset: The reader's position.
        origin: The epoch of the last record that was read and the first offset of this epoch, if
            known.
        end: The log end offset.
        epoch_at: Returns the leader epoch of the batch with an offset, from the log itself. This
            epoch takes precedence, because a broker with a lower epoch removes entries from the
            file.
    """
    if not entries or offset <= entries[0][1]:  # the history of earlier offsets is unknown
        return None
    epoch, since = origin or Origin(HISTORY_EPOCH - 1, offset)
    if any(known == epoch for known, _ in entries):
        common = end_offset_for(entries, epoch, end)[1]
    else:
        common = min(since, next((start for known, start in entries if known > epoch), end))
    if offset <= min(common, end):
        return None
    if offset <= end:
        actual = epoch_at(offset - 1)
        if actual == epoch or (origin is None and actual is not None and actual < HISTORY_EPOCH):
            return None
    return max(min(common, end), entries[0][1])


def truncation_error(
    key: TopicPartition, parted: int, offset: int, span: tuple[int, int]
) -> OffsetOutOfRangeError:
    """Return the error for a reader of records at [parted, offset) that the log does not have.

    The records are those at the offsets [parted, offset). `span` is the log start and the log end
    offset.
    """
    topic, partition = key
    return OffsetOutOfRangeError(
        f"offsets [{parted}, {offset}) of {topic}-{partition} were read in another history: the "
        f"log was restored to {parted} since, and contains, or will contain, other records there. "
        f"To read those, pass start={{{partition}: {parted}}}; to continue without them, "
        f"start={{{partition}: {offset}}}",
        offset=offset,
        start=span[0],
        end=span[1],
    )


class LogTruncationDetector:
    """Checks whether the records before a reader's position are still in the log.

    Results are not cached. If leader-epoch-checkpoint can't be read, a warning is logged and the
    check is skipped.
    """

    def __init__(self, view: View) -> None:
        self._view = view

    def origin(self, key: TopicPartition, offset: int) -> Origin | None:
        """Return the leader epoch to store with a position, for a later `truncated_at`.

        The result has the epoch of the record before `offset` and the epoch's first offset, or is
        None for an unknown epoch. Cost: reads a small file.
        """
        return origin_of(self._epochs(key), offset)

    def origins(self, offsets: Mapping[TopicPartition, int]) -> dict[TopicPartition, Origin]:
        """Return {partition: `origin`} for {partition: position}, without unknown origins."""
        origins = {key: self.origin(key, offset) for key, offset in offsets.items()}
        return {key: origin for key, origin in origins.items() if origin is not None}

    def truncated_at(
        self, key: TopicPartition, offset: int, origin: Origin | None, span: tuple[int, int]
    ) -> int | None:
        """Return the offset from which the log has other records than a reader has read.

        Without a difference the result is None; see `diverging_offset`. The offset is at least the
        log start.

        Args:
            key: The partition.
            offset: The reader's position.
            origin: The result of `origin` when the position was stored, if known.
            span: The log start offset and the log end offset.

        Cost:
            Reads a small file.
        """
        start, end = span
        if offset <= start:
            return None
        entries = self._epochs(key)
        at = diverging_offset(entries, offset, origin, end, lambda o: self._epoch_at(key, o))
        return None if at is None else max(at, start)

    def _epochs(self, key: TopicPartition) -> Epochs:
        try:
            return reader_of(self._view, *key).segments.leader_epochs()
        except UnknownTopicError:  # just deleted; the read itself raises the error
            return []
        except DataCorruptionError as error:
            _LOGGER.warning("%s; can't check whether another history is read", error)
            return []

    def _epoch_at(self, key: TopicPartition, offset: int) -> int | None:
        try:
            reader = reader_of(self._view, *key)
            reader.refresh()  # its open files may belong to the log before the restore
            return reader.leader_epoch_of(offset)
        except (SparklogError, StaleReadError, FileNotFoundError) as error:
            _LOGGER.debug("%s-%d at %d: %s", *key, offset, error)
            return None
