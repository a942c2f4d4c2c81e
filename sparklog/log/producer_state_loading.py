"""Load the producer state at an offset from the newest usable snapshot and the records after it.

Source: ProducerStateManager, UnifiedLog.rebuildProducerState (Kafka 4.1).
"""

import contextlib
import logging
from typing import Final

from sparklog.errors import DataCorruptionError
from sparklog.format.names import snapshot_name
from sparklog.format.producer_snapshot import parse_snapshot
from sparklog.log.batch_windows import marker_reader, walk
from sparklog.log.index_entries import position_hint
from sparklog.log.producer_state import ProducerState, has_producers
from sparklog.storage.segments import PartitionSegments

_LOGGER: Final = logging.getLogger(__name__)


def load_producer_state(
    segments: PartitionSegments,
    end: int,
    *,
    log_start: int,
    now: int,
    expiration_ms: int,
) -> ProducerState:
    """Return the producer state at offset `end`, from a snapshot and the log after it.

    The newest usable snapshot is taken: instead of a damaged snapshot, an older one and a longer
    replay. Cost: a pass over the batch headers behind the snapshot.

    Args:
        segments: The partition's segments.
        end: The offset.
        log_start: Snapshots at or below this offset are not used.
        now: The current time (ms).
        expiration_ms: Producers that were idle for longer are left out.
    """
    state = ProducerState(log_start, now=now, expiration_ms=expiration_ms)
    for offset in reversed(segments.producer_snapshots()):
        # A snapshot above `end` may include batches that were undone after a crash.
        if not log_start < offset <= end:
            continue
        path = f"{segments.where}/{snapshot_name(offset)}"
        try:
            entries = parse_snapshot(segments.producer_snapshot(offset), path)
        except DataCorruptionError as error:
            _LOGGER.warning("%s; using an older snapshot", error)
            continue
        state = ProducerState(offset, entries, now=now, expiration_ms=expiration_ms)
        break
    replay_batches(segments, state, end, bases=segments.bases())
    return state


def replay_batches(
    segments: PartitionSegments, state: ProducerState, end: int, *, bases: list[int]
) -> None:
    """Apply the batches of the offsets [state.end, end) to `state`. CRCs are not checked.

    `bases` are the base offsets of the segments.
    """
    for at, base in enumerate(bases):
        following = bases[at + 1] if at + 1 < len(bases) else end
        if following <= state.end or base >= end:
            continue
        # Retention may delete the oldest segments now: their records are below the log start.
        with contextlib.suppress(FileNotFoundError):
            log = segments.log(base)
            start = position_hint(segments, base, log, state.end) if state.end > base else 0
            for window in walk(log, start=start, check_crc=False):
                table = window.batches.table
                table = table[(table["last_offset"] >= state.end) & (table["last_offset"] < end)]
                if has_producers(table):
                    state.apply(table, marker_reader(window, log.path))
                elif len(table):
                    state.end = int(table["last_offset"][-1]) + 1
    state.end = max(state.end, end)  # compaction may have removed the batches before `end`
