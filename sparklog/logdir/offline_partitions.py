"""Partitions with a missing log dir, directory or segment.

The ledger knows every partition and its offsets, so a missing partition is detected. The ledger
then marks the partition as offline for all processes, and still has its log dir and offsets. All
other partitions stay available. When the files are back, the next check recovers the partition
(`recovery.returned_partitions`). Source: PROTOCOL, "Offline partitions".
"""

import logging
import os
from collections.abc import Mapping, Sequence
from typing import Final

from sparklog.common import TopicPartition
from sparklog.errors import DataCorruptionError, InvalidRequestError, PartitionOfflineError
from sparklog.format.checkpoint_files import PartitionMetadata, parse_partition_metadata
from sparklog.format.names import PARTITION_METADATA, partition_dir
from sparklog.fs import FileSystem, read_bytes
from sparklog.logdir.broker_lockout import is_marked_open, was_closed_by_us
from sparklog.logdir.log_dirs import RENAME_BACK, LogDirs, find_dirs, offline_error
from sparklog.logdir.repair_advice import rebuilt_by_repair
from sparklog.logdir.segment_files import segment_bases
from sparklog.storage.log_state import LogState

_LOGGER: Final = logging.getLogger(__name__)


def stored_metadata(fs: FileSystem, path: str) -> PartitionMetadata | None:
    """Return the contents of partition.metadata in a partition's directory, if the file exists.

    Raises:
        DataCorruptionError: The file cannot be read.
    """
    name = os.path.join(path, PARTITION_METADATA)
    try:
        return parse_partition_metadata(read_bytes(fs, name), path=name)
    except FileNotFoundError:
        return None
    except DataCorruptionError as error:
        raise rebuilt_by_repair(error) from error


def stored_topic_id(fs: FileSystem, path: str) -> str | None:
    """Return the topic id in a partition's directory, if any.

    Raises:
        DataCorruptionError: The file can't be read.
    """
    found = stored_metadata(fs, path)
    return None if found is None else found.topic_id


def why_foreign(
    found: PartitionMetadata | None, key: TopicPartition, topic_id: str | None
) -> str | None:
    """Return why a directory with this metadata can't be the partition's, or None if it can.

    Args:
        found: The directory's metadata, if it has any.
        key: The partition that is expected in this directory.
        topic_id: The id of the partition's topic, if known.
    """
    if found is None:
        return None
    if topic_id not in (None, found.topic_id):
        return f"the directory belongs to another topic (id {found.topic_id}, not {topic_id})"
    # Directories of a broker or of an earlier version of sparklog have no number.
    if found.partition in (None, key.partition):
        return None
    other = partition_dir(key.topic, found.partition)
    return (
        f"this is the directory of {other}, according to its {PARTITION_METADATA} (`sparklog "
        "verify` reports whether the directories were swapped, or only these files)"
    )


class OfflinePartitions(dict[TopicPartition, DataCorruptionError]):
    """{partition: error} of the partitions that can't be used.

    `dirs` has the log dirs as last found. Used under the write lock. Each method takes the log's
    state, because recovery replaces that object.
    """

    def __init__(self, fs: FileSystem, directories: Sequence[str]) -> None:
        super().__init__()
        self.dirs = LogDirs(directories)
        self._fs = fs

    def replace(self, partitions: Mapping[TopicPartition, DataCorruptionError]) -> None:
        """Replace all entries by `partitions`, the offline partitions in the lock's page."""
        self.clear()
        self.update(partitions)

    def add(self, key: TopicPartition, error: DataCorruptionError) -> None:
        """Take a partition offline, and log a message."""
        self[TopicPartition(*key)] = error
        _LOGGER.critical("%s-%d is offline: %s", *key, error)

    def note_missing(self, state: LogState, *, segments: bool) -> bool:
        """Take partitions with missing files offline.

        Returns True if more partitions are offline than before. With `segments`, the segments are
        looked for too. Cost: a stat and a small file per partition, and a listing with `segments`.
        """
        before = len(self)
        for key in state.ends:
            if TopicPartition(*key) not in self:
                error = self.missing(state, key, segments=segments)
                if error is not None:
                    self.add(key, error)
        return len(self) > before

    def missing(
        self,
        state: LogState,
        key: TopicPartition,
        *,
        number: int | None = None,
        segments: bool = True,
    ) -> PartitionOfflineError | None:
        """Return why a partition can't be used, or None if all files exist.

        Args:
            state: The log's state.
            key: The partition.
            number: The number of the partition's log dir, if different from the ledger's number.
            segments: Whether to look for the segment with the first offset too, which costs a
                listing.
        """
        fs, topic = self._fs, state.topics[key.topic]
        number = topic.dirs[key.partition] if number is None else number
        path = os.path.join(self.dirs.place(number), partition_dir(*key))
        start, end = state.starts.get(key, 0), state.ends[key]
        why = self.dirs.why_absent(number)
        if why is None and not fs.is_dir(path):
            why = "its directory is gone"
        if why is not None:
            return offline_error(path, why, start, end)
        needed = max(start, state.local_start(*key))
        try:
            why = why_foreign(stored_metadata(fs, path), key, topic.id)
            if why is not None:
                return offline_error(path, why, start, end, remedy=RENAME_BACK)
            bases = segment_bases(fs, path) if segments else [needed]
        except FileNotFoundError:
            return offline_error(path, "its directory is gone", start, end)
        except DataCorruptionError as error:
            return offline_error(path, error.reason, start, end)
        first = bases[0] if bases else end
        if first > needed or not bases:
            return offline_error(path, "the segments of these offsets are gone", needed, first)
        return None

    def read_dirs(self) -> None:
        """Look again which log dirs are available, for recovery; update `dirs`. Never raises.

        A log dir that was absent stays absent until `recovery.returned_partitions` includes it.
        """
        try:
            found = find_dirs(self._fs, self.dirs.directories)
        except InvalidRequestError as error:  # their partitions are identified by topic ids
            _LOGGER.warning("%s: %s", self.dirs.directories[0], error)
            return
        # A disk that is mounted again has files without the latest commits, so its partitions must
        # be recovered before they count as available.
        found.absent = {**self.dirs.absent, **found.absent}
        self.dirs = found


def exclude_broker_dirs(fs: FileSystem, dirs: LogDirs) -> None:
    """Mark log dirs as absent if a broker wrote there while the log was open without them.

    In that case the first log dir has the guard, and such a log dir has neither the guard nor
    sparklog's clean mark.
    """
    for number, path in dirs.numbered[1:]:
        if (
            number in dirs.files
            and not is_marked_open(fs, path)
            and not was_closed_by_us(fs, [path])
        ):
            dirs.absent[number] = "a broker wrote there while the log was open without it"
