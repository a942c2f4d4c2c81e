"""`read_range`: reads records of a partition from an offset or a time, within limits.

For measured times, see `docs/ui.md`.
"""

from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

import pyarrow as pa

from sparklog.common import TopicPartition
from sparklog.errors import InvalidRequestError, UnknownTopicError
from sparklog.log.log import Log, view_of
from sparklog.log.positions import offsets_for_times, to_ms
from sparklog.ui.browse.chunks import CHUNK_BYTES, Source, read_chunk
from sparklog.ui.browse.limits import RECORDS_MAX, Budget, Limits

_FIRST_BYTES: Final = 128 << 10  # the first read is small, because most ranges are
_FAULTS_MAX: Final = 20


class UnknownRecordError(UnknownTopicError):
    """The topic exists, but the partition or the record does not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    """Selects records of a partition: at most `limits.records` from `start`.

    Attributes:
        topic: The topic.
        partition: The partition.
        start: An offset, a time or None. A time selects the first record at or after it, as in
            Kafka's ListOffsets. None selects the last records. An offset below the log start
            selects the log start, and an offset above the end the end.
        limits: The limits of the request.
    """

    topic: str
    partition: int = 0
    start: int | datetime | None = None
    limits: Limits = field(default_factory=Limits)


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordRange:
    """The records that were read from a partition.

    Attributes:
        rows: The records, with the columns COLUMNS, BATCH_FIELDS, `aborted` and `partition`.
        start: The first offset of the range.
        end: The offset after the range.
        log_start: The log start offset of the partition.
        log_end: The high watermark of the partition.
        ended: The limit that ended the range: "records", or a reason of `Budget.over`. "" if the
            range ends at the high watermark.
        faults: Descriptions of the records in the range that can't be read.
    """

    rows: pa.Table
    start: int
    end: int
    log_start: int
    log_end: int
    ended: str
    faults: tuple[str, ...]


def read_range(log: Log, query: Query, budget: Budget) -> RecordRange:
    """Read the records that `query` selects. Damaged records are reported in `RecordRange.faults`.

    Memory: at most the limits of the query, and one chunk.
    Cost: reads of 2 MiB of log, or of a larger record batch.

    Raises:
        UnknownTopicError: The topic or the partition does not exist.
        InvalidRequestError: The limit of records is out of range.
        OffsetOutOfRangeError: Retention deleted the records during the read.
        StorageUnavailableError: The storage can't be read.
        LogReplacedError, TopicReplacedError: Another log or topic has replaced this one.
    """
    wanted = query.limits.records
    if not 1 <= wanted <= RECORDS_MAX:
        raise InvalidRequestError(f"limit={wanted}: the limit must be from 1 to {RECORDS_MAX}")
    source, log_start = _source(log, query)
    start = at = _start(source, query, log_start)
    tables, faults, count, ended, size = list[pa.Table](), list[str](), 0, "", _FIRST_BYTES
    while at < source.mark and not ended:
        chunk = read_chunk(source, at, budget, max_bytes=size)
        if chunk.fault:
            faults.append(chunk.fault)
        rows = pa.Table.from_batches(chunk.rows) if chunk.rows else None
        # Doubled, because a range of few large records needs more than the first read.
        at, size = chunk.end, min(2 * size, CHUNK_BYTES)
        if rows is not None:
            if count + rows.num_rows > wanted:
                at = rows.column("offset")[wanted - count].as_py()
            # take() copies. A slice would keep the whole chunk in memory until the page is
            # complete, beyond the limit of kept_bytes.
            tables.append(rows.take(pa.array(range(min(wanted - count, rows.num_rows)))))
            count += tables[-1].num_rows
            budget.kept_bytes += tables[-1].nbytes
        ended = "records" if count == wanted else budget.over
    table = pa.concat_tables(tables) if tables else pa.table({})
    if tables:
        numbers = pa.array([query.partition] * count, pa.int32())
        table = table.append_column("partition", numbers)
    return RecordRange(
        rows=table,
        start=start,
        end=at,
        log_start=log_start,
        log_end=source.mark,
        ended=ended if at < source.mark else "",
        faults=tuple(faults[:_FAULTS_MAX]),
    )


def _source(log: Log, query: Query) -> tuple[Source, int]:
    """Return the current state of the partition, and the log start offset."""
    view = view_of(log)
    incarnation = view.renew()
    view.refresh()
    topic, partition = query.topic, query.partition
    known = view.partitions(topic)
    if partition not in known:
        raise UnknownRecordError(
            f"topic {topic} has no partition {partition}: the topic has {len(known)} partitions, "
            f"{known[0]} to {known[-1]}"
        )
    start, end = view.spans([key := TopicPartition(topic, partition)])[key]
    return Source(view, topic, partition, view.topic_id(topic, partition), incarnation, end), start


def _start(source: Source, query: Query, log_start: int) -> int:
    start, end = query.start, source.mark
    if start is None:
        start = end - query.limits.records
    elif isinstance(start, datetime):
        spans = {TopicPartition(source.topic, source.partition): (log_start, end)}
        when = {source.partition: to_ms(start)}
        found = offsets_for_times(
            # Pages also show records of open and aborted transactions, so a time may select one.
            source.view, source.topic, when, spans, isolation="read_uncommitted"
        )[source.partition]
        start = end if found is None else found
    return min(max(start, log_start), end)
