"""Extents: the locations of a partition's records in the store, in offset order."""

from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np

from sparklog.tiered.layout.manifest import log_object
from sparklog.tiered.remote_segment import RemoteSegment

Extents = tuple["Extent", ...]
"""A partition's extents by base offset; each starts where the previous one ends."""

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
"""A row of an extent table, in memory: see `Extent.pieces`."""


class Extent(NamedTuple):
    """The records [base, end) of a partition, in the bytes [start, start + size) of an object.

    There are three kinds. A closed segment has a segment id, and the bytes are the log file, as in
    Kafka. Otherwise the bytes are batches with offsets from 0 and with leader epoch 0: `base` and
    `epoch` are patched in for readers, because the CRC of a batch covers neither; so is `stamp_ms`
    as LogAppendTime, which requires a new CRC. If `pieces` is not 0, the object is an extent table
    with the locations of chunks.

    Attributes:
        object: The name of the object, or of the extent table.
        start: The position of the first byte. In an extent table the position of this partition's
            rows, which have the locations of the chunks in order.
        size: The number of bytes. With an extent table the total size of the chunks.
        max_timestamp: The largest timestamp in ms; -1 if no record has a timestamp.
        born: The number of the entry that added the extent.
        segment: The id of a closed segment.
        stamp_ms: The LogAppendTime; -1 for none.
        pieces: The number of rows in the extent table, or 0.
        crc: The CRC-32C of the bytes as staged, before encryption (`checksums`). With an extent
            table, of this partition's rows. -1: committed without a checksum by an older version.
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
        """The identity of the extent in the log's state, as the record of a merge refers to it."""
        return self.base, self.end, self.object, self.start


def segment_extent(segment: RemoteSegment, crc: int = -1) -> Extent:
    """Return the extent of a closed segment. `crc` is the CRC-32C of the log, or -1 if unknown."""
    epoch = segment.epochs[-1][0] if segment.epochs else 0
    return Extent(
        segment.base, segment.end, log_object(segment), 0, segment.size, segment.max_timestamp,
        epoch, -1, segment.id, crc=crc,
    )  # fmt: skip


def find(extents: Extents, sources: Sequence[tuple[int, int, str, int]]) -> int:
    """Return the index of the first of consecutive extents with these identities, or -1.

    `sources` are values of `Extent.place`.
    """
    at = index_of(extents, sources[0][0])
    places = [extent.place for extent in extents[at : at + len(sources)]]
    return at if places == list(sources) else -1


def index_of(extents: Extents, offset: int) -> int:
    """Return the index of the extent that contains `offset`, or len(extents). Uses bisection."""
    low, high = 0, len(extents)
    while low < high:
        middle = (low + high) // 2
        if extents[middle].end <= offset:
            low = middle + 1
        else:
            high = middle
    return low
