"""The Python data source's writers: `df.write` and `df.writeStream` with format("sparklog").

Spark calls write() in executors on an unpickled copy, and commit() or abort() in another process on
a NEW instance. Commits therefore use only the messages and the options.

If the JVM's data source wraps this data source, its tasks replace write(): the plan of their work
is in the writer's pickle, where the JVM reads it (`restored`), and the messages that they send are
unpickled to `Staged` (`staged`).
"""

import contextlib
import pickle
import uuid
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Final

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from sparklog.errors import InvalidRequestError, SparklogError
from sparklog.log.log import home_of
from sparklog.sink import jvm_plan, open_logs
from sparklog.sink.batch_identity import identify_from_checkpoint
from sparklog.sink.columns import columns_to_write
from sparklog.sink.options import SinkOptions
from sparklog.sink.segment_sink import commit_chunks, plan_tasks
from sparklog.sink.task import TaskPlan
from sparklog.spark_errors import in_worker
from sparklog.spark_versions import DataSourceStreamArrowWriter
from sparklog.storage.chunk_table import ChunkTable
from sparklog.storage.commits import Chunk
from sparklog.storage.staging import TaskStaging, chunk_label
from sparklog.worker_package import reduced

_QUERY: Final = "sql.streaming.queryId"
_BATCH: Final = "streaming.sql.batchId"
_CHECKPOINTS: Final = "spark.sql.streaming.checkpointLocation"


@dataclass(frozen=True)
class Staged(WriterCommitMessage):
    """The chunks that a task staged.

    Attributes:
        packed: The chunks as a `ChunkTable`.
        staging: Deletes the chunks if Spark aborts, in a process that may not be able to open the
            log.
        query: The id of the query.
        below: The directory of the conf spark.sql.streaming.checkpointLocation.
        attempt: The number of the task's attempt, from 0. Always 0 for a task in the JVM, which
            does not stage for stores.
    """

    packed: bytes
    staging: TaskStaging
    query: str = ""
    below: str = ""
    attempt: int = 0


def staged(packed: bytes, staging: bytes, query: str, below: str) -> Staged:
    """Return the message of a task in the JVM. `staging`: pickled as in `restored`."""
    return Staged(packed, pickle.loads(staging), query, below)  # noqa: S301 - our own


def restored(plan: bytes, staging: bytes, state: bytes) -> "_Writer":
    """Unpickle a writer. The JVM reads only `plan` and `staging` of the pickle.

    `plan` is the JSON of sparklog.sink.jvm_plan; its version may differ from the JVM's. Empty if
    Python writes. `staging` is a pickled TaskStaging.
    """
    kind, fields = pickle.loads(state)  # noqa: S301 - our own
    writer: _Writer = kind.__new__(kind)
    writer.__dict__.update(fields)
    return writer


@in_worker
class _Writer:
    """The common part of both writers. `for_jvm`: the JVM requested a plan."""

    def __init__(
        self,
        options: SinkOptions,
        schema: StructType,
        overwrite: bool,
        *,
        for_jvm: bool = False,
    ) -> None:
        if overwrite:
            raise InvalidRequestError("a log can't be overwritten: use mode('append')")
        self._columns = columns_to_write(schema, options)
        self._options = options
        self._for_jvm = for_jvm
        self._write_id = uuid.uuid4().hex
        self._plan: TaskPlan | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        # Spark pickles the writer for the tasks; from now on the log and the topic must exist.
        if self._plan is None:
            with open_logs.borrowed(self._options) as log:
                label = chunk_label(self._write_id, 0)
                self._plan = plan_tasks(self._options, log, label, self._columns)
                self._planned()
        plan = self._plan_for_jvm(self._plan)
        staging = pickle.dumps(self._plan.staging)
        arguments = plan or b"", staging, pickle.dumps((type(self), self.__dict__))
        return (restored, arguments) if plan else reduced(restored, arguments)

    def _plan_for_jvm(self, plan: TaskPlan) -> bytes | None:
        # If option jvm is None here, the JVM would not have requested a plan.
        if not self._for_jvm or self._options.jvm is False or plan.staging.puts_objects:
            return None
        return jvm_plan.to_json(plan)

    def _planned(self) -> None:
        """Release resources after planning: the commit runs in another process."""

    def _stage(self, batches: Iterator[pa.RecordBatch]) -> Staged:
        assert self._plan is not None
        context = TaskContext.get()  # None if the method is called outside a Spark task
        staging = self._plan.staging
        if context is None:
            return Staged(self._plan.run(batches, task=0).pack(), staging)
        query, below = (context.getLocalProperty(name) or "" for name in (_QUERY, _CHECKPOINTS))
        plan = self._labelled(self._plan, query, context.getLocalProperty(_BATCH))
        packed = plan.run(batches, task=context.partitionId()).pack()
        return Staged(packed, staging, query, below, context.attemptNumber())

    def _labelled(self, plan: TaskPlan, query: str, batch: str | None) -> TaskPlan:
        # A batch write has no micro-batch; the id of the write already is part of the label.
        return plan


def _chunks(messages: Iterable[WriterCommitMessage | None]) -> list[Chunk]:
    """Return the chunks of all tasks, combined by the staging that the tasks used."""
    staged = [message for message in messages if isinstance(message, Staged)]
    if not staged:
        return []
    tables = [ChunkTable.unpack(message.packed) for message in staged]
    return list(staged[0].staging.gathered(tables))


def _discard(messages: Iterable[WriterCommitMessage | None]) -> None:
    for message in messages:
        if isinstance(message, Staged):
            message.staging.discard(_chunks([message]))


@in_worker
class BatchWriter(_Writer, DataSourceArrowWriter):
    """The writer of `df.write`: commits all partitions at once, then closes the log cleanly."""

    def _planned(self) -> None:
        open_logs.close(self._options.path)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Stage the rows of a task. Runs in an executor."""
        return self._stage(iterator)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Commit the chunks of all tasks."""
        with open_logs.borrowed(self._options) as log:
            plan = plan_tasks(self._options, log, "", self._columns)
            # A batch write has no identity: Spark gives it no number that a repetition would share.
            commit_chunks(log, self._options, plan, _chunks(messages), None, {})
            # `messages` contains only successful attempts; the sweep deletes the others' files.
            home_of(log).sweep_staged(self._write_id, 0)
            open_logs.close(self._options.path)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Delete the staged chunks. Committed rows stay, even if Spark reports a failed write."""
        _discard(messages)
        # `messages` contains no running, killed or lost tasks, so their files are swept by name.
        # An error here would hide the error because of which Spark aborts the write.
        with contextlib.suppress(SparklogError), open_logs.borrowed(self._options) as log:
            home_of(log).sweep_staged(self._write_id, 0)
        open_logs.close(self._options.path)


@in_worker
class StreamWriter(_Writer, DataSourceStreamArrowWriter):
    """The writer of `df.writeStream`: writes each micro-batch exactly once, as SegmentSink."""

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Stage the rows of a task. Runs in an executor."""
        return self._stage(iterator)

    def _labelled(self, plan: TaskPlan, query: str, batch: str | None) -> TaskPlan:
        # The commit of a micro-batch deletes all files with its label. Files of killed or lost
        # attempts are not reported to `commit` or `abort`, so only their names identify them. No
        # other write uses this label: a write inside foreachBatch is a BatchWriter.
        if not query or not batch:
            return plan
        return replace(plan, label=chunk_label(query, int(batch)))

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Commit a micro-batch, or drop a replay.

        Deletes the files that other attempts staged for this and earlier micro-batches of the
        query. Cost: a listing per log dir. In a store, a listing at the first micro-batch, and a
        listing for each micro-batch with a task that took several attempts.
        """
        first = next((message for message in messages if isinstance(message, Staged)), None)
        if first is None and self._options.checkpoint is None:
            return  # without a task there are no rows
        below, query = ("", "") if first is None else (first.below, first.query)
        planned = identify_from_checkpoint(self._options, batchId, below=below, query_id=query)
        with open_logs.borrowed(self._options) as log:
            plan = plan_tasks(self._options, log, "", self._columns)
            source = {"query": planned.identity.writer}
            chunks = _chunks(messages)
            result = commit_chunks(log, self._options, plan, chunks, planned, dict(source))
            if query:
                home_of(log).sweep_staged(
                    query, batchId, committed=() if result.replayed else chunks,
                    is_retried=any(isinstance(m, Staged) and m.attempt > 0 for m in messages),
                )  # fmt: skip

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Delete the staged chunks. Committed rows stay, even if Spark reports a failed batch."""
        _discard(messages)
