"""Stage the rows of a micro-batch by a job in Spark's JVM (scala/sink/StageJob.scala).

No row is sent to Python. In a log dir, the JVM writes the chunks to files. For a store, the JVM
frames and compresses the chunks and returns a table per object, which a Python worker of the same
stage uploads. The chunks of a small micro-batch are sent to the driver instead.
"""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import partial
from typing import Final

from pyspark import RDD
from pyspark.serializers import NoOpSerializer
from pyspark.sql import DataFrame

from sparklog.errors import SparklogError
from sparklog.jvm.gateway import Gateway
from sparklog.sink.task import TOO_MUCH, answer_of, parse_answer
from sparklog.spark_errors import in_worker
from sparklog.storage.chunk_table import ChunkTable
from sparklog.storage.staging import TaskStaging

_STAGE_JOB: Final = "sparklog.sink.StageJob"


def stage(jvm: Gateway, df: DataFrame, plan: bytes) -> Iterator[ChunkTable | SparklogError]:
    """Stage the rows of `df` in tasks of the JVM. Return the chunks, or the error, of each task.

    Args:
        jvm: The gateway to the jar.
        df: The rows.
        plan: The plan from `jvm_plan`.

    Raises:
        Exception: The Spark job failed; py4j's exception.
    """
    return map(parse_answer, _parts(jvm.fetch(_STAGE_JOB, "run", df._jdf, plan, 0)))


def collect(
    jvm: Gateway, df: DataFrame, plan: bytes, *, in_memory_bytes: int
) -> list[ChunkTable | SparklogError] | None:
    """Frame the rows of `df` without staging, and return all chunks to the driver.

    Returns None if a task has more than `in_memory_bytes` of rows.
    """
    answers = [*_parts(jvm.fetch(_STAGE_JOB, "run", df._jdf, plan, in_memory_bytes))]
    if any(answer[0] == TOO_MUCH for answer in answers):
        return None
    return [parse_answer(answer) for answer in answers]


def _parts(data: bytes) -> Iterator[memoryview]:
    answers, at = memoryview(data), 0
    while at < len(answers):
        end = at + 4 + int.from_bytes(answers[at : at + 4], "little")
        yield answers[at + 4 : end]
        at = end


def put(
    jvm: Gateway, df: DataFrame, plan: bytes, home: TaskStaging, label: str
) -> Iterator[ChunkTable | SparklogError]:
    """Frame the rows of `df` in the JVM, and upload the objects from Python workers.

    Raises the same exceptions as `stage`.
    """
    framed = jvm.call(_STAGE_JOB, "framed", df._jdf, plan)
    # Bytes pass unpickled. The same partitions mean the same stage: framing and upload of a task
    # run on the same executor, without a shuffle.
    parts: RDD[bytes] = RDD(framed, df.sparkSession.sparkContext, NoOpSerializer())
    tasks = parts.mapPartitionsWithIndex(_Put(home, label), preservesPartitioning=True)
    return map(parse_answer, tasks.collect())


@in_worker
class _Put:
    """The function of the Python workers. Each call yields a task's answer."""

    def __init__(self, home: TaskStaging, label: str) -> None:
        self._home, self._label = home, label

    def __call__(self, task: int, parts: Iterable[bytes]) -> Iterator[bytes]:
        yield answer_of(partial(self._put, task, parts))

    def _put(self, task: int, parts: Iterable[bytes]) -> ChunkTable:
        self._home.check()
        return self._home.put(_tables(parts), label=f"{self._label}-{task}", task=task)


def _tables(parts: Iterable[bytes]) -> Iterator[ChunkTable]:
    """Parse pairs of messages from the JVM: a chunk table, then the bytes of the table's object.

    Raises an error that the JVM returned instead of a table.
    """
    messages = iter(parts)
    for part in messages:
        table = parse_answer(part)
        if isinstance(table, SparklogError):
            raise table
        yield replace(table, data=next(messages))
