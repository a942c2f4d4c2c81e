"""Erasure in a log in a store: what is rewritten, what goes or is cut, what stays for others.

The proof is in the bytes: no object of the bucket holds the key or its values any more.
"""

import itertools
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from sparklog.common import TopicPartition
from sparklog.diskless.groups import GroupObjects
from sparklog.diskless.merging import Merger
from sparklog.diskless.names import Level, segment_id
from sparklog.diskless.segment_healing import segment_of
from sparklog.diskless.service_log import ConflictError
from sparklog.diskless.upkeep import DisklessUpkeep
from sparklog.errors import InvalidRequestError, StorageUnavailableError, UnknownTopicError
from sparklog.log.admin import delete_topic
from sparklog.log.batch_windows import walk
from sparklog.storage.erasure_report import ErasureReport
from sparklog.storage.group_store import Groups
from sparklog.storage.upkeep import ErasureRequest
from sparklog.testing.faults import SimulatedKill
from sparklog.tiered.layout.manifest import manifest_object
from sparklog.tiered.layout.object_names import Directory, remote_log_name
from tests import depth
from tests.diskless.logs import RING, T0, T1, Home, _chunk, commit_by_table
from tests.diskless.transactions import (
    ABORT,
    COMMIT,
    aborted,
    brought,
    data,
    offsets,
    open_ones,
)
from tests.logdir.partitions import batch, marker

SECRET = b"secret-of-alice"


class OfAlice:
    """Chooses by key, and by value where a record has none."""

    columns = ("key", "value")

    def __call__(self, records: pa.RecordBatch) -> pa.Array:
        values = records.column("value").cast(pa.string())
        is_alice = pc.equal(records.column("key").cast(pa.binary()), b"alice")
        return pc.or_kleene(is_alice, pc.starts_with(values, SECRET.decode()))


def upkeep_of(home: Home) -> DisklessUpkeep:
    upkeep = DisklessUpkeep(
        home.commits, lambda: Groups(GroupObjects(home.store)), home.options, keyring=home.keyring,
    )  # fmt: skip
    upkeep.lease = home.lease
    upkeep.merger, upkeep.garbage = home.merger, home.garbage
    return upkeep


@dataclass(frozen=True)
class Granted:
    """A lease that is to be had, or not."""

    leading: bool

    def begin(self) -> bool:
        return self.leading

    def is_over(self) -> bool:
        return False

    def end(self) -> None:
        pass


def erase(
    home: Home, *, leading: bool = True, dry_run: bool = False, **given: Any
) -> ErasureReport:
    request = ErasureRequest(**{"topic": "t", "predicate": OfAlice(), "dry_run": dry_run} | given)
    report = ErasureReport(
        path=home.store.url, log_id="", topic="t", topic_id="", time_ms=home.clock(),
        dry_run=dry_run,
    )  # fmt: skip
    upkeep_of(home).erase(request, report, Granted(leading))
    return report


def holding(home: Home, raw: bytes = SECRET) -> list[str]:
    """The objects of the bucket that hold these bytes."""
    return [name for name in home.names() if raw in home.store.get(name)]


def rows(home: Home, key: TopicPartition = T0) -> list[tuple[int, bool]]:
    """(offset, whether it is the secret's) of each batch with records."""
    return [(offset, SECRET in data) for offset, data in home.read(key) if data]


def secret(n: int = 0) -> str:
    return f"{SECRET.decode()}-{n}"


def small(home: Home) -> None:
    """Two inline commits of a key each, merged ones, and one on top."""
    home.commit(secret(0), key=b"alice")
    home.commit("of-bob-0", key=b"bob")
    home.merge_all()
    home.commit("of-bob-1", key=b"bob")
    home.commit(secret(1), key=b"alice")


def staged(home: Home) -> None:
    """One object of two partitions: the secret in one of them, in two batches."""
    home.stage({0: [secret(0), secret(1)], 1: ["of-carol"]}, key=b"alice")
    home.stage({0: ["of-bob"], 1: ["of-dora"]}, key=b"bob")


def tabled(home: Home) -> None:
    """A commit of very many tasks, by an extent table."""
    home.commit("of-bob-0", key=b"bob")
    commit_by_table(home, {0: ["a", secret(1), "c"], 1: ["d", "e"]})
    home.commit(secret(0), key=b"alice")


@pytest.fixture(params=[None, RING], ids=["plain", "encrypted"])
def home(request: pytest.FixtureRequest) -> Home:
    home = Home(keyring=request.param)
    home.topic(partitions=2)
    home.lead()
    return home


@pytest.mark.parametrize("make", [small, staged, tabled])
def test_nothing_is_left(home: Home, make: Any) -> None:
    make(home)
    before = {key: rows(home, key) for key in (T0, T1)}
    gone = [offset for offset, is_secret in before[T0] if is_secret]
    assert gone
    rehearsed = erase(home, dry_run=True)
    assert {key: rows(home, key) for key in (T0, T1)} == before
    report = erase(home)
    assert report.complete, (report.pending, report.errors)
    assert report.partitions[0].offsets == rehearsed.partitions[0].offsets
    assert list(itertools.chain(*(range(*r) for r in report.partitions[0].offsets.ranges))) == gone
    assert rows(home) == [(o, False) for o, is_secret in before[T0] if not is_secret]
    left = [(o, SECRET in d) for o, d in home.read(T1) if d]
    assert len(left) == len([r for r in before[T1] if r[1] is False]) - (make is staged)
    assert not holding(home)
    again = erase(home)
    assert again.complete
    assert again.records == 0
    assert not again.partitions[0].erased_from


def test_who_lies_in_the_same_object_is_moved_as_it_is() -> None:
    home = Home()
    home.topic(partitions=2)
    home.topic("u")
    home.lead()
    name = home.stage({0: [secret()], 1: ["of-carol"]}, key=b"alice")
    home.stage({0: ["a"]}, topic="u", key=b"zoe")
    before = home.read(T1)
    report = erase(home, partitions=[0])
    assert home.read(T1) == before  # partition 1 was not meant, though its key is the same
    assert name not in home.names()
    assert not holding(home)
    assert [(one.records, one.name.startswith(home.store.url)) for one in
            report.partitions[0].erased_from] == [(1, True), (0, True)]  # fmt: skip
    untouched = TopicPartition("u", 0)
    assert not home.state.extents[untouched][0].segment


def test_without_the_lease_what_the_service_keeps_is_told() -> None:
    service = Home()
    service.topic()
    service.lead()
    service.commit(secret(), key=b"alice")
    service.merge_all()  # what was merged waits for its delay, as the service's own
    other = service.another()
    report = erase(other, leading=False)
    assert report.complete, (report.pending, report.errors)
    assert rows(other) == []
    assert not holding(other)
    service.garbage.purge(service.report())  # goes on


def test_without_the_lease_entries_of_merges_are_cut_too(home: Home) -> None:
    """The holder of the term was killed: nobody else may take it for a minute."""
    for n in range(3):
        home.commit(secret(n), key=b"alice")
        home.commit(f"of-bob-{n}", key=b"bob")
    home.merge_all()
    home.commit("of-bob-3", key=b"bob")
    assert len([n for n in holding(home) if n.startswith("ledger")]) == 3
    other = home.another()
    report = erase(other, leading=False)
    assert report.complete, (report.pending, report.errors)
    assert not holding(other)
    assert [offset for offset, _ in rows(other)] == [1, 3, 5, 6]
    assert len(other.names("ledger")) == other.state.next_number  # cut, and not deleted


def test_a_merge_that_read_the_old_extents_is_void() -> None:
    home = Home()
    home.topic()
    home.lead()
    home.commit(secret(), key=b"alice")
    home.commit("of-bob", key=b"bob")
    (merge,) = home.due(merge_interval_ms=0)
    old = home.state
    erase(home)
    with pytest.raises(Exception, match=r"gone|changed|ends at byte"):
        home.merger.merge(merge, old)
    assert not holding(home)
    assert rows(home) == [(1, False)]


def test_staged_and_not_committed_is_told() -> None:
    home = Home()
    home.topic()
    home.lead()
    name = home.stage({0: [secret()]}, key=b"alice")
    stray = name.rpartition("/")[0] + "/task-0123456789abcdef0123456789abcdef"
    home.store.put(stray, home.store.get(name))
    report = erase(home)
    assert not report.complete
    assert "1 staged object" in report.pending[0]
    assert holding(home) == [stray]


def test_a_deleted_topic_that_can_be_had_back_keeps_its_object() -> None:
    home = Home()
    home.topic(partitions=1)
    home.topic("u", file_delete_delay_ms="1000000")
    home.lead()
    home.commit(secret(), key=b"alice")
    home.commit(secret(1), topic="u", key=b"alice")
    delete_topic(home.commits, "u")
    assert erase(home).complete  # another topic's
    assert len(holding(home)) == 1
    delete_topic(home.commits, "t")
    with pytest.raises(InvalidRequestError, match="can be restored"):
        erase(home)


def test_an_entry_that_a_deleted_topic_shares_is_told() -> None:
    home = Home()
    home.topic()
    home.topic("u", file_delete_delay_ms="1000000")
    home.lead()
    whole = [("t", secret(0), b"alice"), ("u", "of-zoe", b"zoe")]
    chunks = [_chunk(topic, 0, batch(value, key=key)) for topic, value, key in whole]
    home._append(chunks)
    delete_topic(home.commits, "u")
    report = erase(home)
    assert rows(home) == []
    assert len(report.pending) == 1
    assert "data of a deleted topic that can be restored" in report.pending[0]
    assert len(holding(home)) == 1
    assert len(erase(home).pending) == 1  # it is found again, though no extent of t lies there


def test_topics_and_partitions_that_are_not_there() -> None:
    home = Home()
    with pytest.raises(UnknownTopicError):
        erase(home)
    home.topic()
    with pytest.raises(InvalidRequestError, match=r"no partitions \[3\]"):
        erase(home, partitions=[3])


def test_only_below_an_offset() -> None:
    home = Home()
    home.topic()
    home.lead()
    for n in range(3):
        home.commit(secret(n), key=b"alice")
    report = erase(home, before=2)
    assert report.partitions[0].offsets.ranges == [(0, 2)]
    assert rows(home) == [(2, True)]


@pytest.mark.parametrize("make", [small, staged, tabled])
def test_every_kill(make: Any) -> None:
    """Killed at any request, before or after it took effect: another process finishes."""
    step = 0
    while True:
        step += depth.by_depth(small=2, ci=1, all=1)
        killed = False
        for after in (False, True):
            home = Home()
            home.topic(partitions=2)
            home.lead()
            make(home)
            want = [(o, False) for o, is_secret in rows(home) if not is_secret]
            one = [data for _, data in home.read(T1)]
            home.store.crash_at(step, after=after)
            try:
                erase(home)
            except SimulatedKill:
                killed = True
            again = home.another()
            assert [r for r in rows(again) if not r[1]] == want
            again.lead()
            report = erase(again)
            assert report.complete, (report.pending, report.errors)
            assert rows(again) == want
            assert make is staged or [data for _, data in again.read(T1)] == one
            assert not holding(again), (step, after)
        if not killed:
            break
    assert step > 3


def test_what_was_merged_out_of_a_shared_object_lies_there_still(home: Home) -> None:
    """Partition 0's part of it is nobody's any more, partition 1 needs the rest."""
    home.stage({0: [secret()], 1: ["of-carol"]}, key=b"bob")
    (merge,) = [m for m in home.due(merge_interval_ms=0) if m.key == T0]
    home.merger.merge(merge, home.state)
    before = home.read(T1)
    assert len(holding(home)) == (1 if home.keyring else 2)
    assert erase(home).complete
    assert not holding(home)
    assert not [name for name in home.names() if name.startswith("staged")]
    assert home.read(T1) == before


def test_without_the_lease_inline_data_that_are_named_stay() -> None:
    """Of another topic, which has such records too and isn't erased from."""
    home = Home()
    home.topic()
    home.topic("u")
    home.lead()
    home.commit(secret(), topic="u", key=b"alice")
    home.commit(secret(1), key=b"alice")
    before = rows(home, TopicPartition("u", 0))
    other = home.another()
    assert not erase(other, leading=False).errors
    assert rows(other) == []
    assert rows(other, TopicPartition("u", 0)) == before == [(0, True)]


def test_an_offset_within_an_extent() -> None:
    home = Home()
    home.topic()
    home.lead()
    home.stage({0: [secret(0), secret(1)]}, key=b"alice")
    erase(home, before=1)
    assert rows(home) == [(1, True)]


def test_staged_objects_of_another_topic_stay() -> None:
    home = Home()
    home.topic()
    home.topic("u")
    home.lead()
    home.stage({0: [secret()]}, topic="u", key=b"alice")
    home.commit(secret(1), key=b"alice")
    assert not erase(home).errors
    assert rows(home, TopicPartition("u", 0)) == [(0, True)]


def test_without_the_lease_a_merge_on_its_way_stays() -> None:
    """The log of a segment that the service has put, and whose entry is still to come."""
    home = Home()
    home.topic()
    home.lead()
    home.commit(secret(), key=b"alice")
    home.commit("of-bob", key=b"bob")
    prefix = Directory(*T0, home.state.log.topics["t"].id).prefix
    name = prefix + remote_log_name(0, segment_id(home.lease.term, Level.PIECES))
    home.store.put(name, b"on its way")
    assert not erase(home.another(), leading=False).errors
    assert name in home.names()


def test_without_the_lease_manifests_come_before_deletions() -> None:
    """A service died between its entry and the manifest: who reads manifests alone loses none."""
    home = Home()
    home.topic(segment_ms="1000")
    home.lead()
    for value in ("of-bob-0", "of-bob-1"):
        home.commit(value, key=b"bob")
        home.merge_all()
    home.clock.advance(2000)
    (merge,) = home.due()
    home.store.crash_at(3, after=False)  # log, entry, then
    with pytest.raises(SimulatedKill):
        home.merger.merge(merge, home.state)
    other = home.another()
    assert not erase(other, leading=False).errors
    (manifest,) = other.manifests()
    assert (manifest.segment.base, manifest.segment.end) == (0, 2)


def test_an_erasure_that_merges_overtake_each_time_is_run_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    home = Home()
    home.topic()
    home.lead()
    home.commit(secret(), key=b"alice")
    looks = itertools.count(1)

    def overtaken(*_: Any, **__: Any) -> None:
        next(looks)
        raise ConflictError("merged meanwhile")

    with monkeypatch.context() as patch:
        patch.setattr(Merger, "reader", overtaken)
        (error,) = erase(home).errors
    assert "changed the extents" in error and error.endswith("run it again")
    assert next(looks) > 2  # it looked more than once before it gave up
    assert holding(home)
    assert erase(home).records == 1
    assert not holding(home)


class FailsLater(OfAlice):
    """Fails from that call on."""

    def __init__(self, calls: int) -> None:
        self.calls = calls

    def __call__(self, records: pa.RecordBatch) -> pa.Array:
        self.calls -= 1
        if self.calls < 0:
            raise StorageUnavailableError("away")
        return super().__call__(records)


def test_segments_of_a_rewrite_that_fails_are_deleted(monkeypatch: pytest.MonkeyPatch) -> None:
    """An extent becomes several of them; the entry that names them all is never created."""
    home = Home()
    home.topic(**{"internal.segment.bytes": "300"})
    home.lead()
    home.stage({0: [secret(n) if n == 4 else f"of-bob-{n}" for n in range(9)]}, key=b"bob")
    read = partial(walk, window_bytes=100)
    monkeypatch.setattr("sparklog.tiered.copying.rewritten_log.walk", read)
    before, puts = rows(home), 0
    put_rewritten = home.merger.put_rewritten

    def put(*given: Any, **named: Any) -> Any:
        nonlocal puts
        puts += 1
        return put_rewritten(*given, **named)

    monkeypatch.setattr(home.merger, "put_rewritten", put)
    for calls in itertools.count(1):
        predicate, puts = FailsLater(calls), 0
        report = erase(home, predicate=predicate)
        if not report.errors:
            break
        assert rows(home) == before
        assert not [name for name in home.names() if name.endswith(".log")], (calls, puts)
    assert puts > 2
    assert not holding(home)
    assert len(home.state.extents[T0]) == puts


@pytest.mark.parametrize("kept_whole", [True, False], ids=["one segment", "several"])
def test_transactions_stay_what_they_were(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kept_whole: bool
) -> None:
    """Those of a broker: aborted records are hidden still, and open ones are open where they were.

    Of several segments that one becomes, each has its own index; so it is if a crash left it
    without a manifest.
    """
    mine = (data("alice", secret(0), 7, 0), data("b", "1", 8, 0), data("c", "1", 9, 0))
    first = (*mine, marker(ABORT, producer_id=9), marker(ABORT, producer_id=8))
    second = (batch(secret(1), key=b"alice"), marker(COMMIT, producer_id=7))
    size = sum(map(len, first)) - (0 if kept_whole else len(first[-1]))
    home = brought(tmp_path, first, second, **{"internal.segment.bytes": str(size)})
    read = partial(walk, window_bytes=100)
    monkeypatch.setattr("sparklog.tiered.copying.rewritten_log.walk", read)
    erase(home)
    assert not holding(home)
    extents = home.state.extents[T0]
    assert [e.end for e in extents] == ([5, 7] if kept_whole else [4, 5, 7])
    ends = [open_ones(home, at) for at in range(len(extents))]
    assert ends == ([{7: 0}, {}] if kept_whole else [{7: 0, 8: 1}, {7: 0}, {}])
    assert aborted(home) == [(2, 3), (1, 4)]
    assert offsets(home, "read_uncommitted") == [1, 2]
    assert offsets(home) == []
    assert home.reader().last_stable_offset(6) == 0
    for extent in extents[:-1]:
        home.store.delete([manifest_object(segment_of(home.state, T0, extent))])
    home.garbage.sweep(home.report())
    assert [open_ones(home, at) for at in range(len(extents))] == ends
    assert aborted(home) == [(2, 3), (1, 4)]
