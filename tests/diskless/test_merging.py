"""Merges: what a segment holds, what the ledger and the manifests say, what stops one."""

import dataclasses
from dataclasses import replace

import pytest

from sparklog.common import TopicPartition
from sparklog.diskless.entries import (
    ENTRY_BYTES_MAX,
    Entry,
    MergeRecord,
    encode,
)
from sparklog.diskless.extents import Extent
from sparklog.diskless.merge_plan import SOURCES_MAX, due_merges
from sparklog.diskless.names import Level, entry_name, level_of, segment_id
from sparklog.diskless.options import UpkeepOptions
from sparklog.diskless.service_log import ConflictError
from sparklog.errors import CommitUnknownError, DataCorruptionError, InvalidRequestError
from sparklog.format.checkpoint_files import parse_epochs
from sparklog.log.admin import delete_records, drop_topic
from sparklog.storage.lease import LeaseLostError
from sparklog.storage.segment_store import SourceChangedError
from sparklog.testing.faults import SimulatedKill
from sparklog.tiered.layout.manifest import parse, part
from tests.diskless.logs import LOG_ID, RING, T0, T1, Home, _chunk, commit_by_table
from tests.logdir.partitions import T0 as BEGAN_MS
from tests.logdir.partitions import batch

MINUTE = 60_000


@pytest.mark.parametrize("keyring", [None, RING], ids=["plain", "encrypted"])
def test_pieces_become_one_segment(keyring: object) -> None:
    """Inline and staged, of two partitions in one object: the same records at the same offsets."""
    home = Home(keyring=keyring)  # type: ignore[arg-type]
    home.topic(partitions=2)
    home.lead()
    home.commit("a", "b")
    home.stage({0: ["c"], 1: ["x", "y"]})
    home.commit("d")
    before = home.read(T0), home.read(T1)
    first, second = home.merge_all()
    assert (home.read(T0), home.read(T1)) == before
    assert [offset for offset, _ in before[0]] == [0, 1, 2, 3]
    state = home.state
    (extent,) = state.extents[T0]
    assert (extent.base, extent.end, extent.segment) == (0, 4, first.segments[0].id)
    assert level_of(extent.segment, term=state.term) is Level.PIECES
    assert len(first.sources) == 3
    for manifest in home.manifests():
        done = {one.key: one for one in (first, second)}[
            TopicPartition(manifest.segment.topic, manifest.segment.partition)
        ]
        assert manifest.segment.time_ms == home.log.time_of(done.number)
        raw = home.store.get(manifest.name)
        body = parse(raw, path="")[1]
        if keyring is None:
            epochs = part(manifest, body, "leader-epoch-checkpoint")
            assert parse_epochs(epochs or b"", "") == [(0, 0)]
            assert home.store.get(manifest.log_name)[:8] == bytes(8)
        assert (manifest.encryption is None) == (keyring is None)
    # who has no keys reads nothing of it
    if keyring is not None:
        with pytest.raises(InvalidRequestError, match="keyring"):
            home.another(keyring=None).read()


def test_one_request_for_an_object_of_many_partitions() -> None:
    home = Home()
    home.topic(partitions=8)
    home.lead()
    for _ in range(3):
        home.stage({p: [f"{p}"] for p in range(8)})
    state = home.state
    merges = home.due(merge_interval_ms=0)
    wanted = [extent for merge in merges for extent in merge.sources]
    before = home.store.counts.gets
    reader = home.merger.reader(state, wanted)
    for merge in merges:
        home.merger.merge(merge, state, reader)
    assert home.store.counts.gets - before == 3
    assert len(home.read(TopicPartition("t", 5))) == 3


def test_what_an_extent_table_names(home: Home) -> None:
    """The pieces of a commit of very many tasks; they live as long as their table."""
    objects = commit_by_table(home, {0: ["a", "b", "c"], 1: ["x", "y"]})
    home.commit("d")
    before = home.read(T0), home.read(T1)
    assert [offset for offset, _ in before[0]] == [0, 1, 2, 3]
    home.garbage.sweep(home.report())
    (first,) = [merge for merge in home.due(merge_interval_ms=0) if merge.key == T0]
    done = home.merger.merge(first, home.state)
    home.garbage.schedule_deletion(T0, first.topic_id, done.sources, kind="replaced", now_ms=0)
    home.garbage.sweep(home.report())
    assert set(objects) <= set(home.names("staged"))  # the other partition's lie there still
    home.merge_all()
    assert (home.read(T0), home.read(T1)) == before
    home.garbage.sweep(home.report())
    assert home.names("staged") == []


def test_a_table_with_large_pieces_becomes_several_segments() -> None:
    home = Home()
    home.topic(internal_segment_bytes="300")
    home.lead()
    commit_by_table(home, {0: [f"{n:0100}" for n in range(7)]}, objects=3)
    before = home.read()
    (done,) = home.merge_all()
    assert len(done.segments) == 7  # two of them would be more than 300 bytes
    assert home.read() == before


def test_a_merge_takes_two_puts_and_an_entry(home: Home) -> None:
    home.stage({0: ["a", "b"]})
    home.stage({0: ["c"]})
    (merge,) = home.due(merge_interval_ms=0)
    before = home.store.counts.as_dict()
    home.merger.merge(merge, home.log.state)
    after = home.store.counts.as_dict()
    assert {k: after[k] - before[k] for k in ("gets", "puts", "lists", "deletes")} == {
        "gets": 2, "puts": 3, "lists": 0, "deletes": 0,
    }  # fmt: skip


def test_times_of_append_come_from_the_entry() -> None:
    home = Home()
    home.topic(message_timestamp_type="LogAppendTime")
    home.lead()
    home.clock.advance(5000)
    home.commit("a")
    now = home.clock()
    home.clock.advance(MINUTE)
    (done,) = home.merge_all()
    assert done.segments[0].max_timestamp == now
    (manifest,) = home.manifests()
    assert manifest.segment.max_timestamp == now
    (extent,) = home.state.extents[T0]
    assert extent.stamp_ms == -1
    raw = home.store.get(extent.object)
    assert int.from_bytes(raw[35:43], "big") == now  # the batch says so itself


def test_a_large_piece_becomes_several_segments_where_batches_begin() -> None:
    home = Home()
    home.topic(internal_segment_bytes="400")
    home.lead()
    home.stage({0: [f"{n:040}" for n in range(10)]}, at=[BEGAN_MS + n for n in range(10)])
    before = home.read()
    (done,) = home.merge_all()
    assert len(done.segments) > 2
    assert home.read() == before
    assert all(one.size <= 400 for one in done.segments)
    assert done.segments[0].max_timestamp < done.segments[-1].max_timestamp == BEGAN_MS + 9
    assert [one.base for one in done.segments[1:]] == [one.end for one in done.segments[:-1]]
    assert len(list(home.manifests())) == len(done.segments)


# --- when ---------------------------------------------------------------------------------------


def test_by_age_by_number_by_size() -> None:
    home = Home()
    home.topic(internal_segment_bytes="1000")
    home.lead()
    home.commit("a")
    assert home.due() == []
    home.clock.advance(10 * MINUTE + 10)
    assert ["diskless.merge.interval.ms" in one.why for one in home.due()] == [True]
    home.merge_all()
    for _ in range(5):
        home.commit("b")
    assert home.due() == []
    assert ["diskless.merge.max.extents" in m.why for m in home.due(merge_max_extents=5)] == [True]
    home.commit("c" * 700)
    home.commit("d" * 700)
    assert [m.size <= 1000 for m in home.due()] == [True, True]
    assert all("segment.bytes=1000" in merge.why for merge in home.due()[:1])


def test_no_record_is_rewritten_more_than_twice() -> None:
    """Small segments are merged once more; what comes out stays, however small."""
    home = Home()
    home.topic(internal_segment_bytes="4000")
    home.lead()
    rewritten: dict[int, int] = {}
    for round_number in range(60):
        home.commit(f"{round_number:0200}")
        home.clock.advance(10 * MINUTE)
        for done in home.merge_all():
            for offset in range(done.sources[0].base, done.sources[-1].end):
                rewritten[offset] = rewritten.get(offset, 0) + 1
    assert set(rewritten.values()) == {1, 2}
    sizes = [extent.size for extent in home.state.extents[T0]]
    assert len(sizes) < 20
    assert max(sizes) > 3000
    assert len(home.read()) == 60


def test_small_segments_are_merged_by_segment_ms() -> None:
    home = Home()
    home.topic(segment_ms=str(60 * MINUTE))
    home.lead()
    for _ in range(3):
        home.commit("a")
        home.merge_all()
    assert home.due() == []
    home.clock.advance(61 * MINUTE)
    (merge,) = home.due()
    assert merge.level is Level.SEGMENTS
    home.merger.merge(merge, home.state)
    for _ in range(2):
        home.commit("b")
        home.merge_all()
    home.clock.advance(61 * MINUTE)
    (merge,) = home.due()
    assert merge.sources[0].base == 3  # those that were merged twice stay, however small
    home.merger.merge(merge, home.state)
    home.clock.advance(61 * MINUTE)
    assert home.due() == []
    assert len(home.state.extents[T0]) == 2


def test_segments_of_others_are_finished() -> None:
    """A tier's, or a fork's: their ids say nothing of terms."""
    assert level_of("________________AAAAAA", term=3) is Level.SEGMENTS
    assert level_of(segment_id(3, Level.CLEANED), term=3) is Level.CLEANED
    assert level_of(segment_id(3, Level.PIECES), term=3) is Level.PIECES


# --- what stops it ------------------------------------------------------------------------------


def test_void_if_its_extents_changed(home: Home) -> None:
    home.commit("a")
    home.commit("b")
    (merge,) = home.due(merge_interval_ms=0)
    state = home.state
    other = home.another()
    delete_records(other.commits, "t", {0: 1})
    with pytest.raises(ConflictError):
        home.merger.merge(merge, state)
    assert not [name for name in home.names("t-0") if name.endswith(".log")]  # nothing is left
    assert [offset for offset, _ in home.read()] == [1]


def test_void_if_the_topic_was_made_again(home: Home) -> None:
    home.commit("a")
    (merge,) = home.due(merge_interval_ms=0)
    state = home.state
    other = home.another()
    drop_topic(other.commits, "t")
    other.topic(partitions=2)
    other.commit("b")
    with pytest.raises(ConflictError):
        home.merger.merge(merge, state)


def test_a_commit_beside_it_does_no_harm(home: Home) -> None:
    home.commit("a")
    (merge,) = home.due(merge_interval_ms=0)
    state = home.state
    home.another().commit("b")
    home.merger.merge(merge, state)
    assert [offset for offset, _ in home.read()] == [0, 1]


def test_another_term_fences_it(home: Home) -> None:
    home.commit("a")
    (merge,) = home.due(merge_interval_ms=0)
    state = home.state
    home.clock.advance(MINUTE)
    home.lease._beat_at = home.lease._timer()  # it won't look before the entry
    home.another().lead()
    with pytest.raises(LeaseLostError):
        home.merger.merge(merge, state)
    assert not home.state.extents[T0][0].segment


def test_a_source_that_is_gone(home: Home) -> None:
    name = home.stage({0: ["a"]})
    (merge,) = home.due(merge_interval_ms=0)
    home.store.delete([name])
    with pytest.raises(SourceChangedError, match="was deleted"):
        home.merger.merge(merge, home.state)


@pytest.mark.parametrize("at", [70, 3, 17, 0], ids=["record", "base", "crc", "first"])
def test_damage_never_becomes_a_segment(home: Home, at: int) -> None:
    """Also what the CRC doesn't cover: offsets that don't fill the extent."""
    name = home.stage({0: ["a", "b"]})
    data, time_ms = home.bucket.objects[name]
    damaged = bytearray(data)
    damaged[at] ^= 1
    home.bucket.objects[name] = bytes(damaged), time_ms
    (merge,) = home.due(merge_interval_ms=0)
    with pytest.raises(DataCorruptionError) as caught:
        home.merger.merge(merge, home.state)
    assert "t-0" in str(caught.value.path)
    assert not home.state.extents[T0][0].segment


def test_an_extent_that_says_other_offsets_than_its_batches(home: Home) -> None:
    home.stage({0: ["a", "b"]})
    (merge,) = home.due(merge_interval_ms=0)
    (extent,) = merge.sources
    wrong = replace(merge, sources=(extent._replace(end=3),))
    with pytest.raises(DataCorruptionError, match="ends with offset 1"):
        home.merger.merge(wrong, home.state)


def _effects(home: Home) -> int:
    return len(home.store.effects)


def test_cut_anywhere_it_is_done_again() -> None:
    """Killed before or after each effect, the next service ends with the same log, and no loss."""

    def begun() -> Home:
        home = Home()
        home.topic()
        home.lead()
        home.commit("a")
        home.stage({0: ["b"]})
        return home

    whole = begun()
    first = _effects(whole)
    whole.merge_all()
    steps = _effects(whole) - first
    assert steps >= 3
    for step in range(1, steps + 1):
        for after in (False, True):
            home = begun()
            before = home.read()
            home.store.crash_at(step, after=after)
            with pytest.raises(SimulatedKill):
                home.merge_all()
            again = home.another().lead()
            again.merge_all()
            assert again.read() == before
            again.garbage.sweep(again.report())
            (extent,) = again.state.extents[T0]
            assert extent.segment
            logs = [name for name in again.names("t-0") if name.endswith(".log")]
            assert logs == [extent.object], (step, after)
            assert [one.log_name for one in again.manifests()] == [extent.object]


def test_options_of_plan() -> None:
    """The plan asks for the time of the oldest piece alone."""
    home = Home()
    home.topic()
    for _ in range(5):
        home.commit("a")
    asked: list[int] = []

    def time_of(number: int) -> int:
        asked.append(number)
        return 0

    now, state = home.clock(), home.state
    assert list(due_merges(state, UpkeepOptions(), now_ms=now, time_of=time_of))
    assert asked == [state.extents[T0][0].born]
    assert dataclasses.is_dataclass(UpkeepOptions)


def test_a_merge_takes_no_more_than_an_entry_can_name() -> None:
    """100,000 small commits since the last service: their names alone are above 8 MiB."""
    home = Home()
    home.topic()
    state = home.lead().state
    names = (f"staged-{LOG_ID}/{n:020d}/{'l' * 80}-{'a' * 32}" for n in range(25_000))
    pieces = [Extent(n, n + 1, name, 0, 9, 1, 0, 0) for n, name in enumerate(names)]
    state.extents[T0] = tuple(pieces)
    merges = list(due_merges(state, UpkeepOptions(threads=1), now_ms=0, time_of=lambda n: 0))
    assert [len(merge.sources) for merge in merges] == [SOURCES_MAX, SOURCES_MAX, 5000]
    assert "more than one entry names" in merges[0].why
    record = MergeRecord(
        term=1, topic="t" * 249, topic_id="i" * 22, partition=0,
        sources=tuple(each._replace(object="o" * 400).place for each in merges[0].sources),
    )  # fmt: skip
    assert len(encode(1, Entry(id="i" * 32, prev="p" * 32, record=record))) < ENTRY_BYTES_MAX


def test_an_entry_that_cannot_be_read_costs_no_records(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The answer to its create was lost, and the look whose it is got half of it."""
    home.commit("a")
    rows = home.read()
    (merge,) = home.due(merge_interval_ms=0)
    create, get = home.store.create, home.store.get
    number = home.state.next_number

    def lost(name: str, data: bytes) -> bool:
        create(name, data)
        return False

    def half(name: str, *span: int, **given: int) -> bytes:
        raw = get(name, *span, **given)
        return raw[:50] if name == entry_name(LOG_ID, number) else raw

    with monkeypatch.context() as patched:
        patched.setattr(home.store, "create", lost)
        patched.setattr(home.store, "get", half)
        with pytest.raises(CommitUnknownError):
            home.merger.merge(merge, home.state)
    assert home.another().state.next_number == number + 1
    assert home.another().read() == rows


def test_entries_that_were_read_as_news_are_merged_without_a_request() -> None:
    """A service has folded them, with their data; what came damaged is fetched again."""
    writer = Home()
    writer.topic(partitions=2)
    service = writer.another().lead()
    for n in range(10):
        writer._append([_chunk("t", p, batch(f"{n}-{p}")) for p in (0, 1)])
    first, second = service.due(merge_interval_ms=0)
    gets = service.store.counts.gets
    service.merger.merge(first, service.log.state)
    assert service.store.counts.gets == gets
    cache = service.commits.head.entries.cache
    for extent in second.sources:  # which came damaged
        raw = cache.find(extent.object, 0)
        assert raw is not None
        cache.keep(extent.object, raw[:-1] + b"?")
    service.merger.merge(second, service.log.state)
    assert service.store.counts.gets > gets
    assert [offset for offset, _ in service.read(T1)] == list(range(10))
