"""`SegmentSink`: the function for foreachBatch that writes each micro-batch exactly once."""

import logging
import os
import threading
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Final

from pyspark.sql import DataFrame

from sparklog.clock import iso
from sparklog.errors import InvalidRequestError, SparklogError
from sparklog.log.commit import CommitResult
from sparklog.log.log import Log, home_of
from sparklog.lru_cache import LruCache
from sparklog.sink import open_logs
from sparklog.sink.batch_identity import MicroBatch, identify_from_query, origin_of, with_origin
from sparklog.sink.columns import columns_to_write
from sparklog.sink.options import SinkOptions, parse
from sparklog.sink.query import Query, batch_start, plan_digest, running_query
from sparklog.sink.row_staging import RowStaging
from sparklog.sink.task import TaskPlan
from sparklog.sink.topic_options import warn_of_ineffective
from sparklog.spark_errors import in_driver
from sparklog.storage.commits import Chunk, StagingExpiredError
from sparklog.storage.home import Home
from sparklog.storage.staging import chunk_label
from sparklog.storage.view import TopicInfo

_LOGGER: Final = logging.getLogger("sparklog.sink")
_SWEEP_EVERY: Final = 100  # micro-batches; a sweep lists every log dir or a prefix of the bucket
_RUNS_MAX: Final = 256
RUNS: "LruCache[str, _Run]" = LruCache(_RUNS_MAX)  # by run id
_mutex = threading.Lock()


@dataclass(slots=True)
class _Run:
    """The last micro-batch that a run of a query has written, by (writer, log)."""

    batches: dict[tuple[str, Hashable], int] = field(default_factory=dict)
    homes: set[Home] = field(default_factory=set)


class SegmentSink:
    """Writes the micro-batches of a streaming query to a log.

    A micro-batch is identified by the query's id (with the option `name` for several sinks in a
    query), its number and its planned offsets. A replay is dropped; other rows with the same number
    raise BatchConflictError. All topics and partitions of a call are committed together.

    Rows have the column value (string or binary), and optionally key, headers, topic, partition and
    timestamp, as in Spark's Kafka sink.

    Source: Spark's KafkaSourceProvider and foreachBatch.

    Examples:
        >>> from sparklog.sink import SegmentSink
        >>> rows = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 10).load()
        >>> writer = rows.selectExpr("cast(value AS string) AS value").writeStream
        >>> sink = SegmentSink(log.path, "numbers", partitions=4, **{"compression.type": "zstd"})
        >>> query = writer.foreachBatch(sink).trigger(availableNow=True).start()
        >>> query.awaitTermination()
        >>> log.read("numbers").read_all().num_rows
        10
    """

    def __init__(
        self, path: str | os.PathLike[str], topic: str | None = None, **options: Any
    ) -> None:
        """Check the options. The first micro-batch opens the log.

        Args:
            path: The log: a directory, several directories joined by ",", or a URL.
            topic: The topic of all rows; by default the column topic of each row.
            options: Options by their Kafka names, as keywords with underscores or as
                `**{"batch.size": ...}` (docs/options.md).

        Raises:
            InvalidRequestError: An option is invalid.
        """
        self._options = parse({"path": path, "topic": topic, **options})
        self._checked: tuple[str, list[str]] = "", []  # run id, its columns
        self._plan = "", ""  # run id, digest of its plan

    @in_driver
    def __call__(self, df: DataFrame, batch: int) -> None:
        """Write micro-batch `batch`, in a single Spark job. Called by Spark.

        Raises:
            InvalidRequestError: Columns or rows are invalid, or the query can't be identified.
            BatchConflictError: The micro-batch was committed with another plan.
            StorageUnavailableError: No row of the micro-batch was committed.
        """
        query = running_query(df)
        columns = self._columns(df, query)
        planned = self._with_origin(identify_from_query(self._options, query, batch), query, df)
        # By the run, not by this object: a query may call several sinks, also by new objects.
        run = RUNS.get_or_make(query.run if query else "", _Run)
        log = open_logs.shared_log(self._options, run.homes)
        seen = planned.identity.writer, home_of(log).identity
        with _mutex:
            if query is not None:
                run.homes.add(home_of(log))
            # Without this check, the commit would drop the rows of the second sink as a replay.
            if run.batches.get(seen, -1) == batch:
                raise InvalidRequestError(
                    f"{self._options.path}: writer {planned.identity.writer} has already written "
                    f"micro-batch {batch} in this run of the query. Set option name to another "
                    "value for each sink of the query"
                )
            before, run.batches[seen] = run.batches.get(seen, -1), batch
        first = before < 0 or query is None
        try:
            self._write(log, df, columns, planned, query, first=first)
        except BaseException:  # the user's function may catch the error and call the sink again
            with _mutex:
                run.batches[seen] = before
            raise

    def _columns(self, df: DataFrame, query: Query | None) -> list[str]:
        """Return the columns to write, checked once per run; a query's schema does not change."""
        run = query.run if query is not None else ""
        if not run or self._checked[0] != run:
            self._checked = run, columns_to_write(df.schema, self._options)
        return self._checked[1]

    def _with_origin(self, planned: MicroBatch, query: Query | None, df: DataFrame) -> MicroBatch:
        """Add a description of the query to the identity of its micro-batch.

        The description identifies the query after its id was lost with a deleted checkpoint. See
        storage/query_origin.py.
        """
        if query is None:
            return planned
        if self._plan[0] != query.run:
            self._plan = query.run, plan_digest(query, df)
        checkpoint, batch = self._options.checkpoint or query.checkpoint, planned.identity.batch
        origin = origin_of(
            self._options, checkpoint, planned.offsets, name=query.name, plan=self._plan[1]
        )
        origin = replace(origin, look=partial(batch_start, query, batch, origin.ends))
        return with_origin(planned, origin)

    def _write(
        self,
        log: Log,
        df: DataFrame,
        columns: list[str],
        planned: MicroBatch,
        query: Query | None,
        *,
        first: bool,
    ) -> None:
        identity = planned.identity
        # Only the first micro-batch of a run can be a replay. The commit checks again anyway.
        earlier = log.committed(identity) if first else None
        if earlier is not None:
            _report_replay(earlier, planned, log)
            return
        try:
            result, chunks = self._stage_and_commit(log, df, columns, planned, query)
        except StagingExpiredError as error:
            # In a bucket the service deletes staged objects after a time, even of a slow job. A
            # second expiry means that the job always takes too long: that error is raised.
            _LOGGER.warning("%s", error)
            result, chunks = self._stage_and_commit(log, df, columns, planned, query)
        if result.replayed:
            _report_replay(result, planned, log)
        # An earlier run may have left files of killed tasks; this run leaves few.
        if first or identity.batch % _SWEEP_EVERY == 0:
            committed = () if result.replayed else chunks
            home_of(log).sweep_staged(identity.writer, identity.batch, committed=committed)

    def _stage_and_commit(
        self,
        log: Log,
        df: DataFrame,
        columns: list[str],
        planned: MicroBatch,
        query: Query | None,
    ) -> tuple[CommitResult, Sequence[Chunk]]:
        identity = planned.identity
        plan = plan_tasks(self._options, log, chunk_label(identity.writer, identity.batch), columns)
        staging = RowStaging(
            log=log,
            plan=plan,
            writer=identity.writer,
            offsets=planned.offsets,
            jvm=self._options.jvm,
            query=identity.writer if query is None else query.name or query.id,
        )
        chunks = staging.stage(df)
        result = commit_chunks(log, self._options, plan, chunks, planned, _source(query))
        staging.learn(chunks)
        return result, chunks


def plan_tasks(options: SinkOptions, log: Log, name: str, columns: list[str]) -> TaskPlan:
    """Return the plan for the tasks. Creates the topic of option `topic` if it is missing."""
    topics = home_of(log).known_topics()
    if options.topic in topics:
        warn_of_ineffective(options, topics[options.topic], log.path)
    elif options.topic is not None:
        topics = {**topics, options.topic: _make(options, log, options.topic)}
    new = (options.partitions, options.topic_config) if options.auto_create else None
    return TaskPlan(
        staging=home_of(log).staging(),
        topic=options.topic,
        topics=topics,
        new_topic=new,
        framing=options.framing,
        label=name,
        columns=columns,
    )


def _make(options: SinkOptions, log: Log, topic: str) -> TopicInfo:
    if not options.auto_create:
        return log.topic(topic)  # raises an error that lists the existing topics
    config = options.topic_config.to_dict()
    return log.create_topic(topic, options.partitions, config, if_not_exists=True)


def commit_chunks(
    log: Log,
    options: SinkOptions,
    plan: TaskPlan,
    chunks: Sequence[Chunk],
    planned: MicroBatch | None,
    source: dict[str, Any],
) -> CommitResult:
    """Create the topics that rows named, and commit the chunks.

    Raises the errors of `Log.commit`. After an error the staged chunks are deleted, unless they may
    have been committed.
    """
    try:
        # Read again: another writer may have created topics while the tasks ran.
        known, named = home_of(log).known_topics(), {chunk.topic for chunk in chunks}
        for topic in sorted(named & known.keys()):
            warn_of_ineffective(options, known[topic], log.path)
        made = {topic: _make(options, log, topic) for topic in sorted(named - known.keys())}
        _check_planned_partitions(options, chunks, {**known, **made})
        app = source.pop("app", "")
        identity = None if planned is None else planned.identity
        result = log.commit(chunks, identity=identity, app=app, source=source or None)
    except BaseException as error:
        plan.staging.discard(chunks, cause=error)
        raise
    if result.replayed:
        plan.staging.discard(chunks)
    return result


def _check_planned_partitions(
    options: SinkOptions, chunks: Sequence[Chunk], topics: Mapping[str, TopicInfo]
) -> None:
    """Check the topics that did not exist when rows were assigned to their partitions.

    Raises:
        SparklogError: Another writer created a topic with another number of partitions, so that the
            keys of the rows belong to other partitions.
    """
    for topic in sorted({chunk.topic for chunk in chunks if not chunk.topic_id}):
        partitions = topics[topic].partitions
        if partitions != options.partitions:
            raise SparklogError(
                f"another writer created topic {topic} with {partitions} partitions while rows "
                f"were staged for {options.partitions}. No row was appended; write the "
                "micro-batch again"
            )


def _source(query: Query | None) -> dict[str, Any]:
    return {} if query is None else {"app": query.app, "query": query.id, "run": query.run}


def _report_replay(result: CommitResult, planned: MicroBatch, log: Log) -> None:
    where = ", ".join(
        f"{topic}-{p} [{first}, {end})"
        for topic, spans in result.ends.items()
        for p, (first, end) in sorted(spans.items())
    )
    _LOGGER.warning(
        "micro-batch %d of writer %s is a replay and was dropped: %s contains its rows since %s "
        "(%s)",
        planned.identity.batch, planned.identity.writer, log.path, iso(result.time_ms),
        where or "no rows",
    )  # fmt: skip


__all__ = ["SegmentSink"]
