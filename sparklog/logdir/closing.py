"""Closes a log: the last session leaves it as after a broker's clean stop."""

import logging
import os
from collections.abc import Callable, Collection, Sequence
from typing import Final

from sparklog.common import TopicPartition
from sparklog.errors import (
    InvalidRequestError,
    LogLockedError,
    LogReplacedError,
    PartitionOfflineError,
)
from sparklog.format.names import snapshot_name
from sparklog.fs import FileSystem
from sparklog.logdir.broker_lockout import mark_closed
from sparklog.logdir.commit_log import LogDirCommits
from sparklog.logdir.ledger import LEDGER, ledger_bases
from sparklog.logdir.log_dirs import LogDirUnnamedError
from sparklog.logdir.offset_checkpoints import (
    HIGH_WATERMARK,
    LOG_START,
    RECOVERY_POINT,
    write_offsets,
)
from sparklog.logdir.partition.producer_snapshots import is_whole
from sparklog.logdir.recovery.redo import publish_all
from sparklog.logdir.state_copy import write_state_copy
from sparklog.storage.log_state import LogState

_LOGGER: Final = logging.getLogger(__name__)


def close_session(session: LogDirCommits) -> None:
    """Close the session. The last session leaves the log as after a broker's clean stop.

    Raises disk errors; the locks are released in any case, and the next open recovers. If the log
    was removed or replaced, or now has log dirs that the session was not given, the log is left
    unchanged, with a warning.
    """
    if session.lost is not None:
        return
    try:
        with session.exclusive():
            if session.lock.is_last() and _is_whole(session):
                _leave_clean(session)
    except (LogReplacedError, LogDirUnnamedError) as error:
        _LOGGER.warning("%s: not closed: %s", session.home, error)
    finally:
        session.release()


def give_up_session(session: LogDirCommits, give: Callable[[], None]) -> None:
    """Close the last session of a log as `close_session` does, and hand the log over.

    `give`: writes the files that the new owner needs, after everything else is durable. Brokers are
    still locked out.
    Raises: LogLockedError: another session is open; InvalidRequestError: a partition is offline or
    differs from the ledger; exceptions of `give`. The log is then as after a crash.
    """
    try:
        with session.exclusive():
            if not session.lock.is_last():
                raise LogLockedError(
                    f"{session.home} is open in another process, or in this one: end its queries, "
                    "services and other writers, then repeat this"
                )
            if not _is_whole(session):
                missing = ", ".join(map(str, sorted(session.offline))) or "a partition"
                raise InvalidRequestError(
                    f"{session.home}: {missing} isn't complete (`sparklog verify` reports why): "
                    "mount or restore the missing files, or give them up by "
                    "`sparklog verify --give-up`"
                )
            _leave_durable(session)
            give()
            mark_closed(session.fs, session.present)
    finally:
        session.release()


def _is_whole(session: LogDirCommits) -> bool:
    """Return True if every partition is as in the ledger; otherwise recovery is needed."""
    if session.offline:
        return False
    for topic, partition in session.state.ends:
        if not is_partition_whole(session, topic, partition):
            path = session.partition_path(topic, partition)
            _LOGGER.warning("%s: differs from the ledger, so the log is not closed as clean", path)
            return False
    return True


def is_partition_whole(session: LogDirCommits, topic: str, partition: int) -> bool:
    """Return True if a partition exists and the last segment has the size in the ledger."""
    if _is_closed(session, topic, partition):
        return True
    try:
        log = session.writer(topic, partition)
        return log.size_on_disk() == log.state.size
    except (PartitionOfflineError, FileNotFoundError):
        return False


def _is_closed(session: LogDirCommits, topic: str, partition: int) -> bool:
    """Return True if the log was not changed since a clean close with a complete snapshot."""
    end = session.state.ends[TopicPartition(topic, partition)]
    path = os.path.join(session.partition_path(topic, partition), snapshot_name(end))
    return end > 0 and is_whole(session.fs, path)


def _leave_clean(session: LogDirCommits) -> None:
    _leave_durable(session)
    mark_closed(session.fs, session.present)


def _leave_durable(session: LogDirCommits) -> None:
    session.make_durable()
    fs, state = session.fs, session.state
    for topic, partition in state.ends:
        if not _is_closed(session, topic, partition):
            session.writer(topic, partition).close()
    session.ledger.log.delete_records(ledger_bases(fs, session.home)[0])  # older segments expired
    session.ledger.log.close()
    write_state_copy(fs, session.home, session.ledger.end, state)
    absent = session.dirs.absent
    write_checkpoints(fs, session.directories, state, session.ledger.end, absent=absent)
    publish_all(session)


def write_checkpoints(
    fs: FileSystem,
    directories: Sequence[str],
    state: LogState,
    ledger_end: int,
    *,
    absent: Collection[int] = (),
) -> None:
    """Write Kafka's checkpoint files of all log dirs, as after a clean stop.

    `absent`: numbers of unavailable log dirs, which contain no partitions.
    """
    for number, directory in enumerate(directories):
        if number in absent:
            continue
        ends = {key: end for key, end in state.ends.items() if _dir_of(state, key) == number}
        if not number:
            ends[LEDGER] = ledger_end
        starts = {key: state.starts[key] for key in ends.keys() & state.starts.keys()}
        write_offsets(fs, directory, RECOVERY_POINT, ends)
        write_offsets(fs, directory, LOG_START, starts)
        write_offsets(fs, directory, HIGH_WATERMARK, ends)


def _dir_of(state: LogState, key: TopicPartition) -> int:
    return state.topics[key.topic].dirs[key.partition]
