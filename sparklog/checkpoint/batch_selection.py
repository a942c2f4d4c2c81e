"""Finds the batch to go back to: by number, time, or offsets."""

from collections.abc import Mapping
from datetime import datetime
from operator import index
from typing import Any

from sparklog.checkpoint.batches import Batches
from sparklog.checkpoint.spark_files.offset_log import TopicOffsets, topics_of
from sparklog.common import TopicPartition
from sparklog.errors import InvalidRequestError
from sparklog.fs import FileSystem
from sparklog.log.positions import to_ms
from sparklog.opening import open_log

Target = int | datetime | Mapping[str, Any]
"""A batch; a time with zone (the last batch planned by then); or offsets.

Offsets {"offsets": {"topic": {"0": 123}}} mean the last batch that reads past none of them.
"""


def select_batch(batches: Batches, to: Target) -> int:
    """Return the committed batch that `to` selects.

    Raises: InvalidRequestError: there is no such batch, or `to` is malformed; DataCorruptionError.
    """
    if isinstance(to, bool) or not isinstance(to, int | datetime | Mapping):
        raise InvalidRequestError(f"{to!r}: want a batch, a datetime or {{'offsets': ...}}")
    if isinstance(to, int):
        return to
    if isinstance(to, datetime):
        when_ms = to_ms(to)
        found = [b for b in _both(batches) if batches.offsets(b).timestamp_ms <= when_ms]
        wanted = f"was planned by {to.isoformat()}"
    else:
        limits = _limits(to)
        found = [b for b in _both(batches) if _is_within(batches, b, limits)]
        wanted = "reads past none of these offsets"
    if not found:
        raise InvalidRequestError(
            f"{batches.checkpoint.path}: no committed batch {wanted}; see sparklog checkpoint "
            f"history {batches.checkpoint.path}",
            path=batches.checkpoint.path,
        )
    return found[-1]


def check_sources(
    batches: Batches,
    batch: int,
    logs: Mapping[str, str],
    *,
    fs: FileSystem,
    storage_options: Mapping[str, Any] | None = None,
) -> None:
    """Check that a sparklog source can continue after a batch: retention has not passed it.

    Args:
        batches: the batches of the checkpoint.
        batch: the batch to go back to.
        logs: source (its name or number in the offsets) -> path of the log that it reads.
        fs: file system of the logs.
        storage_options: fsspec's options, for logs in a bucket.

    Raises: InvalidRequestError: names topic, partition and offsets.
    """
    offsets = batches.offsets(batch).sources
    for source, path in logs.items():
        if source not in offsets:
            raise InvalidRequestError(
                f"batch {batch} has no source {source!r}; it has {', '.join(offsets)}"
            )
        wanted = topics_of(offsets[source])
        if wanted is None:
            raise InvalidRequestError(f"source {source!r} reads no topics: {offsets[source]}")
        _check_log(path, wanted, batch, fs, storage_options)


def _check_log(
    path: str,
    wanted: TopicOffsets,
    batch: int,
    fs: FileSystem,
    storage_options: Mapping[str, Any] | None,
) -> None:
    with open_log(path, storage_options=storage_options, fs=fs) as log:
        for topic in sorted({partition.topic for partition in wanted}):
            held = log.offsets(topic)
            for (name, partition), offset in wanted.items():
                if name != topic or partition not in held:
                    continue
                start = held[partition][0]
                if offset < start:
                    raise InvalidRequestError(
                        f"after batch {batch} the query would read {topic}-{partition} from "
                        f"offset {offset} on, but {path} begins at {start}: retention has passed "
                        "it; go back to a later batch, or restore the log from its archive"
                    )


def _both(batches: Batches) -> list[int]:
    return sorted({*batches.planned} & {*batches.committed})


def _limits(to: Mapping[str, Any]) -> TopicOffsets:
    text = to.get("offsets") if to.keys() == {"offsets"} else None
    topics = text if isinstance(text, Mapping) else {}
    try:
        found = {
            TopicPartition(str(topic), int(partition)): index(offset)
            for topic, partitions in topics.items()
            for partition, offset in partitions.items()
        }
    except (AttributeError, TypeError, ValueError):
        found = {}
    if not found:
        raise InvalidRequestError(f"{to!r}: want {{'offsets': {{'topic': {{'0': 123}}}}}}")
    return found


def _is_within(batches: Batches, batch: int, limits: TopicOffsets) -> bool:
    """Return True if the batch knows all these partitions and reads past none of the offsets."""
    known: TopicOffsets = {}
    for text in batches.offsets(batch).sources.values():
        known.update(topics_of(text) or {})
    return all(known.get(partition, limit + 1) <= limit for partition, limit in limits.items())
