"""Turn Arrow rows into chunks: partition, frame and compress them, for any home.

Used by `Log.append`, by the sink in the driver, and by Spark tasks. The home's `ChunkPlace` stores
growing chunks. Staging takes no lock, and readers never see staged chunks. Chunks that are not
committed have unique names and are swept later.
"""

import contextlib
import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from sparklog.clock import Clock
from sparklog.common import TopicPartition
from sparklog.errors import InvalidRequestError, RecordTooLargeError
from sparklog.format import columns
from sparklog.format.partitioner import grouped, murmur2_partitions
from sparklog.format.records import Encoded, Scratch, encode
from sparklog.format.rows import Picked, Rows
from sparklog.storage import row_faults
from sparklog.storage.commits import Chunk
from sparklog.storage.staging import ChunkPlace, Framing, GrowingChunk
from sparklog.storage.view import TopicInfo

FLUSH_BYTES: Final = 1 << 20  # pending bytes of a partition at which its rows are framed
HELD_BYTES: Final = 64 << 20  # bytes of retained Arrow batches at which all rows are framed


@dataclass(frozen=True, slots=True)
class ChunksInMemory:
    """A `ChunkPlace` that keeps all chunks in memory, for any home.

    `home` is the log's path, for messages.
    """

    home: str
    is_memory: bool = True

    def grow(self, chunk: GrowingChunk, data: memoryview) -> bool:
        """Add record batches in a buffer that the caller does not use again.

        Always returns False: the chunk can grow further.
        """
        chunk.parts.append(data)
        return False

    def close(self, chunk: GrowingChunk) -> None:
        """Join the batches of a complete chunk into a single buffer."""
        chunk.join()

    def finish(self, chunks: Sequence[GrowingChunk]) -> Sequence[Chunk]:
        """Return the chunks for the commit, each with its data."""
        return [chunk.chunk(data=chunk.parts[0]) for chunk in chunks]

    def discard(self, chunks: Sequence[GrowingChunk]) -> None:
        """Do nothing: memory needs no clean-up."""


@dataclass(slots=True)
class _PendingPartition:
    """A partition's rows that are not encoded as record batches yet, and its growing chunk."""

    topic: TopicInfo
    chunk: GrowingChunk
    rows: list[Picked] = field(default_factory=list)
    row_bytes: int = 0


class ChunkStager:
    """Turns rows of any topics into chunks; `finish` returns the chunks for a commit.

    A `sparklog.storage.staging.Stager`. Rows without a key or partition number go to a sticky
    partition, which changes every batch.size bytes as in Kafka's producer. Only the values of such
    rows count towards batch.size, so the same rows go to the same partitions regardless of Arrow
    batch boundaries, also in the JVM (ChunkStager.scala). Source: BuiltInPartitioner (Kafka 4.1).

    Memory: about HELD_BYTES of rows, and the memory of `place`.

    Args:
        place: Stores the chunks.
        clock: The clock.
        framing: How rows are grouped into record batches and compressed.
        spread: Determines the first sticky partition.
    """

    def __init__(
        self, place: ChunkPlace, clock: Clock, framing: Framing, *, spread: str | int = ""
    ) -> None:
        self._place, self._clock, self._framing = place, clock, framing
        self._pending: dict[TopicPartition, _PendingPartition] = {}
        self._done: list[GrowingChunk] = []
        # hash() would differ in each process, and a replay must fill the same partitions.
        self._start = int.from_bytes(hashlib.sha256(str(spread).encode()).digest()[:4], "big")
        self._adrift: dict[str, int] = {}  # topic -> bytes of values without a partition
        self._sequences: dict[TopicPartition, int] = {}  # records of a producer in all chunks
        # A place in memory keeps the encoded bytes, so their buffer can't be used again.
        self._scratch = None if place.is_memory else Scratch()
        self._held = 0  # bytes of Arrow batches since all rows were framed

    def add(self, topic: TopicInfo, rows: pa.RecordBatch, *, partition: int | None = None) -> None:
        """Stage rows with columns value [, key, headers, timestamp, partition].

        A row with a null partition is assigned by its key, as in Spark's Kafka sink.

        Raises:
            InvalidRequestError: A partition does not exist, or a row of a compacted topic has a
                null key.
            RecordTooLargeError: A record exceeds max.message.bytes.
            PartitionOfflineError: A partition is offline.
        """
        if rows.num_rows == 0:
            return
        _check_keys(topic, rows)
        for number, part in self._split(topic, rows, partition):
            if number in topic.offline:
                raise topic.offline[number]
            key = TopicPartition(topic.name, number)
            pending = self._pending.get(key)
            if pending is None:
                pending = self._pending[key] = _PendingPartition(topic, self._begun(topic, number))
            pending.rows.append(part)
            pending.row_bytes += part.size_bytes
            if pending.row_bytes >= max(FLUSH_BYTES, self._framing.batch_size):
                self._frame(pending)
        # A few pending rows of a rare partition keep a complete Arrow batch in memory.
        self._held += rows.get_total_buffer_size()
        if self._held > HELD_BYTES:
            for pending in self._pending.values():
                self._frame(pending)
            self._held = 0

    def _split(
        self, topic: TopicInfo, rows: pa.RecordBatch, partition: int | None
    ) -> Iterator[tuple[int, Picked]]:
        # Both columns are used here. They are not part of a record, and `Rows` rejects them.
        drop = [name for name in ("partition", "topic") if name in rows.schema.names]
        batch = Rows(rows.drop_columns(drop) if drop else rows, default_ms=self._clock())
        if partition is None and "partition" not in rows.schema.names and topic.partitions == 1:
            partition = 0
        if partition is not None:
            _check_partition(topic, partition, partition)
            yield partition, Picked(batch)
            return
        numbers = self._numbers(topic, rows)
        _check_partition(topic, int(numbers.min()), int(numbers.max()))
        for number, order in grouped(numbers):
            yield number, Picked(batch, order)

    def _numbers(self, topic: TopicInfo, rows: pa.RecordBatch) -> NDArray[np.int32]:
        """Return the partition of each row.

        The column partition decides; where it is null or missing, murmur2 of the key; without a
        key, the sticky partition.
        """
        given = rows.column("partition") if "partition" in rows.schema.names else None
        if given is not None and not given.null_count:
            return np.asarray(_as_numbers(given))
        numbers = np.full(rows.num_rows, -1, np.int32)
        if "key" in rows.schema.names:
            numbers = murmur2_partitions(rows.column("key"), topic.partitions)
        adrift = numbers < 0
        if given is not None:
            free = np.asarray(given.is_null())  # the 0 of these rows below is not used
            numbers = np.where(free, numbers, np.asarray(_as_numbers(given).fill_null(0)))
            adrift &= free
        if adrift.any():
            values = columns.to_binary(rows.column("value"), "value")
            sizes = np.asarray(pc.fill_null(pc.binary_length(values), 0)).astype(np.int64)
            numbers[adrift] = self._sticky(topic, sizes[adrift])
        return numbers

    def _sticky(self, topic: TopicInfo, sizes: NDArray[np.int64]) -> NDArray[np.int32]:
        """Return the partition of each row without a key, by the bytes of all such rows before.

        `sizes` has the number of bytes of each row's value.
        """
        seen_bytes = self._adrift.get(topic.name, 0) + np.cumsum(sizes)
        self._adrift[topic.name] = int(seen_bytes[-1])
        steps = self._start + (seen_bytes - sizes) // self._framing.batch_size
        # If all partitions are offline, `add` raises the error of partition 0.
        available = [p for p in range(topic.partitions) if p not in topic.offline] or [0]
        partitions: NDArray[np.int32] = np.asarray(available, np.int32)[steps % len(available)]
        return partitions  # Kafka: availablePartitionsForTopic

    def _begun(self, topic: TopicInfo, partition: int) -> GrowingChunk:
        return GrowingChunk(topic, partition, idempotent=self._framing.producer is not None)

    def _frame(self, pending: _PendingPartition) -> None:
        """Encode the pending rows of a partition as record batches, and add them to its chunk."""
        if not pending.rows:
            return
        rows, pending.rows, pending.row_bytes = pending.rows, [], 0
        encoded, size = self._encode(pending, rows), pending.chunk.size_bytes
        if size and size + len(encoded.data) > pending.topic.config.roll_bytes:
            self._close(pending)
            # Offsets in a chunk count from its first record, so encode again for the new chunk.
            encoded = self._encode(pending, rows)
        chunk, key = pending.chunk, _key(pending.chunk)
        chunk.size_bytes += len(encoded.data)
        chunk.records += encoded.count
        self._sequences[key] = self._sequences.get(key, 0) + encoded.count
        chunk.min_timestamp = min(chunk.min_timestamp, encoded.min_timestamp)
        latest = int(encoded.batches["max_timestamp"].max())
        chunk.max_timestamp = max(chunk.max_timestamp, latest)
        if self._place.grow(chunk, encoded.data):
            for each in self._pending.values():
                self._close(each)

    def _encode(self, pending: _PendingPartition, rows: list[Picked]) -> Encoded:
        config, producer = pending.topic.config, self._framing.producer
        codec, level = self._framing.compression(config)
        if producer is not None:
            done = self._sequences.get(_key(pending.chunk), 0)
            producer = (producer[0], producer[1], (producer[2] + done) & 0x7FFFFFFF)
        with _naming(pending.topic, self._place.home):
            return encode(
                rows,
                codec=codec,
                level=level,
                batch_size=min(self._framing.batch_size, config.max_message_bytes),
                max_message_bytes=config.max_message_bytes,
                timestamp_ms_default=self._clock(),
                producer=producer,
                base_offset=pending.chunk.records,
                scratch=self._scratch,
            )

    def _close(self, pending: _PendingPartition) -> None:
        """Complete a partition's chunk, unless it is empty, and begin the next chunk."""
        chunk = pending.chunk
        if chunk.size_bytes:
            self._place.close(chunk)
            self._done.append(chunk)
            pending.chunk = self._begun(chunk.topic, chunk.partition)

    def finish(self) -> Sequence[Chunk]:
        """Return all chunks, in the order in which the partitions must append the chunks."""
        for pending in self._pending.values():
            self._frame(pending)
        for pending in self._pending.values():
            self._close(pending)
        self._pending.clear()
        return self._place.finish(self._done)

    def discard(self) -> None:
        """Delete the staged chunks after a failure."""
        growing = (pending.chunk for pending in self._pending.values())
        self._place.discard([*growing, *self._done])


def _key(chunk: GrowingChunk) -> TopicPartition:
    return TopicPartition(chunk.topic.name, chunk.partition)


@contextlib.contextmanager
def _naming(topic: TopicInfo, home: str) -> Iterator[None]:
    """Complete a RecordTooLargeError: add the topic, and how to raise the limit."""
    try:
        yield
    except RecordTooLargeError as error:
        most = topic.config.max_message_bytes
        raise row_faults.TOO_LARGE.error(
            topic=topic.name, size=error.size_bytes, most=most, home=home
        ) from None


def _check_keys(topic: TopicInfo, rows: pa.RecordBatch) -> None:
    """Reject rows without a key in a compacted topic.

    Source: LogValidator.validateKey (Kafka 4.1).
    """
    if not topic.config.compact or not rows.num_rows:
        return
    if "key" not in rows.schema.names or rows.column("key").null_count:
        raise row_faults.NO_KEY.error(topic=topic.name)


def _check_partition(topic: TopicInfo, low: int, high: int) -> None:
    for number in (low, high):
        if number not in topic.dirs:
            raise row_faults.NO_PARTITION.error(
                topic=topic.name, partition=number, partitions=sorted(topic.dirs)
            )


def _as_numbers(given: pa.Array) -> pa.Array:
    """Return the column partition as int32.

    Raises:
        InvalidRequestError: The column has another type.
    """
    try:
        return given.cast(pa.int32())
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise InvalidRequestError(
            f"the column partition must contain integers from 0, but has type {given.type}: "
            f"{error}"
        ) from None
