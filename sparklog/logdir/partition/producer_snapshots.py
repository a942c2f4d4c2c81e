"""Producer snapshot files of a partition, and the producer state from snapshots and log.

`<offset>.snapshot` contains the state of all records below that offset. A snapshot is written when
a segment rolls (named by the new base), at a clean close, and after recovery; also for data without
producer ids, because Kafka's tiering copies it. If a snapshot is damaged, an older snapshot and a
longer replay are used. Source: ProducerStateManager, UnifiedLog.rebuildProducerState (Kafka 4.1).
"""

from sparklog.errors import DataCorruptionError
from sparklog.format.names import SNAPSHOT, snapshot_name
from sparklog.format.producer_snapshot import format_snapshot, parse_snapshot
from sparklog.fs import File, FileSystem, read_bytes
from sparklog.log.producer_state import ProducerState
from sparklog.log.producer_state_loading import load_producer_state
from sparklog.logdir.partition.partition_segments import LogDirSegments
from sparklog.logdir.segment_files import joined, offsets_of


def snapshot_offsets(names: list[str]) -> list[int]:
    """Return the offsets of the snapshot files among `names`, ascending."""
    return offsets_of(names, SNAPSHOT)


def write_snapshot(fs: FileSystem, directory: str, state: ProducerState) -> File:
    """Write the producer state to `<state.end>.snapshot`. The caller must sync the returned file.

    As in Kafka, there is no temporary file.
    """
    file = fs.open(joined(directory, snapshot_name(state.end)), create=True)
    data = format_snapshot(state.entries())
    # A killed process may have left a torn snapshot of the same offset.
    file.truncate(0)
    file.pwrite(data, 0)
    return file


def is_whole(fs: FileSystem, path: str) -> bool:
    """Return True if a snapshot file is valid."""
    try:
        parse_snapshot(read_bytes(fs, path), path)
    except (DataCorruptionError, FileNotFoundError):
        return False
    return True


def load_producers(
    fs: FileSystem,
    directory: str,
    end: int,
    *,
    log_start: int,
    now: int,
    expiration_ms: int,
) -> ProducerState:
    """Return the producer state at offset `end`, from the newest valid snapshot and the log.

    Nothing is written. For the arguments see `load_producer_state`.
    """
    return load_producer_state(
        LogDirSegments(fs, directory),
        end,
        log_start=log_start,
        now=now,
        expiration_ms=expiration_ms,
    )


def floor_of(log_start: int, bases: list[int]) -> int:
    """Return the offset above which snapshots are valid: the log start.

    If local segments start later, because earlier segments are only in remote storage, the snapshot
    of the first local segment is valid too, because no other local file contains the earlier state.
    """
    return max(log_start, bases[0] - 1) if bases else log_start


def stray_offsets(names: list[str], bases: list[int], *, end: int, start: int) -> list[int]:
    """Return the offsets of the snapshot files that Kafka removes on loading.

    These are snapshots at or below the log start, and snapshots that are neither at the base of a
    segment nor at the log's end. Source: removeStraySnapshots, truncateAndReload.

    Args:
        names: The names of the files in the partition's directory.
        bases: The base offsets of the segments.
        end: The log end offset.
        start: The log start offset; see `floor_of`.
    """
    kept = {*bases, end}
    return [o for o in snapshot_offsets(names) if o not in kept or not start < o <= end]
