"""Unlinks `.deleted` files after file.delete.delay.ms, and lists the files of deleted topics.

A file's change time is the time of its rename, so any later process, a service that runs once or a
writer that opens the log, counts file.delete.delay.ms from there. A copy or a restore, and a change
time in the future, start the delay again. If a disk has less free space than commits must leave,
the delay is ignored: readers don't look for these names, and open files stay readable.
"""

import contextlib
import logging
from collections.abc import Iterator, Sequence
from typing import Final

from sparklog.errors import StorageUnavailableError
from sparklog.format.names import DELETED, parse_partition_dir
from sparklog.fs import FileSystem
from sparklog.logdir.log_manager import LogManager
from sparklog.logdir.segment_files import joined
from sparklog.logdir.topics_file import deleted_path, partition_path
from sparklog.storage.deleted_topic import DeletedTopic

_LOGGER: Final = logging.getLogger(__name__)


def waiting(manager: LogManager, *, now_ms: int) -> dict[str, int]:
    """Return {path: time (ms)} of the `.deleted` files that wait to be unlinked.

    The time is the end of the file's delay. Cost: a listing per partition, and a stat per file.
    Call this under the lock, or with a state that does not change.
    """
    fs, found = manager.fs, {}
    for name, topic in manager.state.topics.items():
        delay_ms = topic.parsed().file_delete_delay_ms
        for partition in topic.dirs:
            if (name, partition) in manager.offline:
                continue
            directory = partition_path(manager.directories, name, topic, partition)
            for path in _retired(fs, directory):
                with contextlib.suppress(FileNotFoundError, StorageUnavailableError):
                    # A change time in the future (the clock was wrong) would keep the file for
                    # ever.
                    found[path] = min(fs.changed_ms(path), now_ms) + delay_ms
    return found


def deleted_files(manager: LogManager, deleted: DeletedTopic) -> dict[str, int]:
    """Return {path: bytes} of all files of a deleted topic. Cost: a listing per partition."""
    found = {}
    for partition, number in deleted.topic.dirs.items():
        if number in manager.offline.dirs.absent or number >= len(manager.directories):
            continue
        path = deleted_path(manager.directories, deleted.name, deleted.topic, partition)
        with contextlib.suppress(FileNotFoundError, StorageUnavailableError):
            for name in manager.fs.listdir(path):
                file = joined(path, name)
                found[file] = manager.fs.size(file)
    return found


def unlink_due(manager: LogManager, *, now_ms: int) -> None:
    """Unlink the `.deleted` files whose delay is over. Under the lock.

    The lock is needed because a swap of segments uses a name of that form too.
    """
    due = [path for path, when in waiting(manager, now_ms=now_ms).items() if when <= now_ms]
    _unlink(manager.fs, sorted(due))


def unlink(fs: FileSystem, path: str, *, dry_run: bool) -> int:
    """Unlink a file, except in a dry run; return the file's size.

    Raises:
        FileNotFoundError: The file does not exist.
    """
    size = fs.size(path)
    if not dry_run:
        fs.unlink(path)
    return size


def make_room(fs: FileSystem, directories: Sequence[str]) -> int:
    """Unlink all deleted files in these log dirs, ignoring the delay; return the freed bytes.

    Under the lock. Uses only file names, because a full disk may also prevent recovery.
    """
    due: list[str] = []
    for directory in directories:
        for name in fs.listdir(directory):
            if parse_partition_dir(name) is not None:
                due += _retired(fs, joined(directory, name))
    size = _unlink(fs, sorted(due))
    if due:
        _LOGGER.warning(
            "%s: nearly full; %d deleted files that waited for file.delete.delay.ms are unlinked "
            "now (%d bytes)", ", ".join(directories), len(due), size,
        )  # fmt: skip
    return size


def _retired(fs: FileSystem, directory: str) -> Iterator[str]:
    with contextlib.suppress(FileNotFoundError, StorageUnavailableError):
        for name in fs.listdir(directory):
            if name.endswith(DELETED):
                yield joined(directory, name)


def _unlink(fs: FileSystem, paths: Sequence[str]) -> int:
    size = 0
    for path in paths:
        try:
            size += unlink(fs, path, dry_run=False)
        except FileNotFoundError:
            continue
        except StorageUnavailableError as error:
            _LOGGER.warning("%s stays for now: %s", path, error)
    return size
