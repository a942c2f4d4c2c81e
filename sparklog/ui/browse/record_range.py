"""`read_range`: records of a partition from an offset or a time on, within limits.

Cost (2 vCPUs, page cache): see `docs/ui.md`.
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

_FIRST_BYTES: Final = 128 << 10  # read at first: most ranges are small
_FAULTS_MAX: Final = 20


class UnknownRecordError(UnknownTopicError):
    """The topic exists, but it has no such partition or record."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    """The records to read: at most `limits.records` from `start` on.

    `start` is an offset; a time, which means the first record at or after it, as Kafka's
    ListOffsets; or None for the last records. An offset outside of the log is moved into it.
    """

    topic: str
    partition: int = 0
    start: int | datetime | None = None
    limits: Limits = field(default_factory=Limits)


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordRange:
    """The records of offsets [start, end), of a partition that holds [log_start, log_end).

    `rows` has the columns of COLUMNS, BATCH_FIELDS, `aborted` and `partition`. `ended`: the limit
    that ended it ("records", or see `Budget.over`), "" at the log's end. `faults`: what can't be
    read of it.
    """

    rows: pa.Table
    start: int
    end: int
    log_start: int
    log_end: int
    ended: str
    faults: tuple[str, ...]


def read_range(log: Log, query: Query, budget: Budget) -> RecordRange:
    """Read a range of records.

    Raises: UnknownTopicError, InvalidRequestError, StorageUnavailableError; OffsetOutOfRangeError:
        retention deleted the records meanwhile; LogReplacedError, TopicReplacedError. Damage is in
        `RecordRange.faults`.
    Memory: the limits', and one chunk. Cost: 2 MiB of log at a time, or one record batch.
    """
    wanted = query.limits.records
    if not 1 <= wanted <= RECORDS_MAX:
        raise InvalidRequestError(f"limit={wanted}: want 1..{RECORDS_MAX}")
    source, log_start = _source(log, query)
    start = at = _start(source, query, log_start)
    tables, faults, count, ended, size = list[pa.Table](), list[str](), 0, "", _FIRST_BYTES
    while at < source.mark and not ended:
        chunk = read_chunk(source, at, budget, max_bytes=size)
        if chunk.fault:
            faults.append(chunk.fault)
        rows = pa.Table.from_batches(chunk.rows) if chunk.rows else None
        at, size = chunk.end, min(2 * size, CHUNK_BYTES)
        if rows is not None:
            if count + rows.num_rows > wanted:
                at = rows.column("offset")[wanted - count].as_py()
            # A copy: what is kept must not keep the chunk.
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
    """Return the partition as it is now, and its log start."""
    view = view_of(log)
    incarnation = view.renew()
    view.refresh()
    topic, partition = query.topic, query.partition
    known = view.partitions(topic)
    if partition not in known:
        raise UnknownRecordError(
            f"topic {topic} has no partition {partition}: it has {len(known)}, from {known[0]} to "
            f"{known[-1]}"
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
            source.view, source.topic, when, spans, isolation="read_uncommitted"
        )[source.partition]
        start = end if found is None else found
    return min(max(start, log_start), end)
