"""Axes: round ticks, and a scale that a few values don't flatten; bytes in bins of one length."""

from itertools import pairwise

import pytest

from sparklog.quantities import DAY_MS, HOUR_MS
from sparklog.ui.report.growth import begins, growth
from sparklog.ui.report.model import SegmentReport, Where
from sparklog.ui.report.scales import bin_edges, scale, time_ticks
from tests.ui.test_report_page import large

T0 = 1_700_000_000_000


@pytest.mark.parametrize("binary", [False, True])
@pytest.mark.parametrize("top", [1, 7, 99, 1000, 1023, 2**20, 57 * 2**20, 2**62])
def test_ticks_are_round_few_and_begin_at_0(top: int, binary: bool) -> None:
    found = scale([top], binary=binary)
    assert found.ticks[0] == 0
    assert 2 <= len(found.ticks) <= 6
    assert found.ticks[-1] <= found.top == top
    step = found.ticks[1]
    digits = f"{step:.0f}".rstrip("0")
    assert step == 2 ** round(step).bit_length() / 2 if binary else digits in ("1", "2", "5")


@pytest.mark.parametrize("span", [1000, 50_000, HOUR_MS, 30 * HOUR_MS, 9 * DAY_MS, 90 * DAY_MS,
                                  900 * DAY_MS, 30_000 * DAY_MS])  # fmt: skip
def test_times_are_round(span: int) -> None:
    found = time_ticks(T0, T0 + span)
    assert 1 <= len(found) <= 6
    assert all(T0 <= tick.time_ms <= T0 + span for tick in found)
    assert all(after.time_ms > before.time_ms for before, after in pairwise(found))
    if span < 20 * DAY_MS:
        assert all(tick.time_ms % tick.step_ms == 0 for tick in found)
    edges = bin_edges(T0, T0 + span, 72)
    assert len(edges) <= 73
    assert edges[0] <= T0
    assert edges[-1] >= T0 + span
    assert len({after - before for before, after in pairwise(edges)}) == 1


@pytest.mark.parametrize("seconds", range(1, 110))
def test_labels_with_seconds_have_room_on_a_phone(seconds: int) -> None:
    low = T0 // 60_000 * 60_000
    ticks = time_ticks(low, low + 1000 * seconds)
    assert 2 <= len(ticks) <= 4
    assert all(after.time_ms - at.time_ms >= 280 * seconds for at, after in pairwise(ticks))


@pytest.mark.parametrize("low", [-(2**62), 2**50, 0])
def test_times_that_no_calendar_has(low: int) -> None:
    assert time_ticks(low, low + 2**61) == []
    assert len(bin_edges(low, low + 2**61, 72)) <= 73


def remote(base: int, last_ms: int | None) -> SegmentReport:
    return SegmentReport(base=base, end=base + 1, bytes=10, where=Where.REMOTE, codec=None,
                         first_ms=None, last_ms=last_ms)  # fmt: skip


def test_where_a_remote_segment_begins() -> None:
    """It would take a request to know: after the one before it, the first as long as the next."""
    row = [remote(0, 1000), remote(1, 3000), remote(2, 2500), remote(3, None)]
    assert list(begins(row)) == [-1000, 1000, 2500, None]
    assert list(begins([remote(0, 1000)])) == [1000]
    assert list(begins([])) == []


def test_growth_of_each_topic_adds_up_to_all() -> None:
    topics = large(topics=3, partitions=2, segments=30).topics
    found = growth(topics, now_ms=T0 + DAY_MS)
    whole = sum(sum(values) for values in found.bytes.values())
    assert sum(sum(values) for values in found.topics.values()) == pytest.approx(whole, abs=300)
    assert whole == pytest.approx(3 * 2 * 30 * 2**20, abs=300)
    assert found.topics.keys() == {"topic0", "topic1", "topic2"}
