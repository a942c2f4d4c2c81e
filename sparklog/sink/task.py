"""A write task in Python: turns rows into chunks, so that no row passes through the driver.

Chunks are staged under a name that is unique to the attempt. A failed or speculative attempt only
leaves files that are swept later.

A task answers the driver with its chunks or its error as bytes, never pickled. The first byte is
TABLE (a packed `ChunkTable` follows), ERROR (JSON follows) or TOO_MUCH. Tasks in Spark's JVM answer
in the same form (scala/sink/StageJob.scala). An error that a task raised would be retried four
times, and reach the driver as text inside another exception.
"""

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from sparklog import errors
from sparklog.config import TopicConfig
from sparklog.errors import SparklogError
from sparklog.format.names import check_topic
from sparklog.storage import row_faults
from sparklog.storage.chunk_table import ChunkTable
from sparklog.storage.commits import Chunk
from sparklog.storage.staging import Framing, Stager, TaskStaging
from sparklog.storage.view import TopicInfo

TABLE, ERROR, TOO_MUCH = range(3)
"""TOO_MUCH: a task in the JVM that must not stage files has more rows than the driver takes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskPlan:
    """The plan that all tasks of a micro-batch share; `run` stages a task's rows. It is pickled.

    `new_topic`: partitions and config of topics that are not in `topics`. Without `new_topic` such
    topics are an error.
    """

    staging: TaskStaging
    topic: str | None
    topics: dict[str, TopicInfo]
    new_topic: tuple[int, TopicConfig] | None
    framing: Framing
    label: str
    columns: list[str] = field(default_factory=list)

    def run(self, batches: Iterable[pa.RecordBatch], *, task: int) -> ChunkTable:
        """Stage the rows of a task in the log's home. Small chunks stay in memory.

        Raises:
            InvalidRequestError: A row is invalid, so that the micro-batch can't be committed.
        """
        self.staging.check()
        stager = self.staging.stager(self.framing, label=f"{self.label}-{task}", task=task)
        try:
            self._feed(stager, batches)
            return ChunkTable.of(stager.finish())
        except BaseException:  # also if the worker is ended: its files would stay until a sweep
            stager.discard()
            raise

    def run_in_memory(self, table: pa.Table) -> list[Chunk]:
        """Stage the rows of a small micro-batch in the driver's memory."""
        stager = self.staging.memory_stager(self.framing, spread=self.label)
        self._feed(stager, table.combine_chunks().to_batches())
        return list(stager.finish())

    def _feed(self, stager: Stager, batches: Iterable[pa.RecordBatch]) -> None:
        for batch in batches:
            rows = batch.select(self.columns) if self.columns else batch
            if rows.num_rows == 0:
                continue
            if self.topic is not None:
                stager.add(self._info(self.topic), rows)
                continue
            for topic, part in _by_topic(rows):
                stager.add(self._info(topic), part)

    def _info(self, topic: str) -> TopicInfo:
        info = self.topics.get(topic)
        if info is None:
            if self.new_topic is None:
                raise row_faults.UNKNOWN_TOPIC.error(topic=topic, home=self.staging.home)
            check_topic(topic)
            partitions, config = self.new_topic
            # The commit creates the topic. It rejects these rows if another writer has created the
            # topic with another number of partitions in the meantime.
            info = self.staging.planned_topic(topic, partitions, config)
            self.topics[topic] = info
        return info


def answer_of(stage: Callable[[], ChunkTable]) -> bytes:
    """Return a task's answer: the chunks from `stage`, or the error of `stage` as bytes.

    Raises:
        SparklogError: `stage` raised a retriable error, so that Spark must run the task again.
    """
    try:
        return bytes([TABLE]) + stage().pack()
    except SparklogError as error:
        if error.retriable:
            raise
        fields = {"error": type(error).__name__, "message": str(error), "path": error.path}
        return bytes([ERROR]) + json.dumps(fields).encode()


def parse_answer(answer: bytes | bytearray | memoryview) -> ChunkTable | SparklogError:
    """Parse a task's answer: chunks, or the error of the task's rows.

    `answer` must not be TOO_MUCH, which has no content.
    """
    content = memoryview(answer)[1:]
    if answer[0] == ERROR:
        return error_of(json.loads(bytes(content)))
    return ChunkTable.unpack(content)


def error_of(fields: Mapping[str, Any]) -> SparklogError:
    """Return the error that a task sent as class name (in `sparklog.errors`), message and path.

    The error's other attributes are not sent; the message contains their values.
    """
    kind = getattr(errors, fields["error"], SparklogError)
    # `__init__` of some classes builds the message from parameters, which were not sent.
    error: SparklogError = kind.__new__(kind, fields["message"])
    error.args = (fields["message"],)
    if fields.get("path") is not None:
        error.path = fields["path"]
    return error


def _by_topic(rows: pa.RecordBatch) -> list[tuple[str, pa.RecordBatch]]:
    column = rows.column("topic")
    if column.null_count:
        raise row_faults.NULL_TOPIC.error()
    rest = rows.drop_columns(["topic"])
    # Strings in Spark can contain any bytes: replace invalid UTF-8 as the JVM does.
    raw = column.cast(pa.binary())
    names = [(name, name.decode(errors="replace")) for name in pc.unique(raw).to_pylist()]
    if len(names) == 1:
        return [(names[0][1], rest)]
    return [(text, rest.filter(pc.equal(raw, name))) for name, text in names]
