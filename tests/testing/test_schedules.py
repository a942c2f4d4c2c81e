"""A counter that several processes raise by creating the next number, under schedules.

The protocol is the smallest that needs a store's create: number n+1 is created by whoever saw n.
What is looked at: a number never has two owners, and who was told that it owns one does.
"""

from dataclasses import dataclass, field

import pytest

from sparklog.errors import StorageUnavailableError
from sparklog.testing.faults import SimulatedKill
from sparklog.testing.scheduled_store import (
    Effect,
    ScheduledBucket,
    ScheduledStore,
    StoreFlaw,
)
from sparklog.testing.schedules import FaultRates, Process, Schedule
from tests.depth import by_depth

SEEDS = by_depth(small=30, ci=100, all=3000)
ROUGH = FaultRates(writes=0.2, reads=0.05, naps=0.01, kills=0.01)


class Broken(AssertionError):
    """What must never be."""


@dataclass
class Counter:
    """The processes, and who looks at what they do. `careful`: they ask whose number it is."""

    bucket: ScheduledBucket
    careful: bool = True
    owners: dict[str, bytes] = field(default_factory=dict)

    def look(self, effect: Effect) -> None:
        assert effect.after is not None
        if self.owners.setdefault(effect.name, effect.after) != effect.after:
            raise Broken(f"{effect.name} has two owners")

    def raiser(self, process: Process) -> None:
        store, number = self.bucket.store(process), 0
        while number < 12:
            me = process.rng.randbytes(4)
            if self._won(process, store, f"{number:03}", me):
                if self.owners.get(f"{number:03}") != me:
                    raise Broken(f"{process.name} was told that it owns {number}")
                self.bucket.schedule.stats["won"] += 1
            number += 1

    def _won(self, process: Process, store: ScheduledStore, name: str, me: bytes) -> bool:
        while True:
            try:
                if store.create(name, me):
                    return True
                return store.get(name) == me if self.careful else False
            except (StorageUnavailableError, FileNotFoundError):
                process.sleep(process.rng.randrange(500))


def simulate(seed: int, *flaws: StoreFlaw, fault_rates: FaultRates = ROUGH) -> Schedule:
    schedule = Schedule(seed, fault_rates)
    bucket = ScheduledBucket(schedule, frozenset(flaws))
    counter = Counter(bucket)
    bucket.watch.append(counter.look)
    for _ in range(4):
        schedule.spawn(counter.raiser)
    schedule.run(2000)
    schedule.clear()
    bucket.land()
    assert not bucket.pending
    return schedule


def test_no_schedule_gives_a_number_to_two() -> None:
    total = sum((simulate(seed).stats for seed in range(SEEDS)), start=simulate(SEEDS).stats)
    assert all(total[what] for what in ("won", "kills", "zombies", "create", "get")), total


@pytest.mark.parametrize("lie", [StoreFlaw.PUTS, StoreFlaw.LOOKS_FIRST, StoreFlaw.HALF])
def test_a_store_that_lies_is_found_out(lie: StoreFlaw) -> None:
    with pytest.raises(Broken):
        for seed in range(SEEDS):
            simulate(seed, lie)


def test_a_get_that_misses_what_is_there_is_seen_by_some_process() -> None:
    schedule = Schedule(1)
    bucket = ScheduledBucket(schedule, frozenset({StoreFlaw.STALE_GET}))
    missed = []

    def look(process: Process) -> None:
        store = bucket.store(process)
        store.put("a", b"x")
        for _ in range(10):
            try:
                store.get("a")
            except FileNotFoundError:
                missed.append(process.name)

    schedule.spawn(look)
    schedule.run(100)
    assert missed


def test_a_seed_is_a_schedule() -> None:
    def trace(seed: int) -> tuple[object, ...]:
        schedule = simulate(seed)
        return schedule.step, schedule.stats, schedule.rng.random()

    assert trace(3) == trace(3)
    assert trace(3) != trace(4)


def test_each_fault_of_a_write_is_what_its_name_says() -> None:
    """One process, a store that fails always: what it is told, and what is there at the end."""
    told, there = set(), set()
    for seed in range(60):
        schedule = Schedule(seed, FaultRates(writes=1))
        bucket = ScheduledBucket(schedule)

        def create(process: Process, bucket: ScheduledBucket = bucket) -> None:
            try:
                told.add(bucket.store(process).create("a", b"x"))
            except StorageUnavailableError:
                told.add(None)

        schedule.spawn(create)
        schedule.run(10)
        there.add(("a" in bucket.objects, bool(bucket.pending)))
        bucket.land()
    assert told == {True, False, None}  # False: the client's retry met its own first try
    assert there == {(True, False), (True, True), (False, True), (False, False)}


def test_who_is_killed_sends_nothing_more() -> None:
    schedule = Schedule(5)
    bucket = ScheduledBucket(schedule)

    def careful(process: Process) -> None:
        store = bucket.store(process)
        try:
            while True:
                store.get("nothing")
        except FileNotFoundError:
            store.put("alive", b"")
            process.idle(10_000)
        finally:
            store.put("cleaned up", b"")

    process = schedule.spawn(careful, restarts=False)
    schedule.run(20)
    process.die()
    assert set(bucket.objects) == {"alive"}
    with pytest.raises(SimulatedKill):
        bucket.store(process).get("alive")


def test_time_is_the_schedule_s_and_a_clock_may_be_wrong() -> None:
    schedule = Schedule(1)
    times = []

    def sleeper(process: Process) -> None:
        began = process.clock()
        process.sleep(60_000)
        times.append(process.clock() - began)
        times.append(process.clock() - schedule.now_ms())

    schedule.spawn(sleeper, skew_ms=-5000)
    schedule.run(10_000)
    assert 60_000 <= times[0] <= 61_000
    assert times[1] == -5000


def test_what_a_role_raises_ends_the_schedule() -> None:
    schedule = Schedule(1)
    bucket = ScheduledBucket(schedule)

    def fails(process: Process) -> None:
        bucket.store(process).list()
        raise Broken("seen")

    def others(process: Process) -> None:
        while True:
            bucket.store(process).list()

    schedule.spawn(fails)
    schedule.spawn(others)
    with pytest.raises(Broken, match="seen"):
        schedule.run(1000)
    assert schedule.processes == []


def test_a_request_of_another_thread_is_refused() -> None:
    schedule = Schedule(1)
    process = schedule.spawn(lambda _: None, name="idle")
    with pytest.raises(RuntimeError, match="another thread"):
        process.request(lambda: 1)


def test_threads_share_a_process_its_store_and_its_death() -> None:
    schedule = Schedule(2)
    bucket = ScheduledBucket(schedule)

    def both(process: Process) -> None:
        store = bucket.store(process)

        def thread(_: Process) -> None:
            while True:
                store.put("thread", b"")

        process.start_thread(thread)
        while True:
            store.put("main", b"")

    process = schedule.spawn(both)
    schedule.run(40)
    assert set(bucket.objects) == {"main", "thread"}
    assert {who for _, who, *_ in bucket.trace} == {process.name, f"{process.name}.thread#2"}
    schedule.fault_rates = FaultRates(kills=1, zombies=0)
    schedule.run(1)
    assert [p.name for p in schedule.processes] == ["both#3"]
    assert process.dead and process.threads[0].dead
