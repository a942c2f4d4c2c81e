"""Staging: rows of any topics become chunks, which a commit appends.

Rows are partitioned, framed and packed in the same way in every home (`sparklog.log.chunk_stager`).
The home stores the chunks: a `ChunkPlace`. A `TaskStaging` carries what the tasks of a Spark job
need for this.
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
"""The target size of a batch in uncompressed bytes of records (Kafka producer's batch.size).

Measured by tests/benchmarks/bench_batch.py: compared with 16 KiB, batches are a tenth smaller and,
with zstd, several times faster. 1 MiB gains little, and a look-up decodes four times as much.
"""


INLINE_BYTES: Final = 256 << 10
"""A task whose chunks are not larger in total sends them to the driver."""


def chunk_label(writer: str, batch: int) -> str:
    """Return the label of a micro-batch's staged data, by which they are found and deleted."""
    # A hash, because a writer's name can be any text and the label is part of file names.
    return f"{hashlib.sha256(writer.encode()).hexdigest()[:16]}-{batch}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Framing:
    """How records are grouped into record batches and compressed.

    Attributes:
        batch_size: The target size of a batch in uncompressed bytes of records.
        codec: The compression; by default the topic's compression.type, of which "producer" means
            no compression. A topic with another compression.type takes precedence.
        level: The compression level of `codec`; by default the topic's level. The level does not
            apply if a topic's compression.type takes precedence over `codec`.
        producer: (producer id, epoch, sequence of the first record) of an idempotent producer.

    Examples:
        >>> framing = sparklog.Framing(batch_size=65_536, codec=sparklog.Codec.ZSTD)
        >>> ends = log.append("flights", pa.table({"value": ["1"]}), framing=framing)
    """

    batch_size: int = BATCH_SIZE
    codec: Codec | None = None
    level: int | None = None
    producer: tuple[int, int, int] | None = None

    def compression(self, config: TopicConfig) -> tuple[Codec, int | None]:
        """Return the codec and the level for a topic; None means the codec's default level.

        Args:
            config: The topic's options. If neither they nor this framing name a codec, records are
                not compressed.
        """
        codec, level = self.codec, self.level
        if config.compression_type != "producer":
            codec = Codec.parse(config.compression_type)
            if self.codec not in (None, codec):
                level = None
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
    """Turns rows of any topics into chunks for `Log.commit`. A stager can be used once.

    Readers do not see staged rows before the commit.

    Examples:
        >>> stager = log.stager(sparklog.Framing())
        >>> stager.add(log.topic("flights"), pa.record_batch({"key": ["N1"], "value": ["1"]}))
        >>> result = log.commit(stager.finish())
    """

    def add(self, topic: TopicInfo, rows: pa.RecordBatch, *, partition: int | None = None) -> None:
        """Stage rows of a topic.

        Args:
            topic: The topic.
            rows: Columns: value (binary or string), and optionally key, headers, timestamp,
                partition.
            partition: The partition of all rows. By default the column partition decides. Rows with
                a null partition are partitioned by key, as in Kafka's connector.

        Raises:
            InvalidRequestError: The partition does not exist, or a row of a compacted topic has a
                null key.
            RecordTooLargeError: A record exceeds max.message.bytes.
            PartitionOfflineError: The partition is offline.
        """

    def finish(self) -> Sequence[Chunk]:
        """Return all chunks, in the order that `Log.commit` requires.

        Raises:
            StorageUnavailableError: The disk is full, or the store fails.
        """

    def discard(self) -> None:
        """Delete the staged data, after a failure."""


@dataclass(slots=True)
class GrowingChunk:
    """A chunk of a partition to which rows are added: complete v2 record batches from offset 0.

    No rows are added after the chunk was closed.

    Attributes:
        parts: The batches in memory, in order.
        place_state: What the `ChunkPlace` stores about the chunk, for example a file.
    """

    topic: TopicInfo
    partition: int
    parts: list[memoryview] = field(default_factory=list)
    size_bytes: int = 0
    records: int = 0
    min_timestamp: int = 2**63 - 1  # ms
    max_timestamp: int = -1  # ms
    idempotent: bool = False
    place_state: Any = None

    def chunk(self, **place: Any) -> Chunk:
        """Return the chunk for the commit; `place`: the fields data, path, ... of `Chunk`."""
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

    def join(self) -> None:
        """Join the batches in memory: `parts` then has a single item."""
        if len(self.parts) > 1:
            self.parts = [memoryview(b"".join(self.parts))]


class ChunkPlace(Protocol):
    """The place where a stager stores growing and closed chunks. Used by a single thread.

    A log dir writes each large chunk to its own file. A bucket writes all chunks into a single
    object at `finish`. If the chunks exceed the memory limit before, the bucket starts a multipart
    upload, and the stager continues with new chunks.
    """

    @property
    def home(self) -> str:
        """The path or URL of the log, for messages."""

    @property
    def is_memory(self) -> bool:
        """Whether every chunk stays in memory, in which case each batch needs its own buffer.

        Otherwise the stager reuses the buffer that it passes to `grow`.
        """

    def grow(self, chunk: GrowingChunk, data: memoryview) -> bool:
        """Add record batches to a chunk. The chunk's size and count already include the batches.

        Appends them to `chunk.parts` (a copy, unless `is_memory`), or writes them to storage.
        Returns True if the stager must close all chunks now and continue with new ones.

        Raises:
            StorageUnavailableError: The store or the disk does not answer.
        """

    def close(self, chunk: GrowingChunk) -> None:
        """Close a chunk, which must not be empty.

        Raises:
            StorageUnavailableError: The store or the disk does not answer.
        """

    def finish(self, chunks: Sequence[GrowingChunk]) -> Sequence[Chunk]:
        """Return the chunks for the commit. All are closed, and in their order.

        Tasks send at most INLINE_BYTES of data in memory to the driver; larger data are staged now.

        Raises:
            StorageUnavailableError: The store or the disk does not answer.
        """

    def discard(self, chunks: Sequence[GrowingChunk]) -> None:
        """Delete staged data after a failure, before the driver received any chunk.

        Never raises.
        """


class TaskStaging(Protocol):
    """Staging for the tasks of a Spark job; created in the driver and pickled to the tasks.

    The object may contain credentials of an object store, so its repr shows only the path.
    """

    @property
    def home(self) -> str:
        """The path or URL of the log, for messages."""

    def check(self) -> None:
        """Check, before a row is staged, that this process sees the driver's log.

        Cost: a stat or two, or a small request.

        Raises:
            InvalidRequestError: The log is not visible on this host, which the message names.
            LogReplacedError: Another log has replaced the driver's log.
            StorageUnavailableError: The store or the disk does not answer.
        """

    def stager(self, framing: Framing, *, label: str, task: int = 0) -> Stager:
        """Return a task's stager. `label`: a `chunk_label`; `task`: the task's number.

        Memory is bounded, whatever the task's rows are. Rows without partition and key are spread
        by `label`, so that another attempt of the task assigns the same partitions.
        """

    def memory_stager(self, framing: Framing, *, spread: str) -> Stager:
        """Return the stager for a small micro-batch in the driver; all chunks stay in memory."""

    @property
    def puts_objects(self) -> bool:
        """Whether tasks in the JVM only frame the rows, and `put` stages the framed rows."""

    def jvm_place(self) -> Mapping[str, Any] | None:
        """Return where JVM tasks stage chunks, for JSON. None if JVM tasks can't stage here.

        `kind` selects the JVM's class: "files" or "objects" (StagePlan.scala).
        """

    def jvm_topic(self, topic: TopicInfo) -> Mapping[str, Any]:
        """Return the topic's data that this JVM class needs."""

    def put(self, tables: Iterable[ChunkTable], *, label: str, task: int = 0) -> ChunkTable:
        """Upload the batches that a JVM task has encoded, and return the chunks for the commit.

        Used only if `puts_objects` is True. Small data are not uploaded: the returned table
        contains them, as with `stager`.

        Args:
            tables: The task's chunks with their data. Each table becomes an object.
            label: A `chunk_label`, a part of the objects' names.
            task: The number of the task.

        Raises:
            StorageUnavailableError: The store does not answer. All staged data are then deleted.
        """

    def planned_topic(self, name: str, partitions: int, config: TopicConfig) -> TopicInfo:
        """Return a topic without an id, which the commit of the first rows will create."""

    def gathered(self, tables: Sequence[ChunkTable]) -> Sequence[Chunk]:
        """Return the chunks of a commit from the tasks' reports, which are in the tasks' order.

        Several tasks' chunks of a partition may be combined into a single chunk.
        """

    def discard(self, chunks: Sequence[Chunk], *, cause: BaseException | None = None) -> None:
        """Release staged chunks after a commit that failed, was not attempted, or was a replay.

        Only the home knows which data may be deleted: an interrupted commit may have written its
        record, after CommitUnknownError the outcome is unknown, and Spark aborts in both cases,
        possibly in another process. Data with an unknown outcome stay until they can no longer be
        committed. `cause`: the exception of the commit, if known. Failures to delete are not
        raised.
        """
