"""A broker's transactions in a compacted log in a store: what its cleaner leaves is what a log
dir's cleaner leaves."""

import copy
import random
from pathlib import Path
from typing import Any

import pytest

from sparklog.clock import ManualClock
from sparklog.diskless.merge_plan import Merge
from sparklog.diskless.merging import Merged
from sparklog.diskless.names import Level
from sparklog.fs import LOCAL
from sparklog.log.admin import delete_records
from sparklog.log.partition_reader import PartitionReader
from sparklog.logdir.cleaning.cleaner import clean_partition, plan_job
from sparklog.logdir.home import commits_of
from sparklog.logdir.partition.partition_segments import LogDirSegments
from sparklog.storage.lease import LeaseLostError
from sparklog.testing.faults import SimulatedKill
from sparklog.tiered.reading.remote_objects import RemoteObjects
from tests import depth
from tests.diskless.compacted import Imported, compacted, imported, visible
from tests.diskless.logs import T0, _chunk
from tests.diskless.transactions import (
    ABORT,
    FIRST,
    SECOND,
    aborted,
    apart,
    batches,
    brought,
    data,
    offsets,
    open_ones,
)
from tests.format.test_legacy import message
from tests.logdir.partitions import batch, marker
from tests.oracle.random_logs import DELETE_RETENTION_MS, TOPIC, Writer, config, opened

ISOLATIONS = ("read_uncommitted", "read_committed")
HOUR = 3_600_000


@pytest.mark.parametrize("seed", range(depth.CLEANED_TRANSACTIONS))
def test_as_the_log_dirs_cleaner_leaves_it(tmp_path: Path, seed: int) -> None:
    """Round after round, of the same segments; read up to the end and to an offset before it."""
    rng, clock = random.Random(seed), ManualClock()
    topic = config(rng)
    directory = tmp_path / f"{TOPIC}-0"
    with opened(tmp_path, clock) as log:
        log.create_topic(TOPIC, config=topic)
        writer = Writer(commits_of(log), clock, rng)
        for _ in range(3):
            writer.write(rng.randint(1, 4))
            job = plan_job(commits_of(log), TOPIC, 0)
            home = imported(directory, clock, topic)
            before = {
                (isolation, end): visible(home.reader(), isolation, end)
                for isolation in ISOLATIONS for end in (job.end // 2, job.end)
            }  # fmt: skip
            cleaned = home.clean_from(job.dirt.first_dirty)
            report = clean_partition(commits_of(log), TOPIC, 0)
            assert cleaned.next_dirty == report.next_dirty
            assert cleaned.records_kept == report.records_kept
            theirs = PartitionReader(LogDirSegments(LOCAL, str(directory), gaps=True))
            for isolation, end in before:
                ours = visible(home.reader(), isolation, end)
                expected = visible(theirs, isolation, end)
                if isolation == "read_committed" and end < job.end:
                    # A log dir keeps a transaction open in its snapshots when its records are gone.
                    assert ours[: len(expected)] == expected
                else:
                    assert ours == expected
                whole = visible(home.reader(), isolation, job.end)
                kept = [row for row in before[isolation, end] if row in whole]
                assert ours[: len(kept)] == kept
                assert ours == whole[: len(ours)]
            assert home.reader().last_stable_offset(job.end) == job.end
            clock.advance(rng.choice([0, DELETE_RETENTION_MS - 1, 5 * DELETE_RETENTION_MS]))


def test_what_was_aborted_goes_and_markers_stay(tmp_path: Path) -> None:
    """A marker waits for delete.retention.ms from when nothing of its transaction was left."""
    home = brought(tmp_path)
    assert offsets(home) == [0, 1, 7, 9]
    assert offsets(home, "read_uncommitted") == [0, 1, 2, 3, 7, 9]
    home.clean_from(0)
    left = [(1, 1), (3, 0), (4, 1), (5, 1), (6, 1), (7, 1), (8, 1), (9, 1)]
    assert batches(home) == left  # of producer 9 the header of its last batch
    assert aborted(home) == [(3, 4), (2, 6)]
    for isolation in ISOLATIONS:
        assert offsets(home, isolation) == [1, 7, 9]
    home.clean_from(0)  # begins the time of marker 6
    assert batches(home) == left
    assert aborted(home) == [(3, 4)]
    home.clock.advance(23 * HOUR)
    home.clean_from(0)
    assert batches(home) == left
    home.clock.advance(2 * HOUR)
    home.clean_from(0)
    assert batches(home) == [each for each in left if each != (6, 1)]
    assert aborted(home) == [(3, 4)]
    assert offsets(home) == [1, 7, 9]
    assert home.reader().last_stable_offset(10) == 10
    before = home.state.extents[T0]
    home.clean_from(0)
    assert home.state.extents[T0] == before  # nothing is left to do


def test_records_of_committed_transactions_supersede_and_are_superseded(tmp_path: Path) -> None:
    home = brought(tmp_path, FIRST, SECOND, (batch("3", key=b"a"),))
    home.clean_from(0)
    assert offsets(home) == [7, 9, 10]
    assert (1, 0) in batches(home)  # the last of producer 7
    assert (5, 1) in batches(home)


def test_aborted_records_supersede_nothing(tmp_path: Path) -> None:
    late = (data("c", "2", 9, 1), marker(ABORT, producer_id=9))
    home = brought(tmp_path, FIRST, SECOND, late)
    home.clean_from(10)  # its first batch is aborted, and the index is in this segment
    assert 7 in offsets(home)


def test_a_transaction_over_two_segments(tmp_path: Path) -> None:
    """Its records and its marker are rewritten one after the other."""
    home = apart(tmp_path)
    assert open_ones(home, 0) == {7: 1, 8: 2}
    assert home.clean_from(0).groups == 2
    assert aborted(home) == [(3, 4), (2, 6)]
    assert open_ones(home, 0) == {7: 1}  # nothing of what producer 8 aborted is left
    assert home.reader().last_stable_offset(5) == 1
    assert [offsets(home, end=end) for end in (5, 7, 11)] == [[], [1], [1, 7, 10]]


def test_a_cleaning_cut_anywhere_is_done_again(tmp_path: Path) -> None:
    """Indexes of aborted transactions and open ones are right whoever makes the manifests."""
    made = apart(tmp_path)
    made.lease.release()

    def begun() -> Imported:
        home = Imported(copy.deepcopy(made.bucket), made.clock)
        home.lead()
        return home

    home = begun()
    first = len(home.store.effects)
    home.clean_from(0)
    steps = len(home.store.effects) - first
    assert steps == 6  # of two segments: log, entry, manifest
    cuts = [(step, after) for step in range(1, steps + 1) for after in (False, True)]
    for step, after in cuts[:: depth.CUT_EVERY]:  # with 3: amid the first swap, and the second
        home = begun()
        home.store.crash_at(step, after=after)
        with pytest.raises(SimulatedKill):
            home.clean_from(0)
        again = Imported(home.bucket, home.clock)
        again.lead()
        assert offsets(again, end=7) in ([0, 1], [1])
        again.garbage.sweep(again.report())
        assert open_ones(again, 0) in ({7: 1, 8: 2}, {7: 1})
        assert (3, 4) in aborted(again)
        again.clean_from(0)
        assert offsets(again) == [1, 7, 10]
        assert open_ones(again, 0) == {7: 1}
        assert again.reader().last_stable_offset(11) == 11


def test_segments_that_change_meanwhile(tmp_path: Path) -> None:
    home = brought(tmp_path)
    real = home.merger.swap

    def late(*given: Any, **named: Any) -> Merged:
        delete_records(home.another().commits, "t", {0: 5})
        return real(*given, **named)

    home.merger.swap = late  # type: ignore[method-assign]
    (cleaned,), report = home.clean()
    assert cleaned.interrupted
    assert not report.errors
    assert offsets(home) == [7, 9]
    home.merger.swap = real  # type: ignore[method-assign]
    home.clean_from(5)
    assert offsets(home) == [7, 9]


def test_a_lease_that_is_lost_between_two_segments(tmp_path: Path) -> None:
    """Another service cleans the same; the first one's swap is refused."""
    home = apart(tmp_path)
    other = Imported(home.bucket, home.clock)
    real = home.merger.put_rewritten

    def late(merge: Merge, *given: Any, **named: Any) -> Any:
        made = real(merge, *given, **named)
        if merge.sources[0].base:
            home.clock.advance(120_000)
            other.lead()
            other.clean_from(0)
        return made

    home.merger.put_rewritten = late  # type: ignore[method-assign]
    with pytest.raises(LeaseLostError):
        home.clean()
    assert offsets(other) == [1, 7, 10]
    assert aborted(other) == [(3, 4)]  # what producer 8 aborted went with the first swap


def test_merged_segments_keep_their_aborted_transactions(tmp_path: Path) -> None:
    third = (data("e", "1", 7, 1),)
    home = brought(tmp_path, FIRST, SECOND, third, (marker(ABORT, producer_id=7),))
    state = home.state
    topic, sources = state.log.topics["t"], state.extents[T0]
    merge = Merge(T0, topic.id, topic.parsed(), sources[:3], Level.SEGMENTS, "a test")
    home.merger.merge(merge, state)
    assert len(home.state.extents[T0]) == 2
    assert aborted(home) == [(3, 4), (2, 6), (10, 11)]
    assert open_ones(home, 0) == {7: 10}
    assert offsets(home) == [0, 1, 7, 9]


def test_a_segment_without_transactions_costs_no_manifest(monkeypatch: pytest.MonkeyPatch) -> None:
    home = compacted()
    for sequence in range(3):
        one = batch(f"{sequence}", key=b"a", producer=(7, 0, sequence))
        home._append([_chunk("t", 0, one)])
        home.merge_all()
    monkeypatch.setattr(RemoteObjects, "open", lambda *_: pytest.fail("a manifest was read"))
    assert home.clean()[0][0].records_kept == 1


def test_batches_of_old_magics_are_left_alone(tmp_path: Path) -> None:
    home = brought(tmp_path)
    extent = home.state.extents[T0][0]
    old = message(0, b"a", b"1", magic=1)
    home.bucket.objects[extent.object] = old, home.clock()
    home.state.extents[T0] = (extent._replace(crc=-1, size=len(old)), *home.state.extents[T0][1:])
    cleaned, report = home.clean()
    assert cleaned == []
    assert "magic 0 or 1" in report.errors[0]
    assert T0 in home.quarantined.reasons
    assert home.clean()[1].errors == []
