"""How a log dir was left (open, closed, by sparklog or a broker), and the invariants in each case.

| situation | source of the log ends | data past the log end |
|--|--|--|
| open: a session has locked it | watermarks, then the ledger | being written, not checked |
| crashed: marked open, no session | the ledger | a step that the next open undoes |
| closed by sparklog, unchanged since | the ledger | not allowed |
| a broker's: other clean mark, or none | its checkpoints and logs | written by the broker |
"""

import contextlib
import enum
import os
from dataclasses import dataclass, field, replace
from typing import Final, Self

from sparklog.common import TopicPartition
from sparklog.config import TopicConfig
from sparklog.errors import InvalidRequestError, StorageUnavailableError
from sparklog.format.names import parse_partition_dir
from sparklog.fs import FileSystem
from sparklog.logdir.broker_lockout import (
    KAFKA_LOCK_NAME,
    is_marked_open,
    was_clean,
    was_closed_by_us,
)
from sparklog.logdir.detection import has_lost_ledger
from sparklog.logdir.ledger import has_ledger
from sparklog.logdir.lock import LOCK_NAME
from sparklog.logdir.log_dirs import LogDirs, find_dirs
from sparklog.logdir.recovery.partition_recovery import CommittedState
from sparklog.logdir.topics_file import deleted_path
from sparklog.storage.committed_appends import Appends, AppendsById
from sparklog.storage.log_state import LogState

Offsets = dict[TopicPartition, int]
NO_LIMIT: Final = 2**63 - 1
_SESSION: Final = 1  # the byte of sparklog.lock that all sessions lock, shared


class Situation(enum.StrEnum):
    """How a log dir was left: open, or closed by which program.

    The description of the module says what each situation allows. BROKER: a broker stopped cleanly;
    ABANDONED: a broker stopped uncleanly.
    """

    OPEN = "open"
    CRASHED = "left by a crash"
    CLOSED = "closed"
    BROKER = "a broker's, stopped"
    ABANDONED = "a broker's, not stopped cleanly"
    RUNNING = "a running broker's"

    @property
    def is_ours(self) -> bool:
        """Whether the ledger determines where the logs end."""
        return self in (Situation.OPEN, Situation.CRASHED, Situation.CLOSED)

    @property
    def is_live(self) -> bool:
        """Whether files may change while they are read."""
        return self in (Situation.OPEN, Situation.RUNNING)

    @property
    def is_clean(self) -> bool:
        """Whether the last writer closed the log."""
        return self in (Situation.CLOSED, Situation.BROKER)


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpectedPartition(CommittedState):
    """A partition, and the expected state according to other files.

    Attributes:
        end: Where the log must end. For a broker's partition, the lowest allowed end.
        gaps_below: Offsets below may be missing because of compaction.
        config: The config, or None for a broker's topic with unknown config.
        interval_bytes: The topic's index.interval.bytes, or None in the same case.
    """

    topic: str
    partition: int
    path: str
    situation: Situation
    gaps_below: int = 0
    config: TopicConfig | None = None
    interval_bytes: int | None = None
    exact: bool = True  # written by sparklog alone: indexes equal rebuilt indexes

    @property
    def key(self) -> TopicPartition:
        """(topic, partition)."""
        return TopicPartition(self.topic, self.partition)

    def in_state(self, state: LogState) -> "ExpectedPartition":
        """Return the partition with the offsets of a newer state of the ledger."""
        return replace(
            self,
            start=state.starts.get(self.key, 0),
            local_start=state.local_start(*self.key),
            end=state.ends[self.key],
        )


@dataclass(slots=True)
class LogDirState:
    """A log dir according to its ledger, if any (`state`), and its listing."""

    directories: list[str]
    situation: Situation
    dirs: LogDirs
    found: dict[TopicPartition, int] = field(default_factory=dict)  # number of the log dir
    state: LogState | None = None
    ledger_end: int = 0
    intervals: dict[str, int] = field(default_factory=dict)  # largest index.interval.bytes so far
    appends: AppendsById = field(default_factory=dict)

    @classmethod
    def read(cls, fs: FileSystem, directories: list[str]) -> Self:
        """Return the log dirs and their partitions as they are now, without the ledger's state.

        Takes a lock briefly if a lock file exists. Does not write.

        Raises:
            InvalidRequestError: A directory does not exist, or is not a log dir of this log.
        """
        dirs = find_dirs(fs, directories)
        return cls(directories, _situation(fs, dirs), dirs, _partitions(fs, dirs))

    @property
    def home(self) -> str:
        """The first log dir."""
        return self.directories[0]

    def path(self, key: TopicPartition) -> str:
        """Return a partition's directory."""
        number = self.found.get(key)
        if number is None:
            number = 0 if self.state is None else self.state.topics[key.topic].dirs[key.partition]
        return os.path.join(self.dirs.place(number), str(key))

    def deleted_paths(self) -> dict[str, str]:
        """Return {directory: topic} of the deleted topics that can be undeleted."""
        if self.state is None:
            return {}
        return {
            deleted_path(self.directories, one.name, one.topic, p): one.name
            for one in self.state.deleted.values()
            for p, number in one.topic.dirs.items()
            if number < len(self.directories)
        }

    def appends_by_partition(self) -> dict[TopicPartition, Appends]:
        """Return the recorded appends to each partition, as far as the ledger reaches back."""
        topics = {} if self.state is None or not self.situation.is_ours else self.state.topics
        return {
            TopicPartition(name, p): self.appends[topic.id, p]
            for name, topic in topics.items()
            for p in topic.dirs
            if (topic.id, p) in self.appends
        }

    def why_absent(self, key: TopicPartition) -> str | None:
        """Return why the log dir of a partition can't be used, or None if it can be used."""
        if self.state is None or key.topic not in self.state.topics:
            return None
        number = self.state.topics[key.topic].dirs[key.partition]
        return self.dirs.why_absent(number)

    @property
    def numbered(self) -> list[tuple[int, str]]:
        """The available log dirs that belong to the log, with their numbers."""
        own = self.dirs.own
        return [pair for pair in self.dirs.numbered if pair[1] in own]


def _situation(fs: FileSystem, dirs: LogDirs) -> Situation:
    """Return how the log was left."""
    home, directories = dirs.directories[0], dirs.own
    if is_marked_open(fs, home):
        held = _is_held(fs, os.path.join(home, LOCK_NAME), first=_SESSION, length=1)
        return Situation.OPEN if held else Situation.CRASHED
    held = has_ledger(fs, home) or has_lost_ledger(fs, home)
    if held and was_closed_by_us(fs, directories):
        return Situation.CLOSED
    if any(_is_held(fs, os.path.join(d, KAFKA_LOCK_NAME), first=0, length=0) for d in directories):
        return Situation.RUNNING
    return Situation.BROKER if was_clean(fs, directories) else Situation.ABANDONED


def _is_held(fs: FileSystem, path: str, *, first: int, length: int) -> bool:
    try:
        file = fs.open_lock(path, create=False)
    except FileNotFoundError:
        return False
    except StorageUnavailableError:  # no write permission; verifying needs none
        return first == _SESSION
    with contextlib.closing(file):
        # Sessions have a shared lock, a broker an exclusive lock.
        return not file.try_lock(first, length, exclusive=first == _SESSION)


def _partitions(fs: FileSystem, dirs: LogDirs) -> dict[TopicPartition, int]:
    """Return {(topic, partition): number of its log dir}; the first of duplicates."""
    found: dict[TopicPartition, int] = {}
    for number, directory in dirs.numbered:
        try:
            names = fs.listdir(directory)
        except FileNotFoundError:
            if 0 < number < len(dirs.known):
                continue  # it had no partition yet
            raise InvalidRequestError(
                f"{directory} does not exist: give the directory of a log", path=directory
            ) from None
        for name in names:
            key = parse_partition_dir(name)
            if key is not None and fs.is_dir(os.path.join(directory, name)):
                found.setdefault(key, number)
    return found
