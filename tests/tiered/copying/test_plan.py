"""What is copied, what has expired. Cases of RemoteLogManagerTest (Kafka 4.1), and a model."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparklog.config import TopicConfig
from sparklog.log.due_segments import LocalSegment, Tier
from sparklog.tiered.copying.plan import (
    CandidateSegment,
    copied_ranges,
    epochs_of,
    expired_segments,
    segments_to_copy,
    tier_of,
    unreferenced_segments,
    valid_copies,
)
from sparklog.tiered.remote_log_metadata.metadata_cache import RemoteLogMetadataCache
from sparklog.tiered.remote_segment import RemoteSegment, SegmentState
from tests.tiered.copies import T0, TOPIC_ID, copy

SEGMENTS = [
    LocalSegment(0, 100),
    LocalSegment(10, 100),
    LocalSegment(20, 100),
    LocalSegment(30, 50),
]
COPIES = [copy(0, 10), copy(10, 20), copy(20, 30)]


def config(**given: object) -> TopicConfig:
    defaults = {"remote.storage.enable": "true", "retention.ms": "-1"}
    return TopicConfig.parse(defaults | {k.replace("_", "."): v for k, v in given.items()})


def copied(*copies: RemoteSegment, log_start: int = 0, stable: int = 35, **given: Any) -> list[int]:
    found = segments_to_copy(SEGMENTS, copies, config(**given), log_start=log_start, stable=stable)
    return [c.base for c in found]


def test_candidates_skip_the_active_segment() -> None:
    """testCandidateLogSegmentsSkipsActiveSegment."""
    found = segments_to_copy(SEGMENTS, [], config(), log_start=0, stable=35)
    assert found == [
        CandidateSegment(0, 10, 100),
        CandidateSegment(10, 20, 100),
        CandidateSegment(20, 30, 100),
    ]
    assert segments_to_copy(SEGMENTS[:1], [], config(), log_start=0, stable=35) == []
    assert segments_to_copy([], [], config(), log_start=0, stable=0) == []


@pytest.mark.parametrize(
    ("stable", "expected"), [(35, [0, 10, 20]), (30, [0, 10, 20]), (29, [0, 10]), (9, [])]
)
def test_candidates_end_at_the_last_stable_offset(stable: int, expected: list[int]) -> None:
    """testCandidateLogSegmentsSkipsSegmentsAfterLastStableOffset."""
    assert copied(stable=stable) == expected


def test_candidates_begin_at_the_log_start() -> None:
    assert copied(log_start=5) == [0, 10, 20]
    assert copied(log_start=10) == [10, 20]
    assert copied(log_start=35) == []


def test_what_has_a_copy_is_not_copied_again() -> None:
    assert copied(*COPIES[:2]) == [20]
    assert copied(COPIES[0], copy(10, 20, state=SegmentState.COPY_STARTED)) == [20]
    assert copied(*COPIES) == []


def test_a_hole_is_filled() -> None:
    assert copied(COPIES[0], COPIES[2]) == [10]


def test_nothing_is_copied_over_another_copy() -> None:
    assert copied(copy(5, 12)) == [20]
    assert copied(copy(0, 25)) == []


def test_a_segment_that_grew_is_copied_again() -> None:
    """Unless the shorter copy is still on its way: that ends first."""
    assert copied(copy(0, 5), COPIES[1], copy(20, 29)) == [0, 20]
    assert copied(copy(0, 5, state=SegmentState.COPY_STARTED), *COPIES[1:]) == []


@pytest.mark.parametrize(
    "given", [{"remote_log_copy_disable": "true"}, {"remote_storage_enable": "false"}]
)
def test_no_copies(given: dict[str, str]) -> None:
    assert copied(**given) == []


def test_leader_epochs_are_clipped() -> None:
    entries = [(0, 0), (2, 15), (5, 20), (7, 40)]
    assert epochs_of(entries, 10, 20) == ((0, 10), (2, 15))
    assert epochs_of(entries, 20, 30) == ((5, 20),)
    assert epochs_of(entries, 25, 50) == ((5, 25), (7, 40))
    assert epochs_of([], 10, 20) == ((0, 10),)
    assert epochs_of([(3, 15)], 10, 20) == ((3, 15),)


def test_copies_of_another_history_do_not_stand() -> None:
    """testRemoteSegmentWithinLeaderEpochs: those of an epoch that the log doesn't have."""
    mine, others = copy(0, 10), copy(10, 20, epochs=((1, 10),))
    assert valid_copies([mine, others], [(0, 0), (2, 15)], end=35) == [mine]
    assert valid_copies([mine, copy(10, 40)], [(0, 0)], end=35) == [mine]
    assert valid_copies([mine, others], [], end=35) == [mine, others]


def test_spans() -> None:
    assert copied_ranges([]) == ()
    assert copied_ranges(COPIES) == ((0, 30),)
    assert copied_ranges([COPIES[0], COPIES[2]]) == ((0, 10), (20, 30))


def test_segments_of_a_compacted_topic_stay_local() -> None:
    assert tier_of(config(), COPIES) == Tier(((0, 30),))
    assert tier_of(config(remote_log_copy_disable="true"), []) == Tier((), copying=False)
    assert tier_of(config(cleanup_policy="compact"), COPIES) is None
    assert tier_of(config(remote_storage_enable="false"), COPIES) is None


# --- what has expired -------------------------------------------------------------------------


def due(
    copies: list[RemoteSegment] = COPIES,
    segments: list[LocalSegment] = SEGMENTS[2:],
    *,
    log_start: int = 0,
    now_ms: int = T0,
    floor: int | None = None,
    **given: Any,
) -> tuple[list[int], int]:
    found = expired_segments(
        copies, segments, config(**given), log_start=log_start, now_ms=now_ms, floor=floor
    )
    return [e.base for e in found.expired], found.log_start


@pytest.mark.parametrize(
    ("limit", "expected"),
    [(351, []), (251, []), (250, [0]), (150, [0, 10]), (50, [0, 10, 20]), (0, [0, 10, 20])],
)
def test_size_is_of_both_tiers(limit: int, expected: list[int]) -> None:
    """350 bytes: three copies, and the active segment, which has none; [20, 30) counts once."""
    assert due(retention_bytes=limit) == (expected, len(expected) * 10)


def test_size_above_the_log_start_counts() -> None:
    assert due(log_start=10, retention_bytes=250) == ([], 10)
    assert due(log_start=10, retention_bytes=150) == ([10], 20)


@pytest.mark.parametrize(
    ("now_ms", "expected"),
    [(T0 + 999, []), (T0 + 1000, [0]), (T0 + 1010, [0, 10]), (T0 + 9000, [0, 10, 20])],
)
def test_age(now_ms: int, expected: list[int]) -> None:
    """Remote retention takes what is just as old as allowed (maxTimestampMs <= cleanupUntilMs)."""
    assert due(now_ms=now_ms, retention_ms=1000) == (expected, len(expected) * 10)


def test_age_stops_at_the_first_young_copy() -> None:
    copies = [copy(0, 10), copy(10, 20, max_timestamp=T0 + 10**9), copy(20, 30)]
    assert due(copies, now_ms=T0 + 9000, retention_ms=1000) == ([0], 10)


def test_nothing_expires_past_a_hole() -> None:
    copies = [COPIES[0], COPIES[2]]
    assert due(copies, SEGMENTS[1:], now_ms=T0 + 9000, retention_ms=1000) == ([0], 10)
    assert due(copies[1:], SEGMENTS, now_ms=T0 + 9000, retention_ms=1000) == ([], 0)


def test_registered_readers_hold_copies_back() -> None:
    assert due(floor=15, now_ms=T0 + 9000, retention_ms=1000) == ([0], 10)
    found = expired_segments(
        COPIES, SEGMENTS[3:], config(retention_ms=0), log_start=0, now_ms=T0 + 9000, floor=15
    )
    assert found.held_back == 100


def test_each_says_why() -> None:
    found = expired_segments(
        COPIES, SEGMENTS[3:], config(retention_bytes=250), log_start=0, now_ms=T0
    ).expired[0]
    assert found.rule == "retention.bytes"
    assert "350 bytes in both tiers" in found.why


def test_surplus() -> None:
    """What is below the log start, covered by later copies, or half deleted; nothing else."""
    half = copy(40, 50, state=SegmentState.DELETE_STARTED)
    started = copy(0, 10, 7, state=SegmentState.COPY_STARTED)
    earlier = copy(10, 20, 8, time_ms=T0 - 5)
    wider = copy(15, 35, 9, epochs=((0, 15),), time_ms=T0 - 5)
    cache = RemoteLogMetadataCache([*COPIES, half, started, earlier, wider])
    key = TOPIC_ID, 0
    kept = valid_copies(cache.readable(key), [(0, 0)], end=50)
    assert kept == COPIES
    assert unreferenced_segments(cache.all(key), kept, log_start=0) == [earlier, half]
    # `wider` alone holds [30, 35), so it stays; below the log start all goes.
    assert unreferenced_segments(cache.all(key), kept, log_start=10) == [
        COPIES[0],
        started,
        earlier,
        half,
    ]


@given(st.data())
def test_no_offset_above_the_new_start_is_given_up(data: st.DataObject) -> None:
    """Whatever is where: what is kept of copies and local segments holds all that was held."""
    bases = sorted(data.draw(st.sets(st.integers(1, 60), max_size=8)) | {0})
    end = bases[-1] + data.draw(st.integers(0, 5))
    edges = [*bases, end]
    copies = [
        copy(low, high, size=data.draw(st.integers(1, 50)), max_timestamp=T0 - n)
        for n, (low, high) in enumerate(itertools.pairwise(edges))
        if high > low and data.draw(st.booleans())
    ]
    local = [LocalSegment(b, data.draw(st.integers(0, 50))) for b in bases]
    log_start = data.draw(st.integers(0, end))
    found = expired_segments(
        copies, local, config(retention_bytes=data.draw(st.integers(0, 200)), retention_ms=5),
        log_start=log_start, now_ms=T0 + data.draw(st.integers(-10, 10)),
        floor=data.draw(st.none() | st.integers(0, end)),
    )  # fmt: skip
    assert found.log_start >= log_start
    for offset in range(log_start, found.log_start):  # each offset that goes had expired
        assert any(s.base <= offset < s.end for s in found.expired)
    assert all(s.end <= found.log_start for s in found.expired)
