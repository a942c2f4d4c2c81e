"""waitForTopics: a streaming query waits for a log and topics that do not exist yet."""

import logging
from typing import Final

from sparklog.clock import Clock
from sparklog.errors import UnknownTopicError
from sparklog.opening import UnfinishedLogError
from sparklog.source.metadata_snapshot import LogMetadata, MetadataSnapshot
from sparklog.source.options import SourceOptions

LOOK_MS: Final = 1000
_LOGGER: Final = logging.getLogger("sparklog.source")


class TopicWait:
    """The wait of a streaming query. Looks for the topics at most once per LOOK_MS."""

    def __init__(self, options: SourceOptions, clock: Clock) -> None:
        self._options, self._clock = options, clock
        self._due_ms = 0
        self._is_reported = False

    def look(self, held: LogMetadata | None) -> tuple[LogMetadata, MetadataSnapshot] | None:
        """Return the log and a snapshot of the selected topics, once no topic is missing.

        Args:
            held: The log, if it is open. Otherwise the log is opened again at each call, because a
                path can become a log of another kind.
        """
        now_ms = self._clock()
        if now_ms < self._due_ms:
            return None
        try:
            log = held or LogMetadata(self._options)
            snapshot = log.snapshot()
            if snapshot.ranges:
                return log, snapshot
            missing = f"no topic matches {self._options.subscribe_pattern}"
        except (UnknownTopicError, UnfinishedLogError) as error:
            missing = str(error).partition(". Check")[0]
        self._due_ms = now_ms + LOOK_MS
        if not self._is_reported:
            self._is_reported = True
            _LOGGER.warning("the query waits, because option waitForTopics is set: %s", missing)
        return None
