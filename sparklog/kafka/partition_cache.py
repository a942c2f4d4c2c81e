"""What was found out about partitions, as long as it holds: leader epochs, last stable offsets.

Both change only with a partition's span, or with the whole log. So a consumer that waits asks for
no file, and a hundred of them that read the same news look once.
"""

from dataclasses import dataclass
from typing import Final

from sparklog.common import TopicPartition
from sparklog.errors import DataCorruptionError
from sparklog.format.checkpoint_files import Epochs
from sparklog.kafka.messages import ErrorCode
from sparklog.log.last_stable_offset import last_stable_offset
from sparklog.log.partition_reader import reader_of
from sparklog.storage.view import Offsets, View

KNOWN_MAX: Final = 20_000
"""Partitions at which all is forgotten, and looked up again when it is asked for."""


@dataclass(slots=True)
class _Known:
    """What is known of a partition that was in this state. `stamp`: span and incarnation."""

    stamp: tuple[Offsets, int]
    epochs: Epochs | None = None
    stable_offset: int | None = None


class PartitionCache:
    """Leader epochs and last stable offsets of a log's partitions. Threads share it.

    Methods that look take `span`, (log start offset, high watermark), as it is now. They touch
    files or a store where that is news, so they run in the pool; `known_...` ask for nothing.
    """

    def __init__(self, view: View) -> None:
        self._view = view
        self._known: dict[TopicPartition, _Known] = {}

    def known_epochs(self, key: TopicPartition, span: Offsets) -> Epochs | None:
        """Return the leader epochs, None if they aren't known by now."""
        return self._entry(key, span).epochs

    def known_stable_offset(self, key: TopicPartition, span: Offsets) -> int | None:
        """Return the last stable offset, None if it isn't known by now."""
        return self._entry(key, span).stable_offset

    def epochs(self, key: TopicPartition, span: Offsets, *, reload: bool = False) -> Epochs:
        """Return the leader epochs that began below the high watermark.

        None where their file is damaged: clients then read on without. Raises: UnknownTopicError,
        PartitionOfflineError, StorageUnavailableError. Cost: one small file.
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
        """Return the last stable offset. Raises and costs what `last_stable_offset` does."""
        known = self._entry(key, span)
        if known.stable_offset is None:
            known.stable_offset = max(span[0], last_stable_offset(self._view, *key, span[1]))
        return known.stable_offset

    def epoch_error(self, key: TopicPartition, span: Offsets, asked: int) -> ErrorCode | None:
        """Return what is wrong with the leader epoch that a client takes for the current one.

        `asked`: -1 if it says none. Source: Partition.checkCurrentLeaderEpoch.
        """
        if asked < 0 or asked == newest(self.epochs(key, span)):
            return None
        now = newest(self.epochs(key, span, reload=True))  # a history may just have begun
        if asked == now:
            return None
        return ErrorCode.fenced_leader_epoch if asked < now else ErrorCode.unknown_leader_epoch

    def _entry(self, key: TopicPartition, span: Offsets) -> _Known:
        stamp = span, self._view.incarnation
        known = self._known.get(key)
        if known is None or known.stamp != stamp:
            if known is None and len(self._known) >= KNOWN_MAX:
                self._known.clear()  # topics that are gone, most likely
            known = self._known[key] = _Known(stamp)
        return known


def newest(epochs: Epochs) -> int:
    """Return the leader epoch that clients are told of: 0 where none is known."""
    return epochs[-1][0] if epochs else 0


def epoch_at(epochs: Epochs, offset: int) -> int:
    """Return the leader epoch of an offset; -1 where nobody knows."""
    return next((epoch for epoch, start in reversed(epochs) if start <= offset), -1)
