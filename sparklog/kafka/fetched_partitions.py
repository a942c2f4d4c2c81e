"""The partitions of a Fetch request, and reading them. Batches are returned unchanged.

Source: ReplicaManager.readFromLog, Partition.readRecords (Kafka 4.1).
"""

import logging
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Final
from uuid import UUID

from sparklog.common import TopicPartition
from sparklog.errors import (
    DataCorruptionError,
    PartitionOfflineError,
    TopicReplacedError,
    UnknownTopicError,
)
from sparklog.kafka.api_errors import error_code
from sparklog.kafka.messages import ErrorCode
from sparklog.kafka.partition_cache import PartitionCache
from sparklog.log.aborted_transactions import AbortedTxn
from sparklog.log.partition_reader import Allocate, ReadBudget
from sparklog.log.raw_batches import read_batches
from sparklog.log.read_retry import PartitionRead, check_topic_id
from sparklog.log.verified_batches import FileRange, VerifiedBatches
from sparklog.storage.leader_epochs import UNDEFINED, end_offset_for
from sparklog.storage.view import Offsets, View

_LOGGER: Final = logging.getLogger("sparklog.kafka")
_DAMAGES_MAX: Final = 1000
_NOWHERE: Final = -1, -1
_NO_TOPIC: Final = UUID(int=0)


@dataclass(slots=True, eq=False)
class FetchedPartition:
    """A partition of a Fetch request, and the data that was read so far.

    Attributes:
        topic: The topic's name in the request, "" if the request has topic ids.
        topic_uuid: The topic's id in the request, or None if the request has names.
        partition: The partition's number.
        offset: The offset at which the client wants to read.
        bytes_max: The client's limit of bytes for this partition.
        current_epoch: The leader epoch that the client considers current, -1 if not sent.
        last_epoch: The leader epoch of the client's last record, -1 if not sent.
        key: The partition by name, None until it is resolved.
        topic_id: The topic's id in the log, None until the partition is resolved.
        error: The error code of the response.
        span: The log start offset and the high watermark.
        stable_offset: The last stable offset for read_committed, otherwise -1.
        diverging: The leader epoch and its end offset, from which the client's history diverges.
        parts: The record batches for the response.
        size_bytes: The size of `parts`.
        aborted: The aborted transactions that `parts` contains.
        next_offset: The offset after `parts`.
    """

    topic: str
    topic_uuid: UUID | None
    partition: int
    offset: int
    bytes_max: int
    current_epoch: int = -1
    last_epoch: int = -1
    key: TopicPartition | None = None
    topic_id: str | None = None
    error: ErrorCode = ErrorCode.none
    span: Offsets = _NOWHERE
    stable_offset: int = -1
    diverging: tuple[int, int] | None = None  # leader epoch, its end offset
    parts: list[memoryview | FileRange] = field(default_factory=list)
    size_bytes: int = 0
    aborted: list[AbortedTxn] = field(default_factory=list)
    next_offset: int = -1


def partitions_of(body: Any) -> list[FetchedPartition]:
    """Return the partitions of a Fetch request in order."""
    return [
        FetchedPartition(
            getattr(topic, "topic", ""),
            None if hasattr(topic, "topic") else topic.topic_id or _NO_TOPIC,
            each.partition,
            each.fetch_offset,
            max(each.partition_max_bytes, 0),
            getattr(each, "current_leader_epoch", -1),
            getattr(each, "last_fetched_epoch", -1),
            next_offset=each.fetch_offset,
        )
        for topic in body.topics
        for each in topic.partitions
    ]


@dataclass(frozen=True, slots=True)
class RequestRead:
    """How all partitions of a Fetch request are read.

    Attributes:
        committed: The client's isolation level is read_committed.
        incarnation: The incarnation of the view when the partitions' spans were read.
        allocate: Provides the buffers into which files are read.
        sends_files: Data may be returned as file ranges, which are sent without being read.
    """

    committed: bool
    incarnation: int
    allocate: Allocate
    sends_files: bool


class FetchReader:
    """Reads partitions for Fetch requests. Shared by the pool's threads."""

    def __init__(self, view: View, partition_cache: PartitionCache) -> None:
        self._view, self._partition_cache = view, partition_cache
        self._verified = VerifiedBatches()
        self._damages: set[tuple[str, int | None]] = set()

    def is_at_end(self, fetched: FetchedPartition, *, committed: bool) -> bool:
        """Return True if the caches show that a partition has neither new records nor an error.

        The stable offset for the response is set in that case. False may also mean that a cache has
        no entry, so that the partition has to be read.
        """
        assert fetched.key is not None
        span = fetched.span
        # Comparing two histories may need epochs that are not in memory, so `read` does it.
        if fetched.last_epoch >= 0:
            return False
        if fetched.current_epoch >= 0:
            epochs = self._partition_cache.known_epochs(fetched.key, span)
            if epochs is None or fetched.current_epoch != (epochs[-1][0] if epochs else 0):
                return False
        end: int | None = span[1]
        if committed:
            end = self._partition_cache.known_stable_offset(fetched.key, span)
        offset = fetched.next_offset
        if end is None or not end <= offset <= span[1] or offset < span[0]:
            return False
        fetched.stable_offset = end if committed else -1
        return True

    def read(
        self,
        wanted: Iterable[FetchedPartition],
        request: RequestRead,
        bytes_max: int,
        at_least_one: bool,
    ) -> int:
        """Read up to `bytes_max` bytes in the order of the request; return the bytes read.

        `at_least_one`: the first batch of the request is returned whatever its size. All other
        batches obey the partition limits. Errors are set only on partitions without records.
        """
        size = 0
        for fetched in wanted:
            budget = ReadBudget(
                max(min(fetched.bytes_max - fetched.size_bytes, bytes_max - size), 0),
                at_least_one=at_least_one and not size,
            )
            held = fetched.size_bytes
            try:
                self._read_one(fetched, request, budget)
            except Exception as error:  # noqa: BLE001 - the client receives an error code
                # Records that were read are returned. The error recurs in the client's next Fetch.
                if not fetched.size_bytes:
                    fetched.error = self._code(error, fetched)
            size += fetched.size_bytes - held
        return size

    def _read_one(
        self, fetched: FetchedPartition, request: RequestRead, budget: ReadBudget
    ) -> None:
        key, span, committed = fetched.key, fetched.span, request.committed
        assert key is not None
        # Before the offset is judged, as in Partition.readRecords: a client with an old epoch has
        # to refresh its metadata, and must not take its offset for out of range.
        wrong = self._partition_cache.epoch_error(key, span, fetched.current_epoch)
        if wrong is not None:
            fetched.error = wrong
            return
        if not span[0] <= fetched.next_offset <= span[1]:
            # The cached high watermark may be older than the client's last one.
            span = fetched.span = self._view.spans([key])[key]
        if fetched.last_epoch >= 0 and self._diverges(fetched, key, span):
            return
        # A topic that was created again under the same name has other offsets: say that the topic
        # is unknown, so that the client doesn't reset its position.
        if not span[0] <= fetched.next_offset <= span[1]:
            check_topic_id(self._view, *key, fetched.topic_id)
            fetched.error = ErrorCode.offset_out_of_range
            return
        end = self._partition_cache.stable_offset(key, span) if committed else span[1]
        fetched.stable_offset = end if committed else -1
        if fetched.next_offset >= end or not (budget.left_bytes or budget.at_least_one):
            return
        read = PartitionRead(
            self._view, key.topic, key.partition, fetched.next_offset, end,
            "read_committed" if committed else "read_uncommitted", fetched.topic_id,
            request.incarnation,
        )  # fmt: skip
        verified = self._verified if request.sends_files else None
        batches = read_batches(read, budget, allocate=request.allocate, verified=verified)
        if batches.file_range is not None:
            fetched.parts.append(batches.file_range)
        fetched.parts += batches.parts
        fetched.size_bytes += batches.size_bytes
        fetched.next_offset = max(batches.next_offset, fetched.next_offset)
        # Two reads for a response may touch the same transaction, which is listed once.
        fetched.aborted += [txn for txn in batches.aborted if txn not in fetched.aborted]

    def _diverges(self, fetched: FetchedPartition, key: TopicPartition, span: Offsets) -> bool:
        """Return True if the client's history diverges from the log's (KIP-595)."""
        epochs = self._partition_cache.epochs(key, span)
        epoch, end = end_offset_for(epochs, fetched.last_epoch, span[1])
        # As in Partition.readRecords, a client below the log start is out of range even if its
        # history diverges: the log can't tell where.
        if (epoch, end) == UNDEFINED or fetched.offset < span[0]:
            fetched.error = ErrorCode.offset_out_of_range
            return True
        if epoch < fetched.last_epoch or end < fetched.offset:
            fetched.diverging = epoch, end
            return True
        return False

    def _code(self, error: Exception, fetched: FetchedPartition) -> ErrorCode:
        """Return the client's error code. Damage is logged once per position."""
        if isinstance(error, DataCorruptionError):
            if (error.path, error.position) not in self._damages:
                if len(self._damages) < _DAMAGES_MAX:
                    self._damages.add((error.path, error.position))
                _LOGGER.error("%s-%d can't be served: %s", fetched.topic, fetched.partition, error)
            if isinstance(error, PartitionOfflineError):
                return ErrorCode.kafka_storage_error
            return ErrorCode.corrupt_message
        if isinstance(error, TopicReplacedError | UnknownTopicError):
            by_id = fetched.topic_uuid is not None
            return ErrorCode.unknown_topic_id if by_id else ErrorCode.unknown_topic_or_partition
        code = error_code(error)
        if code is ErrorCode.unknown_server_error:
            _LOGGER.error("%s-%d can't be served", fetched.topic, fetched.partition, exc_info=error)
        return code
