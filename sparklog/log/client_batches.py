"""Validate the record batch that a Kafka producer sent for a partition, and return a chunk.

Everything in the batch is checked: sizes, counts, the CRC, compressed records down to the last
byte, and keys and timestamps by the topic's config. The check is a single pass over the records, in
native code. Source: ProduceRequest.validateRecords, UnifiedLog.append, LogValidator (Kafka 4.1).

sparklog is stricter than a broker where readers could not use the batch: offsets in a batch must
count from 0 without gaps (a broker does not check uncompressed batches), producers must not set a
delete horizon, and the uncompressed size is limited (`PLAIN_BYTES_MAX`).
"""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from enum import Enum, auto
from typing import Final, NamedTuple

import numpy as np
from crc32c import crc32c
from numpy.typing import NDArray

from sparklog.common import TopicPartition
from sparklog.config import TopicConfig
from sparklog.configdef import LONG_MAX, LONG_MIN
from sparklog.errors import DataCorruptionError, InvalidRequestError, RecordTooLargeError
from sparklog.format.batch import (
    BATCH_PREFIX,
    CODEC_MASK,
    CRC_START,
    DELETE_HORIZON,
    HEADER_SIZE,
    LOG_APPEND_TIME,
    LOG_OVERHEAD,
    MAGIC,
    MAGIC_END,
    TRANSACTIONAL,
    BatchHeader,
    unpack_header,
)
from sparklog.format.compression import Codec, OversizeError, compress, decompress
from sparklog.format.parser import FAULTS, PARSED, Parser
from sparklog.storage.commits import Chunk
from sparklog.storage.staging import Framing

PLAIN_BYTES_MAX: Final = 128 << 20
"""Largest uncompressed size of a compressed batch; limits the memory of a validation."""
RECORD_FAULTS_MAX: Final = 1000
"""Maximum number of invalid records that an error lists."""
QUICK_BYTES: Final = 256 << 10
_NONE: Final[NDArray[np.int64]] = np.empty(0, np.int64)


class Fault(Enum):
    """The reasons for rejecting a batch that producers handle differently."""

    CORRUPT = auto()
    INVALID_RECORD = auto()
    INVALID_TIMESTAMP = auto()
    UNSUPPORTED_CODEC = auto()
    TRANSACTIONAL = auto()


class RecordFault(NamedTuple):
    """An invalid record: its index in the batch, from 0, and why it is invalid."""

    number: int
    why: str


class RefusedBatchError(InvalidRequestError):
    """A producer's batch is invalid, so that sending it again can't succeed.

    `records` lists the invalid records of the batch.
    """

    def __init__(self, message: str, *, fault: Fault, records: Sequence[RecordFault] = ()) -> None:
        super().__init__(message)
        self.fault, self.records = fault, tuple(records)


class ClientBatch:
    """A batch that a Kafka producer sent for a partition. Not thread-safe.

    `chunk` validates the batch by the topic's config, and returns the chunk to commit.

    Args:
        key: The partition.
        data: The batch.
        topic_id: The topic id in the request, or "".
        zstd: Whether the version of the Produce request supports zstd.
    """

    __slots__ = ("_chunk", "_config", "_data", "_error", "_zstd", "key", "size_bytes", "topic_id")

    def __init__(
        self, key: TopicPartition, data: memoryview, *, topic_id: str = "", zstd: bool = True
    ) -> None:
        self.key, self.topic_id, self.size_bytes = key, topic_id, len(data)
        self._data, self._zstd = data, zstd
        self._config: TopicConfig | None = None
        self._chunk: Chunk | None = None
        self._error: InvalidRequestError | None = None

    @property
    def is_quick(self) -> bool:
        """Whether validation takes only a fraction of a millisecond."""
        attributes = self._data[CRC_START + 1] if len(self._data) > CRC_START + 1 else 0
        return self.size_bytes <= QUICK_BYTES and not attributes & CODEC_MASK

    def look(self, config: TopicConfig, now_ms: int) -> None:
        """Validate the batch ahead of time, so that `chunk` only returns or raises the result."""
        with suppress(InvalidRequestError):
            self.chunk(config, now_ms)

    def chunk(self, config: TopicConfig, now_ms: int) -> Chunk:
        """Return the validated batch as a chunk; see `chunk_of`.

        The result for the same config is cached, also if it is an error, which is raised again.
        """
        if config is not self._config and config != self._config:
            self._chunk, self._error, self._config = None, None, config
            try:
                self._chunk = chunk_of(
                    self._data, self.key, config, now_ms, topic_id=self.topic_id, zstd=self._zstd
                )
            except InvalidRequestError as error:
                self._error = error
        if self._error is not None:
            raise self._error
        assert self._chunk is not None
        return self._chunk


def check_form(data: memoryview, *, zstd: bool = True) -> BatchHeader:
    """Return the header of a producer's data, which must be exactly one complete batch v2.

    The checks do not depend on the topic, and the records are not read.

    Args:
        data: The data of a partition in the request.
        zstd: Whether the request's version of Produce supports zstd (7 and newer).

    Raises:
        RefusedBatchError: The data are not such a batch.
    """
    if len(data) <= MAGIC_END:
        raise _refused(
            "the request contains no record batch; a produce request must contain exactly one "
            "batch per partition"
        )
    _, length, _, magic = BATCH_PREFIX.unpack_from(data, 0)
    if magic != MAGIC:
        raise _refused(f"the batch has magic {magic}; a produced batch must have magic 2")
    if length < HEADER_SIZE - LOG_OVERHEAD:
        raise _refused(
            f"the batch length {length} is less than the length of a batch header", Fault.CORRUPT
        )
    if length != len(data) - LOG_OVERHEAD:
        raise _refused(
            f"the batch length gives {length + LOG_OVERHEAD} bytes, but the request contains "
            f"{len(data)} bytes; a produce request must contain exactly one complete batch per "
            "partition"
        )
    header = unpack_header(data, 0)
    codec = header.attributes & CODEC_MASK
    if codec > max(Codec):
        raise _refused(f"codec {codec} is unknown", Fault.UNSUPPORTED_CODEC)
    if codec == Codec.ZSTD and not zstd:
        raise _refused("zstd needs Produce 7 or newer", Fault.UNSUPPORTED_CODEC)
    if header.attributes & TRANSACTIONAL:
        raise _refused(
            "this log accepts no transactions: produce without transactional.id",
            Fault.TRANSACTIONAL,
        )
    return header


def chunk_of(
    data: memoryview,
    key: TopicPartition,
    config: TopicConfig,
    now_ms: int,
    *,
    topic_id: str = "",
    zstd: bool = True,
) -> Chunk:
    """Return a producer's batch as a chunk that can be committed to a topic with this config.

    The chunk shares `data` if the batch needs no change. As in a broker, a wrong largest timestamp
    in the header is corrected, and records are recompressed if compression.type names another
    codec.

    Raises:
        RefusedBatchError: The batch is invalid.
        RecordTooLargeError: The batch exceeds max.message.bytes or segment.bytes.

    Cost:
        A pass over the uncompressed records, and memory up to `PLAIN_BYTES_MAX` for a compressed
        batch.
    """
    header = check_form(data, zstd=zstd)
    _check_size(header.size, key, config)
    crc = crc32c(data[CRC_START:])
    if crc != header.crc:
        reason = f"{key}: the batch is damaged: its CRC is {crc}, its header has {header.crc}"
        raise _refused(reason, Fault.CORRUPT)
    _check_header(header, key)
    records = _plain(data, header, key)
    parser = _checked(records, header, key, config, now_ms)
    highest = parser.highest
    codec, level = Framing(codec=header.codec).compression(config)
    if codec != header.codec:
        data = _packed(header, records, codec, level, highest)
        _check_size(len(data), key, config)
    elif highest != header.max_timestamp:
        data = _sealed(replace(header, max_timestamp=highest), data[HEADER_SIZE:])
    return Chunk(
        topic=key.topic, partition=key.partition, data=data, size_bytes=len(data),
        records=header.count, min_timestamp=parser.lowest, max_timestamp=highest,
        idempotent=header.producer_id >= 0, topic_id=topic_id,
    )  # fmt: skip


def _check_size(size: int, key: TopicPartition, config: TopicConfig) -> None:
    # A batch is never split, so it must also fit into a segment.
    limit = min(config.max_message_bytes, config.roll_bytes)
    if size > limit:
        name = "max.message.bytes" if limit == config.max_message_bytes else "segment.bytes"
        error = RecordTooLargeError(
            f"{key}: a record batch of {size} bytes exceeds the topic's {name}={limit}; increase "
            "the limit, or make the batches smaller"
        )
        error.size_bytes = size
        raise error


def _check_header(header: BatchHeader, key: TopicPartition) -> None:
    """Raise RefusedBatchError if the header has values that a producer must not send.

    Source: LogValidator.validateBatch, UnifiedLog.analyzeAndValidateRecords.
    """
    reason = None
    if header.base_offset != 0:
        reason = f"its base offset is {header.base_offset}, not 0"
    elif header.count <= 0 or header.count != header.last_offset_delta + 1:
        reason = (
            f"{header.count} records up to offset delta {header.last_offset_delta} are impossible"
        )
    elif header.is_control:
        reason = "clients must not write control records"
    elif header.attributes & DELETE_HORIZON:
        reason = "clients must not set a delete horizon"
    elif header.producer_id >= 0 and (header.base_sequence < 0 or header.producer_epoch < 0):
        reason = (
            f"producer {header.producer_id} sent sequence {header.base_sequence} of epoch "
            f"{header.producer_epoch}"
        )
    if reason is not None:
        raise _refused(f"{key}: the batch is invalid: {reason}")
    if header.attributes & LOG_APPEND_TIME:
        raise _refused(
            f"{key}: the batch has timestamp type LogAppendTime, which a producer must not set",
            Fault.INVALID_TIMESTAMP,
        )


def _plain(data: memoryview, header: BatchHeader, key: TopicPartition) -> memoryview:
    """Return the uncompressed records.

    Raises:
        RecordTooLargeError: They exceed PLAIN_BYTES_MAX.
        RefusedBatchError: They can't be decompressed.
    """
    try:
        records = decompress(
            header.codec, data[HEADER_SIZE:], path=str(key), position=HEADER_SIZE,
            limit=PLAIN_BYTES_MAX,
        )  # fmt: skip
    except OversizeError as error:
        raise RecordTooLargeError(f"{error.reason}; make the batches smaller") from None
    except DataCorruptionError as error:
        raise _refused(f"{key}: the batch is invalid: {error.reason}") from None
    return memoryview(records)


def _checked(
    records: memoryview, header: BatchHeader, key: TopicPartition, config: TopicConfig, now_ms: int
) -> Parser:
    """Parse the uncompressed records to the last byte; the returned parser has their timestamps.

    Raises:
        RefusedBatchError: The records are malformed, or the topic's config does not allow them.
    """
    low, high = LONG_MIN, LONG_MAX
    if not config.log_append_time:
        # By default both limits are 2^63-1: the sums must fit the native parser's 64 bits.
        low = max(now_ms - config.message_timestamp_before_max_ms, LONG_MIN)
        high = min(now_ms + config.message_timestamp_after_max_ms, LONG_MAX)
    parser = Parser(0, 0, 0)
    given = (records, 0, len(records), header.count, header.base_timestamp, low, high)
    status = parser.survey(*given, config.compact, _NONE.data)
    if status != PARSED:
        raise _refused(f"{key}: the batch is invalid at byte {parser.fault_at}: {FAULTS[status]}")
    if parser.refused:
        # The first pass only counts, because valid batches need no list: list them in a second.
        bad = np.empty(min(parser.refused, RECORD_FAULTS_MAX), np.int64)
        parser.survey(*given, config.compact, bad.data)
        raise _refused_records(bad.tolist(), parser.refused, key, low, high)
    return parser


def _refused_records(
    bad: list[int], count: int, key: TopicPartition, low: int, high: int
) -> RefusedBatchError:
    """Return the error for a batch of which `count` records are invalid.

    Source: LogValidator.processRecordErrors.

    Args:
        bad: The first invalid records: the index n of a record with a wrong timestamp, or -1 - n
            for a record without a key in a compacted topic.
        count: The number of invalid records.
        key: The partition.
        low: The lowest timestamp (ms) that the topic allows.
        high: The highest timestamp (ms) that the topic allows.
    """
    # Kafka's texts, which its clients show to their users.
    no_key = f"Compacted topic cannot accept message without key in topic partition {key}"
    late = f"Timestamp is out of range. The timestamp should be within [{low}, {high}]"
    records = [RecordFault(n, late) if n >= 0 else RecordFault(-1 - n, no_key) for n in bad]
    if any(n >= 0 for n in bad):
        fault, why = Fault.INVALID_TIMESTAMP, "have a timestamp out of the topic's range"
    else:
        fault, why = Fault.INVALID_RECORD, "have no key, and the topic is compacted"
    return RefusedBatchError(
        f"{key}: {count} records of the batch {why}; the first is number {records[0].number}: "
        f"{records[0].why}",
        fault=fault,
        records=records,
    )


def _packed(
    header: BatchHeader, records: memoryview, codec: Codec, level: int | None, highest: int
) -> memoryview:
    """Return the batch, compressed by `codec`. The records do not change.

    `highest` is the largest timestamp of the records, for the header.
    """
    packed = compress(codec, records, level)
    return _sealed(
        replace(
            header,
            length=HEADER_SIZE - LOG_OVERHEAD + len(packed),
            attributes=header.attributes & ~CODEC_MASK | codec,
            max_timestamp=highest,
        ),
        packed,
    )


def _sealed(header: BatchHeader, records: bytes | memoryview) -> memoryview:
    head = header.pack()
    crc = crc32c(records, crc32c(head[CRC_START:]))
    return memoryview(bytearray().join((header.pack(crc), records)))


def _refused(reason: str, fault: Fault = Fault.INVALID_RECORD) -> RefusedBatchError:
    return RefusedBatchError(reason, fault=fault)
