"""The right that each request requires, and the error responses for users without the right.

Users have three rights for the entire log (`users.Right`), where Kafka has ACLs per resource. Any
right is sufficient for requests that only describe. Requests that are not listed here require
`admin`.
"""

from collections.abc import Callable, Iterable
from typing import Any, Final

from sparklog.kafka.messages import Api, ErrorCode, Request, Response
from sparklog.kafka.users import Right

ANY_RIGHT_APIS: Final = frozenset({
    Api.API_VERSIONS, Api.SASL_HANDSHAKE, Api.SASL_AUTHENTICATE, Api.METADATA, Api.LIST_OFFSETS,
    Api.OFFSET_FETCH, Api.FIND_COORDINATOR, Api.DESCRIBE_GROUPS, Api.LIST_GROUPS, Api.DESCRIBE_ACLS,
    Api.OFFSET_FOR_LEADER_EPOCH, Api.DESCRIBE_CONFIGS, Api.DESCRIBE_LOG_DIRS,
    Api.LIST_PARTITION_REASSIGNMENTS, Api.DESCRIBE_CLIENT_QUOTAS, Api.DESCRIBE_QUORUM,
    Api.DESCRIBE_CLUSTER, Api.DESCRIBE_PRODUCERS, Api.DESCRIBE_TRANSACTIONS, Api.LIST_TRANSACTIONS,
    Api.CONSUMER_GROUP_DESCRIBE, Api.LIST_CONFIG_RESOURCES, Api.DESCRIBE_TOPIC_PARTITIONS,
})  # fmt: skip
"""Requests for which any right is sufficient."""
UNAUTHENTICATED_APIS: Final = frozenset(
    {Api.API_VERSIONS, Api.SASL_HANDSHAKE, Api.SASL_AUTHENTICATE}
)
"""Requests that a client may send before it has authenticated. They require no right."""

_TOPIC: Final = ErrorCode.topic_authorization_failed
_GROUP: Final = ErrorCode.group_authorization_failed
_CLUSTER: Final = ErrorCode.cluster_authorization_failed


def required_right(api: Api) -> Right | None:
    """Return the right that a request requires, or None for ANY_RIGHT_APIS."""
    if api in ANY_RIGHT_APIS:
        return None
    if api in _READS:
        return Right.READ
    return Right.WRITE if api in _WRITES else Right.ADMIN


def is_allowed(api: Api, rights: frozenset[Right]) -> bool:
    """Return True if a user with these rights may send a request."""
    if api in UNAUTHENTICATED_APIS:
        return True
    wanted = required_right(api)
    return bool(rights) if wanted is None else wanted in rights


def denied_response(request: Request) -> Response | None:
    """Return Kafka's response to a request that the user is not authorized to send.

    Returns None for APIs without such a response, and for a Produce with acks=0; the connection is
    then closed.
    """
    made = _REFUSALS.get(request.api)
    return None if made is None else made(request.body)


def _topic_of(asked: Any) -> dict[str, Any]:
    """Return the fields that identify a topic, with the names of the request's version."""
    found = asked.__dict__
    return {name: found[name] for name in ("name", "topic", "topic_id") if name in found}


def _produce(body: Any) -> Response | None:
    if body.acks == 0:
        # The client reads no response; only a closed connection tells it that nothing is written.
        return None
    return {
        "responses": [
            {
                **_topic_of(topic),
                "partition_responses": [
                    {"index": p.index, "error_code": _TOPIC, "base_offset": -1}
                    for p in topic.partition_data
                ],
            }
            for topic in body.topic_data
        ]
    }


def _fetch(body: Any) -> Response:
    nothing = {
        "error_code": _TOPIC, "high_watermark": -1, "last_stable_offset": -1,
        "log_start_offset": -1, "records": b"",
    }  # fmt: skip
    return {
        "responses": [
            {
                **_topic_of(topic),
                "partitions": [
                    {"partition_index": p.partition, **nothing} for p in topic.partitions
                ],
            }
            for topic in body.topics
        ]
    }


def _offset_commit(body: Any) -> Response:
    return {
        "topics": [
            {
                **_topic_of(topic),
                "partitions": [
                    {"partition_index": p.partition_index, "error_code": _GROUP}
                    for p in topic.partitions
                ],
            }
            for topic in body.topics
        ]
    }


def _delete_records(body: Any) -> Response:
    return {
        "topics": [
            {
                **_topic_of(topic),
                "partitions": [
                    {
                        "partition_index": p.partition_index,
                        "low_watermark": -1,
                        "error_code": _TOPIC,
                    }
                    for p in topic.partitions
                ],
            }
            for topic in body.topics
        ]
    }


def _delete_topics(body: Any) -> Response:
    topics = getattr(body, "topics", None)
    asked = [{"name": name} for name in body.topic_names] if topics is None else (
        [_topic_of(topic) for topic in topics]
    )  # fmt: skip
    return {"responses": [each | {"error_code": _TOPIC} for each in asked]}


def _configs(body: Any) -> Response:
    return {
        "responses": [
            {
                "resource_type": each.resource_type,
                "resource_name": each.resource_name,
                "error_code": _TOPIC if each.resource_type == _TOPIC_RESOURCE else _CLUSTER,
            }
            for each in body.resources
        ]
    }


_TOPIC_RESOURCE: Final = 2  # ConfigResource.Type.TOPIC


def _each(
    answers: str, asked: str, key: str, name: str, code: ErrorCode
) -> Callable[[Any], Response]:
    """Return a function that refuses each element of a request's list `asked`, by its `key`."""

    def refuse(body: Any) -> Response:
        items: Iterable[Any] = getattr(body, asked)
        names = (getattr(item, key) if key else item for item in items)
        return {answers: [{name: each, "error_code": code} for each in names]}

    return refuse


def _users(body: Any) -> Response:
    names = dict.fromkeys(each.name for each in (*body.deletions, *body.upsertions))
    return {"results": [{"user": name, "error_code": _CLUSTER} for name in names]}


def _elections(body: Any) -> Response:
    asked = body.topic_partitions or ()
    return {
        "error_code": _CLUSTER,
        "replica_election_results": [
            {
                "topic": each.topic,
                "partition_result": [
                    {"partition_id": p, "error_code": _CLUSTER} for p in each.partitions
                ],
            }
            for each in asked
        ],
    }


def _all(answers: str, asked: str) -> Callable[[Any], Response]:
    """Return a function that refuses each element of the list `asked` in a request, in order."""
    return lambda body: {answers: [{"error_code": _CLUSTER} for _ in getattr(body, asked)]}


def _client_quotas(body: Any) -> Response:
    return {
        "entries": [
            {
                "error_code": _CLUSTER,
                "entity": [
                    {"entity_type": part.entity_type, "entity_name": part.entity_name}
                    for part in entry.entity
                ],
            }
            for entry in body.entries
        ]
    }


def _whole(code: ErrorCode) -> Callable[[Any], Response]:
    return lambda body: {"error_code": code}


_READS: Final[dict[Api, Callable[[Any], Response | None]]] = {
    Api.FETCH: _fetch,
    Api.JOIN_GROUP: _whole(_GROUP),
    Api.SYNC_GROUP: _whole(_GROUP),
    Api.HEARTBEAT: _whole(_GROUP),
    Api.LEAVE_GROUP: _whole(_GROUP),
    Api.CONSUMER_GROUP_HEARTBEAT: _whole(_GROUP),
    Api.OFFSET_COMMIT: _offset_commit,
}
_WRITES: Final[dict[Api, Callable[[Any], Response | None]]] = {
    Api.PRODUCE: _produce,
    Api.INIT_PRODUCER_ID: lambda body: {
        "error_code": _CLUSTER, "producer_id": -1, "producer_epoch": -1,
    },
}  # fmt: skip
_ADMINS: Final[dict[Api, Callable[[Any], Response | None]]] = {
    Api.CREATE_TOPICS: _each("topics", "topics", "name", "name", _TOPIC),
    Api.DELETE_TOPICS: _delete_topics,
    Api.DELETE_RECORDS: _delete_records,
    Api.CREATE_PARTITIONS: _each("results", "topics", "name", "name", _TOPIC),
    Api.ALTER_CONFIGS: _configs,
    Api.INCREMENTAL_ALTER_CONFIGS: _configs,
    Api.DELETE_GROUPS: _each("results", "groups_names", "", "group_id", _GROUP),
    Api.OFFSET_DELETE: _whole(_GROUP),
    Api.ELECT_LEADERS: _elections,
    Api.CREATE_ACLS: _all("results", "creations"),
    Api.DELETE_ACLS: _all("filter_results", "filters"),
    Api.ALTER_CLIENT_QUOTAS: _client_quotas,
    Api.ALTER_PARTITION_REASSIGNMENTS: _whole(_CLUSTER),
    Api.DESCRIBE_USER_SCRAM_CREDENTIALS: _whole(_CLUSTER),
    Api.ALTER_USER_SCRAM_CREDENTIALS: _users,
}
_REFUSALS: Final = _READS | _WRITES | _ADMINS
