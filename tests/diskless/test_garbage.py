"""Garbage: what goes, what must not, in which order, and what a dry run says."""

from dataclasses import replace

import pytest

from sparklog.common import TopicPartition
from sparklog.diskless.entries import decode
from sparklog.diskless.names import (
    Level,
    entry_name,
    new_staged_name,
    position_name,
    segment_id,
    service_name,
    state_name,
)
from sparklog.diskless.options import UpkeepOptions
from sparklog.diskless.retention import raise_log_starts
from sparklog.diskless.staged_chunks import delete_of_earlier_runs
from sparklog.errors import InvalidRequestError
from sparklog.log.admin import delete_records, delete_topic, drop_topic, undelete_topic
from sparklog.storage.commits import StagingExpiredError
from sparklog.storage.lease import LeaseLostError
from sparklog.testing.faults import SimulatedKill
from sparklog.tiered.layout.manifest import log_object, manifest_object
from sparklog.tiered.layout.object_names import Directory, manifest_name, remote_log_name
from tests.diskless.logs import LOG_ID, RING, T0, T1, Home, _chunk, commit_by_table
from tests.logdir.partitions import batch

DAY = 24 * 3600 * 1000


def prefix(home: Home, key: TopicPartition = T0) -> str:
    return Directory(*key, home.state.log.topics[key.topic].id).prefix


# --- replaced segments, manifests ---------------------------------------------------------------


def test_what_a_merge_replaced_goes_after_its_delay() -> None:
    home = Home(options=UpkeepOptions(threads=1, delete_delay_ms=60_000))
    home.topic(segment_ms="1000")
    home.lead()
    home.commit("a")
    home.merge_all()
    home.commit("b")
    home.merge_all()
    home.clock.advance(2000)
    (merge,) = home.due()
    done = home.merger.merge(merge, home.state)
    now = home.clock()
    home.garbage.schedule_deletion(T0, merge.topic_id, merge.sources, kind="replaced", now_ms=now)
    assert home.garbage.next_ms <= now + 60_000
    home.garbage.tidy(home.report())
    assert len(home.names(prefix(home))) == 6
    home.clock.advance(60_000)
    dry = home.report(dry_run=True)
    home.garbage.tidy(dry)
    assert len(home.names(prefix(home))) == 6
    report = home.report()
    home.garbage.tidy(report)
    assert [one.objects for one in dry.swept] == [one.objects for one in report.swept] == [4]
    (manifest,) = home.manifests()
    assert manifest.segment.id == done.segments[0].id
    assert home.garbage.next_ms == float("inf")


def test_a_manifest_goes_before_its_log(home: Home) -> None:
    home.commit("a")
    (done,) = home.merge_all()
    delete_records(home.commits, "t", {0: 1})
    home.garbage.schedule_deletion(
        T0, done.topic_id, home.state.extents.get(T0, ()), kind="x", now_ms=0
    ) if home.state.extents.get(T0) else None
    home.garbage.sweep(home.report())
    home.garbage.sweep(home.report())
    gone = [effect for effect in home.store.effects if effect.startswith("delete t-0")]
    assert [effect.rpartition(".")[2] for effect in gone] == ["manifest", "log"]


def test_missing_manifests_are_made_before_anything_goes(home: Home) -> None:
    """A service died between its entry and the manifest; the sources were merged before."""
    home.commit("a")
    home.store.crash_at(3, after=False)  # log, entry, then
    with pytest.raises(SimulatedKill):
        home.merge_all()
    again = home.another().lead()
    assert list(again.manifests()) == []
    dry = again.report(dry_run=True)
    again.garbage.sweep(dry)
    assert (dry.made_manifests, list(again.manifests())) == (1, [])
    again.garbage.sweep(again.report())
    (manifest,) = again.manifests()
    (extent,) = again.state.extents[T0]
    assert manifest.segment.id == extent.segment
    assert manifest.segment.time_ms == again.log.time_of(extent.born)
    raw = again.store.get(extent.object)
    assert manifest.segment.size == manifest.stored_size == len(raw)


def test_a_manifest_that_is_made_later_is_the_same(home: Home) -> None:
    home.commit("a", "b")
    home.merge_all()
    (before,) = home.manifests()
    raw = home.store.get(before.name)
    home.store.delete([before.name])
    home.garbage.sweep(home.report())
    assert home.store.get(before.name) == raw


def test_what_past_services_left_goes_and_nothing_else(home: Home) -> None:
    home.commit("a")
    (done,) = home.merge_all()
    topic_id = done.topic_id
    place = prefix(home)

    def put(term: int) -> list[str]:
        new = segment_id(term, Level.PIECES)
        names = [place + remote_log_name(7, new), place + manifest_name(7, new, 9, 3)]
        for name in names:
            home.store.put(name, b"")
        return names

    past, own, later = put(0), put(1), put(2)
    other = f"t-0-{topic_id[:-1]}x/00000000000000000000-x.log"
    home.store.put(other, b"")
    home.store.put(place + "readme", b"")
    home.garbage.sweep(home.report())
    left = set(home.names("t-0"))
    assert left.isdisjoint(past)
    assert {*own, *later, other, place + "readme"} <= left
    assert {name for name in left if done.segments[0].id in name} == {
        manifest_object(done.segments[0]),
        log_object(done.segments[0]),
    }


@pytest.mark.parametrize("skew_ms", [0, 3_600_000, -3_600_000])
def test_what_a_past_service_replaced_waits_its_time_too(skew_ms: int) -> None:
    """Its notes say since when; a clock that was ahead of ours keeps nothing longer than that."""
    home = Home(options=UpkeepOptions(threads=1, delete_delay_ms=60_000))
    home.topic(segment_ms="1000")
    home.lead()
    home.commit("a")
    home.merge_all()
    home.clock.advance(2000)
    home.commit("b")
    home.merge_all()
    home.clock.advance(2000)
    (merge,) = home.due()
    home.merger.merge(merge, home.state)
    now = home.clock() + skew_ms
    home.garbage.schedule_deletion(T0, merge.topic_id, merge.sources, kind="replaced", now_ms=now)
    home.store.put(prefix(home) + remote_log_name(7, segment_id(1, Level.PIECES)), b"left")
    home.lease.release()
    again = home.another().lead()
    assert again.lease.term == 2
    report = again.report()
    dry = home.another().report(dry_run=True)
    home.another().garbage.sweep(dry)
    again.garbage.sweep(report)
    late = skew_ms < 0  # by our clock it was let go of long ago
    assert len(again.names(prefix(again))) == (2 if late else 6)
    assert [(one.kind, one.objects) for one in report.swept] == [
        ("past", 1), *([("expired", 4)] if late else [])
    ]  # fmt: skip
    assert [(one.kind, one.objects) for one in dry.swept] == [
        (one.kind, one.objects) for one in report.swept
    ]
    due = float("inf") if late else again.clock() + 60_000
    assert again.garbage.waiting_ms(again.clock()) == due
    again.clock.advance(60_000)
    again.garbage.sweep(again.report())
    assert len(again.names(prefix(again))) == 2
    again.garbage.sweep(again.report())
    assert again.lease.notes.let_go == {}


# --- staged ------------------------------------------------------------------------------------


def test_staged_objects(home: Home) -> None:
    """Named and merged: gone. Named still, or of nobody and above the floor: they stay."""
    home.stage({0: ["a"]})
    partly = home.stage({0: ["b"], 1: ["c"]})
    stray = new_staged_name(LOG_ID, home.state.number, "stray")
    home.store.put(stray, b"x")
    for merge in home.due(merge_interval_ms=0):
        if merge.key == T0:
            done = home.merger.merge(merge, home.state)
            home.garbage.schedule_deletion(
                T0, merge.topic_id, done.sources, kind="replaced", now_ms=0
            )
    dry = home.report(dry_run=True)
    home.garbage.sweep(dry)
    home.garbage.sweep(home.report())
    assert set(home.names("staged")) == {partly, stray}
    assert [(one.kind, one.objects) for one in dry.swept] == [("staged", 1)]
    home.clock.advance(DAY + 1)
    home.commit("later", partition=1)
    home.garbage.raise_floor(home.report())
    assert home.state.floor > 0
    home.garbage.sweep(home.report())
    assert set(home.names("staged")) == {partly}
    assert [offset for offset, _ in home.read(T1)] == [0, 1]


def test_the_floor_is_by_the_stores_own_times(home: Home) -> None:
    """Whatever the service's clock says; entries that were cut look younger, no harm."""
    for n in range(20):
        home.commit(f"{n}")
        home.clock.advance(DAY // 10)
    report = home.report()
    home.garbage.raise_floor(report)
    floor = home.state.floor
    now = home.clock()
    ages = [now - home.bucket.objects[entry_name(LOG_ID, n)][1] for n in (floor, floor + 1)]
    assert ages[0] >= DAY > ages[1]
    assert str(floor) in report.notes[0]
    number = home.state.number
    home.garbage.raise_floor(home.report())  # nothing new
    assert home.state.number == number
    home.clock.advance(DAY)
    home.lease.renew()
    dry = home.report(dry_run=True)
    home.garbage.raise_floor(dry)
    assert home.state.floor == floor
    assert "would be" in dry.notes[0]


def test_what_was_staged_below_the_floor_is_refused(home: Home) -> None:
    name = new_staged_name(LOG_ID, 0, "slow")
    data = batch("a")
    home.store.put(name, data)
    for _ in range(3):
        home.commit("b")
    home.clock.advance(DAY + 1)
    home.commit("c")
    home.garbage.raise_floor(home.report())
    with pytest.raises(StagingExpiredError):
        home._append([_chunk("t", 0, data, path=name)])
    anew = new_staged_name(LOG_ID, home.state.number, "anew")
    home.store.put(anew, data)
    before = len(home.read())
    home._append([_chunk("t", 0, data, path=anew)])
    assert len(home.read()) == before + 1
    foreign = new_staged_name("M" * 32, home.state.number, "foreign")
    home.store.put(foreign, data)
    with pytest.raises(InvalidRequestError, match="stage the rows with a stager of this log"):
        home._append([_chunk("t", 0, data, path=foreign)])


def test_the_floor_is_the_first_number_that_is_kept(home: Home) -> None:
    """An object that was staged at the floor can be committed, so no sweep deletes it."""
    data = batch("a")
    for n in range(4):
        home.commit(f"{n}")
    home.clock.advance(DAY + 1)
    home.commit("later")
    home.garbage.raise_floor(home.report())
    floor = home.state.floor
    below, at, unused = (
        new_staged_name(LOG_ID, floor - less, "task") for less in (1, 0, 0)
    )  # fmt: skip
    for name in (below, at, unused):
        home.store.put(name, data)
    with pytest.raises(StagingExpiredError):
        home._append([_chunk("t", 0, data, path=below)])
    home.garbage.sweep(home.report())
    assert set(home.names("staged")) == {at, unused}
    home._append([_chunk("t", 0, data, path=at)])
    assert len(home.read()) == 6


def test_a_service_with_a_wrong_clock_raises_no_floor(home: Home) -> None:
    home.commit("a")
    home.clock.advance(1000)
    ahead = replace(home.report(), time_ms=home.clock() + 2 * DAY)
    home.garbage.raise_floor(ahead)
    assert home.state.floor == 0


def test_what_a_driver_staged_is_refused_below_a_floor_that_rose(home: Home) -> None:
    """It lost the race for its entry, and the floor is above what it staged by now."""
    writer = home.another()
    home.commit("a")
    real = writer.store.create

    def late(name: str, data: bytes) -> bool:
        writer.store.create = real  # type: ignore[method-assign]
        home.clock.advance(DAY + 1)
        home.commit("b")
        home.garbage.raise_floor(home.report())
        return real(name, data)

    writer.store.create = late  # type: ignore[method-assign]
    with pytest.raises(StagingExpiredError):
        writer.commit("x" * 300_000)
    assert len(home.read()) == 2


def test_nothing_is_decided_under_a_past_term() -> None:
    """Whatever a service believed: its entry has no place once another one leads."""
    home = Home()
    home.topic()
    home.topic("u", file_delete_delay_ms="1")
    home.lead()
    for n in range(2):
        home.commit(f"{n}")
    delete_topic(home.commits, "u")
    planned_on = home.state
    home.clock.advance(DAY + 1)
    other = home.another().lead()
    other.commit("later")
    number = home.state.number
    with pytest.raises(LeaseLostError, match="this service had term 1"):
        raise_log_starts(home.log, planned_on, {T0: 1}, term=1)
    with pytest.raises(LeaseLostError, match="this service had term 1"):
        home.garbage.raise_floor(home.report())
    with pytest.raises(LeaseLostError, match="this service had term 1"):
        home.garbage.give_up_topics(home.report())
    assert home.state.number == number


def test_retention_of_a_topic_that_was_made_again(home: Home) -> None:
    """What was due of the former topic says nothing of the records of the new one."""
    home.commit("a")
    planned_on = home.state
    drop_topic(home.commits, "t")
    home.topic(partitions=2)
    home.commit("b")
    assert raise_log_starts(home.log, planned_on, {T0: 2}, term=1) == {}
    assert [offset for offset, _ in home.read()] == [1]


def test_a_topic_that_is_given_back_while_it_is_given_up() -> None:
    """Whichever entry is there first decides, and the other one is never made."""
    home = Home()
    home.topic(file_delete_delay_ms="1")
    home.lead()
    home.commit("a")
    delete_topic(home.commits, "t")
    home.clock.advance(1000)
    other, real = home.another(), home.store.list

    def lists(*given: str) -> object:
        found = real(*given)
        if given[0].startswith("ledger-"):
            undelete_topic(other.commits, "t")
            home.store.list = real  # type: ignore[method-assign]
        return found

    home.store.list = lists  # type: ignore[method-assign, assignment]
    home.garbage.give_up_topics(home.report())
    assert home.state.number == other.state.number
    assert [offset for offset, _ in home.read()] == [0]


def test_what_was_replaced_goes_after_the_manifest_of_what_covers_it() -> None:
    """Who reads manifests alone never loses what it saw."""
    home = Home()
    home.topic(segment_ms="1000")
    home.lead()
    for value in "ab":
        home.commit(value)
        home.merge_all()
    home.clock.advance(2000)
    (merge,) = home.due()
    home.store.crash_at(3, after=False)  # log, entry, then
    with pytest.raises(SimulatedKill):
        home.merger.merge(merge, home.state)
    again = home.another().lead()
    again.garbage.schedule_deletion(T0, merge.topic_id, merge.sources, kind="replaced", now_ms=0)
    again.garbage.tidy(again.report())
    (manifest,) = again.manifests()
    assert manifest.segment.id == again.state.extents[T0][0].segment


def test_plain_rows_are_refused_where_the_log_is_encrypted() -> None:
    home = Home(keyring=RING)
    home.topic()
    home.lead()
    home.commit("a")
    home.merge_all()
    with pytest.raises(InvalidRequestError, match="this writer has no key ring"):
        home.commits.check([])


def test_what_is_named_is_not_deleted_after_its_delay(home: Home) -> None:
    home.commit("a")
    (done,) = home.merge_all()
    named = home.state.extents[T0]
    home.garbage.schedule_deletion(T0, done.topic_id, named, kind="replaced", now_ms=0)
    home.garbage.tidy(home.report())
    assert len(home.read()) == 1


def test_what_lies_behind_the_table_of_a_deleted_topic_stays() -> None:
    home = Home()
    home.topic(file_delete_delay_ms="1000000")
    home.lead()
    names = commit_by_table(home, {0: ["a", "b"]})
    delete_topic(home.commits, "t")
    kept = [new_staged_name(LOG_ID, home.state.number, "task0")]
    assert delete_of_earlier_runs(home.store, home.state, "task0", kept) == 0
    home.clock.advance(DAY + 1)
    home.topic("u")
    home.garbage.raise_floor(home.report())
    home.garbage.sweep(home.report())
    assert set(home.names("staged")) == set(names)


def test_what_a_deleted_topic_holds_stays() -> None:
    home = Home()
    home.topic(file_delete_delay_ms="1000000")
    home.lead()
    home.commit("inline")
    home.stage({0: ["staged"]})
    before = home.read()
    delete_topic(home.commits, "t")
    home.clock.advance(DAY + 1)
    home.topic("u")
    home.garbage.raise_floor(home.report())
    home.garbage.sweep(home.report())
    home.garbage.cut(home.report())
    undelete_topic(home.commits, "t")
    assert home.read() == before


# --- inline data -------------------------------------------------------------------------------


def test_inline_data_are_cut_when_no_extent_lies_in_them(home: Home) -> None:
    home.commit("a" * 50)
    inline = home.state.number
    home.commit("b" * 50)
    name = entry_name(LOG_ID, inline)
    whole = home.store.get(name)
    home.garbage.cut(home.report())
    assert home.store.get(name) == whole
    before = home.read()
    home.merge_all()
    dry = home.report(dry_run=True)
    home.garbage.cut(dry)
    assert home.store.get(name) == whole
    report = home.report()
    home.garbage.cut(report)
    cut = home.store.get(name)
    entry = decode(whole, number=inline, path="")
    assert whole.startswith(cut)
    assert len(cut) == entry.data_at
    assert decode(cut, number=inline, path="") == entry
    assert [(one.kind, one.objects) for one in dry.swept] == [("inline", 2)]
    assert dry.swept == report.swept
    assert home.read() == before
    # who opens the log folds the same
    assert home.another().read() == before
    gets = home.store.counts.gets
    home.garbage.cut(home.report())
    assert home.store.counts.gets - gets <= 2  # the head, and the newest entries
    assert home.lease.notes.cut_below == home.state.next_number


def test_a_part_of_inline_data_that_is_still_named_keeps_them(home: Home) -> None:
    home._append([_chunk("t", p, batch(f"x{p}")) for p in (0, 1)])
    inline = home.state.number
    (merge,) = [m for m in home.due(merge_interval_ms=0) if m.key == T0]
    home.merger.merge(merge, home.state)
    size = len(home.store.get(entry_name(LOG_ID, inline)))
    home.garbage.cut(home.report())
    assert len(home.store.get(entry_name(LOG_ID, inline))) == size
    assert home.lease.notes.cut_below == inline
    assert len(home.read(T1)) == 1
    home.merge_all()
    home.garbage.cut(home.report())
    assert len(home.store.get(entry_name(LOG_ID, inline))) < size


def test_inline_data_wait_for_readers_that_plan_with_them(home: Home) -> None:
    """By the service's own clock: a writer's that is a day ahead holds nothing up."""
    home.clock.advance(DAY)
    home.commit("a")
    home.clock.advance(-DAY)
    home.merge_all()
    report = home.report()
    home.garbage.cut(report, delay_ms=60_000)
    assert not report.swept
    home.clock.advance(61_000)
    report = home.report()
    home.garbage.cut(report, delay_ms=60_000)
    assert [one.kind for one in report.swept] == ["inline"]
    assert home.lease.notes.cut_below > 0


# --- the rest ----------------------------------------------------------------------------------


def test_of_states_the_newest_two_stay(home: Home) -> None:
    for number in (3, 9, 20):
        home.store.put(state_name(LOG_ID, number), b"x")
    home.garbage.states(home.report(dry_run=True))
    assert len(home.names("state")) == 3
    home.garbage.states(home.report())
    assert home.names("state") == [state_name(LOG_ID, number) for number in (9, 20)]


def test_of_a_groups_positions_the_two_highest_stay(home: Home) -> None:
    for number in (1, 2, 10):
        home.store.put(position_name("g", number), b"")
    home.store.put(position_name("h/x", 4), b"")
    home.garbage.sweep(home.report())
    kept = [position_name("g", 2), position_name("g", 10), position_name("h/x", 4)]
    assert home.names("readers") == sorted(kept)


def test_a_topic_that_was_deleted(home: Home) -> None:
    """By somebody else, while this service holds the term that made its segments."""
    home.commit("a")
    staged = home.stage({0: ["b"], 1: ["c"]})
    home.merge_all()
    place = prefix(home)
    home.garbage.sweep(home.report())
    assert home.names(place)
    drop_topic(home.another().commits, "t")
    home.garbage.sweep(home.report())
    assert home.names(place) == []
    assert staged not in home.names("staged")
    assert home.names(service_name(1))


def test_a_topic_that_was_deleted_while_no_service_was_there(home: Home) -> None:
    home.commit("a")
    home.merge_all()
    place = prefix(home)
    drop_topic(home.commits, "t")
    home.lease.release()
    again = home.another().lead()
    again.garbage.sweep(again.report())
    assert again.names(place) == []


def test_records_that_were_deleted(home: Home) -> None:
    home.commit("a")
    home.merge_all()
    home.commit("b")
    home.merge_all()
    home.garbage.sweep(home.report())
    state = home.state
    taken = raise_log_starts(home.log, state, {T0: 1}, term=1)
    assert [extent.base for extent in taken[T0]] == [0]
    assert raise_log_starts(home.log, state, {T0: 1}, term=1) == {}
    topic_id = state.log.topics["t"].id
    home.garbage.schedule_deletion(T0, topic_id, taken[T0], kind="expired", now_ms=0)
    report = home.report()
    home.garbage.tidy(report)
    assert [(one.kind, one.objects) for one in report.swept] == [("expired", 2)]
    assert [offset for offset, _ in home.read()] == [1]


def test_a_sweep_cut_anywhere_is_done_again() -> None:
    def begun() -> Home:
        home = Home()
        home.topic()
        home.lead()
        home.stage({0: ["a"]})
        home.commit("b")
        home.merge_all()
        home.commit("c")
        home.merge_all()
        delete_records(home.another().commits, "t", {0: 2})
        return home

    def work(home: Home) -> None:
        report = home.report()
        home.garbage.sweep(report)
        home.garbage.tidy(report)
        home.garbage.cut(report)
        home.garbage.states(report)

    whole = begun()
    first = len(whole.store.effects)
    work(whole)
    steps, want = len(whole.store.effects) - first, set(whole.names())
    assert steps >= 3
    for step in range(1, steps + 1):
        for after in (False, True):
            home = begun()
            home.store.crash_at(step, after=after)
            with pytest.raises(SimulatedKill):
                work(home)
            again = home.another().lead()
            before = again.read()
            again.clock.advance(DAY + 1)  # who didn't see it named waits for the floor
            again.commit("later")
            again.garbage.raise_floor(again.report())
            work(again)
            assert again.read()[: len(before)] == before
            assert again.names("staged") == [] == [n for n in want if n.startswith("staged")]
            (first_segment, *_) = again.state.extents[T0]
            logs = [name for name in again.names("t-0") if name.endswith(".log")]
            assert logs == [first_segment.object]


def test_a_lease_that_is_lost_and_taken_again_while_a_sweep_looks(home: Home) -> None:
    """What counts as past goes by the term that was held when the sweep began."""
    home.commit("a")
    home.store.put(prefix(home) + remote_log_name(0, segment_id(2, Level.PIECES)), b"x")
    real = home.store.list

    def lists(*given: str, **named: str) -> object:
        home.lease.term = 3  # another thread of this service has taken it again
        return real(*given, **named)

    home.store.list = lists  # type: ignore[method-assign, assignment]
    home.garbage.sweep(home.report(dry_run=True))
    report = home.report(dry_run=True)
    home.lease.term = 1
    home.garbage.sweep(report)
    assert [one.kind for one in report.swept] == []


def test_who_has_no_lease_sweeps_nothing(home: Home) -> None:
    with pytest.raises(LeaseLostError):
        home.another().garbage.sweep(home.report())
