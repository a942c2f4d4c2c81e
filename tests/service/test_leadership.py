"""What a service does with whatever its home calls upkeep: a home of the test's own, in memory."""

from collections.abc import Collection
from dataclasses import dataclass, field
from threading import Lock
from typing import Any

import pytest

from sparklog.clock import ManualClock
from sparklog.common import TopicPartition
from sparklog.errors import LogReplacedError, StorageUnavailableError
from sparklog.service import leadership as module
from sparklog.service.leadership import Leadership
from sparklog.service.service import Service
from sparklog.storage.erasure_report import ErasureReport
from sparklog.storage.lease import LeaseLostError
from sparklog.storage.round_report import Cleanable, Merged, Report, Swept
from sparklog.storage.upkeep import AS_DUE, WORKS, Due, ErasureRequest, Loan, Request, Work


@dataclass
class Place:
    """Where the log is: who leads, and which log it is."""

    log: int = 1
    leader: object = None


@dataclass
class FakeLease:
    place: Place

    @property
    def held(self) -> bool:
        return self.place.leader is self

    def acquire(self) -> bool:
        if self.place.leader is None:
            self.place.leader = self
        return self.held

    lends: bool | None = None

    def request(self) -> None:
        pass

    def withdraw(self) -> None:
        pass

    def is_requested(self) -> bool:
        return False

    def check(self) -> None:
        if not self.held:
            raise LeaseLostError("another has taken over")

    def heartbeat(self) -> None:
        pass

    def holder(self) -> dict[str, object]:
        return {}

    def describe(self) -> str:
        return "another service"

    def release(self) -> None:
        if self.held:
            self.place.leader = None


@dataclass
class FakeUpkeep:
    """Notes what it is asked for; `due`: what `work` returns, or raises."""

    place: Place
    works: tuple[Work, ...] = ("retain", "merge")
    due: dict[Work, Due | Exception] = field(default_factory=dict)
    done: list[Any] = field(default_factory=list)
    presses: tuple[Work, ...] = ()
    paused_while_lent: tuple[Work, ...] = ()
    next_purge_ms: float = float("inf")
    closed: bool = False

    def __post_init__(self) -> None:
        self.lease, self.log = FakeLease(self.place), self.place.log
        self.uncleanable: dict[TopicPartition, str] = {}
        self.compacted: list[Cleanable] = []

    def is_replaced(self) -> bool:
        if not self.place.log:
            raise LogReplacedError("it is gone")
        return self.log != self.place.log

    def take_up(self, now_ms: int) -> None:
        self.done.append("take up")

    def pressing(self, now_ms: int) -> Collection[Work]:
        return self.presses

    def work(self, work: Work, report: Report, request: Request = AS_DUE) -> Due:
        self.lease.check()
        self.done.append((work, request))
        found = self.due.get(work, {work: report.time_ms + 1000})
        if isinstance(found, Exception):
            raise found
        return found

    def purge(self, report: Report) -> None:
        self.done.append("purge")

    def check_compacted(self, topics: Collection[str], report: Report) -> None:
        self.done.append(("check", tuple(topics)))

    def erase(
        self, request: ErasureRequest, report: ErasureReport, loan: Loan
    ) -> None:
        self.done.append(("erase", request, loan.begin()))

    def close(self) -> None:
        self.closed = True


@pytest.fixture
def place() -> Place:
    """A log that nobody leads."""
    return Place()


@pytest.fixture
def leadership(place: Place) -> Leadership:
    """Of a service that works on it."""
    return Leadership("log", lambda: FakeUpkeep(place), ManualClock(0))


def service(path: str, upkeep: FakeUpkeep, clock: ManualClock) -> Service:
    """A service that has the upkeep of a home that it doesn't know."""
    made = Service(path, clock=clock)
    made._leadership = Leadership(path, lambda: upkeep, clock)
    return made


def test_another_service_leads_until_it_ends(leadership: Leadership, place: Place) -> None:
    upkeep, opened = leadership.open()
    assert opened
    other = FakeLease(place)
    assert other.acquire()
    assert leadership.leading() is None
    other.release()
    assert leadership.leading() is upkeep
    assert upkeep.done == ["take up"]
    assert leadership.leading() is upkeep
    assert upkeep.done == ["take up"]  # once
    leadership.close()
    assert upkeep.closed
    assert place.leader is None


def test_a_log_that_was_replaced_is_opened_anew(leadership: Leadership, place: Place) -> None:
    before, _ = leadership.open()
    assert leadership.leading() is before
    place.log = 0
    with pytest.raises(LogReplacedError):
        leadership.leading()
    assert leadership.upkeep is before
    place.log = 2
    after = leadership.leading()
    assert after is not before
    assert after is not None
    assert after.lease.held
    assert not before.lease.held


def test_each_kind_of_work_comes_when_its_home_says(path: str, place: Place) -> None:
    upkeep, clock = FakeUpkeep(place), ManualClock(1000)
    running = service(path, upkeep, clock)
    running._open()
    assert running.tick() == 1000
    assert upkeep.done == ["take up", ("retain", AS_DUE), "purge", ("merge", AS_DUE)]
    del upkeep.done[:]
    clock.advance(10)
    assert running.tick() == 990
    assert upkeep.done == []
    upkeep.due["merge"] = {"merge": 1000 + 5000, "retain": 1000 + 1200}
    clock.advance(990)
    running.tick()
    assert upkeep.done == [("retain", AS_DUE), "purge", ("merge", AS_DUE)]
    del upkeep.done[:]
    clock.advance(200)  # the merge made retention due
    running.tick()
    assert upkeep.done == [("retain", AS_DUE), "purge"]
    running.close()


def test_what_presses_and_what_waits_to_go(path: str, place: Place) -> None:
    upkeep, clock = FakeUpkeep(place), ManualClock(1000)
    running = service(path, upkeep, clock)
    running._open()
    running.tick()
    del upkeep.done[:]
    upkeep.presses = ("merge", "retain")
    running.tick()
    assert upkeep.done == [("retain", AS_DUE), "purge", ("merge", AS_DUE)]
    del upkeep.done[:]
    upkeep.presses, upkeep.next_purge_ms = (), 1500
    assert running.tick() == 500
    assert upkeep.done == []
    clock.advance(500)
    running.tick()
    assert upkeep.done == ["purge"]
    running.close()


def test_a_kind_of_work_that_fails_is_tried_again(path: str, place: Place) -> None:
    upkeep, clock = FakeUpkeep(place), ManualClock(1000)
    upkeep.due["merge"] = StorageUnavailableError("the store is away")
    running = service(path, upkeep, clock)
    report = running.run_once()
    assert report.errors == ["the store is away"]
    assert [each for each in upkeep.done if each != "take up"] == [
        ("retain", AS_DUE),
        ("merge", AS_DUE),
    ]
    assert running._due["merge"] == 1000 + 15_000
    assert upkeep.closed


def test_requests_reach_the_home(path: str, place: Place) -> None:
    upkeep = FakeUpkeep(place, works=WORKS)
    running = service(path, upkeep, ManualClock(0))
    running.retain()
    running.compact(["t"])
    assert upkeep.done == [
        "take up",
        ("retain", Request(at_once=True)),
        "purge",
        "take up",
        ("check", ("t",)),
        ("clean", Request(topics=["t"], every=True)),
        "purge",
    ]
    del upkeep.done[:]
    running.run_once()
    assert upkeep.done == ["take up", *((work, AS_DUE) for work in WORKS), "purge"]


def test_who_loses_the_lease_within_a_round_stops(path: str, place: Place) -> None:
    upkeep = FakeUpkeep(place)
    upkeep.due["retain"] = LeaseLostError("another has taken over")
    running = service(path, upkeep, ManualClock(0))
    report = running.run_once()
    assert report.standing_by == "another has taken over"
    assert upkeep.done == ["take up", ("retain", AS_DUE)]


def test_merges_and_garbage_in_words() -> None:
    report = Report(path="s3://b/log", time_ms=0)
    assert not report.worked
    report.merged.append(
        Merged(topic="t", partition=1, base=3, end=9, extents=4, bytes=700, stored_bytes=710)
    )
    report.swept.append(Swept(kind="staged", objects=1, bytes=20))
    report.made_manifests = 2
    assert report.worked
    assert str(report).splitlines() == [
        "t-1: offsets [3, 9), 700 bytes in 4 pieces, merged into a segment",
        "1 object of 20 bytes removed from the store: staged, and merged since or never committed",
        "2 manifests that missed made",
    ]
    report.dry_run = True
    assert all("would be" in line for line in str(report).splitlines())
    assert report.to_dict()["merged"][0]["extents"] == 4


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The pauses of who borrows the lease, and its time, which they make pass."""
    found = [1e6]
    monkeypatch.setattr(module, "monotonic_ms", lambda: sum(found))
    monkeypatch.setattr(module, "pause", found.append)
    return found


@pytest.mark.parametrize("taken", [False, True])
def test_who_borrows_the_lease_gives_it_back_for_a_while(
    place: Place, leadership: Leadership, pauses: list[float], taken: bool
) -> None:
    """For as long as he had it, but no longer than others need to take it, if none does."""
    upkeep, _ = leadership.open()
    other = FakeLease(place)

    def pause(ms: float) -> None:
        pauses.append(ms)
        if taken and sum(pauses) > ended + module.HOLD_MS:
            other.release()  # as it does when it is asked
        elif taken and not upkeep.lease.held:
            other.acquire()

    module.pause = pause  # type: ignore[attr-defined]  # `pauses` takes it back
    ended = 1e18
    with leadership.borrowing(upkeep, [], ErasureRequest(topic="t", wait_ms=60_000)) as loan:
        assert loan.begin()
        assert len(pauses) == 1  # the first time nobody is waited for
        assert not loan.is_over()
        assert loan.begin()
        pauses.append(module.HOLD_MS)
        assert loan.is_over()
        ended = sum(pauses)
        assert loan.begin()
        assert upkeep.lease.held
        rested = sum(pauses) - ended
        assert rested >= (module.HOLD_MS if taken else module.REST_MS)
        assert rested < (module.HOLD_MS if taken else module.REST_MS) + 1000
    assert place.leader is None


def test_our_own_work_goes_on_between_two_holds(
    place: Place, leadership: Leadership, pauses: list[float]
) -> None:
    upkeep, _ = leadership.open()
    assert leadership.leading()
    turn = Lock()
    with leadership.borrowing(upkeep, [turn], ErasureRequest(topic="t", wait_ms=60_000)) as loan:
        assert not turn.locked()
        assert loan.begin()
        assert turn.locked()
        loan.end()
        assert upkeep.lease.held
        assert not turn.locked()
        assert loan.begin()
    assert not turn.locked()
    assert upkeep.lease.held
    assert sum(pauses) - 1e6 < module.REST_MS + 1000
