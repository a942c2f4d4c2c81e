"""The classic group protocol: members join, their leader assigns, heartbeats extend sessions.

A pure state machine: requests are method calls, responses are callbacks, time comes from a clock,
and no call blocks. All responses of a generation are sent by the call that completes it.
Source: GroupMetadataManager.classicGroupJoin and the methods it calls (Kafka 4.1), method by
method.
"""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from sparklog.kafka.groups.classic_group import (
    AnswerJoin,
    AnswerSync,
    Budget,
    ClassicGroup,
    State,
)
from sparklog.kafka.groups.classic_members import (
    NO_MEMBER,
    JoinRequest,
    JoinResponse,
    LeavingMember,
    Member,
    SyncRequest,
    SyncResponse,
    weight,
)
from sparklog.kafka.messages import ErrorCode
from sparklog.kafka.timers import Timers

NEW_MEMBER_JOIN_TIMEOUT_MS: Final = 300_000
"""How long a member's first join may wait. It has no id yet, so it cannot send heartbeats."""
_GROUP_BYTES: Final = 1024
_LOGGER: Final = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Limits of groups. The comments name the broker configs."""

    initial_rebalance_delay_ms: int = 3_000  # group.initial.rebalance.delay.ms
    min_session_timeout_ms: int = 6_000  # group.min.session.timeout.ms
    max_session_timeout_ms: int = 1_800_000  # group.max.session.timeout.ms
    max_size: int = 2**31 - 1  # group.max.size
    members_max_bytes: int = 64 << 20  # group.members.max.bytes, of all groups


class ClassicGroups:
    """All classic groups. Not thread-safe."""

    def __init__(
        self,
        limits: Limits,
        clock: Callable[[], float],
        timers: Timers,
        *,
        emptied: Callable[[ClassicGroup, frozenset[str] | None], None] = lambda _, __: None,
    ) -> None:
        """Create the state of an endpoint that coordinates no group yet.

        Args:
            limits: The limits of groups and their members.
            clock: The current time in milliseconds.
            timers: Run the timeouts of sessions and rebalances.
            emptied: Called when a group has lost its last member, with the group and the topics
                to which it was subscribed (None if they are unknown).
        """
        self._limits, self._clock, self._timers = limits, clock, timers
        self.budget = Budget(limits.members_max_bytes)
        self._emptied = emptied
        self.groups: dict[str, ClassicGroup] = {}

    # --- JoinGroup ---------------------------------------------------------------------------

    def join(self, request: JoinRequest, answer: AnswerJoin) -> None:
        """Let a member join or rejoin. `answer` is called at once, or with the next generation."""
        error = self._refusal(request)
        group = self.groups.get(request.group)
        is_unknown = request.member_id == NO_MEMBER
        if error is ErrorCode.none and group is None and not is_unknown:
            error = ErrorCode.unknown_member_id
        if error is not ErrorCode.none:
            answer(JoinResponse(error=error, member_id=request.member_id))
            return
        size = weight(request.member_id, request.client_id, request.protocols)
        if group is None:
            group = ClassicGroup(request.group, self._clock(), self.budget)
            size += _GROUP_BYTES
        if not self._accepts(group, request.member_id):
            self._forget(group, request.member_id)
            answer(JoinResponse(error=ErrorCode.group_max_size_reached))
            self._complete_if_all_joined(group)
            return
        if not self.budget.has(size):
            _LOGGER.warning(
                "group %s: a member does not fit into group.members.max.bytes=%d of all groups",
                request.group, self.budget.limit,
            )  # fmt: skip
            answer(JoinResponse(error=ErrorCode.group_max_size_reached))
            return
        if not group.supports(request.protocol_type, [name for name, _ in request.protocols]):
            error = ErrorCode.inconsistent_group_protocol
            answer(JoinResponse(error=error, member_id=request.member_id))
            return
        if request.group not in self.groups:
            self.groups[request.group] = group
            self.budget.used += _GROUP_BYTES
        (self._join_new if is_unknown else self._join_known)(group, request, answer)

    def _refusal(self, request: JoinRequest) -> ErrorCode:
        low, high = self._limits.min_session_timeout_ms, self._limits.max_session_timeout_ms
        if not request.group:
            return ErrorCode.invalid_group_id
        if not low <= request.session_timeout_ms <= high:
            return ErrorCode.invalid_session_timeout
        return ErrorCode.none

    def _accepts(self, group: ClassicGroup, member_id: str) -> bool:
        """Return True if there is room for a member. Source: acceptJoiningMember."""
        if group.state is State.EMPTY:
            return True
        member = group.members.get(member_id)
        if group.state is State.PREPARING:
            awaits = member is not None and member.answer_join is not None
            return awaits or group.awaiting_joins < self._limits.max_size
        return member is not None or len(group.members) < self._limits.max_size

    def _join_new(self, group: ClassicGroup, request: JoinRequest, answer: AnswerJoin) -> None:
        new_id = group.new_member_id(request.client_id, request.instance_id)
        if request.instance_id is not None:
            old_id = group.static_members.get(request.instance_id)
            if old_id is None:
                self._add(group, request, new_id, answer)
            else:
                self._replace_static(group, request, (old_id, new_id), answer)
        elif request.needs_member_id:
            # KIP-394: without an id, each attempt of a client that repeats its join after a timeout
            # would leave a dead member in the group.
            group.add_pending(new_id)
            self._schedule_heartbeat(group, new_id, request.session_timeout_ms)
            answer(JoinResponse(error=ErrorCode.member_id_required, member_id=new_id))
        else:
            self._add(group, request, new_id, answer)

    def _join_known(self, group: ClassicGroup, request: JoinRequest, answer: AnswerJoin) -> None:
        member_id = request.member_id
        if member_id in group.pending_joins and request.instance_id is None:
            self._add(group, request, member_id, answer)
            return
        error = group.check_member(member_id, request.instance_id)
        if error is not ErrorCode.none or group.state is State.EMPTY:
            error = error or ErrorCode.unknown_member_id
            answer(JoinResponse(error=error, member_id=member_id))
            return
        member = group.members[member_id]
        is_same = member.protocols == request.protocols
        leads = group.leader == member_id
        if group.state is State.PREPARING or not is_same or (
            group.state is State.STABLE and leads
        ):  # fmt: skip
            group.update(member, request)
            group.await_join(member, answer)
            self._rebalance_or_complete(group, f"{member_id} joins again: {request.reason}")
            return
        # Its first response was lost, or the group is unchanged: repeat the current generation.
        answer(self._joined(group, member, leads=leads and group.state is State.COMPLETING))

    def _joined(self, group: ClassicGroup, member: Member, *, leads: bool) -> JoinResponse:
        return JoinResponse(
            member_id=member.member_id,
            generation=group.generation,
            protocol_type=group.protocol_type,
            protocol_name=group.protocol_name,
            leader=group.leader or NO_MEMBER,
            members=group.described_members() if leads else (),
        )

    def _add(
        self, group: ClassicGroup, request: JoinRequest, member_id: str, answer: AnswerJoin
    ) -> None:
        if group.state is State.PREPARING and group.previous_state is State.EMPTY:
            group.was_joined = True
        group.add(
            Member(
                member_id, request.instance_id, request.client_id, request.client_host,
                request.rebalance_timeout_ms, request.session_timeout_ms, request.protocol_type,
                request.protocols, answer_join=answer, is_new=True,
            )
        )  # fmt: skip
        self._schedule_heartbeat(group, member_id, NEW_MEMBER_JOIN_TIMEOUT_MS)
        self._rebalance_or_complete(group, f"{member_id} joins: {request.reason}")

    def _replace_static(
        self, group: ClassicGroup, request: JoinRequest, ids: tuple[str, str], answer: AnswerJoin
    ) -> None:
        """Let a restarted static member continue. Source: updateStaticMember...Join."""
        assert request.instance_id is not None
        led_by = group.leader or NO_MEMBER
        member = group.replace_static(request.instance_id, *ids)
        self._timers.cancel(self._heartbeat_key(group, ids[0]))
        member.client_id, member.client_host = request.client_id, request.client_host
        self._schedule_heartbeat(group, member.member_id, request.session_timeout_ms)
        group.update(member, request)
        group.await_join(member, answer)
        if group.state is State.COMPLETING:
            # The leader may have received the old id, and would assign no partitions to the new id.
            self._prepare(group, f"static member {request.instance_id} has a new id")
        elif group.state is not State.STABLE:
            self._complete_if_all_joined(group)
        elif group.protocol_name != group.select_protocol():
            self._rebalance_or_complete(group, f"{request.instance_id} changes the protocol")
        elif request.may_skip:
            leads = group.leader == member.member_id
            joined = self._joined(group, member, leads=leads)
            group.answer_join(member, replace(joined, skip_assignment=True) if leads else joined)
        else:  # a leader that does not know that it leads does not assign again
            joined = self._joined(group, member, leads=False)
            group.answer_join(member, replace(joined, leader=led_by))

    # --- rebalances --------------------------------------------------------------------------

    def _rebalance_or_complete(self, group: ClassicGroup, reason: str) -> None:
        if group.can_rebalance:
            self._prepare(group, reason)
        else:
            self._complete_if_all_joined(group)

    def _prepare(self, group: ClassicGroup, reason: str) -> None:
        """Begin a rebalance: members that wait for an assignment have to join again."""
        if group.state is State.COMPLETING:
            self._assign(group, {}, ErrorCode.rebalance_in_progress)
        group.pending_syncs.clear()
        self._timers.cancel(("sync", group.group))
        is_first = group.state is State.EMPTY
        group.transition(State.PREPARING, self._clock())
        _LOGGER.info(
            "group %s rebalances, after generation %d: %s", group.group, group.generation, reason
        )
        # The consumers of an application start one after the other. Without the delay, each of them
        # would cause a rebalance.
        if is_first:
            delay_ms = self._limits.initial_rebalance_delay_ms
            left_ms = max(group.rebalance_timeout_ms - delay_ms, 0)
            self._delay_first(group, delay_ms, left_ms)
        elif group.has_all_joined:
            self._complete_join(group)
        else:
            self._schedule_join(group)

    def _delay_first(self, group: ClassicGroup, delay_ms: int, left_ms: int) -> None:
        def over() -> None:
            if group.was_joined and left_ms:
                group.was_joined = False
                again_ms = min(self._limits.initial_rebalance_delay_ms, left_ms)
                self._delay_first(group, again_ms, max(left_ms - delay_ms, 0))
            else:
                self._complete_join(group)

        self._timers.schedule(("join", group.group), delay_ms, over)

    def _schedule_join(self, group: ClassicGroup) -> None:
        self._timers.schedule(
            ("join", group.group), group.rebalance_timeout_ms, lambda: self._complete_join(group)
        )

    def _complete_if_all_joined(self, group: ClassicGroup) -> None:
        is_first = group.previous_state is State.EMPTY
        if group.state is State.PREPARING and not is_first and group.has_all_joined:
            self._complete_join(group)

    def _complete_join(self, group: ClassicGroup) -> None:
        """Begin the next generation, without dynamic members that did not join again."""
        self._timers.cancel(("join", group.group))
        for member in group.not_yet_joined():
            if member.instance_id is None:
                self._forget(group, member.member_id)
        if group.members and not group.elect_joined_leader():
            # Only static members are left. Wait until they return or their sessions expire.
            self._schedule_join(group)
            return
        topics = group.topics
        group.begin_generation(self._clock())
        if group.state is State.EMPTY:
            _LOGGER.info("group %s is empty, after generation %d", group.group, group.generation)
            self._emptied(group, topics)
            return
        _LOGGER.info(
            "group %s: generation %d of %d members", group.group, group.generation,
            len(group.members),
        )  # fmt: skip
        for member in list(group.members.values()):
            joined = self._joined(group, member, leads=group.leader == member.member_id)
            group.answer_join(member, joined)
            self._schedule_heartbeat(group, member.member_id, member.session_timeout_ms)
            member.is_new = False
            group.pending_syncs.add(member.member_id)
        generation = group.generation
        self._timers.schedule(
            ("sync", group.group),
            group.rebalance_timeout_ms,
            lambda: self._expire_syncs(group, generation),
        )

    def _expire_syncs(self, group: ClassicGroup, generation: int) -> None:
        # The timer may belong to an earlier generation.
        if generation != group.generation or not group.is_in(State.COMPLETING, State.STABLE):
            return
        silent = sorted(group.pending_syncs)
        for member_id in silent:
            self._forget(group, member_id)
        if silent:
            self._prepare(group, f"no SyncGroup came from {silent}")

    # --- SyncGroup ---------------------------------------------------------------------------

    def sync(self, request: SyncRequest, answer: AnswerSync) -> None:
        """Answer a member with the member's assignment.

        `answer` is called now, or once the leader has assigned.
        """
        group = self.groups.get(request.group)
        error = self._sync_refusal(group, request)
        if group is None or error is not ErrorCode.none:
            answer(SyncResponse(error=error))
            return
        member = group.members[request.member_id]
        group.pending_syncs.discard(request.member_id)
        if not group.pending_syncs:
            self._timers.cancel(("sync", group.group))
        if group.state is State.STABLE:
            answer(
                SyncResponse(
                    protocol_type=group.protocol_type,
                    protocol_name=group.protocol_name,
                    assignment=member.assignment,
                )
            )
            return
        group.await_sync(member, answer)
        if group.leader == request.member_id:
            self._take_assignments(group, request)

    def _sync_refusal(self, group: ClassicGroup | None, request: SyncRequest) -> ErrorCode:
        if not request.group:
            return ErrorCode.invalid_group_id
        if group is None or group.state is State.EMPTY:
            return ErrorCode.unknown_member_id
        error = group.check_member(request.member_id, request.instance_id)
        if error is not ErrorCode.none:
            return error
        if request.generation != group.generation:
            return ErrorCode.illegal_generation
        said = (request.protocol_type, group.protocol_type)
        named = (request.protocol_name, group.protocol_name)
        if any(None not in pair and pair[0] != pair[1] for pair in (said, named)):
            return ErrorCode.inconsistent_group_protocol
        if group.state is State.PREPARING:
            return ErrorCode.rebalance_in_progress
        return ErrorCode.none

    def _take_assignments(self, group: ClassicGroup, request: SyncRequest) -> None:
        wanted = {m: assigned for m, assigned in request.assignments if m in group.members}
        if not self.budget.has(sum(map(len, wanted.values()))):
            _LOGGER.warning(
                "group %s: the assignments do not fit into group.members.max.bytes", group.group
            )
            self._assign(group, {}, ErrorCode.unknown_server_error)
            self._rebalance_or_complete(group, "the assignments are too large")
            return
        group.transition(State.STABLE, self._clock())
        self._assign(group, wanted, ErrorCode.none)

    def _assign(self, group: ClassicGroup, assigned: dict[str, bytes], error: ErrorCode) -> None:
        """Store assignments, and answer the waiting members."""
        is_good = error is ErrorCode.none
        for member in list(group.members.values()):
            group.assign(member, assigned.get(member.member_id, b""))
            synced = SyncResponse(
                error=error,
                protocol_type=group.protocol_type if is_good else None,
                protocol_name=group.protocol_name if is_good else None,
                assignment=member.assignment,
            )
            if group.answer_sync(member, synced):
                # Its session may have expired while it waited, which did not count.
                self._schedule_heartbeat(group, member.member_id, member.session_timeout_ms)

    # --- Heartbeat, LeaveGroup ---------------------------------------------------------------

    def heartbeat(
        self, group_id: str, member_id: str, instance_id: str | None, generation: int
    ) -> ErrorCode:
        """Extend a member's session.

        The error code makes the client rejoin, or reports that it is not a member.
        """
        if not group_id:
            return ErrorCode.invalid_group_id
        group = self.groups.get(group_id)
        if group is None:
            return ErrorCode.unknown_member_id
        error = group.check_member(member_id, instance_id)
        if error is not ErrorCode.none:
            return error
        if generation != group.generation:
            return ErrorCode.illegal_generation
        self.keep(group, member_id)
        is_preparing = group.state is State.PREPARING
        return ErrorCode.rebalance_in_progress if is_preparing else ErrorCode.none

    def keep(self, group: ClassicGroup, member_id: str) -> None:
        """Restart a member's session."""
        self._schedule_heartbeat(group, member_id, group.members[member_id].session_timeout_ms)

    def leave(
        self, group_id: str, leaving: Sequence[LeavingMember]
    ) -> tuple[ErrorCode, list[ErrorCode]]:
        """Remove members; return the error of the request, and an error per member."""
        if not group_id:
            return ErrorCode.invalid_group_id, []
        group = self.groups.get(group_id)
        if group is None:
            return ErrorCode.none, [ErrorCode.unknown_member_id] * len(leaving)
        errors = [self._leave(group, each) for each in leaving]
        if ErrorCode.none in errors:
            reason = ", ".join(f"{each.instance_id or each.member_id} left" for each in leaving)
            if group.is_in(State.STABLE, State.COMPLETING):
                self._rebalance_or_complete(group, reason)
            else:
                self._complete_if_all_joined(group)
        return ErrorCode.none, errors

    def _leave(self, group: ClassicGroup, leaving: LeavingMember) -> ErrorCode:
        member_id = leaving.member_id
        if member_id == NO_MEMBER:  # an operator removes a static member
            found = group.static_members.get(leaving.instance_id or "")
            if found is None:
                return ErrorCode.unknown_member_id
            member_id = found
        elif member_id not in group.pending_joins:
            error = group.check_member(member_id, leaving.instance_id)
            if error is not ErrorCode.none:
                return error
        self._forget(group, member_id)
        return ErrorCode.none

    def _forget(self, group: ClassicGroup, member_id: str) -> None:
        """Remove a member. If its first join is waiting, the response makes it join again."""
        self._timers.cancel(self._heartbeat_key(group, member_id))
        member = group.members.get(member_id)
        if member is not None:
            group.answer_join(member, JoinResponse(error=ErrorCode.unknown_member_id))
            group.answer_sync(member, SyncResponse(error=ErrorCode.unknown_member_id))
        group.remove(member_id)

    # --- sessions ----------------------------------------------------------------------------

    @staticmethod
    def _heartbeat_key(group: ClassicGroup, member_id: str) -> tuple[str, str, str]:
        return ("heartbeat", group.group, member_id)

    def _schedule_heartbeat(self, group: ClassicGroup, member_id: str, timeout_ms: int) -> None:
        self._timers.schedule(
            self._heartbeat_key(group, member_id),
            timeout_ms,
            lambda: self._expire_member(group, member_id),
        )

    def _expire_member(self, group: ClassicGroup, member_id: str) -> None:
        member = group.members.get(member_id)
        if member is None:
            if member_id in group.pending_joins:
                group.remove(member_id)
                if group.state is State.PREPARING and group.has_all_joined:
                    self._complete_join(group)
            return
        if member.lives_by_request:
            return
        _LOGGER.info("group %s: the session of %s expired", group.group, member_id)
        self._forget(group, member_id)
        if group.is_in(State.STABLE, State.COMPLETING):
            self._rebalance_or_complete(group, f"the session of {member_id} expired")
        elif group.state is State.PREPARING and group.has_all_joined:
            self._complete_join(group)

    # --- groups ------------------------------------------------------------------------------

    def is_active(self, group_id: str) -> bool:
        """Return True if a group has members, or some are about to join."""
        group = self.groups.get(group_id)
        return group is not None and (group.state is not State.EMPTY or bool(group.pending_joins))

    def forget_group(self, group_id: str) -> None:
        """Remove a group without members."""
        group = self.groups.get(group_id)
        if group is not None and group.state is State.EMPTY:
            for member_id in list(group.pending_joins):
                self._forget(group, member_id)
            del self.groups[group_id]
            self.budget.used -= _GROUP_BYTES

    def forget_idle(self, idle_ms: float) -> None:
        """Remove groups that had no members for this long. Their offsets are stored elsewhere."""
        before_ms = self._clock() - idle_ms
        for group in list(self.groups.values()):
            if not self.is_active(group.group) and group.state_since_ms <= before_ms:
                self.forget_group(group.group)

    def resign(self) -> None:
        """Remove all groups, because another endpoint coordinates.

        Waiting members are sent there.
        """
        for group in self.groups.values():
            for member in list(group.members.values()):
                joined = JoinResponse(error=ErrorCode.not_coordinator, member_id=member.member_id)
                group.answer_join(member, joined)
                group.answer_sync(member, SyncResponse(error=ErrorCode.not_coordinator))
        self.groups.clear()
        self.budget.used = 0
