"""Leader epochs as lists: which epoch began at which offset. Source: LeaderEpochFileCache.

Epochs and start offsets both rise.
"""

from typing import Final

from sparklog.format.checkpoint_files import Epochs

UNDEFINED: Final = (-1, -1)
ASIDE: Final = "#"
"""In a source's offsets it marks what is no topic: "flights#epoch"; no topic's name may have it."""


def assigned(entries: Epochs, epoch: int, start: int) -> Epochs:
    """Return `entries` with `epoch` from `start` on; the same object if nothing changes."""
    if entries and entries[-1][0] == epoch and start >= entries[-1][1]:
        return entries
    kept = list(entries)
    while kept and (kept[-1][0] >= epoch or kept[-1][1] >= start):
        kept.pop()
    return [*kept, (epoch, start)]


def end_offset_for(entries: Epochs, epoch: int, log_end: int) -> tuple[int, int]:
    """Return the greatest epoch that is at most `epoch`, and the offset behind its last record.

    UNDEFINED for an epoch that is above all. Source: LeaderEpochFileCache.endOffsetFor.
    """
    latest = entries[-1][0] if entries else -1
    if epoch < 0 or epoch > latest:
        return UNDEFINED
    if epoch == latest:
        return epoch, log_end
    following = next(entry for entry in entries if entry[0] > epoch)
    floor = [known for known, _ in entries if known <= epoch]
    return (floor[-1] if floor else epoch), following[1]


def clipped(entries: Epochs, start: int) -> Epochs:
    """Return `entries` from offset `start` on."""
    before = [entry for entry in entries if entry[1] <= start]
    after = [entry for entry in entries if entry[1] > start]
    return [(before[-1][0], start), *after] if before else after
