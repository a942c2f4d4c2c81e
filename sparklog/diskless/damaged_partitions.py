"""Partitions that background work leaves alone until the service starts again (Kafka: uncleanable).

Another topic of the same name is another matter.
"""

import logging
from typing import Final

from sparklog.common import TopicPartition
from sparklog.storage.round_report import Report

_LOGGER: Final = logging.getLogger("sparklog.service")


class DamagedPartitions:
    """The partitions of one log whose bytes are not what the ledger says. Threads may share it."""

    def __init__(self) -> None:
        self._known: dict[TopicPartition, tuple[str, str]] = {}  # partition: (topic id, why)

    def __contains__(self, which: tuple[TopicPartition, str]) -> bool:
        """Whether a partition of the topic with this id is."""
        known = self._known.get(which[0])
        return known is not None and known[0] == which[1]

    @property
    def reasons(self) -> dict[TopicPartition, str]:
        """{partition: why}"""
        return {key: why for key, (_, why) in list(self._known.items())}

    def note(self, key: TopicPartition, topic_id: str, error: Exception, report: Report) -> None:
        """Leave a partition alone from now on; the error goes into the report."""
        self._known[key] = topic_id, str(error)
        report.errors.append(f"{key}: {error}")
        _LOGGER.error("%s: %s", key, error)
