"""Kafka's default partition of a key. Source: Utils.murmur2, BuiltInPartitioner (Kafka 1eb7644)."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from sparklog.errors import InvalidRequestError
from sparklog.format import columns, kernel


def murmur2_partitions(keys: Any, partitions: int) -> NDArray[np.int32]:
    """toPositive(murmur2(key)) % partitions for each key; -1 where it is null.

    Args: keys: an Arrow array (or chunked array) of binary or string.
    Raises: InvalidRequestError: another type, or no partitions.
    """
    if not 1 <= partitions < 2**31:
        raise InvalidRequestError(f"partitions={partitions}, want 1..2^31-1")
    out = np.empty(len(keys), np.int32)
    at = 0
    for chunk in getattr(keys, "chunks", [keys]):
        part = out[at : at + len(chunk)]
        key = columns.to_binary(chunk, "key")
        if len(part):
            kernel.hash_keys(*columns.views(key), partitions, part.data)
        at += len(chunk)
    return out
