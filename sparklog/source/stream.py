"""The streaming reader. Spark calls all methods but `read` in a long-lived process per query.

The order of calls is that of Spark 4.2 and later, see tests/spark; called_reader.py serves older
versions. Offsets in the checkpoint have the format of Spark's Kafka source, {"topic": {"0": 123}},
which has no topic ids. Topics that sparklog created need no ids: a re-created topic starts at the
end of the old topic, so a lower offset belongs to the old topic. A running query also remembers the
topic ids. For a broker's topics, which start at 0 again, only these ids show a replacement: a topic
that was replaced while the query was down is treated as the same topic.

A log that was restored and written to since has other records at offsets that were read. Each
position therefore stores its leader epoch beside the offsets, if it is not 0 (see
log/truncation_detection.py).

With waitForTopics a query stays at the offset `offsets.waiting` until its topics exist. The query
then moves to its start in a micro-batch without rows, so that the start is in the checkpoint before
the first record is read.
"""

import logging
from collections.abc import Iterator, Sequence
from typing import Any, Final, NoReturn

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from sparklog.clock import Clock, system_clock
from sparklog.common import TopicPartition
from sparklog.errors import SparklogError, UnknownTopicError
from sparklog.opening import UnfinishedLogError
from sparklog.source import jvm_plan
from sparklog.source.admission import MinOffsetsDelay, by_bytes, by_records
from sparklog.source.data_loss import DataLossPolicy, latest_offsets, readable_ranges
from sparklog.source.group_registration import (
    Planner,
    batch_start_offsets,
    register,
    warn_unless_kept,
)
from sparklog.source.input_partitions import (
    FirstTask,
    coalesce,
    exclude_abandoned,
    plan_ranges,
    split,
)
from sparklog.source.jvm_caller import batch_from_json
from sparklog.source.metadata_snapshot import LogMetadata, MetadataSnapshot
from sparklog.source.offset_bounds import resolve_start
from sparklog.source.offsets import (
    Offsets,
    Ranges,
    from_json,
    is_waiting,
    origins_from_json,
    to_json,
    waiting,
)
from sparklog.source.options import SourceOptions
from sparklog.source.read_task import ReadTask
from sparklog.source.schema import arrow_schema, check_schema
from sparklog.spark_errors import in_worker
from sparklog.spark_versions import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from sparklog.storage.groups import Origins

LOOK_MS: Final = 1000
"""How often a query that waits for topics lists the topics."""
_LOGGER: Final = logging.getLogger("sparklog.source")
Json = dict[str, Any]


@in_worker
class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Follows a log, for `spark.readStream.format("sparklog")`."""

    def __init__(
        self, options: SourceOptions, schema: StructType, clock: Clock = system_clock
    ) -> None:
        check_schema(schema)
        self._options, self._clock = options, clock
        self._reader = ReadTask(options, arrow_schema(schema))
        self._loss = DataLossPolicy(options.fail_on_data_loss)
        self._delay = MinOffsetsDelay(options.min_offsets_per_trigger, options.max_trigger_delay_ms)
        self._planner = Planner(options, clock)
        self._target: Offsets | None = None  # trigger AvailableNow: the end of the query
        self._held: LogMetadata | None = None
        self._wait = TopicWait(options, clock)
        self._ids: dict[str, str] = {}  # of the topics that this run's offsets belong to

    @property
    def _log(self) -> LogMetadata:
        # Opened on first use, because Spark also creates and pickles readers that never read.
        if self._held is None:
            self._hold(LogMetadata(self._options))
        assert self._held is not None
        return self._held

    def _hold(self, log: LogMetadata) -> None:
        self._held = log
        warn_unless_kept(log.groups, self._options)

    def __getstate__(self) -> Json:
        # An open log belongs to its process. The process that unpickles the reader opens the log
        # again.
        return {**self.__dict__, "_held": None}

    def initialOffset(self) -> Json:
        """Return the start of a new query. Spark calls this twice and uses the first answer."""
        return self._start() or waiting()

    def _start(self) -> Json | None:
        """Return the query's start, or None while the query waits until its topics exist."""
        snapshot = self._awaited() if self._options.wait_for_topics else self._log.snapshot()
        if snapshot is None:
            return None
        self._remember(snapshot)
        held = snapshot.ranges
        # A topic that was just created has no records yet.
        strategy = "latest" if self._options.wait_for_topics else self._options.strategy
        start = resolve_start(
            self._options.start(streaming=True), held,
            lambda t: self._log.offsets_at_times(t, held),
            strategy=strategy, fail=self._options.fail_on_data_loss,
        )  # fmt: skip
        return to_json(start, self._log.truncation.origins(start))

    def _awaited(self) -> MetadataSnapshot | None:
        """Return a snapshot of the selected topics, or None until every topic exists."""
        result = self._wait.look(self._held)
        if result is None:
            return None
        log, snapshot = result
        if self._held is None:
            self._hold(log)
        # With trigger AvailableNow, topics created after the trigger wait for the next trigger.
        is_late = self._target is not None and not snapshot.ranges.keys() <= self._target.keys()
        return None if is_late else snapshot

    def getDefaultReadLimit(self) -> ReadLimit:
        """Return a limit if an option limits micro-batches. `latestOffset` applies the options."""
        most = self._options.max_offsets_per_trigger
        if most is not None:
            return ReadMaxRows(most)
        limited = self._options.max_bytes_per_trigger or self._options.min_offsets_per_trigger
        # Spark passes this value back to `latestOffset`, where ReadAllAvailable would mean no
        # limit.
        return ReadMaxRows(2**63 - 1) if limited else ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:
        """Store the present end offsets, which the query does not pass."""
        try:
            snapshot = self._log.snapshot(lenient=True)
        except UnknownTopicError:  # there is no log
            if not self._options.wait_for_topics:
                raise
            # An empty target, and not None: None means that the query has no end.
            self._target = {}
            return
        self._remember(snapshot)
        self._target = {p: high for p, (_, high) in snapshot.ranges.items()}

    def latestOffset(self, start: Json, limit: ReadLimit) -> Json:
        """Return the end of the next micro-batch. `start` is {} if unknown (`CalledReader`)."""
        if is_waiting(start):
            return self._start() or start
        if not start and self._options.wait_for_topics and self._awaited() is None:
            return waiting()
        begin, origins = from_json(start), origins_from_json(start)
        snapshot = self._log.snapshot(lenient=True)
        back = self._moved_back(begin, origins, snapshot)
        position = batch_start_offsets(begin, begin, snapshot.ranges)
        self._planner.committed(self._log.groups, position, origins)
        if back:  # an empty micro-batch, which a replay finds empty as well
            return self._json(begin | back, start)
        return self._json(self._limited(begin, snapshot, limit), start)

    def _limited(self, begin: Offsets, snapshot: MetadataSnapshot, limit: ReadLimit) -> Offsets:
        held = snapshot.ranges
        end = self._available(begin, held)
        if isinstance(limit, ReadAllAvailable):
            return end
        begin_all = {p: begin.get(p, held[p][0] if p in held else end[p]) for p in end}
        # With trigger AvailableNow a micro-batch without records ends the query, so a delay would
        # leave records unread.
        if self._target is None and self._delay.wait(begin_all, end, self._clock()):
            return begin
        if self._options.max_offsets_per_trigger is not None:
            end = by_records(self._options.max_offsets_per_trigger, begin_all, end)
        if self._options.max_bytes_per_trigger is not None:
            limit_bytes = self._options.max_bytes_per_trigger
            # Bytes are counted from the log start offsets on.
            first = {p: max(at, held[p][0]) if p in held else at for p, at in begin_all.items()}
            end = by_bytes(limit_bytes, first, end, self._log.sizes)
        return end

    def _json(self, end: Offsets, start: Json) -> Json:
        """Return the end offsets as JSON, with origins.

        Unchanged offsets keep the origins of `start`.
        """
        begin, origins = from_json(start), origins_from_json(start)
        moved = {p: offset for p, offset in end.items() if begin.get(p) != offset}
        still = {p: origin for p, origin in origins.items() if p in end and p not in moved}
        return to_json(end, still | self._log.truncation.origins(moved))

    def _remember(self, snapshot: MetadataSnapshot) -> None:
        for topic, topic_id in snapshot.ids.items():
            if topic_id is not None:
                self._ids.setdefault(topic, topic_id)

    def _replaced(self, snapshot: MetadataSnapshot) -> set[str]:
        """Return the topics with another id than the id that this run's offsets belong to."""
        return {t for t, now in snapshot.ids.items() if now and self._ids.get(t, now) != now}

    def _moved_back(self, begin: Offsets, origins: Origins, snapshot: MetadataSnapshot) -> Offsets:
        """Report re-created topics and restored logs; return earlier offsets to continue from."""
        replaced = self._replaced(snapshot)
        back: Offsets = {}
        for partition in sorted(p for p in begin if p.topic in replaced and p in snapshot.ranges):
            at, begins = begin[partition], snapshot.first_offset(partition)
            if at >= begins or partition not in snapshot.bases:  # else `readable_ranges`
                self._loss.replaced_topic(partition, at, begins)
            if at > begins:
                back[partition] = begins
        self._ids = {t: topic_id for t, topic_id in self._ids.items() if t not in replaced}
        self._remember(snapshot)
        return back | {
            partition: first
            for partition, at in sorted(begin.items())
            if partition.topic not in replaced
            and (first := self._parted(partition, at, origins, snapshot)) is not None
        }

    def _parted(
        self, partition: TopicPartition, at: int, origins: Origins, snapshot: MetadataSnapshot
    ) -> int | None:
        """Report a position in another history; return the offset where the histories diverge.

        Returns None for a valid position. Also None for a log that merely ends before the position,
        and for offsets of a deleted topic, which are reported elsewhere.
        """
        if partition not in snapshot.ranges or at <= snapshot.bases.get(partition, 0):
            return None
        span = snapshot.ranges[partition]
        first = self._log.truncation.truncated_at(partition, at, origins.get(partition), span)
        if first is None or first == span[1]:
            return None
        self._loss.diverged(partition, first, at, held=span)
        return first

    def _available(self, begin: Offsets, held: Ranges) -> Offsets:
        dropped = self._log.dropped() if begin.keys() - held.keys() else {}
        end = latest_offsets(begin, held, dropped, self._loss)
        if self._target is None:
            return end
        # Records and partitions that came after the trigger wait for the next trigger. Offsets
        # never decrease, except in a log that was restored.
        known = {p: offset for p, offset in end.items() if p in self._target or p in begin}
        return {p: min(o, max(begin.get(p, 0), self._target.get(p, o))) for p, o in known.items()}

    def reportLatestOffset(self) -> Json | None:
        """Return the log's end offsets for the query's progress.

        Returns None while the query waits for its topics.
        """
        if self._held is None and self._options.wait_for_topics:
            return None
        snapshot = self._log.snapshot(lenient=True)
        return to_json({p: high for p, (_, high) in snapshot.ranges.items()})

    def partitions(self, start: Json, end: Json) -> Sequence[InputPartition]:
        """Plan a micro-batch, which may be a replay, so everything is checked again."""
        if is_waiting(start) or is_waiting(end):
            return []
        snapshot = self._log.snapshot(lenient=True)
        held, begin, finish = snapshot.ranges, from_json(start), from_json(end)
        replaced = self._replaced(snapshot)  # since `latestOffset` planned this micro-batch
        for partition in sorted(p for p in finish if p.topic in replaced and p in held):
            self._loss.replaced_topic(
                partition, begin.get(partition, 0), snapshot.first_offset(partition)
            )
            del finish[partition]
        self._remember(snapshot)
        origins = origins_from_json(end)
        for partition, last in list(finish.items()):
            # The end of a replayed micro-batch may belong to a history that a restore of the log
            # has cut.
            if begin.get(partition, 0) < last:
                parted = self._parted(partition, last, origins, snapshot)
                finish[partition] = last if parted is None else parted
        dropped = self._log.dropped() if finish.keys() - held.keys() else {}
        ranges = readable_ranges(begin, finish, held, dropped, self._loss, bases=snapshot.bases)
        planned = split(plan_ranges(ranges, snapshot.ids), self._options, self._log.sizes)
        planned = self._log.with_plans(exclude_abandoned(planned, self._log.abandoned()))
        if not planned:
            return []
        tasks: list[jvm_plan.Task] = list(coalesce(planned, self._options, self._log.sizes))
        start_at, origins = batch_start_offsets(begin, finish, held), origins_from_json(start)
        batch = batch_from_json(start)
        if not self._planner.registered(self._log.groups, start_at, origins, batch):
            pieces = jvm_plan.pieces_of(tasks[0])
            tasks[0] = FirstTask(pieces, start_at, origins, self._planner.planned())
        values = jvm_plan.values(self._log.view, tasks, self._options)
        return [InputPartition(value) for value in values]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read a task's records. Runs in an executor."""
        task = jvm_plan.task_of(partition.value)
        if isinstance(task, FirstTask):
            register(self._options, task.start, origins=task.origins, planner=task.planner)
        return self._reader.read_all(jvm_plan.pieces_of(task))

    def commit(self, end: Json) -> None:
        """No-op: the query's checkpoint stores the offsets."""

    def stop(self) -> None:
        """No-op: there are no resources to release. Spark may never call this method."""


class TopicWait:
    """The wait of a streaming query. Looks for the topics at most once per LOOK_MS."""

    def __init__(self, options: SourceOptions, clock: Clock) -> None:
        self._options, self._clock = options, clock
        self._due_ms = 0
        self._is_reported = False

    def look(self, held: LogMetadata | None) -> tuple[LogMetadata, MetadataSnapshot] | None:
        """Return the log and a snapshot of the selected topics, once no topic is missing.

        Args:
            held: The log, if it is open. Otherwise the log is opened again at each call, because a
                path can become a log of another kind.
        """
        now_ms = self._clock()
        if now_ms < self._due_ms:
            return None
        try:
            log = held or LogMetadata(self._options)
            snapshot = log.snapshot()
            if snapshot.ranges:
                return log, snapshot
            missing = f"no topic matches {self._options.subscribe_pattern}"
        except (UnknownTopicError, UnfinishedLogError) as error:
            missing = str(error).partition(". Check")[0]
        self._due_ms = now_ms + LOOK_MS
        if not self._is_reported:
            self._is_reported = True
            _LOGGER.warning("the query waits, because option waitForTopics is set: %s", missing)
        return None


@in_worker
class RefusedStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """A stream reader with methods that raise an error found when the reader was made.

    Spark reports the errors of these methods, but not the errors of `streamReader`.
    """

    def __init__(self, error: SparklogError) -> None:
        self._error = error

    def initialOffset(self) -> NoReturn:
        """Raise the error. A new query calls this first."""
        raise self._error

    def getDefaultReadLimit(self) -> NoReturn:
        """Raise the error. A query that continues calls this first."""
        raise self._error

    def prepareForTriggerAvailableNow(self) -> NoReturn:
        """Raise the error. With trigger AvailableNow this is called first."""
        raise self._error

    def latestOffset(self, start: Any, limit: Any) -> NoReturn:
        """Raise the error."""
        raise self._error

    def partitions(self, start: Any, end: Any) -> NoReturn:
        """Raise the error. A query that repeats a micro-batch calls this first."""
        raise self._error

    def read(self, partition: Any) -> NoReturn:
        """Raise the error."""
        raise self._error
