"""Offsets of a consumer group while a member of the group reads a topic."""

import logging
import socket
from collections.abc import Sequence
from typing import Final

from sparklog.clock import Clock
from sparklog.common import TopicPartition
from sparklog.errors import LogLockedError, OffsetOutOfRangeError, StorageUnavailableError
from sparklog.log.positions import EARLIEST, LATEST, Position, Spans
from sparklog.log.truncation_detection import LogTruncationDetector, truncation_error
from sparklog.storage.group_store import Groups, check_kept
from sparklog.storage.groups import Committed, check_group

COMMIT_INTERVAL_MS: Final = 1000
"""Kafka's auto.commit.interval.ms is 5 s. Commits are cheaper here, and fewer records repeat."""

_LOGGER: Final = logging.getLogger(__name__)


class GroupProgress:
    """Commits the offsets of a consumer group while a member reads a topic. Not thread-safe."""

    def __init__(
        self,
        groups: Groups,
        clock: Clock,
        group: str,
        topic: str,
        truncation: LogTruncationDetector,
        *,
        home: str,
    ) -> None:
        check_group(group)
        self._home = home
        self._groups, self._clock = groups, clock
        self._truncation = truncation
        self._group, self._topic = group, topic
        self._taken: dict[int, int] = {}
        self._due_ms = 0

    def resume(self, partitions: Sequence[int], start: Position, spans: Spans) -> Position:
        """Return the position at which the group starts to read.

        For "earliest" and "latest", that is the committed offset of each partition, else `start`. A
        `start` with offsets or a time is a seek, and is returned unchanged. `spans` has the log
        start and the high watermark of each partition.

        Raises:
            OffsetOutOfRangeError: The log no longer contains a committed offset, or was restored
                and has other records there.
        """
        markers = {"earliest": EARLIEST, "latest": LATEST}
        if not isinstance(start, str) or start not in markers:
            return start
        committed = self._groups.positions(self._group)
        known = {p: committed.get(TopicPartition(self._topic, p)) for p in partitions}
        positions = {p: markers[start] if at is None else at.offset for p, at in known.items()}
        for p, offset in positions.items():
            low, high = spans[TopicPartition(self._topic, p)]
            at = known[p]
            if at is None:
                continue
            if not low <= offset <= high:
                raise OffsetOutOfRangeError(
                    f"group {self._group} has read {self._topic}-{p} up to {offset}, but the "
                    f"partition now has offsets [{low}, {high}): to continue without the missing "
                    f"records, pass start={{{p}: -2}} (earliest), -1 (latest) or an offset",
                    offset=offset,
                    start=low,
                    end=high,
                )
            self._check_history(p, at, (low, high))
        return positions

    def _check_history(self, partition: int, at: Committed, span: tuple[int, int]) -> None:
        key = TopicPartition(self._topic, partition)
        diverging = self._truncation.truncated_at(key, at.offset, at.origin, span)
        if diverging is not None:
            raise truncation_error(key, diverging, at.offset, span)

    def begin(self, first: dict[int, int]) -> None:
        """Register the start offsets {partition: offset}.

        Raises:
            StorageUnavailableError: The offsets can't be stored.
            InvalidRequestError: The log stores no offsets, such as a broker's directory.
        """
        check_kept(self._groups, self._home, "; read without a group: pass start")
        self._taken = dict(first)
        self._commit()

    def taken(self, partition: int, offset: int) -> None:
        """Record that all records of a partition before `offset` were consumed.

        The offset is committed within COMMIT_INTERVAL_MS.
        """
        self._taken[partition] = offset
        if self._clock() >= self._due_ms:
            self.flush()

    def flush(self) -> None:
        """Commit the recorded offsets.

        A failure is a warning, because older offsets lose no records.
        """
        if not self._taken:
            return
        try:
            self._commit()
        except (LogLockedError, StorageUnavailableError) as error:
            # `_taken` stays, so the next flush commits these offsets, but not at each record.
            self._due_ms = self._clock() + COMMIT_INTERVAL_MS
            _LOGGER.warning("%s; the commit is tried again later", error)

    def _commit(self) -> None:
        now = self._clock()
        offsets = {TopicPartition(self._topic, p): offset for p, offset in self._taken.items()}
        origins = self._truncation.origins(offsets)
        self._groups.commit(
            self._group, offsets, now_ms=now, host=socket.gethostname(), origins=origins
        )
        self._taken = {}
        self._due_ms = now + COMMIT_INTERVAL_MS
