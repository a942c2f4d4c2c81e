"""FindCoordinator, DescribeGroups, ListGroups and DeleteGroups.

A group has members or has committed offsets: Python readers, Kafka clients and streaming queries. A
query appears as a stable group with a single member, its host, that is assigned the partitions
which it reads. Tools therefore show its lag and refuse to reset it.
"""

from collections.abc import Mapping
from typing import Any, Final

from sparklog.errors import SparklogError
from sparklog.kafka.api_errors import group_error, name_error
from sparklog.kafka.apis import Served
from sparklog.kafka.broker import Broker
from sparklog.kafka.client import Client
from sparklog.kafka.groups.classic_group import ClassicGroup, State
from sparklog.kafka.groups.coordinator import Coordinator
from sparklog.kafka.groups.subscriptions import PROTOCOL_TYPE, assignment, subscription
from sparklog.kafka.messages import Api, ErrorCode, Request, Response
from sparklog.storage.groups import GROUP, Reader

_GROUP, _TRANSACTION = 0, 1
_NOT_ASKED: Final = -(2**31)
_NO_TRANSACTIONS: Final = (
    "sparklog has no transactions for Kafka clients: leave transactional.id out; an idempotent "
    "producer (enable.idempotence) works, and a Spark query commits each micro-batch as a whole"
)
_NO_SHARE_GROUPS: Final = "sparklog has no share groups: use a consumer group"
_QUERYS_PROTOCOL: Final = "streaming query"
Answer = dict[str, Any]


class GroupAdmin:
    """Handles requests about groups. Used on the event loop's thread."""

    def __init__(self, broker: Broker, coordinator: Coordinator) -> None:
        self._broker, self._coordinator = broker, coordinator
        self._classic, self._offsets = coordinator.classic, coordinator.offsets

    def apis(self) -> dict[Api, Served]:
        return {
            Api.FIND_COORDINATOR: Served((0, 6), self.find_coordinator),
            Api.DESCRIBE_GROUPS: Served((0, 6), self.describe),
            Api.LIST_GROUPS: Served((0, 5), self.list),
            Api.DELETE_GROUPS: Served((0, 2), self.delete),
        }

    # --- FindCoordinator ---------------------------------------------------------------------

    async def find_coordinator(self, request: Request) -> Response:
        """Answer FindCoordinator; an error for transactions and share groups."""
        body = request.body
        kind = getattr(body, "key_type", _GROUP)
        found = await self._find(kind, request.connection)
        if request.version < 4:
            return found
        return {"coordinators": [{"key": key, **found} for key in body.coordinator_keys]}

    async def _find(self, kind: int, client: Client) -> Answer:
        node = await self._coordinator.find() if kind == _GROUP else None
        if node is not None:
            address = node.host, node.port
            if self._coordinator.is_here:
                address = self._broker.address(client)
            return {
                "node_id": node.node_id, "host": address[0], "port": address[1],
                "error_code": ErrorCode.none, "error_message": "",
            }  # fmt: skip
        code, message = ErrorCode.invalid_request, _NO_SHARE_GROUPS
        if kind == _GROUP:
            code = ErrorCode.coordinator_not_available
            message = "the coordinating endpoint of this log is not known at the moment; try again"
        elif kind == _TRANSACTION:
            code = ErrorCode.transactional_id_authorization_failed
            message = _NO_TRANSACTIONS
        return {
            "node_id": -1, "host": "", "port": -1, "error_code": code, "error_message": message,
        }  # fmt: skip

    # --- DescribeGroups, ListGroups ----------------------------------------------------------

    async def describe(self, request: Request) -> Response:
        """Answer DescribeGroups."""
        error = await self._coordinator.check()
        found = []
        for group in request.body.groups:
            if error:
                found.append(_described(group, State.DEAD, code=error, state=""))
            else:
                found.append(await self._describe(group, request.version))
        return {"groups": found}

    async def _describe(self, group: str, version: int) -> Answer:
        if group in self._coordinator.modern.groups:
            return _not_found(group, version, f"Group {group} is not a classic group.")
        known = self._classic.groups.get(group)
        if known is not None and (known.members or known.state is not State.EMPTY):
            return _describe_classic(known)
        try:
            reader = None if name_error(group) else await self._offsets.reader(group)
        except SparklogError as error:
            return _described(group, State.DEAD, code=group_error(group, error), state="")
        if reader is not None and reader.kind != GROUP:
            return _describe_query(reader)
        if known is not None or reader is not None:
            kind = known.protocol_type if known is not None else None
            return _described(group, State.EMPTY, protocol_type=kind or "")
        return _not_found(group, version, f"Group {group} not found.")

    async def list(self, request: Request) -> Response:
        """Answer ListGroups for the requested states and types."""
        error = await self._coordinator.check()
        readers: Mapping[str, Reader] = {}
        if not error:
            try:
                readers = await self._offsets.readers()
            except SparklogError as failure:
                error = group_error("*", failure)
        if error:
            return {"error_code": error, "groups": []}
        body = request.body
        states = {state.lower() for state in getattr(body, "states_filter", ())}
        types = {kind.lower() for kind in getattr(body, "types_filter", ())}
        found = [_listed(group, State.EMPTY) for group in readers]
        found = [
            _listed(name, State.STABLE, PROTOCOL_TYPE) if readers[name].kind != GROUP else listed
            for name, listed in zip(readers, found, strict=True)
        ]
        by_name = {listed["group_id"]: listed for listed in found}
        for group in self._classic.groups.values():
            by_name[group.group] = _listed(group.group, group.state, group.protocol_type or "")
        for each in self._coordinator.modern.groups.values():
            kind = {"group_state": each.state, "group_type": "Consumer"}
            by_name[each.group] = _listed(each.group, State.STABLE, PROTOCOL_TYPE) | kind
        return {
            "error_code": ErrorCode.none,
            "groups": [
                listed
                for _, listed in sorted(by_name.items())
                if (not states or listed["group_state"].lower() in states)
                and (not types or listed["group_type"].lower() in types)
            ],
        }

    # --- DeleteGroups ------------------------------------------------------------------------

    async def delete(self, request: Request) -> Response:
        """Answer DeleteGroups for groups without members that are not queries."""
        error = await self._coordinator.check()
        names = dict.fromkeys(request.body.groups_names)
        results = [
            {"group_id": group, "error_code": error or await self._delete(group)} for group in names
        ]
        return {"results": results}

    async def _delete(self, group: str) -> ErrorCode:
        if name_error(group):
            return ErrorCode.invalid_group_id
        if self._coordinator.is_active(group):
            return ErrorCode.non_empty_group
        try:
            if await self._offsets.is_query(group):
                return ErrorCode.non_empty_group
            was_there = await self._offsets.delete(group)
        except SparklogError as error:
            return group_error(group, error)
        # A group that had members, but never committed, exists only in memory.
        was_there = was_there or group in self._classic.groups
        self._classic.forget_group(group)
        return ErrorCode.none if was_there else ErrorCode.group_id_not_found


def _not_found(group: str, version: int, message: str) -> Answer:
    """Return the response for a missing group; an error from version 6 on (KIP-1043)."""
    answer = _described(group, State.DEAD)
    if version >= 6:
        answer |= {"error_code": ErrorCode.group_id_not_found, "error_message": message}
    return answer


def _listed(group: str, state: State, protocol_type: str = "") -> Answer:
    return {
        "group_id": group, "protocol_type": protocol_type, "group_state": str(state),
        "group_type": "Classic",
    }  # fmt: skip


def _described(
    group: str,
    found: State,
    *,
    code: ErrorCode = ErrorCode.none,
    state: str | None = None,
    protocol_type: str = "",
    protocol: str = "",
    members: tuple[Answer, ...] = (),
) -> Answer:
    return {
        "error_code": code,
        "group_id": group,
        "group_state": str(found) if state is None else state,
        "protocol_type": protocol_type,
        "protocol_data": protocol,
        "members": list(members),
        "authorized_operations": _NOT_ASKED,
    }


def _describe_classic(group: ClassicGroup) -> Answer:
    """Describe a classic group. Its members' metadata is included only in the state Stable."""
    is_stable = group.state is State.STABLE
    members = tuple(
        {
            "member_id": member.member_id,
            "group_instance_id": member.instance_id,
            "client_id": member.client_id,
            "client_host": member.client_host,
            "member_metadata": member.metadata(group.protocol_name) if is_stable else b"",
            "member_assignment": member.assignment,
        }
        for member in group.members.values()
    )
    return _described(
        group.group, group.state,
        protocol_type=group.protocol_type or "",
        protocol=(group.protocol_name or "") if is_stable else "",
        members=members,
    )  # fmt: skip


def _describe_query(reader: Reader) -> Answer:
    """Describe a streaming query as a group with a single member."""
    owned: dict[str, list[int]] = {}
    for topic, partition in reader.offsets:
        owned.setdefault(topic, []).append(partition)
    member = {
        "member_id": f"{_QUERYS_PROTOCOL} {reader.group}",
        "group_instance_id": None,
        "client_id": reader.app,
        "client_host": f"/{reader.host}",
        "member_metadata": subscription(owned),
        "member_assignment": assignment(owned),
    }
    return _described(
        reader.group, State.STABLE, protocol_type=PROTOCOL_TYPE, protocol=_QUERYS_PROTOCOL,
        members=(member,),
    )  # fmt: skip
