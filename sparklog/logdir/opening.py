"""Opens a log dir for writing: a new one, one closed cleanly, one left open, a broker's.

Without the guard nobody of us had the log open, so what lies there is either just as our last
clean close left it, or a broker's work since. Then its own rules say where the logs end, and the
ledger takes that over in one `adopt` record. Source: PROTOCOL, "Open for writing" and "Close".
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
from sparklog.logdir.offline_partitions import leave_brokers, stored_metadata, why_foreign
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
"""Requests of earlier versions, which moved partitions beside writers, and the lock of a mover."""
_LOSSES: Final = (
    "the configurations of topics, the log starts of tiered topics, the deleted topics that can be "
    "given back, and the writers' last micro-batches, so that a restarted query may write twice"
)


def open_session(
    fs: FileSystem,
    clock: Clock,
    directories: Sequence[str],
    options: LogOptions,
    *,
    news: bool = True,
) -> LogDirCommits:
    """Open a log for writing; make it where the first directory is missing or empty.

    Args: news: whether it is to be told that a broker's directory was taken over.
    Raises: LogLockedError where a broker runs or another process is busy for too long;
    InvalidRequestError on a file system without sound locks; DataCorruptionError if the ledger
    itself is damaged (a damaged partition only goes offline).
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
            session.dirs = session.read_dirs()  # somebody else may have opened it meanwhile
            if short := below_floor(session):  # before anything is written
                make_room(fs, [one.directory for one in short])
            _enter(session, news=news)
        session.moving = _move
        return session
    except BaseException:
        for file in brokers_out:
            file.close()
        if session is not None:
            session.release()
        raise


def clear_up(session: LogDirCommits) -> None:
    """Remove what nobody needs: stale staged files; deleted ones, and topics, that had their delay.

    Moves of partitions that an earlier version of sparklog left unfinished are cancelled.
    Whoever opens a log for writing does so; a service does it in its rounds, and reports it.
    """
    now_ms = session.clock()
    sweep_chunks(session.fs, session.present, now_ms=now_ms)
    with session.exclusive():
        unlink_due(session, now_ms=now_ms)
        settle_directories(session)  # who was to remove what is out of use may have died
        for name in _ONLINE_MOVES:
            with contextlib.suppress(FileNotFoundError):
                session.fs.unlink(os.path.join(session.home, name))
        due = any(one.until_ms <= now_ms for one in session.state.deleted.values())
    if due:
        purge_topics(session, lambda one: one.until_ms <= now_ms)


def _enter(session: LogDirCommits, *, news: bool) -> None:
    """Take over what lies there, under the lock."""
    if is_marked_open(session.fs, session.home):
        _check_ledger(session)
        leave_brokers(session.fs, session.directories, session.dirs)
        mark_open(session.fs, session.present)  # the others' too, if we died in between
        session.refresh()
        repair_topics_file(session)
        _look_for_partitions(session)
    else:
        restored = _has_ledger(session) and session.lock.is_foreign()
        _take_over(session, news=news)
        if restored and session.ledger.end > 1:  # a fork has begun one, by its only record
            session.begin_history()
    session.dirs = claim_dirs(session.fs, session.directories, session.dirs)
    _check_brokers_out(session.brokers_out)


def _move(session: LogDirCommits) -> None:
    """Go on in a log dir that was replaced under an open log, as if it were opened anew.

    Raises LogReplacedError unless it is the same log, and holds all that this session knows of.
    """
    check_same(session.fs, session.home, session.ledger.end, session.state)
    is_first, session.lock.replaced = session.lock.replaced, True  # till all is done
    for file in session.brokers_out:
        file.close()
    session.brokers_out[:] = []
    session.dirs = session.read_dirs()
    session.brokers_out[:] = lock_out_brokers(session.fs, session.present)
    session.forget()
    _enter(session, news=True)
    if not is_first:  # the page, which is in the first log dir, knows nothing of it
        log_recovery.full(session)
    session.lock.replaced = False
    _LOGGER.warning(
        "%s was replaced while it was open; all that was committed is there, going on in it",
        ", ".join(session.directories),
    )


def _make_dir(fs: FileSystem, directory: str) -> None:
    with contextlib.suppress(FileExistsError):
        try:
            fs.mkdir(directory)
        except FileNotFoundError:
            raise InvalidRequestError(
                f"{directory} can't be made, for {os.path.dirname(directory)} does not exist: "
                "correct the path, or make that directory first"
            ) from None
    if not fs.is_dir(directory):
        raise InvalidRequestError(f"{directory} is a file: give a directory for the log")


def _has_ledger(session: LogDirCommits) -> bool:
    return session.fs.is_dir(ledger_path(session.home))


def _take_over(session: LogDirCommits, *, news: bool) -> None:
    """Start from a directory that no session of ours has open."""
    fs, home = session.fs, session.home
    page = session.lock.read()
    generation = max(0 if page is None else page.generation, session.clock() * 1000)
    own = session.dirs.own(session.directories)
    clean = was_clean(fs, own)
    end = _ledger_end(session)
    session.state = LogState()
    if end:
        # Who made the ledger, or adopted, may have died before its fsync: see make_durable.
        make_durable(fs, home, end - 1)
        fs.sync_dir(home)
        fold(fs, home, end, state=session.state, first=None)
        session.reload(end, generation=generation, fresh=True)
        _check_dirs(session)
        found = _partitions(session)
        _leave_others(session, found)
        ours = was_closed_by_us(fs, own)
        leave_missing(session, found, ours=ours)
        if ours:
            remove_tails(session, [key for key in found if _is_in_place(session, key, found[key])])
        if not (ours and is_unchanged(session, found)):
            adopt(session, found, clean=clean, news=news)
    else:
        found = _partitions(session)
        _leave_others(session, found)
        _refuse_foreign(session)
        _make_ledger(session, generation)
        if found:
            adopt(session, found, clean=clean, news=news)
    redo_all(session, None)
    publish_all(session)
    session.idle()  # before the guard: without it nobody believes the page
    mark_open(fs, session.present)


def _is_in_place(session: LogDirCommits, key: TopicPartition, number: int) -> bool:
    return key not in session.offline and _place_known(session, key) == number


def _look_for_partitions(session: LogDirCommits) -> None:
    """Look whether all that the ledger knows is there; what is damaged may be whole again."""
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
    """Refuse a list whose first log dir isn't the one with the ledger, before a second is made.

    And a directory that is a store, in which a log has its home, or a checkpoint's log.
    """
    for directory in directories:
        if fs.is_dir(directory) and is_store_home(fs, directory):
            raise InvalidRequestError(
                f"{directory} is the home of a log in a store: open it by file://{directory} alone"
            )
    if is_checkpoint_log(fs, directories[0]):
        raise InvalidRequestError(
            f"{directories[0]} is the log of a query's checkpoint, to which that query alone "
            "writes: open it for reading, and change it by `sparklog checkpoint`; nothing was "
            "written"
        )
    for directory in directories[1:]:
        if fs.is_dir(ledger_path(directory)) or fs.exists(os.path.join(directory, LOCK_NAME)):
            raise InvalidRequestError(
                f"{directory} holds a log of its own: it must be the first of the log dirs "
                f"({', '.join(directories)})"
            )


def _check_dirs(session: LogDirCommits) -> None:
    """Refuse log dirs in another order while the guard stands, and not all of them ever."""
    fs, directories = session.fs, session.directories
    guarded = is_marked_open(fs, session.home)
    for name, topic in session.state.topics.items():
        for partition, number in topic.dirs.items():
            known = number < len(directories)
            if known and fs.is_dir(partition_path(directories, name, topic, partition)):
                continue
            elsewhere = (os.path.join(there, f"{name}-{partition}") for there in session.present)
            if not known or (guarded and any(map(fs.is_dir, elsewhere))):
                key = TopicPartition(name, partition)
                raise LogDirUnnamedError(key, number, session.dirs.place(directories, number))


def _check_brokers_out(held: Sequence[LockFile]) -> None:
    for file in held:
        if not file.is_current():  # a stopping broker unlinked it, and another may start on it
            raise LogLockedError(f"{file.path} was removed by a stopping broker; open again")


def _partitions(session: LogDirCommits) -> dict[TopicPartition, int]:
    """Return {(topic, partition): number of its log dir} of everything that lies there."""
    found: dict[TopicPartition, int] = {}
    for number, directory in session.dirs.numbered(session.directories):
        for name in session.fs.listdir(directory):
            key = parse_partition_dir(name)
            if key is None or key.topic in INTERNAL - {REMOTE_METADATA}:
                continue
            if not session.fs.is_dir(os.path.join(directory, name)):
                continue
            if key in found:
                at = _place_known(session, key)
                if at is None or at not in (found[key], number):
                    raise InvalidRequestError(
                        f"{name} lies in two log dirs, {session.directories[found[key]]} and "
                        f"{directory}: move one of them away"
                    )
                found[key] = at  # the other is a stray: it was away when its range was given up
                continue
            found[key] = number
    return found


def _place_known(session: LogDirCommits, key: TopicPartition) -> int | None:
    """The number of the log dir where the ledger has a partition; None if it doesn't know it."""
    topic = session.state.topics.get(key.topic)
    return None if topic is None else topic.dirs.get(key.partition)


def _leave_others(session: LogDirCommits, found: dict[TopicPartition, int]) -> None:
    """Take what is not ours to take over out of `found`.

    A broker's metadata of remote storage, what only has a partition's name (a checkpoint-1), and a
    copy of another partition of a topic of ours.
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


def _refuse_foreign(session: LogDirCommits) -> None:
    """A broker stops at a subdirectory that is no partition, so a new log doesn't begin in one."""
    fs = session.fs
    for directory in session.present:
        for name in fs.listdir(directory):
            if name.endswith(("-delete", "-stray", "-future")) or parse_partition_dir(name):
                continue
            if name not in (OPEN_MARKER_NAME, "lost+found") and fs.is_dir(
                os.path.join(directory, name)
            ):
                raise InvalidRequestError(
                    f"{directory} is no log dir: it holds the directory {name}, which Kafka would "
                    "not accept beside partitions; choose an empty directory"
                )


def _ledger_end(session: LogDirCommits) -> int:
    """Return the ledger's end; 0 if there is none (or one that was never finished).

    Raises: DataCorruptionError: the ledger is missing or damaged, while files of ours are there.
    """
    fs, home = session.fs, session.home
    if _has_ledger(session):
        own = session.dirs.own(session.directories)
        if has_own_files(fs, home) or (ledger_bases(fs, home) and whole_end(fs, home)):
            return checked_end(fs, home, lambda: committed_ledger_end(fs, home, own))
        remove_tree(fs, ledger_path(home))  # the creation of this log was cut
    elif has_own_files(fs, home):
        raise DataCorruptionError(
            "the commit ledger is missing. Taking the partitions over without it, as a broker's, "
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
