"""The service writes damaged segments again, before it deletes what they were merged from."""

import pytest

from sparklog.diskless.extents import Extents
from sparklog.diskless.groups import GroupObjects
from sparklog.diskless.home_object import create_home
from sparklog.diskless.options import UpkeepOptions
from sparklog.diskless.segment_healing import SegmentHealer
from sparklog.diskless.upkeep import DisklessUpkeep
from sparklog.storage.group_store import Groups
from sparklog.storage.round_report import Report
from tests.diskless.logs import LOG_ID, T0, T1, Home


def merged(*, commits: int = 1, **options: int) -> Home:
    """A service's log with a segment for each commit of both partitions."""
    home = Home(options=UpkeepOptions(threads=1, delete_delay_ms=60_000, **options))
    create_home(home.store, LOG_ID, home.clock)
    home.topic(partitions=2, retention_ms="-1")
    home.lead()
    for number in range(commits):
        home.stage({0: [f"a{number}", f"b{number}"], 1: [f"x{number}"]})
        home.merge_all()
    return home


def upkeep_of(home: Home) -> DisklessUpkeep:
    upkeep = DisklessUpkeep(home.commits, lambda: Groups(GroupObjects(home.store)), home.options)
    upkeep.lease, upkeep.merger, upkeep.garbage = home.lease, home.merger, home.garbage
    return upkeep


def change(home: Home, name: str, data: bytes) -> None:
    home.bucket.objects[name] = data, home.bucket.objects[name][1]


def sweep(home: Home) -> Report:
    """Sweep as often as it takes until nothing waits for its delay."""
    for _ in range(3):
        report = home.report()
        home.garbage.tidy(report)
        home.garbage.sweep(report)
        home.clock.advance(70_000)
        home.lease.renew()
    return report


def test_a_sweep_heals_a_missing_segment_before_its_sources_go() -> None:
    home = merged()
    before = home.read(), home.read(T1)
    del home.bucket.objects[home.state.extents[T0][0].object]
    report = home.report()
    home.garbage.sweep(report)
    assert report.errors == []
    assert any("offsets [0, 2) was written again" in note for note in report.notes), report
    assert (home.read(), home.read(T1)) == before
    sweep(home)
    assert home.names("staged-") == []  # its work is done
    assert (home.read(), home.read(T1)) == before


def test_a_segment_that_is_too_short_counts_as_missing() -> None:
    home = merged()
    before = home.read()
    extent = home.state.extents[T0][0]
    change(home, extent.object, home.bucket.objects[extent.object][0][:-1])
    home.garbage.sweep(home.report())
    assert home.read() == before


def test_a_dry_run_and_a_lagging_listing_heal_nothing() -> None:
    home = merged()
    extent = home.state.extents[T0][0]
    number = home.state.number
    home.bucket.unlisted[extent.object] = None, home.clock() + 1_000_000
    home.garbage.sweep(home.report())
    del home.bucket.objects[extent.object]
    home.garbage.sweep(home.report(dry_run=True))
    assert home.state.number == number


def test_what_cannot_be_healed_is_an_error_and_the_sweep_goes_on() -> None:
    home = merged()
    sweep(home)  # the staged objects are gone
    del home.bucket.objects[home.state.extents[T0][0].object]
    home.stage({0: ["c"]})
    home.merge_all()
    report = sweep(home)
    assert any("restore the object from a copy" in error for error in report.errors)
    assert home.names("staged-") == []


def test_a_merge_of_a_damaged_segment_heals_it_first() -> None:
    home = merged(commits=2, merge_max_extents=2)
    upkeep = upkeep_of(home)
    before = home.read()
    first = home.state.extents[T0][0]
    raw = home.bucket.objects[first.object][0]
    change(home, first.object, raw[:-3] + bytes([raw[-3] ^ 1]) + raw[-2:])
    report = home.report()
    upkeep.merge(report)
    assert any("was written again" in note for note in report.notes), report
    assert not upkeep.uncleanable
    report = home.report()
    upkeep.merge(report)
    assert report.errors == []
    assert len(home.state.extents[T0]) == 1
    assert home.read() == before


def test_the_segments_of_one_merge_are_healed_together() -> None:
    """A merge made several segments of one large extent, whose offsets no single segment has."""
    home = Home(options=UpkeepOptions(threads=1, delete_delay_ms=60_000))
    create_home(home.store, LOG_ID, home.clock)
    home.topic(segment_bytes=str(1 << 20))
    home.lead()
    home.stage({0: [letter * 700_000 for letter in "abc"]})
    home.merge_all()
    before, extents = home.read(), home.state.extents[T0]
    assert len(extents) > 1
    del home.bucket.objects[extents[1].object]
    SegmentHealer(home.log, None).heal(T0, extents[1])
    assert home.read() == before
    assert not {one.segment for one in extents} & {e.segment for e in home.state.extents[T0]}


# --- deletions beside damage ----------------------------------------------------------------------


def committed_inline() -> Home:
    """A log whose two commits are merged into one segment; their data are in entries still."""
    home = Home(options=UpkeepOptions(threads=1, delete_delay_ms=0))
    create_home(home.store, LOG_ID, home.clock)
    home.topic(retention_ms="-1")
    home.lead()
    home.commit("a" * 50)
    home.commit("b" * 50)
    home.merge_all()
    return home


@pytest.mark.parametrize("how", ["missing", "short"])
def test_inline_data_stay_until_their_segment_is_written_again(how: str) -> None:
    home = committed_inline()
    before, (extent,) = home.read(), home.state.extents[T0]
    if how == "missing":
        del home.bucket.objects[extent.object]
    else:
        change(home, extent.object, home.bucket.objects[extent.object][0][:-1])
    report = home.report()
    home.garbage.cut(report)
    assert not report.swept
    assert any("was written again" in note for note in report.notes), report
    assert home.read() == before
    home.garbage.cut(report := home.report())
    assert [one.objects for one in report.swept] == [2]
    assert home.read() == before


def two_generations() -> tuple[Home, Extents]:
    """Two segments that were merged into one, whose sources wait for their delay."""
    home = merged(commits=2, merge_max_extents=2)
    sweep(home)
    sources = home.state.extents[T0]
    upkeep = upkeep_of(home)
    upkeep.merge(home.report())
    assert len(home.state.extents[T0]) == 1
    home.clock.advance(70_000)
    home.lease.renew()
    return home, sources


def test_segments_stay_until_the_one_that_replaced_them_is_written_again() -> None:
    home, _ = two_generations()
    before, (extent,) = home.read(), home.state.extents[T0]
    del home.bucket.objects[extent.object]
    report = home.report()
    home.garbage.tidy(report)
    assert any("was written again" in note for note in report.notes), report
    assert home.read() == before
    sweep(home)
    assert home.read() == before


def test_sources_of_a_segment_that_cannot_be_written_again_are_kept() -> None:
    """One of the two sources is damaged as well: the other one may be the last copy of its half."""
    home, sources = two_generations()
    (extent,) = home.state.extents[T0]
    del home.bucket.objects[extent.object]
    raw = home.bucket.objects[sources[0].object][0]
    change(home, sources[0].object, raw[:-3] + bytes([raw[-3] ^ 1]) + raw[-2:])
    for _ in range(2):
        report = home.report()
        home.garbage.tidy(report)
        assert any(
            f"{extent.object} is missing or too short, so the objects that the segment was merged"
            in error
            for error in report.errors
        ), report
        assert all(each.object in home.bucket.objects for each in sources)


def test_deletions_ask_once_for_each_segment() -> None:
    home = committed_inline()
    home.log.follow()
    before = home.store.counts.gets
    home.garbage.cut(home.report())
    entries = home.state.next_number
    assert home.store.counts.gets - before <= entries + 3  # a segment, and the ledger's head
