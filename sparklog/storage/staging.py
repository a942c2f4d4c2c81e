"""Staging: rows of any topics become chunks, which a commit takes in; how they are framed."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Protocol

import pyarrow as pa

from sparklog.config import TopicConfig
from sparklog.format.compression import Codec
from sparklog.storage.commits import Chunk
from sparklog.storage.view import TopicInfo

BATCH_SIZE: Final = 256 << 10
"""Bytes of records that a batch aims at, uncompressed (Kafka producer's batch.size).

By tests/benchmarks/bench_batch.py: against 16 KiB it compresses a tenth better and, with zstd,
several times faster; at 1 MiB little more is won and a look-up decodes four times as much.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Framing:
    """How records become batches. `codec` None: the topic's compression.type decides."""

    batch_size: int = BATCH_SIZE
    codec: Codec | None = None
    level: int | None = None
    producer: tuple[int, int, int] | None = None  # (id, epoch, sequence of the first record)

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
    """Takes rows of any topics; `finish` gives the chunks. Use once. No reader sees any of it."""

    def add(self, topic: TopicInfo, rows: pa.RecordBatch, *, partition: int | None = None) -> None:
        """Stage rows: columns value [, key, headers, timestamp, partition].

        A null partition leaves the row to its key, as in Kafka's connector.
        Raises: InvalidRequestError for a partition that isn't there, and for a null key where the
        topic is compacted; RecordTooLargeError; PartitionOfflineError.
        """

    def finish(self) -> Sequence[Chunk]:
        """Return all chunks, in the order in which their partitions must get them."""

    def discard(self) -> None:
        """Let go of what was staged, after a failure."""
