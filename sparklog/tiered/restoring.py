"""Restore a log dir from an archive: completely, some topics, or a range of offsets or time.

The directory is written next to its final place, as a broker would have closed it. The directory is
then adopted like a broker's directory (with a new leader epoch, because its history ends where the
restored range ends) and renamed. An interrupted restore continues where it stopped.
"""

import os
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import crc32c

from sparklog.clock import Clock, system_clock
from sparklog.common import TopicPartition
from sparklog.errors import (
    DataCorruptionError,
    InvalidRequestError,
    StorageUnavailableError,
)
from sparklog.format.checkpoint_files import Epochs, parse_epochs
from sparklog.format.names import (
    EPOCH_CHECKPOINT,
    INDEX,
    SNAPSHOT,
    TIMEINDEX,
    TXNINDEX,
    log_name,
    partition_dir,
)
from sparklog.fs import LOCAL, FileSystem, write_durably
from sparklog.log.batch_windows import walk
from sparklog.log.copied_log import chosen_topics, copied_config, copy_all
from sparklog.log.positions import Position, resolve
from sparklog.logdir.broker_lockout import mark_made
from sparklog.logdir.home import open_log
from sparklog.logdir.ledger import has_ledger
from sparklog.logdir.new_log_dirs import write_partition_files
from sparklog.logdir.offset_checkpoints import (
    HIGH_WATERMARK,
    LOG_START,
    RECOVERY_POINT,
    write_offsets,
)
from sparklog.logdir.segment_files import joined
from sparklog.progress import Progress, shows_progress
from sparklog.storage.leader_epochs import clipped
from sparklog.storage.segments import UndeterminedLossError
from sparklog.tiered.archive.opening import Path, archive_url, no_archive, open_archive
from sparklog.tiered.archive.view import ArchiveView
from sparklog.tiered.layout.manifest import manifest_object
from sparklog.tiered.reading.options import RemoteOptions
from sparklog.tiered.reading.remote_objects import RemoteObjects
from sparklog.tiered.remote_segment import RemoteSegment

_PIECE_BYTES: Final = 8 << 20


@dataclass(frozen=True, slots=True)
class Restored:
    """The result of a restore.

    Attributes:
        offsets: {topic: {partition: (log start offset, end offset)}}.
        segments: The number of segments.
        bytes: The size of the segments.

    Examples:
        >>> from sparklog.tiered import Restored
        >>> Restored(offsets={"flights": {0: (0, 600)}}, segments=1, bytes=52_000).segments
        1
    """

    offsets: dict[str, dict[int, tuple[int, int]]]
    segments: int
    bytes: int


@dataclass(frozen=True, slots=True)
class _Part:
    """A partition to restore.

    Attributes:
        start: The first offset to restore.
        end: The offset after the last record to restore.
        segments: The copies that contain these offsets.
    """

    key: TopicPartition
    topic_id: str
    start: int
    end: int
    segments: list[RemoteSegment]


@shows_progress("restoring")
def restore(
    url: str,
    path: Path,
    *,
    topics: Collection[str] | None = None,
    start: Position = "earliest",
    end: Position = "latest",
    storage_options: Mapping[str, Any] | None = None,
    options: RemoteOptions | None = None,
    threads: int = 4,
    progress: Progress | None = None,
    fs: FileSystem = LOCAL,
    clock: Clock = system_clock,
) -> Restored:
    """Restore a log dir from an archive.

    The topics have the archive's configs, but are not tiered, and retain their records until an
    option retention.* is set: otherwise the next round of a service could delete restored records.
    An interrupted restore is continued by the same call.

    Args:
        url: The archive.
        path: The new log dir.
        topics: The topics to restore; by default all.
        start: As for `Log.read`; offsets by partition only for a single topic.
        end: As for `Log.read`, rounded up to the end of its record batch.
        storage_options: Options of fsspec for the store.
        options: How remote segments are read.
        threads: The number of segments that are read at the same time.
        progress: Called with the number of bytes done, and the total.
        fs: The file system of the log dir; for tests.
        clock: The current time in milliseconds since the epoch; for tests.

    Raises:
        InvalidRequestError: `path` exists and is not empty, a topic is unknown, or a range is
            invalid.
        OffsetOutOfRangeError: `start` or `end` is outside of a partition.
        StorageUnavailableError: The store fails, or the disk has too little space.
        DataCorruptionError: An object contradicts its manifest.

    Cost:
        Each copy of a segment is read once.

    Examples:
        >>> from sparklog.service import Service
        >>> from sparklog.tiered import restore
        >>> config = {"remote.storage.enable": True, "segment.bytes": 1 << 20}
        >>> info = log.create_topic("tiered", config=config)
        >>> ends = log.append("tiered", pa.table({"value": ["x" * 200_000] * 12}))
        >>> report = Service("log", remote=bucket).run_once()
        >>> restored = restore(bucket, "restored")
        >>> restored.segments == len(report.uploaded) > 0
        True
    """
    place = archive_url(url, fs)
    if place is None:
        raise no_archive(url)
    target = os.path.abspath(path)
    if fs.is_dir(target) and fs.listdir(target):
        raise InvalidRequestError(
            f"{target} is not empty: restore to a directory of its own", path=target
        )
    view = open_archive(place, options=options, storage_options=storage_options)
    parts = _plan(view, topics, start, end)
    # The name is always the same, so that a second call finds the files of an interrupted restore.
    work = target + ".restoring"
    if not fs.is_dir(work):
        fs.mkdir(work)
    total = sum(segment.size for part in parts for segment in part.segments)
    if fs.free_bytes(work) < total:
        raise StorageUnavailableError(
            f"{work}: {total} bytes are needed, but {fs.free_bytes(work)} are free; restore "
            "to another disk, or less to another directory",
            path=work,
        )
    # The ledger is created by the adoption, so with a ledger all segments are there already.
    if not has_ledger(fs, work):
        _Restore(fs, work, view.objects, total, progress).fill(parts, threads)
    offsets = _take_over(fs, clock, work, view, {part.key.topic for part in parts})
    if fs.is_dir(target):
        fs.rmdir(target)
    fs.rename(work, target)
    fs.sync_dir(os.path.dirname(target))
    return Restored(offsets, sum(len(part.segments) for part in parts), total)


def _plan(
    view: ArchiveView,
    topics: Collection[str] | None,
    start: Position,
    end: Position,
) -> list[_Part]:
    held = view.topics()
    if not held:
        raise no_archive(view.home)
    names = chosen_topics(view.home, held, topics)
    if len(names) > 1 and any(isinstance(at, Mapping) for at in (start, end)):
        raise InvalidRequestError(
            "offsets belong to a single topic: name the topic, or pass a time instead of offsets"
        )
    parts = []
    for topic in names:
        numbers = view.partitions(topic)
        spans = view.spans([TopicPartition(topic, p) for p in numbers])
        ends = [
            resolve(view, topic, numbers, at, spans, name=name, isolation="read_uncommitted")
            for name, at in (("start", start), ("end", end))
        ]
        for p in numbers:
            first, last = ends[0][p], ends[1][p]
            if last < first:
                raise InvalidRequestError(
                    f"{topic}-{p}: the range ends at offset {last}, before it starts at {first}: "
                    "set an end after the start"
                )
            # An empty range within a segment has no records; its end isn't rounded up to a batch.
            wanted_here = view.copies(topic, p) if first < last else []
            segments = [s for s in wanted_here if s.end > first and s.base < last]
            _check_gapless(view.home, TopicPartition(topic, p), first, last, segments)
            parts.append(_Part(TopicPartition(topic, p), held[topic].id, first, last, segments))
    return parts


def _check_gapless(
    home: str, key: TopicPartition, first: int, last: int, segments: Sequence[RemoteSegment]
) -> None:
    """Raise DataCorruptionError if some offsets of the range have no copy."""
    at = first
    for base, end in [*((s.base, s.end) for s in segments), (last, last)]:
        if base > at:
            raise DataCorruptionError(
                f"{key}: no copy contains these offsets; restore the objects from a copy of the "
                "bucket, or restore the other ranges to another directory",
                path=home, first=at, end=base,
            )  # fmt: skip
        at = max(at, end)


class _Restore:
    """Writes the partitions of the log dir `work`, and reports the progress. Thread-safe."""

    def __init__(
        self,
        fs: FileSystem,
        work: str,
        objects: RemoteObjects,
        total: int,
        progress: Progress | None,
    ) -> None:
        self._fs, self._work, self._objects = fs, work, objects
        self._done, self._total, self._progress = 0, total, progress

    def fill(self, parts: Sequence[_Part], threads: int) -> None:
        """Write the partitions and Kafka's checkpoint files, durably."""
        fs, work = self._fs, self._work
        for part in parts:
            directory = self._directory(part)
            if not fs.is_dir(directory):
                fs.mkdir(directory)
        jobs = (
            partial(self._fetch, part, segment) for part in parts for segment in part.segments
        )
        list(copy_all(jobs, threads, cancel=self._objects.retry.cancel))
        ends = {part.key: self._close(part) for part in parts}
        write_offsets(fs, work, LOG_START, {part.key: part.start for part in parts})
        write_offsets(fs, work, RECOVERY_POINT, ends)
        write_offsets(fs, work, HIGH_WATERMARK, ends)
        mark_made(fs, [work])

    def _directory(self, part: _Part) -> str:
        return joined(self._work, partition_dir(*part.key))

    def _count(self, size: int) -> None:
        self._done += size
        if self._progress is not None:
            self._progress(self._done, self._total)

    def _fetch(self, part: _Part, segment: RemoteSegment) -> None:
        """Write a segment's files unless they exist; the log last.

        The errors are those of `restore`. A missing object counts as damage, unless the absence is
        uncertain.
        """
        path = f"{self._objects.store.url}/{manifest_object(segment)}"
        try:
            self._write(part, segment)
        except UndeterminedLossError as error:
            raise StorageUnavailableError(str(error), path=path) from error
        except FileNotFoundError as error:
            raise DataCorruptionError(
                f"{error}; or restore the other ranges to another directory",
                path=path, first=segment.base, end=segment.end,
            ) from error  # fmt: skip

    def _write(self, part: _Part, segment: RemoteSegment) -> None:
        fs, directory = self._fs, self._directory(part)
        log = joined(directory, log_name(segment.base))
        if fs.exists(log):
            self._count(segment.size)
            return
        opened = self._objects.open(segment)
        is_whole = segment.end <= part.end
        # The log is last, under a temporary name: if it exists, an earlier call has completed this
        # segment.
        for suffix in (INDEX, TIMEINDEX, TXNINDEX, SNAPSHOT) if is_whole else ():
            data = opened.part(suffix)
            if data is not None:
                base = segment.end if suffix == SNAPSHOT else segment.base
                write_durably(fs, joined(directory, f"{base:020d}{suffix}"), data, sync_dir=False)
        ranges, crc = self._objects.ranges(segment), 0
        with fs.open(log + ".restoring", create=True) as file:
            file.truncate(0)
            for at in range(0, ranges.size, _PIECE_BYTES):
                data = ranges.get(at, min(at + _PIECE_BYTES, ranges.size))
                crc = crc32c.crc32c(data, crc)
                file.pwrite(data, at)
                self._count(len(data))
            if crc != opened.manifest.crc32c:
                raise DataCorruptionError(
                    f"the CRC-32C is {crc}, but {opened.manifest.crc32c} in the manifest; restore "
                    "the object from a copy of the bucket, or restore the other ranges to another "
                    "directory",
                    path=f"{self._objects.store.url}/{ranges.name}",
                    first=segment.base,
                    end=segment.end,
                )
            if not is_whole:  # adopting the directory rebuilds the indexes of a cut segment
                file.truncate(_cut(file, part.end))
            file.sync()
        fs.rename(log + ".restoring", log)

    def _close(self, part: _Part) -> int:
        """Write a partition's metadata file and leader epochs; return the partition's end offset.

        The end is that of the last segment, or of its last batch if the segment was cut.
        """
        fs, directory, end = self._fs, self._directory(part), part.end
        epochs: Epochs = []
        if part.segments:
            last = part.segments[-1]
            end = last.end
            if last.end > part.end:
                end = last.base
                with fs.open(joined(directory, log_name(last.base))) as file:
                    for window in walk(file, check_crc=False):
                        if len(window.batches):
                            end = int(window.batches.table["last_offset"][-1]) + 1
            raw = self._objects.open(last).part(EPOCH_CHECKPOINT) or b"0\n0\n"
            known = parse_epochs(raw, EPOCH_CHECKPOINT)
            epochs = clipped(known, start=part.start, end=end)
        write_partition_files(fs, directory, part.key, part.topic_id, epochs)
        fs.sync_dir(directory)
        return end


def _cut(file: Any, end: int) -> int:
    """Return the position in a log after the last batch that starts below offset `end`."""
    for window in walk(file, check_crc=False):
        table = window.batches.table
        behind = table[table["base_offset"] >= end]
        if len(behind):
            return int(behind["position"][0])
    size: int = file.size()
    return size


def _take_over(
    fs: FileSystem, clock: Clock, work: str, view: ArchiveView, names: Collection[str]
) -> dict[str, dict[int, tuple[int, int]]]:
    """Adopt a directory with restored partitions as a log, and set the topics' configs.

    The adoption checks the files and creates the ledger.

    Args:
        fs: The file system.
        clock: The clock.
        work: The directory.
        view: The archive, which has the topics' configs.
        names: The restored topics.

    Returns:
        {topic: {partition: (log start offset, end offset)}}.
    """
    held = view.topics()
    # No other process knows the new directory yet.
    with open_log(work, mode="rw", fs=fs, clock=clock, news=False) as log:
        for name in sorted(names):
            config = copied_config(held[name].config.to_dict(), keeps_retention=False)
            if config:
                log.alter_topic(name, config=config)
        return {name: log.offsets(name) for name in sorted(names)}
