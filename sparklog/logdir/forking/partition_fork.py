"""The fork of a partition: links to closed segments, a cut copy of the segment with the end.

Linked files are never changed in place. The active segment is always the fork's own: an empty
segment if the end is between two segments.
"""

import errno
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Final

from sparklog.clock import Clock
from sparklog.common import TopicPartition
from sparklog.errors import (
    DataCorruptionError,
    InvalidRequestError,
    StorageUnavailableError,
)
from sparklog.format.checkpoint_files import Epochs
from sparklog.format.names import (
    index_name,
    log_name,
    snapshot_name,
    timeindex_name,
    txnindex_name,
)
from sparklog.fs import File, FileSystem
from sparklog.log.batch_windows import Window, walk
from sparklog.log.copied_log import check_dense, prefix_below
from sparklog.log.fork_points import forked_start
from sparklog.logdir.commit_log import LogDirCommits
from sparklog.logdir.new_log_dirs import NewLogDirs, write_partition_files
from sparklog.logdir.partition.indexes import hint, offset_entries, regular_times, txn_entries
from sparklog.logdir.partition.leader_epochs import read_epochs
from sparklog.logdir.partition.partition_log import PartitionLog
from sparklog.logdir.partition.segment import Segment
from sparklog.logdir.segment_files import joined, segment_bases
from sparklog.storage.leader_epochs import clipped
from sparklog.storage.topic_state import TopicState

COPY_BYTES: Final = 8 << 20
_TAILS: Final = "tails"
_NO_LINKS: Final = frozenset({errno.EXDEV, errno.EMLINK, errno.EPERM, errno.EOPNOTSUPP})
_SEGMENT: Final = (index_name, timeindex_name, txnindex_name, log_name)


@dataclass(slots=True, kw_only=True)
class PartitionFork:
    """The plan for a partition of a fork.

    Attributes:
        key: The partition.
        number: The number of the log dir in the fork.
        source: The partition's directory in the old log.
        state: The topic's state at the fork point.
        start: The first offset in the fork.
        end: The end offset in the fork.
        plain: Whether no batch has a producer id.
        epochs: The leader epochs, read under the lock because they change if the log start is
            raised later.
        dense: Whether to check that no offset is missing, because a cleaning has read records after
            the end.
        linked: The base offsets of the closed segments below the end, whose files are linked.
        tail: The base offset of the segment that contains the end, or None.
    """

    key: TopicPartition
    number: int
    source: str
    state: TopicState
    start: int
    end: int
    plain: bool
    epochs: Epochs
    dense: bool = False
    linked: list[int] = field(default_factory=list)
    tail: int | None = None


def plan_partition_fork(
    commits: LogDirCommits,
    topic: TopicState,
    key: TopicPartition,
    end: int,
    new: NewLogDirs,
    *,
    cleaned: int,
    leave_remote: bool,
) -> PartitionFork:
    """Plan the fork of a partition, under the write lock.

    Args:
        commits: The old log.
        topic: The topic's state at the fork point.
        key: The partition.
        end: The partition's end at the fork point.
        new: The log dirs of the fork.
        cleaned: The offset up to which a cleaning may have read.
        leave_remote: Leave out the records that are only in remote storage.

    Raises:
        OffsetOutOfRangeError, InvalidRequestError: Records were deleted or are remote.
        DataCorruptionError: The partition is offline, or segments are missing.
    """
    name = str(key)
    start = forked_start(commits.state, topic.id, key, end)
    if key in commits.offline:
        raise commits.offline[key]
    now, limit = commits.state.topics[key.topic], commits.state.ends[key]
    path = commits.partition_path(*key)
    local = min(commits.state.local_start(*key), end)
    if local > start and not leave_remote:
        raise InvalidRequestError(
            f"{name}: offsets [{start}, {local}) are in remote storage only, which two logs can't "
            "share; leave them out (leave_remote: the fork then starts at the local log start), "
            "or restore the topic from remote storage and fork that"
        )
    start = max(start, local)
    # Offsets may be missing although the topic was not compacted at the time of the fork point.
    cleaned_since = now.parsed().compact and not topic.parsed().compact
    may_have_gaps = topic.adopted or now.adopted or cleaned_since
    part = PartitionFork(
        key=key, number=new.number(now.dirs[key.partition]), source=path,
        state=replace(topic, adopted=may_have_gaps), start=start, end=end,
        plain=not (topic.adopted or now.adopted or key in commits.state.idempotent),
        dense=end < cleaned, epochs=read_epochs(commits.fs, path),
    )  # fmt: skip
    if start < end:
        _choose_segments(part, segment_bases(commits.fs, path), limit)
    return part


def _choose_segments(part: PartitionFork, bases: list[int], limit: int) -> None:
    for base, following in zip(bases, [*bases[1:], None], strict=True):
        if base >= part.end or (limit if following is None else following) <= part.start:
            continue
        if following is not None and following <= part.end:
            part.linked.append(base)
        else:
            part.tail = base
    first = min([*part.linked, *([] if part.tail is None else [part.tail])], default=part.end)
    if first > part.start:
        raise DataCorruptionError(
            "the segments of these offsets are missing; restore them from a copy",
            path=part.source, first=part.start, end=first,
        )  # fmt: skip


class ForkFiles:
    """Links and copies the files of partitions into the log dirs of a fork. Thread-safe.

    The attributes `linked_files`, `linked_bytes` and `copied_bytes` count, as in `Forked`.
    """

    def __init__(self, fs: FileSystem, clock: Clock, new: NewLogDirs) -> None:
        self._fs, self._clock, self._new = fs, clock, new
        self.linked_files = self.linked_bytes = self.copied_bytes = 0
        self._mutex = threading.Lock()

    def make_directories(self) -> None:
        """Create the log dirs, and directories for temporary files."""
        for number, directory in enumerate(self._new.directories):
            self._fs.mkdir(directory)
            self._fs.mkdir(self._new.beside(number, _TAILS))

    def _paths(self, part: PartitionFork) -> tuple[str, str]:
        """Return a partition's new directory, and the directory with links to the tail's files."""
        name, tails = str(part.key), self._new.beside(part.number, _TAILS)
        return joined(self._new.directories[part.number], name), joined(tails, name)

    def link(self, part: PartitionFork) -> None:
        """Create a partition's new directory, and link the files of the fork; under the lock.

        The files of the tail (the segment with the end) are linked in a directory of their own,
        because the old log still writes to them. Producer snapshots are shared: a rewritten
        snapshot has the same contents, and an incomplete snapshot is skipped.
        """
        target, tails = self._paths(part)
        self._fs.mkdir(target)
        for base in part.linked:
            self._link_or_copy(part.source, target, base, *_SEGMENT, snapshot_name)
        if part.tail is not None:
            self._fs.mkdir(tails)
            self._link_or_copy(part.source, tails, part.tail, *_SEGMENT)
            self._link_or_copy(part.source, target, part.tail, snapshot_name)

    def _link_or_copy(
        self, source: str, target: str, base: int, *names: Callable[[int], str]
    ) -> None:
        fs = self._fs
        for name_of in names:
            path, new = joined(source, name_of(base)), joined(target, name_of(base))
            # Only the log is required. Closing the fork rebuilds a missing index.
            if name_of is not log_name and not fs.exists(path):
                continue
            try:
                fs.link(path, new)
                with self._mutex:
                    self.linked_files += 1
                    self.linked_bytes += fs.size(new)
            except StorageUnavailableError as error:
                # Another file system, too many links to the inode, or a file system without links.
                if getattr(error.__cause__, "errno", None) not in _NO_LINKS:
                    raise
                with fs.open(path) as file:
                    self._copy(file, new, file.size(), sync=True)

    def _copy(self, file: File, target: str, size: int, *, sync: bool) -> None:
        with self._fs.open(target, create=True) as copy:
            for at in range(0, size, COPY_BYTES):
                copy.pwrite(file.pread(min(COPY_BYTES, size - at), at), at)
            if sync:
                copy.sync()
        with self._mutex:
            self.copied_bytes += size

    def complete(self, part: PartitionFork, topic_id: str) -> None:
        """Cut the tail, write the new files, and close the partition, durably. Needs no lock.

        Raises:
            InvalidRequestError: Records below the end were compacted away since.
        """
        fs, (target, _) = self._fs, self._paths(part)
        epochs = clipped(part.epochs, start=part.start, end=part.end)
        write_partition_files(fs, target, part.key, topic_id, epochs)
        config = part.state.parsed()
        interval, reached = config.index_interval_bytes, -1
        if part.tail is not None:
            reached = self._cut(part, part.tail)
            if reached < part.end:  # the records after it were compacted away
                tail = Segment.load(
                    fs, target, part.tail, part.end, interval_bytes=interval, now=self._clock()
                )
                tail.finish()
                tail.sync(indexes=True)
                tail.close()
        if part.dense:
            check_dense(part.key, part.start, part.end, _windows(fs, target))
        if reached < part.end:
            Segment.create(
                fs, target, part.end, interval_bytes=interval, now=self._clock()
            ).close()
        PartitionLog(
            fs, target, config, self._clock,
            end_offset=part.end, start_offset=part.start, plain=part.plain,
        ).close()  # fmt: skip

    def _cut(self, part: PartitionFork, base: int) -> int:
        """Copy the batches below the fork's end from the tail, and their index entries.

        The tail is the segment that contains the end; its base offset is `base`. The copies are
        synced when the segment is closed. Returns the end offset of the copy.
        """
        fs, end, (target, tails) = self._fs, part.end, self._paths(part)
        with fs.open(joined(tails, log_name(base))) as file:
            # The index leads close to the end, so a segment of a GiB need not be read to find the
            # cut.
            start = hint(fs, tails, base, file, end - 1)
            prefix = prefix_below(file, base, end, start=start)
            if prefix.end < end and not (part.state.adopted or part.state.parsed().compact):
                raise DataCorruptionError(
                    "the file ends too early; restore it from a copy, then fork again",
                    path=joined(part.source, log_name(base)), position=prefix.size,
                    first=prefix.end, end=end,
                )  # fmt: skip
            self._copy(file, joined(target, log_name(base)), prefix.size, sync=False)
        offsets = offset_entries(fs, tails, base, size=prefix.size, end=end)
        times = regular_times(fs, tails, base, offsets)
        _write(fs, joined(target, index_name(base)), offsets.tobytes(), sync=False)
        _write(fs, joined(target, timeindex_name(base)), times.tobytes(), sync=False)
        if fs.exists(joined(tails, txnindex_name(base))):
            aborted = txn_entries(fs, tails, base, end=end)
            if len(aborted):
                _write(fs, joined(target, txnindex_name(base)), aborted.tobytes(), sync=True)
        return prefix.end


def _write(fs: FileSystem, path: str, data: bytes, *, sync: bool) -> None:
    with fs.open(path, create=True) as file:
        file.pwrite(data, 0)
        if sync:
            file.sync()


def _windows(fs: FileSystem, directory: str) -> Iterator[Window]:
    """Yield the batches of all segments in a partition's directory, in blocks."""
    for base in segment_bases(fs, directory):
        with fs.open(joined(directory, log_name(base))) as file:
            yield from walk(file, check_crc=False)
