"""The lease of endpoints of a log in a store: the contract, half a minute, late writes."""

import json
from collections.abc import Callable

import pytest

from sparklog.clock import ManualClock
from sparklog.diskless.lease import NumberedLease
from sparklog.diskless.names import ENDPOINT
from sparklog.errors import StorageUnavailableError
from sparklog.storage.lease import Lease, LeaseLostError
from sparklog.testing.faultstore import Bucket, FaultStore
from sparklog.testing.lease_contract import EndpointLeaseContract
from tests.diskless.logs import Timer

SAID = {"endpoint": "h:9092", "node_id": 1}


@pytest.fixture
def store(bucket: Bucket, clock: ManualClock) -> FaultStore:
    return FaultStore(bucket, clock)


@pytest.fixture
def new_lease(bucket: Bucket, clock: ManualClock) -> Callable[[], NumberedLease]:
    return lambda: NumberedLease(FaultStore(bucket, clock), clock, SAID, timer=Timer(clock))


def numbers(store: FaultStore) -> list[int]:
    return [int(one.name.removeprefix(ENDPOINT)) for one in store.list(ENDPOINT)]


class TestContract(EndpointLeaseContract):
    @pytest.fixture
    def lose(self, store: FaultStore, clock: ManualClock) -> Callable[[Lease], None]:
        def lost(lease: Lease) -> None:
            name = f"{ENDPOINT}{max(numbers(store)):020d}"
            store.put(name, json.dumps(lease.holder() | {"released": True}).encode())
            clock.advance(10_000)

        return lost


def test_another_takes_over_when_the_holder_stood_still_for_half_a_minute(
    new_lease: Callable[[], NumberedLease], clock: ManualClock, store: FaultStore
) -> None:
    one, two = new_lease(), new_lease()
    assert one.acquire()
    for _ in range(6):
        assert not two.acquire()
        clock.advance(15_000)
        one.check()
    assert not two.acquire()
    clock.advance(29_999)
    assert not two.acquire()
    clock.advance(1)
    assert two.acquire()
    assert numbers(store) == [2]
    with pytest.raises(LeaseLostError, match="has taken over"):
        one.check()
    one.release()
    two.check()
    assert numbers(store) == [2]  # nothing of the first one came back


def test_a_claim_that_comes_late_is_none(
    new_lease: Callable[[], NumberedLease], clock: ManualClock, store: FaultStore
) -> None:
    """Two others have come and gone since it looked: the number that it creates is free again."""
    slow, one, two = new_lease(), new_lease(), new_lease()
    for lease in (one, two):
        assert lease.acquire()
        lease.release()
    assert one.acquire()
    assert numbers(store) == [3]
    assert not slow._take(1)  # which is what it had found free at the beginning
    assert not slow.held
    one.check()


def test_a_create_whose_answer_was_lost_is_ours(
    new_lease: Callable[[], NumberedLease],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    one, two = new_lease(), new_lease()
    create = one._store.create

    def lossy(name: str, data: bytes) -> bool:
        create(name, data)
        raise StorageUnavailableError("no answer", passing=True)

    monkeypatch.setattr(one._store, "create", lossy)
    with pytest.raises(StorageUnavailableError):
        one.acquire()
    monkeypatch.undo()
    assert not two.acquire()
    assert one.acquire()
    one.check()


def test_a_store_that_is_away_says_nothing_of_the_lease(
    new_lease: Callable[[], NumberedLease], clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = new_lease()
    assert one.acquire()
    clock.advance(10_000)

    def away(prefix: str) -> None:
        raise StorageUnavailableError("away", passing=True)

    monkeypatch.setattr(one._store, "list", away)
    with pytest.raises(StorageUnavailableError):
        one.check()
    assert one.held
    monkeypatch.undo()
    one.check()


@pytest.mark.parametrize("content", [b"", b"[]", b"{", b"\xff"])
def test_a_damaged_sign_of_life_is_one_that_stands_still(
    new_lease: Callable[[], NumberedLease], clock: ManualClock, store: FaultStore, content: bytes
) -> None:
    store.put(f"{ENDPOINT}{7:020d}", content)
    store.put(f"{ENDPOINT}x", b"")
    one = new_lease()
    assert one.holder() == {}
    assert not one.acquire()
    clock.advance(30_000)
    assert one.acquire()
    one.check()
    assert one.holder()["node_id"] == 1


def test_what_a_dead_holder_told_counts_for_two_minutes(
    new_lease: Callable[[], NumberedLease], clock: ManualClock
) -> None:
    one, two = new_lease(), new_lease()
    assert one.acquire()
    one.publish({"groups": ["a"]})
    clock.advance(60_000)
    assert two.published() == {"groups": ["a"]}
    one.check()  # a beat, which says it again
    clock.advance(119_000)
    assert two.published() == {"groups": ["a"]}
    clock.advance(2_000)
    assert two.published() is None
