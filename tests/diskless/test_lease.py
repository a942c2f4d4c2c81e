"""The lease by term: the contract, and what it says of a minute, of clocks and of late writes."""

import json
import os
from collections.abc import Callable

import pytest

from sparklog.clock import ManualClock
from sparklog.diskless.lease import ServiceNotes, Tenure, TermLease
from sparklog.diskless.names import service_name
from sparklog.errors import StorageUnavailableError
from sparklog.storage.lease import Lease, LeaseLostError
from sparklog.testing.faultstore import Bucket
from sparklog.testing.lease_contract import UpkeepLeaseContract
from tests.diskless.logs import Home, Timer


@pytest.fixture
def new_lease(bucket: Bucket, clock: ManualClock) -> Callable[[], TermLease]:
    return lambda: Home(bucket, clock).lease


class TestContract(UpkeepLeaseContract):
    @pytest.fixture
    def later(self, clock: ManualClock) -> Callable[[], None]:
        return lambda: clock.advance(20_000)

    @pytest.fixture
    def lose(self, bucket: Bucket, clock: ManualClock) -> Callable[[Lease], None]:
        def lost(lease: Lease) -> None:
            assert isinstance(lease, TermLease)
            home = Home(bucket, clock)
            sign = json.loads(home.store.get(service_name(lease.term)))
            home.store.put(service_name(lease.term), json.dumps(sign | {"released": True}).encode())
            clock.advance(21_000)

        return lost


def test_another_takes_over_when_the_sign_of_life_stood_still(
    new_lease: Callable[[], TermLease], clock: ManualClock
) -> None:
    one, two = new_lease(), new_lease()
    assert one.acquire()
    for _ in range(10):
        assert not two.acquire()
        clock.advance(30_000)
        one.check()  # renews it
    assert not two.acquire()
    clock.advance(59_999)
    assert not two.acquire()
    clock.advance(1)
    assert two.acquire()
    assert (one.held, two.term) == (True, 2)  # it can't know yet
    with pytest.raises(LeaseLostError, match="taken over"):
        one.check()
    assert not one.acquire()


def test_who_looks_for_the_first_time_waits_a_minute(
    new_lease: Callable[[], TermLease], clock: ManualClock
) -> None:
    """However old the sign says it is: only the own clock counts, and only what it saw."""
    one = new_lease()
    assert one.acquire()
    clock.advance(10**9)
    two = new_lease()
    assert not two.acquire()
    clock.advance(60_000)
    assert two.acquire()


def test_a_holder_that_died_before_its_first_sign(
    bucket: Bucket, clock: ManualClock, new_lease: Callable[[], TermLease]
) -> None:
    one = new_lease()
    assert one.acquire()
    del bucket.objects[service_name(1)]
    two = new_lease()
    assert not two.acquire()
    clock.advance(60_000)
    assert two.acquire()


def test_of_two_that_want_it_at_once_one_gets_it(
    new_lease: Callable[[], TermLease], clock: ManualClock
) -> None:
    one, two = new_lease(), new_lease()
    assert not two._take(5, {})  # it believed in another term
    assert [one.acquire(), two.acquire()] == [True, False]


def test_a_term_that_another_takes_meanwhile(bucket: Bucket, clock: ManualClock) -> None:
    one, two = Home(bucket, clock), Home(bucket, clock)
    real = two.store.create

    def late(name: str, data: bytes) -> bool:
        one.lease.acquire()
        return real(name, data)

    two.store.create = late  # type: ignore[method-assign]
    assert not two.lease.acquire()
    assert (one.state.term, one.state.number) == (1, 0)  # and no entry contradicts it


def test_a_late_sign_of_an_older_beat_gives_nothing_away(
    bucket: Bucket, clock: ManualClock, new_lease: Callable[[], TermLease]
) -> None:
    one, two = new_lease(), new_lease()
    assert one.acquire()
    late = bucket.objects[service_name(1)]
    clock.advance(30_000)
    one.check()
    assert not two.acquire()
    bucket.objects[service_name(1)] = late
    assert not two.acquire()
    clock.advance(59_000)
    assert not two.acquire()


def test_the_next_holder_knows_how_far_the_work_is(
    new_lease: Callable[[], TermLease], clock: ManualClock
) -> None:
    one, two = new_lease(), new_lease()
    assert one.acquire()
    one.notes.cleaned["x/0"], one.notes.cut_below = 17, 4
    one.release()
    assert two.acquire()
    assert two.notes == ServiceNotes({"x/0": 17}, 4)


@pytest.mark.parametrize("sign", [b"", b"\xff", b"[]", b'{"cleaned": 3, "cut_below": -1}'])
def test_a_damaged_sign_of_life_is_no_sign(
    bucket: Bucket, clock: ManualClock, new_lease: Callable[[], TermLease], sign: bytes
) -> None:
    one, two = new_lease(), new_lease()
    assert one.acquire()
    bucket.objects[service_name(1)] = sign, clock()
    assert not two.acquire()
    clock.advance(60_000)
    assert two.acquire()
    assert two.notes == ServiceNotes()


def test_a_service_goes_on_with_its_term_if_nobody_took_the_log_meanwhile(
    bucket: Bucket, clock: ManualClock
) -> None:
    tenure = Tenure()

    def opened() -> TermLease:
        return TermLease(Home(bucket, clock).log, timer=Timer(clock), tenure=tenure)

    first, other = opened(), Home(bucket, clock).lease
    assert first.acquire()
    first.notes.let_go["x"] = 7
    assert not opened().acquire()  # while it is held
    first.release()
    again = opened()
    assert again.acquire()
    assert (again.term, again.notes.let_go) == (1, {"x": 7})
    assert not other.acquire()
    again.release()
    assert other.acquire()
    assert other.term == 2
    third = opened()
    assert not third.acquire()
    other.release()
    assert third.acquire()
    assert third.term == 3


def test_a_forked_child_takes_a_term_of_its_own(
    bucket: Bucket, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    tenure = Tenure()
    first = TermLease(Home(bucket, clock).log, timer=Timer(clock), tenure=tenure)
    assert first.acquire()
    first.release()
    monkeypatch.setattr(os, "getpid", lambda: -1)
    child = TermLease(Home(bucket, clock).log, timer=Timer(clock), tenure=tenure)
    assert child.acquire()
    assert child.term == 2


def test_a_store_that_is_away_when_it_is_given_back(bucket: Bucket, clock: ManualClock) -> None:
    home = Home(bucket, clock)
    assert home.lease.acquire()
    home.store.down(10**9)
    home.lease.release()
    assert not home.lease.held
    with pytest.raises(StorageUnavailableError):
        home.lease.acquire()


def test_who_died_while_it_asked_is_heard_a_minute_longer(
    new_lease: Callable[[], TermLease], clock: ManualClock
) -> None:
    service, command = new_lease(), new_lease()
    service.lends = True
    assert service.acquire()
    assert not command.acquire()
    command.request()
    clock.advance(20_000)
    assert service.is_requested()
    service.release()
    for _ in range(5):
        clock.advance(10_000)
        assert service.is_requested()
    clock.advance(10_000)
    assert not service.is_requested()
    assert service.acquire()
    service.check()
    assert not list(new_lease()._log.store.list("asked/"))


def test_who_still_asks_is_heard(new_lease: Callable[[], TermLease], clock: ManualClock) -> None:
    service, command = new_lease(), new_lease()
    service.lends = True
    assert service.acquire()
    assert not command.acquire()
    for _ in range(12):
        command.request()
        clock.advance(10_000)
    assert service.is_requested()
