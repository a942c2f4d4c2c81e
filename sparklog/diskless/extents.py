"""Extents: where a partition's records lie in the store, piece by piece and in order."""

from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np

Extents = tuple["Extent", ...]
"""Of one partition: by base offset, each beginning where the one before it ends."""

PIECE_DTYPE: Final = np.dtype(
    [
        ("object", "<u4"),  # index into the table's list of names
        ("start", "<u8"),
        ("size", "<u8"),
        ("count", "<u8"),
        ("max_timestamp", "<i8"),
        ("crc", "<i8"),  # see `Extent.crc`
    ]
)
"""A piece of a commit, in memory: see `Extent.pieces`."""


class Extent(NamedTuple):
    """The records with offsets [base, end) of a partition, as bytes [start, start + size).

    `object`: their object's name below the home. Of a closed segment (`segment`: its id) it is the
    log as Kafka has it; else batches that count their offsets from 0 and carry leader epoch 0:
    `base` and `epoch` are patched in on the way to a reader, for both lie outside of the CRC, and
    with `stamp_ms` (-1: none) LogAppendTime, which takes a new CRC.
    `max_timestamp`: ms, -1 if no record has one. `born`: the entry that named it.
    `pieces`: 0, or the rows of an extent table. `object` then is the table, the rows for this
    partition begin at byte `start` of it, and say where the chunks lie, in order; `size` is theirs,
    all together.
    `crc`: the CRC-32C of the extent's bytes before encryption, as they were staged (`checksums`);
    with `pieces` that of its block in the table. -1: an older version committed it without one.
    """

    base: int
    end: int
    object: str
    start: int
    size: int
    max_timestamp: int
    epoch: int
    born: int
    segment: str = ""
    stamp_ms: int = -1
    pieces: int = 0
    crc: int = -1

    @property
    def place(self) -> tuple[int, int, str, int]:
        """What tells it from every other one: a merge names what it replaces by this."""
        return self.base, self.end, self.object, self.start


def find(extents: Extents, sources: Sequence[tuple[int, int, str, int]]) -> int:
    """Where the extents at `sources` lie in `extents`, one after the other; -1 if they don't."""
    at = index_of(extents, sources[0][0])
    found = [extent.place for extent in extents[at : at + len(sources)]]
    return at if found == list(sources) else -1


def index_of(extents: Extents, offset: int) -> int:
    """The index of the extent that holds `offset`; len(extents) where none does. By bisection."""
    low, high = 0, len(extents)
    while low < high:
        middle = (low + high) // 2
        if extents[middle].end <= offset:
            low = middle + 1
        else:
            high = middle
    return low
