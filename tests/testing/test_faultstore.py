"""The simulated store fails as it is told, and keeps what was done."""

import pytest

from sparklog.clock import ManualClock
from sparklog.errors import InvalidRequestError, StorageUnavailableError
from sparklog.testing.faults import SimulatedKill
from sparklog.testing.faultstore import Bucket, Faults, FaultStore, crash_points


def copy(store: FaultStore) -> None:
    store.put_stream("log", [b"x" * 25], 25)
    store.put("manifest", b"m")
    store.delete(["log"])


EFFECTS = ["begin log", "part 1 of log", "part 2 of log", "part 3 of log", "finish log"]
EFFECTS += ["put manifest", "delete log"]


def test_effects_are_told():
    store = FaultStore(part_bytes=10)
    copy(store)
    assert store.effects == EFFECTS


@pytest.mark.parametrize(("number", "after"), list(crash_points(len(EFFECTS))))
def test_every_crash_point_keeps_what_was_done_before(number, after):
    store = FaultStore(part_bytes=10)
    store.crash_at(number, after=after)
    with pytest.raises(SimulatedKill):
        copy(store)
    done = number if after else number - 1
    assert store.effects == EFFECTS[:done]
    with pytest.raises(SimulatedKill):  # dead is dead
        store.get("log")
    other = store.reopen()
    expected = (["log"] if 5 <= done < 7 else []) + (["manifest"] if done >= 6 else [])
    assert [one.name for one in other.list()] == sorted(expected)
    other.clock.advance(1)
    assert other.sweep_uploads(other.clock()) == (1 if 1 <= done < 5 else 0)
    copy(other)
    assert other.bucket.names() == ["manifest"]


def test_a_lost_answer_was_done():
    store = FaultStore(faults=Faults(lost=1), attempts=2)
    with pytest.raises(StorageUnavailableError, match="the answer never came"):
        store.put("a", b"x")
    assert store.bucket.names() == ["a"]
    assert store.effects == ["put a", "put a"]


def test_down_for_a_while_by_the_clock():
    clock = ManualClock()
    store = FaultStore(clock=clock, attempts=1)
    store.down(3_600_000, after_ms=1000)
    store.put("a", b"x")
    clock.advance(1000)
    with pytest.raises(StorageUnavailableError, match="the store is down"):
        store.get("a")
    clock.advance(3_600_000)
    assert store.get("a") == b"x"


def test_refused_credentials_are_not_tried_again():
    store = FaultStore()
    store.refuse()
    with pytest.raises(StorageUnavailableError, match="check key, secret and rights"):
        store.list()
    assert store.counts.lists == 1
    store.refuse(False)
    assert store.list() == []


def test_lists_are_stale_for_a_while():
    store = FaultStore(faults=Faults(stale=1, stale_ms=1000))
    store.put("a", b"x")
    assert store.list() == []
    assert store.get("a") == b"x"
    store.clock.advance(1000)
    assert [one.name for one in store.list()] == ["a"]
    store.delete(["a"])
    assert [one.name for one in store.list()] == ["a"]
    with pytest.raises(FileNotFoundError):
        store.get("a")
    store.clock.advance(1000)
    assert store.list() == []


def test_latency_turns_the_clock():
    store = FaultStore(faults=Faults(latency_ms=(10, 20)))
    began = store.clock()
    for _ in range(10):
        store.list()
    assert 100 <= store.clock() - began <= 200


def test_two_stores_share_a_bucket():
    bucket = Bucket()
    one, two = FaultStore(bucket), FaultStore(bucket)
    one.put("a", b"x")
    assert two.get("a") == b"x"


def test_crash_points_begin_at_one():
    with pytest.raises(InvalidRequestError):
        FaultStore().crash_at(0)
