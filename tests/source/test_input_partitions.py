"""Bounds, admission, splitting and data loss: pure functions, so no Spark and no files."""

import logging
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparklog.common import TopicPartition
from sparklog.errors import InvalidRequestError, OffsetOutOfRangeError
from sparklog.source.admission import BytesByOffset, MinOffsetsDelay, by_bytes, by_records
from sparklog.source.data_loss import DataLossPolicy, latest_offsets, readable_ranges
from sparklog.source.input_partitions import PlannedRange, coalesce, plan_ranges, split
from sparklog.source.offset_bounds import resolve_end, resolve_start
from sparklog.source.offsets import (
    Bound,
    Offsets,
    from_json,
    parse_assign,
    parse_bound,
    to_json,
)
from sparklog.source.options import SourceOptions

A, B = TopicPartition("t", 0), TopicPartition("t", 1)
HELD = {A: (10, 100), B: (0, 50)}
FAIL, WARN = DataLossPolicy(True), DataLossPolicy(False)

offsets = st.dictionaries(
    st.tuples(st.sampled_from(["t", "u"]), st.integers(0, 4)), st.integers(0, 10**12)
)


@given(offsets)
def test_offsets_survive_the_checkpoint(values: Offsets) -> None:
    assert from_json(to_json(values)) == values


def test_offsets_have_the_connectors_shape() -> None:
    assert to_json({B: 7, A: 5}) == {"t": {"0": 5, "1": 7}}
    assert parse_assign('{"t":[1,0,1]}') == [A, B]
    assert parse_bound("Earliest", option="x").value == -2


def test_explicit_bounds_resolve_markers() -> None:
    bound = Bound("offsets", values={A: -2, B: -1})
    assert resolve_start(bound, HELD, dict, strategy="error") == {A: 10, B: 50}
    assert resolve_end(Bound("offset", -1), HELD, dict) == {A: 100, B: 50}


@pytest.mark.parametrize(
    ("values", "words"),
    [({A: 1}, "lacks t-1"), ({A: 1, B: 1, TopicPartition("u", 0): 1}, "u-0 is not in")],
)
def test_explicit_bounds_must_cover_all_partitions(values: Offsets, words: str) -> None:
    with pytest.raises(InvalidRequestError, match=f"{words}.*Use -1 for latest, -2 for earliest"):
        resolve_start(Bound("offsets", values=values), HELD, dict, strategy="error")
    for mark, side in ((-1, 1), (-2, 0)):
        bound = Bound("offsets", values=dict.fromkeys(HELD, mark))
        held = {partition: HELD[partition][side] for partition in HELD}
        assert resolve_start(bound, HELD, dict, strategy="error") == held


def test_an_offset_past_the_end_or_what_is_advised_instead() -> None:
    def start(offset: int, *, fail: bool = True) -> Offsets:
        bound = Bound("offsets", values={A: offset, B: 0})
        return resolve_start(bound, HELD, dict, strategy="error", fail=fail)

    advice = "set an offset up to the end, -1 for the end itself, or failOnDataLoss=false"
    with pytest.raises(InvalidRequestError, match=advice):
        start(101)
    assert start(99) == {A: 99, B: 0}
    assert start(100) == start(-1) == start(101, fail=False) == {A: 100, B: 0}


def lookup(times: Offsets) -> dict[TopicPartition, int | None]:
    return {p: 42 if p == A else None for p in times}


def test_time_without_a_record_follows_the_strategy() -> None:
    bound = Bound("time", 1000)
    assert resolve_start(bound, HELD, lookup, strategy="latest") == {A: 42, B: 50}
    assert resolve_end(bound, HELD, lookup) == {A: 42, B: 50}
    advice = r"no record of t-1 .*1000 ms\): set an earlier timestamp, or startingOffsetsByTimest"
    with pytest.raises(InvalidRequestError, match=advice):
        resolve_start(bound, HELD, lookup, strategy="error")

    def earlier(times: Offsets) -> dict[TopicPartition, int | None]:
        return {p: 42 if p == A or ms < 1000 else None for p, ms in times.items()}

    assert resolve_start(Bound("time", 999), HELD, earlier, strategy="error") == {A: 42, B: 42}


backlogs = st.dictionaries(
    st.builds(TopicPartition, st.just("t"), st.integers(0, 8)),
    st.tuples(st.integers(0, 10**6), st.integers(0, 10**6)),
    min_size=1,
)


@given(backlogs, st.integers(1, 10**6))
def test_record_limit_shares_out_and_always_advances(
    ranges: dict[TopicPartition, tuple[int, int]], limit: int
) -> None:
    start = {p: first for p, (first, _) in ranges.items()}
    end = {p: first + more for p, (first, more) in ranges.items()}
    cut = by_records(limit, start, end)
    taken = {p: cut[p] - start[p] for p in cut}
    assert all(start[p] <= cut[p] <= end[p] for p in cut)
    assert sum(taken.values()) <= limit + len(cut)  # a starving partition gets its one record
    assert all(taken[p] >= 1 for p in cut if end[p] > start[p])


def test_byte_limit_follows_the_index() -> None:
    size = BytesByOffset.of([(0, 0), (100, 1000), (200, 101_000)])  # the later records are larger
    cut = by_bytes(50_000, {A: 0}, {A: 200}, lambda *_: size)
    assert 140 <= cut[A] <= 150
    assert by_bytes(10, {A: 150}, {A: 200}, lambda *_: size) == {A: 151}
    assert by_bytes(10**6, {A: 0}, {A: 200}, lambda *_: size) == {A: 200}
    even = BytesByOffset.of([(0, 0), (200, 200_000)])
    assert by_bytes(60_000, {A: 0, B: 100}, {A: 200, B: 200}, lambda *_: even) == {A: 40, B: 120}


def test_delay_waits_for_enough_or_long_enough() -> None:
    delay = MinOffsetsDelay(100, longest_ms=1000)
    assert not delay.wait({A: 0}, {A: 1}, 0)  # the first trigger never waits
    assert delay.wait({A: 1}, {A: 50}, 10)
    assert not delay.wait({A: 1}, {A: 101}, 20)
    assert delay.wait({A: 101}, {A: 102}, 1020)
    assert not delay.wait({A: 101}, {A: 102}, 1021)


def options(**more: object) -> SourceOptions:
    return SourceOptions(path="/log", subscribe="t", **more)  # type: ignore[arg-type]


def sizes(partition: TopicPartition, start: int, end: int) -> BytesByOffset:
    return BytesByOffset.of([(0, 0), (1000, 100_000)])


@given(
    st.lists(st.integers(1, 1000), min_size=1, max_size=5),
    st.one_of(st.none(), st.integers(1, 50)),
    st.one_of(st.none(), st.integers(1, 300)),
    st.one_of(st.none(), st.integers(1000, 50_000)),
)
def test_splits_are_seamless(
    lengths: list[int], tasks: int | None, records: int | None, size: int | None
) -> None:
    whole = plan_ranges(
        {TopicPartition("t", p): (0, length) for p, length in enumerate(lengths)}, {"t": "id"}
    )
    cut = split(
        whole,
        options(
            min_partitions=tasks, max_records_per_partition=records, max_bytes_per_partition=size
        ),
        sizes,
    )
    for piece in whole:
        mine = [c for c in cut if c.partition == piece.partition]
        assert mine[0].start == piece.start and mine[-1].end == piece.end
        assert all(a.end == b.start for a, b in pairwise(mine))
        assert all(c.size > 0 and c.topic_id == "id" for c in mine)
    if records is not None:
        assert all(c.size <= records for c in cut)
    if size is not None:  # 100 bytes a record, here; rounding may cost one more
        assert all(c.size * 100 <= size + 200 for c in cut)


def test_min_partitions_shares_tasks_by_length() -> None:
    whole = plan_ranges({A: (0, 900), B: (0, 100)}, {})
    cut = split(whole, options(min_partitions=10), sizes)
    assert [c.size for c in cut] == [100] * 10
    assert split(whole, options(min_partitions=1), sizes) == whole


@pytest.mark.parametrize(
    ("lengths", "records", "wanted", "expected"),
    [  # KafkaOffsetRangeCalculatorSuite of Spark 4, and what rounds otherwise in Python
        ([1, 1, 1], None, 3, [[1], [1], [1]]),
        ([4], None, 4, [[1, 1, 1, 1]]),
        ([4, 20], None, 4, [[4], [6, 7, 7]]),
        ([1, 1000], None, 4, [[1], [333, 333, 334]]),
        ([4, 20], None, 1, [[4], [20]]),
        ([10], None, 3, [[3, 3, 4]]),
        ([10, 10, 1], None, 6, [[3, 3, 4], [3, 3, 4], [1]]),
        ([10000, 15000, 20000], None, 9, [[5000] * 2, [5000] * 3, [5000] * 4]),
        ([500, 12000, 15001], None, 6, [[500], [6000, 6000], [5000, 5000, 5001]]),
        ([1, 1, 10000], None, 6, [[1], [1], [2500] * 4]),
        ([4], 4, None, [[4]]),
        ([5], 4, None, [[2, 3]]),
        ([39, 49, 59], 20, None, [[19, 20], [16, 16, 17], [19, 20, 20]]),
        ([39], 20, 1, [[19, 20]]),
        ([39], 20, 4, [[9, 10, 10, 10]]),
        ([10, 10], None, 5, [[3, 3, 4], [3, 3, 4]]),
        ([90, 90], None, 9, [[18] * 5, [18] * 5]),
        ([70, 70], None, 13, [[10] * 7, [10] * 7]),
        ([6], None, 4, [[1, 1, 2, 2]]),
    ],
)  # fmt: skip
def test_tasks_are_those_of_sparks_connector(lengths, records, wanted, expected) -> None:
    whole = plan_ranges(
        {TopicPartition("t", p): (1, 1 + length) for p, length in enumerate(lengths)}, {}
    )
    more = {"max_records_per_partition": records, "min_partitions": wanted}
    cut = split(whole, options(**more), sizes)
    found = [[c.size for c in cut if c.partition == p] for p in range(len(lengths))]
    assert found == expected


@pytest.mark.parametrize(
    ("count", "length", "more", "tasks"),
    [
        (32, 1, {}, 32),  # a few tasks stay as they are
        (600, 1, {}, 32),
        (600, 1, {"min_partitions": 100}, 100),
        (600, 9_000, {}, 600),  # what is no small piece has a task of its own
        (600, 2_000, {"max_records_per_partition": 4_000}, 300),
        (600, 10, {"max_bytes_per_partition": 2_000}, 300),
        (33, 1, {}, 32),
    ],
)
def test_of_many_small_pieces_neighbours_share_a_task(count, length, more, tasks) -> None:
    whole = plan_ranges({TopicPartition("t", p): (0, length) for p in range(count)}, {})
    found = coalesce(whole, options(**more), sizes)
    assert [piece for task in found for piece in task] == whole
    assert tasks <= len(found) <= tasks + 2
    biggest = max(len(task) for task in found)
    assert biggest <= -(-count // min(tasks, 32))


def test_explicit_offsets_are_checked_not_called_a_loss(caplog) -> None:
    bound = Bound("offsets", values={A: 101, B: 50})
    with pytest.raises(InvalidRequestError, match=r"startingOffsets .*t-0 ends at 100, not 101"):
        resolve_start(bound, HELD, dict, strategy="error")
    with pytest.raises(InvalidRequestError, match=r"endingOffsets .*t-0 ends at 100, not 101"):
        resolve_end(bound, HELD, dict)
    with caplog.at_level(logging.WARNING):
        assert resolve_start(bound, HELD, dict, strategy="error", fail=False) == {A: 100, B: 50}
    assert "t-0 ends at 100, not 101; the end is used" in caplog.text
    assert resolve_end(Bound("offsets", values={A: 100, B: 50}), HELD, dict) == {A: 100, B: 50}


def test_lost_start_names_the_exact_range() -> None:
    with pytest.raises(OffsetOutOfRangeError, match=r"\[3, 10\) of t-0 .*starts at 10") as raised:
        readable_ranges({A: 3}, {A: 60}, HELD, {}, FAIL)
    assert (raised.value.offset, raised.value.start, raised.value.end) == (3, 10, 100)


def test_lost_start_is_skipped_with_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        read = readable_ranges({A: 3, B: 0}, {A: 60, B: 5}, HELD, {}, WARN)
        assert read == {A: (10, 60), B: (0, 5)}
    assert "offsets [3, 10) of t-0 are skipped" in caplog.text


def test_loss_is_cut_to_what_was_planned() -> None:
    with pytest.raises(OffsetOutOfRangeError, match=r"\[3, 7\) of t-0"):
        readable_ranges({A: 3}, {A: 7}, HELD, {}, FAIL)
    assert readable_ranges({A: 7}, {A: 7}, HELD, {}, FAIL) == {}


def test_deleted_topic_is_lost_up_to_its_old_end() -> None:
    gone = TopicPartition("u", 0)
    with pytest.raises(OffsetOutOfRangeError, match=r"\[5, 9\) of u-0 .*deleted"):
        readable_ranges({gone: 5}, {gone: 9}, HELD, {gone: 9}, FAIL)
    assert readable_ranges({gone: 9}, {gone: 9}, HELD, {gone: 9}, FAIL) == {}  # all of it was read


def test_log_that_went_back_is_noticed() -> None:
    with pytest.raises(OffsetOutOfRangeError, match=r"\[100, 120\) of t-0 .*restored"):
        readable_ranges({A: 90}, {A: 120}, HELD, {}, FAIL)
    with pytest.raises(OffsetOutOfRangeError, match=r"\[100, 120\) of t-0"):
        latest_offsets({A: 120}, HELD, {}, FAIL)
    assert latest_offsets({A: 120}, HELD, {}, WARN)[A] == 100


def test_new_partition_starts_at_its_beginning() -> None:
    assert latest_offsets({B: 3}, HELD, {}, FAIL) == {A: 100, B: 50}
    assert readable_ranges({}, {B: 50}, HELD, {}, FAIL) == {B: (0, 50)}


def test_deleted_topic_keeps_its_place_in_the_offsets() -> None:
    gone = TopicPartition("u", 0)
    assert latest_offsets({gone: 5}, {}, {gone: 9}, FAIL) == {gone: 9}
    assert latest_offsets({gone: 9}, {gone: (9, 12)}, {}, FAIL) == {gone: 12}  # made again


def test_pieces_are_ordered_and_never_empty() -> None:
    assert plan_ranges({B: (5, 5), A: (1, 2)}, {"t": "id"}) == [PlannedRange("t", 0, 1, 2, "id")]
