"""What is due, by Kafka's three rules. Ported: UnifiedLogTest's retention cases (Kafka 4.1)."""

from __future__ import annotations

import math

import pytest

from sparklog.config import TopicConfig
from sparklog.log.due_segments import LocalSegment, RetentionConstraints, Tier, due

NOW = 1_000_000
OPTIONS = ("log_start", "local_start", "end", "now_ms", "terms")
SEGMENTS = [
    LocalSegment(0, 100),
    LocalSegment(10, 100),
    LocalSegment(20, 100),
    LocalSegment(30, 50),
]
TIMES = {0: NOW - 5000, 10: NOW - 4000, 20: NOW - 3000, 30: NOW - 2000}


def gone(segments: list[LocalSegment] = SEGMENTS, times: dict[int, int] = TIMES, **given: object):
    options = {"log_start": 0, "end": 35, "now_ms": NOW}
    options |= {k: given.pop(k) for k in OPTIONS if k in given}
    config = TopicConfig.parse({"retention.ms": "-1"} | given)
    return due(segments, config, largest=times.__getitem__, **options)  # type: ignore[arg-type]


def bases(**given: object) -> list[int]:
    return [e.base for e in gone(**given).expired]


def test_nothing_is_due_by_default():
    found = gone()
    assert not found.expired
    assert found.log_start == 0
    assert found.next_ms == math.inf


@pytest.mark.parametrize(
    ("limit", "expected"),
    [(350, []), (251, []), (250, [0]), (151, [0]), (150, [0, 10]), (0, [0, 10, 20, 30])],
)
def test_size(limit, expected):
    """shouldDeleteSizeBasedSegments: as long as the log is no smaller than the limit afterwards."""
    found = gone(**{"retention.bytes": str(limit)})
    assert [e.base for e in found.expired] == expected
    assert found.rolls == (len(expected) == 4)


@pytest.mark.parametrize(
    ("limit", "expected"),
    [(5000, []), (4999, [0]), (3000, [0, 10]), (2999, [0, 10, 20]), (0, [0, 10, 20, 30])],
)
def test_age(limit, expected):
    """shouldDeleteTimeBasedSegments; a record just as old as allowed stays."""
    found = gone(**{"retention.ms": str(limit)})
    assert [e.base for e in found.expired] == expected
    assert found.log_start == [0, 10, 20, 30, 35][len(expected)]
    if len(expected) < 4:
        assert found.next_ms == TIMES[[0, 10, 20, 30][len(expected)]] + limit


def test_age_stops_at_the_first_young_segment():
    """A future or late timestamp pins what follows (KAFKA-19137 tells of it)."""
    times = TIMES | {10: NOW + 10**9}
    assert [e.base for e in gone(times=times, **{"retention.ms": "1000"}).expired] == [0]


def test_log_start_with_any_policy():
    """shouldDeleteStartOffsetBreachedSegmentsWhenPolicyDoesNotIncludeDelete."""
    options = {"cleanup.policy": "compact", "retention.ms": "1", "retention.bytes": "0"}
    assert bases(log_start=25, **options) == [0, 10]
    assert bases(log_start=20, **options) == [0, 10]
    assert bases(log_start=19, **options) == [0]
    assert bases(log_start=35, **options) == [0, 10, 20]  # never the active one


def test_compact_and_delete_together():
    assert bases(**{"cleanup.policy": "compact,delete", "retention.ms": "3500"}) == [0, 10]


def test_an_empty_active_segment_stays():
    segments = [*SEGMENTS[:3], LocalSegment(30, 0)]
    found = gone(segments, end=30, **{"retention.ms": "0", "retention.bytes": "0"})
    assert [e.base for e in found.expired] == [0, 10, 20]
    assert not found.rolls


def test_registered_readers_hold_back():
    found = gone(terms=RetentionConstraints(floor=15), **{"retention.ms": "0"})
    assert [e.base for e in found.expired] == [0]
    assert found.held_back == 100
    assert bases(terms=RetentionConstraints(floor=15), log_start=25, **{"retention.ms": "0"}) == [
        0,
        10,
    ]  # deleted by hand


def test_each_says_why():
    by_size = gone(**{"retention.bytes": "250"}).expired[0]
    assert (by_size.base, by_size.end, by_size.bytes) == (0, 10, 100)
    assert by_size.rule == "retention.bytes"
    assert "350 bytes" in by_size.why
    by_age = gone(**{"retention.ms": "4500"}).expired[0]
    assert by_age.rule == "retention.ms"
    assert "5000 ms old, 4500 allowed" in by_age.why


# --- local segments of tiered topics: UnifiedLogTest's remote cases ----------------------------


def tier(*copied: tuple[int, int], **given: object) -> RetentionConstraints:
    return RetentionConstraints(tier=Tier(copied), **given)  # type: ignore[arg-type]


def test_only_what_has_a_copy_goes():
    options = {"retention.ms": "-1", "local.retention.bytes": "0"}
    assert bases(terms=tier(), **options) == []
    assert bases(terms=tier((0, 20)), **options) == [0, 10]
    assert bases(terms=tier((0, 19)), **options) == [0]
    assert bases(terms=tier((0, 10), (20, 30)), **options) == [0]  # never past a hole
    assert bases(terms=tier((5, 30)), log_start=5, **options) == [0, 10, 20]


def test_local_limits_count():
    options = {"retention.ms": "9000", "local.retention.ms": "3500"}
    found = gone(terms=tier((0, 30)), **options)
    assert [e.base for e in found.expired] == [0, 10]
    assert found.local
    assert (found.log_start, found.rolls) == (20, False)
    assert {e.rule for e in found.expired} == {"local.retention.ms"}
    assert found.next_ms == TIMES[20] + 3500
    assert not gone(**options).local


def test_minus_2_follows_the_whole():
    assert bases(terms=tier((0, 30)), **{"retention.ms": "3500"}) == [0, 10]
    assert bases(terms=tier((0, 30)), **{"retention.bytes": "250"}) == [0]
    assert bases(terms=tier((0, 30)), **{"retention.bytes": "250", "local.retention.bytes": "0"})


def test_an_active_segment_that_breaches_is_rolled():
    """shouldRoll of UnifiedLog.deletableSegments: it is copied next, and goes then."""
    found = gone(terms=tier((0, 30)), **{"local.retention.ms": "0"})
    assert [e.base for e in found.expired] == [0, 10, 20]
    assert found.rolls
    assert found.log_start == 30
    assert not gone(terms=tier((0, 20)), **{"local.retention.ms": "0"}).rolls
    empty = [*SEGMENTS[:3], LocalSegment(30, 0)]
    assert not gone(empty, terms=tier((0, 30)), end=30, **{"local.retention.ms": "0"}).rolls


def test_readers_do_not_hold_local_segments():
    found = gone(terms=tier((0, 30), floor=5), **{"local.retention.bytes": "0"})
    assert [e.base for e in found.expired] == [0, 10, 20]
    assert not found.held_back


def test_what_lies_below_the_local_start_goes():
    """A power cut during a deletion brought some of it back."""
    found = gone(terms=tier((0, 30)), local_start=20)
    assert [e.base for e in found.expired] == [0, 10]
    assert found.log_start == 20
    assert found.expired[0].rule == "local.log.start.offset"


def test_without_copying_local_segments_wait_for_the_copies():
    """remote.log.copy.disable: the whole's limits, and the log start rises in order."""
    stopped = RetentionConstraints(tier=Tier(((0, 20),), copying=False))
    kept = [LocalSegment(20, 100), LocalSegment(30, 50)]
    options = {"retention.ms": "2500", "local.retention.ms": "1"}
    assert not gone(kept, terms=stopped, local_start=20, **options).expired
    found = gone(kept, terms=stopped, log_start=20, **options)
    assert [e.base for e in found.expired] == [20]
    assert not found.local
    assert found.expired[0].rule == "retention.ms"
    waits = RetentionConstraints(floor=25, tier=Tier((), copying=False))
    assert gone(kept, terms=waits, log_start=20, **options).held_back == 100


@pytest.mark.parametrize(("floor", "expected"), [(0, []), (19, [0]), (20, [0, 10]), (29, [0, 10])])
def test_a_registered_reader_keeps_what_it_has_not_read(floor: int, expected: list[int]) -> None:
    """A segment goes only if the reader is behind its last record."""
    assert bases(terms=RetentionConstraints(floor=floor), **{"retention.ms": "0"}) == expected
