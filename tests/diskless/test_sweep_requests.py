"""Requests of sweeps: one listing for all partitions, and none if nothing can be garbage."""

from collections.abc import Callable

import pytest

from sparklog.diskless import garbage
from sparklog.diskless.groups import GroupObjects
from sparklog.diskless.names import (
    Level,
    entry_name,
    new_staged_name,
    position_name,
    segment_id,
    state_name,
)
from sparklog.diskless.options import UpkeepOptions
from sparklog.diskless.upkeep import DisklessUpkeep
from sparklog.log.admin import drop_topic
from sparklog.storage.group_store import Groups
from sparklog.storage.round_report import Report
from sparklog.testing.faultstore import FaultStore
from sparklog.tiered.layout.object_names import Directory, remote_log_name
from tests.diskless.logs import LOG_ID, T0, Home, Timer

DAY = 24 * 3600 * 1000


def lists(home: Home, action: Callable[[], object]) -> int:
    """The list requests that `action` makes."""
    before = home.store.counts.lists
    action()
    return home.store.counts.lists - before


def swept(home: Home) -> Report:
    report = home.report()
    home.garbage.sweep(report)
    return report


# --- the listing --------------------------------------------------------------------------------


def test_a_listing_skips_what_it_leaves_out() -> None:
    store = FaultStore()
    some = [f"{top}/{n:04d}" for top in ("a", "m", "z") for n in (0, 1)]
    some += [f"l/{n:05d}" for n in range(1000)] + ["left-out0"]
    many = [f"left-out/{n:05d}" for n in range(3500)]
    odd = [f"left-out/~{n:05d}" for n in range(1000)]  # greater than any entry
    store.bucket.objects |= dict.fromkeys([*some, *many, *odd], (b"x", 0))
    found = [one.name for one in store.list(without="left-out/")]
    assert found == sorted(some)
    assert store.counts.lists == 4
    store.requests.skips = False
    assert [one.name for one in store.list(without="left-out/")] == found
    assert store.counts.lists == 4 + 6


def test_all_partitions_are_listed_at_once(home: Home) -> None:
    """By one request per 1,000 objects, whatever the length of the ledger."""
    home.topic("u", partitions=30)
    home.commit("a")
    home.merge_all()
    for number in range(10**6, 10**6 + 1500):  # as many entries, whose contents nobody asks for
        home.bucket.objects[entry_name(LOG_ID, number)] = b"", 0
    uploads = 1
    assert lists(home, lambda: swept(home)) == 2 + uploads


@pytest.mark.parametrize("page", [0, 1000])
def test_a_store_that_cannot_skip_the_ledger(
    home: Home, monkeypatch: pytest.MonkeyPatch, page: int
) -> None:
    """Directories are listed one by one where the ledger has more pages than they are."""
    home.topic("u")
    home.store.requests.skips = False
    monkeypatch.setattr(garbage, "PAGE_OBJECTS", page)
    home.stage({0: ["a"]})
    home.merge_all()
    home.garbage.sweep(home.report())  # has seen what is named
    topic_id = home.state.log.topics["u"].id
    past = Directory("u", 0, topic_id).prefix + remote_log_name(7, segment_id(0, Level.PIECES))
    stray, lower = new_staged_name(LOG_ID, 0, "stray"), position_name("g", 1)
    for name in (past, stray, lower, position_name("g", 2), position_name("g", 3)):
        home.store.put(name, b"x")
    drop_topic(home.commits, "t")
    report = home.report()
    uploads, others = 1, 3  # staged objects, groups, trials
    expected = 1 if page else 3 + others
    assert lists(home, lambda: home.garbage.sweep(report)) == expected + uploads
    assert {one.kind: one.objects for one in report.swept} == {
        "past": 1, "expired": 2, "position": 1
    }  # fmt: skip


# --- sweeps that are left out -------------------------------------------------------------------


def test_no_sweep_is_due_until_an_entry_comes(home: Home) -> None:
    home.commit("a")
    assert home.garbage.is_due(home.report())
    home.garbage.sweep(home.report(dry_run=True))
    assert home.garbage.is_due(home.report())
    swept(home)
    assert not home.garbage.is_due(home.report())
    assert home.garbage.is_due(home.report(dry_run=True))
    home.commit("b")
    assert home.garbage.is_due(home.report())


def test_a_late_request_is_found_within_a_day(home: Home) -> None:
    """It brings an object back, without an entry that could tell of it."""
    swept(home)
    home.store.put(new_staged_name(LOG_ID, 0, "late"), b"x")
    home.clock.advance(DAY - 1)
    assert not home.garbage.is_due(home.report())
    home.clock.advance(1)
    assert home.garbage.is_due(home.report())
    home.clock.advance(-2 * DAY)  # the clock was set back
    assert home.garbage.is_due(home.report())


def test_what_waits_for_readers_keeps_sweeps_going() -> None:
    home = Home(options=UpkeepOptions(threads=1, delete_delay_ms=60_000))
    home.topic()
    home.lead()
    home.commit("a")
    home.merge_all()
    swept(home)
    drop_topic(home.another().commits, "t")
    assert swept(home).swept == []
    assert home.garbage.is_due(home.report())
    home.clock.advance(60_000)
    assert [one.kind for one in swept(home).swept] == ["expired"]
    assert not home.garbage.is_due(home.report())


def test_what_a_higher_floor_makes_garbage_keeps_sweeps_going(home: Home) -> None:
    """A task of an attempt that was killed staged it, or one that will still be committed."""
    at_head = new_staged_name(LOG_ID, home.state.number, "task")
    home.store.put(at_head, b"x")
    swept(home)
    assert not home.garbage.is_due(home.report())  # no floor rises above it without an entry
    home.commit("a")
    swept(home)
    assert home.garbage.is_due(home.report())


def test_a_sweep_that_could_not_do_all_is_repeated(home: Home) -> None:
    home.commit("a")
    home.merge_all()
    (extent,) = home.state.extents[T0]
    home.garbage.cut(home.report())  # so the segment can't be written again
    home.store.delete([name for name in home.names() if extent.segment in name])
    assert swept(home).errors
    assert home.garbage.is_due(home.report())


def test_what_a_past_service_let_go_of_keeps_sweeps_going(home: Home) -> None:
    swept(home)
    home.lease.notes.let_go = {segment_id(1, Level.PIECES): home.clock()}
    assert home.garbage.is_due(home.report())


def test_states_are_listed_once_per_entry(home: Home) -> None:
    assert lists(home, lambda: home.garbage.states(home.report(dry_run=True))) == 1
    assert lists(home, lambda: home.garbage.states(home.report())) == 1
    assert lists(home, lambda: home.garbage.states(home.report())) == 0
    for number in (0, 1, 2):
        home.store.put(state_name(LOG_ID, number), b"x")
    home.commit("a")
    home.garbage.states(home.report())
    assert len(home.names("state")) == 2


def test_an_idle_service_lists_readers_alone(home: Home) -> None:
    upkeep = DisklessUpkeep(
        home.commits, lambda: Groups(GroupObjects(home.store)), home.options,
        timer=Timer(home.clock),
    )
    home.lease.release()
    assert upkeep.lease.acquire()
    readers = 1

    def retain() -> None:
        home.clock.advance(home.options.sweep_interval_ms)
        upkeep.retain(Report(path="p", time_ms=home.clock()))

    assert lists(home, retain) > readers
    for _ in range(3):
        assert lists(home, retain) == readers
    assert lists(home, retain) > readers  # a day later
