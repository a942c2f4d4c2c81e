"""Partitions whose log dir, directory or segments are missing, and how they come back.

The ledger knows every partition and its offsets, so whatever isn't there is missing, not gone: it
goes offline with its dir and range, for everybody, and all others go on. Once its files are back
the next look recovers it, as after a crash: a shorter copy is damage, and stays offline.
Source: PROTOCOL, "Offline partitions".
"""

import logging
import os
from typing import TYPE_CHECKING, Final

from sparklog.errors import (
    DataCorruptionError,
    InvalidRequestError,
    LogLockedError,
    PartitionOfflineError,
)
from sparklog.format.checkpoint_files import parse_partition_metadata
from sparklog.format.names import PARTITION_METADATA, partition_dir
from sparklog.fs import FileSystem, read_bytes
from sparklog.logdir.guard import is_guarded, lock_out_brokers, raise_guard, was_left_by_us
from sparklog.logdir.log_dirs import LogDirs, claim_dirs, find_dirs, offline_error
from sparklog.logdir.partition.partition_log import PartitionLog
from sparklog.logdir.recovery import log_recovery
from sparklog.logdir.recovery.redo import carry_out_all
from sparklog.logdir.segment_files import segment_bases

if TYPE_CHECKING:
    from sparklog.logdir.session import Session

_LOGGER: Final = logging.getLogger(__name__)
Key = tuple[str, int]


def stored_topic_id(fs: FileSystem, path: str) -> str | None:
    """Return the topic id that a partition's directory carries; None if it carries none.

    Raises DataCorruptionError if its file can't be read.
    """
    name = os.path.join(path, PARTITION_METADATA)
    try:
        return parse_partition_metadata(read_bytes(fs, name), path=name)
    except FileNotFoundError:
        return None


def missing(
    session: "Session", key: Key, *, number: int | None = None, segments: bool = True
) -> PartitionOfflineError | None:
    """Tell why a partition can't be used; None if what it needs is there.

    Args: number: of the log dir where it lies, if not where the ledger says. segments: whether to
        look for the one that holds the first offset, too, which costs a listing.
    """
    fs, state = session.fs, session.state
    topic = state.topics[key[0]]
    number = topic.dirs[key[1]] if number is None else number
    path = os.path.join(session.dirs.place(session.directories, number), partition_dir(*key))
    start, end = state.starts.get(key, 0), state.ends[key]
    why = session.dirs.why_absent(session.directories, number)
    if why is None and not fs.is_dir(path):
        why = "its directory is gone"
    if why is not None:
        return offline_error(path, why, start, end)
    needed = max(start, state.local_start(*key))
    try:
        held = stored_topic_id(fs, path)
        if held not in (None, topic.id):
            why = f"its directory is of another topic (id {held}, not {topic.id})"
            return offline_error(path, why, start, end)
        bases = segment_bases(fs, path) if segments else [needed]
    except FileNotFoundError:
        return offline_error(path, "its directory is gone", start, end)
    except DataCorruptionError as error:
        return offline_error(path, error.reason, start, end)
    first = bases[0] if bases else end
    if first > needed or not bases:
        return offline_error(path, "the segments of these offsets are gone", needed, first)
    return None


def note_missing(session: "Session", *, segments: bool) -> bool:
    """Take the partitions offline that are missing; tell whether there were new ones.

    Under the lock. Cost: a stat and a small file a partition, and a listing with `segments`.
    """
    before = len(session.offline)
    for key in session.state.ends:
        if key not in session.offline:
            error = missing(session, key, segments=segments)
            if error is not None:
                go_offline(session, key, error)
    return len(session.offline) > before


def go_offline(session: "Session", key: Key, error: DataCorruptionError) -> None:
    """Leave a partition alone from now on, and say so."""
    session.offline[key] = error
    _LOGGER.critical("%s-%d is offline: %s", *key, error)


def check_whole(session: "Session", key: Key, log: PartitionLog) -> None:
    """Raise PartitionOfflineError if a partition that is to be written misses segments."""
    try:
        is_short = log.first_base > session.state.local_start(*key)
    except (FileNotFoundError, DataCorruptionError):
        if missing(session, key) is None:
            raise
        is_short = True
    if is_short:
        raise _lost(session, key)


def size_on_disk(session: "Session", key: Key, log: PartitionLog) -> int:
    """As `PartitionLog.size_on_disk`; raises PartitionOfflineError if its files are gone."""
    try:
        return log.size_on_disk()
    except FileNotFoundError:
        if key not in session.state.ends:
            raise
        raise _lost(session, key) from None


def _lost(session: "Session", key: Key) -> DataCorruptionError:
    """Return what is to be raised of a partition whose files were taken away just now."""
    session.dirs = look_at_dirs(session)
    error = missing(session, key)
    if error is None:  # they come and go
        path = session.partition_path(*key)
        return DataCorruptionError("its files are being replaced; try again", path=path)
    session.forget_writers()
    go_offline(session, key, error)
    return error


def look_again(session: "Session") -> None:
    """Bring back what was missing and is there again, for all sessions.

    Under the lock. Cost: nothing while all is there; else some stats a missing partition.
    """
    offline, state = session.offline, session.state
    dropped = [key for key in offline if key not in state.ends]
    for key in dropped:
        del offline[key]
    keys = [key for key, error in offline.items() if isinstance(error, PartitionOfflineError)]
    if not keys:
        return
    returned = _returned(session)
    back = []
    for key in keys:
        error = missing(session, key)
        if error is None:
            back.append(key)
        elif str(error) != str(offline[key]):
            offline[key] = error
    for key in back:
        del offline[key]
        log_recovery.recover_one(session, key, log_recovery.recovery_points(session))
        if key not in offline:
            _LOGGER.warning("%s-%d is online again", *key)
    if returned:
        carry_out_all(session, None)
    if returned or back:
        session.idle()


def _returned(session: "Session") -> bool:
    """Take log dirs in again that were absent and are there, as opening them would."""
    fs, before = session.fs, session.dirs
    try:
        found = find_dirs(fs, session.directories)
    except InvalidRequestError as error:  # something else lies there now
        _LOGGER.warning("%s: %s", session.home, error)
        return False
    returned = before.absent.keys() - found.absent.keys()
    if not returned:
        session.dirs = found
        return False
    for number in sorted(returned):
        path = session.directories[number]
        try:
            session.brokers_out += lock_out_brokers(fs, [path])
        except LogLockedError as error:
            found.absent[number] = str(error)
            continue
        leave_brokers(session, found)
        if number not in found.absent:
            raise_guard(fs, [path])
    session.dirs = claim_dirs(fs, session.directories, found)
    return bool(returned - found.absent.keys())


def leave_brokers(session: "Session", dirs: LogDirs) -> None:
    """Take a log dir for absent where a broker wrote while the others were open without it.

    Of those the first carries the guard; this one neither carries it, nor our own clean mark.
    """
    fs = session.fs
    for number, path in dirs.numbered(session.directories)[1:]:
        if number in dirs.said and not is_guarded(fs, path) and not was_left_by_us(fs, [path]):
            dirs.absent[number] = "a broker wrote there while the log was open without it"


def look_at_dirs(session: "Session") -> LogDirs:
    """Look anew which log dirs are there, for one that recovers.

    Raises nothing. One that was absent stays so until it is taken in again, by `look_again`.
    """
    try:
        found = find_dirs(session.fs, session.directories)
    except InvalidRequestError as error:  # its partitions say by their ids whose they are
        _LOGGER.warning("%s: %s", session.home, error)
        return session.dirs
    found.absent = {**session.dirs.absent, **found.absent}
    return found
