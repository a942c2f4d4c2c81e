"""JoinGroup, SyncGroup, Heartbeat and LeaveGroup of the classic protocol.

Converts between protocol messages and the state machine. A waiting request is a future that is
cancelled with the client's connection. Source: KafkaApis, GroupCoordinatorService (Kafka 4.1).
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Final, TypeVar

from sparklog.kafka.api_errors import name_error
from sparklog.kafka.apis import Served
from sparklog.kafka.broker import Broker
from sparklog.kafka.groups.classic_members import (
    NO_MEMBER,
    JoinRequest,
    JoinResponse,
    LeavingMember,
    SyncRequest,
    SyncResponse,
)
from sparklog.kafka.groups.coordinator import Coordinator
from sparklog.kafka.messages import Api, ErrorCode, Request, Response

T = TypeVar("T")
_REASON_CHARS_MAX: Final = 255


class Membership:
    """Handles requests of members. Used on the event loop's thread."""

    def __init__(self, broker: Broker, coordinator: Coordinator) -> None:
        self._broker, self._coordinator = broker, coordinator

    def apis(self) -> dict[Api, Served]:
        return {
            Api.JOIN_GROUP: Served((0, 9), self.join),
            Api.SYNC_GROUP: Served((0, 5), self.sync),
            Api.HEARTBEAT: Served((0, 4), self.heartbeat),
            Api.LEAVE_GROUP: Served((0, 5), self.leave),
        }

    async def join(self, request: Request) -> Response:
        """Answer JoinGroup when the group's next generation starts."""
        join_request = join_request_of(request)
        error = name_error(join_request.group) or await self._coordinator.check()
        if not error and join_request.group not in self._coordinator.classic.groups:
            error = await self._coordinator.check_not_query(join_request.group)
            # Again: the lease may have been lost during the read of the group.
            error = error or await self._coordinator.check()
        if not error and join_request.group in self._coordinator.modern.groups:
            error = ErrorCode.inconsistent_group_protocol
        if error:
            refused = JoinResponse(error=error, member_id=join_request.member_id)
            return joined_response(refused, request)
        answer: asyncio.Future[JoinResponse] = self._broker.loop.create_future()
        self._coordinator.classic.join(join_request, _set_result_of(answer))
        return joined_response(await answer, request)

    async def sync(self, request: Request) -> Response:
        """Answer SyncGroup when the leader has assigned."""
        body = request.body
        error = name_error(body.group_id) or await self._coordinator.check()
        if error:
            return {"error_code": error, "assignment": b""}
        answer: asyncio.Future[SyncResponse] = self._broker.loop.create_future()
        sync_request = SyncRequest(
            group=body.group_id,
            generation=body.generation_id,
            member_id=body.member_id,
            instance_id=getattr(body, "group_instance_id", None),
            protocol_type=getattr(body, "protocol_type", None),
            protocol_name=getattr(body, "protocol_name", None),
            assignments=tuple((a.member_id, bytes(a.assignment)) for a in body.assignments),
        )
        # Clients send both from version 5 on, so that a member with another protocol is noticed.
        protocol = sync_request.protocol_type, sync_request.protocol_name
        if request.version >= 5 and None in protocol:
            error = ErrorCode.inconsistent_group_protocol  # KIP-559
            return {"error_code": error, "assignment": b""}
        self._coordinator.classic.sync(sync_request, _set_result_of(answer))
        synced = await answer
        return {
            "error_code": synced.error,
            "protocol_type": synced.protocol_type,
            "protocol_name": synced.protocol_name,
            "assignment": synced.assignment,
        }

    def heartbeat(self, request: Request) -> Response | Awaitable[Response]:
        """Answer Heartbeat.

        Synchronous if possible, because idle consumers send mostly heartbeats.
        """
        if self._coordinator.is_here:
            return self._heartbeat(request)
        return self._find_and_heartbeat(request)

    async def _find_and_heartbeat(self, request: Request) -> Response:
        error = await self._coordinator.check()
        return {"error_code": error} if error else self._heartbeat(request)

    def _heartbeat(self, request: Request) -> Response:
        body = request.body
        instance_id = getattr(body, "group_instance_id", None)
        error = name_error(body.group_id) or self._coordinator.classic.heartbeat(
            body.group_id, body.member_id, instance_id, body.generation_id
        )
        return {"error_code": error}

    async def leave(self, request: Request) -> Response:
        """Answer LeaveGroup for a single member, or from version 3 on for several."""
        body = request.body
        error = name_error(body.group_id) or await self._coordinator.check()
        if request.version < 3:
            leaving = [LeavingMember(member_id=body.member_id)]
        else:
            leaving = [
                LeavingMember(
                    member_id=each.member_id,
                    instance_id=each.group_instance_id,
                    reason=_reason(each),
                )
                for each in body.members
            ]
        if error:
            return {"error_code": error, "members": []}
        error, errors = self._coordinator.classic.leave(body.group_id, leaving)
        if request.version < 3:
            return {"error_code": error or errors[0]}
        return {
            "error_code": error,
            "members": [
                {
                    "member_id": each.member_id,
                    "group_instance_id": each.instance_id,
                    "error_code": code,
                }
                for each, code in zip(leaving, errors, strict=True)
            ],
        }


def join_request_of(request: Request) -> JoinRequest:
    """Return the content of a JoinGroup request. Source: JoinGroupRequest."""
    body, connection = request.body, request.connection
    return JoinRequest(
        group=body.group_id,
        protocol_type=body.protocol_type,
        protocols=tuple((each.name, bytes(each.metadata)) for each in body.protocols),
        session_timeout_ms=body.session_timeout,
        # Version 0 has the same timeout for both.
        rebalance_timeout_ms=getattr(body, "rebalance_timeout", body.session_timeout),
        member_id=body.member_id,
        instance_id=getattr(body, "group_instance_id", None),
        client_id=request.client_id or "",
        client_host=f"/{connection.host}",
        reason=_reason(body),
        needs_member_id=request.version >= 4,
        may_skip=request.version >= 9,
    )


def joined_response(joined: JoinResponse, request: Request) -> Response:
    """Return the response to JoinGroup. Before version 7 a missing protocol is "" (KIP-559)."""
    name = joined.protocol_name
    return {
        "error_code": joined.error,
        "generation_id": joined.generation,
        "protocol_type": joined.protocol_type,
        "protocol_name": name if request.version >= 7 else name or "",
        "leader": joined.leader,
        "skip_assignment": joined.skip_assignment,
        "member_id": joined.member_id or NO_MEMBER,
        "members": [
            {"member_id": member_id, "group_instance_id": instance_id, "metadata": metadata}
            for member_id, instance_id, metadata in joined.members
        ],
    }


def _reason(body: Any) -> str:
    reason = getattr(body, "reason", None)
    return reason[:_REASON_CHARS_MAX] if reason else "not provided"


def _set_result_of(answer: "asyncio.Future[T]") -> Callable[[T], None]:
    """Return a function that sets a future's result, unless the future is done."""

    def errors(value: T) -> None:
        if not answer.done():
            answer.set_result(value)

    return errors
