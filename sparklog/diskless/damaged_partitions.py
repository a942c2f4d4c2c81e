"""Partitions that background work skips until the service starts again (Kafka: uncleanable).

A re-created topic of the same name is not skipped.
"""

import logging
from typing import Final

from sparklog.common import TopicPartition
from sparklog.storage.round_report import Report

_LOGGER: Final = logging.getLogger("sparklog.service")


class DamagedPartitions:
    """Partitions with data that contradict the ledger. Thread-safe."""

    def __init__(self) -> None:
        self._known: dict[TopicPartition, tuple[str, str]] = {}  # partition: (topic id, reason)

    def __contains__(self, which: tuple[TopicPartition, str]) -> bool:
        """Return True for (partition, topic id) of a skipped partition."""
        known = self._known.get(which[0])
        return known is not None and known[0] == which[1]

    @property
    def reasons(self) -> dict[TopicPartition, str]:
        """{partition: reason}."""
        return {key: why for key, (_, why) in list(self._known.items())}

    def note(self, key: TopicPartition, topic_id: str, error: Exception, report: Report) -> None:
        """Skip a partition from now on, and report the error."""
        self._known[key] = topic_id, str(error)
        report.errors.append(f"{key}: {error}")
        _LOGGER.error("%s: %s", key, error)
