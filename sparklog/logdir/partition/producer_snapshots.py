"""Producer snapshot files of a partition, and the producers' state out of them and the log.

`<offset>.snapshot` holds the state up to, excluding, that offset. Written when a segment rolls
(named by the new base), at a clean close and after recovery; for plain data as well, for Kafka's
tiering copies them. A damaged one is skipped for an older one and a longer replay.
Source: ProducerStateManager, UnifiedLog.rebuildProducerState (Kafka 4.1).
"""

import contextlib
import logging
from typing import Final

from sparklog.errors import DataCorruptionError
from sparklog.format.names import SNAPSHOT, log_name, parse_base, snapshot_name
from sparklog.format.producer_snapshot import format_snapshot, parse_snapshot
from sparklog.fs import File, FileSystem, read_bytes
from sparklog.log.batch_windows import marker_reader, walk
from sparklog.log.producer_state import ProducerState, has_producers
from sparklog.logdir.partition.indexes import hint
from sparklog.logdir.segment_files import bases_of, joined

_LOGGER: Final = logging.getLogger(__name__)


def snapshot_offsets(names: list[str]) -> list[int]:
    """Return the offsets of the snapshot files among `names`, ascending."""
    return sorted(
        offset
        for name in names
        if name.endswith(SNAPSHOT) and (offset := parse_base(name)) is not None
    )


def write_snapshot(fs: FileSystem, directory: str, state: ProducerState) -> File:
    """Write `<state.end>.snapshot`, as Kafka without a temporary file; the caller syncs it."""
    file = fs.open(joined(directory, snapshot_name(state.end)), create=True)
    data = format_snapshot(state.entries())
    file.truncate(0)
    file.pwrite(data, 0)
    return file


def is_whole(fs: FileSystem, path: str) -> bool:
    """Tell whether a snapshot file can be read."""
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
    """Return the producers' state at offset `end`: newest usable snapshot, then header replay.

    Changes nothing on disk. Cost: one pass over the batch headers behind the snapshot.
    """
    names = fs.listdir(directory)
    state = ProducerState(log_start, now=now, expiration_ms=expiration_ms)
    for offset in reversed(snapshot_offsets(names)):
        if not log_start < offset <= end:
            continue
        path = joined(directory, snapshot_name(offset))
        try:
            entries = parse_snapshot(read_bytes(fs, path), path)
        except DataCorruptionError as error:
            _LOGGER.warning("%s; using an older snapshot", error)
            continue
        state = ProducerState(offset, entries, now=now, expiration_ms=expiration_ms)
        break
    replay(fs, directory, state, end, bases=bases_of(names))
    return state


def replay(
    fs: FileSystem, directory: str, state: ProducerState, end: int, *, bases: list[int]
) -> None:
    """Take the batches [state.end, end) of the log into `state`. CRCs are not checked."""
    for at, base in enumerate(bases):
        following = bases[at + 1] if at + 1 < len(bases) else end
        if following <= state.end or base >= end:
            continue
        path = joined(directory, log_name(base))
        with contextlib.suppress(FileNotFoundError), fs.open(path) as file:
            start = hint(fs, directory, base, file, state.end) if state.end > base else 0
            for window in walk(file, start=start, check_crc=False):
                table = window.batches.table
                table = table[(table["last_offset"] >= state.end) & (table["last_offset"] < end)]
                if has_producers(table):
                    state.apply(table, marker_reader(window, path))
                elif len(table):
                    state.end = int(table["last_offset"][-1]) + 1
    state.end = max(state.end, end)


def floor_of(log_start: int, bases: list[int]) -> int:
    """Return the offset above which snapshots count.

    That is the log start. Where local segments begin later, as the copies of those before are in
    remote storage, the first one's own snapshot counts as well: nothing else here tells of what
    came before.
    """
    return max(log_start, bases[0] - 1) if bases else log_start


def stray_offsets(names: list[str], bases: list[int], *, end: int, start: int) -> list[int]:
    """Return the snapshots that Kafka would remove on loading: of no segment, and not the newest.

    Those at or below the log's start go too. Source: removeStraySnapshots, truncateAndReload.
    """
    kept = {*bases, end}
    return [o for o in snapshot_offsets(names) if o not in kept or not start < o <= end]
