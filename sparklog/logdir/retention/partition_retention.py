"""The data about a partition that retention needs: directory, config and offsets at some moment."""

from collections.abc import Callable
from dataclasses import dataclass

from sparklog.common import TopicPartition
from sparklog.config import TopicConfig
from sparklog.format.names import log_name, partition_dir
from sparklog.fs import FileSystem
from sparklog.log.due_segments import LocalSegment
from sparklog.logdir.commit_log import LogDirCommits
from sparklog.logdir.segment_files import joined, segment_bases
from sparklog.storage.log_state import LogState
from sparklog.storage.topic_state import TopicState


@dataclass(frozen=True, slots=True)
class PartitionRetention:
    """A partition's data for retention, as in the log's state at some moment.

    Attributes:
        directory: The partition's directory.
        config: The topic's config.
        log_start: The log start offset.
        end: The log end offset.
        local_start: The start of the local segments, if it is above the log start.
        gaps: Whether offsets may be missing.
    """

    directory: str
    config: TopicConfig
    log_start: int
    end: int
    local_start: int = 0  # start of the local segments, if above the log start
    gaps: bool = False  # whether offsets may be missing: compacted, or a broker's


def retention_by_partition(
    commits: LogDirCommits, *, only: Callable[[TopicState], bool] | None = None
) -> dict[TopicPartition, PartitionRetention]:
    """Return the data for retention of all partitions that are not offline.

    `only` selects the topics; by default all. Call under the lock. Cost: a few us per partition.
    """
    state = commits.state
    found: dict[TopicPartition, PartitionRetention] = {}
    for name, topic in state.topics.items():
        if only is not None and not only(topic):
            continue
        config = topic.parsed()
        for partition, number in topic.dirs.items():
            key = TopicPartition(name, partition)
            if key not in commits.offline:
                directory = joined(commits.directories[number], partition_dir(name, partition))
                found[key] = retention_of(state, key, directory, config)
    return found


def retention_of(
    state: LogState, key: TopicPartition, directory: str, config: TopicConfig
) -> PartitionRetention:
    start, local_start = state.starts.get(key, 0), state.local_start(*key)
    gaps = state.topics[key[0]].adopted or config.compact
    return PartitionRetention(directory, config, start, state.ends[key], local_start, gaps)


def segments_of(fs: FileSystem, directory: str) -> list[LocalSegment]:
    """List a partition's segments. Cost: a listing, and a stat per segment."""
    return [
        LocalSegment(base, fs.size(joined(directory, log_name(base))))
        for base in segment_bases(fs, directory)
    ]
