"""Estimate whether the next micro-batch is small, without a job that counts the rows.

A small micro-batch is collected and written in the driver, which saves a round trip through Python
workers (35 ms instead of over 100 ms). The estimate is the size of the last micro-batch, scaled by
the growth of the planned offsets if they are record counts (Kafka's, sparklog's, rate's), and
limited by Spark's own estimate of the plan, which knows the sizes of files and tables. A wrong
estimate costs time, never correctness: Spark stops collecting at spark.driver.maxResultSize, and
the batch is then staged by tasks in the same call (PROTOCOL, H7). Until then a task has its entire
result in memory, so batches that are known to be large must not be collected.
"""

import json
from typing import Any, Final

from pyspark.sql import DataFrame

from sparklog.storage.query_origin import ASIDE

SMALL_BYTES: Final = 4 << 20
_LARGE_BYTES: Final = 64 << 20  # by Spark's estimate, which includes columns that are not written
_UNKNOWN_BYTES: Final = 1 << 60  # Spark's estimate is above this if the size is unknown
_FLOOR: Final = 4096  # a tiny or empty batch does not predict the next batch


class SizeEstimate:
    """Estimates the size of a writer's micro-batches."""

    def __init__(self) -> None:
        self._bytes: int | None = None  # size of the last batch; None before the first
        self._total = 0  # sum of its planned offsets
        self._step = 0

    def is_small(self, offsets: bytes) -> bool:
        """Return whether the micro-batch with these planned offsets may be collected."""
        if self._bytes is None:  # the first micro-batch may read the whole source
            return False
        grown = (total(offsets) - self._total) / max(self._step, 1)
        return max(self._bytes, _FLOOR) * max(grown, 1) <= SMALL_BYTES

    def learn(self, offsets: bytes, size: int) -> None:
        """Record the size in bytes of a micro-batch that has been written."""
        now = total(offsets)
        # The first total counts from offset 0, not from the start of the micro-batch.
        self._step = max(0, now - self._total) if self._bytes is not None else 0
        self._bytes, self._total = size, now


def is_surely_large(df: DataFrame) -> bool:
    """Return whether Spark knows that these rows are large. Cost: less than 1 ms; no job."""
    frame = getattr(df, "_jdf", None)  # Spark Connect has none
    if frame is None:
        return False
    estimate = int(str(frame.queryExecution().optimizedPlan().stats().sizeInBytes()))
    return _LARGE_BYTES < estimate < _UNKNOWN_BYTES


def total(offsets: bytes) -> int:
    """Return the sum of all numbers in the offsets of all sources (the lines after the second)."""
    sum_of_offsets = 0
    for line in offsets.decode(errors="replace").splitlines()[2:]:
        try:
            sum_of_offsets += _sum(json.loads(line))
        except ValueError:
            continue
    return sum_of_offsets


def _sum(value: Any) -> int:
    if isinstance(value, dict):
        return sum(_sum(each) for name, each in value.items() if ASIDE not in name)
    if isinstance(value, list):
        return sum(_sum(each) for each in value)
    return value if type(value) is int else 0
