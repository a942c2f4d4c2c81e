"""Damaged partitions, which the rounds skip (Kafka: uncleanable partitions)."""

import contextlib
import logging
from collections.abc import Iterable
from typing import Final

from sparklog.common import TopicPartition
from sparklog.errors import (
    DataCorruptionError,
    InvalidRequestError,
    SparklogError,
    UnknownTopicError,
)
from sparklog.logdir.commit_log import LogDirCommits
from sparklog.storage.lease import LeaseLostError
from sparklog.storage.round_report import Report

_LOGGER: Final = logging.getLogger("sparklog.service")


class QuarantinedPartitions:
    """The partitions of a log that the rounds skip until the service restarts."""

    def __init__(self, commits: LogDirCommits) -> None:
        self._commits = commits
        self._quarantined: dict[TopicPartition, tuple[str, str]] = {}  # -> (topic id, reason)

    def __contains__(self, key: TopicPartition) -> bool:
        return key in self._quarantined

    @property
    def reasons(self) -> dict[TopicPartition, str]:
        """{(topic, partition): reason}"""
        return {key: why for key, (_, why) in list(self._quarantined.items())}

    def release_replaced_topics(self) -> None:
        """Release partitions of deleted topics; a new topic of the same name is another topic."""
        if not self._quarantined:
            return
        with self._commits.exclusive():
            ids = {name: topic.id for name, topic in self._commits.state.topics.items()}
        for key, (topic_id, _) in list(self._quarantined.items()):  # other threads may add keys
            if ids.get(key.topic) != topic_id:
                self._quarantined.pop(key, None)

    def catching(self, report: Report, *keys: TopicPartition) -> "_Catching":
        """Return a context manager that reports an error, so that the round continues."""
        return _Catching(self, report, keys)

    def record(
        self, error: SparklogError | OSError, report: Report, keys: tuple[TopicPartition, ...]
    ) -> None:
        """Report an error; skip damaged partitions from now on."""
        names = ", ".join(f"{t}-{p}" for t, p in keys[:3])
        gone = isinstance(error, UnknownTopicError) or (
            isinstance(error, FileNotFoundError) and all(map(self._is_gone, keys))
        )
        if gone:  # the topic was deleted; a new topic may get its name
            _LOGGER.info("%s: %s", names, error)
            return
        report.errors.append(f"{names}: {error}")
        _LOGGER.error("%s: %s", names, error)
        if isinstance(error, DataCorruptionError | InvalidRequestError):
            self._quarantine(keys, str(error))

    def _quarantine(self, keys: Iterable[TopicPartition], why: str) -> None:
        """Skip partitions until the service restarts, as Kafka does with uncleanable partitions."""
        topics = self._commits.state.topics
        self._quarantined |= {
            key: (topics[key.topic].id, why) for key in keys if key.topic in topics
        }

    def _is_gone(self, key: TopicPartition) -> bool:
        """Return True if a partition was deleted. Takes the write lock briefly."""
        with contextlib.suppress(SparklogError), self._commits.exclusive():
            return key not in self._commits.state.ends
        return False


class _Catching:
    def __init__(
        self, quarantined: QuarantinedPartitions, report: Report, keys: tuple[TopicPartition, ...]
    ) -> None:
        self._quarantined, self._report, self._keys = quarantined, report, keys

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> bool:
        if not isinstance(error, SparklogError | OSError) or isinstance(error, LeaseLostError):
            return False
        self._quarantined.record(error, self._report, self._keys)
        return True
