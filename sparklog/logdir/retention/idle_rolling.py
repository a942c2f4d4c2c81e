"""Rolling from outside an append: segments that are idle (segment.idle.ms), or that have to go.

An append rolls by itself: `sparklog.logdir.partition.rolling`.
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
    """Partitions whose active segment had no append for segment.idle.ms: {key: its base}.

    Args: held: a partition's segments, if they are known, as `DuePartitions.held`.
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
            continue  # the segments change at this moment: the next round sees it
    return found


def roll(session: LogDirCommits, keys: list[TopicPartition]) -> None:
    """Begin a new segment in each of these partitions, as one step. Under the lock.

    No offset moves and no record tells of it; an empty active segment stays as it is.
    """
    with session.changing_files(keys):
        for key in keys:
            log = session.writer(*key)
            log.roll()
            log.sync()


def roll_if_active(session: LogDirCommits, key: TopicPartition, base: int) -> None:
    """Roll a partition's segment `base` if it still is the active one. Under the lock."""
    if segment_bases(session.fs, session.partition_path(*key))[-1:] == [base]:
        roll(session, [key])
