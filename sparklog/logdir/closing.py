"""Closes a log. The last session leaves the files as a broker leaves them after a clean stop."""

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
from sparklog.logdir.offset_checkpoints import closed_offsets, write_offsets
from sparklog.logdir.partition.producer_snapshots import is_whole
from sparklog.logdir.recovery.redo import publish_all
from sparklog.logdir.state_copy import write_state_copy
from sparklog.storage.log_state import LogState

_LOGGER: Final = logging.getLogger(__name__)


def close_commits(commits: LogDirCommits) -> None:
    """Close the session. The last session leaves the log as after a broker's clean stop.

    After a disk error, which is raised, the locks are released, and the next open recovers the log.
    If the log was removed or replaced, or now has log dirs that the session was not given, the log
    is left unchanged, with a warning.
    """
    if commits.lost is not None:
        return
    try:
        with commits.exclusive():
            # If a partition differs from the ledger, the guard stays: the next open then recovers
            # the log, and no broker starts on it.
            if commits.lock.is_last() and _is_whole(commits):
                _leave_durable(commits)
                mark_closed(commits.fs, commits.present)
    except (LogReplacedError, LogDirUnnamedError) as error:
        _LOGGER.warning("%s: not closed: %s", commits.home, error)
    finally:
        commits.release()


def close_for_handover(commits: LogDirCommits, give: Callable[[], None]) -> None:
    """Close the last session of a log as `close_commits` does, and hand the log over.

    If `give` raises, the log is as after a crash: the next open for writing recovers it.

    Args:
        commits: The open log.
        give: Writes the files that the new owner needs. Called when everything else is durable and
            brokers are still locked out; its exceptions are raised.

    Raises:
        LogLockedError: Another session is open.
        InvalidRequestError: A partition is offline, or differs from the ledger.
    """
    try:
        with commits.exclusive():
            if not commits.lock.is_last():
                raise LogLockedError(
                    f"{commits.home} is open elsewhere, or in this process: end its queries, "
                    "services and other writers, then repeat the call"
                )
            if not _is_whole(commits):
                missing = ", ".join(map(str, sorted(commits.offline))) or "a partition"
                raise InvalidRequestError(
                    f"{commits.home}: {missing} isn't complete (`sparklog verify` reports why): "
                    "mount or restore the missing files, or give them up by "
                    "`sparklog verify --give-up`"
                )
            _leave_durable(commits)
            # Before the clean mark: if `give` fails, no broker may find a log that looks handed
            # over.
            give()
            mark_closed(commits.fs, commits.present)
    finally:
        commits.release()


def _is_whole(commits: LogDirCommits) -> bool:
    """Return True if every partition is as in the ledger; otherwise recovery is needed."""
    if commits.offline:
        return False
    for topic, partition in commits.state.ends:
        if not is_partition_whole(commits, topic, partition):
            path = commits.partition_path(topic, partition)
            _LOGGER.warning("%s: differs from the ledger, so the log is not closed as clean", path)
            return False
    return True


def is_partition_whole(commits: LogDirCommits, topic: str, partition: int) -> bool:
    """Return True if a partition exists and the last segment has the size in the ledger."""
    if _is_closed(commits, topic, partition):
        return True
    try:
        log = commits.partition_log(topic, partition)
        return log.size_on_disk() == log.state.size
    except (PartitionOfflineError, FileNotFoundError):
        return False


def _is_closed(commits: LogDirCommits, topic: str, partition: int) -> bool:
    """Return True if a partition has a valid producer snapshot at the end, as after a clean close.

    Then the partition was not changed since the close.
    """
    end = commits.state.ends[TopicPartition(topic, partition)]
    path = os.path.join(commits.partition_path(topic, partition), snapshot_name(end))
    return end > 0 and is_whole(commits.fs, path)


def _leave_durable(commits: LogDirCommits) -> None:
    # With flush=none, the data may still be in the page cache only. A broker trusts the clean mark
    # and does not check the files again.
    commits.make_durable()
    fs, state = commits.fs, commits.state
    for topic, partition in state.ends:
        if not _is_closed(commits, topic, partition):
            commits.partition_log(topic, partition).close()
    commits.ledger.log.delete_records(ledger_bases(fs, commits.home)[0])  # older segments expired
    commits.ledger.log.close()
    write_state_copy(fs, commits.home, commits.ledger.end, state)
    absent = commits.offline.dirs.absent
    write_checkpoints(fs, commits.directories, state, commits.ledger.end, absent=absent)
    publish_all(commits.manager)


def write_checkpoints(
    fs: FileSystem,
    directories: Sequence[str],
    state: LogState,
    ledger_end: int,
    *,
    absent: Collection[int] = (),
) -> None:
    """Write Kafka's checkpoint files of all log dirs, as after a clean stop.

    `absent` has the numbers of unavailable log dirs, which contain no partitions.
    """
    for number, directory in enumerate(directories):
        if number in absent:
            continue
        ends = {key: end for key, end in state.ends.items() if _dir_of(state, key) == number}
        if not number:
            ends[LEDGER] = ledger_end
        for name, offsets in closed_offsets(ends, state.starts).items():
            write_offsets(fs, directory, name, offsets)


def _dir_of(state: LogState, key: TopicPartition) -> int:
    return state.topics[key.topic].dirs[key.partition]
