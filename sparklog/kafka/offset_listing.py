"""ListOffsets and OffsetForLeaderEpoch: start, end and time offsets of partitions.

The start and end of a partition are answered from memory, without disk or store access, because
Spark's connector requests them in every poll. Timestamps need a lookup, in the pool.
Source: ReplicaManager.fetchOffset, Partition.fetchOffsetForTimestamp (Kafka 4.1).
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from sparklog.common import TopicPartition
from sparklog.errors import SparklogError
from sparklog.format.checkpoint_files import Epochs
from sparklog.kafka.api_errors import error_code
from sparklog.kafka.apis import Served
from sparklog.kafka.broker import Broker
from sparklog.kafka.messages import Api, ErrorCode, Request, Response
from sparklog.kafka.partition_cache import PartitionCache, epoch_at, newest
from sparklog.kafka.partitions import known_partition
from sparklog.log.log import view_of
from sparklog.log.partition_reader import PartitionReader
from sparklog.log.positions import EARLIEST, EARLIEST_LOCAL, LARGEST, LATEST, LATEST_TIERED
from sparklog.log.read_retry import retry_on_stale_read
from sparklog.storage.leader_epochs import end_offset_for
from sparklog.storage.view import Offsets, TopicInfo

SINCE_VERSION: Final = {LATEST: 1, EARLIEST: 1, LARGEST: 7, EARLIEST_LOCAL: 8, LATEST_TIERED: 9}
"""The version of ListOffsets that introduced each special timestamp."""
READ_COMMITTED: Final = 1
_NONE: Final = (-1, -1, -1)
_Answer = tuple[int, int, int]
"""(timestamp in ms, offset, leader epoch); -1 if unknown."""


def apis(broker: Broker) -> dict[Api, Served]:
    """Return the handlers of ListOffsets and OffsetForLeaderEpoch."""
    listing = OffsetListing(broker)
    return {
        Api.LIST_OFFSETS: Served((1, 10), listing.list_offsets),
        Api.OFFSET_FOR_LEADER_EPOCH: Served((2, 4), listing.offset_for_leader_epoch),
    }


@dataclass(frozen=True, slots=True)
class _RequestedPartition:
    """A partition in a ListOffsets or OffsetForLeaderEpoch request.

    `value` is the timestamp (ListOffsets) or the leader epoch (OffsetForLeaderEpoch) whose offset
    the client requests.
    """

    key: TopicPartition
    value: int
    current_epoch: int


class OffsetListing:
    """Handles ListOffsets and OffsetForLeaderEpoch."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._partition_cache: PartitionCache = broker.partition_cache

    async def list_offsets(self, request: Request) -> Response:
        """Answer ListOffsets."""
        body, version = request.body, request.version
        asked = [
            _RequestedPartition(
                TopicPartition(topic.name, each.partition_index),
                each.timestamp,
                getattr(each, "current_leader_epoch", -1),
            )
            for topic in body.topics
            for each in topic.partitions
        ]
        committed = getattr(body, "isolation_level", 0) == READ_COMMITTED
        times = Counter(each.key for each in asked)
        answers: dict[TopicPartition, _Answer | ErrorCode] = {}
        for each in asked:
            if times[each.key] > 1:
                answers[each.key] = ErrorCode.invalid_request
            elif each.value < 0 and version < SINCE_VERSION.get(each.value, version + 1):
                answers[each.key] = ErrorCode.unsupported_version
        rest = [each for each in asked if each.key not in answers]
        look = partial(self._offset, committed=committed)
        answers |= await self._answers(rest, look, partial(self._known_offset, committed=committed))
        return {"topics": _by_topic(asked, answers, "name", _listed)}

    async def offset_for_leader_epoch(self, request: Request) -> Response:
        """Answer OffsetForLeaderEpoch. Source: Partition.lastOffsetForLeaderEpoch."""
        asked = [
            _RequestedPartition(
                TopicPartition(topic.topic, each.partition),
                each.leader_epoch,
                each.current_leader_epoch,
            )
            for topic in request.body.topics
            for each in topic.partitions
        ]
        answers = await self._answers(asked, self._epoch_end, self._known_epoch_end)
        return {"topics": _by_topic(asked, answers, "topic", _epoch_ended)}

    # --- event loop's thread
    # ------------------------------------------------------------------------

    async def _answers(
        self,
        asked: Sequence[_RequestedPartition],
        look: Callable[[_RequestedPartition, Offsets], _Answer],
        known: Callable[[_RequestedPartition, Offsets, Epochs], _Answer | None],
    ) -> dict[TopicPartition, _Answer | ErrorCode]:
        partitions = self._broker.partitions
        try:
            topics = await partitions.topics()
            if not all(known_partition(topics, each.key) for each in asked):
                topics = await partitions.topics(max_age_ms=view_of(self._broker.log).poll_ms)
            there = [each for each in asked if known_partition(topics, each.key)]
            fresh_ms = 2 * view_of(self._broker.log).poll_ms
            spans = await partitions.spans([each.key for each in there], max_age_ms=fresh_ms)
        except Exception as error:  # noqa: BLE001 - the client receives an error code
            return dict.fromkeys((each.key for each in asked), error_code(error))
        answers: dict[TopicPartition, _Answer | ErrorCode] = {
            each.key: _missing(topics, each.key) for each in asked
        }
        rest = []
        for each in there:
            if each.key not in spans or each.key.partition in topics[each.key.topic].offline:
                continue
            span = spans[each.key]
            epochs = self._partition_cache.known_epochs(each.key, span)
            is_current = epochs is not None and each.current_epoch in (-1, newest(epochs))
            found = known(each, span, epochs) if epochs is not None and is_current else None
            if found is None:
                rest.append(each)
            else:
                answers[each.key] = found
        if rest:
            answers |= await self._broker.run(self._read_offsets, rest, spans, look)
        return answers

    def _known_offset(
        self, asked: _RequestedPartition, span: Offsets, epochs: Epochs, *, committed: bool
    ) -> _Answer | None:
        """Return the start or end of a partition from memory, or None for other timestamps."""
        if asked.value == EARLIEST:
            return -1, span[0], epoch_at(epochs[:1], span[0])
        if asked.value != LATEST:
            return None
        end = self._partition_cache.known_stable_offset(asked.key, span) if committed else span[1]
        return None if end is None else (-1, end, newest(epochs))

    @staticmethod
    def _known_epoch_end(asked: _RequestedPartition, span: Offsets, epochs: Epochs) -> _Answer:
        epoch, end = end_offset_for(epochs, asked.value, span[1])
        return -1, end, epoch

    # --- pool
    # ---------------------------------------------------------------------------------------

    def _read_offsets(
        self,
        asked: Iterable[_RequestedPartition],
        spans: Mapping[TopicPartition, Offsets],
        look: Callable[[_RequestedPartition, Offsets], _Answer],
    ) -> dict[TopicPartition, _Answer | ErrorCode]:
        found: dict[TopicPartition, _Answer | ErrorCode] = {}
        for each in asked:
            span = spans[each.key]
            try:
                wrong = self._partition_cache.epoch_error(each.key, span, each.current_epoch)
                found[each.key] = wrong or look(each, span)
            except (SparklogError, FileNotFoundError) as error:
                found[each.key] = error_code(error)
        return found

    def _offset(self, asked: _RequestedPartition, span: Offsets, *, committed: bool) -> _Answer:
        view, key = view_of(self._broker.log), asked.key
        start, end = span
        epochs = self._partition_cache.epochs(key, span)
        if committed:
            end = self._partition_cache.stable_offset(key, span)
        known = self._known_offset(asked, span, epochs, committed=committed)
        if known is not None:
            return known
        ask = partial(_special, timestamp=asked.value, start=start, end=end)
        found = retry_on_stale_read(view, *key, start, end, ask)
        if found is None:
            return _NONE
        timestamp, offset = found
        return timestamp, offset, epoch_at(epochs, offset)

    def _epoch_end(self, asked: _RequestedPartition, span: Offsets) -> _Answer:
        return self._known_epoch_end(asked, span, self._partition_cache.epochs(asked.key, span))


def _special(
    reader: PartitionReader, *, timestamp: int, start: int, end: int
) -> tuple[int, int] | None:
    """Return (timestamp, offset) of a timestamp or special timestamp, if there is an offset."""
    if timestamp == EARLIEST_LOCAL:
        local = reader.segments.first_local_base()
        return None if local is None else (-1, min(max(start, local), end))
    if timestamp == LATEST_TIERED:
        remote = reader.segments.remote_end()
        return (-1, remote - 1) if remote is not None and remote > start else None
    if timestamp == LARGEST:
        found = reader.offset_of_max_timestamp(start, end)
    else:
        found = reader.offset_for_time(timestamp, start, end)
    return None if found is None else (found[1], found[0])


def _missing(topics: Mapping[str, TopicInfo], key: TopicPartition) -> ErrorCode:
    """Return the error code of a partition that cannot be looked up."""
    if known_partition(topics, key) and key.partition in topics[key.topic].offline:
        return ErrorCode.kafka_storage_error
    return ErrorCode.unknown_topic_or_partition


def _by_topic(
    asked: Iterable[_RequestedPartition],
    answers: Mapping[TopicPartition, _Answer | ErrorCode],
    name: str,
    answer: Any,
) -> list[dict[str, Any]]:
    topics: dict[str, list[dict[str, Any]]] = {}
    for each in asked:
        found = answers[each.key]
        code, values = (found, _NONE) if isinstance(found, ErrorCode) else (ErrorCode.none, found)
        topics.setdefault(each.key.topic, []).append(answer(each.key.partition, code, *values))
    return [{name: topic, "partitions": found} for topic, found in topics.items()]


def _listed(
    partition: int, code: ErrorCode, timestamp: int, offset: int, epoch: int
) -> dict[str, Any]:
    return {
        "partition_index": partition, "error_code": code,
        "timestamp": timestamp, "offset": offset, "leader_epoch": epoch,
    }  # fmt: skip


def _epoch_ended(
    partition: int, code: ErrorCode, _: int, offset: int, epoch: int
) -> dict[str, Any]:
    return {
        "partition": partition, "error_code": code, "leader_epoch": epoch, "end_offset": offset,
    }  # fmt: skip
