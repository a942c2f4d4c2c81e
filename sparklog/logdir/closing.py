"""Closing a log: the last session leaves what a broker's clean stop would leave."""

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
    """Close; the last session of the log leaves it as a broker's clean stop would.

    Raises what the disk raises; the locks are released in any case, and the next open recovers.
    A log that is gone, was replaced by another one, or has log dirs by now that the session wasn't
    given, is left as it is, with a warning.
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
    """Close the last session of a log as `close_session` does, for somebody else to take it.

    Args: give: writes what they need, once all else is durable. Brokers are still kept out.
    Raises: LogLockedError: another session is open; InvalidRequestError: a partition is offline or
        not as the ledger says; what `give` raises. The log is then as a crash leaves it.
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
                    f"{session.home}: {missing} isn't whole (`sparklog verify` says why): mount or "
                    "restore what is missing, or give it up by `sparklog verify --give-up`"
                )
            _leave_durable(session)
            give()
            mark_closed(session.fs, session.present)
    finally:
        session.release()


def _is_whole(session: LogDirCommits) -> bool:
    """Tell whether every partition is as the ledger says; what isn't is left for recovery."""
    if session.offline:
        return False
    for topic, partition in session.state.ends:
        if not is_partition_whole(session, topic, partition):
            path = session.partition_path(topic, partition)
            _LOGGER.warning("%s: not as the ledger says, so not closed as clean", path)
            return False
    return True


def is_partition_whole(session: LogDirCommits, topic: str, partition: int) -> bool:
    """Tell whether a partition is there and its last segment as long as the ledger says."""
    if _is_closed(session, topic, partition):
        return True
    try:
        log = session.writer(topic, partition)
        return log.size_on_disk() == log.state.size
    except (PartitionOfflineError, FileNotFoundError):
        return False


def _is_closed(session: LogDirCommits, topic: str, partition: int) -> bool:
    """Tell whether nothing came since a clean close, which left the snapshot at the end, whole."""
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
    session.ledger.log.delete_records(ledger_bases(fs, session.home)[0])  # older ones expired
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
    """Write Kafka's checkpoint files of all log dirs as a clean stop leaves them.

    Args: absent: numbers of those that aren't there, and hold nothing.
    """
    for number, directory in enumerate(directories):
        if number in absent:
            continue
        mine = {key: end for key, end in state.ends.items() if _dir_of(state, key) == number}
        if not number:
            mine[LEDGER] = ledger_end
        starts = {key: state.starts[key] for key in mine.keys() & state.starts.keys()}
        write_offsets(fs, directory, RECOVERY_POINT, mine)
        write_offsets(fs, directory, LOG_START, starts)
        write_offsets(fs, directory, HIGH_WATERMARK, mine)


def _dir_of(state: LogState, key: TopicPartition) -> int:
    return state.topics[key.topic].dirs[key.partition]
