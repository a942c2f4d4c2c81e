"""Decides when a segment is full. Pure arithmetic on batch tables.

Source: LogSegment.shouldRoll.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sparklog.config import TopicConfig
from sparklog.format.index import OFFSET_ENTRY, RELATIVE_MAX, TIME_ENTRY

Table = NDArray[Any]


@dataclass(frozen=True, slots=True)
class RollParams:
    """The properties of the active segment that decide when it is rolled.

    Attributes:
        base: The base offset.
        size: The size of the log in bytes.
        first_timestamp: The largest timestamp (ms) in the first batch, or None.
        created_ms: When the segment was created or loaded (ms).
    """

    base: int
    size: int
    first_timestamp: int | None
    created_ms: int


def fit(
    table: Table, roll_params: RollParams, config: TopicConfig, *, now: int, jitter_ms: int
) -> int:
    """Return how many leading batches of `table` fit into the segment before a roll.

    Each batch counts as an append. The two rules about full indexes are applied by `Segment.room`.
    """
    sizes = table["size"].astype(np.int64)
    before = roll_params.size + sizes.cumsum() - sizes
    stop = before > config.roll_bytes - sizes
    stop |= table["last_offset"] - roll_params.base > RELATIVE_MAX
    first = roll_params.first_timestamp
    if first is None:
        first = int(table["max_timestamp"][0])
    waited = table["max_timestamp"] - first if first >= 0 else now - roll_params.created_ms
    stop |= (before > 0) & (waited > config.roll_ms - jitter_ms)
    hits = stop.nonzero()[0]
    return int(hits[0]) if len(hits) else len(table)


def entry_limits(config: TopicConfig) -> tuple[int, int]:
    """Return how many offset and time entries the indexes can have before a segment is rolled.

    The time index reserves a slot for the final entry. Source: TimeIndex.isFull.
    """
    bytes_max = config.segment_index_bytes
    return bytes_max // OFFSET_ENTRY.itemsize, bytes_max // TIME_ENTRY.itemsize - 1
