"""Turns Arrow rows into chunks: partitions them, and packs compressed record batches.

Used by `Log.append`, by the sink in the driver, and by Spark tasks, which stage chunks as files
in the log dir. No lock is taken and nothing here is visible to readers; a chunk file that is
never committed is rubbish with a name of its own, and is swept.
"""

import contextlib
import hashlib
import logging
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from sparklog.clock import Clock
from sparklog.common import TopicPartition
from sparklog.errors import InvalidRequestError, RecordTooLargeError, StorageUnavailableError
from sparklog.format.partitioner import grouped, murmur2_partitions
from sparklog.format.records import Encoded, Scratch, encode
from sparklog.format.rows import Picked, Rows
from sparklog.fs import File, FileSystem
from sparklog.logdir.chunk_files import is_worth_a_segment, new_chunk_path
from sparklog.storage.commits import Chunk
from sparklog.storage.staging import Framing
from sparklog.storage.view import TopicInfo

_LOGGER: Final = logging.getLogger(__name__)
FILE_BYTES: Final = 256 << 10  # a chunk larger than this goes to its file
_FLUSH_BYTES: Final = 1 << 20  # rows are framed when so many bytes of a partition have come
_HELD_BYTES: Final = 64 << 20  # and all rows when Arrow batches of this size were kept for them


@dataclass(slots=True)
class _Growing:
    """The chunk of one partition that is still growing, and the rows not framed yet."""

    topic: TopicInfo
    partition: int
    rows: list[Picked] = field(default_factory=list)
    row_bytes: int = 0
    parts: list[memoryview] = field(default_factory=list)
    file: File | None = None
    size: int = 0
    written: int = 0
    records: int = 0
    min_timestamp: int = 2**63 - 1
    max_timestamp: int = -1

    @property
    def key(self) -> TopicPartition:
        """The partition."""
        return TopicPartition(self.topic.name, self.partition)


class ChunkStager:
    """Takes rows of any topics; `finish` gives the chunks. Use once.

    `label` names chunk files (see `chunk_label`); None keeps every chunk in memory.
    Rows that say nothing of their partition go to one, and every batch.size bytes to the next, as
    Kafka's producer sends them; `label` (else `spread`) says where that begins, so that an attempt
    does what the one before it did. Source: BuiltInPartitioner (Kafka 4.1).
    Memory: about _HELD_BYTES of rows, up to FILE_BYTES a partition; without files, all of it.
    """

    def __init__(
        self,
        fs: FileSystem,
        clock: Clock,
        framing: Framing,
        *,
        label: str | None = None,
        spread: str | int = "",
    ) -> None:
        self._fs, self._clock, self._framing, self._label = fs, clock, framing, label
        self._growing: dict[TopicPartition, _Growing] = {}
        self._done: list[Chunk] = []
        self._start = _hashed(label or str(spread))
        self._adrift: dict[str, int] = {}  # topic -> bytes of rows without a partition
        self._sequences: dict[TopicPartition, int] = {}  # of a producer, over all chunks
        self._scratch = None if label is None else Scratch()
        self._held = 0  # bytes of Arrow batches since all was framed

    def add(self, topic: TopicInfo, rows: pa.RecordBatch, *, partition: int | None = None) -> None:
        """Stage rows: columns value [, key, headers, timestamp, partition].

        A null partition leaves the row to its key, as in Kafka's connector.
        Raises: InvalidRequestError for a partition that isn't there, and for a null key where the
        topic is compacted; RecordTooLargeError; PartitionOfflineError.
        """
        if rows.num_rows == 0:
            return
        _check_keys(topic, rows)
        for number, part in self._split(topic, rows, partition):
            if number in topic.offline:
                raise topic.offline[number]
            key = TopicPartition(topic.name, number)
            growing = self._growing.get(key)
            if growing is None:
                growing = self._growing[key] = _Growing(topic, number)
            growing.rows.append(part)
            growing.row_bytes += part.size_bytes
            if growing.row_bytes >= max(_FLUSH_BYTES, self._framing.batch_size):
                self._frame(growing)
        # Rows of a rare partition keep their whole Arrow batch in memory.
        self._held += rows.get_total_buffer_size()
        if self._held > _HELD_BYTES:
            for growing in list(self._growing.values()):
                self._frame(growing)
            self._held = 0

    def _split(
        self, topic: TopicInfo, rows: pa.RecordBatch, partition: int | None
    ) -> Iterator[tuple[int, Picked]]:
        batch = Rows(_without_partition(rows), default_ms=self._clock())
        if partition is None and "partition" not in rows.schema.names and topic.partitions == 1:
            partition = 0
        if partition is not None:
            _check_partition(topic, partition, partition)
            yield partition, Picked(batch)
            return
        numbers = self._numbers(topic, rows, batch.size_bytes)
        _check_partition(topic, int(numbers.min()), int(numbers.max()))
        for number, order in grouped(numbers):
            yield number, Picked(batch, order)

    def _numbers(
        self, topic: TopicInfo, rows: pa.RecordBatch, size_bytes: int
    ) -> NDArray[np.int32]:
        """Each row's partition: its column, else murmur2 of its key, else sticky."""
        given = rows.column("partition") if "partition" in rows.schema.names else None
        if given is not None and not given.null_count:
            return np.asarray(_as_numbers(given))
        numbers = np.full(rows.num_rows, -1, np.int32)
        if "key" in rows.schema.names:
            numbers = murmur2_partitions(rows.column("key"), topic.partitions)
        if (numbers < 0).any():
            numbers = np.where(numbers < 0, self._sticky(topic, len(numbers), size_bytes), numbers)
        if given is None:
            return numbers
        asked = np.asarray(_as_numbers(given).fill_null(0))
        return np.where(np.asarray(given.is_null()), numbers, asked)

    def _sticky(self, topic: TopicInfo, count: int, size_bytes: int) -> NDArray[np.int32]:
        """A partition for each of `count` rows that together have about `size_bytes`."""
        before = self._adrift.get(topic.name, 0)
        self._adrift[topic.name] = before + size_bytes
        come = before + np.arange(count, dtype=np.int64) * size_bytes // count
        steps = self._start + come // self._framing.batch_size
        there = [p for p in range(topic.partitions) if p not in topic.offline] or [0]
        return np.asarray(there, np.int32)[steps % len(there)]  # Kafka: availablePartitionsForTopic

    def _frame(self, growing: _Growing) -> None:
        """Turn the rows that came so far into record batches."""
        if not growing.rows:
            return
        rows, growing.rows, growing.row_bytes = growing.rows, [], 0
        encoded = self._encode(growing, rows)
        if growing.size and growing.size + len(encoded.data) > growing.topic.config.roll_bytes:
            self._close(growing)
            growing = self._growing[growing.key] = _Growing(growing.topic, growing.partition)
            encoded = self._encode(growing, rows)
        self._grow(growing, encoded)

    def _encode(self, growing: _Growing, rows: list[Picked]) -> Encoded:
        config, producer = growing.topic.config, self._framing.producer
        codec, level = self._framing.compression(config)
        if producer is not None:
            done = self._sequences.get(growing.key, 0)
            producer = (producer[0], producer[1], (producer[2] + done) & 0x7FFFFFFF)
        with _naming(growing.topic):
            return encode(
                rows,
                codec=codec,
                level=level,
                batch_size=min(self._framing.batch_size, config.max_message_bytes),
                max_message_bytes=config.max_message_bytes,
                timestamp_ms_default=self._clock(),
                producer=producer,
                base_offset=growing.records,
                scratch=self._scratch,
            )

    def _grow(self, growing: _Growing, encoded: Encoded) -> None:
        growing.size += len(encoded.data)
        growing.records += encoded.count
        key = growing.key
        self._sequences[key] = self._sequences.get(key, 0) + encoded.count
        growing.min_timestamp = min(growing.min_timestamp, encoded.min_timestamp)
        latest = int(encoded.batches["max_timestamp"].max())
        growing.max_timestamp = max(growing.max_timestamp, latest)
        growing.parts.append(encoded.data)
        if self._scratch is not None:
            if growing.size >= FILE_BYTES:
                self._write(growing)
            else:
                growing.parts[-1] = memoryview(bytes(encoded.data))

    def _write(self, growing: _Growing) -> None:
        if growing.file is None:
            directory = os.path.dirname(growing.topic.dirs[growing.partition])
            path = new_chunk_path(directory, str(self._label))
            growing.file = self._fs.open(path, create=True)
        for part in growing.parts:
            growing.file.pwrite(part, growing.written)
            growing.written += len(part)
        growing.parts.clear()

    def _close(self, growing: _Growing) -> None:
        """Turn what has grown into a chunk."""
        if not growing.size:
            return
        path, boot, data = None, None, None
        if growing.file is None:
            parts = growing.parts
            data = parts[0] if len(parts) == 1 else b"".join(parts)
        else:
            self._write(growing)
            path = growing.file.path
            if is_worth_a_segment(growing.size, growing.topic.config):
                growing.file.sync()
                boot = self._fs.boot_id()
            growing.file.close()
        self._done.append(
            Chunk(
                topic=growing.topic.name,
                partition=growing.partition,
                data=data,
                path=path,
                size_bytes=growing.size,
                records=growing.records,
                min_timestamp=growing.min_timestamp,
                max_timestamp=growing.max_timestamp,
                idempotent=self._framing.producer is not None,
                synced_boot_id=boot,
            )
        )

    def finish(self) -> list[Chunk]:
        """Return all chunks, in the order in which their partitions must get them."""
        for growing in list(self._growing.values()):
            self._frame(growing)
        for growing in list(self._growing.values()):
            self._close(growing)
        self._growing.clear()
        return self._done

    def discard(self) -> None:
        """Delete what was staged, after a failure."""
        for growing in self._growing.values():
            if growing.file is not None:
                growing.file.close()
                self._unlink(growing.file.path)
        for chunk in self._done:
            if chunk.path is not None:
                self._unlink(chunk.path)

    def _unlink(self, path: str) -> None:
        with contextlib.suppress(FileNotFoundError, StorageUnavailableError):
            self._fs.unlink(path)


@contextlib.contextmanager
def _naming(topic: TopicInfo) -> Iterator[None]:
    """Say of a record that is too large whose limit that is, and what raises it."""
    try:
        yield
    except RecordTooLargeError as error:
        home = os.path.dirname(topic.dirs[0])
        raise RecordTooLargeError(
            f"topic {topic.name}: {error}. Where the topic exists an option of the writer doesn't "
            f"raise it, but: sparklog configs alter {home} --topic {topic.name} --add-config "
            "max.message.bytes=..., or Log.alter_topic"
        ) from None


def _hashed(text: str) -> int:
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:4], "big")


def _check_keys(topic: TopicInfo, rows: pa.RecordBatch) -> None:
    """Refuse what compaction would erase. Source: LogValidator.validateKey (Kafka 4.1)."""
    if not topic.config.compact or not rows.num_rows:
        return
    nulls = rows.num_rows
    if "key" in rows.schema.names:
        nulls = rows.column("key").null_count
    if nulls:
        raise InvalidRequestError(
            f"topic {topic.name} is compacted (cleanup.policy), and {nulls} of {rows.num_rows} "
            "rows have no key: compaction would erase them. Give every row a key; nothing was "
            "appended"
        )


def _check_partition(topic: TopicInfo, low: int, high: int) -> None:
    for number in (low, high):
        if number not in topic.dirs:
            raise InvalidRequestError(
                f"topic {topic.name} has no partition {number}: want one of {sorted(topic.dirs)}; "
                "nothing was appended"
            )


def _as_numbers(given: pa.Array) -> pa.Array:
    """The column partition as int32. Raises InvalidRequestError."""
    try:
        return given.cast(pa.int32())
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise InvalidRequestError(
            f"column partition is {given.type}; want whole numbers from 0: {error}"
        ) from None


def _without_partition(rows: pa.RecordBatch) -> pa.RecordBatch:
    drop = [name for name in ("partition", "topic") if name in rows.schema.names]
    return rows.drop_columns(drop) if drop else rows


def spill(
    fs: FileSystem,
    chunks: Sequence[Chunk],
    topics: Mapping[str, TopicInfo],
    *,
    label: str,
    inline_max_bytes: int,
) -> list[Chunk]:
    """Write chunks that are too large, all together, to be sent in memory to their files."""
    if sum(chunk.size_bytes for chunk in chunks if chunk.data is not None) <= inline_max_bytes:
        return list(chunks)
    return [
        chunk if chunk.data is None else _spilled(fs, chunk, topics[chunk.topic], label)
        for chunk in chunks
    ]


def _spilled(fs: FileSystem, chunk: Chunk, topic: TopicInfo, label: str) -> Chunk:
    assert chunk.data is not None
    path = new_chunk_path(os.path.dirname(topic.dirs[chunk.partition]), label)
    with fs.open(path, create=True) as file:
        file.pwrite(chunk.data, 0)
    return replace(chunk, data=None, path=path)


def discard_chunks(fs: FileSystem, chunks: Iterable[Chunk]) -> None:
    """Delete staged files; a chunk that became a segment has another name and stays."""
    for chunk in chunks:
        if chunk.path is not None:
            try:
                fs.unlink(chunk.path)
            except (FileNotFoundError, StorageUnavailableError) as error:
                _LOGGER.debug("%s: %s", chunk.path, error)
