"""What is due, by Kafka's three rules. Ported: UnifiedLogTest's retention cases (Kafka 4.1)."""

from __future__ import annotations

import math

import pytest

from sparklog.config import TopicConfig
from sparklog.log.retention import Held, due

NOW = 1_000_000
SEGMENTS = [Held(0, 100), Held(10, 100), Held(20, 100), Held(30, 50)]
TIMES = {0: NOW - 5000, 10: NOW - 4000, 20: NOW - 3000, 30: NOW - 2000}


def gone(segments: list[Held] = SEGMENTS, times: dict[int, int] = TIMES, **given: object):
    options = {"log_start": 0, "end": 35, "now_ms": NOW}
    options |= {k: given.pop(k) for k in ("log_start", "end", "now_ms", "floor") if k in given}
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
    segments = [*SEGMENTS[:3], Held(30, 0)]
    found = gone(segments, end=30, **{"retention.ms": "0", "retention.bytes": "0"})
    assert [e.base for e in found.expired] == [0, 10, 20]
    assert not found.rolls


def test_registered_readers_hold_back():
    found = gone(floor=15, **{"retention.ms": "0"})
    assert [e.base for e in found.expired] == [0]
    assert found.held_back == 100
    assert bases(floor=15, log_start=25, **{"retention.ms": "0"}) == [0, 10]  # deleted by hand


def test_each_says_why():
    by_size = gone(**{"retention.bytes": "250"}).expired[0]
    assert (by_size.base, by_size.end, by_size.bytes) == (0, 10, 100)
    assert by_size.rule == "retention.bytes"
    assert "350 bytes" in by_size.why
    by_age = gone(**{"retention.ms": "4500"}).expired[0]
    assert by_age.rule == "retention.ms"
    assert "5000 ms old, 4500 allowed" in by_age.why
