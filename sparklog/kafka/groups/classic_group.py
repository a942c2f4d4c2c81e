"""A classic group: its state, generation, leader, members and protocol. No timers or requests.

    Empty ----> PreparingRebalance ----> CompletingRebalance ----> Stable
      ^               |      ^                    |                  |
      +---------------+      +--------------------+------------------+

Source: ClassicGroup, ClassicGroupState (Kafka 4.1).
"""

import logging
import uuid
from collections import Counter
from collections.abc import Callable, Collection
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from sparklog.kafka.groups.classic_members import (
    JoinRequest,
    JoinResponse,
    Member,
    SyncResponse,
    weight,
)
from sparklog.kafka.groups.subscriptions import PROTOCOL_TYPE, subscribed_topics
from sparklog.kafka.messages import ErrorCode

AnswerJoin = Callable[[JoinResponse], None]
AnswerSync = Callable[[SyncResponse], None]
_LOGGER: Final = logging.getLogger(__name__)


class State(StrEnum):
    """A group's state as reported to clients. Dead: the group does not exist."""

    EMPTY = "Empty"
    PREPARING = "PreparingRebalance"
    COMPLETING = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


_BEFORE: Final = {
    State.EMPTY: {State.PREPARING},
    State.PREPARING: {State.STABLE, State.COMPLETING, State.EMPTY},
    State.COMPLETING: {State.PREPARING},
    State.STABLE: {State.COMPLETING},
}
"""The states from which a group may enter another."""


@dataclass(slots=True)
class Budget:
    """Memory (bytes) of the members of all groups, limited to `limit`."""

    limit: int
    used: int = 0

    def has(self, size: int) -> bool:
        """Return True if `size` more bytes fit."""
        return self.used + size <= self.limit


class ClassicGroup:
    """A group. `members` are in the order in which they joined."""

    def __init__(self, group: str, now_ms: float, budget: Budget) -> None:
        self.group = group
        self.state = self.previous_state = State.EMPTY
        self.state_since_ms = now_ms
        self.generation = 0
        self.protocol_type: str | None = None
        self.protocol_name: str | None = None
        self.leader: str | None = None
        self.members: dict[str, Member] = {}
        self.pending_joins: set[str] = set()
        self.pending_syncs: set[str] = set()
        self.static_members: dict[str, str] = {}
        self.topics: frozenset[str] | None = None
        """The topics that the members subscribe to, or None if unknown."""
        self.was_joined = False
        """Whether a member joined during the delay before the first rebalance."""
        self._supported: Counter[str] = Counter()
        self._budget = budget
        self._awaiting_joins = 0

    def is_in(self, *states: State) -> bool:
        """Return True if the group's state is among `states`."""
        return self.state in states

    def transition(self, state: State, now_ms: float) -> None:
        """Enter another state."""
        assert self.state in _BEFORE[state], f"{self.group}: {self.state} to {state}"
        self.previous_state, self.state, self.state_since_ms = self.state, state, now_ms

    @property
    def can_rebalance(self) -> bool:
        """Whether a rebalance may begin: none is being prepared."""
        return self.state in _BEFORE[State.PREPARING]

    @property
    def has_all_joined(self) -> bool:
        """Whether every member waits for the next generation."""
        return len(self.members) == self._awaiting_joins and not self.pending_joins

    @property
    def awaiting_joins(self) -> int:
        """Number of members that wait for the next generation."""
        return self._awaiting_joins

    @property
    def rebalance_timeout_ms(self) -> int:
        """Time that the slowest member may take to join again."""
        return max((m.rebalance_timeout_ms for m in self.members.values()), default=0)

    def not_yet_joined(self) -> list[Member]:
        """Return the members that do not wait for the next generation."""
        return [member for member in self.members.values() if member.answer_join is None]

    # --- members -----------------------------------------------------------------------------

    def new_member_id(self, client_id: str, instance_id: str | None) -> str:
        """Return an id for a member. Source: ClassicGroup.generateMemberId."""
        return f"{client_id if instance_id is None else instance_id}-{uuid.uuid4()}"

    def add(self, member: Member) -> None:
        """Add a member with the member's waiting request."""
        assert member.member_id not in self.members
        if member.instance_id is not None:
            assert member.instance_id not in self.static_members
            self.static_members[member.instance_id] = member.member_id
        if not self.members:  # the first member decides
            self.protocol_type = member.protocol_type
        self.leader = self.leader or member.member_id
        self._forget_pending(member.member_id)
        self._put(member)

    def _put(self, member: Member) -> None:
        self.members[member.member_id] = member
        self._supported.update(set(member.protocol_names))
        self._awaiting_joins += member.answer_join is not None
        self._budget.used += self._weight(member)

    def _take(self, member_id: str) -> Member | None:
        member = self.members.pop(member_id, None)
        if member is not None:
            self._drop_protocols(member)
            self._awaiting_joins -= member.answer_join is not None
            self._budget.used -= self._weight(member)
        return member

    def _weight(self, member: Member) -> int:
        own = weight(member.member_id, member.client_id, member.protocols)
        return own + len(member.assignment)

    def _drop_protocols(self, member: Member) -> None:
        self._supported.subtract(set(member.protocol_names))
        self._supported = +self._supported  # drops protocols without members

    def update(self, member: Member, request: JoinRequest) -> None:
        """Update a member that joins again, except for the waiting request."""
        self._drop_protocols(member)
        self._budget.used -= self._weight(member)
        member.protocols = request.protocols
        member.rebalance_timeout_ms = request.rebalance_timeout_ms
        member.session_timeout_ms = request.session_timeout_ms
        self._supported.update(set(member.protocol_names))
        self._budget.used += self._weight(member)

    def assign(self, member: Member, assignment: bytes) -> None:
        """Store the assignment that the leader sent for a member."""
        self._budget.used += len(assignment) - len(member.assignment)
        member.assignment = assignment

    def remove(self, member_id: str) -> None:
        """Remove a member or a pending member id, and choose another leader if necessary."""
        member = self._take(member_id)
        if member is not None and member.instance_id is not None:
            self.static_members.pop(member.instance_id, None)
        if self.leader == member_id:
            self.leader = next(iter(self.members), None)
        self._forget_pending(member_id)
        self.pending_syncs.discard(member_id)

    def add_pending(self, member_id: str) -> None:
        """Record an id with which a new member has to join (KIP-394)."""
        self.pending_joins.add(member_id)
        self._budget.used += weight(member_id, "", ())

    def _forget_pending(self, member_id: str) -> None:
        if member_id in self.pending_joins:
            self.pending_joins.remove(member_id)
            self._budget.used -= weight(member_id, "", ())

    def replace_static(self, instance_id: str, old_id: str, new_id: str) -> Member:
        """Replace a static member's id.

        The holder of the old id is fenced, as are its waiting requests.
        """
        member = self._take(old_id)
        assert member is not None
        self._awaiting_joins += member.answer_join is not None  # it is answered below
        fenced = ErrorCode.fenced_instance_id
        self.answer_join(member, JoinResponse(error=fenced, member_id=old_id))
        self.answer_sync(member, SyncResponse(error=fenced))
        self.pending_syncs.discard(old_id)
        new = Member(
            new_id, member.instance_id, member.client_id, member.client_host,
            member.rebalance_timeout_ms, member.session_timeout_ms, member.protocol_type,
            member.protocols, member.assignment,
        )  # fmt: skip
        self._put(new)
        if self.leader == old_id:
            self.leader = new_id
        self.static_members[instance_id] = new_id
        return new

    def elect_joined_leader(self) -> bool:
        """Make a waiting member the leader if the leader does not wait.

        Return False if none waits.
        """
        if self.leader is None:
            return False
        # A leader that did not join again would never send assignments for the new generation.
        if self.members[self.leader].answer_join is None:
            joined = (m for m in self.members.values() if m.answer_join is not None)
            found = next(joined, None)
            if found is None:
                return False
            _LOGGER.info("%s: %s leads instead of %s, which did not join again in time",
                         self.group, found.member_id, self.leader)  # fmt: skip
            self.leader = found.member_id
        return True

    def check_member(self, member_id: str, instance_id: str | None) -> ErrorCode:
        """Return NONE for a member, else UNKNOWN_MEMBER_ID or FENCED_INSTANCE_ID."""
        if instance_id is not None:
            known = self.static_members.get(instance_id)
            if known is None:
                return ErrorCode.unknown_member_id
            if known != member_id:
                return ErrorCode.fenced_instance_id
        return ErrorCode.none if member_id in self.members else ErrorCode.unknown_member_id

    # --- protocols ---------------------------------------------------------------------------

    def supports(self, protocol_type: str, protocols: Collection[str]) -> bool:
        """Return True if a member with these protocols may join."""
        # An empty group still has its last protocol type, which its next first member replaces.
        if self.state is State.EMPTY:
            return bool(protocol_type) and bool(protocols)
        member_count = len(self.members)
        return self.protocol_type == protocol_type and any(
            self._supported[name] == member_count for name in protocols
        )

    def select_protocol(self) -> str:
        """Return the most preferred protocol that all members support."""
        assert self.members
        member_count = len(self.members)
        candidates = {name for name, count in self._supported.items() if count == member_count}
        votes = Counter(member.vote(candidates) for member in self.members.values())
        return votes.most_common(1)[0][0]

    def begin_generation(self, now_ms: float) -> None:
        """Begin the next generation; without members the group becomes Empty."""
        self.generation += 1
        self.pending_syncs.clear()
        self.protocol_name = self.select_protocol() if self.members else None
        self.topics = self.subscribed_topics()
        self.transition(State.COMPLETING if self.members else State.EMPTY, now_ms)

    def subscribed_topics(self) -> frozenset[str] | None:
        """Return the topics that members subscribe to, if all subscriptions are readable."""
        if self.protocol_type != PROTOCOL_TYPE:
            return None
        found: set[str] = set()
        for member in self.members.values():
            topics = subscribed_topics(member.metadata(self.protocol_name))
            # One unreadable subscription makes the set incomplete. Offsets of a topic that the
            # member reads could be deleted then, so the group counts as reading every topic.
            if topics is None:
                return None
            found |= topics
        return frozenset(found)

    def is_subscribed_to(self, topic: str) -> bool:
        """Return True if members read a topic, or might do so."""
        if self.topics is None:
            return self.protocol_type == PROTOCOL_TYPE
        return topic in self.topics

    def described_members(self) -> tuple[tuple[str, str | None, bytes], ...]:
        """Return the description of all members that the leader receives."""
        name = self.protocol_name
        return tuple((m.member_id, m.instance_id, m.metadata(name)) for m in self.members.values())

    # --- waiting requests ------------------------------------------------------------------------

    def await_join(self, member: Member, answer: AnswerJoin) -> None:
        """Delay a member's request until the next generation; answer an earlier request."""
        self.answer_join(
            member, JoinResponse(error=ErrorCode.rebalance_in_progress, member_id=member.member_id)
        )
        self._awaiting_joins += 1
        member.answer_join = answer

    def await_sync(self, member: Member, answer: AnswerSync) -> None:
        """Delay a member's request until the leader has assigned; answer an earlier request."""
        self.answer_sync(member, SyncResponse(error=ErrorCode.rebalance_in_progress))
        member.answer_sync = answer

    def answer_join(self, member: Member, joined: JoinResponse) -> bool:
        """Answer a member's waiting request, if any."""
        answer, member.answer_join = member.answer_join, None
        if answer is None:
            return False
        self._awaiting_joins -= 1
        answer(joined)
        return True

    def answer_sync(self, member: Member, synced: SyncResponse) -> bool:
        """Answer a member's waiting request, if any."""
        answer, member.answer_sync = member.answer_sync, None
        if answer is None:
            return False
        answer(synced)
        return True
