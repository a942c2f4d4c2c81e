"""Retry reads while segments move, and return the right error if that does not help."""

import contextlib
import logging
import re
import shlex
from collections.abc import Callable, Iterator
from typing import Final, TypeVar

from sparklog.clock import attempts
from sparklog.common import TopicPartition
from sparklog.errors import (
    DataCorruptionError,
    LogReplacedError,
    SparklogError,
    StorageUnavailableError,
    TopicReplacedError,
    UnknownTopicError,
)
from sparklog.log.partition_reader import PartitionReader, reader_of
from sparklog.storage.segments import StaleReadError, UndeterminedLossError
from sparklog.storage.view import View

RETRY_MS: Final = 1000
_ADVICE: Final = re.compile("`sparklog |restore|repair")
_LOGGER: Final = logging.getLogger(__name__)
T = TypeVar("T")


def stale_read_attempts() -> Iterator[int]:
    """Yield attempts for as long as segments may be moving (a roll, a cleaning, an undo)."""
    return attempts(RETRY_MS, pause_ms=5)


class StaleReadRetries:
    """Limits the retries of a read while the segments of a partition move.

    Retries end after a second in which no segment moves. If each listing shows other segments (a
    merge, a cleaning), a slow reader continues for as long as that takes.
    """

    def __init__(self) -> None:
        self._tries = stale_read_attempts()
        self._layout: tuple[tuple[int, str], ...] = ()

    def should_retry(self, view: View, topic: str, partition: int, at: int, end: int) -> bool:
        """Return whether to retry a failed read of [at, end), after the view was refreshed."""
        layout = _layout(view, topic, partition, at, end)
        if layout and layout != self._layout:
            self._layout, self._tries = layout, stale_read_attempts()
        return next(self._tries, None) is not None


def _layout(
    view: View, topic: str, partition: int, at: int, end: int
) -> tuple[tuple[int, str], ...]:
    """Return the segments of [at, end), or () if they can't be listed."""
    try:
        segments = reader_of(view, topic, partition).segments.metadata()
    except (SparklogError, FileNotFoundError):
        return ()
    return tuple(
        (segment.base, segment.where)
        for segment in segments
        if segment.base < end and (segment.end or end) > at
    )


def retry_on_stale_read(
    view: View,
    topic: str,
    partition: int,
    start: int,
    end: int,
    ask: Callable[[PartitionReader], T],
) -> T:
    """Return the result of `ask` for a partition's reader; retry for a second while segments move.

    Raises as `read_partition`, except for an offset below the log start.
    """
    topic_id, tries = view.topic_id(topic, partition), StaleReadRetries()
    while True:
        try:
            return ask(reader_of(view, topic, partition, topic_id))
        except (StaleReadError, FileNotFoundError, DataCorruptionError) as error:
            view.refresh()
            check_topic_id(view, topic, partition, topic_id)
            if not tries.should_retry(view, topic, partition, start, end):
                raise final_error(view, topic, partition, start, end, error) from error
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


def check_incarnation(view: View, incarnation: int) -> None:
    """Raise LogReplacedError if a log dir was replaced since the view had this incarnation."""
    if view.renew() != incarnation:
        raise replaced(view.home)


def replaced(home: str) -> LogReplacedError:
    """Return the error for a log that was replaced during a read."""
    return LogReplacedError(
        f"{home} was replaced during the read: the records that were read before may belong to "
        "another history than the present ones; start over"
    )


def final_error(
    view: View, topic: str, partition: int, at: int, end: int, error: Exception
) -> SparklogError:
    """Return the error for [at, end) after all retries have failed."""
    if isinstance(error, LogReplacedError):
        return error
    if isinstance(error, DataCorruptionError):
        return with_advice(error, view.home, copy=_is_copy(view, topic, partition, at))
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
        f"{error}; {_advice(view.home, copy=_is_copy(view, topic, partition, at))}",
        path=reader_of(view, topic, partition).where,
        first=at,
        end=end,
    )


def _is_copy(view: View, topic: str, partition: int, at: int) -> bool:
    """Return whether an offset is only in a log dir's remote storage.

    `sparklog verify` does not read remote storage.
    """
    if "://" in view.home:
        return False
    with contextlib.suppress(SparklogError, FileNotFoundError):
        for segment in reader_of(view, topic, partition).segments.metadata():
            if segment.base <= at and (segment.end is None or at < segment.end):
                return not segment.local
    return False


def with_advice(error: DataCorruptionError, home: str, *, copy: bool) -> DataCorruptionError:
    """Return the error with advice, unless the message contains advice already.

    `copy`: the damage is in the remote storage of a log dir.
    """
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
