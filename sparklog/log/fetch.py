"""Fetches record batches, partition by partition, without a lock and in bounded memory."""

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
"""Of what is left out, fewer are read and dropped: to begin anew behind them costs as much."""
_GROWTH_MS: Final = 1000  # how often a follower asks for partitions that were added
Taken: TypeAlias = Callable[[int, int], None]
"""Is told (partition, offset): whoever reads has taken all before it."""

_LOGGER: Final = logging.getLogger(__name__)


def schema_of(columns: Sequence[str] | None) -> pa.Schema:
    """Return SCHEMA cut to `columns`, in their order. Raises InvalidRequestError."""
    if columns is None:
        return SCHEMA
    expected = f"a list of some of {', '.join(SCHEMA.names)}"
    if isinstance(columns, str) or not isinstance(columns, Sequence):
        raise refused("columns", columns, expected)
    if len(set(columns)) < len(columns) or not set(columns) <= set(SCHEMA.names):
        raise refused("columns", list(columns), f"{expected}, each once")
    return pa.schema([SCHEMA.field(name) for name in columns])


def check_isolation(isolation: str) -> None:
    """Raise InvalidRequestError unless `isolation` is one of ISOLATION."""
    if isolation not in ISOLATION:
        raise refused("isolation", isolation, f"one of {', '.join(ISOLATION)}")


def known_partitions(view: View, topic: str, partitions: Iterable[int] | None) -> list[int]:
    """Return the partitions to read; None stands for all of the topic's.

    A view may know the topic from before a partition was added, so it looks once more before it
    refuses one. Raises UnknownTopicError for a topic or a partition that the log does not have.
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
    """See `Log.read`. `progress`: of a group's member, which goes on where the group was."""
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
    """Yield the records with start <= offset < end, `end` at or below the high watermark.

    `topic_id` is the topic's when the range was planned; by default its id at the first batch.
    No record of a topic with another id is given out: files are opened late, and those of a topic
    that was made again may have the same names, so the id is looked at after each read.
    `taken` is told where to go on when the next records are asked for, and at the end.
    `without`: offsets that are left out, sorted: not read where they are BRIDGE_OFFSETS or more.
    Raises LogReplacedError if a log dir was replaced meanwhile, or by an earlier state before.
    Raises, after a second of retries: TopicReplacedError, OffsetOutOfRangeError,
    DataCorruptionError or, where remote storage has nothing of the topic, StorageUnavailableError:
    whichever the files then show.
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
            # A roll, a clean-up or an undo may have moved files under us: look again, then judge.
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
    """Raise what a failed read of [at, end) is due to, where that isn't moving segments.

    Raises: UnknownTopicError, TopicReplacedError; OffsetOutOfRangeError.
    """
    view.refresh()
    check_topic_id(view, topic, partition, topic_id)
    key = TopicPartition(topic, partition)
    start, mark = view.spans([key])[key]
    if at < start:
        raise OffsetOutOfRangeError(
            f"{topic}-{partition}: offsets [{at}, {min(start, end)}) are gone, the log starts at "
            f"{start} now; start again at 'earliest'",
            offset=at,
            start=start,
            end=mark,
        ) from error


def complete(rows: pa.RecordBatch, topic: str, partition: int, schema: pa.Schema) -> pa.RecordBatch:
    """Add the topic and partition columns, in the schema's order."""
    if not len(schema):
        return rows.select([])  # which still counts its rows
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
    """Yield the records [first, last) of {partition: offset}, one partition after another."""
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
    """Return {partition: its start} of what the topic has beside `known`, and note its id."""
    view.refresh()
    first = min(known)
    check_topic_id(view, topic, first, ids[first])  # another topic's are none of ours
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
    """Yield records as they are committed; new ones show within about `poll_ms` (the view's).

    For ever, or until `ended` says so, which is asked whenever there is nothing new. With
    `partitions` None those that are added to the topic are read, too, from their beginning on.
    """
    view.set_following()
    at = dict(positions)
    begun = view.renew()
    ids = {p: view.topic_id(topic, p) for p in at}
    look_ms = monotonic_ms() + _GROWTH_MS
    while True:
        check_incarnation(view, begun)
        found = False
        if partitions is None and monotonic_ms() >= look_ms:
            at |= _added(view, topic, at, ids)
            look_ms = monotonic_ms() + _GROWTH_MS
        keys = [TopicPartition(topic, p) for p in at]
        for key, (start, end) in view.spans(keys).items():
            partition = key.partition
            if at[partition] < start:  # deleted meanwhile, though its files may still be there
                raise OffsetOutOfRangeError(
                    f"{topic}-{partition}: offsets [{at[partition]}, {start}) are gone; "
                    "start again at 'earliest'",
                    offset=at[partition],
                    start=start,
                    end=end,
                )
            if isolation == "read_committed":
                end = last_stable_offset(view, topic, partition, end)
            if at[partition] < end:
                found = True
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
        if not found:
            if progress is not None:
                progress.flush()
            for p, topic_id in ids.items():
                check_topic_id(view, topic, p, topic_id)
            if ended():
                return
            pause(view.poll_ms if poll_ms is None else poll_ms)
