"""ElectLeaders and partition reassignments, for a single node.

kafka-topics --describe sends ListPartitionReassignments; kafka-leader-election and
kafka-reassign-partitions use ElectLeaders and AlterPartitionReassignments as well. Partitions
cannot move to another node, so each request is answered or refused at once.
Source: ReplicationControlManager (Kafka 4.1).
"""

from collections.abc import Iterable, Mapping
from typing import Any

from sparklog.kafka.apis import Served
from sparklog.kafka.broker import Broker
from sparklog.kafka.messages import Api, ErrorCode, Request, Response
from sparklog.storage.view import TopicInfo

Answer = dict[str, Any]
_UNCLEAN = 1


def apis(broker: Broker) -> dict[Api, Served]:
    """Return the handlers of elections and reassignments."""

    async def elect(request: Request) -> Response:
        topics = await broker.partitions.topics(max_age_ms=0)
        return elect_leaders(request.body, topics)

    async def reassign(request: Request) -> Response:
        topics = await broker.partitions.topics(max_age_ms=0)
        return reassign_partitions(request.body, topics, broker.node_id)

    def reassignments(_: Request) -> Response:
        return {"error_code": ErrorCode.none, "topics": []}

    return {
        Api.ELECT_LEADERS: Served((0, 2), elect),
        Api.ALTER_PARTITION_REASSIGNMENTS: Served((0, 1), reassign),
        Api.LIST_PARTITION_REASSIGNMENTS: Served((0, 0), reassignments),
    }


def elect_leaders(body: Any, topics: Mapping[str, TopicInfo]) -> Response:
    """Answer that the node leads every partition, because an election is never needed.

    For an offline partition, the error message explains how to give up the missing data. If the
    client asks for all partitions, only offline partitions are in the response, as in Kafka.
    """
    is_unclean = getattr(body, "election_type", 0) == _UNCLEAN
    asked: Iterable[tuple[str, Iterable[int]]]
    if body.topic_partitions is None:
        asked = [(name, sorted(info.offline)) for name, info in topics.items()]
    else:
        asked = [(each.topic, each.partitions) for each in body.topic_partitions]
    results = [
        {
            "topic": name,
            "partition_result": [_elected(name, p, topics.get(name), is_unclean) for p in wanted],
        }
        for name, wanted in asked
    ]
    return {
        "error_code": ErrorCode.none,
        "replica_election_results": [each for each in results if each["partition_result"]],
    }


def _elected(name: str, partition: int, info: TopicInfo | None, is_unclean: bool) -> Answer:
    code, message = ErrorCode.election_not_needed, "Leader election not needed for topic partition."
    if info is None or partition not in info.dirs:
        code = ErrorCode.unknown_topic_or_partition
        message = f"No such {'topic' if info is None else 'partition'} as {name}-{partition}"
    elif partition in info.offline:
        code = ErrorCode.preferred_leader_not_available
        if is_unclean:
            code = ErrorCode.eligible_leaders_not_available
        message = (
            f"{info.offline[partition]}; or give up what is missing on the log's own host, with "
            "`sparklog verify PATH --give-up`"
        )
    return {"partition_id": partition, "error_code": code, "error_message": message}


def reassign_partitions(body: Any, topics: Mapping[str, TopicInfo], node_id: int) -> Response:
    """Accept reassignments to the node itself and refuse all others."""
    return {
        "error_code": ErrorCode.none,
        "error_message": None,
        "responses": [
            {
                "name": topic.name,
                "partitions": [
                    _reassigned(topics.get(topic.name), each, node_id) for each in topic.partitions
                ],
            }
            for topic in body.topics
        ],
    }


def _reassigned(info: TopicInfo | None, asked: Any, node_id: int) -> Answer:
    code, message = ErrorCode.none, None
    if info is None or asked.partition_index not in info.dirs:
        code = ErrorCode.unknown_topic_or_partition
        message = "The partition does not exist."
    elif asked.replicas is None:
        code = ErrorCode.no_reassignment_in_progress
        message = "No partition reassignment is in progress."
    elif list(asked.replicas) != [node_id]:
        code = ErrorCode.invalid_replica_assignment
        message = (
            f"The log has one copy of each record, on its only node {node_id}, so replicas "
            f"{list(asked.replicas)} are not possible"
        )
    return {
        "partition_index": asked.partition_index, "error_code": code, "error_message": message,
    }  # fmt: skip
