"""The consumer protocol as a state machine, by the behaviours of GroupMetadataManagerTest."""

from collections.abc import Callable
from typing import Any
from uuid import UUID

import pytest

from sparklog.clock import ManualClock
from sparklog.kafka.groups.assignors import Partitions
from sparklog.kafka.groups.classic_group import Budget
from sparklog.kafka.groups.consumer_groups import (
    LEAVING,
    LEAVING_FOR_NOW,
    NOTHING,
    ConsumerGroup,
    ConsumerGroupError,
    ConsumerGroups,
    HeartbeatRequest,
    HeartbeatResponse,
)
from sparklog.kafka.messages import ErrorCode
from sparklog.kafka.timers import Timers

FOO, BAR = UUID(int=1), UUID(int=2)
SESSION_MS, REBALANCE_MS = 45_000, 60_000


class Machine:
    """The state machine, its clock, and what members remember."""

    def __init__(self, *, limit: int = 1 << 20, max_size: int = 100) -> None:
        self.clock, self.emptied = ManualClock(0), []
        self.timers = Timers(self.clock, lambda: None)
        self.budget = Budget(limit)
        self.groups = ConsumerGroups(
            self.timers, self.budget, max_size=max_size,
            emptied=lambda group, topics: self.emptied.append((group.group, topics)),
        )  # fmt: skip
        self.topics = {"foo": (FOO, 6), "bar": (BAR, 2)}

    @property
    def group(self) -> ConsumerGroup:
        return self.groups.groups["g"]

    def join(self, member_id: str, **given: Any) -> HeartbeatResponse:
        fields: dict[str, Any] = {
            "topics": frozenset(["foo"]), "rebalance_timeout_ms": REBALANCE_MS, "owned": NOTHING,
        }  # fmt: skip
        return self.beat(member_id, 0, **(fields | given))

    def beat(self, member_id: str, epoch: int, **given: Any) -> HeartbeatResponse:
        return self.groups.heartbeat(
            HeartbeatRequest(group="g", member_id=member_id, epoch=epoch, **given), self.topics
        )

    def refused(self, act: Callable[[], HeartbeatResponse]) -> ErrorCode:
        with pytest.raises(ConsumerGroupError) as caught:
            act()
        return caught.value.code

    def advance(self, ms: int) -> None:
        self.clock.advance(ms)
        self.timers.expire()


class Client:
    """A member that does as it is told."""

    def __init__(self, machine: Machine, name: str, **given: Any) -> None:
        self.machine, self.name, self.given = machine, name, given
        told = machine.join(name, **given)
        self.epoch, self.owned = told.epoch, told.assigned or NOTHING

    def beat(self) -> None:
        told = self.machine.beat(self.name, self.epoch, owned=self.owned)
        self.epoch = told.epoch
        if told.assigned is not None:
            self.owned = told.assigned


def settle(*clients: Client) -> list[Partitions]:
    """Let all beat until the group is stable; no partition is ever two members'."""
    for _ in range(20):
        for client in clients:
            client.beat()
            owned = [p for each in clients for p in each.owned]
            assert len(owned) == len(set(owned))
        if clients[0].machine.group.state == "Stable":
            return [client.owned for client in clients]
    raise AssertionError(clients[0].machine.group)


@pytest.fixture
def machine() -> Machine:
    return Machine()


def test_the_first_member_gets_all(machine: Machine) -> None:
    told = machine.join("a")
    assert (told.member_id, told.epoch) == ("a", 1)
    assert told.assigned == {(FOO, n) for n in range(6)}
    assert machine.group.state == "Stable"
    assert machine.beat("a", 1).assigned is None  # it knows


def test_a_member_without_id_is_given_one(machine: Machine) -> None:
    told = machine.join("")
    assert len(told.member_id) == 22
    assert machine.beat(told.member_id, told.epoch).epoch == told.epoch


def test_members_give_up_before_others_get(machine: Machine) -> None:
    a = Client(machine, "a")
    b = Client(machine, "b")
    assert (b.owned, b.epoch) == (NOTHING, 2)  # nothing is free yet
    assert machine.group.state == "Reconciling"
    kept = machine.beat("a", 1).assigned
    assert kept is not None
    assert len(kept) == 3
    b.beat()
    assert b.owned == NOTHING  # a was told, and has not said that it did
    a.owned = kept
    a.beat()
    assert a.epoch == 2
    b.beat()
    assert len(b.owned) == 3
    assert a.owned | b.owned == {(FOO, n) for n in range(6)}
    assert machine.group.state == "Stable"


def test_three_members_come_and_go(machine: Machine) -> None:
    a, b, c = (Client(machine, name) for name in "abc")
    assert sorted(map(len, settle(a, b, c))) == [2, 2, 2]
    machine.beat("b", LEAVING)
    assert sorted(map(len, settle(a, c))) == [3, 3]
    machine.beat("a", LEAVING)
    machine.beat("c", LEAVING)
    assert machine.emptied == [("g", {"foo"})]
    assert not machine.groups.groups
    assert machine.timers.next_ms is None
    assert machine.budget.used == 0


def test_subscriptions_that_change_are_assigned_anew(machine: Machine) -> None:
    told = machine.join("a")
    told = machine.beat("a", told.epoch, topics=frozenset(["bar"]), owned=told.assigned)
    assert told.assigned == NOTHING
    told = machine.beat("a", told.epoch, owned=NOTHING)
    assert told.assigned == {(BAR, 0), (BAR, 1)}


def test_partitions_and_topics_that_come_are_assigned_and_those_that_go_are_not(
    machine: Machine,
) -> None:
    a = Client(machine, "a", topics=frozenset(["foo", "new"]))
    epoch = a.epoch
    machine.topics = {**machine.topics, "foo": (FOO, 7), "new": (UUID(int=9), 1)}
    (owned,) = settle(a)
    assert owned == {(FOO, n) for n in range(7)} | {(UUID(int=9), 0)}
    assert a.epoch == epoch + 1
    machine.topics = {"new": (UUID(int=9), 1)}
    (owned,) = settle(a)
    assert owned == {(UUID(int=9), 0)}
    machine.topics = dict(machine.topics)
    assert settle(a) == [owned]
    assert a.epoch == epoch + 2  # nothing has changed


def test_regular_expressions_stand_for_topics_as_a_whole(machine: Machine) -> None:
    a = Client(machine, "a", topics=None, regex="fo.|b")
    assert {topic for topic, _ in settle(a)[0]} == {FOO}
    machine.topics = {**machine.topics, "b": (UUID(int=7), 1)}
    assert {topic for topic, _ in settle(a)[0]} == {FOO, UUID(int=7)}
    assert machine.group.is_subscribed_to("b")
    assert not machine.group.is_subscribed_to("bar")


@pytest.mark.parametrize("regex", ["(", "a)|(b", "[", "\\1(a)"])
def test_what_is_no_regular_expression_changes_nothing(machine: Machine, regex: str) -> None:
    invalid = ErrorCode.invalid_regular_expression
    assert machine.refused(lambda: machine.join("a", topics=None, regex=regex)) is invalid
    assert not machine.groups.groups
    assert machine.budget.used == 0


def test_regular_expressions_that_nobody_has_any_more_are_forgotten(machine: Machine) -> None:
    a = Client(machine, "a", topics=None, regex="fo.")
    for n in range(50):
        a.epoch = machine.beat("a", a.epoch, regex=f"b.{{{n}}}", owned=a.owned).epoch
        unknown = machine.refused(lambda n=n: machine.beat("b", 1, regex=f"x{n}"))
        assert unknown is ErrorCode.unknown_member_id
    assert len(machine.group.matches) == 1


def test_a_regular_expression_takes_no_time_whatever_it_is(machine: Machine) -> None:
    machine.topics = {"a" * 249: (FOO, 1)}
    a = Client(machine, "a", topics=None, regex="(a*)*b|(a|aa)+$")
    assert a.owned == {(FOO, 0)}


@pytest.mark.parametrize(
    ("given", "error"),
    [
        ({"rebalance_timeout_ms": -1}, ErrorCode.invalid_request),
        ({"owned": None}, ErrorCode.invalid_request),
        ({"owned": frozenset([(FOO, 0)])}, ErrorCode.invalid_request),
        ({"topics": None}, ErrorCode.invalid_request),
        ({"instance_id": ""}, ErrorCode.invalid_request),
        ({"assignor": "sticky"}, ErrorCode.unsupported_assignor),
    ],
)
def test_who_may_not_join(machine: Machine, given: dict[str, Any], error: ErrorCode) -> None:
    assert machine.refused(lambda: machine.join("a", **given)) is error
    assert not machine.groups.groups


def test_epochs_that_are_not_the_members_own(machine: Machine) -> None:
    unknown, fenced = ErrorCode.unknown_member_id, ErrorCode.fenced_member_epoch
    assert machine.refused(lambda: machine.beat("a", 1)) is unknown
    assert machine.refused(lambda: machine.beat("a", LEAVING)) is unknown
    assert machine.refused(lambda: machine.beat("a", -3)) is ErrorCode.invalid_request
    assert machine.refused(lambda: machine.beat("", 1)) is ErrorCode.invalid_request
    assert machine.refused(lambda: machine.beat("a", LEAVING_FOR_NOW)) is ErrorCode.invalid_request
    a = Client(machine, "a")
    assert machine.refused(lambda: machine.beat("a", 9)) is fenced
    assert machine.refused(lambda: machine.beat("b", 1)) is unknown
    before = a.epoch
    machine.topics = {**machine.topics, "foo": (FOO, 7)}
    machine.beat("a", before)
    assert machine.beat("a", before, owned=a.owned).assigned is None  # the answer was lost
    too_many = frozenset([*a.owned, (BAR, 0)])
    assert machine.refused(lambda: machine.beat("a", before, owned=too_many)) is fenced
    assert machine.refused(lambda: machine.beat("a", before)) is fenced
    assert machine.join("a").assigned == {(FOO, n) for n in range(7)}  # it begins anew


def test_a_silent_member_is_removed(machine: Machine) -> None:
    a, b = Client(machine, "a"), Client(machine, "b")
    settle(a, b)
    machine.advance(SESSION_MS - 1)
    a.beat()
    machine.advance(1)
    assert list(machine.group.members) == ["a"]
    assert len(settle(a)[0]) == 6
    assert machine.refused(lambda: machine.beat("b", b.epoch)) is ErrorCode.unknown_member_id


def test_who_gives_nothing_up_in_time_is_removed(machine: Machine) -> None:
    a = Client(machine, "a")
    b = Client(machine, "b")
    for _ in range(4):
        machine.beat("a", 1, owned=a.owned)  # it lives, and keeps all
        b.beat()
        machine.advance(REBALANCE_MS // 4)
    assert machine.refused(lambda: machine.beat("a", 1)) is ErrorCode.unknown_member_id
    assert len(settle(b)[0]) == 6


def test_the_assignor_that_most_ask_for(machine: Machine) -> None:
    clients = [Client(machine, "a", assignor="range"), Client(machine, "b"),
               Client(machine, "c", assignor="range")]  # fmt: skip
    owned = settle(*clients)
    assert machine.group.assignor == "range"
    assert owned[0] == {(FOO, 0), (FOO, 1)}


def test_sizes_and_memory_are_bounded() -> None:
    full = ErrorCode.group_max_size_reached
    machine = Machine(max_size=1)
    machine.join("a")
    assert machine.refused(lambda: machine.join("b")) is full
    assert machine.join("a").epoch == 1
    machine = Machine(limit=10_000)
    many = frozenset(f"topic-{n:04d}" for n in range(500))
    machine.join("a", topics=many)
    assert machine.refused(lambda: machine.join("b", topics=many)) is full
    more = many | {f"more-{n:05d}" for n in range(900)}
    assert machine.refused(lambda: machine.beat("a", 1, topics=more)) is full


def test_a_static_member_comes_back_to_what_it_had(machine: Machine) -> None:
    a = Client(machine, "a", instance_id="i")
    b = Client(machine, "b", instance_id="j")
    had = settle(a, b)[0]
    epoch = machine.group.epoch
    told = machine.beat("a", LEAVING_FOR_NOW, instance_id="i")
    assert told.epoch == LEAVING_FOR_NOW
    again = Client(machine, "c", instance_id="i")
    assert again.owned == had
    assert machine.group.epoch == epoch
    fenced = ErrorCode.fenced_instance_id
    assert machine.refused(lambda: machine.beat("a", 2, instance_id="i")) is fenced
    assert machine.refused(lambda: machine.beat("a", LEAVING, instance_id="i")) is fenced
    assert machine.refused(lambda: machine.join("d", instance_id="i")) is (
        ErrorCode.unreleased_instance_id
    )
    machine.beat("c", LEAVING_FOR_NOW, instance_id="i")
    machine.advance(SESSION_MS - 1)
    b.beat()
    machine.advance(1)
    assert list(machine.group.static_members) == ["j"]


def test_a_replaced_static_member_of_the_same_epoch_is_fenced(machine: Machine) -> None:
    """Both know the epoch; only one of them owns the instance id."""
    a = Client(machine, "a", instance_id="i")
    machine.beat("a", LEAVING_FOR_NOW, instance_id="i")
    again = Client(machine, "c", instance_id="i")
    assert again.epoch == a.epoch
    fenced = ErrorCode.fenced_instance_id
    assert machine.refused(lambda: machine.beat("a", again.epoch, instance_id="i")) is fenced


def test_commits_are_the_members_of_this_epoch(machine: Machine) -> None:
    machine.join("a")
    check = machine.groups.check_commit
    assert check(machine.group, "a", 1, 9) is ErrorCode.none
    assert check(machine.group, "a", 2, 9) is ErrorCode.stale_member_epoch
    assert check(machine.group, "a", 0, 9) is ErrorCode.stale_member_epoch
    assert check(machine.group, "a", 2, 8) is ErrorCode.unsupported_version
    assert check(machine.group, "b", 1, 9) is ErrorCode.unknown_member_id
    assert check(machine.group, "", -1, 9) is ErrorCode.unknown_member_id
    machine.groups.resign()
    assert machine.budget.used == 0
