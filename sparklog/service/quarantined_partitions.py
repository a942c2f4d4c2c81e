"""What fails within a round, partition by partition, and which ones are left alone for it."""

import contextlib
import logging
from collections.abc import Iterable
from typing import Final

from sparklog.errors import (
    DataCorruptionError,
    InvalidRequestError,
    SparklogError,
    UnknownTopicError,
)
from sparklog.logdir.retention.deletion import Key
from sparklog.logdir.session import Session
from sparklog.service.report import Report
from sparklog.storage.lease import LeaseLostError

_LOGGER: Final = logging.getLogger("sparklog.service")


class Failing:
    """The partitions of one log that a round can do nothing for, while its service runs."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._given_up: dict[Key, tuple[str, str]] = {}  # partition: (topic id, why)

    def __contains__(self, key: Key) -> bool:
        return key in self._given_up

    @property
    def reasons(self) -> dict[Key, str]:
        """{(topic, partition): why}"""
        return {key: why for key, (_, why) in list(self._given_up.items())}

    def forgive_new_topics(self) -> None:
        """A topic that was made again has nothing but its name of the one that was given up."""
        if not self._given_up:
            return
        with self._session.locked():
            ids = {name: topic.id for name, topic in self._session.state.topics.items()}
        for key, (topic_id, _) in list(self._given_up.items()):  # retention may add meanwhile
            if ids.get(key[0]) != topic_id:
                self._given_up.pop(key, None)

    def noting(self, report: Report, *keys: Key) -> "_Noting":
        """A block that takes down what fails in it, so that the round goes on behind it."""
        return _Noting(self, report, keys)

    def note(self, error: SparklogError | OSError, report: Report, keys: tuple[Key, ...]) -> None:
        """Take down an error; partitions that are damaged are left alone from now on."""
        names = ", ".join(f"{t}-{p}" for t, p in keys[:3])
        gone = isinstance(error, UnknownTopicError) or (
            isinstance(error, FileNotFoundError) and all(map(self._is_gone, keys))
        )
        if gone:  # deleted meanwhile; another may get its name
            _LOGGER.info("%s: %s", names, error)
            return
        report.errors.append(f"{names}: {error}")
        _LOGGER.error("%s: %s", names, error)
        if isinstance(error, DataCorruptionError | InvalidRequestError):
            self._give_up(keys, str(error))

    def _give_up(self, keys: Iterable[Key], why: str) -> None:
        """As Kafka marks partitions uncleanable; another look comes with the next start."""
        topics = self._session.state.topics
        self._given_up |= {key: (topics[key[0]].id, why) for key in keys if key[0] in topics}

    def _is_gone(self, key: Key) -> bool:
        """Tell whether a partition was deleted. Takes the write lock for a moment."""
        with contextlib.suppress(SparklogError), self._session.locked():
            return key not in self._session.state.ends
        return False


class _Noting:
    def __init__(self, failing: Failing, report: Report, keys: tuple[Key, ...]) -> None:
        self._failing, self._report, self._keys = failing, report, keys

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> bool:
        if not isinstance(error, SparklogError | OSError) or isinstance(error, LeaseLostError):
            return False
        self._failing.note(error, self._report, self._keys)
        return True
