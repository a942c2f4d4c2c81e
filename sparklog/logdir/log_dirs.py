"""`sparklog.dirs`: a file in each log dir, by which a log and its log dirs recognize each other.

Each log dir contains a small checksummed file with the log dir's id (Kafka's `directory.id`, if a
broker assigned one in meta.properties), the log's id, and the ids of all log dirs in their order,
with their paths when the log was last opened for writing. So a mount point without its disk, a log
dir of another log, and a missing log dir are detected before any file is read or created there.
Brokers ignore plain files with unknown names.
"""

import os
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
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
from sparklog.storage.stored_json import seal, unseal
from sparklog.storage.topic_state import TopicState

DIRS_NAME: Final = "sparklog.dirs"
_CURE: Final = "open the log once for writing, which writes it again"
_BACK: Final = (
    "it comes back online with its files (mount the disk, restore them from a copy); to bring it "
    "online without them: sparklog verify PATH --give-up"
)
RENAME_BACK: Final = (
    "if two directories were swapped, stop what uses the log and rename them back; else restore "
    "this one from a copy"
)
"""The advice for another partition's directory: giving up the partition would lose data."""


class LogDirUnnamedError(InvalidRequestError):
    """The path doesn't name all log dirs of the log, or not in their order."""

    def __init__(self, key: TopicPartition, number: int, place: str) -> None:
        super().__init__(
            f"{key} should be in log dir number {number + 1} ({place}): name all log dirs of this "
            "log, in the order in which it was created"
        )


@dataclass(frozen=True, slots=True)
class LogDir:
    """A directory of a log: its id, and its path as of the last open for writing."""

    id: str
    path: str


@dataclass(frozen=True, slots=True)
class _DirsFile:
    """The contents of the file `sparklog.dirs` in a log dir.

    Attributes:
        log: The id of the log.
        directory: The id of this log dir.
        dirs: All log dirs of the log.
    """

    log: str
    directory: str
    dirs: tuple[LogDir, ...]

    @property
    def number(self) -> int | None:
        """The index of the directory in the log's list, if it is listed."""
        ids = [entry.id for entry in self.dirs]
        return ids.index(self.directory) if self.directory in ids else None


@dataclass(slots=True)
class LogDirs:
    """The log dirs that the user named, compared with the log dirs that the log has.

    Attributes:
        directories: The paths that the user named, in order.
        log: The log's id, or "" before the log was first opened for writing.
        known: All log dirs of the log.
        absent: {number of a log dir: reason} of unavailable log dirs with partitions of the log.
        files: {number of a log dir: contents of its file `sparklog.dirs`}, of available log dirs.
    """

    directories: Sequence[str]
    log: str = ""
    known: tuple[LogDir, ...] = ()
    absent: dict[int, str] = field(default_factory=dict)
    files: dict[int, _DirsFile] = field(default_factory=dict)

    @property
    def numbered(self) -> list[tuple[int, str]]:
        """The available directories, as (index in `directories`, path)."""
        return [pair for pair in enumerate(self.directories) if pair[0] not in self.absent]

    @property
    def present(self) -> list[str]:
        """The paths of the available directories."""
        return [path for _, path in self.numbered]

    @property
    def own(self) -> list[str]:
        """The paths of the available directories that the log uses already: not the new ones."""
        available = self.numbered
        return [path for n, path in available if not n or n in self.files or not self.files]

    def place(self, number: int) -> str:
        """Return the path of log dir `number`, also of a log dir that `directories` lacks."""
        if number < len(self.directories):
            return self.directories[number]
        return self.known[number].path if number < len(self.known) else f"log dir {number + 1}"

    def why_absent(self, number: int) -> str | None:
        """Return why log dir `number` can't be used, or None."""
        if number >= len(self.directories):
            return (
                f"it is in log dir number {number + 1} of the log ({self.place(number)}), "
                "which the path doesn't name: name all log dirs of this log, joined by ','"
            )
        return self.absent.get(number)


def offline_error(
    path: str, why: str, first: int, end: int, *, remedy: str = _BACK
) -> PartitionOfflineError:
    """Return the error of a partition that is offline.

    Args:
        path: The partition's directory.
        why: The reason.
        first: The first unavailable offset.
        end: The offset after the last unavailable offset.
        remedy: What the user can do.
    """
    reason = f"the partition is offline: {why}; {remedy}"
    return PartitionOfflineError(reason, path=path, first=first, end=end)


def not_of_log(path: str, why: str, key: TopicPartition) -> PartitionOfflineError:
    """Return the error of a directory with a partition's name that is not in the log.

    `why` is the beginning of the message: the reason why the directory can't be the partition's.
    """
    reason = (
        f"{why}; the log has no {key.topic}-{key.partition}, and readers fail on it: move the "
        "directory out of the log dir"
    )
    return PartitionOfflineError(reason, path=path)


def not_found(
    topics: Mapping[str, TopicState],
    found: Collection[TopicPartition],
    dirs: LogDirs,
    *,
    is_ours: Callable[[], bool],
) -> dict[TopicPartition, tuple[str, str]]:
    """Return {partition: (directory, reason)} of the partitions that were not found.

    Args:
        topics: The topics in the ledger, with the log dirs of their partitions.
        found: The partitions whose directories were found.
        dirs: The log dirs.
        is_ours: Returns whether no broker wrote since sparklog's last session; called once, if
            needed. A broker may have deleted partitions in available log dirs, which are then left
            out.
    """
    missing: dict[TopicPartition, tuple[str, str]] = {}
    ours: bool | None = None
    for name, topic in topics.items():
        for partition, number in topic.dirs.items():
            if (name, partition) in found:
                continue
            why = dirs.why_absent(number)
            if why is None:
                ours = is_ours() if ours is None else ours
                why = "its directory is gone" if ours else None
            if why is not None:
                place = dirs.place(number)
                key = TopicPartition(name, partition)
                missing[key] = os.path.join(place, str(key)), why
    return missing


def find_dirs(fs: FileSystem, directories: Sequence[str]) -> LogDirs:
    """Find out which of `directories` belong to the log, without a lock or a change.

    Cost: a small file per directory, and the topics file if a directory has no file.

    Raises:
        InvalidRequestError: A directory belongs to another log, the order differs, or the first
            directory is not the log's first.
    """
    home = directories[0]
    files: dict[int, _DirsFile] = {}
    failed: dict[int, str] = {}
    for number, path in enumerate(directories):
        try:
            found = _read(fs, path) if fs.is_dir(path) else None
        except StorageUnavailableError as error:
            # Without the first log dir there is no ledger, so no partition can be read. The failure
            # of another disk only takes its partitions offline.
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
    # The first dir's own file may be lost: the others have the same contents.
    log = own or next((found for number, found in files.items() if found.number == number), None)
    dirs = LogDirs(directories, absent=failed)
    if log is not None:
        dirs.log, dirs.known = log.log, log.dirs
    places: Mapping[int, list[str]] | None = None
    for number, path in enumerate(directories):
        if number in files:
            _add_dir(dirs, files[number], number, path)
        elif number and number not in failed:
            places = _places(fs, home) if places is None else places
            if why := _why_unlisted(fs, path, places.get(number, [])):
                dirs.absent[number] = why
    return dirs


def _add_dir(dirs: LogDirs, found: _DirsFile, number: int, path: str) -> None:
    """Add the contents of a directory's `sparklog.dirs` to `dirs`.

    If the log has given up the directory, it counts as absent.

    Args:
        dirs: The log dirs, to which the file is added.
        found: The contents of the file.
        number: The index of the directory among those that the user named.
        path: The directory.

    Raises:
        InvalidRequestError: The directory belongs to another log, or has another place in the list.
    """
    if found.log != dirs.log:
        paths = ",".join(entry.path for entry in found.dirs)
        raise InvalidRequestError(
            f"{path} belongs to another log (log dirs {paths}): name the log dirs of a single log"
        )
    ids = [entry.id for entry in dirs.known]
    dirs.files[number] = found
    if found.directory not in ids:
        dirs.absent[number] = (
            "the directory belonged to the log, and was given up since: move it away, and "
            "name the directory that replaced it"
        )
    elif (at := ids.index(found.directory)) != number:
        raise InvalidRequestError(
            f"{path} is log dir number {at + 1} of its log: name all log dirs of this log, in the "
            "order in which it was created"
        )


def _not_the_first(path: str, content: _DirsFile, home: str) -> InvalidRequestError:
    paths = ",".join(entry.path for entry in content.dirs)
    number = content.number or 0
    missing = "" if path == home else f", and {home} has no ledger: is its disk mounted?"
    return InvalidRequestError(
        f"{path} is log dir number {number + 1} of a log whose log dirs were {paths} when it was "
        f"last written{missing}. Name all of these log dirs, in this order"
    )


def _places(fs: FileSystem, home: str) -> dict[int, list[str]]:
    """Return {number of a log dir: names of its partition directories}, by the topics file.

    Empty if the topics file is missing or damaged.
    """
    try:
        topics = read_topics(fs, home) or {}
    except DataCorruptionError:
        return {}
    found: dict[int, list[str]] = {}
    for name, topic in topics.items():
        for partition, number in topic.dirs.items():
            found.setdefault(number, []).append(f"{name}-{partition}")
    return found


def _why_unlisted(fs: FileSystem, path: str, expected: Sequence[str]) -> str:
    """Return why a directory without `sparklog.dirs` is not the log's; "" without a reason.

    `expected` are the names of the partition directories of this log dir. Older versions of
    sparklog did not write `sparklog.dirs`, and the file may be lost, so these directories identify
    the log.
    """
    if not expected:
        return ""
    if not fs.is_dir(path):
        return "the log dir does not exist: is its disk mounted?"
    if any(fs.is_dir(os.path.join(path, name)) for name in expected):
        return ""
    return "the log dir contains nothing of this log: is its disk mounted?"


def claim_dirs(fs: FileSystem, dirs: LogDirs) -> LogDirs:
    """Assign ids to new log dirs, and write the list of log dirs to each of them (`sparklog.dirs`).

    Needs the write lock. Returns `dirs` with the new ids and files. Cost: a durable write per
    directory, unless its file is up to date.
    """
    known = list(dirs.known)
    for number, path in enumerate(dirs.directories):
        if number >= len(known):
            known.append(LogDir(_directory_id(fs, path, taken=known), path))
        # The path may have changed since: a disk can be mounted elsewhere. An absent dir keeps its
        # last known path, which errors name.
        elif number not in dirs.absent:
            known[number] = LogDir(known[number].id, path)
    log = dirs.log or new_topic_id()
    files: dict[int, _DirsFile] = {}
    for number, path in dirs.numbered:
        files[number] = _DirsFile(log, known[number].id, tuple(known))
        if dirs.files.get(number) != files[number]:
            _write(fs, path, files[number])
    return LogDirs(dirs.directories, log, tuple(known), dict(dirs.absent), files)


def retire_dirs(fs: FileSystem, dirs: LogDirs, numbers: Sequence[int]) -> LogDirs:
    """Let other directories take the places of log dirs that are absent, at the next open.

    The log dirs `numbers` get new ids, so that an old directory is detected when it returns.
    """
    known = list(dirs.known)
    for number in numbers:
        if number < len(known):
            known[number] = LogDir(new_topic_id(), dirs.place(number))
    return claim_dirs(fs, replace(dirs, known=tuple(known)))


def write_new_dirs(fs: FileSystem, directories: Sequence[str], paths: Sequence[str]) -> None:
    """Write `sparklog.dirs` into the directories of a new log, which will be renamed to `paths`."""
    log = new_topic_id()
    known = tuple(LogDir(new_topic_id(), path) for path in paths)
    for number, directory in enumerate(directories):
        _write(fs, directory, _DirsFile(log, known[number].id, known))


def _directory_id(fs: FileSystem, path: str, *, taken: Sequence[LogDir]) -> str:
    """Return the id of a new log dir: the id that a broker gave it, else a new id.

    A broker's id that a log dir in `taken` has already is not used.
    """
    # Kafka's metadata log refers to partitions' log dirs by this id, so a log that is handed back
    # to its broker must keep it.
    given = read_properties(fs, path).get(DIRECTORY_ID)
    return given if given and given not in [entry.id for entry in taken] else new_topic_id()


def _read(fs: FileSystem, directory: str) -> _DirsFile | None:
    """Return the contents of a directory's `sparklog.dirs`; None for a missing or damaged file."""
    path = os.path.join(directory, DIRS_NAME)
    try:
        content = unseal("dirs", read_bytes(fs, path), path=path, cure=_CURE)
        rows = tuple(LogDir(entry["id"], entry["path"]) for entry in content["dirs"])
        return _DirsFile(content["log"], content["directory"], rows)
    except (FileNotFoundError, DataCorruptionError, KeyError, TypeError):
        return None


def _write(fs: FileSystem, directory: str, own: _DirsFile) -> None:
    content: dict[str, Any] = {
        "log": own.log,
        "directory": own.directory,
        "dirs": [{"id": entry.id, "path": entry.path} for entry in own.dirs],
    }
    write_durably(fs, os.path.join(directory, DIRS_NAME), seal("dirs", content, indent=2))
