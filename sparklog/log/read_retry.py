"""Retry reads while segments move, and choose the error to raise if the retries fail.

`PartitionRead` describes the request of any read: of Arrow batches (`arrow_reads`) and of undecoded
batches (`raw_batches`).
"""

import contextlib
import logging
import re
import shlex
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple, TypeVar

from sparklog.clock import attempts
from sparklog.common import TopicPartition
from sparklog.errors import (
    DataCorruptionError,
    LogReplacedError,
    OffsetOutOfRangeError,
    SparklogError,
    StorageUnavailableError,
    TopicReplacedError,
    UnknownTopicError,
)
from sparklog.log.partition_reader import PartitionReader, reader_of
from sparklog.storage.segments import StaleReadError, UndeterminedLossError
from sparklog.storage.view import View

RETRY_MS: Final = 1000
STALE_READ_ERRORS: Final = (
    StaleReadError, FileNotFoundError, UnknownTopicError, DataCorruptionError,
)  # fmt: skip
"""Errors of a read whose segments may only have moved: see `PartitionRead.prepare_retry`."""
_ADVICE: Final = re.compile("`sparklog |restore|repair")
_LOGGER: Final = logging.getLogger(__name__)
T = TypeVar("T")


def stale_read_attempts() -> Iterator[int]:
    """Yield the number of each attempt of a read, for a second.

    Within that time, a roll, a cleaning or an undo that moves segments should be over.
    """
    return attempts(RETRY_MS, pause_ms=5)


class StaleReadRetries:
    """Limits the retries of a read while the segments of a partition move.

    Retries end after a second in which no segment moves. If each listing shows other segments (a
    merge, a cleaning), a slow reader continues for as long as that takes.
    """

    def __init__(self) -> None:
        self._tries = stale_read_attempts()
        self._layout: tuple[tuple[int, str], ...] = ()

    def should_retry(self, read: "PartitionRead") -> bool:
        """Return whether to retry a failed read, after the view was refreshed."""
        layout = read.layout()
        if layout and layout != self._layout:
            self._layout, self._tries = layout, stale_read_attempts()
        return next(self._tries, None) is not None


class PartitionRead(NamedTuple):
    """The offsets [start, end) of a partition to read, and the log in which they were planned.

    Attributes:
        view: The view of the log.
        topic: The topic.
        partition: The partition.
        start: The first offset to read.
        end: At or below the high watermark when the read was planned.
        isolation: "read_uncommitted" or "read_committed".
        topic_id: The topic id when the read was planned, or None for the topic of an old broker.
        incarnation: The view's incarnation when the read was planned. None: see `begun`.
    """

    view: View
    topic: str
    partition: int
    start: int
    end: int
    isolation: str = "read_uncommitted"
    topic_id: str | None = None
    incarnation: int | None = None

    def begun(self) -> "PartitionRead":
        """Return the read with the present incarnation and topic id, as far as they are not set."""
        if self.topic_id and self.incarnation is not None:
            return self
        incarnation = self.view.renew() if self.incarnation is None else self.incarnation
        topic_id = self.topic_id or self.view.topic_id(self.topic, self.partition)
        return self._replace(topic_id=topic_id, incarnation=incarnation)

    def reader(self) -> PartitionReader:
        """Return the partition's reader.

        Raises:
            UnknownTopicError: The topic or partition does not exist.
            PartitionOfflineError: The partition is offline.
        """
        return reader_of(self.view, self.topic, self.partition, self.topic_id)

    def check(self) -> None:
        """Raise an error unless the records that were just read belong to the planned log.

        Raises:
            LogReplacedError: Another log is at the same path.
            TopicReplacedError: The topic was re-created.
            UnknownTopicError: The topic was deleted.
        """
        if self.view.renew() != self.incarnation:
            raise replaced(self.view.home)
        check_topic_id(self.view, self.topic, self.partition, self.topic_id)

    def prepare_retry(self, error: Exception, retries: StaleReadRetries) -> None:
        """List the segments again after a read failed with one of STALE_READ_ERRORS.

        A roll, a cleaning or an undo may have moved files, and then the read can be retried.

        Raises:
            LogReplacedError: Another log is at the same path.
            UnknownTopicError: The topic was deleted.
            TopicReplacedError: The topic was re-created.
            OffsetOutOfRangeError: The records were deleted.
            SparklogError: The retries have ended: the result of `final_error`.
        """
        view, topic, partition = self.view, self.topic, self.partition
        if view.renew() != self.incarnation:
            raise replaced(view.home)
        view.refresh()
        # Before the offsets: a re-created topic has other offsets, and the error must name it.
        check_topic_id(view, topic, partition, self.topic_id)
        key = TopicPartition(topic, partition)
        start, mark = view.spans([key])[key]
        if self.start < start:
            raise OffsetOutOfRangeError(
                f"{topic}-{partition}: offsets [{self.start}, {min(start, self.end)}) were "
                f"deleted, the log starts at {start} now; start again at 'earliest'",
                offset=self.start,
                start=start,
                end=mark,
            ) from error
        if not retries.should_retry(self):
            raise final_error(self, error) from error
        _LOGGER.debug("%s-%d at %d: %s; reading again", topic, partition, self.start, error)
        reader_of(view, topic, partition).refresh()

    def layout(self) -> tuple[tuple[int, str], ...]:
        """Return (base offset, location) of the segments with the offsets of the read.

        Returns () if they can't be listed. Another result means that segments have moved.
        """
        try:
            segments = reader_of(self.view, self.topic, self.partition).segments.metadata()
        except (SparklogError, FileNotFoundError):
            return ()
        return tuple(
            (segment.base, segment.where)
            for segment in segments
            if segment.base < self.end and (segment.end or self.end) > self.start
        )


def retry_on_stale_read(
    view: View,
    topic: str,
    partition: int,
    start: int,
    end: int,
    ask: Callable[[PartitionReader], T],
) -> T:
    """Return `ask(reader)` for a partition's reader; retry for a second while segments move.

    `start` and `end` are the offsets of the read. The errors are those of `read_partition`, except
    for an offset below the log start.
    """
    topic_id, retries = view.topic_id(topic, partition), StaleReadRetries()
    read = PartitionRead(view, topic, partition, start, end, topic_id=topic_id)
    while True:
        try:
            return ask(read.reader())
        except (StaleReadError, FileNotFoundError, DataCorruptionError) as error:
            view.refresh()
            check_topic_id(view, topic, partition, topic_id)
            if not retries.should_retry(read):
                raise final_error(read, error) from error
            _LOGGER.debug("%s-%d: %s; requesting again", topic, partition, error)
            reader_of(view, topic, partition).refresh()


def check_topic_id(view: View, topic: str, partition: int, topic_id: str | None) -> None:
    """Raise UnknownTopicError or TopicReplacedError unless the topic has the planned id."""
    now = view.topic_id(topic, partition)
    if topic_id is None:  # old brokers assign no topic id; newer brokers add it later
        return
    if now is None:
        raise UnknownTopicError(f"{topic}-{partition} was deleted during the read")
    if now != topic_id:
        raise TopicReplacedError(
            f"{topic}-{partition} was deleted and created again during the read (topic id "
            f"{topic_id}, now {now}): the planned offsets no longer exist; start over"
        )


def last_stable_offset(view: View, topic: str, partition: int, end: int) -> int:
    """Return the first offset of the oldest transaction that is open at `end`, or `end`.

    Readers with read_committed may read below it. Retries while segments move, as
    `retry_on_stale_read`.
    """
    return retry_on_stale_read(
        view, topic, partition, 0, end, lambda reader: reader.last_stable_offset(end)
    )


def replaced(home: str) -> LogReplacedError:
    """Return the error for a log that was replaced during a read."""
    return LogReplacedError(
        f"{home} was replaced during the read: the records that were read before may belong to "
        "another history than the present ones; start over"
    )


def final_error(read: PartitionRead, error: Exception) -> SparklogError:
    """Return the error for the offsets of `read` after all retries have failed."""
    view, topic, partition, at, end = read[:5]
    if isinstance(error, LogReplacedError):
        return error
    if isinstance(error, DataCorruptionError):
        return with_advice(error, view.home, copy=_is_copy(read))
    if any(isinstance(link, UndeterminedLossError) for link in (error, error.__cause__)):
        return StorageUnavailableError(
            f"{topic}-{partition}: offsets [{at}, {end}) can't be read: {error}"
        )
    key = TopicPartition(topic, partition)
    mark = view.spans([key])[key][1]
    if end > mark:  # `end` was below the watermark before, which only a restored log lowers
        return LogReplacedError(
            f"{topic}-{partition}: offsets [{at}, {end}) can't be read, the partition ends at "
            f"{mark} now: {view.home} was replaced by an earlier state since they were planned; "
            "start over"
        )
    return DataCorruptionError(
        f"{error}; {_advice(view.home, copy=_is_copy(read))}",
        path=reader_of(view, topic, partition).where,
        first=at,
        end=end,
    )


def _is_copy(read: PartitionRead) -> bool:
    """Return True if the first offset of a read is only in a log dir's remote storage.

    The advice in errors is different there, because `sparklog verify` does not read remote storage.
    """
    view, topic, partition, at = read[:4]
    # The segments of a bucket are not local either, but `sparklog verify` reads them.
    if "://" in view.home:
        return False
    with contextlib.suppress(SparklogError, FileNotFoundError):
        for segment in reader_of(view, topic, partition).segments.metadata():
            if segment.base <= at and (segment.end is None or at < segment.end):
                return not segment.local
    return False


def with_advice(error: DataCorruptionError, home: str, *, copy: bool) -> DataCorruptionError:
    """Return the error with advice, unless the message contains advice already.

    `copy` means that the damage is in the remote storage of a log dir.
    """
    # Subclasses, such as PartitionOfflineError, give advice of their own.
    if type(error) is not DataCorruptionError or _ADVICE.search(error.reason):
        return error
    return DataCorruptionError(
        f"{error.reason}; {_advice(home, copy=copy)}",
        path=error.path, position=error.position, first=error.first, end=error.end,
    )  # fmt: skip


def _advice(home: str, *, copy: bool) -> str:
    place = shlex.quote(home)
    if copy:
        return (
            f"`sparklog tier verify {place} --deep` reports all damaged copies; restore the object "
            "from a copy of the bucket"
        )
    return (
        f"`sparklog verify {place}` reports all damage, `sparklog verify {place} --repair` repairs "
        "what it can; restore the rest from a copy"
    )
