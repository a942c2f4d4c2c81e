"""Leader epochs and the offsets at which they start, as lists. Source: LeaderEpochFileCache.

Epochs and start offsets both increase.
"""

from typing import Final

from sparklog.format.checkpoint_files import Epochs

UNDEFINED: Final = (-1, -1)
HISTORY_EPOCH: Final = 1 << 16
"""Epochs from here on begin a history of the log; lower ones are counted by brokers and forks."""
_BEGINNING_MS: Final = 1_577_836_800_000  # 2020: seconds since then fit into Kafka's int32


def assigned(entries: Epochs, epoch: int, start: int) -> Epochs:
    """Return `entries` after `epoch` starts at offset `start`.

    Entries that conflict with this are removed. Returns the same object if nothing changes.
    """
    if entries and entries[-1][0] == epoch and start >= entries[-1][1]:
        return entries
    kept = list(entries)
    # As LeaderEpochFileCache.assign, which removes conflicting entries at the end.
    while kept and (kept[-1][0] >= epoch or kept[-1][1] >= start):
        kept.pop()
    return [*kept, (epoch, start)]


def end_offset_for(entries: Epochs, epoch: int, log_end: int) -> tuple[int, int]:
    """Return the greatest epoch up to `epoch`, and the offset after the last record of this epoch.

    Returns `UNDEFINED` if `epoch` is above the latest epoch. Source:
    LeaderEpochFileCache.endOffsetFor.
    """
    latest = entries[-1][0] if entries else -1
    if epoch < 0 or epoch > latest:
        return UNDEFINED
    if epoch == latest:
        return epoch, log_end
    # Kafka also answers for an epoch below the oldest known one, whose records were deleted: with
    # the requested epoch and the start of the oldest, so that a follower restarts from there.
    following = next(entry for entry in entries if entry[0] > epoch)
    floor = [known for known, _ in entries if known <= epoch]
    return (floor[-1] if floor else epoch), following[1]


def new_epoch(latest: int, now_ms: int) -> int:
    """Return a leader epoch above `latest`: the seconds since 2020, so later epochs are greater."""
    return max(latest + 1, HISTORY_EPOCH, (now_ms - _BEGINNING_MS) // 1000)


def clipped(entries: Epochs, *, start: int = 0, end: int | None = None) -> Epochs:
    """Return the leader epochs of the offsets [start, end) alone.

    The epoch of `start` is returned as if it started there.
    """
    if end is not None:
        entries = [entry for entry in entries if entry[1] < end]
    if not start:
        return entries
    before = [entry for entry in entries if entry[1] <= start]
    after = [entry for entry in entries if entry[1] > start]
    return [(before[-1][0], start), *after] if before else after
