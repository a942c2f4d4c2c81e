"""Applies a ledger record's file changes again; idempotent.

These are the watermarks for readers, the topics file, log starts, and the removal of deleted
topics. The ledger record is authoritative, so a process that completes a dead holder's step, or
recovers the log, applies them again.
"""

import contextlib
import logging
import os
import uuid
from typing import Final

from sparklog.common import TopicPartition
from sparklog.errors import DataCorruptionError, StorageUnavailableError
from sparklog.format.checkpoint_files import topic_id_text
from sparklog.format.names import (
    parse_deleted_dir,
    parse_future_dir,
    parse_partition_dir,
    retired_dir,
)
from sparklog.log.topic_names import INTERNAL
from sparklog.logdir.high_watermarks import publish
from sparklog.logdir.ledger import LEDGER
from sparklog.logdir.log_manager import LogManager
from sparklog.logdir.offline_partitions import stored_topic_id
from sparklog.logdir.offset_checkpoints import LOG_START, write_offsets
from sparklog.logdir.partition.directories import is_empty
from sparklog.logdir.recovery.partition_recovery import valid_end
from sparklog.logdir.recovery.single_partition import recover_partition, recovery_points
from sparklog.logdir.segment_files import is_partition, joined, segment_bases
from sparklog.logdir.topics_file import deleted_path, partition_path, read_topics, write_topics
from sparklog.storage.deleted_topic import DeletedTopic
from sparklog.storage.ledger_records import (
    AdoptRecord,
    DropRecord,
    LedgerRecord,
    PurgeRecord,
    SnapshotRecord,
    StartRecord,
    TopicRecord,
    UndeleteRecord,
)

_LOGGER: Final = logging.getLogger(__name__)


def publish_all(manager: LogManager) -> None:
    """Publish the high watermarks and log starts of all partitions to readers.

    They are in one file, which is replaced by a rename.
    """
    end = manager.ledger.end
    # Only a ledger that is completely synced gets a floor. With commits of flush=none a power cut
    # may legitimately take the ledger's tail, and recovery must not report that as damage.
    durable = None if manager.state.unsynced else end
    state = manager.state
    ends = {**state.ends, LEDGER: end}
    publish(manager.fs, manager.home, ends, state.starts, durable=durable)


def redo_record(manager: LogManager, record: LedgerRecord) -> None:
    """Apply the effects of a ledger record to the log's files, except for the high watermarks."""
    match record:
        case SnapshotRecord():
            pass
        case PurgeRecord():
            settle_directories(manager)
        case StartRecord():
            for key, offset in record.starts.items():  # removes epochs below the start
                if key not in manager.offline:
                    manager.partition_log(*key).delete_records(offset)
            write_starts(manager)
        case TopicRecord() | DropRecord() | AdoptRecord():
            # Readers find a moved partition by the topics file, so its new directory must have its
            # final name before that file names the other log dir. The old place goes last.
            moves = isinstance(record, TopicRecord) and bool(record.left)
            if moves:
                complete_moves(manager)
            write_starts(manager)
            write_topics(manager.fs, manager.home, manager.state)
            if isinstance(record, DropRecord):
                settle_directories(manager, gone=record.id)
            elif moves:
                _remove_old_places(manager)
        case UndeleteRecord():
            settle_directories(manager)
            _recover_restored(manager, record.topic)
            write_starts(manager)
            publish_all(manager)  # before the topics file, because its readers need the ends
            write_topics(manager.fs, manager.home, manager.state)


def redo_all(manager: LogManager, record: LedgerRecord | None) -> None:
    """Apply the effects of a record, or of the whole state as after a crash.

    `record` is the only record whose effects may be missing in the files. Without a record, the
    effects of any record may be missing.
    """
    if record is not None:
        redo_record(manager, record)
        return
    complete_moves(manager)
    write_starts(manager)
    if _is_undelete_unfinished(manager):
        publish_all(manager)
    write_topics(manager.fs, manager.home, manager.state)
    # Last: as long as the topics file names a topic, readers expect its directories.
    settle_directories(manager)


def repair_topics_file(manager: LogManager) -> None:
    """Rewrite an unreadable topics file. Under the lock. Cost: a read of the file."""
    try:
        read_topics(manager.fs, manager.home)
    except DataCorruptionError as error:
        _LOGGER.warning("%s: written again from the ledger", error)
        write_topics(manager.fs, manager.home, manager.state)


def _is_undelete_unfinished(manager: LogManager) -> bool:
    """Return True if the topics file lacks a topic of the log's state.

    In this case a crash interrupted an undelete of the topic, which has records that are not
    published yet.
    """
    try:
        known = read_topics(manager.fs, manager.home) or {}
    except DataCorruptionError:
        return False
    # By id: a topic that was created again under the name of a deleted topic is another topic.
    ids = {topic.id for topic in known.values()}
    return any(topic.id not in ids for topic in manager.state.topics.values())


def _recover_restored(manager: LogManager, topic: str) -> None:
    """Recover the partitions of a topic that was restored, because of a possible power cut.

    Everything below a partition's active segment is durable since the roll, as with a recovery
    point. Cost: the active segments are read.
    """
    points = recovery_points(manager)
    for partition in manager.state.topics[topic].dirs:
        key = TopicPartition(topic, partition)
        manager.offline.pop(key, None)
        if (error := manager.offline.missing(manager.state, key)) is not None:
            manager.offline.add(key, error)
            continue
        bases = segment_bases(manager.fs, manager.partition_path(*key))
        recover_partition(manager, key, {key: bases[-1] if bases else 0, **points})


def write_starts(manager: LogManager) -> None:
    """Write all log starts to the log-start-offset-checkpoint files of the log dirs."""
    state = manager.state
    for number, directory in manager.offline.dirs.numbered:
        starts = {
            key: offset
            for key, offset in state.starts.items()
            if state.topics[key.topic].dirs[key.partition] == number
        }
        write_offsets(manager.fs, directory, LOG_START, starts)


def complete_moves(manager: LogManager) -> None:
    """Rename the `-future` copy of each moved partition to the partition's name.

    A copy whose move is not in the ledger is not renamed.
    """
    fs = manager.fs
    for path, name, partition, number in _copies(manager):
        topic = manager.state.topics[name]
        live = partition_path(manager.directories, name, topic, partition)
        # A copy whose move is not in the ledger is a leftover, even if it is complete:
        # `settle_directories` removes it.
        if topic.dirs.get(partition) == number and not fs.exists(live):
            fs.rename(path, live)
            fs.sync_dir(os.path.dirname(live))


def _copies(manager: LogManager) -> list[tuple[str, str, int, int]]:
    """Return the `-future` directories of this log's partitions: copies during a move.

    Each is (path, topic, partition, number of the log dir). A broker's `-future` directories, whose
    names contain a random id instead of the topic id, are left out.
    """
    found = []
    for number, directory in manager.offline.dirs.numbered:
        for entry in manager.fs.listdir(directory):
            future = parse_future_dir(entry)
            if future is not None:
                topic_id = topic_id_text(bytes.fromhex(future[1]))
                names = [n for n, topic in manager.state.topics.items() if topic.id == topic_id]
                found += [(joined(directory, entry), name, future[0], number) for name in names]
    return found


def _remove_old_places(manager: LogManager) -> None:
    """Remove the old directories of moved partitions; retried later if the disk fails."""
    try:
        settle_directories(manager)
    except StorageUnavailableError as error:
        _LOGGER.warning("%s: the old directory of a moved partition stays: %s", manager.home, error)


def settle_directories(manager: LogManager, *, gone: str = "") -> None:
    """Rename or remove partition directories so that they match the topics. Idempotent.

    Directories of deleted topics are renamed, and removed when the topic can no longer be restored.
    Directories of restored topics are renamed back. An empty directory belongs to a topic that was
    never committed and is removed. Other partitions may be a user's data: they are renamed to
    Kafka's name for strays. Directories that only look like partitions, such as a query's
    checkpoint-1, stay.

    A copy of a partition that is in another log dir, or of a deleted topic, is removed: a power cut
    interrupted the move, or it is from an earlier version that moved partitions while writers ran.

    Directories to remove are added to `manager.doomed`, because removing large directories takes
    long. `gone` is the id of a topic that was deleted just now.
    """
    complete_moves(manager)
    fs = manager.fs
    for number, directory in manager.offline.dirs.numbered:
        renames: list[tuple[str, str]] = []
        for name in fs.listdir(directory):
            path = os.path.join(directory, name)
            retired, live = parse_deleted_dir(name), parse_partition_dir(name)
            future = parse_future_dir(name)
            if future is not None and _is_leftover(manager, number, *future, gone):
                renamed = _renamed(path.rpartition(".")[0], "delete")
                renames.append((path, renamed))
                manager.doomed.add(renamed)
            if (retired or live) is None or (live and _number(manager, live) == number):
                continue
            if not fs.is_dir(path):
                continue
            if retired is not None:
                target = _right_path(manager, number, *retired)
                if target is None:
                    manager.doomed.add(path)
                elif target != path:
                    renames.append((path, target))
            elif live is not None:
                # The name of a live partition in the wrong log dir, or without a topic.
                renamed, doomed = _retired_path(manager, number, live, path)
                renames += [(path, renamed)] if renamed else []
                manager.doomed |= {renamed} if doomed else set()
        for path, target in renames:
            fs.rename(path, target)
        if renames:
            fs.sync_dir(directory)


def _is_leftover(
    manager: LogManager, number: int, partition: int, mark: str, gone: str
) -> bool:
    """Return True if a `-future` directory is a copy of our partition by an uncommitted move.

    Args:
        manager: The log.
        number: The number of the log dir that contains the directory.
        partition: The partition in the directory's name.
        mark: The topic id in the directory's name, in hex.
        gone: The id of a topic that was deleted just now, or "".
    """
    topic_id = topic_id_text(bytes.fromhex(mark))
    return topic_id in (gone, *manager.state.deleted) or any(
        topic.id == topic_id and topic.dirs.get(partition) != number
        for topic in manager.state.topics.values()
    )


def _number(manager: LogManager, key: TopicPartition) -> int | None:
    """Return the number of a partition's log dir; None if the state lacks the partition."""
    known = manager.state.topics.get(key.topic)
    return None if known is None else known.dirs.get(key.partition)


def _right_path(manager: LogManager, number: int, partition: int, mark: str) -> str | None:
    """Return the path that a retired (`-delete`) directory should have; None to remove it.

    A directory of a deleted topic that can be restored stays. A directory of a restored topic gets
    the partition's name again, unless that name is in use.

    Args:
        manager: The log.
        number: The number of the log dir that contains the directory.
        partition: The partition in the directory's name.
        mark: The topic id in the directory's name, in hex.
    """
    state, directories = manager.state, manager.directories
    topic_id = topic_id_text(bytes.fromhex(mark))
    deleted = state.deleted.get(topic_id)
    if deleted is not None and deleted.topic.dirs.get(partition) == number:
        return deleted_path(directories, deleted.name, deleted.topic, partition)
    for name, topic in state.topics.items():
        if topic.id == topic_id and topic.dirs.get(partition) == number:
            path = partition_path(directories, name, topic, partition)
            return None if manager.fs.exists(path) else path
    return None


def _retired_path(
    manager: LogManager, number: int, key: TopicPartition, path: str
) -> tuple[str, bool]:
    """Return (new path, whether to remove it) of a directory that no partition of the log uses.

    The directory has a partition's name. The new path is "" if the directory is not renamed.
    """
    fs, state = manager.fs, manager.state
    # The topic was deleted, and a crash prevented the rename: the records may still be restored.
    deleted = _deleted_topic_of(manager, number, key, path)
    if deleted is not None:
        renamed = deleted_path(manager.directories, deleted.name, deleted.topic, key.partition)
        return (stray_name(path) if fs.exists(renamed) else renamed), False
    if _was_moved(manager, number, key, path):
        return _renamed(path, "delete"), True
    dropped = key.topic not in state.topics and key in state.dropped
    if key.topic in INTERNAL and not dropped:
        return "", False  # a broker's directory
    if dropped or is_empty(fs, path):
        return _renamed(path, "delete"), True
    if not is_partition(fs, path):
        return "", False
    _LOGGER.warning(
        "%s is in no topic of this log; renamed to -stray, nothing was removed", path
    )
    return stray_name(path), False


def _was_moved(manager: LogManager, number: int, key: TopicPartition, path: str) -> bool:
    """Return whether a directory is the old place of a partition that was moved to another log dir.

    Such a directory can be deleted, because the new directory exists. Return False if the old
    directory holds only records below the log start: they were declared lost when their disk failed
    (`Log.give_up`), and the disk has returned.

    Args:
        manager: The log.
        number: The number of the log dir that contains the directory.
        key: The partition that the directory's name gives.
        path: The directory.

    Cost:
        The last segment is read.
    """
    fs, known = manager.fs, manager.state.topics.get(key.topic)
    if known is None or known.left.get(key.partition) != number:
        return False
    if not fs.is_dir(manager.partition_path(*key)):
        return False
    # An unreadable directory counts as not moved: it becomes a stray, and nothing is deleted.
    with contextlib.suppress(DataCorruptionError, FileNotFoundError):
        start, bases = manager.state.starts.get(key, 0), segment_bases(fs, path)
        if stored_topic_id(fs, path) == known.id and bases:
            return bases[-1] > start or valid_end(fs, path, max(bases[-1], start)) > start
    return False


def _deleted_topic_of(
    manager: LogManager, number: int, key: TopicPartition, path: str
) -> DeletedTopic | None:
    """Return the deleted topic, if it can be restored, of a directory with a partition's name.

    A crash can prevent the rename of the directory at the deletion. None if the topic id in the
    directory is not that of such a topic.
    """
    found = [
        topic for topic in manager.state.deleted.values()
        if topic.name == key.topic and topic.topic.dirs.get(key.partition) == number
    ]  # fmt: skip
    if not found:
        return None
    with contextlib.suppress(DataCorruptionError):
        topic_id = stored_topic_id(manager.fs, path)
        return next((topic for topic in found if topic.id == topic_id), None)
    return None


def stray_name(path: str) -> str:
    """Return Kafka's name for a partition directory without a topic."""
    return _renamed(path, "stray")


def _renamed(path: str, why: str) -> str:
    """Return the path for a directory that is out of use; `why` is the suffix, such as "delete"."""
    home, name = os.path.split(path)
    topic, _, partition = name.rpartition("-")
    return os.path.join(home, retired_dir(topic, int(partition), uuid.uuid4().hex, why))
