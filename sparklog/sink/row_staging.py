"""Stage the rows of a micro-batch: in Spark's JVM or in Python, in tasks or in the driver.

- In the JVM, if sparklog's jar is loaded: a single job. For a log in a store, a small micro-batch
  is sent to the driver as framed chunks; otherwise the tasks stage the chunks (`jvm_job`).
- In Python: the rows of a small micro-batch are collected in the driver; the rows of a large
  micro-batch are staged by tasks (`task`).

A wrong size estimate only costs time: a batch too large for the driver is staged by tasks after
all.
"""

import contextlib
import logging
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from sparklog.errors import SparklogError, StorageUnavailableError
from sparklog.jvm.gateway import Gateway, Obstacle, find_gateway, log_data_path
from sparklog.log.log import Log, home_of
from sparklog.lru_cache import LruCache
from sparklog.sink import jvm_job, jvm_plan
from sparklog.sink.size_estimate import SMALL_BYTES, SizeEstimate, is_surely_large
from sparklog.sink.task import TaskPlan, answer_of, parse_answer
from sparklog.spark_errors import in_worker
from sparklog.storage.chunk_table import ChunkTable
from sparklog.storage.commits import Chunk

_LOGGER: Final = logging.getLogger("sparklog.sink")
_WRITERS_MAX: Final = 256
_NOT_LOCAL: Final = Obstacle("the log isn't stored in local files of this machine")
_estimates: LruCache[tuple[str, str], SizeEstimate] = LruCache(_WRITERS_MAX)  # by log and writer


@dataclass(frozen=True, slots=True, kw_only=True)
class RowStaging:
    """Stages the rows of a micro-batch for `log`.

    Args:
        plan: The plan for the tasks.
        writer: The writer; the sizes of its former micro-batches are the base of the estimate.
        offsets: The planned offsets, which show how much the micro-batch grew.
        jvm: The option `jvm`.
        query: The query's name in log messages.
    """

    log: Log
    plan: TaskPlan
    writer: str
    offsets: bytes
    jvm: bool | None
    query: str

    def stage(self, df: DataFrame) -> Sequence[Chunk]:
        """Stage the plan's columns of `df` for a commit.

        Raises:
            InvalidRequestError: A row is invalid.
            Exception: The Spark job failed; py4j's exception, or Spark Connect's.
        """
        found = find_gateway(df.sparkSession, wanted=self.jvm)
        plan = None
        if isinstance(found, Gateway):
            plan = jvm_plan.to_json(self.plan)
            found = found if plan else _NOT_LOCAL
        obstacle = found if isinstance(found, Obstacle) else None
        log_data_path("stages rows", obstacle, query=self.query)
        with _noting_tasks(self.log):
            if isinstance(found, Gateway) and plan is not None:
                return self._in_jvm(found, plan, df)
            return self._in_python(df)

    def learn(self, chunks: Sequence[Chunk]) -> None:
        """Record the size of the committed micro-batch, for the estimate of the next."""
        self._estimate().learn(self.offsets, sum(chunk.size_bytes for chunk in chunks))

    def _estimate(self) -> SizeEstimate:
        return _estimates.get_or_make((self.log.path, self.writer), SizeEstimate)

    def _is_small(self, rows: DataFrame) -> bool:
        return self._estimate().is_small(self.offsets) and not is_surely_large(rows)

    def _in_jvm(self, jvm: Gateway, plan: bytes, df: DataFrame) -> Sequence[Chunk]:
        staging = self.plan.staging
        if not staging.puts_objects:
            return self._gathered(jvm_job.stage(jvm, df, plan))
        answers: Iterable[ChunkTable | SparklogError] | None = None
        if self._is_small(df):
            answers = jvm_job.collect(jvm, df, plan, in_memory_bytes=SMALL_BYTES)
        if answers is None:
            answers = jvm_job.put(jvm, df, plan, staging, self.plan.label)
        return self._gathered(answers)

    def _gathered(self, answers: Iterable[ChunkTable | SparklogError]) -> Sequence[Chunk]:
        """Return the chunks of all tasks.

        On an error, discard all chunks and raise the first error.
        """
        # All answers first: chunks of tasks that succeeded after a failed task are discarded too.
        answers, staging = list(answers), self.plan.staging
        chunks = staging.gathered([table for table in answers if isinstance(table, ChunkTable)])
        for error in answers:
            if isinstance(error, SparklogError):
                staging.discard(chunks, cause=error)
                raise error
        return chunks

    def _in_python(self, df: DataFrame) -> Sequence[Chunk]:
        # Select only the columns that are written: Arrow may not support the types of others.
        rows = df.select(*self.plan.columns)
        chunks = self.collect(rows) if self._is_small(rows) else None
        if chunks is not None:
            return chunks
        return self._gathered(map(parse_answer, stage_in_tasks(rows, self.plan)))

    def collect(self, rows: DataFrame) -> Sequence[Chunk] | None:
        """Collect the rows in the driver and stage them there.

        Returns None if the rows exceed spark.driver.maxResultSize.
        """
        try:
            table = rows.toArrow()
        except Exception as error:  # py4j's and Connect's classes differ
            if "maxResultSize" not in str(error):
                raise
            _LOGGER.info(
                "the micro-batch is larger than estimated; tasks stage its rows instead of the "
                "driver"
            )
            return None
        return self.plan.run_in_memory(table)


@contextlib.contextmanager
def _noting_tasks(log: Log) -> Iterator[None]:
    # Counters in the tasks' processes would be lost, because these processes end.
    try:
        yield
    except Exception as error:  # py4j's and Connect's classes differ
        if StorageUnavailableError.__name__ in str(error):
            home_of(log).commits.meters.failed(StorageUnavailableError(str(error)))
        raise


def stage_in_tasks(df: DataFrame, plan: TaskPlan) -> list[bytes]:
    """Run a job of tasks that stage the rows in Python, and return their answers."""
    chosen_columns = [
        # Null arrays make Spark's transfer to Python quadratic in the rows of an Arrow batch.
        F.coalesce(F.col(name), F.array().cast(df.schema[name].dataType)).alias(name)
        if name == "headers"
        else F.col(name)
        for name in plan.columns
    ]
    rows = df.select(*chosen_columns).mapInArrow(StagingTask(plan), "answer binary")
    return [row["answer"] for row in rows.collect()]


@in_worker
class StagingTask:
    """The function of the job; called once per task."""

    def __init__(self, plan: TaskPlan) -> None:
        self._plan = plan

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield a single row, with the task's answer."""
        context = TaskContext.get()
        task = 0 if context is None else context.partitionId()
        answer = answer_of(lambda: self._plan.run(batches, task=task))
        yield pa.RecordBatch.from_pydict({"answer": pa.array([answer], pa.binary())})
