"""Rolling outside of appends: idle segments (segment.idle.ms), and active segments to delete.

Rolling during appends: `sparklog.logdir.partition.rolling`.
"""

from collections.abc import Callable, Mapping

from sparklog.common import TopicPartition
from sparklog.format.names import log_name
from sparklog.fs import FileSystem
from sparklog.log.due_segments import LocalSegment
from sparklog.logdir.commit_log import LogDirCommits
from sparklog.logdir.retention.partition_retention import PartitionRetention
from sparklog.logdir.segment_files import joined, segment_bases


def idle(
    fs: FileSystem,
    places: Mapping[TopicPartition, PartitionRetention],
    held: Callable[[TopicPartition], list[LocalSegment] | None],
    *,
    now_ms: int,
) -> dict[TopicPartition, int]:
    """Return {partition: base offset} of active segments without an append for segment.idle.ms.

    `held`: returns a partition's segments, if they are known, as `DuePartitions.held`.
    """
    found = {}
    for key, place in places.items():
        limit, segments = place.config.segment_idle_ms, held(key)
        if limit < 0 or not segments:
            continue
        base = segments[-1].base
        path = joined(place.directory, log_name(base))
        try:
            if now_ms - fs.mtime_ms(path) >= limit and fs.size(path):
                found[key] = base
        except FileNotFoundError:
            continue  # the segments are changing: handled in the next round
    return found


def roll(commits: LogDirCommits, keys: list[TopicPartition]) -> None:
    """Start a new segment in each of these partitions, in a single step. Under the lock.

    Offsets don't change, and no record is written. An empty active segment is not rolled.
    """
    with commits.changing_files(keys):
        for key in keys:
            log = commits.writer(*key)
            log.roll()
            log.sync()


def roll_if_active(commits: LogDirCommits, key: TopicPartition, base: int) -> None:
    """Roll a partition's segment `base` if still active. Under the lock."""
    if segment_bases(commits.fs, commits.partition_path(*key))[-1:] == [base]:
        roll(commits, [key])
