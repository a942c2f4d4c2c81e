"""Lag of registered readers, and the offsets that retention must keep for the readers."""

import socket
from collections.abc import Iterable, Mapping
from typing import Any, Final

import pyarrow as pa

from sparklog.clock import Clock
from sparklog.common import TopicPartition
from sparklog.errors import OffsetOutOfRangeError, UnknownTopicError
from sparklog.log.truncation_detection import LogTruncationDetector
from sparklog.storage.group_store import Groups, check_kept
from sparklog.storage.groups import Readers, is_expired
from sparklog.storage.log_state import LogState
from sparklog.storage.view import View

SCHEMA: Final = pa.schema(
    [
        ("group", pa.string()),
        ("kind", pa.string()),
        ("query", pa.string()),
        ("host", pa.string()),
        ("app", pa.string()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("log_start", pa.int64()),
        ("high_watermark", pa.int64()),
        ("lag", pa.int64()),
        ("time", pa.timestamp("ms", tz="UTC")),
        ("expired", pa.bool_()),
    ]
)


def commit_checked(
    groups: Groups,
    clock: Clock,
    view: View,
    group: str,
    offsets: Mapping[str, Mapping[int, int]],
) -> None:
    """Check {topic: {partition: offset}} against the log, and commit the offsets for a group.

    See `Log.commit_offsets` for the errors.
    """
    keys = {
        TopicPartition(topic, p): offset
        for topic, by in offsets.items()
        for p, offset in by.items()
    }
    topics = view.topics()
    for topic, partition in keys:
        if topic not in topics or partition not in topics[topic].dirs:
            raise UnknownTopicError(
                f"{topic}-{partition} is not in {view.home}; no offset was committed"
            )
    check_kept(groups, view.home)
    for (topic, partition), (start, end) in view.spans(list(keys)).items():
        offset = keys[TopicPartition(topic, partition)]
        if not 0 <= offset <= end:
            raise OffsetOutOfRangeError(
                f"{topic}-{partition} ends at {end}, so offset {offset} can't be committed; no "
                "offset was committed; commit the next offset to read",
                offset=offset,
                start=start,
                end=end,
            )
    origins = LogTruncationDetector(view).origins(keys)
    host = socket.gethostname()
    groups.commit(group, keys, now_ms=clock(), host=host, origins=origins)


def readers_table(
    view: View, readers: Readers, *, now_ms: int, retention_ms: int, topic: str | None = None
) -> pa.Table:
    """Return a row per group and partition, optionally of a single topic. See `Log.readers`."""
    wanted = {
        key for reader in readers.groups for key in reader.offsets if topic in (None, key.topic)
    }
    spans = view.spans(sorted(wanted & _held(view, topic)))
    rows: list[dict[str, Any]] = []
    for reader in readers.groups:
        reader_fields = {name: getattr(reader, name) for name in ("group", "kind", "host", "app")}
        reader_fields["query"] = reader.name or None
        positions = {key: at for key, at in reader.offsets.items() if topic in (None, key.topic)}
        for key, at in sorted(positions.items()):
            row = {
                "topic": key.topic,
                "partition": key.partition,
                "offset": at.offset,
                "time": at.time_ms,
                "expired": is_expired(at.time_ms, now_ms, retention_ms),
            }
            if key in spans:
                start, end = spans[key]
                lag = max(0, end - at.offset)  # a restored log can end below a committed offset
                row |= {"log_start": start, "high_watermark": end, "lag": lag}
            rows.append(reader_fields | row)
    for path, time_ms in sorted(readers.damaged.items()) if topic is None else ():
        expired = is_expired(time_ms, now_ms, retention_ms)
        rows.append({"group": path, "kind": "damaged", "time": time_ms, "expired": expired})
    return pa.Table.from_pylist(rows, schema=SCHEMA)


def _held(view: View, topic: str | None) -> set[TopicPartition]:
    if topic is None:
        topics = view.topics()
        return {TopicPartition(name, p) for name, info in topics.items() for p in info.dirs}
    try:
        return {TopicPartition(topic, p) for p in view.partitions(topic)}
    except UnknownTopicError:
        return set()


def retention_floor(
    state: LogState,
    topic: str,
    partition: int,
    readers: Readers,
    *,
    now_ms: int,
    retention_ms: int,
) -> int | None:
    """Return the offset that retention of a partition must not pass; None if there is none.

    For topics with retention.respect.readers, this is the position of the slowest registered
    reader, restricted to [log start, end). Readers that have not committed for `retention_ms`
    (offsets.retention.minutes) do not count.
    """
    key = TopicPartition(topic, partition)
    floors = retention_floors(state, readers, [key], now_ms=now_ms, retention_ms=retention_ms)
    return floors.get(key)


def retention_floors(
    state: LogState,
    readers: Readers,
    keys: Iterable[TopicPartition] | None = None,
    *,
    now_ms: int,
    retention_ms: int,
) -> dict[TopicPartition, int]:
    """Return {partition: offset that retention must not pass} of partitions with such an offset.

    Other partitions are not in the result. `keys` are the partitions to check; by default all. See
    `retention_floor`.
    """
    slowest = readers.slowest(now_ms=now_ms, retention_ms=retention_ms)
    # An unreadable file may be of the slowest reader: until it expires, delete no record.
    blind = any(not is_expired(t, now_ms, retention_ms) for t in readers.damaged.values())
    respecting = {name for name, topic in state.topics.items() if _respects(topic.config)}
    floors: dict[TopicPartition, int] = {}
    for key in state.ends if keys is None else keys:
        if key.topic in respecting and key in state.ends and (blind or key in slowest):
            start, end = state.starts.get(key, 0), state.ends[key]
            at = start if blind else slowest[key]
            floors[key] = min(max(at, start), end)
    return floors


def group_retention_floors(
    state: LogState, groups: Groups, *, now_ms: int, retention_ms: int
) -> dict[TopicPartition, int]:
    """Return the result of `retention_floors` for all groups of the log.

    The groups are read only if a topic respects readers.
    """
    if not any(_respects(topic.config) for topic in state.topics.values()):
        return {}
    return retention_floors(state, groups.readers(), now_ms=now_ms, retention_ms=retention_ms)


def forget_silent_readers(
    groups: Groups, *, now_ms: int, retention_ms: int, dry_run: bool
) -> list[str]:
    """Delete the offsets of readers that have not committed for `retention_ms`.

    Returns a sentence per affected group. In a dry run nothing is deleted.
    """
    expired = groups.expire(now_ms=now_ms, retention_ms=retention_ms, dry_run=dry_run)
    would = "would be " if dry_run else ""
    return [
        f"reader {group} {would}forgotten: silent for offsets.retention.minutes"
        for group in sorted({commit.group for commit in expired})
    ]


def _respects(config: Mapping[str, str]) -> bool:
    return config.get("retention.respect.readers") == "true"  # as TopicConfig.to_dict writes it
