"""How a micro-batch's rows are staged: in Spark's JVM or in Python, in tasks or in the driver.

- In the JVM, where sparklog's jar is loaded: always by one job. A store's small micro-batch comes
  to the driver as framed chunks, all else is staged by the tasks (`jvm_job`).
- In Python: rows of a small micro-batch come to the driver, those of a large one are staged by
  tasks (`task`).

A guess that was wrong costs time: what is too much for the driver takes the large path after all.
"""

import contextlib
import logging
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from sparklog.errors import SparklogError, StorageUnavailableError
from sparklog.jvm.gateway import Gateway, Obstacle, find_gateway, log_data_path
from sparklog.log.log import Log, home_of
from sparklog.lru_cache import LruCache
from sparklog.sink import jvm_job, jvm_plan, task_messages
from sparklog.sink.size_estimate import SMALL_BYTES, SizeEstimate, is_surely_large
from sparklog.sink.task import TaskPlan
from sparklog.spark_errors import in_worker
from sparklog.storage.chunk_table import ChunkTable
from sparklog.storage.commits import Chunk

_LOGGER: Final = logging.getLogger("sparklog.sink")
_WRITERS_MAX: Final = 256
_NOT_LOCAL: Final = Obstacle("the log's files aren't the machine's own")
_estimates: LruCache[tuple[str, str], SizeEstimate] = LruCache(_WRITERS_MAX)  # by log and writer


@dataclass(frozen=True, slots=True, kw_only=True)
class RowStaging:
    """Stages the rows of one micro-batch for `log`.

    Args: writer, offsets: who writes it, and its planned offsets; they tell whether it is small.
    jvm: option jvm. query: what the log calls the query by.
    """

    log: Log
    plan: TaskPlan
    writer: str
    offsets: bytes
    jvm: bool | None
    query: str

    def stage(self, df: DataFrame) -> Sequence[Chunk]:
        """Stage the plan's columns of `df`, for a commit.

        Raises: what is wrong with the rows; what Spark raises for a job that failed.
        """
        found = find_gateway(df.sparkSession, wanted=self.jvm)
        asked = None
        if isinstance(found, Gateway):
            asked = jvm_plan.to_json(self.plan)
            found = found if asked else _NOT_LOCAL
        obstacle = found if isinstance(found, Obstacle) else None
        log_data_path("stages rows", obstacle, query=self.query)
        with _noting_tasks(self.log):
            if isinstance(found, Gateway) and asked is not None:
                return self._in_jvm(found, asked, df)
            return self._in_python(df)

    def learn(self, chunks: Sequence[Chunk]) -> None:
        """Note how large it turned out to be, once it is committed."""
        self._estimate().learn(self.offsets, sum(chunk.size_bytes for chunk in chunks))

    def _estimate(self) -> SizeEstimate:
        return _estimates.get_or_make((self.log.path, self.writer), SizeEstimate)

    def _is_small(self, rows: DataFrame) -> bool:
        return self._estimate().is_small(self.offsets) and not is_surely_large(rows)

    def _in_jvm(self, jvm: Gateway, asked: bytes, df: DataFrame) -> Sequence[Chunk]:
        staging = self.plan.staging
        if not staging.puts_objects:
            return self._gathered(jvm_job.stage(jvm, df, asked))
        told: Iterable[ChunkTable | SparklogError] | None = None
        if self._is_small(df):
            told = jvm_job.collect(jvm, df, asked, in_memory_bytes=SMALL_BYTES)
        if told is None:
            told = jvm_job.put(jvm, df, asked, staging, self.plan.label)
        return self._gathered(told)

    def _gathered(self, told: Iterable[ChunkTable | SparklogError]) -> Sequence[Chunk]:
        """What the tasks staged. Raises the first error, and lets go of what others staged."""
        told, staging = list(told), self.plan.staging
        chunks = staging.gathered([table for table in told if isinstance(table, ChunkTable)])
        for error in told:
            if isinstance(error, SparklogError):
                staging.discard(chunks, cause=error)
                raise error
        return chunks

    def _in_python(self, df: DataFrame) -> Sequence[Chunk]:
        # What isn't written isn't asked for: Arrow may lack its type, the driver its memory.
        rows = df.select(*self.plan.columns)
        chunks = self._collected(rows) if self._is_small(rows) else None
        if chunks is not None:
            return chunks
        return self._gathered(task_messages.to_tables(_one_job(rows, self.plan)))

    def _collected(self, rows: DataFrame) -> Sequence[Chunk] | None:
        """The small path: rows to the driver. None if they turn out to be too many."""
        try:
            table = rows.toArrow()
        except Exception as error:  # py4j's and Connect's classes differ
            if "maxResultSize" not in str(error):
                raise
            _LOGGER.info("micro-batch is larger than guessed, taking the large path")
            return None
        return self.plan.run_in_memory(table)


@contextlib.contextmanager
def _noting_tasks(log: Log) -> Iterator[None]:
    """Show as this process's what tasks could not write: their own processes end with them."""
    try:
        yield
    except Exception as error:  # py4j's and Connect's classes differ
        if StorageUnavailableError.__name__ in str(error):
            home_of(log).commits.meters.failed(StorageUnavailableError(str(error)))
        raise


def _one_job(df: DataFrame, plan: TaskPlan) -> list[Any]:
    """The large path in Python: one job whose tasks stage the rows and send back what they did."""
    chosen_columns = [
        # A null array makes Spark's way to Python quadratic in the rows of an Arrow batch.
        F.coalesce(F.col(name), F.array().cast(df.schema[name].dataType)).alias(name)
        if name == "headers"
        else F.col(name)
        for name in plan.columns
    ]
    rows = df.select(*chosen_columns).mapInArrow(Staging(plan), task_messages.SCHEMA_DDL)
    return rows.collect()


@in_worker
class Staging:
    """The function of the job; one call a task."""

    def __init__(self, plan: TaskPlan) -> None:
        self._plan = plan

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield one row: with the staged chunks, or with the error."""
        context = TaskContext.get()
        task = 0 if context is None else context.partitionId()
        try:
            table = self._plan.run(batches, task=task)
        except SparklogError as error:
            if error.retriable:
                raise  # Spark tries the task again
            yield task_messages.error_row(error)
            return
        yield task_messages.to_rows(table)
