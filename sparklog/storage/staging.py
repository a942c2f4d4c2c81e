"""Staging: rows of any topics become chunks, which a commit takes in; how they are framed.

Rows are partitioned, framed and packed the same way wherever a log is kept
(`sparklog.log.chunk_stager`); where a chunk goes as it grows is its home's: a `ChunkPlace`. What
the tasks of a Spark job need for that comes with them: a `TaskStaging`.
"""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

import pyarrow as pa

from sparklog.config import TopicConfig
from sparklog.format.compression import Codec
from sparklog.storage.chunk_table import ChunkTable
from sparklog.storage.commits import Chunk
from sparklog.storage.view import TopicInfo

BATCH_SIZE: Final = 256 << 10
"""Bytes of records that a batch aims at, uncompressed (Kafka producer's batch.size).

By tests/benchmarks/bench_batch.py: against 16 KiB it compresses a tenth better and, with zstd,
several times faster; at 1 MiB little more is won and a look-up decodes four times as much.
"""


INLINE_BYTES: Final = 256 << 10
"""A task whose chunks have no more bytes than this altogether sends them to the driver."""


def chunk_label(writer: str, batch: int) -> str:
    """Return the label of what the tasks of a micro-batch stage, by which it is swept."""
    return f"{hashlib.sha256(writer.encode()).hexdigest()[:16]}-{batch}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Framing:
    """How records are grouped into record batches and compressed.

    Attributes:
        batch_size: The uncompressed bytes of records that a batch aims at.
        codec: The compression; None uses the topic's compression.type, and "producer" there means
            no compression. A topic with another compression.type takes precedence.
        level: The compression level; None uses the topic's level.
        producer: (producer id, epoch, sequence of the first record) of an idempotent producer.
    """

    batch_size: int = BATCH_SIZE
    codec: Codec | None = None
    level: int | None = None
    producer: tuple[int, int, int] | None = None

    def compression(self, config: TopicConfig) -> tuple[Codec, int | None]:
        """Return codec and level for a topic ("producer" without an own codec means none)."""
        codec, level = self.codec, self.level
        if config.compression_type != "producer":
            codec = Codec.parse(config.compression_type)
        if codec is None:
            return Codec.NONE, None
        if level is None:
            levels = {
                Codec.GZIP: config.compression_gzip_level,
                Codec.LZ4: config.compression_lz4_level,
                Codec.ZSTD: config.compression_zstd_level,
            }
            level = levels.get(codec)
        return codec, level


class Stager(Protocol):
    """Turns rows of any topics into chunks for `Log.commit`. For one use.

    Readers do not see staged rows before the commit.
    """

    def add(self, topic: TopicInfo, rows: pa.RecordBatch, *, partition: int | None = None) -> None:
        """Stage rows: columns value [, key, headers, timestamp, partition].

        A null partition leaves the row to its key, as in Kafka's connector.
        Raises: InvalidRequestError for a partition that isn't there, and for a null key where the
        topic is compacted; RecordTooLargeError; PartitionOfflineError.
        """

    def finish(self) -> Sequence[Chunk]:
        """Return all chunks in the order in which `Log.commit` must receive them."""

    def discard(self) -> None:
        """Delete what was staged, after a failure."""


@dataclass(slots=True)
class GrowingChunk:
    """The chunk of one partition, as long as it grows: whole v2 record batches from offset 0.

    `parts`: what of it is in memory, in order. `at`: the place's own, a file say.
    """

    topic: TopicInfo
    partition: int
    parts: list[memoryview] = field(default_factory=list)
    size_bytes: int = 0
    records: int = 0
    min_timestamp: int = 2**63 - 1  # ms
    max_timestamp: int = -1  # ms
    idempotent: bool = False
    at: Any = None

    def closed(self, **place: Any) -> Chunk:
        """Return it as a chunk; `place`: the fields data, path, ... of `Chunk`."""
        return Chunk(
            topic=self.topic.name,
            topic_id=self.topic.id,
            partition=self.partition,
            size_bytes=self.size_bytes,
            records=self.records,
            min_timestamp=self.min_timestamp,
            max_timestamp=self.max_timestamp,
            idempotent=self.idempotent,
            **place,
        )

    def data(self) -> memoryview | bytes:
        """Return what is in memory of it, in one piece."""
        return self.parts[0] if len(self.parts) == 1 else b"".join(self.parts)


class ChunkPlace(Protocol):
    """Where the chunks of one stager go, while they grow and at their end. For one thread.

    A log dir's writes each large chunk to a file of its own. A store's, which takes whole objects,
    holds them until `finish` and puts them all into one; where they grow beyond what it may hold,
    it begins that object in parts, and asks for new chunks behind those that went into a part.
    """

    @property
    def home(self) -> str:
        """Where the log is, for messages."""

    @property
    def is_memory(self) -> bool:
        """Whether every chunk stays in memory, so that each batch needs a buffer of its own.

        Else the buffer that `grow` is given is used again.
        """

    def grow(self, chunk: GrowingChunk, data: memoryview) -> bool:
        """Take record batches at a chunk's end; its size and count tell of them already.

        Keeps them in `chunk.parts` (a copy, but for `is_memory`), or writes them away.
        Returns True where the place wants all chunks closed now, and new ones begun behind them.
        Raises: StorageUnavailableError.
        """

    def close(self, chunk: GrowingChunk) -> Chunk:
        """End a chunk, which isn't empty. Raises: StorageUnavailableError."""

    def finish(self, chunks: Sequence[Chunk]) -> Sequence[Chunk]:
        """Return the chunks as they are to be committed: all are closed, in their order.

        What is to leave this process has no more than INLINE_BYTES in memory altogether; more is
        staged now. Raises: StorageUnavailableError.
        """

    def discard(self, growing: Sequence[GrowingChunk], chunks: Sequence[Chunk]) -> None:
        """Let go of what was staged, after a failure: nothing of it was sent. Raises nothing."""


class TaskStaging(Protocol):
    """How the tasks of a Spark job stage rows for one log; made in the driver, pickled to them.

    It may hold what a store is reached by, so its repr shows no more than the path.
    """

    @property
    def home(self) -> str:
        """Where the log is, for messages."""

    def check(self) -> None:
        """Find out, before a row is touched, whether this process sees the driver's log.

        Cost: a stat or two, or one small request.
        Raises: InvalidRequestError, which names the host: it can't be seen from here.
        LogReplacedError: another one is there now. StorageUnavailableError.
        """

    def stager(self, framing: Framing, *, label: str, task: int = 0) -> Stager:
        """Return a task's stager. `label`: a `chunk_label` and `task`, the task's number.

        Memory: bounded, whatever the task's rows are. Rows without partition or key are spread by
        `label`, so that an attempt does what the one before it did.
        """

    def memory_stager(self, framing: Framing, *, spread: str) -> Stager:
        """Return the stager of a small micro-batch in the driver: nothing leaves its memory."""

    @property
    def puts_objects(self) -> bool:
        """Whether tasks in the JVM leave it to `put` to stage what they framed."""

    def jvm_place(self) -> Mapping[str, Any] | None:
        """Return where tasks in Spark's JVM put chunks, as JSON has it; None: they can't.

        `kind` says which of the JVM's places it is: "files" or "objects" (StagePlan.scala).
        """

    def jvm_topic(self, topic: TopicInfo) -> Mapping[str, Any]:
        """Return what that place needs to know of a topic."""

    def put(self, tables: Iterable[ChunkTable], *, label: str, task: int = 0) -> ChunkTable:
        """Put the chunks that the JVM gave back, in memory, and return them as they are staged.

        For a `jvm_place` of the kind "objects". Few ones stay in memory, as a stager's do.
        Raises: StorageUnavailableError; nothing of it is left then.
        """

    def planned_topic(self, name: str, partitions: int, config: TopicConfig) -> TopicInfo:
        """Return a topic that the commit of its first rows will make, without an id."""

    def gathered(self, tables: Sequence[ChunkTable]) -> Sequence[Chunk]:
        """Return what tasks report, in the order of the tasks, as the chunks of a commit.

        They may be fewer: what several tasks staged for a partition can be one chunk.
        """

    def discard(self, chunks: Sequence[Chunk], *, cause: BaseException | None = None) -> None:
        """Let go of staged chunks whose commit failed, wasn't tried, or was a replay.

        Only the home can tell what may be deleted: a commit that was interrupted may have written
        its record, and with CommitUnknownError nobody knows; Spark aborts in both cases, perhaps
        in another process. What can't be told stays, and is swept when it can no more be
        committed. `cause`: what the commit raised; None: that isn't known here.
        Raises nothing.
        """
