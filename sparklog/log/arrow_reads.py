"""Read records as Arrow batches, partition by partition, without a lock and in bounded memory.

Kafka's Fetch does not use this module: it returns undecoded batches (`raw_batches`).
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

import pyarrow as pa

from sparklog.clock import monotonic_ms, pause
from sparklog.common import TopicPartition
from sparklog.errors import OffsetOutOfRangeError
from sparklog.format.columns import one_binary, one_int32
from sparklog.log.arguments import refused
from sparklog.log.group_progress import GroupProgress
from sparklog.log.positions import Position, resolve
from sparklog.log.read_retry import (
    STALE_READ_ERRORS,
    PartitionRead,
    StaleReadRetries,
    check_topic_id,
    last_stable_offset,
    replaced,
)
from sparklog.log.timeline import Timeline
from sparklog.storage.offset_ranges import OffsetRange, outside, subtract
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
GROWTH_MS: Final = 1000  # how often `follow` looks for added partitions
Taken: TypeAlias = Callable[[int, int], None]
"""Called with (partition, next offset) when the reader has consumed all earlier records."""


def schema_of(columns: Sequence[str] | None) -> pa.Schema:
    """Return the schema of these columns, in their order; without `columns`, the complete SCHEMA.

    Raises:
        InvalidRequestError: A column is unknown or named twice.
    """
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
    partition is rejected.

    Raises:
        UnknownTopicError: The topic or a partition does not exist.
    """
    if partitions is None:
        return view.partitions(topic)
    wanted = list(partitions)
    if not set(wanted) <= set(view.partitions(topic)):
        view.refresh()
        if missing := set(wanted) - set(view.partitions(topic)):
            raise unknown_partition(view, topic, min(missing))
    return wanted


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicRead:
    """How a topic's records are read.

    Attributes:
        view: The view of the log.
        topic: The topic.
        partitions: The partitions. None: all, also those that are added while a reader follows.
        schema: The columns to return, some of SCHEMA.
        isolation: "read_uncommitted" or "read_committed".
        progress: Commits the offsets of a group.
        timeline: Names the offsets of abandoned micro-batches, which are left out.
    """

    view: View
    topic: str
    partitions: Sequence[int] | None
    schema: pa.Schema
    isolation: str
    progress: GroupProgress | None = None
    timeline: Timeline | None = None

    def planned(
        self, partition: int, start: int, end: int, topic_id: str | None, incarnation: int
    ) -> PartitionRead:
        """Return the description of a read of a partition's offsets [start, end).

        `topic_id` and `incarnation` identify the topic and the log for which the offsets were
        determined.
        """
        return PartitionRead(
            self.view, self.topic, partition, start, end, self.isolation, topic_id, incarnation
        )

    @property
    def taken(self) -> Taken | None:
        """The function to call with (partition, next offset) for records that were consumed.

        It notes the progress of the group; None without a group.
        """
        return None if self.progress is None else self.progress.taken


def read_topic(
    wanted: TopicRead, start: Position, end: Position, *, follow_on: bool
) -> pa.RecordBatchReader:
    """Return a reader of a topic's records; see `Log.read`.

    If `wanted` has a `progress`, reading starts at the group's committed offsets.

    Args:
        wanted: The topic and how it is read.
        start: The start position.
        end: The end position.
        follow_on: Whether to continue with records that are committed later.
    """
    check_isolation(wanted.isolation)
    view, topic, progress = wanted.view, wanted.topic, wanted.progress
    numbers = known_partitions(view, topic, wanted.partitions)
    spans = view.spans([TopicPartition(topic, p) for p in numbers])
    if progress is not None:
        start = progress.resume(numbers, start, spans)
    isolation = wanted.isolation
    first = resolve(view, topic, numbers, start, spans, name="start", isolation=isolation)
    if follow_on:
        batches = follow(wanted, first)
    else:
        last = resolve(view, topic, numbers, end, spans, name="end", isolation=isolation)
        ids = {p: view.topic_id(topic, p) for p in numbers}
        batches = read_ranges(wanted, first, last, ids)
    if progress is not None:
        # Before the first record is returned, so that retention waits for this group.
        progress.begin(first)
    return pa.RecordBatchReader.from_batches(wanted.schema, batches)


def read_partition(
    read: PartitionRead,
    schema: pa.Schema,
    *,
    taken: Taken | None = None,
    without: Sequence[OffsetRange] = (),
) -> Iterator[pa.RecordBatch]:
    """Yield a partition's records.

    Files are opened late, and a re-created topic can have files with the same names. The topic id
    is therefore checked after each read, and records of another topic id are never returned. If
    `read` has no topic id and incarnation, those at the first batch are used.

    Args:
        read: The partition and its offsets.
        schema: The columns to return.
        taken: Called with the next offset when the caller asks for more records, and at the end.
        without: Sorted offset ranges to leave out. Ranges of BRIDGE_OFFSETS or more are not read.

    Raises:
        LogReplacedError: A log dir was replaced, also by an earlier state of the log.
        TopicReplacedError: The topic was re-created.
        OffsetOutOfRangeError: The records were deleted.
        DataCorruptionError: A file is damaged or missing. This and the two errors above are raised
            after a second of retries.
        StorageUnavailableError: Remote storage does not answer, or has no object of the topic.
    """
    read = read.begun()
    topic, partition = read.topic, read.partition
    for first, last in subtract(read.start, read.end, without, bridge=BRIDGE_OFFSETS):
        at, retries = first, StaleReadRetries()
        while at < last:
            try:
                for rows, following in read.reader().read_from(
                    at, last, columns=schema.names, isolation=read.isolation
                ):
                    # The files were opened after the read was planned, perhaps those of a
                    # re-created topic: check before any of these rows is returned.
                    read.check()
                    at, retries = following, StaleReadRetries()
                    rows = outside(rows, without) if without else rows
                    if rows.num_rows:
                        yield complete(rows, topic, partition, schema)
                    if taken is not None:
                        taken(partition, at)
                break
            except STALE_READ_ERRORS as error:
                read._replace(start=at, end=last).prepare_retry(error, retries)
    if taken is not None and read.start < read.end:
        taken(partition, read.end)


def complete(rows: pa.RecordBatch, topic: str, partition: int, schema: pa.Schema) -> pa.RecordBatch:
    """Return a partition's rows with the columns of `schema`, adding topic and partition."""
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
    wanted: TopicRead,
    first: Mapping[int, int],
    last: Mapping[int, int],
    ids: Mapping[int, str | None],
) -> Iterator[pa.RecordBatch]:
    """Yield the records of a range of offsets per partition, partition by partition.

    Args:
        wanted: How the records are read.
        first: {partition: first offset}.
        last: {partition: end offset, exclusive}.
        ids: {partition: topic id in its directory}.
    """
    view, topic = wanted.view, wanted.topic
    begun = view.renew()
    abandoned = {} if wanted.timeline is None else wanted.timeline.abandoned()
    for partition, start in first.items():
        end = last[partition]
        if wanted.isolation == "read_committed":
            # Transactions behind the last stable offset are undecided: they may still be aborted.
            end = min(end, last_stable_offset(view, topic, partition, end))
        yield from read_partition(
            wanted.planned(partition, start, end, ids[partition], begun),
            wanted.schema,
            taken=wanted.taken,
            without=abandoned.get(TopicPartition(topic, partition), ()),
        )
    if wanted.progress is not None:
        wanted.progress.flush()


def _added(
    view: View, topic: str, known: Mapping[int, int], ids: dict[int, str | None]
) -> dict[int, int]:
    """Return {partition: log start offset} of the partitions that are not in `known`.

    Their topic ids are added to `ids`. Raises TopicReplacedError if the topic was re-created.
    """
    view.refresh()
    first = min(known)
    check_topic_id(view, topic, first, ids[first])  # do not add partitions of a re-created topic
    new = [p for p in view.partitions(topic) if p not in known]
    ids |= {p: view.topic_id(topic, p) for p in new}
    spans = view.spans([TopicPartition(topic, p) for p in new])
    return {key.partition: start for key, (start, _) in spans.items()}


def follow(
    wanted: TopicRead,
    positions: Mapping[int, int],
    *,
    poll_ms: float | None = None,
    ended: Callable[[], bool] = lambda: False,
) -> Iterator[pa.RecordBatch]:
    """Yield records as they are committed, within about `poll_ms` (default: the view's).

    Never ends, unless `ended` returns True.

    Args:
        wanted: The topic and how it is read. Without a list of partitions, partitions that are
            added to the topic are read too, from their beginning.
        positions: {partition: first offset}.
        poll_ms: The time between two looks for new records.
        ended: Called whenever there are no new records.
    """
    view, topic, timeline = wanted.view, wanted.topic, wanted.timeline
    view.set_following()
    at = dict(positions)
    begun = view.renew()
    ids = {p: view.topic_id(topic, p) for p in at}
    look_ms = monotonic_ms() + GROWTH_MS
    while True:
        if view.renew() != begun:
            # Another log, or an earlier state, has other records at the offsets that follow.
            raise replaced(view.home)
        has_records = False
        if wanted.partitions is None and monotonic_ms() >= look_ms:
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
            if wanted.isolation == "read_committed":
                end = last_stable_offset(view, topic, partition, end)
            if at[partition] < end:
                has_records = True
                yield from read_partition(
                    wanted.planned(partition, at[partition], end, ids[partition], begun),
                    wanted.schema,
                    taken=wanted.taken,
                    without=() if timeline is None else timeline.of(*key),
                )
                at[partition] = end
        if not has_records:
            if wanted.progress is not None:
                wanted.progress.flush()
            # A read checks the topic id. Without new records no read would notice a deletion.
            for p, topic_id in ids.items():
                check_topic_id(view, topic, p, topic_id)
            if ended():
                return
            pause(view.poll_ms if poll_ms is None else poll_ms)
