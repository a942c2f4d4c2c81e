"""Kafka's default partition of a key. Source: Utils.murmur2, BuiltInPartitioner (Kafka 1eb7644)."""

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sparklog.errors import InvalidRequestError
from sparklog.format import columns, kernel


def murmur2_partitions(keys: Any, partitions: int) -> NDArray[np.int32]:
    """Return Kafka's default partition of each key: toPositive(murmur2(key)) % partitions.

    A null key gives -1.

    Args:
        keys: An Arrow array (or chunked array) of binary or string.
        partitions: The number of partitions.

    Raises:
        InvalidRequestError: The array has another type, or there are no partitions.
    """
    if not 1 <= partitions < 2**31:
        raise InvalidRequestError(f"partitions must be in 1..2^31-1; got {partitions}")
    out = np.empty(len(keys), np.int32)
    at = 0
    for chunk in getattr(keys, "chunks", [keys]):
        part = out[at : at + len(chunk)]
        key = columns.to_binary(chunk, "key")
        if len(part):
            kernel.hash_keys(*columns.views(key), partitions, part.data)
        at += len(chunk)
    return out


def grouped(numbers: NDArray[np.int32]) -> Iterator[tuple[int, NDArray[np.int32]]]:
    """Yield (partition, indexes of its rows), where `numbers` has the partition of each row.

    Partitions ascend, and rows keep their order. Cost: O(rows + highest partition).
    """
    starts = np.empty(int(numbers.max()) + 2, np.int64)
    order = np.empty(len(numbers), np.int32)
    kernel.group_rows(np.ascontiguousarray(numbers).data, starts.data, order.data)
    for number in np.flatnonzero(np.diff(starts)).tolist():
        yield number, order[starts[number] : starts[number + 1]]
