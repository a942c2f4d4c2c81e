"""Read records partition by partition, without a lock and in bounded memory."""

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, TypeAlias

import pyarrow as pa

from sparklog.clock import monotonic_ms, pause
from sparklog.common import TopicPartition
from sparklog.errors import (
    DataCorruptionError,
    OffsetOutOfRangeError,
    UnknownTopicError,
)
from sparklog.format.columns import one_binary, one_int32
from sparklog.log.arguments import refused
from sparklog.log.group_progress import GroupProgress
from sparklog.log.last_stable_offset import last_stable_offset
from sparklog.log.partition_reader import reader_of
from sparklog.log.positions import Position, resolve
from sparklog.log.read_retry import (
    StaleReadRetries,
    check_incarnation,
    check_topic_id,
    final_error,
)
from sparklog.log.timeline import Timeline
from sparklog.storage.offset_ranges import OffsetRange, outside, subtract
from sparklog.storage.segments import StaleReadError
from sparklog.storage.view import View, unknown_partition

HEADERS_TYPE: Final = pa.list_(
    pa.field("element", pa.struct([("key", pa.string()), ("value", pa.binary())]))
)
SCHEMA: Final = pa.schema(
    [
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", pa.timestamp("us", tz="UTC")),
        ("timestampType", pa.int32()),
        ("headers", HEADERS_TYPE),
    ]
)
"""The columns of Spark's Kafka source. timestampType: 0 CreateTime, 1 LogAppendTime."""

ISOLATION: Final = ("read_uncommitted", "read_committed")
BRIDGE_OFFSETS: Final = 4096
"""Skipped ranges shorter than this are read and filtered, because seeking costs as much."""
GROWTH_MS: Final = 1000  # how often a follower looks for added partitions
Taken: TypeAlias = Callable[[int, int], None]
"""Called with (partition, next offset) when the reader has consumed all earlier records."""

_LOGGER: Final = logging.getLogger(__name__)


def schema_of(columns: Sequence[str] | None) -> pa.Schema:
    """Return SCHEMA restricted to `columns`, in their order. Raises InvalidRequestError."""
    if columns is None:
        return SCHEMA
    expected = f"a list of some of {', '.join(SCHEMA.names)}"
    if isinstance(columns, str) or not isinstance(columns, Sequence):
        raise refused("columns", columns, expected)
    if len(set(columns)) < len(columns) or not set(columns) <= set(SCHEMA.names):
        raise refused("columns", list(columns), f"{expected}, each once")
    return pa.schema([SCHEMA.field(name) for name in columns])


def check_isolation(isolation: str) -> None:
    """Raise InvalidRequestError unless ISOLATION contains `isolation`."""
    if isolation not in ISOLATION:
        raise refused("isolation", isolation, f"one of {', '.join(ISOLATION)}")


def known_partitions(view: View, topic: str, partitions: Iterable[int] | None) -> list[int]:
    """Return the partitions to read; without `partitions`, all partitions of the topic.

    The view's metadata may be older than an added partition, so they are refreshed before a
    partition is rejected. Raises UnknownTopicError for a topic or partition that does not exist.
    """
    if partitions is None:
        return view.partitions(topic)
    wanted = list(partitions)
    if not set(wanted) <= set(view.partitions(topic)):
        view.refresh()
        if missing := set(wanted) - set(view.partitions(topic)):
            raise unknown_partition(view, topic, min(missing))
    return wanted


def read(
    view: View,
    topic: str,
    partitions: Iterable[int] | None,
    start: Position,
    end: Position,
    *,
    isolation: str,
    columns: Sequence[str] | None,
    follow_on: bool,
    progress: GroupProgress | None,
    timeline: Timeline | None = None,
) -> pa.RecordBatchReader:
    """Read records as described at `Log.read`.

    Args:
        progress: Commits the offsets of a group; reading starts at the group's committed offsets.
    """
    schema = schema_of(columns)
    check_isolation(isolation)
    numbers = known_partitions(view, topic, partitions)
    spans = view.spans([TopicPartition(topic, p) for p in numbers])
    if progress is not None:
        start = progress.resume(numbers, start, spans)
    given: Any = {"schema": schema, "isolation": isolation, "progress": progress}
    given["timeline"] = timeline
    first = resolve(view, topic, numbers, start, spans, name="start", isolation=isolation)
    if follow_on:
        batches = follow(view, topic, partitions, first, **given)
    else:
        last = resolve(view, topic, numbers, end, spans, name="end", isolation=isolation)
        ids = {p: view.topic_id(topic, p) for p in numbers}
        batches = read_ranges(view, topic, first, last, ids, **given)
    if progress is not None:
        progress.begin(first)
    return pa.RecordBatchReader.from_batches(schema, batches)


def read_partition(
    view: View,
    topic: str,
    partition: int,
    start: int,
    end: int,
    *,
    schema: pa.Schema,
    isolation: str = "read_uncommitted",
    topic_id: str | None = None,
    incarnation: int | None = None,
    taken: Taken | None = None,
    without: Sequence[OffsetRange] = (),
) -> Iterator[pa.RecordBatch]:
    """Yield the records with start <= offset < end; `end` is at or below the high watermark.

    Files are opened late, and a re-created topic can have files with the same names. The topic id
    is therefore checked after each read, and records of another topic id are never returned.

    Args:
        topic_id: The topic id at planning time; by default the id at the first batch.
        taken: Called with the next offset when the caller asks for more records, and at the end.
        without: Sorted offset ranges to leave out. Ranges of BRIDGE_OFFSETS or more are not read.

    Raises LogReplacedError if a log dir was replaced, also by an earlier state of the log. After a
    second of retries, raises one of these errors, depending on the files: TopicReplacedError,
    OffsetOutOfRangeError, DataCorruptionError, or StorageUnavailableError if remote storage has no
    object of the topic.
    """
    begun = view.renew() if incarnation is None else incarnation
    topic_id = topic_id or view.topic_id(topic, partition)
    for first, last in subtract(start, end, without, bridge=BRIDGE_OFFSETS):
        yield from _read_span(
            view, topic, partition, first, last,
            schema=schema, isolation=isolation, topic_id=topic_id, begun=begun, taken=taken,
            without=without,
        )  # fmt: skip
    if taken is not None and start < end:
        taken(partition, end)


def _read_span(
    view: View,
    topic: str,
    partition: int,
    start: int,
    end: int,
    *,
    schema: pa.Schema,
    isolation: str,
    topic_id: str | None,
    begun: int,
    taken: Taken | None,
    without: Sequence[OffsetRange],
) -> Iterator[pa.RecordBatch]:
    at, tries = start, StaleReadRetries()
    while at < end:
        try:
            reader = reader_of(view, topic, partition, topic_id)
            for rows, following in reader.read_from(
                at, end, columns=schema.names, isolation=isolation
            ):
                check_incarnation(view, begun)
                check_topic_id(view, topic, partition, topic_id)
                at = following
                tries = StaleReadRetries()
                rows = outside(rows, without) if without else rows
                if rows.num_rows:
                    yield complete(rows, topic, partition, schema)
                if taken is not None:
                    taken(partition, at)
            return
        except (StaleReadError, FileNotFoundError, UnknownTopicError, DataCorruptionError) as error:
            # A roll, a cleaning or an undo may have moved files: list again before judging.
            check_incarnation(view, begun)
            judge_failed_read(view, topic, partition, topic_id, at, end, error)
            if not tries.should_retry(view, topic, partition, at, end):
                raise final_error(view, topic, partition, at, end, error) from error
            _LOGGER.debug("%s-%d at %d: %s; reading again", topic, partition, at, error)
            reader_of(view, topic, partition).refresh()


def judge_failed_read(
    view: View,
    topic: str,
    partition: int,
    topic_id: str | None,
    at: int,
    end: int,
    error: Exception,
) -> None:
    """Raise the error that explains a failed read of [at, end), unless segments only moved.

    Raises UnknownTopicError, TopicReplacedError, OffsetOutOfRangeError.
    """
    view.refresh()
    check_topic_id(view, topic, partition, topic_id)
    key = TopicPartition(topic, partition)
    start, mark = view.spans([key])[key]
    if at < start:
        raise OffsetOutOfRangeError(
            f"{topic}-{partition}: offsets [{at}, {min(start, end)}) were deleted, the log starts "
            f"at {start} now; start again at 'earliest'",
            offset=at,
            start=start,
            end=mark,
        ) from error


def complete(rows: pa.RecordBatch, topic: str, partition: int, schema: pa.Schema) -> pa.RecordBatch:
    """Add the topic and partition columns, in the schema's order."""
    if not len(schema):
        return rows.select([])  # keeps the number of rows
    constants: Mapping[str, pa.Scalar] = {
        "topic": one_binary(topic.encode()).view(pa.string())[0],
        "partition": one_int32(partition)[0],
    }
    columns = [
        pa.repeat(constants[name], rows.num_rows) if name in constants else rows.column(name)
        for name in schema.names
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def read_ranges(
    view: View,
    topic: str,
    first: Mapping[int, int],
    last: Mapping[int, int],
    ids: Mapping[int, str | None],
    *,
    schema: pa.Schema,
    isolation: str,
    progress: GroupProgress | None = None,
    timeline: Timeline | None = None,
) -> Iterator[pa.RecordBatch]:
    """Yield the records of {partition: offset} ranges [first, last), partition by partition."""
    begun = view.renew()
    abandoned = {} if timeline is None else timeline.abandoned()
    for partition, start in first.items():
        end = last[partition]
        if isolation == "read_committed":
            end = min(end, last_stable_offset(view, topic, partition, end))
        yield from read_partition(
            view,
            topic,
            partition,
            start,
            end,
            schema=schema,
            isolation=isolation,
            topic_id=ids[partition],
            incarnation=begun,
            taken=None if progress is None else progress.taken,
            without=abandoned.get(TopicPartition(topic, partition), ()),
        )
    if progress is not None:
        progress.flush()


def _added(
    view: View, topic: str, known: Mapping[int, int], ids: dict[int, str | None]
) -> dict[int, int]:
    """Return {partition: log start offset} of partitions added since `known`; store their ids."""
    view.refresh()
    first = min(known)
    check_topic_id(view, topic, first, ids[first])  # do not add partitions of a re-created topic
    new = [p for p in view.partitions(topic) if p not in known]
    ids |= {p: view.topic_id(topic, p) for p in new}
    spans = view.spans([TopicPartition(topic, p) for p in new])
    return {key.partition: start for key, (start, _) in spans.items()}


def follow(
    view: View,
    topic: str,
    partitions: Iterable[int] | None,
    positions: Mapping[int, int],
    *,
    schema: pa.Schema,
    isolation: str,
    progress: GroupProgress | None = None,
    timeline: Timeline | None = None,
    poll_ms: float | None = None,
    ended: Callable[[], bool] = lambda: False,
) -> Iterator[pa.RecordBatch]:
    """Yield records as they are committed, within about `poll_ms` (default: the view's).

    Never ends, unless `ended` returns True; `ended` is called whenever there are no new records.
    With `partitions` None, partitions that are added to the topic are read too, from their
    beginning.
    """
    view.set_following()
    at = dict(positions)
    begun = view.renew()
    ids = {p: view.topic_id(topic, p) for p in at}
    look_ms = monotonic_ms() + GROWTH_MS
    while True:
        check_incarnation(view, begun)
        has_records = False
        if partitions is None and monotonic_ms() >= look_ms:
            at |= _added(view, topic, at, ids)
            look_ms = monotonic_ms() + GROWTH_MS
        keys = [TopicPartition(topic, p) for p in at]
        for key, (start, end) in view.spans(keys).items():
            partition = key.partition
            if at[partition] < start:  # deleted records, though their files may still exist
                raise OffsetOutOfRangeError(
                    f"{topic}-{partition}: offsets [{at[partition]}, {start}) were deleted; start "
                    "again at 'earliest'",
                    offset=at[partition],
                    start=start,
                    end=end,
                )
            if isolation == "read_committed":
                end = last_stable_offset(view, topic, partition, end)
            if at[partition] < end:
                has_records = True
                yield from read_partition(
                    view,
                    topic,
                    partition,
                    at[partition],
                    end,
                    schema=schema,
                    isolation=isolation,
                    topic_id=ids[partition],
                    incarnation=begun,
                    taken=None if progress is None else progress.taken,
                    without=() if timeline is None else timeline.of(*key),
                )
                at[partition] = end
        if not has_records:
            if progress is not None:
                progress.flush()
            for p, topic_id in ids.items():
                check_topic_id(view, topic, p, topic_id)
            if ended():
                return
            pause(view.poll_ms if poll_ms is None else poll_ms)
