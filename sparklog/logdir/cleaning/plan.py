"""Plans a cleaning: the dirty part (`sparklog.log.dirty_ratio`), grouped into segments.

Source: Cleaner.groupSegmentsBySize (Kafka 4.1).
"""

from dataclasses import dataclass, field
from typing import Final

from sparklog.config import TopicConfig
from sparklog.format.index import TIME_ENTRY
from sparklog.format.names import index_name, log_name, timeindex_name
from sparklog.fs import FileSystem
from sparklog.log import dirty_ratio
from sparklog.log.batch_windows import first_timestamp
from sparklog.log.cleaner_options import CleanerOptions
from sparklog.log.dirty_ratio import CompactedLog, within
from sparklog.logdir.partition.indexes import read_entries
from sparklog.logdir.segment_files import joined, segment_bases
from sparklog.storage.round_report import Dirt

SPAN_MAX: Final = 2**31 - 1  # offsets of a segment: its index has 32-bit relative offsets


@dataclass(frozen=True, slots=True)
class Segment:
    """A segment as listed under the lock.

    Attributes:
        base: The base offset.
        size: The size of the `.log` file in bytes.
        identity: The device and inode of the `.log` file. Another identity under the same name
            shows that the segment was replaced.
    """

    base: int
    size: int
    identity: tuple[int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class CleanJob:
    """The inputs for compacting a partition, except its files; can be pickled to a task.

    Attributes:
        topic: The topic.
        partition: The partition's number.
        topic_id: The topic's id.
        directory: The partition's directory.
        config: The topic's config.
        options: The options of the cleaner.
        segments: The closed segments.
        bases: The base offsets of all segments.
        log_start: The log start offset.
        end: The log's end offset.
        dirt: The part of the log that can be cleaned.
        now_ms: The time of the plan.
        producers: {producer id: (its last data offset or -1, its epoch)} of active producers.
    """

    topic: str
    partition: int
    topic_id: str
    directory: str
    config: TopicConfig
    options: CleanerOptions
    segments: tuple[Segment, ...]
    bases: tuple[int, ...]
    log_start: int
    end: int
    dirt: Dirt
    now_ms: int
    producers: dict[int, tuple[int, int]] = field(default_factory=dict)


def list_segments(fs: FileSystem, directory: str) -> list[Segment]:
    """Return the segments in a partition's directory, ascending. Cost: two stats per segment."""
    found = []
    for base in segment_bases(fs, directory):
        path = joined(directory, log_name(base))
        found.append(Segment(base, fs.size(path), fs.identity(path)))
    return found


def find_dirt(fs: FileSystem, directory: str, log: CompactedLog, *, now_ms: int) -> Dirt:
    """Return the dirty part and the cleanable part of a partition's log.

    See `sparklog.log.dirty_ratio`. Cost: no I/O, unless a compaction lag is configured: then a
    small read per dirty segment.
    """
    return dirty_ratio.find_dirt(
        log,
        now_ms=now_ms,
        largest=lambda base: _largest_timestamp(fs, directory, base),
        earliest=lambda base: _first_timestamp(fs, directory, base),
    )


def _largest_timestamp(fs: FileSystem, directory: str, base: int) -> int:
    entries = read_entries(fs, joined(directory, timeindex_name(base)), TIME_ENTRY)
    largest = int(entries["timestamp"].max()) if len(entries) else -1
    return largest if largest >= 0 else fs.mtime_ms(joined(directory, log_name(base)))


def _first_timestamp(fs: FileSystem, directory: str, base: int) -> int | None:
    with fs.open(joined(directory, log_name(base))) as file:
        return first_timestamp(file)


def grouped(fs: FileSystem, job: CleanJob, end: int) -> list[list[Segment]]:
    """Group the segments with offsets below `end`; a cleaning turns each group into one segment.

    A group fits into a segment by its size, the sizes of its indexes, and its range of offsets.
    """
    bytes_max, index_max = job.config.roll_bytes, job.config.segment_index_bytes
    segments = within(job.segments, 0, end)
    groups: list[list[Segment]] = []
    log_bytes = index_bytes = time_bytes = 0
    for at, segment in enumerate(segments):
        offsets, times = _index_sizes(fs, job.directory, segment.base)
        is_last = at + 1 == len(segments)
        last = (job.dirt.first_uncleanable if is_last else segments[at + 1].base) - 1
        if (
            groups
            and log_bytes + segment.size <= bytes_max
            and index_bytes + offsets <= index_max
            and time_bytes + times <= index_max
            and (not segment.size or last - groups[-1][0].base <= SPAN_MAX)
        ):
            groups[-1].append(segment)
        else:
            groups.append([segment])
            log_bytes = index_bytes = time_bytes = 0
        log_bytes += segment.size
        index_bytes += offsets
        time_bytes += times
    return groups


def _index_sizes(fs: FileSystem, directory: str, base: int) -> tuple[int, int]:
    sizes = []
    for name in (index_name(base), timeindex_name(base)):
        path = joined(directory, name)
        sizes.append(fs.size(path) if fs.exists(path) else 0)
    return sizes[0], sizes[1]
