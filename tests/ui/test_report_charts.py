"""Geometry of the charts: positions within the chart, and what a scale cuts, in words too."""

from dataclasses import replace
from itertools import pairwise

import pytest

from sparklog.quantities import DAY_MS, HOUR_MS
from sparklog.ui.report.charts import (
    EMPTY,
    area_chart,
    bar,
    blocks,
    column_chart,
    mark,
    offset_axis,
    spark,
    strip,
    time_axis,
)
from sparklog.ui.report.model import GrowthReport, SegmentReport, Where
from sparklog.ui.report.page import content
from sparklog.ui.report.scales import scale
from tests.ui.test_report_page import large

T0 = 1_700_000_000_000


def test_one_large_commit_does_not_flatten_the_rest() -> None:
    usual = [100 + n for n in range(30)]
    limit = scale([*usual, 400_000], cuts=True)
    assert limit.top == pytest.approx(129 * 1.25)
    assert limit.share(100) > 0.6
    assert limit.share(400_000) == 1
    chart = column_chart("records", range(32), [*usual, 400_000], str)
    assert [column.is_cut for column in chart.columns] == [False] * 30 + [True]
    assert (chart.cut, chart.cut_more) == ((("400000", 30),), 0)
    assert spark([*usual, 400_000], "records").cuts == (14.5,)  # of 16 points
    assert scale([*usual, 400_000]).top == 400_000  # a total isn't cut


@pytest.mark.parametrize("values", [[], [0, 0], [5], [1, 1000], [3] * 40, list(range(50))])
def test_what_has_no_outliers_is_not_cut(values: list[int]) -> None:
    assert scale(values, cuts=True).top == max([*values, 0]) or not any(values)
    chart = column_chart("", range(len(values) + 1), values, str)
    assert not chart.cut
    assert not any(column.is_cut for column in chart.columns)


def test_the_page_names_the_values_that_are_cut() -> None:
    sizes = tuple([1024] * 66 + [2**30 + at for at in range(6)])
    edges = tuple(T0 + at * HOUR_MS for at in range(len(sizes) + 1))
    report = replace(
        large(topics=1, partitions=1, segments=2),
        growth=GrowthReport(edges_ms=edges, bytes={"local": sizes}),
    )
    page = content(report)
    assert page.count('class="cut"') == 6
    assert page.count("<span>1.0\xa0GiB at <time") == 3
    assert "</span>, and 3 more.</p>" in page


def test_columns_stand_on_the_base_and_within_the_chart() -> None:
    chart = column_chart("records", range(5), [4, 0, 1, 1000], str)
    assert [column.title for column in chart.columns][:1] == ["1970-01-01 00:00: 4"]
    assert len(chart.columns) == 3  # no column for 0
    for column in chart.columns:
        assert column.y + column.height == pytest.approx(100, abs=0.1)
        assert 0 <= column.x < column.x + column.width <= 1000
    assert chart.ticks[0].y == 100


def test_areas_stand_on_top_of_each_other() -> None:
    chart = area_chart("bytes", [0, 1, 2], {"w-local": [0, 1, 3], "w-remote": [0, 1, 1]})
    assert [area.path for area in chart.areas] == [
        "M0.0 100.00L500.0 75.00L1000.0 25.00L1000.0 100.00L500.0 100.00L0.0 100.00Z",
        "M0.0 100.00L500.0 50.00L1000.0 0.00L1000.0 25.00L500.0 75.00L0.0 100.00Z",
    ]
    alone = area_chart("bytes", [0, 1], {"area": [0, 2]})
    assert [area.style for area in alone.areas] == ["area", "line"]


def test_parts_of_a_bar_never_exceed_it() -> None:
    drawn = bar([("w-a", 0.5), ("w-b", 0), ("w-c", 0.9), ("w-d", 0.1)], "label", mark=2)
    assert [(p.x, p.width, p.style) for p in drawn.parts] == [(0, 50, "w-a"), (50, 50, "w-c")]
    assert drawn.mark == 99.5
    assert bar([("w-a", 1e-9)], "label").parts[0].width == 0.6  # a small part stays visible
    assert bar([], "label").mark is None


def test_a_strip_shows_places_codecs_and_marks() -> None:
    def segment(base: int, size: int, where: Where, codec: str | None) -> SegmentReport:
        return SegmentReport(base=base, end=base + 10, bytes=size, where=where, codec=codec,
                             first_ms=T0, last_ms=T0)  # fmt: skip

    row = [segment(0, 5, Where.REMOTE, None), segment(10, 0, Where.LOCAL, None),
           segment(20, 5, Where.BOTH, "lz4")]  # fmt: skip
    found = blocks(row, [(0, 30), (30, 60), (60, 90)], 10)
    marks = [mark(1, "start", "log start 0")]
    tiered = strip(found, "t-0", marks, codecs=True)
    assert [(b.style, b.codec) for b in tiered.blocks] == [
        ("w-remote", "c-unknown"), (EMPTY, None), ("w-both", "c-lz4"),
    ]  # fmt: skip
    assert all(a.x + a.width < b.x for a, b in pairwise(tiered.blocks))
    assert "remote" in tiered.blocks[0].title
    assert tiered.marks[0].x == 99.8  # the line stays within the strip
    plain = strip(found, "t-0", tiered=False, start=10)
    assert [(b.style, b.codec) for b in plain.blocks] == [
        (EMPTY, None), (EMPTY, None), ("w-local", None),
    ]  # fmt: skip
    assert "remote" not in plain.blocks[0].title


def test_labels_at_the_ends_of_an_axis_stay_within_the_chart() -> None:
    edges = [tick.edge for tick in offset_axis(100).ticks]
    assert edges == ["first", None, "last"]
    assert [tick.words for tick in offset_axis(100).ticks] == ["0", "+50", "+100"]
    assert offset_axis(150, before=50).ticks[0].share == pytest.approx(1 / 3, abs=1e-4)
    assert time_axis(T0, T0 + HOUR_MS // 10).is_short
    axis = time_axis(T0, T0 + DAY_MS)
    assert not axis.is_short
    assert all(tick.time is not None and 0 <= tick.share <= 1 for tick in axis.ticks)
