"""`LogBrowser`: reads the topics and records that pages and JSON documents show.

A request reads the log up to limits of bytes, memory and time (`sparklog.ui.browse.limits`). It
also ends when its argument `stopped` returns True, because the client has disconnected.
"""

import contextlib
import logging
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Final, TypeVar

from sparklog.clock import Clock, system_clock
from sparklog.errors import InvalidRequestError, StorageUnavailableError, UnknownTopicError
from sparklog.log.log import Log, is_replaced
from sparklog.ui.browse.figures import (
    Figures,
    TopicFigures,
    partition_figures,
    reader_rows,
    spans_of,
)
from sparklog.ui.browse.limits import Budget, Limits
from sparklog.ui.browse.record_previews import RecordPreview, record_previews
from sparklog.ui.browse.record_range import (
    Query,
    RecordRange,
    UnknownRecordError,
    read_range,
)
from sparklog.ui.topic_pages import PAGE_PARTITIONS, TopicView

CHECK_MS: Final = 8000
_LOGGER: Final = logging.getLogger("sparklog.ui")
Stopped = Callable[[], bool]
Open = Callable[[Stopped], Log]
"""A function that opens a log for reading. Its argument returns True when waits must end."""
T = TypeVar("T")


class LogBrowser:
    """Reads the topics and records of a log. Thread-safe.

    Args:
        path: The path of the log as the pages show it.
        opened: Opens the log for reading.
        keeps_configs: Returns whether the log stores topic configs. A broker stores them in its
            cluster metadata, and an archive does not store them.
        clock: The clock for the ages of readers.
    """

    def __init__(
        self, path: str, opened: Open, *, keeps_configs: Callable[[], bool] = lambda: True,
        clock: Clock = system_clock,
    ) -> None:  # fmt: skip
        self.path = path
        self._keeps_configs = keeps_configs
        self._handle = _LogHandle(opened)
        self._figures = Figures(clock)
        self._clock = clock

    def topics(self, stopped: Stopped) -> list[TopicFigures]:
        """Return all topics with their statistics."""
        return self._look(stopped, lambda log, b: self._figures.topics(log, lambda: b.stopped))

    def topic(self, name: str, page: int, stopped: Stopped) -> TopicView:
        """Return a topic with the partitions of page `page`, counted from 1."""
        start = (page - 1) * PAGE_PARTITIONS
        return self._look(stopped, lambda log, budget: self._topic(log, name, start, budget))

    def records(
        self, query: Query, most_bytes: Callable[[int], int], stopped: Stopped
    ) -> tuple[RecordRange, list[RecordPreview]]:
        """Read a range of records. Return the range, and the records truncated for display.

        Args:
            query: The records to read.
            most_bytes: Returns, for a number of records, the maximum bytes of each value.
            stopped: Returns True when the read must end.
        """
        budget = Budget(query.limits, gone=stopped)
        with _open_errors():
            found = read_range(self._handle.log(lambda: budget.stopped), query, budget)
        most = most_bytes(found.rows.num_rows)
        return found, list(record_previews(found.rows, most_bytes=most))

    def record(
        self, topic: str, partition: str, offset: str, most_bytes: int, stopped: Stopped
    ) -> RecordPreview:
        """Return a single record. `partition` and `offset` are parts of the URL, not yet checked.

        Raises:
            InvalidRequestError: `partition` or `offset` is not a number.
            UnknownRecordError: The record does not exist.
            StorageUnavailableError: The record can't be read.
        """
        wanted = _number(offset)
        query = Query(
            topic=topic,
            partition=_number(partition),
            start=wanted,
            # The first read returns at least one batch, of any size; this limit prevents a second
            # read.
            limits=Limits(records=1, read_bytes=1, time_ms=CHECK_MS),
        )
        found, records = self.records(query, lambda count: most_bytes, stopped)
        if records and records[0].offset == wanted:
            return records[0]
        if found.faults:
            raise StorageUnavailableError("; ".join(found.faults))
        start, end = found.log_start, found.log_end
        is_inside = start <= wanted < end
        reason = (
            "compaction removed the record" if is_inside else f"it has offsets [{start}, {end})"
        )
        raise UnknownRecordError(
            f"{topic}-{query.partition} has no record at offset {wanted}: {reason}"
        )

    def _look(self, stopped: Stopped, job: Callable[[Log, Budget], T]) -> T:
        budget = Budget(Limits(time_ms=CHECK_MS), gone=stopped)
        with _open_errors():
            return job(self._handle.log(lambda: budget.stopped), budget)

    def _topic(self, log: Log, name: str, start: int, budget: Budget) -> TopicView:
        topic = self._figures.topic(log, name, lambda: budget.stopped)
        info = topic.info
        numbers = sorted(info.dirs)[start : start + PAGE_PARTITIONS]
        here = replace(info, dirs={p: info.dirs[p] for p in numbers})
        spans = spans_of(log, {name: here})[name]
        partitions = []
        for p in numbers:
            if budget.over:
                break
            partitions.append(partition_figures(log, info, p, spans.get(p, (0, 0))))
        return TopicView(
            figures=topic,
            partitions=partitions,
            start=start,
            readers=reader_rows(log, name),
            now_ms=self._clock(),
            has_configs=self._keeps_configs(),
        )


class _LogHandle:
    """Opens the log at the first request, and again when another log is at the same path."""

    def __init__(self, opened: Open) -> None:
        self._open = opened
        self._mutex = threading.Lock()
        self._log: Log | None = None
        self._local = threading.local()

    def log(self, stopped: Callable[[], bool]) -> Log:
        """Return the open log. `stopped` ends waits for a store in the calling thread.

        Raises the errors of `sparklog.open`.
        """
        # All threads share the log and its waits, so each thread registers its own request here.
        self._local.stopped = stopped
        with self._mutex:
            if self._log is not None and is_replaced(self._log):
                _LOGGER.info("%s was replaced: showing the new log", self._log.path)
                self._log = None  # not closed: another request may be reading it
            if self._log is None:
                self._log = self._open(self._is_stopped)
            return self._log

    def _is_stopped(self) -> bool:
        found: Callable[[], bool] | None = getattr(self._local, "stopped", None)
        return found is not None and found()


@contextlib.contextmanager
def _open_errors() -> Iterator[None]:
    """Raise StorageUnavailableError for an InvalidRequestError of the log.

    The log existed when the server started, so the client's request is not at fault.
    """
    try:
        yield
    except UnknownTopicError:
        raise
    except InvalidRequestError as error:
        raise StorageUnavailableError(str(error), path=error.path) from error


def _number(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 20):
        raise InvalidRequestError(f"{text[:100]}: partition and offset in the path must be numbers")
    return int(text)
