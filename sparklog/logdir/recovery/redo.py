"""Applies a ledger record's file changes again; idempotent.

Watermarks for readers, the topics file, log starts, the removal of deleted topics. The record is
the truth; whoever completes a dead holder's step, or recovers, does these again.
"""

import logging
import os
import re
import uuid
from typing import Final

from sparklog.common import TopicPartition
from sparklog.errors import StorageUnavailableError
from sparklog.format.names import (
    parse_partition_dir,
)
from sparklog.fs import FileSystem
from sparklog.log.topic_names import INTERNAL
from sparklog.logdir.high_watermarks import publish
from sparklog.logdir.ledger import LEDGER
from sparklog.logdir.log_manager import LogManager
from sparklog.logdir.offset_checkpoints import LOG_START, write_offsets
from sparklog.logdir.partition.directories import is_empty, remove_tree
from sparklog.logdir.segment_files import is_partition
from sparklog.logdir.topics_file import write_topics
from sparklog.storage.ledger_records import (
    AdoptRecord,
    DropRecord,
    LedgerRecord,
    SnapshotRecord,
    StartRecord,
    TopicRecord,
)

_LOGGER: Final = logging.getLogger(__name__)
_DOOMED: Final = re.compile(r".+-\d+\.[0-9a-f]{32}-delete")
_NAME_MAX: Final = 255  # bytes; a topic's name has one a character


def publish_all(session: LogManager) -> None:
    """Show readers the ends of everything that is committed, by one rename."""
    end = session.ledger.end
    durable = None if session.state.unsynced else end
    state = session.state
    ends = {**state.ends, LEDGER: end}
    publish(session.fs, session.home, ends, state.starts, durable=durable)


def carry_out(session: LogManager, record: LedgerRecord) -> None:
    """Do what this record asks for, beyond the watermarks."""
    match record:
        case SnapshotRecord():
            pass
        case StartRecord():
            for key, offset in record.starts.items():  # the epochs before it go
                if key not in session.offline:
                    session.writer(*key).delete_records(offset)
            write_starts(session)
        case TopicRecord() | DropRecord() | AdoptRecord():
            write_starts(session)
            write_topics(session.fs, session.home, session.state)
            if isinstance(record, DropRecord):
                _remove_dropped(session)


def carry_out_all(session: LogManager, record: LedgerRecord | None) -> None:
    """Do it all, as after a crash; `record` is the last one if only that may be missing."""
    if record is not None:
        carry_out(session, record)
        return
    write_starts(session)
    write_topics(session.fs, session.home, session.state)
    _remove_dropped(session)


def write_starts(session: LogManager) -> None:
    """Bring every log dir's log-start-offset-checkpoint up to the state."""
    state = session.state
    for number, directory in session.dirs.numbered(session.directories):
        starts = {
            key: offset
            for key, offset in state.starts.items()
            if state.topics[key.topic].dirs[key.partition] == number
        }
        write_offsets(session.fs, directory, LOG_START, starts)


def _remove_dropped(session: LogManager) -> None:
    """Take away partition directories that no topic of the state owns.

    Those of dropped topics go; an empty one is a topic that was never committed and goes too;
    other partitions are kept under Kafka's name for strays, for they may be somebody's data. What
    only has such a name, as a query's checkpoint-1, stays as it is.
    """
    fs, state = session.fs, session.state
    for number, directory in session.dirs.numbered(session.directories):
        for name in fs.listdir(directory):
            path = os.path.join(directory, name)
            if _DOOMED.fullmatch(name) and fs.is_dir(path):
                _discard(fs, path)
                continue
            parsed = parse_partition_dir(name)
            if parsed is None or not fs.is_dir(path):
                continue
            topic, partition = parsed
            known = state.topics.get(topic)
            if known is not None and known.dirs.get(partition) == number:
                continue
            dropped = known is None and TopicPartition(topic, partition) in state.dropped
            if topic in INTERNAL and not dropped:
                continue  # a broker's
            if dropped or is_empty(fs, path):
                doomed = _renamed(path, "delete")
                fs.rename(path, doomed)
                fs.sync_dir(directory)
                _discard(fs, doomed)
            elif is_partition(fs, path):
                fs.rename(path, stray_name(path))
                fs.sync_dir(directory)
                _LOGGER.warning(
                    "%s is in no topic of this log; renamed to -stray, nothing was removed", path
                )


def stray_name(path: str) -> str:
    """Kafka's name for a partition directory that is no topic's."""
    return _renamed(path, "stray")


def _renamed(path: str, why: str) -> str:
    """A partition directory's name once it is out of use, cut to what a file system takes.

    Source: LocalLog.logDirNameWithSuffixCappedLength.
    """
    home, name = os.path.split(path)
    topic, _, partition = name.rpartition("-")
    suffix = f"-{partition}.{uuid.uuid4().hex}-{why}"
    return os.path.join(home, topic[: _NAME_MAX - len(suffix)] + suffix)


def _discard(fs: FileSystem, path: str) -> None:
    """Remove a directory that is out of use already; what can't go now goes another time."""
    try:
        remove_tree(fs, path)
    except StorageUnavailableError as error:
        _LOGGER.warning("%s stays for now: %s", path, error)
