"""`sparklog.dirs`: which log a directory belongs to, and which directories a log has.

Each log dir says in a small sealed file what its own id is (Kafka's `directory.id`, where a broker
gave it one in meta.properties), the log's id, and the ids of all of the log's dirs in their order,
with the paths that they had when the log was last opened for writing. So a mount point without
its disk, another log's dir, or one of several by itself is known for what it is before anything
is believed, or made, there. Brokers ignore plain files that they don't know.
"""

import os
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from sparklog.common import TopicPartition
from sparklog.errors import (
    DataCorruptionError,
    InvalidRequestError,
    PartitionOfflineError,
    StorageUnavailableError,
)
from sparklog.fs import FileSystem, read_bytes, write_durably
from sparklog.log.topic_names import new_topic_id
from sparklog.logdir.ledger import ledger_path
from sparklog.logdir.meta_properties import DIRECTORY_ID, read_properties
from sparklog.logdir.topics_file import read_topics
from sparklog.storage.checksummed_json import seal, unseal
from sparklog.storage.topic_state import TopicState

DIRS_NAME: Final = "sparklog.dirs"
_CURE: Final = "open the log once for writing, it is then written anew"
_BACK: Final = (
    "it comes back by itself with its files (mount the disk, restore them from a copy); to go on "
    "without them: sparklog verify PATH --give-up"
)
RENAME_BACK: Final = (
    "if two directories were swapped, stop what uses the log and rename them back; else restore "
    "this one from a copy"
)
"""The remedy for a directory that is another partition's: nothing of it may be given up."""


class LogDirUnnamedError(InvalidRequestError):
    """The path doesn't name all log dirs of the log, or not in their order."""

    def __init__(self, key: TopicPartition, number: int, place: str) -> None:
        super().__init__(
            f"{key} should lie in log dir number {number + 1} ({place}): give all log dirs of this "
            "log, in the order in which it was made"
        )


@dataclass(frozen=True, slots=True)
class LogDir:
    """One directory of a log: its id, and its path as of the last open for writing."""

    id: str
    path: str


@dataclass(frozen=True, slots=True)
class _DirsFile:
    """What a directory's file says: its own id, the log's, and the log's dirs."""

    log: str
    directory: str
    dirs: tuple[LogDir, ...]

    @property
    def number(self) -> int | None:
        """The directory's place among the log's, counted from 0; None if it has none."""
        ids = [one.id for one in self.dirs]
        return ids.index(self.directory) if self.directory in ids else None


@dataclass(slots=True)
class LogDirs:
    """A log's dirs as found. `log`: its id, "" if it has none yet; `known`: all that it has.

    `absent`: {number of a log dir: why} of those that hold partitions of the log and aren't there.
    `files`: what the present ones' files say, by number.
    """

    log: str = ""
    known: tuple[LogDir, ...] = ()
    absent: dict[int, str] = field(default_factory=dict)
    files: dict[int, _DirsFile] = field(default_factory=dict)

    def present(self, directories: Sequence[str]) -> list[str]:
        """Return those of `directories` that are there."""
        return [path for number, path in enumerate(directories) if number not in self.absent]

    def numbered(self, directories: Sequence[str]) -> list[tuple[int, str]]:
        """Return those of `directories` that are there, with their numbers."""
        return [pair for pair in enumerate(directories) if pair[0] not in self.absent]

    def own(self, directories: Sequence[str]) -> list[str]:
        """Return those that are there and not new to the log: they carry its marks."""
        there = self.numbered(directories)
        return [path for n, path in there if not n or n in self.files or not self.files]

    def place(self, directories: Sequence[str], number: int) -> str:
        """Return the path of log dir `number`, be it among `directories` or not."""
        if number < len(directories):
            return directories[number]
        return self.known[number].path if number < len(self.known) else f"log dir {number + 1}"

    def why_absent(self, directories: Sequence[str], number: int) -> str | None:
        """Return why log dir `number` can't be used; None if it can."""
        if number >= len(directories):
            return (
                f"it lies in log dir number {number + 1} of the log ({self.place((), number)}), "
                "which the path doesn't name: give all log dirs of this log, joined by ','"
            )
        return self.absent.get(number)


def offline_error(
    path: str, why: str, first: int, end: int, *, remedy: str = _BACK
) -> PartitionOfflineError:
    """Return the error of a partition that is missing, or of which [first, end) is."""
    reason = f"the partition is offline: {why}; {remedy}"
    return PartitionOfflineError(reason, path=path, first=first, end=end)


def not_of_log(path: str, why: str, key: TopicPartition) -> PartitionOfflineError:
    """Return the error of a directory that has a partition's name, and is none of the log's."""
    reason = (
        f"{why}; the log has no {key.topic}-{key.partition}, and readers fail on it: move the "
        "directory out of the log dir"
    )
    return PartitionOfflineError(reason, path=path)


def not_found(
    topics: Mapping[str, TopicState],
    found: Collection[TopicPartition],
    dirs: LogDirs,
    directories: Sequence[str],
    *,
    is_ours: Callable[[], bool],
) -> dict[TopicPartition, tuple[str, str]]:
    """Return {partition: (its directory, why)} of those of `topics` that aren't `found`.

    Args: is_ours: whether no broker was here since a session of ours: asked once, if it matters.
        What is missing in a dir that is there was deleted by the broker, then.
    """
    missing: dict[TopicPartition, tuple[str, str]] = {}
    ours: bool | None = None
    for name, topic in topics.items():
        for partition, number in topic.dirs.items():
            if (name, partition) in found:
                continue
            why = dirs.why_absent(directories, number)
            if why is None:
                ours = is_ours() if ours is None else ours
                why = "its directory is gone" if ours else None
            if why is not None:
                place = dirs.place(directories, number)
                key = TopicPartition(name, partition)
                missing[key] = os.path.join(place, str(key)), why
    return missing


def find_dirs(fs: FileSystem, directories: Sequence[str]) -> LogDirs:
    """Look which of `directories` are the log's, without a lock or a change.

    Raises: InvalidRequestError: one of them is another log's, or they are given in another order,
        or the first is none of the log's first.
    Cost: a small file a directory, and the topics file where one is bare.
    """
    home = directories[0]
    files: dict[int, _DirsFile] = {}
    failed: dict[int, str] = {}
    for number, path in enumerate(directories):
        try:
            found = _read(fs, path) if fs.is_dir(path) else None
        except StorageUnavailableError as error:
            if not number:
                raise
            failed[number] = str(error)
            continue
        if found is not None:
            files[number] = found
    own = files.get(0)
    if own is None and files and not fs.is_dir(ledger_path(home)):
        number, other = next(iter(files.items()))
        raise _not_the_first(directories[number], other, home)
    if own is not None and own.number:
        raise _not_the_first(home, own, home)
    # The first dir's own file may be lost: the others know as much.
    log = own or next((found for number, found in files.items() if found.number == number), None)
    dirs = LogDirs(absent=failed) if log is None else LogDirs(log.log, log.dirs, failed)
    places: Mapping[int, list[str]] | None = None
    for number, path in enumerate(directories):
        if number in files:
            _take_own(dirs, files[number], number, path)
        elif number and number not in failed:
            places = _places(fs, home) if places is None else places
            if why := _why_bare(fs, path, places.get(number, [])):
                dirs.absent[number] = why
    return dirs


def _take_own(dirs: LogDirs, found: _DirsFile, number: int, path: str) -> None:
    """Note what a directory says; refuse another log's, and this log's in another order."""
    if found.log != dirs.log:
        paths = ",".join(one.path for one in found.dirs)
        raise InvalidRequestError(
            f"{path} belongs to another log, whose log dirs are {paths}: give this log's own"
        )
    ids = [one.id for one in dirs.known]
    dirs.files[number] = found
    if found.directory not in ids:
        dirs.absent[number] = (
            "the directory there was the log's once, and was given up since: move it away, and "
            "give the one that has its place"
        )
    elif (at := ids.index(found.directory)) != number:
        raise InvalidRequestError(
            f"{path} is log dir number {at + 1} of its log: give all log dirs of this log, in the "
            "order in which it was made"
        )


def _not_the_first(path: str, content: _DirsFile, home: str) -> InvalidRequestError:
    paths = ",".join(one.path for one in content.dirs)
    number = content.number or 0
    missing = "" if path == home else f", and {home} doesn't hold its ledger: is its disk mounted?"
    return InvalidRequestError(
        f"{path} is log dir number {number + 1} of a log whose log dirs were {paths} when it was "
        f"last written{missing}. Give all of them, in that order"
    )


def _places(fs: FileSystem, home: str) -> dict[int, list[str]]:
    """{number of a log dir: the partition directories that should lie there}."""
    try:
        topics = read_topics(fs, home) or {}
    except DataCorruptionError:
        return {}
    found: dict[int, list[str]] = {}
    for name, topic in topics.items():
        for partition, number in topic.dirs.items():
            found.setdefault(number, []).append(f"{name}-{partition}")
    return found


def _why_bare(fs: FileSystem, path: str, expected: Sequence[str]) -> str:
    """Tell why a directory without a file of ours can't be the log's; "" if it may be.

    An older sparklog wrote no such file, and somebody may have lost it: partitions tell, then.
    """
    if not expected:
        return ""
    if not fs.is_dir(path):
        return "the log dir does not exist: is its disk mounted?"
    if any(fs.is_dir(os.path.join(path, name)) for name in expected):
        return ""
    return "the log dir holds nothing of this log: is its disk mounted?"


def claim_dirs(fs: FileSystem, directories: Sequence[str], dirs: LogDirs) -> LogDirs:
    """Give each present dir its id, and say in all of them which the log has. Under the lock.

    Cost: nothing where all is said; else a durable write a directory.
    """
    known = list(dirs.known)
    for number, path in enumerate(directories):
        if number >= len(known):
            known.append(LogDir(_directory_id(fs, path, taken=known), path))
        elif number not in dirs.absent:
            known[number] = LogDir(known[number].id, path)
    log = dirs.log or new_topic_id()
    files: dict[int, _DirsFile] = {}
    for number, path in enumerate(directories):
        if number in dirs.absent:
            continue
        files[number] = _DirsFile(log, known[number].id, tuple(known))
        if dirs.files.get(number) != files[number]:
            _write(fs, path, files[number])
    return LogDirs(log, tuple(known), dict(dirs.absent), files)


def retire_dirs(
    fs: FileSystem, directories: Sequence[str], dirs: LogDirs, numbers: Sequence[int]
) -> LogDirs:
    """Give the places of absent dirs to whatever bare directory lies there at the next open.

    They have new ids, so that an old dir that comes back is known for what it is.
    """
    known = list(dirs.known)
    for number in numbers:
        if number < len(known):
            known[number] = LogDir(new_topic_id(), dirs.place(directories, number))
    return claim_dirs(fs, directories, LogDirs(dirs.log, tuple(known), dirs.absent, dirs.files))


def write_new_dirs(fs: FileSystem, directories: Sequence[str], paths: Sequence[str]) -> None:
    """Say in a new log's `directories`, which get the names `paths` later, that they are its."""
    log = new_topic_id()
    known = tuple(LogDir(new_topic_id(), path) for path in paths)
    for number, directory in enumerate(directories):
        _write(fs, directory, _DirsFile(log, known[number].id, known))


def _directory_id(fs: FileSystem, path: str, *, taken: Sequence[LogDir]) -> str:
    """The id that a broker gave the directory, if it did and no other has it; else a new one."""
    given = read_properties(fs, path).get(DIRECTORY_ID)
    return given if given and given not in [one.id for one in taken] else new_topic_id()


def _read(fs: FileSystem, directory: str) -> _DirsFile | None:
    """Return what a directory says; None if it says nothing that can be read."""
    path = os.path.join(directory, DIRS_NAME)
    try:
        content = unseal("dirs", read_bytes(fs, path), path=path, cure=_CURE)
        rows = tuple(LogDir(one["id"], one["path"]) for one in content["dirs"])
        return _DirsFile(content["log"], content["directory"], rows)
    except (FileNotFoundError, DataCorruptionError, KeyError, TypeError):
        return None


def _write(fs: FileSystem, directory: str, own: _DirsFile) -> None:
    content: dict[str, Any] = {
        "log": own.log,
        "directory": own.directory,
        "dirs": [{"id": one.id, "path": one.path} for one in own.dirs],
    }
    write_durably(fs, os.path.join(directory, DIRS_NAME), seal("dirs", content, indent=2))
