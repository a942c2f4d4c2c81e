"""The consumer protocol (KIP-848): heartbeats carry subscriptions and return assignments.

The coordinator assigns partitions. A group's epoch increases when its subscriptions or topics
change. Each epoch has a target assignment, and the members converge to it: they first revoke
partitions that belong to others, and then get partitions that others have released. A pure state
machine, like `classic_groups`.
Source: GroupMetadataManager.consumerGroupHeartbeat, CurrentAssignmentBuilder (Kafka 4.1).
"""

import base64
import logging
import uuid
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final
from uuid import UUID

import pyarrow as pa
import pyarrow.compute as pc

from sparklog.errors import SparklogError
from sparklog.kafka.groups.assignors import ASSIGNORS, Partitions
from sparklog.kafka.groups.classic_group import Budget
from sparklog.kafka.messages import ErrorCode
from sparklog.kafka.timers import Timers

Topics = Mapping[str, tuple[UUID, int]]
"""{name: (topic id, partitions)} of the log. The object is replaced only when it changes."""
JOINING, LEAVING, LEAVING_FOR_NOW = 0, -1, -2
NOTHING: Final[Partitions] = frozenset()
_MEMBER_BYTES: Final = 1024
_LOGGER: Final = logging.getLogger(__name__)


class ConsumerGroupError(SparklogError):
    """An error for a member, with Kafka's error code."""

    def __init__(self, code: ErrorCode, message: str) -> None:
        super().__init__(message)
        self.code = code


class MemberState(StrEnum):
    """A member's progress towards the target assignment."""

    STABLE = "stable"
    UNREVOKED = "unrevoked partitions"
    UNRELEASED = "unreleased partitions"


@dataclass(frozen=True, slots=True, kw_only=True)
class HeartbeatRequest:
    """A ConsumerGroupHeartbeat request.

    A field is None if it is unchanged since the member's last heartbeat.
    """

    group: str
    member_id: str
    epoch: int
    instance_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    rebalance_timeout_ms: int = -1
    topics: frozenset[str] | None = None
    regex: str | None = None
    assignor: str | None = None
    owned: Partitions | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class HeartbeatResponse:
    """The response to a heartbeat. `assigned` is None if the assignment is unchanged."""

    member_id: str
    epoch: int
    assigned: Partitions | None = None


@dataclass(slots=True)
class ConsumerMember:
    """A member: its subscription and its current assignment."""

    member_id: str
    instance_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    rebalance_timeout_ms: int = 45_000
    topics: frozenset[str] = frozenset()
    regex: str = ""
    assignor: str | None = None
    epoch: int = 0
    previous_epoch: int = 0
    state: MemberState = MemberState.STABLE
    assigned: Partitions = NOTHING
    revoking: Partitions = NOTHING

    @property
    def weight(self) -> int:
        """Memory of the member in bytes."""
        return _MEMBER_BYTES + len(self.regex) + sum(map(len, self.topics))


@dataclass(slots=True)
class ConsumerGroup:
    """A group of the consumer protocol (KIP-848).

    `target` is {member id: target assignment}, as computed at `assignment_epoch`.
    """

    group: str
    epoch: int = 0
    assignment_epoch: int = 0
    assignor: str = ""
    members: dict[str, ConsumerMember] = field(default_factory=dict)
    static_members: dict[str, str] = field(default_factory=dict)
    target: dict[str, Partitions] = field(default_factory=dict)
    read: dict[str, tuple[UUID, int]] = field(default_factory=dict)
    """The topics that the group reads, as of the last assignment."""
    seen: Topics | None = None
    matches: dict[str, frozenset[str]] = field(default_factory=dict)
    """{regular expression: matching topics}"""

    @property
    def state(self) -> str:
        """The state of the group, as Kafka's tools show it."""
        if not self.members:
            return "Empty"
        if self.epoch > self.assignment_epoch:
            return "Assigning"
        at = self.assignment_epoch
        settled = all(
            m.state is MemberState.STABLE and m.epoch == at for m in self.members.values()
        )
        return "Stable" if settled else "Reconciling"

    def topics_of(self, member: ConsumerMember) -> frozenset[str]:
        """Return the topics that a member reads, by name or by regular expression."""
        return member.topics | self.matches.get(member.regex, frozenset())

    def is_subscribed_to(self, topic: str) -> bool:
        """Return True if a member reads a topic."""
        return any(topic in self.topics_of(member) for member in self.members.values())

    def owned(self) -> set[tuple[UUID, int]]:
        """Return the partitions that members own or have not revoked yet."""
        return {p for m in self.members.values() for p in m.assigned | m.revoking}


class ConsumerGroups:
    """All groups of the consumer protocol. Not thread-safe."""

    def __init__(
        self,
        timers: Timers,
        budget: Budget,
        *,
        session_timeout_ms: int = 45_000,
        max_size: int = 2**31 - 1,
        emptied: Callable[[ConsumerGroup, frozenset[str]], None] = lambda _, __: None,
    ) -> None:
        self._timers, self._budget = timers, budget
        self._session_timeout_ms, self._max_size = session_timeout_ms, max_size
        self._emptied = emptied
        self.groups: dict[str, ConsumerGroup] = {}

    def heartbeat(self, request: HeartbeatRequest, topics: Topics) -> HeartbeatResponse:
        """Process a heartbeat and return the response.

        Raises:
            ConsumerGroupError: The request is invalid, or the member is unknown or fenced.
        """
        check(request)
        if request.epoch < JOINING:
            return self._leave(request)
        is_joining = request.epoch == JOINING
        group = self.groups.get(request.group)
        if group is None:
            if not is_joining:
                raise _unknown(request)
            group = ConsumerGroup(request.group)
        # Before the group changes: an invalid expression must not leave a member behind.
        found = matching(request.regex, topics) if request.regex else frozenset()
        member = self._member(group, request)
        self.groups[request.group] = group
        if request.regex:
            group.matches[request.regex] = found
        before = member.assigned
        has_changed = self._update_member(member, request)
        if has_changed or topics is not group.seen or group.epoch == 0:
            self._refresh_subscriptions(group, topics, bump=has_changed or group.epoch == 0)
        if group.epoch > group.assignment_epoch:
            self._assign(group)
        self._reconcile(group, member, request.owned)
        self._keep(group, member)
        said_all = request.rebalance_timeout_ms != -1 and request.owned is not None and (
            request.topics is not None or request.regex is not None
        )  # fmt: skip
        is_told = is_joining or said_all or member.assigned != before
        assigned = member.assigned if is_told else None
        return HeartbeatResponse(member_id=member.member_id, epoch=member.epoch, assigned=assigned)

    # --- members -----------------------------------------------------------------------------

    def _member(self, group: ConsumerGroup, request: HeartbeatRequest) -> ConsumerMember:
        """Return the member that sent a heartbeat; created when it joins."""
        known = group.members.get(request.member_id)
        if request.instance_id is not None:
            static_id = group.static_members.get(request.instance_id)
            if static_id is not None:
                return self._static_member(group, group.members[static_id], request)
            known = None
        if known is not None:
            _check_epoch(known, request)
            if self._budget.has(_weight(request) - known.weight):
                return known
        elif request.epoch != JOINING:
            raise _unknown(request)
        if len(group.members) >= self._max_size or not self._budget.has(_weight(request)):
            raise ConsumerGroupError(
                ErrorCode.group_max_size_reached,
                f"The consumer group has reached its maximum capacity of {self._max_size} members, "
                "or the members of all groups use all memory of group.members.max.bytes.",
            )
        member = ConsumerMember(request.member_id or new_member_id(), request.instance_id)
        group.members[member.member_id] = member
        self._budget.used += member.weight
        if request.instance_id is not None:
            group.static_members[request.instance_id] = member.member_id
        return member

    def _static_member(
        self, group: ConsumerGroup, known: ConsumerMember, request: HeartbeatRequest
    ) -> ConsumerMember:
        assert request.instance_id is not None
        if request.epoch != JOINING:
            if known.member_id != request.member_id:
                raise _fenced(request)
            _check_epoch(known, request)
            return known
        if known.epoch != LEAVING_FOR_NOW and known.member_id != request.member_id:
            raise ConsumerGroupError(
                ErrorCode.unreleased_instance_id,
                f"Static member {request.member_id} with instance id {request.instance_id} cannot "
                f"join the group because the instance id is owned by {known.member_id} member.",
            )
        # The new process of a static member inherits the assignment, so a quick restart moves no
        # partitions (KIP-848).
        old_id, known.member_id = known.member_id, request.member_id or new_member_id()
        known.epoch = known.previous_epoch = 0
        del group.members[old_id]
        group.members[known.member_id] = known
        group.static_members[request.instance_id] = known.member_id
        group.target[known.member_id] = group.target.pop(old_id, NOTHING)
        self._cancel(group, old_id)
        return known

    def _update_member(self, member: ConsumerMember, request: HeartbeatRequest) -> bool:
        """Store a member's properties; return True if its subscription changed."""
        read = member.topics, member.regex
        self._budget.used -= member.weight
        member.client_id, member.client_host = request.client_id, request.client_host
        if request.rebalance_timeout_ms != -1:
            member.rebalance_timeout_ms = request.rebalance_timeout_ms
        if request.topics is not None:
            member.topics = request.topics
        if request.regex is not None:
            member.regex = request.regex
        if request.assignor is not None:
            member.assignor = request.assignor
        self._budget.used += member.weight
        return read != (member.topics, member.regex)

    def _leave(self, request: HeartbeatRequest) -> HeartbeatResponse:
        group = self.groups.get(request.group)
        member = None if group is None else group.members.get(request.member_id)
        if group is not None and request.instance_id is not None:
            static_id = group.static_members.get(request.instance_id)
            if static_id is not None and static_id != request.member_id:
                raise _fenced(request)
        if group is None or member is None:
            raise _unknown(request)
        # A static member leaves without its partitions being reassigned until the session expires.
        if request.epoch == LEAVING_FOR_NOW:
            member.epoch, member.revoking = LEAVING_FOR_NOW, NOTHING
        else:
            self._remove(group, member)
        return HeartbeatResponse(member_id=request.member_id, epoch=request.epoch)

    def _remove(self, group: ConsumerGroup, member: ConsumerMember) -> None:
        topics = group.topics_of(member)
        self._cancel(group, member.member_id)
        group.members.pop(member.member_id, None)
        group.target.pop(member.member_id, None)
        if member.instance_id is not None:
            group.static_members.pop(member.instance_id, None)
        self._budget.used -= member.weight
        group.epoch += 1
        group.seen = None
        if not group.members:
            del self.groups[group.group]
            self._emptied(group, topics)

    # --- the target --------------------------------------------------------------------------

    def _refresh_subscriptions(self, group: ConsumerGroup, topics: Topics, *, bump: bool) -> None:
        """Update the group's topics; increase the epoch if the set of topics to read changes."""
        used = {member.regex for member in group.members.values() if member.regex}
        known = group.matches if topics is group.seen else {}
        group.matches = {r: known[r] if r in known else matching(r, topics) for r in used}
        group.seen = topics
        names = {n for member in group.members.values() for n in group.topics_of(member)}
        read = {name: topics[name] for name in sorted(names) if name in topics}
        if bump or read != group.read:
            group.read = read
            group.epoch += 1

    def _assign(self, group: ConsumerGroup) -> None:
        """Compute a new target for the group's epoch.

        Uses the assignor that most members request.
        """
        wanted = Counter(m.assignor for m in group.members.values() if m.assignor is not None)
        group.assignor = wanted.most_common(1)[0][0] if wanted else next(iter(ASSIGNORS))
        subscriptions = {
            member.member_id: frozenset(
                group.read[name][0] for name in group.topics_of(member) if name in group.read
            )
            for member in sorted(
                group.members.values(), key=lambda m: (m.instance_id or "", m.member_id)
            )
        }
        counts = dict(group.read.values())
        group.target = ASSIGNORS[group.assignor](subscriptions, counts, group.target)
        group.assignment_epoch = group.epoch
        _LOGGER.info("group %s: target of epoch %d for %d members", group.group, group.epoch,
                     len(group.members))  # fmt: skip

    def _reconcile(
        self, group: ConsumerGroup, member: ConsumerMember, owned: Partitions | None
    ) -> None:
        """Advance a member towards the target. Source: CurrentAssignmentBuilder."""
        epoch = member.epoch
        if member.state is MemberState.STABLE and epoch == group.assignment_epoch:
            return
        if member.state is MemberState.UNREVOKED:
            if owned is None or owned & member.revoking:
                return  # another member may get a partition only when this member has released it
            epoch += 1
        target = group.target.get(member.member_id, NOTHING)
        # Two steps: a member first revokes what it has to give up, and gets a partition only after
        # the owner has released the partition. So a partition never has two readers.
        kept = member.assigned & target
        revoking = member.assigned - target
        missing = target - kept
        available = missing - group.owned() if missing else NOTHING
        if revoking and (owned is None or owned & revoking):
            member.state, member.revoking, new_epoch = MemberState.UNREVOKED, revoking, epoch
            member.assigned = kept
        else:
            all_there = available == missing
            member.state = MemberState.STABLE if all_there else MemberState.UNRELEASED
            member.revoking, new_epoch = NOTHING, group.assignment_epoch
            member.assigned = kept | available
        if new_epoch != member.epoch:
            member.previous_epoch, member.epoch = member.epoch, new_epoch

    # --- sessions ----------------------------------------------------------------------------

    def _keep(self, group: ConsumerGroup, member: ConsumerMember) -> None:
        member_id, epoch = member.member_id, member.epoch

        def silent() -> None:
            _LOGGER.info("group %s: the session of %s expired", group.group, member_id)
            self._remove(group, group.members[member_id])

        def stuck() -> None:
            if group.members[member_id].epoch == epoch:
                _LOGGER.info("group %s: %s did not revoke in time", group.group, member_id)
                self._remove(group, group.members[member_id])

        self._timers.schedule(("session", group.group, member_id), self._session_timeout_ms, silent)
        key = ("revocation", group.group, member_id)
        if member.state is not MemberState.UNREVOKED:
            self._timers.cancel(key)
        elif not self._timers.is_scheduled(key):
            self._timers.schedule(key, member.rebalance_timeout_ms, stuck)

    def _cancel(self, group: ConsumerGroup, member_id: str) -> None:
        self._timers.cancel(("session", group.group, member_id))
        self._timers.cancel(("revocation", group.group, member_id))

    # --- others ------------------------------------------------------------------------------

    def check_commit(
        self, group: ConsumerGroup, member_id: str, epoch: int, version: int
    ) -> ErrorCode:
        """Return NONE if a member with this epoch may commit or fetch offsets."""
        member = group.members.get(member_id)
        if member is None:
            return ErrorCode.unknown_member_id
        if epoch == member.epoch:
            return ErrorCode.none
        return ErrorCode.stale_member_epoch if version >= 9 else ErrorCode.unsupported_version

    def resign(self) -> None:
        """Remove all groups, because another endpoint coordinates."""
        for group in self.groups.values():
            self._budget.used -= sum(member.weight for member in group.members.values())
        self.groups.clear()


def matching(regex: str, topics: Topics) -> frozenset[str]:
    """Return the topics that match a regular expression from start to end (RE2, linear time).

    Raises:
        ConsumerGroupError: The expression is invalid.
    """
    names = list(topics)
    try:
        # Without the anchors first: "a)|(b" is invalid, but would be valid between them.
        pc.match_substring_regex(pa.array([""]), regex)
        found = pc.match_substring_regex(pa.array(names, pa.string()), rf"\A(?:{regex})\z")
    except pa.ArrowInvalid as error:
        raise ConsumerGroupError(
            ErrorCode.invalid_regular_expression,
            f"SubscribedTopicRegex `{regex}` is not a valid regular expression: {error}.",
        ) from None
    return frozenset(name for name, is_in in zip(names, found.to_pylist(), strict=True) if is_in)


def check(request: HeartbeatRequest) -> None:
    """Raise ConsumerGroupError for an invalid heartbeat.

    Source: throwIfConsumerGroupHeartbeatRequestIsInvalid.
    """
    wrong = ""
    if request.epoch < LEAVING_FOR_NOW:
        wrong = f"MemberEpoch is {request.epoch}, but must be greater than or equal to -2."
    elif request.instance_id == "":
        wrong = "InstanceId can't be empty."
    elif request.epoch != JOINING and not request.member_id:
        wrong = "MemberId can't be empty."
    elif request.epoch == LEAVING_FOR_NOW and request.instance_id is None:
        wrong = "InstanceId can't be null."
    elif request.epoch == JOINING:
        if request.rebalance_timeout_ms == -1:
            wrong = "RebalanceTimeoutMs must be provided in first request."
        elif request.owned is None or request.owned:
            wrong = "TopicPartitions must be empty when (re-)joining."
        elif request.topics is None and request.regex is None:
            wrong = (
                "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when "
                "(re-)joining."
            )
    if wrong:
        raise ConsumerGroupError(ErrorCode.invalid_request, wrong)
    if request.assignor is not None and request.assignor not in ASSIGNORS:
        raise ConsumerGroupError(
            ErrorCode.unsupported_assignor,
            f"ServerAssignor {request.assignor} is not supported. Supported assignors: "
            f"{', '.join(ASSIGNORS)}.",
        )


def new_member_id() -> str:
    """Return a member id in the form of Kafka's Uuid."""
    return base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")


def _check_epoch(member: ConsumerMember, request: HeartbeatRequest) -> None:
    """Raise FENCED_MEMBER_EPOCH unless the request has the member's epoch.

    The previous epoch is accepted if the response with the new epoch was lost.
    """
    if request.epoch in (member.epoch, JOINING):
        return
    is_subset = request.owned is not None and request.owned <= member.assigned
    if request.epoch < member.epoch and request.epoch == member.previous_epoch and is_subset:
        return
    raise ConsumerGroupError(
        ErrorCode.fenced_member_epoch,
        f"The member epoch of the request ({request.epoch}) is not the member epoch that the group "
        f"coordinator knows ({member.epoch}). The member must abandon all its "
        "partitions and rejoin.",
    )


def _weight(request: HeartbeatRequest) -> int:
    return _MEMBER_BYTES + len(request.regex or "") + sum(map(len, request.topics or ()))


def _unknown(request: HeartbeatRequest) -> ConsumerGroupError:
    return ConsumerGroupError(
        ErrorCode.unknown_member_id,
        f"Member {request.member_id} is not a member of {request.group}.",
    )


def _fenced(request: HeartbeatRequest) -> ConsumerGroupError:
    return ConsumerGroupError(
        ErrorCode.fenced_instance_id,
        f"Static member {request.member_id} with instance id {request.instance_id} was fenced by "
        "another member.",
    )
