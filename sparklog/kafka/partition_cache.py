"""Cache of the leader epochs and last stable offsets of partitions.

Both change only with a partition's span, or when the log is replaced. A waiting consumer therefore
causes no file access, and a hundred consumers that read the same new records cause a single lookup.
"""

from dataclasses import dataclass
from typing import Final

from sparklog.common import TopicPartition
from sparklog.errors import DataCorruptionError
from sparklog.format.checkpoint_files import Epochs
from sparklog.kafka.messages import ErrorCode
from sparklog.log.partition_reader import reader_of
from sparklog.log.read_retry import last_stable_offset
from sparklog.storage.view import Offsets, View

KNOWN_MAX: Final = 20_000
"""Number of partitions at which the cache is cleared."""


@dataclass(slots=True)
class _Known:
    """Cached values of a partition.

    `stamp` is the partition's (log start offset, high watermark) and incarnation at the time of the
    look-up. The values are valid while both are unchanged.
    """

    stamp: tuple[Offsets, int]
    epochs: Epochs | None = None
    stable_offset: int | None = None


class PartitionCache:
    """Leader epochs and last stable offsets of a log's partitions. Thread-safe.

    Methods that may look values up take `span`, the current (log start offset, high watermark).
    They access files or a store if the span has changed, so they run in the pool. The `known_...`
    methods only return cached values.
    """

    def __init__(self, view: View) -> None:
        self._view = view
        self._known: dict[TopicPartition, _Known] = {}

    def known_epochs(self, key: TopicPartition, span: Offsets) -> Epochs | None:
        """Return the cached leader epochs, or None."""
        return self._entry(key, span).epochs

    def known_stable_offset(self, key: TopicPartition, span: Offsets) -> int | None:
        """Return the cached last stable offset, or None."""
        return self._entry(key, span).stable_offset

    def epochs(self, key: TopicPartition, span: Offsets, *, reload: bool = False) -> Epochs:
        """Return the leader epochs that begin below the high watermark.

        The list is empty if the file of the epochs is damaged; clients can still read.

        Cost: reads a small file.

        Raises:
            UnknownTopicError: The partition does not exist.
            PartitionOfflineError: The partition can't be read.
            StorageUnavailableError: The storage can't be read.
        """
        known = self._entry(key, span)
        if known.epochs is None or reload:
            try:
                found = reader_of(self._view, *key).segments.leader_epochs()
            except DataCorruptionError as error:
                if error.path == reader_of(self._view, *key).where:
                    raise  # the partition is offline
                found = []
            known.epochs = [entry for entry in found if entry[1] <= span[1]]
        return known.epochs

    def stable_offset(self, key: TopicPartition, span: Offsets) -> int:
        """Return the last stable offset. Raises and costs the same as `last_stable_offset`."""
        known = self._entry(key, span)
        if known.stable_offset is None:
            known.stable_offset = max(span[0], last_stable_offset(self._view, *key, span[1]))
        return known.stable_offset

    def epoch_error(self, key: TopicPartition, span: Offsets, asked: int) -> ErrorCode | None:
        """Return the error code for a wrong leader epoch, or None for the current epoch.

        `asked`: the epoch that the client considers current, -1 if the client sent none. Source:
        Partition.checkCurrentLeaderEpoch.
        """
        if asked < 0 or asked == newest(self.epochs(key, span)):
            return None
        now = newest(self.epochs(key, span, reload=True))  # a new epoch may just have started
        if asked == now:
            return None
        return ErrorCode.fenced_leader_epoch if asked < now else ErrorCode.unknown_leader_epoch

    def _entry(self, key: TopicPartition, span: Offsets) -> _Known:
        stamp = span, self._view.incarnation
        known = self._known.get(key)
        if known is None or known.stamp != stamp:
            if known is None and len(self._known) >= KNOWN_MAX:
                self._known.clear()  # most likely most of these topics were deleted
            known = self._known[key] = _Known(stamp)
        return known


def newest(epochs: Epochs) -> int:
    """Return the current leader epoch, 0 if unknown."""
    return epochs[-1][0] if epochs else 0


def epoch_at(epochs: Epochs, offset: int) -> int:
    """Return the leader epoch of an offset, -1 if unknown."""
    return next((epoch for epoch, start in reversed(epochs) if start <= offset), -1)
