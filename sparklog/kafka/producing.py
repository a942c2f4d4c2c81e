"""Produce and InitProducerId. Transactions are refused.

Every `acks` value uses the log's own commit; with acks=0 the request waits in the same queue but
gets no response. Several requests of a connection may be in progress. All waiting requests are
committed together (`committer`), and each batch is validated individually.
Source: KafkaApis.handleProduceRequest, ReplicaManager.appendRecords (Kafka 4.1).
"""

import secrets
from collections.abc import Awaitable, Sequence
from typing import Any, Final, NamedTuple
from uuid import UUID

from sparklog.common import TopicPartition
from sparklog.errors import (
    CommitUnknownError,
    InvalidRequestError,
    LogLockedError,
    SparklogError,
    TopicReplacedError,
)
from sparklog.format.checkpoint_files import topic_id_text
from sparklog.format.names import RESERVED
from sparklog.kafka.api_errors import ApiError, code_and_message
from sparklog.kafka.apis import Served
from sparklog.kafka.broker import Broker
from sparklog.kafka.committer import Committer, Work
from sparklog.kafka.messages import Api, ErrorCode, Request, Response, uuid_of
from sparklog.log.client_batches import ClientBatch, Fault, RefusedBatchError
from sparklog.log.log import home_of
from sparklog.log.producing import Outcome, Produced

VERSIONS: Final = (3, 13)
ADVERTISED_MIN: Final = 0
"""librdkafka compresses only for brokers that advertise version 0 (KAFKA-18659)."""
ZSTD_VERSION: Final = 7
TOPIC_ID_VERSION: Final = 13
WAIT_MS_MIN: Final = 1000
"""Minimum timeout. A request's timeout is meant for followers, so some clients send 0."""
PRODUCER_ID_MIN: Final = 1 << 62
"""The endpoints' producer ids begin here. Brokers count from 0 and never get this far."""
_NO_TRANSACTIONS: Final = "the endpoint supports no transactions: produce without transactional.id"
_FAULTS: Final = {
    Fault.CORRUPT: ErrorCode.corrupt_message,
    Fault.INVALID_RECORD: ErrorCode.invalid_record,
    Fault.INVALID_TIMESTAMP: ErrorCode.invalid_timestamp,
    Fault.UNSUPPORTED_CODEC: ErrorCode.unsupported_compression_type,
    Fault.TRANSACTIONAL: ErrorCode.transactional_id_authorization_failed,
}


def apis(broker: Broker) -> dict[Api, Served]:
    """Return the handlers of Produce and InitProducerId."""
    producing = Producing(broker)
    return {
        Api.PRODUCE: Served(VERSIONS, producing.produce, ADVERTISED_MIN),
        Api.INIT_PRODUCER_ID: Served((0, 5), producing.init_producer_id),
    }


class _Part(NamedTuple):
    """A partition of a request: its batch, or the error that refuses it."""

    number: int
    batch: ClientBatch | None
    refused: SparklogError | None


class _Topic(NamedTuple):
    name: str
    id: UUID | None
    parts: list[_Part]


class Producing:
    """Handles requests of producers. Used on the event loop's thread."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._committer: Committer | None = None
        self._names: dict[UUID, str] = {}
        if broker.is_writable:
            self._committer = Committer(
                home_of(broker.log).commits, broker.loop, broker.clock, broker.partitions.advanced
            )
            broker.at_end.append(self._committer.close)

    # --- Produce -----------------------------------------------------------------------------

    def produce(self, request: Request) -> Awaitable[Response | None] | Response | None:
        """Answer Produce. Requests of a connection are committed in order."""
        body = request.body
        refusal = self._refusal(body)
        # Not a coroutine: a request is queued before the next one of its connection is read, so
        # the batches of an idempotent producer keep their order. Only unknown ids have to wait.
        if refusal is None and request.version >= TOPIC_ID_VERSION:
            unknown = [t.topic_id for t in body.topic_data if self._name(t.topic_id) is None]
            if unknown:
                return self._look_up(request, unknown)
        return self._begin(request, refusal)

    async def _look_up(self, request: Request, ids: Sequence[UUID]) -> Response | None:
        """Look up topic ids that are not known yet, then continue."""
        self._names |= await self._broker.partitions.topic_names(ids)
        response = self._begin(request, None)
        return await response if isinstance(response, Awaitable) else response

    def _refusal(self, body: Any) -> SparklogError | None:
        """Return the error that refuses a request as a whole, or None."""
        if body.acks not in (-1, 0, 1):
            return ApiError(
                ErrorCode.invalid_required_acks, f"acks={body.acks}: acks must be -1 (all), 0 or 1"
            )
        if body.transactional_id is not None:
            return ApiError(ErrorCode.transactional_id_authorization_failed, _NO_TRANSACTIONS)
        if self._committer is None:
            return ApiError(
                ErrorCode.topic_authorization_failed,
                f"{self._broker.log.path} is open for reading, so producing is not possible",
            )
        return None

    def _begin(
        self, request: Request, refusal: SparklogError | None
    ) -> Awaitable[Response | None] | Response | None:
        topics = [self._topic(request, data, refusal) for data in request.body.topic_data]
        batches = [part.batch for topic in topics for part in topic.parts if part.batch is not None]

        def respond(outcomes: Sequence[Outcome]) -> Response | None:
            return _response(request, topics, iter(outcomes))

        if not batches or self._committer is None:
            return respond(())
        loop = self._broker.loop
        work = Work(batches, loop.create_future(), respond)
        self._validate(batches)
        self._committer.add(work)
        # As in a broker, the timeout of the request applies to acks=-1 only.
        if request.body.acks == -1:
            wait_ms = max(request.body.timeout, WAIT_MS_MIN)
            late = LogLockedError(
                f"no commit within timeout.ms={wait_ms}: another process holds the log's lock, or "
                "its disk or store is slow. The batch may still be committed"
            )
            timer = loop.call_later(wait_ms / 1000, work.give_up, late)
            work.answer.add_done_callback(lambda _: timer.cancel())
        return work.answer

    def _validate(self, batches: Sequence[ClientBatch]) -> None:
        """Validate batches as far as this takes no time, so that the committer does not have to."""
        topics, now_ms = home_of(self._broker.log).commits.state.topics, self._broker.clock()
        for batch in batches:
            topic = topics.get(batch.key.topic)
            if topic is not None and batch.is_quick:
                batch.look(topic.parsed(), now_ms)

    def _topic(self, request: Request, data: Any, refusal: SparklogError | None) -> _Topic:
        topic_id: UUID | None = getattr(data, "topic_id", None)
        name = data.name if topic_id is None else self._name(topic_id)
        if refusal is None and name is None:
            refusal = ApiError(ErrorCode.unknown_topic_id, f"there is no topic with id {topic_id}")
        if refusal is None and name in RESERVED:
            refusal = ApiError(
                ErrorCode.invalid_topic_exception, f"{name} is an internal topic: it is read-only"
            )
        zstd = request.version >= ZSTD_VERSION
        known = "" if topic_id is None else topic_id_text(topic_id.bytes)
        parts = []
        for each in data.partition_data:
            batch = None
            if refusal is None:
                key = TopicPartition(str(name), each.index)
                records = memoryview(each.records or b"")
                batch = ClientBatch(key, records, topic_id=known, zstd=zstd)
            parts.append(_Part(each.index, batch, refusal))
        return _Topic(name or "", topic_id, parts)

    def _name(self, topic_id: UUID) -> str | None:
        """Return the name of a topic by id, or None. The commit checks the id again."""
        if topic_id not in self._names and self._committer is not None:
            topics = list(home_of(self._broker.log).commits.state.topics.items())
            self._names |= {uuid_of(topic.id): name for name, topic in topics}
        return self._names.get(topic_id)

    # --- InitProducerId ----------------------------------------------------------------------

    def init_producer_id(self, request: Request) -> Response:
        """Answer InitProducerId: idempotent producers get an id, transactional producers an error.

        The id is a random number of 62 bits above all ids of brokers. Choosing the id needs no
        access to the log, and the id cannot collide with ids of other endpoints, of records copied
        from a broker, or of a broker that takes the log over. A producer that lost its state
        continues with the next epoch, which it counts itself (KIP-360).
        """
        body = request.body
        code = ErrorCode.none
        if body.transactional_id is not None:
            code = ErrorCode.transactional_id_authorization_failed
        elif (getattr(body, "producer_id", -1) < 0) != (getattr(body, "producer_epoch", -1) < 0):
            code = ErrorCode.invalid_request
        if code is not ErrorCode.none:
            return {"error_code": code, "producer_id": -1, "producer_epoch": -1}
        producer_id = PRODUCER_ID_MIN + secrets.randbelow(PRODUCER_ID_MIN)
        return {"error_code": code, "producer_id": producer_id, "producer_epoch": 0}


def _response(request: Request, topics: Sequence[_Topic], outcomes: Any) -> Response | None:
    """Return the response, or None with acks=0.

    With acks=0 a refused batch closes the connection, as in a broker, so that the client refreshes
    its metadata.
    """
    responses: list[dict[str, Any]] = []
    failed: SparklogError | None = None
    for topic in topics:
        parts = []
        for part in topic.parts:
            outcome = part.refused if part.refused is not None else next(outcomes)
            if isinstance(outcome, Produced):
                parts.append({
                    "index": part.number, "error_code": ErrorCode.none,
                    "base_offset": outcome.first, "log_append_time": outcome.append_time_ms,
                    "log_start_offset": outcome.log_start,
                })  # fmt: skip
            else:
                failed = outcome
                parts.append({"index": part.number, **_refused(outcome, request.version)})
        name = {"topic_id": topic.id} if topic.id is not None else {"name": topic.name}
        responses.append({**name, "partition_responses": parts})
    if request.body.acks != 0:
        return {"responses": responses}
    if failed is not None:
        request.connection.close(f"a batch that it produced with acks=0 is refused: {failed}")
    return None


def _refused(error: SparklogError, version: int) -> dict[str, Any]:
    records = error.records if isinstance(error, RefusedBatchError) else ()
    return {
        "error_code": _code(error, version),
        "base_offset": -1,
        "log_append_time": -1,
        "log_start_offset": -1,
        "error_message": str(error),
        "record_errors": [
            {"batch_index": number, "batch_index_error_message": why} for number, why in records
        ],
    }


def _code(error: SparklogError, version: int) -> ErrorCode:
    """Return the error code. A producer retries or refreshes its metadata according to the code."""
    if isinstance(error, RefusedBatchError):
        return _FAULTS[error.fault]
    if isinstance(error, CommitUnknownError):
        return ErrorCode.not_enough_replicas_after_append  # the batch may be committed; retriable
    if isinstance(error, TopicReplacedError):
        by_id = version >= TOPIC_ID_VERSION
        return ErrorCode.unknown_topic_id if by_id else ErrorCode.unknown_topic_or_partition
    if type(error) is InvalidRequestError:  # for example an open transaction of a broker
        return ErrorCode.invalid_record
    return code_and_message(error)[0]
