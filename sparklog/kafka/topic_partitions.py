"""DescribeTopicPartitions: descriptions of topics in pages (kafka-topics --describe).

Source: DescribeTopicPartitionsRequestHandler, KRaftMetadataCache.describeTopicResponse (Kafka 4.1),
KIP-966.
"""

from collections.abc import Mapping
from typing import Any, Final

from sparklog.errors import InvalidRequestError
from sparklog.format.names import check_topic
from sparklog.kafka.api_errors import REQUEST_ERRORS, ApiError, code_and_message
from sparklog.kafka.apis import Served
from sparklog.kafka.broker import Broker
from sparklog.kafka.messages import Api, ErrorCode, Request, Response
from sparklog.kafka.metadata import NOT_ASKED, newest_epochs, partition_error, topic_fields
from sparklog.storage.view import TopicInfo

PARTITIONS_MAX: Final = 2000
"""Maximum partitions per response. Source: max.request.partition.size.limit."""
Answer = dict[str, Any]


def apis(broker: Broker) -> dict[Api, Served]:
    """Return the handler of DescribeTopicPartitions."""

    async def handle(request: Request) -> Response:
        body = request.body
        try:
            topics = await broker.partitions.topics(max_age_ms=0)
            return await broker.run(_page, broker, body, topics)
        except REQUEST_ERRORS as error:
            code = code_and_message(error)[0]
            return {"topics": [_refused(topic.name, code) for topic in body.topics]}

    return {Api.DESCRIBE_TOPIC_PARTITIONS: Served((0, 0), handle)}


def _page(broker: Broker, body: Any, topics: Mapping[str, TopicInfo]) -> Response:
    """Return the partitions of topics from the cursor on, and the cursor of the next page."""
    # At least one partition per response: a client with a limit of 0 would ask for ever.
    left = max(min(PARTITIONS_MAX, body.response_partition_limit), 1)
    answers: list[Answer] = []
    for name, first in _from_cursor(body, topics):
        if left == 0:
            return {"topics": answers, "next_cursor": _cursor(name, 0)}
        if name not in topics:
            answers.append(_refused(name, _why_unknown(name)))
            continue
        info = topics[name]
        partitions = [p for p in sorted(info.dirs) if p >= first]
        answers.append(_topic(broker, info, partitions[:left]))
        if len(partitions) > left:
            return {"topics": answers, "next_cursor": _cursor(name, partitions[left])}
        left -= len(partitions)
    return {"topics": answers, "next_cursor": None}


def _from_cursor(body: Any, topics: Mapping[str, TopicInfo]) -> list[tuple[str, int]]:
    """Return (topic, first partition) of the requested topics, sorted by name.

    Raises:
        ApiError: The cursor is invalid.
    """
    asked = {topic.name for topic in body.topics} or set(topics)
    cursor = body.cursor
    if cursor is None:
        return [(name, 0) for name in sorted(asked)]
    if body.topics and cursor.topic_name not in asked:
        raise ApiError(
            ErrorCode.invalid_request,
            f"DescribeTopicPartitionsRequest topic list should contain the cursor topic: "
            f"{cursor.topic_name}",
        )
    if cursor.partition_index < 0:
        raise ApiError(
            ErrorCode.invalid_request,
            f"DescribeTopicPartitionsRequest cursor partition must be valid: "
            f"{cursor.partition_index}",
        )
    return [
        (name, cursor.partition_index if name == cursor.topic_name else 0)
        for name in sorted(asked)
        if name >= cursor.topic_name
    ]


def _cursor(name: str, partition: int) -> Answer:
    return {"topic_name": name, "partition_index": partition}


def _topic(broker: Broker, info: TopicInfo, partitions: list[int]) -> Answer:
    epochs = newest_epochs(broker, info)
    node = broker.node_id
    return {
        **topic_fields(info),
        "partitions": [
            {
                "partition_index": p,
                "error_code": partition_error(info, p),
                "leader_id": -1 if p in info.offline else node,
                "leader_epoch": epochs.get(p, 0),
                "replica_nodes": [node],
                "isr_nodes": [] if p in info.offline else [node],
                "eligible_leader_replicas": [],
                "last_known_elr": [],
                "offline_replicas": [node] if p in info.offline else [],
            }
            for p in partitions
        ],
    }


def _why_unknown(name: str) -> ErrorCode:
    try:
        check_topic(name)
    except InvalidRequestError:
        return ErrorCode.invalid_topic_exception
    return ErrorCode.unknown_topic_or_partition


def _refused(name: str, code: ErrorCode) -> Answer:
    return {
        "error_code": code,
        "name": name,
        "topic_authorized_operations": NOT_ASKED,
        "partitions": [],
    }
