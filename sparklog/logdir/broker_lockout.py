"""Keeping brokers and unsound file systems away from a log that is open for writing.

- `meta.properties` has a version that no broker knows, in every log dir from the first open for
  writing until the log is handed over (`meta_properties`): a broker refuses to start before it
  looks at anything else, for it would rename every partition that its cluster doesn't know.
- `.lock`, Kafka's own lock file, is held shared in every log dir: where a broker runs we refuse.
- `sparklog_open/`, an empty directory (the guard), stands in every log dir from the first open to
  the last clean close. A broker can't parse its name as a partition and refuses to start on it,
  whatever became of `meta.properties`, so it can never expose half a commit after a crash; and
  where it is missing we know that the tail may be a broker's (PROTOCOL, C4).
- `.kafka_cleanshutdown` is Kafka's word that a log dir was closed cleanly. A broker removes it when
  it starts and writes its own epoch into it when it stops; ours says -1, which no broker in service
  has: so it tells whether a broker was here since.
"""

import contextlib
import os
from collections.abc import Sequence
from typing import Final

from sparklog.errors import InvalidRequestError, LogLockedError
from sparklog.format.checkpoint_files import CLEAN_SHUTDOWN, CLEAN_SHUTDOWN_CONTENT
from sparklog.fs import FileSystem, LockFile, read_bytes, write_durably
from sparklog.logdir.meta_properties import keep_from_brokers

OPEN_MARKER_NAME: Final = "sparklog_open"
KAFKA_LOCK_NAME: Final = ".lock"
_UNSOUND: Final = ("nfs", "cifs", "smb", "fuse", "9p", "ceph", "glusterfs", "lustre", "afs")


def check_file_system(fs: FileSystem, directory: str) -> None:
    """Raise InvalidRequestError where locks or fsync can't be trusted (network file systems)."""
    kind = fs.kind(directory)
    if kind.lower().startswith(_UNSOUND):
        raise InvalidRequestError(
            f"{directory} lies on {kind}, whose locks don't hold between hosts: put the log on a "
            "local disk of the driver's host, or open it for reading only"
        )


def lock_out_brokers(fs: FileSystem, directories: Sequence[str]) -> list[LockFile]:
    """Take Kafka's lock of every log dir, shared. Close the files to give them back.

    Raises LogLockedError if a broker holds one.
    """
    held: list[LockFile] = []
    try:
        held.extend(_lock_out(fs, os.path.join(d, KAFKA_LOCK_NAME)) for d in directories)
    except BaseException:
        for file in held:
            file.close()
        raise
    return held


def _lock_out(fs: FileSystem, path: str) -> LockFile:
    while True:
        file = fs.open_lock(path)
        if not file.try_lock(0, 0, exclusive=False):
            file.close()
            raise LogLockedError(
                f"{path} is locked: a Kafka broker runs on this directory; stop it, "
                "or open the log for reading only"
            )
        if file.is_current():
            return file
        file.close()  # a stopping broker unlinked it between our open and our lock


def is_marked_open(fs: FileSystem, directory: str) -> bool:
    """Tell whether a session was open here and never closed cleanly (or still is)."""
    return fs.is_dir(os.path.join(directory, OPEN_MARKER_NAME))


def mark_open(fs: FileSystem, directories: Sequence[str]) -> None:
    """Make the guards, durably, and take Kafka's clean marks away. Idempotent.

    The first dir's guard decides how a log is opened, so it is made last.
    """
    keep_from_brokers(fs, directories)
    for directory in reversed(directories):
        with contextlib.suppress(FileExistsError):
            fs.mkdir(os.path.join(directory, OPEN_MARKER_NAME))
        fs.sync_dir(directory)
    for directory in directories:
        with contextlib.suppress(FileNotFoundError):
            fs.unlink(os.path.join(directory, CLEAN_SHUTDOWN))
            fs.sync_dir(directory)


def mark_made(fs: FileSystem, directories: Sequence[str]) -> None:
    """Mark the log dirs of a new log, which no session had open, as after our own clean close."""
    keep_from_brokers(fs, directories)
    for directory in directories:
        write_durably(fs, os.path.join(directory, CLEAN_SHUTDOWN), CLEAN_SHUTDOWN_CONTENT)


def mark_closed(fs: FileSystem, directories: Sequence[str]) -> None:
    """Mark every log dir clean, durably, then remove the guards, the first dir's last."""
    for directory in directories:
        write_durably(fs, os.path.join(directory, CLEAN_SHUTDOWN), CLEAN_SHUTDOWN_CONTENT)
    for directory in reversed(directories):
        with contextlib.suppress(FileNotFoundError):
            fs.rmdir(os.path.join(directory, OPEN_MARKER_NAME))
        fs.sync_dir(directory)


def was_clean(fs: FileSystem, directories: Sequence[str]) -> bool:
    """Tell whether every log dir carries Kafka's clean mark."""
    return all(fs.exists(os.path.join(directory, CLEAN_SHUTDOWN)) for directory in directories)


def was_closed_by_us(fs: FileSystem, directories: Sequence[str]) -> bool:
    """Tell whether every log dir carries our own clean mark: no broker ran since our close.

    A power cut may bring our mark back after a broker removed it. Source: CleanShutdownFileHandler.
    """
    for directory in directories:
        try:
            if read_bytes(fs, os.path.join(directory, CLEAN_SHUTDOWN)) != CLEAN_SHUTDOWN_CONTENT:
                return False
        except FileNotFoundError:
            return False
    return True
