"""Resolve start and end positions ("earliest", a datetime, {partition: offset}) to offsets."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Final

from sparklog.common import TopicPartition
from sparklog.errors import InvalidRequestError, OffsetOutOfRangeError
from sparklog.log.partition_reader import PartitionReader
from sparklog.log.read_retry import last_stable_offset, retry_on_stale_read
from sparklog.storage.view import View

EARLIEST: Final = -2
LATEST: Final = -1
LARGEST: Final = -3  # timestamp
EARLIEST_LOCAL: Final = -4
LATEST_TIERED: Final = -5
Position = str | datetime | Mapping[int, int]
When = int | datetime | Mapping[int, int | datetime]
Spans = Mapping[TopicPartition, tuple[int, int]]


def to_ms(when: int | datetime) -> int:
    """Return milliseconds since the epoch, rounded up. A datetime must have a time zone.

    A datetime before 1970 becomes 0: no record is older, and -1 has a meaning in Kafka.
    """
    if isinstance(when, datetime):
        if when.tzinfo is None:
            raise InvalidRequestError(
                f"{when!r} has no time zone: pass a datetime with a time zone, such as "
                "datetime(..., tzinfo=timezone.utc)"
            )
        delta = when - datetime.fromtimestamp(0, UTC)
        micros = (delta.days * 86_400 + delta.seconds) * 1_000_000 + delta.microseconds
        return max(0, -(-micros // 1000))
    return int(when)


def offsets_for_times(
    view: View, topic: str, when: Mapping[int, int], spans: Spans, *, isolation: str
) -> dict[int, int | None]:
    """Return {partition: first offset with a timestamp >= when (ms)}; None without such a record.

    As in Kafka's ListOffsets, only the first segment that reaches the time is searched. -1 is the
    end, -2 the log start, -3 the first record with the greatest timestamp, -4 the first local
    record (or None), -5 the last record with a remote copy (or None).

    Cost: per partition two index lookups, and a scan of at most index.interval.bytes of batches.
    """
    answer: dict[int, int | None] = {}
    for partition, timestamp in when.items():
        start, end = spans[TopicPartition(topic, partition)]
        if isolation == "read_committed":
            end = last_stable_offset(view, topic, partition, end)
        look_up = partial(_at, timestamp=timestamp, start=start, end=end)
        answer[partition] = retry_on_stale_read(view, topic, partition, start, end, look_up)
    return answer


def _at(reader: PartitionReader, *, timestamp: int, start: int, end: int) -> int | None:
    if timestamp in (EARLIEST, LATEST):
        return start if timestamp == EARLIEST else end
    if timestamp == EARLIEST_LOCAL:
        local = reader.segments.first_local_base()
        return None if local is None else min(max(start, local), end)
    if timestamp == LATEST_TIERED:
        remote = reader.segments.remote_end()
        return remote - 1 if remote is not None and remote > start else None
    if timestamp == LARGEST:
        record = reader.offset_of_max_timestamp(start, end)
    else:
        record = reader.offset_for_time(timestamp, start, end)
    return None if record is None else record[0]


def resolve(
    view: View,
    topic: str,
    partitions: Sequence[int],
    position: Position,
    spans: Spans,
    *,
    name: str,
    isolation: str,
) -> dict[int, int]:
    """Return {partition: offset} of a start or end position, such as "earliest" or a datetime.

    `spans` has the log start and the high watermark of each partition. `name` is "start" or "end",
    for messages.

    Raises:
        OffsetOutOfRangeError: An offset is outside of [log start, high watermark].
    """
    if isinstance(position, datetime):
        when = dict.fromkeys(partitions, to_ms(position))
        offsets = offsets_for_times(view, topic, when, spans, isolation=isolation)
        # All records of a partition may be older: its position is then the end.
        return {
            p: spans[TopicPartition(topic, p)][1] if at is None else at for p, at in offsets.items()
        }
    if isinstance(position, str):
        if position not in ("earliest", "latest"):
            raise InvalidRequestError(
                f"{name} must be 'earliest', 'latest', a datetime or {{partition: offset}}; got "
                f"{position!r}"
            )
        side = 0 if position == "earliest" else 1
        return {p: spans[TopicPartition(topic, p)][side] for p in partitions}
    unknown = set(position) - set(partitions)
    if unknown:
        raise InvalidRequestError(
            f"{name}={dict(position)}: partitions {sorted(unknown)} are not among the partitions "
            f"to read, {sorted(partitions)}"
        )
    default = EARLIEST if name == "start" else LATEST
    return {p: _checked(topic, p, position.get(p, default), spans) for p in partitions}


def _checked(topic: str, partition: int, offset: int, spans: Spans) -> int:
    start, end = spans[TopicPartition(topic, partition)]
    if offset in (EARLIEST, LATEST):
        return start if offset == EARLIEST else end
    if not start <= offset <= end:
        raise OffsetOutOfRangeError(
            f"{topic}-{partition} has offsets [{start}, {end}), but offset {offset} was requested: "
            "start at 'earliest' or 'latest', or at an offset in between",
            offset=offset,
            start=start,
            end=end,
        )
    return offset
