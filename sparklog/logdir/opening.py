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
    LEDGER_TOPIC,
    Ledger,
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


def open_session(
    fs: FileSystem,
    clock: Clock,
    directories: Sequence[str],
    options: LogOptions,
    *,
    news: bool = True,
) -> LogDirCommits:
    """Open a log for writing. Create the log if the first directory is missing or empty.

    `news`: log a message if a broker's directory is adopted.
    Raises: LogLockedError: a broker runs, or another process is busy for too long;
    InvalidRequestError: the file system has no reliable locks; DataCorruptionError: the ledger is
    damaged (a damaged partition only goes offline).
    """
    check_writable(directories)
    dirs = find_dirs(fs, directories)
    for directory in dirs.present(directories):
        if not fs.is_dir(directory):
            _make_dir(fs, directory)
            fs.sync_dir(os.path.dirname(directory))
        check_file_system(fs, directory)
    check_distinct(fs, dirs.present(directories))
    _check_first(fs, directories)
    brokers_out: list[LockFile] = lock_out_brokers(fs, dirs.present(directories))
    session: LogDirCommits | None = None
    try:
        session = LogDirCommits(fs, clock, list(directories), options, brokers_out)
        session.dirs = dirs
        session.lock.join()
        with session.hold_lock():
            session.dirs = session.read_dirs()  # another process may have opened it since
            if short := below_floor(session):  # before anything is written
                make_room(fs, [shortage.directory for shortage in short])
            _open_locked(session, news=news)
        session.moving = _reopen_replaced
        return session
    except BaseException:
        for file in brokers_out:
            file.close()
        if session is not None:
            session.release()
        raise


def clear_up(session: LogDirCommits) -> None:
    """Remove expired files: staged files, deleted files and deleted topics after their delay.

    Unfinished moves of partitions by an earlier version of sparklog are cancelled. Called by each
    process that opens a log for writing. A service does it in its rounds, and reports it.
    """
    now_ms = session.clock()
    sweep_chunks(session.fs, session.present, now_ms=now_ms)
    with session.exclusive():
        unlink_due(session, now_ms=now_ms)
        settle_directories(session)  # the process that had to remove them may have died
        for name in _ONLINE_MOVES:
            with contextlib.suppress(FileNotFoundError):
                session.fs.unlink(os.path.join(session.home, name))
        due = any(topic.until_ms <= now_ms for topic in session.state.deleted.values())
    if due:
        purge_topics(session, lambda topic: topic.until_ms <= now_ms)


def _open_locked(session: LogDirCommits, *, news: bool) -> None:
    """Open the log dir under the lock, after a recovery if it was not closed cleanly."""
    if is_marked_open(session.fs, session.home):
        _check_ledger(session)
        exclude_broker_dirs(session.fs, session.directories, session.dirs)
        mark_open(session.fs, session.present)  # the others' too, after a crash in between
        session.refresh()
        repair_topics_file(session)
        _check_partitions(session)
    else:
        restored = _has_ledger(session) and session.lock.is_foreign()
        _open_closed(session, news=news)
        if restored and session.ledger.end > 1:  # a fork already has a new epoch
            session.begin_history()
    session.dirs = claim_dirs(session.fs, session.directories, session.dirs)
    _check_brokers_out(session.brokers_out)


def _reopen_replaced(session: LogDirCommits) -> None:
    """Continue in a log dir that was replaced under an open log, as if the log were reopened.

    Raises: LogReplacedError: another log, or records that this session knows are missing.
    """
    check_same(session.fs, session.home, session.ledger.end, session.state)
    is_first, session.lock.replaced = session.lock.replaced, True  # until all is done
    for file in session.brokers_out:
        file.close()
    session.brokers_out[:] = []
    session.dirs = session.read_dirs()
    session.brokers_out[:] = lock_out_brokers(session.fs, session.present)
    session.forget()
    _open_locked(session, news=True)
    if not is_first:  # the page of the first log dir is unaware of it
        log_recovery.full(session)
    session.lock.replaced = False
    _LOGGER.warning(
        "%s was replaced while it was open; it contains all commits, so writing continues there",
        ", ".join(session.directories),
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
        raise InvalidRequestError(f"{directory} is a file: give a directory for the log")


def _has_ledger(session: LogDirCommits) -> bool:
    return session.fs.is_dir(ledger_path(session.home))


def _open_closed(session: LogDirCommits, *, news: bool) -> None:
    """Open a directory that no session of sparklog has open."""
    fs, home = session.fs, session.home
    page = session.lock.read()
    generation = max(0 if page is None else page.generation, session.clock() * 1000)
    own = session.dirs.own(session.directories)
    clean = was_clean(fs, own)
    end = _ledger_end(session)
    session.state = LogState()
    if end:
        # A crash may have prevented the fsync of the last record: see make_durable.
        make_durable(fs, home, end - 1)
        fs.sync_dir(home)
        fold(fs, home, end, state=session.state, first=None)
        session.reload(end, generation=generation, fresh=True)
        _check_dirs(session)
        found = _partitions(session)
        _skip_foreign_directories(session, found)
        ours = was_closed_by_us(fs, own)
        leave_missing(session, found, ours=ours)
        if ours:
            remove_tails(session, [key for key in found if _is_in_place(session, key, found[key])])
        if not (ours and is_unchanged(session, found)):
            adopt(session, found, clean=clean, news=news)
    else:
        found = _partitions(session)
        _skip_foreign_directories(session, found)
        _check_subdirectories(session)
        _make_ledger(session, generation)
        if found:
            adopt(session, found, clean=clean, news=news)
    redo_all(session, None)
    publish_all(session)
    session.idle()  # before the guard: without it the page is ignored
    mark_open(fs, session.present)


def _is_in_place(session: LogDirCommits, key: TopicPartition, number: int) -> bool:
    return key not in session.offline and _number_in_ledger(session, key) == number


def _check_partitions(session: LogDirCommits) -> None:
    """Check that all partitions exist; damaged partitions are recovered if possible."""
    _check_dirs(session)
    first = session.lock.is_last()
    damaged = [key for key in session.offline if key in session.state.ends] if first else []
    for key in damaged:
        if session.missing(key) is None:
            del session.offline[key]
            recover_partition(session, key, recovery_points(session))
    if session.note_missing(segments=first) or damaged:
        session.idle()


def _check_ledger(session: LogDirCommits) -> None:
    if not _has_ledger(session):
        raise DataCorruptionError(
            "the commit ledger is missing, though the log was not closed. Without the ledger, the "
            f"log would lose {_LOSSES}. {REBUILDS_LEDGER}",
            path=ledger_path(session.home),
        )


def _check_first(fs: FileSystem, directories: Sequence[str]) -> None:
    """Reject log dirs in a wrong order before a second log is created.

    Also reject a directory that is a log's bucket, or a checkpoint's log.
    """
    for directory in directories:
        if fs.is_dir(directory) and is_store_home(fs, directory):
            raise InvalidRequestError(
                f"{directory} is the home of a log in a store: open it by file://{directory} alone"
            )
    if is_checkpoint_log(fs, directories[0]):
        raise InvalidRequestError(
            f"{directories[0]} is the log of a query's checkpoint, to which only that query "
            "writes: open it for reading, and change it by `sparklog checkpoint`; nothing was "
            "written"
        )
    for directory in directories[1:]:
        if fs.is_dir(ledger_path(directory)) or fs.exists(os.path.join(directory, LOCK_NAME)):
            raise InvalidRequestError(
                f"{directory} contains its own log: it must be the first of the log dirs "
                f"({', '.join(directories)})"
            )


def _check_dirs(session: LogDirCommits) -> None:
    """Reject missing log dirs, and while the guard exists, log dirs in another order."""
    fs, directories = session.fs, session.directories
    guarded = is_marked_open(fs, session.home)
    for name, topic in session.state.topics.items():
        for partition, number in topic.dirs.items():
            known = number < len(directories)
            if known and fs.is_dir(partition_path(directories, name, topic, partition)):
                continue
            elsewhere = (os.path.join(path, f"{name}-{partition}") for path in session.present)
            if not known or (guarded and any(map(fs.is_dir, elsewhere))):
                key = TopicPartition(name, partition)
                raise LogDirUnnamedError(key, number, session.dirs.place(directories, number))


def _check_brokers_out(locks: Sequence[LockFile]) -> None:
    for file in locks:
        if not file.is_current():  # a stopping broker unlinked it, so another may start
            raise LogLockedError(f"{file.path} was removed by a stopping broker; open again")


def _partitions(session: LogDirCommits) -> dict[TopicPartition, int]:
    """Return {(topic, partition): number of its log dir} of all partition directories."""
    found: dict[TopicPartition, int] = {}
    for number, directory in session.dirs.numbered(session.directories):
        for name in session.fs.listdir(directory):
            key = parse_partition_dir(name)
            if key is None or key.topic in INTERNAL - {REMOTE_METADATA}:
                continue
            if not session.fs.is_dir(os.path.join(directory, name)):
                continue
            if key in found:
                at = _number_in_ledger(session, key)
                if at is None or at not in (found[key], number):
                    raise InvalidRequestError(
                        f"{name} is in two log dirs, {session.directories[found[key]]} and "
                        f"{directory}: move one of them away"
                    )
                found[key] = at  # the other is a stray: absent when its range was given up
                continue
            found[key] = number
    return found


def _number_in_ledger(session: LogDirCommits, key: TopicPartition) -> int | None:
    """Return the number of a partition's log dir in the ledger, if known."""
    topic = session.state.topics.get(key.topic)
    return None if topic is None else topic.dirs.get(key.partition)


def _skip_foreign_directories(session: LogDirCommits, found: dict[TopicPartition, int]) -> None:
    """Remove directories that are not partitions of this log from `found`.

    These are a broker's metadata of remote storage, directories that only have a partition's name
    (such as checkpoint-1), and copies of another partition of the same topic.
    """
    for key in found.keys() - session.state.ends.keys():
        place = os.path.join(session.directories[found[key]], partition_dir(*key))
        if (
            key.topic == REMOTE_METADATA
            or not is_partition(session.fs, place)
            or (key.topic in session.state.topics and _is_copy(session, key, place))
        ):
            del found[key]


def _is_copy(session: LogDirCommits, key: TopicPartition, place: str) -> bool:
    try:
        return why_foreign(stored_metadata(session.fs, place), key, None) is not None
    except DataCorruptionError:
        return False


def _check_subdirectories(session: LogDirCommits) -> None:
    """Reject a new log in a directory with subdirectories that a broker could not load."""
    fs = session.fs
    for directory in session.present:
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


def _ledger_end(session: LogDirCommits) -> int:
    """Return the ledger's end; 0 if there is no ledger (or an incomplete new ledger).

    Raises: DataCorruptionError: the ledger is missing or damaged, but sparklog's files exist.
    """
    fs, home = session.fs, session.home
    if _has_ledger(session):
        own = session.dirs.own(session.directories)
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


def _make_ledger(session: LogDirCommits, generation: int) -> None:
    log = PartitionLog.create(
        session.fs,
        ledger_path(session.home),
        topic=LEDGER_TOPIC,
        partition=0,
        topic_id=new_topic_id(),
        config=ledger_config(),
        clock=session.clock,
    )
    log.sync()
    session.fs.sync_dir(session.home)
    session.ledger = Ledger(log)
    session.ledger.append(session.state.snapshot(), epoch=0, time_ms=session.clock(), sync=True)
    session.reload(session.ledger.end, generation=generation, fresh=True)
