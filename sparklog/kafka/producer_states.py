"""DescribeProducers, ListTransactions and DescribeTransactions.

A log that a broker wrote may contain transactions, even open transactions; DescribeProducers shows
them. Their coordinator stayed with the broker, so the transaction APIs (kafka-transactions) return
none.
Source: ReplicaManager.activeProducerState, TransactionCoordinator (Kafka 4.1).
"""

from collections.abc import Iterable
from typing import Any

from sparklog.common import TopicPartition
from sparklog.kafka.api_errors import REQUEST_ERRORS, code_and_message
from sparklog.kafka.apis import Served
from sparklog.kafka.broker import Broker
from sparklog.kafka.messages import Api, ErrorCode, Request, Response
from sparklog.log.log import Log, view_of
from sparklog.log.partition_reader import reader_of
from sparklog.log.producer_state import EXPIRATION_MS
from sparklog.log.producer_state_loading import load_producer_state

Answer = dict[str, Any]
_STATES = frozenset(
    {
        "Empty", "Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort",
        "Dead", "PrepareEpochFence",
    }
)  # fmt: skip


def apis(broker: Broker) -> dict[Api, Served]:
    """Return the handlers of the producer and transaction APIs."""

    async def describe(request: Request) -> Response:
        topics = [(topic.name, list(topic.partition_indexes)) for topic in request.body.topics]
        return {"topics": await broker.run(described, broker.log, topics, broker.clock())}

    def transactions(request: Request) -> Response:
        unknown = [each for each in request.body.state_filters if each not in _STATES]
        return {
            "error_code": ErrorCode.none,
            "unknown_state_filters": unknown,
            "transaction_states": [],
        }

    def transaction(request: Request) -> Response:
        code = ErrorCode.transactional_id_not_found
        ids = request.body.transactional_ids
        return {"transaction_states": [{"transactional_id": i, "error_code": code} for i in ids]}

    return {
        Api.DESCRIBE_PRODUCERS: Served((0, 0), describe),
        Api.LIST_TRANSACTIONS: Served((0, 2), transactions),
        Api.DESCRIBE_TRANSACTIONS: Served((0, 0), transaction),
    }


def described(
    log: Log, topics: Iterable[tuple[str, Iterable[int]]], now_ms: int
) -> list[Answer]:
    """Return the unexpired producers of partitions, with their open transactions.

    Blocks. Cost: the batch headers after the newest producer snapshot of each partition.
    """
    return [
        {"name": name, "partitions": [_partition(log, TopicPartition(name, p), now_ms) for p in ps]}
        for name, ps in topics
    ]


def _partition(log: Log, key: TopicPartition, now_ms: int) -> Answer:
    try:
        start, end = view_of(log).spans([key])[key]
        state = load_producer_state(
            reader_of(view_of(log), *key).segments, end, log_start=start, now=now_ms,
            expiration_ms=EXPIRATION_MS,
        )  # fmt: skip
    except REQUEST_ERRORS as error:
        code, message = code_and_message(error)
        return {"partition_index": key.partition, "error_code": code, "error_message": message}
    producers = [
        {
            "producer_id": entry.producer_id,
            "producer_epoch": entry.producer_epoch,
            "last_sequence": entry.last_sequence,
            "last_timestamp": entry.timestamp,
            "coordinator_epoch": entry.coordinator_epoch,
            "current_txn_start_offset": entry.current_txn_first_offset,
        }
        for entry in state.entries()
    ]
    return {
        "partition_index": key.partition, "error_code": ErrorCode.none, "error_message": None,
        "active_producers": producers,
    }  # fmt: skip
