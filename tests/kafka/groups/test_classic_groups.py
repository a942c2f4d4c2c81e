"""The classic protocol, by the behaviours of Kafka's GroupMetadataManagerTest and ClassicGroupTest.

A test has the name of Kafka's where there is one, in words.
"""

import pytest

from sparklog.kafka.groups.classic_group import State
from sparklog.kafka.groups.classic_groups import NEW_MEMBER_JOIN_TIMEOUT_MS, Limits
from sparklog.kafka.groups.classic_members import JoinResponse, LeavingMember
from sparklog.kafka.groups.subscriptions import subscription
from sparklog.kafka.messages import ErrorCode
from tests.kafka.groups.members import DELAY_MS, REBALANCE_MS, SESSION_MS, Groups, one

NONE = ErrorCode.none
UNKNOWN = ErrorCode.unknown_member_id


@pytest.fixture
def groups() -> Groups:
    return Groups()


# --- JoinGroup: who may join ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "error"),
    [
        ({"group": ""}, ErrorCode.invalid_group_id),
        ({"session_timeout_ms": 5_999}, ErrorCode.invalid_session_timeout),
        ({"session_timeout_ms": 1_800_001}, ErrorCode.invalid_session_timeout),
        ({"protocol_type": ""}, ErrorCode.inconsistent_group_protocol),
        ({"protocols": []}, ErrorCode.inconsistent_group_protocol),
        ({"member_id": "m"}, UNKNOWN),
    ],
)
def test_what_cannot_begin_a_group(groups: Groups, given: dict, error: ErrorCode) -> None:
    assert one(groups.join(**given)).error is error
    assert not groups.machine.groups
    assert groups.timers.next_ms is None


def test_the_session_timeouts_at_the_bounds_are_good(groups: Groups) -> None:
    for timeout_ms in (6_000, 1_800_000):
        assert groups.join(session_timeout_ms=timeout_ms) == []


def test_a_new_member_needs_an_id_from_version_4_on(groups: Groups) -> None:
    first = one(groups.join(needs_member_id=True))
    assert first.error is ErrorCode.member_id_required
    assert first.member_id.startswith("c-")
    assert groups.state is State.EMPTY
    assert groups.group.pending_joins == {first.member_id}
    again = groups.join(first.member_id, needs_member_id=True)
    assert not groups.group.pending_joins
    groups.advance(DELAY_MS)
    assert one(again).member_id == first.member_id
    assert one(again).leader == first.member_id


def test_heartbeat_expiration_should_remove_pending_member(groups: Groups) -> None:
    first = one(groups.join(needs_member_id=True))
    groups.advance(SESSION_MS - 1)
    assert groups.group.pending_joins
    groups.advance(1)
    assert not groups.group.pending_joins
    assert one(groups.join(first.member_id)).error is UNKNOWN


def test_join_group_inconsistent_protocol_type_and_protocol(groups: Groups) -> None:
    (member,) = groups.stable()
    wrong = ErrorCode.inconsistent_group_protocol
    assert one(groups.join(protocol_type="connect")).error is wrong
    assert one(groups.join(protocols=["roundrobin"])).error is wrong
    answer = one(groups.join(member.member_id, protocol_type="connect"))
    assert (answer.error, answer.member_id, answer.protocol_type) == (wrong, member.member_id, None)
    assert groups.state is State.STABLE


def test_an_unknown_member_of_an_existing_group(groups: Groups) -> None:
    groups.stable()
    assert one(groups.join("another")).error is UNKNOWN


# --- JoinGroup: sizes -----------------------------------------------------------------------------


@pytest.mark.parametrize("instance", [None, "i"])
def test_members_join_up_to_the_largest_size(instance: str | None) -> None:
    groups = Groups(Limits(max_size=2))
    waiting = [groups.join(instance_id=instance and f"{instance}{n}") for n in range(3)]
    assert one(waiting[2]).error is ErrorCode.group_max_size_reached
    groups.advance(2 * DELAY_MS)
    groups.assigned([one(answers) for answers in waiting[:2]])
    refused = one(groups.join(instance_id=instance and "i9"))
    assert refused.error is ErrorCode.group_max_size_reached
    assert refused.member_id == ""


def test_last_joining_members_are_kicked_out_when_rejoining_group_with_max_size() -> None:
    groups = Groups()
    members = groups.stable(4)
    groups.machine._limits = Limits(max_size=2)
    waiting = [groups.join(member.member_id, protocols=["range", "x"]) for member in members]
    errors = [one(answers).error for answers in waiting]
    assert errors == [NONE, NONE, *[ErrorCode.group_max_size_reached] * 2]
    assert [groups.heartbeat(member) for member in members[2:]] == [UNKNOWN, UNKNOWN]
    assert len(groups.group.members) == 2


def test_members_take_no_more_memory_than_is_allowed() -> None:
    groups = Groups(Limits(members_max_bytes=20_000))
    big = ("range", bytes(10_000))
    assert groups.join(protocols=[big]) == []
    assert one(groups.join(protocols=[big])).error is ErrorCode.group_max_size_reached
    assert one(groups.join(group="h", protocols=[big])).error is ErrorCode.group_max_size_reached
    assert "h" not in groups.machine.groups
    given_out = 0
    while one(groups.join(needs_member_id=True)).error is ErrorCode.member_id_required:
        given_out += 1
    assert 5 < given_out < 20
    groups.advance(NEW_MEMBER_JOIN_TIMEOUT_MS + REBALANCE_MS)
    assert groups.state is State.EMPTY
    groups.machine.forget_idle(0)
    assert groups.machine.budget.used == 0


def test_assignments_that_are_too_large_begin_a_rebalance() -> None:
    groups = Groups(Limits(members_max_bytes=20_000))
    joining = groups.join()
    groups.advance(DELAY_MS)
    member = one(joining)
    synced = groups.sync(member, [(member.member_id, bytes(30_000)), ("nobody", bytes(90_000))])
    assert one(synced).error is ErrorCode.unknown_server_error
    assert groups.state is State.PREPARING
    again = groups.join(member.member_id)
    (member,) = groups.assigned([one(again)])
    assert groups.leave(member.member_id) == [NONE]
    groups.machine.forget_idle(0)
    assert groups.machine.budget.used == 0


# --- the first rebalance --------------------------------------------------------------------------


def test_delay_initial_rebalance_by_group_initial_rebalance_delay_on_empty_group(
    groups: Groups,
) -> None:
    waiting = groups.join()
    groups.advance(DELAY_MS - 1)
    assert waiting == []
    groups.advance(1)
    joined = one(waiting)
    assert (joined.error, joined.generation, joined.protocol_name) == (NONE, 1, "range")
    assert (joined.protocol_type, joined.leader) == ("consumer", joined.member_id)
    assert joined.members == ((joined.member_id, None, b""),)


def test_reset_rebalance_delay_when_new_member_joins_group_during_initial_rebalance(
    groups: Groups,
) -> None:
    first = groups.join()
    groups.advance(DELAY_MS - 1)
    second = groups.join()
    groups.advance(2)
    assert first == []
    groups.advance(DELAY_MS - 2)
    assert first == []
    groups.advance(1)
    assert {one(first).generation, one(second).generation} == {1}
    assert one(second).members == ()


def test_delay_rebalance_up_to_rebalance_timeout(groups: Groups) -> None:
    timeout_ms = 2 * DELAY_MS
    first = groups.join(rebalance_timeout_ms=timeout_ms)
    groups.join(rebalance_timeout_ms=timeout_ms)
    groups.advance(DELAY_MS + 1)
    groups.join(rebalance_timeout_ms=timeout_ms)
    groups.advance(DELAY_MS - 2)
    assert first == []
    groups.advance(1)
    assert one(first).generation == 1
    assert len(groups.group.members) == 3


def test_new_member_join_expiration(groups: Groups) -> None:
    """A client that gave up and came again with a new id doesn't pile up."""
    (member,) = groups.stable(session_timeout_ms=NEW_MEMBER_JOIN_TIMEOUT_MS + 5_000,
                              rebalance_timeout_ms=2 * NEW_MEMBER_JOIN_TIMEOUT_MS)  # fmt: skip
    new = groups.join()
    assert groups.group.awaiting_joins == 1
    groups.advance(NEW_MEMBER_JOIN_TIMEOUT_MS)
    assert one(new).error is UNKNOWN
    assert list(groups.group.members) == [member.member_id]


# --- joining again --------------------------------------------------------------------------------


def test_join_group_from_unchanged_follower_does_not_rebalance(groups: Groups) -> None:
    leader, follower = groups.stable(2)
    again = one(groups.join(follower.member_id))
    assert (again.error, again.generation, again.members) == (NONE, 1, ())
    assert again.leader == leader.member_id
    assert groups.state is State.STABLE


def test_join_group_from_unchanged_leader_should_rebalance(groups: Groups) -> None:
    leader, follower = groups.stable(2)
    waiting = groups.join(leader.member_id)
    assert waiting == []
    assert groups.heartbeat(follower) is ErrorCode.rebalance_in_progress
    groups.join(follower.member_id)
    again = one(waiting)
    assert (again.generation, len(again.members)) == (2, 2)


def test_join_group_as_existing_member_with_updated_metadata_triggers_rebalance_in_stable_state(
    groups: Groups,
) -> None:
    _, follower = groups.stable(2)
    assert groups.join(follower.member_id, protocols=[("range", b"new")]) == []
    assert groups.state is State.PREPARING


def test_a_member_that_lost_the_answer_gets_it_again_while_the_leader_assigns(
    groups: Groups,
) -> None:
    waiting = [groups.join(), groups.join()]
    groups.advance(2 * DELAY_MS)
    leader, follower = (one(answers) for answers in waiting)
    assert one(groups.join(leader.member_id)) == leader
    assert one(groups.join(follower.member_id)) == follower
    assert groups.state is State.COMPLETING


def test_join_group_existing_member_updated_metadata_triggers_rebalance(groups: Groups) -> None:
    waiting = [groups.join(), groups.join()]
    groups.advance(2 * DELAY_MS)
    leader, follower = (one(answers) for answers in waiting)
    syncing = groups.sync(follower)
    assert groups.join(leader.member_id, protocols=[("range", b"new")]) == []
    assert one(syncing).error is ErrorCode.rebalance_in_progress
    assert groups.state is State.PREPARING


def test_join_group_existing_member_in_empty_state(groups: Groups) -> None:
    (member,) = groups.stable()
    groups.leave(member.member_id)
    assert groups.state is State.EMPTY
    assert one(groups.join(member.member_id)).error is UNKNOWN


def test_who_joins_twice_at_once_is_answered_once_in_each_request(groups: Groups) -> None:
    leader, follower = groups.stable(2)
    first = groups.join(leader.member_id)
    second = groups.join(leader.member_id)
    assert one(first).error is ErrorCode.rebalance_in_progress
    groups.join(follower.member_id)
    assert one(second).generation == 2
    assert groups.group.awaiting_joins == 0


def test_generation_id_increments_on_rebalance(groups: Groups) -> None:
    (member,) = groups.stable()
    assert one(groups.join(member.member_id)).generation == member.generation + 1


def test_a_rebalance_waits_as_long_as_its_slowest_member_may_take(groups: Groups) -> None:
    session = {"session_timeout_ms": 4 * REBALANCE_MS}
    waiting = [
        groups.join(rebalance_timeout_ms=n * REBALANCE_MS, **session) for n in (1, 2)
    ]
    groups.advance(2 * DELAY_MS)
    quick, slow = groups.assigned([one(answers) for answers in waiting])
    again = groups.join(quick.member_id, protocols=[("range", b"new")], **session)
    groups.advance(REBALANCE_MS)
    assert again == []
    assert slow.member_id in groups.group.members
    groups.advance(REBALANCE_MS)
    assert len(one(again).members) == 1


def test_a_protocol_that_only_some_members_know_is_none_to_join_with(groups: Groups) -> None:
    waiting = [groups.join(protocols=["range", "sticky"]), groups.join(protocols=["range"])]
    groups.advance(2 * DELAY_MS)
    groups.assigned([one(answers) for answers in waiting])
    refused = one(groups.join(protocols=["sticky"]))
    assert refused.error is ErrorCode.inconsistent_group_protocol


def test_rebalance_completes_before_member_joins(groups: Groups) -> None:
    """Who does not join again in time is out, and is told so when it comes."""
    leader, follower = groups.stable(2, session_timeout_ms=REBALANCE_MS + 1000)
    waiting = groups.join(leader.member_id)
    groups.advance(REBALANCE_MS - 1)
    assert groups.heartbeat(follower) is ErrorCode.rebalance_in_progress
    assert waiting == []
    groups.advance(1)
    again = one(waiting)
    assert (again.generation, len(again.members)) == (2, 1)
    assert groups.heartbeat(follower) is UNKNOWN
    assert one(groups.join(follower.member_id)).error is UNKNOWN
    groups.assigned([again])


def test_the_leader_that_does_not_come_again_is_followed_by_another(groups: Groups) -> None:
    leader, follower = groups.stable(2, session_timeout_ms=REBALANCE_MS + 1000)
    waiting = groups.join(follower.member_id, protocols=[("range", b"new")])
    groups.advance(REBALANCE_MS)
    again = one(waiting)
    assert (again.leader, len(again.members)) == (follower.member_id, 1)
    assert groups.heartbeat(leader) is UNKNOWN


def test_join_group_completion_when_pending_member_joins(groups: Groups) -> None:
    (member,) = groups.stable()
    pending = one(groups.join(needs_member_id=True))
    waiting = groups.join(member.member_id)
    assert waiting == []  # it waits for the one that has an id, and is expected
    joining = groups.join(pending.member_id)
    assert {one(waiting).generation, one(joining).generation} == {2}


def test_join_group_completion_when_pending_member_times_out(groups: Groups) -> None:
    (member,) = groups.stable()
    one(groups.join(needs_member_id=True))
    waiting = groups.join(member.member_id)
    groups.advance(SESSION_MS)
    assert one(waiting).generation == 2
    assert len(one(waiting).members) == 1


def test_second_member_partially_join_and_timeout(groups: Groups) -> None:
    (first,) = groups.stable()
    pending = one(groups.join(needs_member_id=True))
    assert groups.state is State.STABLE  # an id alone changes nothing
    groups.advance(SESSION_MS - 1)
    assert groups.heartbeat(first) is NONE
    groups.advance(1)
    assert not groups.group.pending_joins
    assert one(groups.join(pending.member_id)).error is UNKNOWN
    assert groups.state is State.STABLE


# --- protocols ------------------------------------------------------------------------------------


def test_select_protocol(groups: Groups) -> None:
    waiting = [
        groups.join(protocols=["range", "roundrobin"]),
        groups.join(protocols=["roundrobin", "range"]),
        groups.join(protocols=["roundrobin", "range", "sticky"]),
    ]
    groups.advance(REBALANCE_MS)
    assert {one(answers).protocol_name for answers in waiting} == {"roundrobin"}


def test_select_protocol_chooses_compatible_protocol(groups: Groups) -> None:
    waiting = [groups.join(protocols=["x", "range"]), groups.join(protocols=["y", "range"])]
    groups.advance(REBALANCE_MS)
    assert {one(answers).protocol_name for answers in waiting} == {"range"}


def test_a_protocol_is_free_again_when_who_lacked_it_is_gone(groups: Groups) -> None:
    members = groups.stable(2, protocols=["range", "sticky"])
    third = groups.join(protocols=["range"])
    rejoining = [groups.join(m.member_id, protocols=["range", "sticky"]) for m in members]
    (*_, last) = groups.assigned([one(answers) for answers in (*rejoining, third)])
    assert one(groups.join(protocols=["sticky"])).error is ErrorCode.inconsistent_group_protocol
    groups.leave(last.member_id)
    assert groups.join(protocols=["sticky"]) == []
    assert set(groups.group._supported) == {"range", "sticky"}


def test_subscribed_topics(groups: Groups) -> None:
    groups.stable(protocols=[("range", subscription(["a", "b"]))])
    assert groups.group.topics == {"a", "b"}
    assert groups.group.is_subscribed_to("a")
    assert not groups.group.is_subscribed_to("c")


@pytest.mark.parametrize("metadata", [b"", b"\0\0\x7f\xff\xff\xff", b"\0\0\xff\xff\xff\xff"])
def test_subscriptions_that_cannot_be_read_may_be_to_any_topic(
    groups: Groups, metadata: bytes
) -> None:
    groups.stable(protocols=[("range", metadata)])
    assert groups.group.topics is None
    assert groups.group.is_subscribed_to("c")


def test_a_group_that_is_not_of_consumers_subscribes_to_nothing(groups: Groups) -> None:
    groups.stable(protocol_type="connect")
    assert not groups.group.is_subscribed_to("c")


# --- SyncGroup ------------------------------------------------------------------------------------


@pytest.mark.parametrize("leader_first", [True, False])
def test_sync_group_of_leader_and_follower(groups: Groups, leader_first: bool) -> None:
    waiting = [groups.join(), groups.join()]
    groups.advance(2 * DELAY_MS)
    leader, follower = (one(answers) for answers in waiting)
    given = [(leader.member_id, b"a"), (follower.member_id, b"b")]
    if leader_first:
        led = groups.sync(leader, given)
        followed = groups.sync(follower)
    else:
        followed = groups.sync(follower)
        assert followed == []
        led = groups.sync(leader, given)
    assert (one(led).assignment, one(followed).assignment) == (b"a", b"b")
    assert (one(led).protocol_type, one(led).protocol_name) == ("consumer", "range")
    assert groups.state is State.STABLE
    assert one(groups.sync(follower)).assignment == b"b"  # and again


def test_sync_group_empty_assignment(groups: Groups) -> None:
    joining = groups.join()
    groups.advance(DELAY_MS)
    synced = one(groups.sync(one(joining)))
    assert (synced.error, synced.assignment) == (NONE, b"")


def test_sync_group_errors(groups: Groups) -> None:
    joined = JoinResponse(member_id="m")
    assert one(groups.sync(joined, group="")).error is ErrorCode.invalid_group_id
    assert one(groups.sync(joined)).error is UNKNOWN
    (member,) = groups.stable()
    assert one(groups.sync(member, member_id="other")).error is UNKNOWN
    assert one(groups.sync(member, generation=9)).error is ErrorCode.illegal_generation
    wrong = ErrorCode.inconsistent_group_protocol
    assert one(groups.sync(member, protocol_type="x")).error is wrong
    assert one(groups.sync(member, protocol_name="x")).error is wrong
    good = one(groups.sync(member, protocol_type="consumer", protocol_name="range"))
    assert good.error is NONE
    groups.join(needs_member_id=False)
    assert groups.state is State.PREPARING
    assert one(groups.sync(member)).error is ErrorCode.rebalance_in_progress
    groups.leave(member.member_id, *groups.group.members)
    assert groups.state is State.EMPTY
    assert one(groups.sync(member)).error is UNKNOWN


def test_leader_failure_in_sync_group(groups: Groups) -> None:
    waiting = [groups.join(), groups.join()]
    groups.advance(2 * DELAY_MS)
    leader, follower = (one(answers) for answers in waiting)
    syncing = groups.sync(follower)
    groups.advance(SESSION_MS)
    assert one(syncing).error is ErrorCode.rebalance_in_progress
    assert leader.member_id not in groups.group.members
    again = groups.join(follower.member_id)
    assert one(again).leader == follower.member_id


@pytest.mark.parametrize("silent", ["leader", "follower", "both"])
def test_rebalance_times_out_when_sync_request_is_not_received(silent: str) -> None:
    groups = Groups()
    long_ms = 2 * REBALANCE_MS
    waiting = [groups.join(session_timeout_ms=long_ms) for _ in range(2)]
    groups.advance(2 * DELAY_MS)
    joined = dict(zip(("leader", "follower"), map(one, waiting), strict=True))
    syncing = {"follower": groups.sync(joined["follower"])} if silent == "leader" else {}
    if silent == "follower":
        groups.sync(joined["leader"])
    groups.advance(REBALANCE_MS - 1)
    assert groups.heartbeat(joined["leader"]) is NONE  # it lives, and yet
    groups.advance(1)
    gone = set(joined) if silent == "both" else {silent}
    for name, member in joined.items():
        expected = UNKNOWN if name in gone else ErrorCode.rebalance_in_progress
        assert groups.heartbeat(member) is expected
    for answers in syncing.values():
        assert one(answers).error is ErrorCode.rebalance_in_progress
    assert groups.state is (State.EMPTY if silent == "both" else State.PREPARING)


def test_rebalance_does_not_time_out_when_all_sync_are_received(groups: Groups) -> None:
    members = groups.stable(2, session_timeout_ms=3 * REBALANCE_MS)
    groups.advance(2 * REBALANCE_MS)
    assert [groups.heartbeat(member) for member in members] == [NONE, NONE]
    assert groups.state is State.STABLE


# --- heartbeats -----------------------------------------------------------------------------------


def test_heartbeat_errors(groups: Groups) -> None:
    assert groups.machine.heartbeat("", "m", None, 1) is ErrorCode.invalid_group_id
    assert groups.machine.heartbeat("g", "m", None, 1) is UNKNOWN
    (member,) = groups.stable()
    assert groups.heartbeat(member) is NONE
    assert groups.heartbeat(member, generation=2) is ErrorCode.illegal_generation
    assert groups.machine.heartbeat("g", "other", None, 1) is UNKNOWN
    assert groups.heartbeat(member, instance="i") is UNKNOWN
    groups.leave(member.member_id)
    assert groups.heartbeat(member) is UNKNOWN


def test_heartbeats_while_the_leader_assigns_keep_the_session(groups: Groups) -> None:
    joining = groups.join()
    groups.advance(DELAY_MS)
    member = one(joining)
    for _ in range(5):
        groups.advance(SESSION_MS - 1)
        assert groups.heartbeat(member) is NONE
    assert groups.state is State.COMPLETING


def test_classic_group_member_session_timeout(groups: Groups) -> None:
    (member,) = groups.stable()
    groups.advance(SESSION_MS)
    assert groups.state is State.EMPTY
    assert groups.heartbeat(member) is UNKNOWN
    assert groups.emptied == [("g", None)]


def test_classic_group_member_heartbeat_maintains_session(groups: Groups) -> None:
    (member,) = groups.stable()
    for _ in range(10):
        groups.advance(SESSION_MS - 1)
        assert groups.heartbeat(member) is NONE


def test_classic_group_member_session_timeout_during_rebalance(groups: Groups) -> None:
    first, second = groups.stable(2)
    waiting = groups.join(first.member_id)
    groups.advance(SESSION_MS)  # the second one neither beats nor comes; the first one waits
    again = one(waiting)
    assert (again.generation, len(again.members)) == (2, 1)
    assert groups.heartbeat(second) is UNKNOWN


def test_heartbeat_during_rebalance_causes_rebalance_in_progress(groups: Groups) -> None:
    first, second = groups.stable(2)
    groups.join(first.member_id)
    for _ in range(3):
        groups.advance(SESSION_MS // 2)
        assert groups.heartbeat(second) is ErrorCode.rebalance_in_progress
    assert second.member_id in groups.group.members


def test_200_idle_members_cost_a_write_to_a_dictionary_each(groups: Groups) -> None:
    members = groups.stable(200)
    for _ in range(20):
        groups.advance(3_000)
        assert {groups.heartbeat(member) for member in members} == {NONE}
    assert len(groups.timers._heap) <= 2 * 200 + 1000


# --- LeaveGroup -----------------------------------------------------------------------------------


def test_leave_group_errors(groups: Groups) -> None:
    assert groups.machine.leave("", []) == (ErrorCode.invalid_group_id, [])
    assert groups.leave("m", "n") == [UNKNOWN, UNKNOWN]
    (member,) = groups.stable()
    assert groups.leave("other") == [UNKNOWN]
    assert groups.state is State.STABLE
    assert groups.leave(member.member_id) == [NONE]
    assert groups.state is State.EMPTY
    assert groups.emptied == [("g", None)]


def test_who_leaves_makes_the_others_join_again(groups: Groups) -> None:
    first, second = groups.stable(2)
    assert groups.leave(first.member_id) == [NONE]
    assert groups.heartbeat(second) is ErrorCode.rebalance_in_progress
    again = one(groups.join(second.member_id))
    assert again.leader == second.member_id


def test_who_leaves_while_it_waits_is_answered(groups: Groups) -> None:
    first, second = groups.stable(2)
    waiting = groups.join(first.member_id)
    groups.leave(first.member_id)
    assert one(waiting).error is UNKNOWN
    assert one(groups.join(second.member_id)).generation == 2


def test_pending_members_leave_group(groups: Groups) -> None:
    (member,) = groups.stable()
    pending = one(groups.join(needs_member_id=True))
    waiting = groups.join(member.member_id)
    assert groups.leave(pending.member_id) == [NONE]
    assert one(waiting).generation == 2
    assert groups.leave(pending.member_id) == [UNKNOWN]


def test_joined_member_pending_member_batch_leave_group_with_unknown_member(
    groups: Groups,
) -> None:
    (member,) = groups.stable()
    pending = one(groups.join(needs_member_id=True))
    told = groups.leave(member.member_id, "unknown", pending.member_id)
    assert told == [NONE, UNKNOWN, NONE]
    assert groups.state is State.EMPTY


def test_static_members_batch_leave_group(groups: Groups) -> None:
    leader, follower = groups.static_pair()
    told = groups.leave(
        LeavingMember(instance_id="leader"),
        LeavingMember(instance_id="nobody"),
        LeavingMember(instance_id="follower", member_id=leader.member_id),
        LeavingMember(instance_id="follower", member_id=follower.member_id),
        LeavingMember(instance_id=None),
    )
    assert told == [NONE, UNKNOWN, ErrorCode.fenced_instance_id, NONE, UNKNOWN]
    assert groups.state is State.EMPTY


# --- the rest of a group's life -------------------------------------------------------------------


def test_a_group_is_forgotten_once_nobody_has_been_in_it_for_long(groups: Groups) -> None:
    (member,) = groups.stable()
    groups.machine.forget_idle(0)
    assert "g" in groups.machine.groups
    groups.leave(member.member_id)
    groups.advance(599_999)
    groups.machine.forget_idle(600_000)
    assert "g" in groups.machine.groups
    groups.advance(1)
    groups.machine.forget_idle(600_000)
    assert not groups.machine.groups
    assert one(groups.join(member.member_id)).error is UNKNOWN
    assert groups.machine.budget.used == 0


def test_a_group_whose_first_member_was_just_given_an_id_is_not_forgotten(groups: Groups) -> None:
    pending = one(groups.join(needs_member_id=True))
    groups.machine.forget_idle(0)
    assert groups.join(pending.member_id) == []


def test_who_waits_is_sent_to_another_coordinator(groups: Groups) -> None:
    """Source: testClassicGroupOnUnloaded..."""
    joining = groups.join()
    others = [groups.join(group="h"), groups.join(group="h")]
    groups.advance(2 * DELAY_MS)
    _, follower = (one(answers) for answers in others)
    syncing = groups.sync(follower, group="h")
    groups.join(one(joining).member_id)
    again = groups.join(group="g")
    groups.machine.resign()
    for answers in (syncing, again):
        assert one(answers).error is ErrorCode.not_coordinator
    assert not groups.machine.groups
    assert groups.machine.budget.used == 0
