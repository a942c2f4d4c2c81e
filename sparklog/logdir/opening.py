"""Opens a log dir for writing: new, closed cleanly, not closed, or written by a broker.

Without the guard no session of sparklog had the log open. Then the log dir is either unchanged
since sparklog's last clean close, or a broker has written to it. In the second case Kafka's rules
define where the logs end, and the ledger records that in an `adopt` record. Source: PROTOCOL, "Open
for writing" and "Close".
"""

import contextlib
import logging
import os
from collections.abc import Sequence
from typing import Final

from sparklog.clock import Clock
from sparklog.common import TopicPartition
from sparklog.config import LogOptions
from sparklog.errors import DataCorruptionError, InvalidRequestError, LogLockedError
from sparklog.format.names import parse_partition_dir, partition_dir
from sparklog.fs import FileSystem, LockFile
from sparklog.log.admin import purge_topics
from sparklog.log.topic_names import INTERNAL, REMOTE_METADATA, new_topic_id
from sparklog.logdir.adoption import adopt, is_unchanged, leave_missing
from sparklog.logdir.broker_lockout import (
    OPEN_MARKER_NAME,
    check_file_system,
    is_marked_open,
    lock_out_brokers,
    mark_open,
    was_clean,
    was_closed_by_us,
)
from sparklog.logdir.chunk_files import sweep_chunks
from sparklog.logdir.commit_log import LogDirCommits
from sparklog.logdir.deleted_files import make_room, unlink_due
from sparklog.logdir.detection import has_own_files, is_checkpoint_log, is_store_home
from sparklog.logdir.free_space import below_floor
from sparklog.logdir.ledger import (
    LEDGER,
    LedgerWriter,
    fold,
    ledger_bases,
    ledger_config,
    ledger_path,
    whole_end,
)
from sparklog.logdir.ledger_end import checked_end
from sparklog.logdir.lock import LOCK_NAME
from sparklog.logdir.log_dir_identity import check_same
from sparklog.logdir.log_dirs import LogDirUnnamedError, claim_dirs, find_dirs
from sparklog.logdir.log_manager import LogManager
from sparklog.logdir.offline_partitions import exclude_broker_dirs, stored_metadata, why_foreign
from sparklog.logdir.partition.directories import remove_tree
from sparklog.logdir.partition.partition_log import PartitionLog
from sparklog.logdir.paths import check_distinct, check_writable
from sparklog.logdir.recovery import log_recovery
from sparklog.logdir.recovery.log_recovery import make_durable
from sparklog.logdir.recovery.redo import (
    publish_all,
    redo_all,
    repair_topics_file,
    settle_directories,
)
from sparklog.logdir.recovery.single_partition import recover_partition, recovery_points
from sparklog.logdir.repair_advice import REBUILDS_LEDGER
from sparklog.logdir.segment_files import is_partition
from sparklog.logdir.topics_file import partition_path
from sparklog.logdir.uncommitted_tails import committed_ledger_end, remove_tails
from sparklog.storage.log_state import LogState

_LOGGER: Final = logging.getLogger(__name__)
_ONLINE_MOVES: Final = ("sparklog.moves", "sparklog.moving")
"""Files of earlier versions, which moved partitions while writers ran: requests, and a lock."""
_LOSSES: Final = (
    "the configurations of topics, the log starts of tiered topics, the deleted topics that can be "
    "restored, and the writers' last micro-batches, so that a restarted query may write twice"
)


def open_commits(
    fs: FileSystem,
    clock: Clock,
    directories: Sequence[str],
    options: LogOptions,
    *,
    news: bool = True,
) -> LogDirCommits:
    """Open a log for writing. Create the log if the first directory is missing or empty.

    Args:
        fs: The file system.
        clock: The clock.
        directories: The log dirs, in the order in which the log was created.
        options: The log's options.
        news: Log a warning, not only a debug message, if a broker's directory is adopted.

    Raises:
        LogLockedError: A broker runs, or another process is busy for too long.
        InvalidRequestError: The file system has no reliable locks.
        DataCorruptionError: The ledger is damaged. (A damaged partition only goes offline.)
    """
    check_writable(directories)
    dirs = find_dirs(fs, directories)
    for directory in dirs.present:
        if not fs.is_dir(directory):
            _make_dir(fs, directory)
            fs.sync_dir(os.path.dirname(directory))
        check_file_system(fs, directory)
    check_distinct(fs, dirs.present)
    _check_first(fs, directories)
    # Before any file is read: from here on no broker can start on these directories and change them
    # while they are examined.
    brokers_out: list[LockFile] = lock_out_brokers(fs, dirs.present)
    commits: LogDirCommits | None = None
    try:
        commits = LogDirCommits(LogManager(fs, clock, list(directories), options, brokers_out))
        commits.offline.dirs = dirs
        commits.lock.join()
        with commits.hold_lock():
            commits.offline.read_dirs()  # another process may have opened it since
            if short := below_floor(commits.manager):  # before anything is written
                make_room(fs, [shortage.directory for shortage in short])
            _open_locked(commits, news=news)
        # Set last: as long as the log is being opened, nothing is cached that a replaced directory
        # could contradict.
        commits.moving = _reopen_replaced
        return commits
    except BaseException:
        for file in brokers_out:
            file.close()
        if commits is not None:
            commits.release()
        raise


def clear_up(commits: LogDirCommits) -> None:
    """Remove expired files: staged files, deleted files and deleted topics after their delay.

    Unfinished moves of partitions by an earlier version of sparklog are cancelled. Each process
    that opens a log for writing calls this. A service does the same in its rounds, and reports it.
    """
    now_ms = commits.clock()
    sweep_chunks(commits.fs, commits.present, now_ms=now_ms)
    with commits.exclusive():
        unlink_due(commits.manager, now_ms=now_ms)
        settle_directories(commits.manager)  # the process that had to remove them may have died
        for name in _ONLINE_MOVES:
            with contextlib.suppress(FileNotFoundError):
                commits.fs.unlink(os.path.join(commits.home, name))
        due = any(topic.until_ms <= now_ms for topic in commits.state.deleted.values())
    if due:
        purge_topics(commits, lambda topic: topic.until_ms <= now_ms)


def _open_locked(commits: LogDirCommits, *, news: bool) -> None:
    """Open the log dir under the lock, after a recovery if it was not closed cleanly.

    `news`: log a warning, not only a debug message, if a broker's directory is adopted.
    """
    if is_marked_open(commits.fs, commits.home):
        _check_ledger(commits)
        exclude_broker_dirs(commits.fs, commits.offline.dirs)
        # A broker would not start on a dir with a guard, so all dirs get theirs before any file is
        # changed by a recovery.
        mark_open(commits.fs, commits.present)  # the others' too, after a crash in between
        commits.refresh()
        repair_topics_file(commits.manager)
        _check_partitions(commits)
    else:
        # Ask before `_open_closed`, which writes a new page and so removes the evidence.
        restored = _has_ledger(commits) and commits.lock.is_foreign()
        _open_closed(commits, news=news)
        if restored and commits.ledger.end > 1:  # a fork already has a new epoch
            commits.begin_history()
    commits.offline.dirs = claim_dirs(commits.fs, commits.offline.dirs)
    for file in commits.manager.brokers_out:
        if not file.is_current():  # a stopping broker unlinked it, so another may start
            raise LogLockedError(f"{file.path} was removed by a stopping broker; open again")


def _reopen_replaced(commits: LogDirCommits) -> None:
    """Continue in a log dir that was replaced under an open log, as if the log were reopened.

    This is possible if the new directory has the same log, for example restored from a copy.

    Raises:
        LogReplacedError: The directory contains another log, or lacks records that this session has
            read or written.
    """
    check_same(commits.fs, commits.home, commits.ledger.end, commits.state)
    is_first, commits.lock.replaced = commits.lock.replaced, True  # until all is done
    for file in commits.manager.brokers_out:
        file.close()
    commits.manager.brokers_out[:] = []
    commits.offline.read_dirs()
    commits.manager.brokers_out[:] = lock_out_brokers(commits.fs, commits.present)
    commits.manager.forget()
    _open_locked(commits, news=True)
    if not is_first:  # the page of the first log dir is unaware of it
        log_recovery.full(commits.manager)
    commits.lock.replaced = False
    _LOGGER.warning(
        "%s was replaced while it was open; it contains all commits, so writing continues there",
        ", ".join(commits.directories),
    )


def _make_dir(fs: FileSystem, directory: str) -> None:
    with contextlib.suppress(FileExistsError):
        try:
            fs.mkdir(directory)
        except FileNotFoundError:
            raise InvalidRequestError(
                f"{directory} can't be created, because {os.path.dirname(directory)} does not "
                "exist: correct the path, or create that directory first"
            ) from None
    if not fs.is_dir(directory):
        raise InvalidRequestError(f"{directory} is a file: use the path of a directory for the log")


def _has_ledger(commits: LogDirCommits) -> bool:
    return commits.fs.is_dir(ledger_path(commits.home))


def _open_closed(commits: LogDirCommits, *, news: bool) -> None:
    """Open a log that is new, was closed cleanly, or was written by a broker; create the guards.

    `news`: log a warning, not only a debug message, if a broker's directory is adopted.
    """
    fs, home = commits.fs, commits.home
    page = commits.lock.read()
    # Readers cache by generation. A page without a usable generation (another boot, a copy) must
    # not lead to a number that was used before, so the time in microseconds is the minimum.
    generation = max(0 if page is None else page.generation, commits.clock() * 1000)
    own = commits.offline.dirs.own
    clean = was_clean(fs, own)
    end = _ledger_end(commits)
    commits.manager.state = LogState()
    if end:
        # A crash may have prevented the fsync of the last record: see make_durable.
        make_durable(fs, home, end - 1)
        fs.sync_dir(home)
        fold(fs, home, end, state=commits.state, first=None)
        commits.manager.reload(end, generation=generation, fresh=True)
        _check_dirs(commits)
        found = _partitions(commits)
        _skip_foreign_directories(commits, found)
        ours = was_closed_by_us(fs, own)
        leave_missing(commits, found, ours=ours)
        if ours:
            # Only after sparklog's own close: after a broker's, bytes behind the known ends are its
            # records.
            remove_tails(commits, [key for key in found if _is_in_place(commits, key, found[key])])
        if not (ours and is_unchanged(commits, found)):
            adopt(commits, found, clean=clean, news=news)
    else:
        found = _partitions(commits)
        _skip_foreign_directories(commits, found)
        _check_subdirectories(commits)
        _make_ledger(commits, generation)
        if found:
            adopt(commits, found, clean=clean, news=news)
    # The state may come from a ledger whose last effects a crash prevented, such as renames of a
    # dropped topic's directories.
    redo_all(commits.manager, None)
    publish_all(commits.manager)
    commits.manager.idle()  # before the guard: without it the page is ignored
    mark_open(fs, commits.present)


def _is_in_place(commits: LogDirCommits, key: TopicPartition, number: int) -> bool:
    return key not in commits.offline and _number_in_ledger(commits, key) == number


def _check_partitions(commits: LogDirCommits) -> None:
    """Take missing partitions offline, and try to recover damaged partitions.

    Damaged partitions are recovered only if no other session has the log open.
    """
    _check_dirs(commits)
    # Listings and recovery attempts take time, and the open sessions have already made them.
    first = commits.lock.is_last()
    damaged = [key for key in commits.offline if key in commits.state.ends] if first else []
    for key in damaged:
        if commits.offline.missing(commits.state, key) is None:
            del commits.offline[key]
            recover_partition(commits.manager, key, recovery_points(commits.manager))
    if commits.offline.note_missing(commits.state, segments=first) or damaged:
        commits.manager.idle()


def _check_ledger(commits: LogDirCommits) -> None:
    if not _has_ledger(commits):
        raise DataCorruptionError(
            "the commit ledger is missing, though the log was not closed. Without the ledger, the "
            f"log would lose {_LOSSES}. {REBUILDS_LEDGER}",
            path=ledger_path(commits.home),
        )


def _check_first(fs: FileSystem, directories: Sequence[str]) -> None:
    """Raise InvalidRequestError if the first directory can't be the first log dir of a log.

    That is the case if another of the directories contains a log, or if it is the log dir of a
    checkpoint. No directory may be the bucket of a log.
    """
    for directory in directories:
        if fs.is_dir(directory) and is_store_home(fs, directory):
            raise InvalidRequestError(
                f"{directory} is the bucket of a log: open it as file://{directory}, alone"
            )
    if is_checkpoint_log(fs, directories[0]):
        raise InvalidRequestError(
            f"{directories[0]} is the log of a query's checkpoint, and only that query may "
            "write to it: open it for reading, and change it by `sparklog checkpoint`"
        )
    for directory in directories[1:]:
        if fs.is_dir(ledger_path(directory)) or fs.exists(os.path.join(directory, LOCK_NAME)):
            raise InvalidRequestError(
                f"{directory} contains its own log: it must be the first of the log dirs "
                f"({', '.join(directories)})"
            )


def _check_dirs(commits: LogDirCommits) -> None:
    """Raise LogDirUnnamedError if partitions are in log dirs that the path does not name.

    While the guard exists, log dirs in another order are rejected too.
    """
    fs, directories = commits.fs, commits.directories
    guarded = is_marked_open(fs, commits.home)
    for name, topic in commits.state.topics.items():
        for partition, number in topic.dirs.items():
            known = number < len(directories)
            if known and fs.is_dir(partition_path(directories, name, topic, partition)):
                continue
            elsewhere = (os.path.join(path, f"{name}-{partition}") for path in commits.present)
            if not known or (guarded and any(map(fs.is_dir, elsewhere))):
                key = TopicPartition(name, partition)
                raise LogDirUnnamedError(key, number, commits.offline.dirs.place(number))


def _partitions(commits: LogDirCommits) -> dict[TopicPartition, int]:
    """Return {(topic, partition): number of its log dir} of all partition directories."""
    found: dict[TopicPartition, int] = {}
    for number, directory in commits.offline.dirs.numbered:
        for name in commits.fs.listdir(directory):
            key = parse_partition_dir(name)
            if key is None or key.topic in INTERNAL - {REMOTE_METADATA}:
                continue
            if not commits.fs.is_dir(os.path.join(directory, name)):
                continue
            if key in found:
                at = _number_in_ledger(commits, key)
                if at is None or at not in (found[key], number):
                    raise InvalidRequestError(
                        f"{name} is in two log dirs, {commits.directories[found[key]]} and "
                        f"{directory}: move the wrong directory away"
                    )
                found[key] = at  # the other is a stray: absent when its range was given up
                continue
            found[key] = number
    return found


def _number_in_ledger(commits: LogDirCommits, key: TopicPartition) -> int | None:
    """Return the number of a partition's log dir in the ledger, if known."""
    topic = commits.state.topics.get(key.topic)
    return None if topic is None else topic.dirs.get(key.partition)


def _skip_foreign_directories(commits: LogDirCommits, found: dict[TopicPartition, int]) -> None:
    """Remove directories that are not partitions of this log from `found`.

    These are a broker's metadata of remote storage, directories that only have a partition's name
    (such as checkpoint-1), and copies of another partition of the same topic.
    """
    for key in found.keys() - commits.state.ends.keys():
        place = os.path.join(commits.directories[found[key]], partition_dir(*key))
        if (
            key.topic == REMOTE_METADATA
            or not is_partition(commits.fs, place)
            or (key.topic in commits.state.topics and _is_copy(commits, key, place))
        ):
            del found[key]


def _is_copy(commits: LogDirCommits, key: TopicPartition, place: str) -> bool:
    try:
        return why_foreign(stored_metadata(commits.fs, place), key, None) is not None
    except DataCorruptionError:
        return False


def _check_subdirectories(commits: LogDirCommits) -> None:
    """Raise InvalidRequestError if a new log dir has a subdirectory that is no partition.

    A broker could not load it.
    """
    fs = commits.fs
    for directory in commits.present:
        for name in fs.listdir(directory):
            if name.endswith(("-delete", "-stray", "-future")) or parse_partition_dir(name):
                continue
            if name not in (OPEN_MARKER_NAME, "lost+found") and fs.is_dir(
                os.path.join(directory, name)
            ):
                raise InvalidRequestError(
                    f"{directory} is no log dir: it contains the directory {name}, which Kafka "
                    "would not accept beside partitions; choose an empty directory"
                )


def _ledger_end(commits: LogDirCommits) -> int:
    """Return the ledger's end; 0 if there is no ledger (or an incomplete new ledger).

    Raises:
        DataCorruptionError: The ledger is missing or damaged, but sparklog's files exist.
    """
    fs, home = commits.fs, commits.home
    if _has_ledger(commits):
        own = commits.offline.dirs.own
        # The topics file and the watermarks are written after the first ledger record. Without
        # them, and without a complete record, no commit can have committed to this ledger.
        if has_own_files(fs, home) or (ledger_bases(fs, home) and whole_end(fs, home)):
            return checked_end(fs, home, lambda: committed_ledger_end(fs, home, own))
        remove_tree(fs, ledger_path(home))  # the creation of this log was interrupted
    elif has_own_files(fs, home):
        raise DataCorruptionError(
            "the commit ledger is missing. Adopting the partitions without it, as a broker's, "
            f"would lose {_LOSSES}. {REBUILDS_LEDGER}",
            path=ledger_path(home),
        )
    return 0


def _make_ledger(commits: LogDirCommits, generation: int) -> None:
    log = PartitionLog.create(
        commits.fs,
        ledger_path(commits.home),
        key=LEDGER,
        topic_id=new_topic_id(),
        config=ledger_config(),
        clock=commits.clock,
    )
    log.sync()
    commits.fs.sync_dir(commits.home)
    commits.manager.ledger = LedgerWriter(log)
    commits.ledger.append(commits.state.snapshot(), epoch=0, time_ms=commits.clock(), sync=True)
    commits.manager.reload(commits.ledger.end, generation=generation, fresh=True)
