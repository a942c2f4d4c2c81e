"""Compaction of a log in a store: which records stay, what is swapped, what stops it."""

from dataclasses import replace

import pytest

from sparklog.clock import ManualClock
from sparklog.diskless.names import Level, level_of
from sparklog.diskless.options import UpkeepOptions
from sparklog.log.admin import delete_records
from sparklog.log.partition_reader import PartitionReader
from sparklog.testing.faults import SimulatedKill
from tests.diskless.compacted import Compacted, compacted, visible
from tests.diskless.logs import RING, T0, _chunk
from tests.logdir.partitions import batch

HOUR = 3_600_000


@pytest.fixture
def home() -> Compacted:
    return compacted()


@pytest.mark.parametrize("keyring", [None, RING], ids=["plain", "encrypted"])
def test_of_each_key_the_newest_stays(keyring: object) -> None:
    home = compacted(keyring=keyring)
    home.write(a="1", b="1")
    home.write(a="2", c="1")
    home.merge_all()
    home.write(a="3")
    before = dict(home.read())
    cleaned, report = home.clean()
    assert not report.errors
    assert home.offsets() == [1, 2, 3, 4]  # the piece isn't cleaned: it is the active segment
    assert dict(home.read()).items() <= before.items()
    assert (cleaned[0].records_read, cleaned[0].records_kept) == (4, 3)
    assert cleaned[0].next_dirty == 4
    state = home.state
    assert T0 in state.gaps
    assert [(e.base, e.end) for e in state.extents[T0]] == [(0, 4), (4, 5)]
    assert level_of(state.extents[T0][0].segment, term=state.term) is Level.CLEANED
    (manifest,) = [m for m in home.manifests() if m.segment.id == state.extents[T0][0].segment]
    assert manifest.gaps
    assert (manifest.encryption is None) == (keyring is None)
    home.merge_all()
    home.clean()
    assert home.offsets() == [1, 3, 4]


def test_a_read_may_end_where_compaction_removed_records(home: Compacted) -> None:
    home.write(a="1", b="1")
    home.write(a="2")
    home.write(a="3")
    home.merge_all()
    home.clean()
    reader = PartitionReader(home.merger.segments(T0, home.state))
    assert [row["offset"] for row in visible(reader, "read_uncommitted", 3)] == [1]


def test_pieces_are_not_cleaned(home: Compacted) -> None:
    home.write(a="1", b="2")
    home.write(a="3")
    assert home.clean() == ([], home.report())


def test_what_holds_nothing_old_stays_as_it_is(home: Compacted) -> None:
    home.write(a="1", b="2")
    home.merge_all()
    (before,) = home.state.extents[T0]
    cleaned, _ = home.clean()
    assert cleaned[0].groups == 1
    assert home.state.extents[T0] == (before,)
    assert home.clean()[0] == []  # and isn't looked at again
    again = Compacted(home.bucket, home.clock)
    home.lease.release()
    again.lead()
    assert again.clean()[0] == []  # nor by the next service


def test_tombstones_stay_for_their_time(home: Compacted) -> None:
    home.write(a="1")
    home.write(a=None)
    home.write(b="1")
    home.merge_all()
    home.clean()  # begins the time of the tombstone
    assert home.offsets() == [1, 2]
    home.clock.advance(23 * HOUR)
    home.write(c="1")
    home.merge_all()
    home.clean()
    assert home.offsets() == [1, 2, 3]
    home.clock.advance(2 * HOUR)
    home.write(d="1")
    home.merge_all()
    home.clean()
    assert home.offsets() == [2, 3, 4]


def test_the_last_batch_of_a_producer_stays(home: Compacted) -> None:
    """Without its records: so its sequence is known to who has the segments alone."""
    data = batch("1", key=b"a", producer=(7, 0, 0))
    home._append([replace(_chunk("t", 0, data), idempotent=True)])
    home.write(a="2")
    home.merge_all()
    home.clean()
    assert [(offset, bool(records)) for offset, records in home.read()] == [(0, False), (1, True)]


def test_a_segment_that_ends_within_a_batch_is_left_alone(home: Compacted) -> None:
    home.write(a="1")
    home.write(a="2", b="1")
    home.merge_all()
    (extent,) = home.state.extents[T0]
    home.state.extents[T0] = (extent._replace(size=extent.size - 10, crc=-1),)
    cleaned, report = home.clean()
    assert cleaned == []
    assert "it ends in a torn batch" in report.errors[0]


def test_a_dry_run_says_what_is_dirty(home: Compacted) -> None:
    home.write(a="1", b="1")
    home.merge_all()
    before = home.names()
    cleaned, _ = home.clean(dry_run=True)
    assert [(c.dirt.first_dirty, c.dirt.first_uncleanable) for c in cleaned] == [(0, 2)]
    assert home.names() == before


def test_lags() -> None:
    other = Compacted(clock=ManualClock())
    other.topic(cleanup_policy="compact", min_compaction_lag_ms=str(HOUR))
    other.lead()
    other.commit("1", key=b"a", at=other.clock())
    other.merge_all()
    assert other.clean()[0] == []
    other.clock.advance(HOUR + 1)
    assert len(other.clean()[0]) == 1
    late = Compacted()
    late.topic(cleanup_policy="compact", max_compaction_lag_ms=str(HOUR))
    late.lead()
    late.commit("1", key=b"a", at=late.clock())
    late.merge_all()
    late.clock.advance(2 * HOUR)
    assert late.clean(every=False, dry_run=True)[0][0].dirt.overdue_ms == HOUR


def test_a_segment_that_changed_meanwhile(home: Compacted) -> None:
    home.write(a="1", b="1")
    home.write(a="2")
    home.merge_all()
    real = home.merger.swap

    def late(*given: object, **named: object) -> object:
        delete_records(home.another().commits, "t", {0: 3})
        return real(*given, **named)  # type: ignore[arg-type]

    home.merger.swap = late  # type: ignore[method-assign, assignment]
    cleaned, report = home.clean()
    assert cleaned[0].interrupted
    assert not report.errors
    assert home.offsets() == []
    assert "t/0" not in home.lease.notes.cleaned


def test_damage_is_left_alone(home: Compacted) -> None:
    home.write(a="1")
    home.merge_all()
    (extent,) = home.state.extents[T0]
    data, time_ms = home.bucket.objects[extent.object]
    home.bucket.objects[extent.object] = data[:65] + b"\xff" + data[66:], time_ms
    before, number = dict(home.bucket.objects), home.state.number
    assert "crc" in home.clean()[1].errors[0]
    assert home.state.number == number  # nothing was put in its place
    assert all(home.bucket.objects[name] == held for name, held in before.items())


def test_a_cleaning_cut_anywhere_is_done_again() -> None:
    def begun() -> Compacted:
        home = compacted()
        home.write(a="1", b="1")
        home.write(a="2")
        home.merge_all()
        return home

    whole = begun()
    first = len(whole.store.effects)
    whole.clean()
    steps = len(whole.store.effects) - first
    assert steps == 3  # log, entry, manifest
    for step in range(1, steps + 1):
        for after in (False, True):
            home = begun()
            home.store.crash_at(step, after=after)
            with pytest.raises(SimulatedKill):
                home.clean()
            again = Compacted(home.bucket, home.clock)
            again.lead()
            again.clean()
            assert again.offsets() == [1, 2]
            again.garbage.sweep(again.report())
            (extent,) = again.state.extents[T0]
            assert [m.log_name for m in again.manifests()] == [extent.object]


def test_several_small_segments_become_one() -> None:
    home = Compacted(options=UpkeepOptions(threads=1, delete_delay_ms=0))
    home.topic(cleanup_policy="compact", min_cleanable_dirty_ratio="0")
    home.lead()
    for n in range(4):
        home.write(a=f"{n}")
        home.write(b=f"{n}")
        home.merge_all()
    assert len(home.state.extents[T0]) == 4
    cleaned, _ = home.clean()
    assert (cleaned[0].groups, cleaned[0].segments) == (1, 4)
    assert home.offsets() == [6, 7]
    home.garbage.tidy(home.report())
    assert len([name for name in home.names("t-0") if name.endswith(".log")]) == 1
