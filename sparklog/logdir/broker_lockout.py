"""Protects a log that is open for writing from brokers and unreliable file systems.

- `meta.properties` has an unknown version in every log dir from the first open for writing until
  the log is handed over (`meta_properties`). A broker refuses to start before it reads anything
  else; otherwise it would rename every partition that its cluster doesn't know.
- `.lock`, Kafka's own lock file, is locked shared in every log dir, so sparklog refuses to open the
  log while a broker runs.
- `sparklog_open/`, an empty directory (the guard), exists in every log dir from the first open to
  the last clean close. A broker can't parse its name as a partition and refuses to start, even
  without our `meta.properties`, so it can never expose half a commit after a crash. Without the
  guard, the tail of a partition may be a broker's (PROTOCOL, C4).
- `.kafka_cleanshutdown` is Kafka's marker that a log dir was closed cleanly. A broker removes it
  when it starts and writes its own epoch into it when it stops. sparklog writes the epoch -1, which
  no running broker has, so the file shows whether a broker ran since.
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


def is_unsound(fs: FileSystem, directory: str) -> bool:
    """Return True if locks or fsync can't be relied on, as on network file systems."""
    return fs.kind(directory).lower().startswith(_UNSOUND)


def check_file_system(fs: FileSystem, directory: str) -> None:
    """Raise InvalidRequestError if the directory is on a network file system.

    Locks or fsync are not reliable there.
    """
    if is_unsound(fs, directory):
        raise InvalidRequestError(
            f"{directory} is on {fs.kind(directory)}, where locks don't work between hosts: put "
            "the log on a local disk of the driver's host, or open it for reading only"
        )


def lock_out_brokers(fs: FileSystem, directories: Sequence[str]) -> list[LockFile]:
    """Take Kafka's lock (`.lock`) of every log dir, shared, so that no broker can start.

    The locks are held until the returned files are closed.

    Raises:
        LogLockedError: A broker has a lock.
    """
    locks: list[LockFile] = []
    try:
        locks.extend(_lock_out(fs, os.path.join(d, KAFKA_LOCK_NAME)) for d in directories)
    except BaseException:
        for file in locks:
            file.close()
        raise
    return locks


def _lock_out(fs: FileSystem, path: str) -> LockFile:
    while True:
        file = fs.open_lock(path)
        # A broker locks the file exclusively, so a shared lock excludes brokers, but not other
        # sessions of sparklog.
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
    """Return True if a log dir has the guard: a session is open, or was not closed cleanly."""
    return fs.is_dir(os.path.join(directory, OPEN_MARKER_NAME))


def mark_open(fs: FileSystem, directories: Sequence[str]) -> None:
    """Create the guards (`sparklog_open/`), durably, and remove Kafka's clean marks. Idempotent.

    The first log dir's guard decides how a log is opened, so it is created last.
    """
    # First, because a crash before the guards exist must not leave a dir that a broker accepts: it
    # would rename all partitions that its cluster doesn't know to -stray.
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
    """Mark the log dirs of a new log as closed cleanly by sparklog.

    So the first open for writing needs no recovery.
    """
    keep_from_brokers(fs, directories)
    for directory in directories:
        write_durably(fs, os.path.join(directory, CLEAN_SHUTDOWN), CLEAN_SHUTDOWN_CONTENT)


def mark_closed(fs: FileSystem, directories: Sequence[str]) -> None:
    """Write sparklog's clean mark in every log dir, durably, then remove the guards.

    The guard of the first log dir is removed last, because it decides how the log is opened.
    """
    for directory in directories:
        write_durably(fs, os.path.join(directory, CLEAN_SHUTDOWN), CLEAN_SHUTDOWN_CONTENT)
    # The first dir's guard decides whether the next open recovers the log, so it is removed last: a
    # crash in between leads to a recovery.
    for directory in reversed(directories):
        with contextlib.suppress(FileNotFoundError):
            fs.rmdir(os.path.join(directory, OPEN_MARKER_NAME))
        fs.sync_dir(directory)


def was_clean(fs: FileSystem, directories: Sequence[str]) -> bool:
    """Return True if every log dir has the mark of a clean close, by sparklog or a broker."""
    return all(fs.exists(os.path.join(directory, CLEAN_SHUTDOWN)) for directory in directories)


def was_closed_by_us(fs: FileSystem, directories: Sequence[str]) -> bool:
    """Return True if every log dir has sparklog's clean mark: no broker ran since the close.

    A power cut may restore the mark after a broker removed it. Source: CleanShutdownFileHandler.
    """
    for directory in directories:
        try:
            if read_bytes(fs, os.path.join(directory, CLEAN_SHUTDOWN)) != CLEAN_SHUTDOWN_CONTENT:
                return False
        except FileNotFoundError:
            return False
    return True
