"""ConsumerGroupHeartbeat and ConsumerGroupDescribe (consumer protocol, KIP-848)."""

from typing import Any, Final
from uuid import UUID

from sparklog.errors import SparklogError
from sparklog.kafka.api_errors import group_error, name_error
from sparklog.kafka.apis import Served
from sparklog.kafka.broker import Broker
from sparklog.kafka.groups.assignors import Partitions
from sparklog.kafka.groups.consumer_groups import (
    ConsumerGroup,
    ConsumerGroupError,
    HeartbeatRequest,
    Topics,
)
from sparklog.kafka.groups.coordinator import Coordinator
from sparklog.kafka.messages import Api, ErrorCode, Request, Response, uuid_of

_NOT_ASKED: Final = -(2**31)
_CONSUMER: Final = 1  # the type of a member of the consumer protocol
Answer = dict[str, Any]


class ConsumerRequests:
    """Handles requests of the consumer protocol. Used on the event loop's thread."""

    def __init__(self, broker: Broker, coordinator: Coordinator) -> None:
        self._broker, self._coordinator = broker, coordinator
        self._topics: Topics = {}

    def apis(self) -> dict[Api, Served]:
        """Return the handlers of both APIs."""
        return {
            Api.CONSUMER_GROUP_HEARTBEAT: Served((0, 1), self.heartbeat),
            Api.CONSUMER_GROUP_DESCRIBE: Served((0, 1), self.describe),
        }

    async def heartbeat(self, request: Request) -> Response:
        """Answer ConsumerGroupHeartbeat."""
        group = request.body.group_id
        modern = self._coordinator.modern
        error, message = name_error(group) or await self._coordinator.check(), ""
        if not error and group not in modern.groups:
            error = await self._coordinator.check_not_query(group)
            error = error or await self._coordinator.check()
        if not error and self._coordinator.classic.is_active(group):
            error, message = ErrorCode.group_id_not_found, f"Group {group} is not a consumer group."
        if not error:
            try:
                topics = await self._known_topics()
                told = modern.heartbeat(heartbeat_request(request), topics)
            except ConsumerGroupError as refused:
                error, message = refused.code, str(refused)
            except SparklogError as failure:
                error = group_error(group, failure)
        if error:
            return {"error_code": error, "error_message": message or None, "member_id": None}
        assigned = None if told.assigned is None else _assignment(told.assigned)
        return {
            "error_code": ErrorCode.none,
            "member_id": told.member_id,
            "member_epoch": told.epoch,
            "heartbeat_interval": self._broker.options.group_consumer_heartbeat_interval_ms,
            "assignment": assigned,
        }

    async def _known_topics(self) -> Topics:
        """Return the log's topics; the same object until they change."""
        listed = await self._broker.partitions.topics()
        found = {n: (uuid_of(info.id), info.partitions) for n, info in listed.items() if info.id}
        if found != self._topics:
            self._topics = found
        return self._topics

    async def describe(self, request: Request) -> Response:
        """Answer ConsumerGroupDescribe; GROUP_ID_NOT_FOUND for classic and unknown groups."""
        error = await self._coordinator.check()
        groups = []
        for name in request.body.group_ids:
            group = self._coordinator.modern.groups.get(name)
            if error or group is None:
                code = error or name_error(name) or ErrorCode.group_id_not_found
                message = None if error else f"Group {name} not found."
                groups.append(
                    {
                        "group_id": name, "error_code": code, "error_message": message,
                        "group_state": "", "assignor_name": "", "members": [],
                        "authorized_operations": _NOT_ASKED,
                    }
                )  # fmt: skip
            else:
                groups.append(_described(group))
        return {"groups": groups}


def heartbeat_request(request: Request) -> HeartbeatRequest:
    body = request.body
    names, owned = body.subscribed_topic_names, body.topic_partitions
    return HeartbeatRequest(
        group=body.group_id,
        member_id=body.member_id,
        epoch=body.member_epoch,
        instance_id=body.instance_id,
        client_id=request.client_id or "",
        client_host=f"/{request.connection.host}",
        rebalance_timeout_ms=body.rebalance_timeout,
        topics=None if names is None else frozenset(names),
        regex=getattr(body, "subscribed_topic_regex", None),
        assignor=body.server_assignor,
        owned=None
        if owned is None
        else frozenset((each.topic_id, p) for each in owned for p in each.partitions),
    )


def _by_topic(partitions: Partitions) -> dict[UUID, list[int]]:
    found: dict[UUID, list[int]] = {}
    for topic_id, partition in sorted(partitions):
        found.setdefault(topic_id, []).append(partition)
    return found


def _assignment(partitions: Partitions, names: dict[UUID, str] | None = None) -> Answer:
    found: list[Answer] = [
        {"topic_id": topic_id, "partitions": numbers}
        for topic_id, numbers in _by_topic(partitions).items()
    ]
    if names is not None:
        found = [each | {"topic_name": names.get(each["topic_id"], "")} for each in found]
    return {"topic_partitions": found}


def _described(group: ConsumerGroup) -> Answer:
    names = {topic_id: name for name, (topic_id, _) in group.read.items()}
    return {
        "error_code": ErrorCode.none,
        "group_id": group.group,
        "group_state": group.state,
        "group_epoch": group.epoch,
        "assignment_epoch": group.assignment_epoch,
        "assignor_name": group.assignor,
        "authorized_operations": _NOT_ASKED,
        "members": [
            {
                "member_id": member.member_id,
                "instance_id": member.instance_id,
                "rack_id": None,
                "member_epoch": member.epoch,
                "client_id": member.client_id,
                "client_host": member.client_host,
                "subscribed_topic_names": sorted(member.topics),
                "subscribed_topic_regex": member.regex or None,
                "assignment": _assignment(member.assigned, names),
                "target_assignment": _assignment(
                    group.target.get(member.member_id, frozenset()), names
                ),
                "member_type": _CONSUMER,
            }
            for member in group.members.values()
        ],
    }
