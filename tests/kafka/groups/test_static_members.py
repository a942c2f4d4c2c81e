"""Static members: an instance id outlives its process. By GroupMetadataManagerTest (KIP-345)."""

import pytest

from sparklog.clock import ManualClock
from sparklog.kafka.groups.active_groups import fingerprint_of
from sparklog.kafka.groups.classic_group import Budget, State
from sparklog.kafka.groups.consumer_groups import ConsumerGroups
from sparklog.kafka.messages import ErrorCode
from sparklog.kafka.timers import Timers
from tests.kafka.groups.members import DELAY_MS, REBALANCE_MS, SESSION_MS, Groups, one

NONE = ErrorCode.none
UNKNOWN = ErrorCode.unknown_member_id
FENCED = ErrorCode.fenced_instance_id
NO_MODERN = ConsumerGroups(Timers(ManualClock(), lambda: None), Budget(0))


@pytest.fixture
def groups() -> Groups:
    return Groups()


def test_static_member_join_as_first_member(groups: Groups) -> None:
    waiting = groups.join(instance_id="i", needs_member_id=True)
    groups.advance(DELAY_MS)
    joined = one(waiting)
    assert joined.member_id.startswith("i-")
    assert joined.members == ((joined.member_id, "i", b""),)


def test_a_static_member_that_was_restarted_goes_on_without_a_rebalance(groups: Groups) -> None:
    _, follower = groups.static_pair()
    before = fingerprint_of(groups.machine, NO_MODERN)
    again = one(groups.join(instance_id="follower"))
    assert again.error is NONE
    assert again.member_id != follower.member_id
    assert (again.generation, again.skip_assignment, again.members) == (1, False, ())
    assert groups.state is State.STABLE
    assert fingerprint_of(groups.machine, NO_MODERN) != before  # other processes are told of it
    assert one(groups.sync(again)).assignment == follower.member_id.encode()
    assert groups.heartbeat(again, instance="follower") is NONE
    assert groups.heartbeat(follower, instance="follower") is FENCED
    assert groups.heartbeat(follower) is UNKNOWN
    assert one(groups.sync(follower, instance_id="follower")).error is FENCED
    assert one(groups.join(follower.member_id, instance_id="follower")).error is FENCED


@pytest.mark.parametrize("may_skip", [True, False])
def test_static_member_rejoin_with_leader_id_and_unknown_member_id(
    groups: Groups, may_skip: bool
) -> None:
    leader, _ = groups.static_pair()
    again = one(groups.join(instance_id="leader", may_skip=may_skip))
    assert groups.state is State.STABLE
    assert groups.group.leader == again.member_id
    if may_skip:  # it knows that it leads, and that it is not to assign
        assert (again.leader, again.skip_assignment) == (again.member_id, True)
        assert len(again.members) == 2
    else:  # it is not told
        assert (again.leader, again.skip_assignment) == (leader.member_id, False)
        assert again.members == ()
    assert one(groups.sync(again)).assignment == leader.member_id.encode()


def test_get_different_static_member_id_after_each_rejoin(groups: Groups) -> None:
    groups.static_pair()
    ids = {one(groups.join(instance_id="follower")).member_id for _ in range(5)}
    assert len(ids) == 5
    assert len(groups.group.members) == 2


def test_who_restarts_is_known_by_its_new_client(groups: Groups) -> None:
    groups.static_pair()
    again = one(groups.join(instance_id="follower", client_id="new", client_host="/h"))
    member = groups.group.members[again.member_id]
    assert (member.client_id, member.client_host) == ("new", "/h")


def test_static_member_rejoin_with_known_member_id(groups: Groups) -> None:
    leader, follower = groups.static_pair()
    again = one(groups.join(follower.member_id, instance_id="follower"))
    assert (again.member_id, again.generation) == (follower.member_id, 1)
    assert groups.join(leader.member_id, instance_id="leader") == []
    assert groups.state is State.PREPARING


def test_static_member_rejoin_with_mismatched_instance_id(groups: Groups) -> None:
    leader, follower = groups.static_pair()
    assert one(groups.join(follower.member_id, instance_id="leader")).error is FENCED
    assert one(groups.join(leader.member_id, instance_id="follower")).error is FENCED
    assert one(groups.join(leader.member_id, instance_id="nobody")).error is UNKNOWN
    assert one(groups.sync(leader, member_id="other", instance_id="leader")).error is FENCED


def test_static_member_rejoin_with_change_of_protocol_with_selected_protocol_changed(
    groups: Groups,
) -> None:
    groups.static_pair(protocols=["range", "sticky"])
    assert groups.join(instance_id="follower", protocols=["sticky"]) == []
    assert groups.state is State.PREPARING


def test_static_member_rejoin_with_change_of_protocol_while_select_protocol_unchanged(
    groups: Groups,
) -> None:
    groups.static_pair(protocols=["range", "sticky"])
    again = one(groups.join(instance_id="follower", protocols=["range"]))
    assert (again.generation, again.protocol_name) == (1, "range")
    assert groups.state is State.STABLE


def test_replace_static_member_in_completing_rebalance_state_triggers_rebalance(
    groups: Groups,
) -> None:
    waiting = [groups.join(instance_id=name) for name in ("a", "b")]
    groups.advance(2 * DELAY_MS)
    first, second = (one(answers) for answers in waiting)
    syncing = groups.sync(second, instance_id="b")
    again = groups.join(instance_id="b")
    assert one(syncing).error is FENCED
    assert groups.state is State.PREPARING
    joined = groups.join(first.member_id, instance_id="a")
    assert {one(joined).generation, one(again).generation} == {2}
    groups.assigned([one(joined), one(again)])


def test_a_duplicate_that_waits_is_fenced(groups: Groups) -> None:
    leader, _ = groups.static_pair()
    groups.join()  # a third one: a rebalance begins
    assert groups.state is State.PREPARING
    first = groups.join(instance_id="follower")
    second = groups.join(instance_id="follower")
    assert one(first).error is FENCED
    assert second == []
    groups.join(leader.member_id, instance_id="leader")
    assert one(second).generation == 2
    assert groups.group.awaiting_joins == 0


def test_static_member_follower_fail_to_rejoin_before_rebalance_timeout(groups: Groups) -> None:
    """Its place is kept as long as its session is."""
    long_ms = 2 * REBALANCE_MS
    leader, follower = groups.static_pair(session_timeout_ms=long_ms)
    waiting = groups.join(leader.member_id, instance_id="leader")
    groups.advance(REBALANCE_MS)
    again = one(waiting)
    assert (again.generation, len(again.members)) == (2, 2)
    assert follower.member_id in groups.group.members


def test_static_member_leader_fail_to_rejoin_before_rebalance_timeout(groups: Groups) -> None:
    long_ms = 2 * REBALANCE_MS
    leader, follower = groups.static_pair(session_timeout_ms=long_ms)
    new = groups.join(instance_id="new", session_timeout_ms=long_ms)
    groups.advance(REBALANCE_MS)
    joined = one(new)
    assert joined.leader == joined.member_id
    everybody = {leader.member_id, follower.member_id, joined.member_id}
    assert {member_id for member_id, _, _ in joined.members} == everybody


def test_complete_join_phase_no_members_rejoined_extends_join_phase(groups: Groups) -> None:
    """Nobody came again, and all are static: it waits until their sessions end."""
    long_ms = 2 * REBALANCE_MS + SESSION_MS
    groups.static_pair(session_timeout_ms=long_ms)
    new = one(groups.join(needs_member_id=True))
    dynamic = groups.join(new.member_id)
    groups.leave(new.member_id)
    assert one(dynamic).error is UNKNOWN
    assert groups.state is State.PREPARING
    groups.advance(REBALANCE_MS)
    assert groups.state is State.PREPARING
    assert len(groups.group.members) == 2
    groups.advance(2 * REBALANCE_MS)
    assert groups.state is State.EMPTY


def test_a_static_member_that_stays_away_loses_its_place_with_its_session(groups: Groups) -> None:
    leader, follower = groups.static_pair()
    for _ in range(2):
        groups.advance(SESSION_MS // 2)
        code = groups.heartbeat(leader, instance="leader")
    assert code is ErrorCode.rebalance_in_progress
    assert groups.heartbeat(follower, instance="follower") is UNKNOWN
    assert list(groups.group.static_members) == ["leader"]


def test_heartbeats_of_who_was_replaced_end_nothing(groups: Groups) -> None:
    leader, _ = groups.static_pair()
    groups.advance(SESSION_MS - 1000)
    groups.heartbeat(leader, instance="leader")
    again = one(groups.join(instance_id="follower"))
    groups.advance(1000)  # when the old id's session would have ended
    assert groups.state is State.STABLE
    assert groups.heartbeat(again, instance="follower") is NONE
