"""The page as text: escaped, whole, small, its colours legible."""

import base64
import hashlib
import re
from dataclasses import replace
from importlib.resources import files

import pytest

from sparklog.service import Severity
from sparklog.tools.report import units
from sparklog.tools.report.charts import blocks
from sparklog.tools.report.html import Html, el, foreign, text
from sparklog.tools.report.model import (
    CommitsReport,
    GrowthReport,
    LogReport,
    Notice,
    PartitionReport,
    SegmentReport,
    TopicReport,
    Where,
)
from sparklog.tools.report.page import render
from tests.tools.page_text import checked

CSS = files("sparklog.tools.report").joinpath("page.css").read_text("utf-8")


def test_the_page_is_whole_and_asks_for_nothing(demo_report: LogReport) -> None:
    page = render(demo_report)
    found = checked(page)
    assert "script" not in found.tags
    assert "default-src &#x27;none&#x27;" in page
    assert found.tags.count("h1") == 1
    assert len(page.encode()) < 400_000
    headings = re.findall(r'<h2 id="(\w+)-h"', page)
    assert headings == ["topics", "growth", "segments", "retention", "compaction", "commits",
                        "readers", "directories"]  # fmt: skip
    for name in headings:
        assert f'href="#{name}"' in page
    pictures = re.findall(r'<svg class="(?:strip|bar|columns)"[^>]*>', page)
    assert len(pictures) > 30
    assert all('role="img"' in p and "aria-label=" in p for p in pictures)


def test_only_the_live_page_has_a_script_and_its_policy_names_it(demo_report: LogReport) -> None:
    page = render(demo_report, refresh_ms=5000)
    (script,) = re.findall(r"<script>(.*?)</script>", page, re.S)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert f"sha256-{digest}" in page
    assert 'data-refresh="5000"' in page


def test_text_is_escaped_and_html_is_not() -> None:
    assert text("<&\"'") == "&lt;&amp;&quot;&#x27;"
    assert el("p", "<", Html("<br>"), None, [1, "&"], class_='"') == (
        '<p class="&quot;">&lt;<br>1&amp;</p>'
    )
    assert el("a", hidden=True, title=None, data_at="1") == '<a hidden data-at="1"></a>'
    assert text("a\x00\ud800\x1bb") == "a\ufffd\ufffd\ufffdb"


@pytest.mark.parametrize("name", ["a<b>&c", "\"quoted'", "</title><script>alert(1)", "عربي"])
def test_whatever_a_name_is(demo_report: LogReport, name: str) -> None:
    """Names of topics, writers, groups, dirs, configs, and what errors say."""
    topics = tuple(
        replace(t, name=name + str(at), partitions=tuple(
            replace(p, topic=name + str(at), error=name if not at else None) for p in t.partitions
        ))
        for at, t in enumerate(demo_report.topics)
    )  # fmt: skip
    writers = tuple(replace(w, writer=name, topics=(name,)) for w in demo_report.commits.writers)
    found = replace(
        demo_report, topics=topics, path=name, url=name,
        commits=replace(demo_report.commits, writers=writers),
        readers=tuple(replace(r, group=name, topic=name) for r in demo_report.readers),
        directories=tuple(replace(d, path=name, offline=name) for d in demo_report.directories),
        notices=(Notice(severity=Severity.DAMAGE, where=name, what=name),),
    )  # fmt: skip
    page = render(found)
    tags = checked(page).tags
    assert "script" not in tags
    assert "b" not in tags
    assert page.count(foreign(name)) > 8


def test_the_size_stays_bounded() -> None:
    """1,000 partitions and 20,000 segments."""
    page = render(large(topics=10, partitions=100, segments=20))
    checked(page)
    assert len(page.encode()) < 2_500_000
    many = render(large(topics=1000, partitions=1, segments=20))
    checked(many)
    assert len(many.encode()) < 1_500_000
    long = render(large(topics=1, partitions=1, segments=20_000))
    checked(long)
    assert len(long.encode()) < 300_000
    assert "20,000" in long


def large(*, topics: int, partitions: int, segments: int) -> LogReport:
    """A report of so many of each, tiers and codecs mixed."""
    places, codecs = list(Where), ["zstd", "lz4", "none"]

    def segment(n: int) -> SegmentReport:
        where = places[min(2, (segments - n - 1) * 3 // segments)]
        return SegmentReport(
            base=n * 1000, end=n * 1000 + 1000, bytes=1 << 20, where=where,
            codec=None if where is Where.REMOTE else codecs[n % 3],
            first_ms=1_700_000_000_000 + n * 60_000, last_ms=1_700_000_060_000 + n * 60_000,
        )  # fmt: skip

    row = tuple(segment(n) for n in range(segments))
    return LogReport(
        path="large", kind="log", url=None, time_ms=1_700_100_000_000, took_ms=1, version="0",
        directories=(), growth=GrowthReport(), commits=CommitsReport(), readers=(), notices=(),
        topics=tuple(
            TopicReport(
                name=f"topic{t}", id="x", config={}, cleanup_policy=("delete",),
                remote_storage_enable=True,
                partitions=tuple(
                    PartitionReport(topic=f"topic{t}", partition=p, directory="d", segments=row,
                                    end=segments * 1000)
                    for p in range(partitions)
                ),
            )
            for t in range(topics)
        ),
    )  # fmt: skip


def test_narrow_segments_become_one_block_and_none_is_lost() -> None:
    row = large(topics=1, partitions=1, segments=5000).topics[0].partitions[0].segments
    spans = [(n / 50, (n + 1) / 50) for n in range(5000)]
    found = blocks(row, spans, 160)
    assert len(found) <= 2 * 160 + 2
    assert [s for block in found for s in block.segments] == list(row)
    few = blocks(row[:4], [(0, 25), (25, 50), (50, 75), (75, 100)], 160)
    assert len(few) == 4


# --- colours --------------------------------------------------------------------------------------

TEXT = [
    ("--ink", "--surface"), ("--ink", "--page"), ("--soft", "--surface"), ("--soft", "--page"),
    ("--link", "--surface"), ("--link", "--page"), ("--soft", "--chip"),
    ("--damage", "--surface"), ("--damage", "--damage-bg"), ("--ink", "--damage-bg"),
    ("--warning", "--surface"), ("--warning", "--warning-bg"), ("--ink", "--warning-bg"),
    ("--held", "--surface"),
]  # fmt: skip
SHAPES = ["--local", "--both", "--remote", "--gone", "--held", "--dirty", "--lag", "--none",
          "--gzip", "--snappy", "--lz4", "--zstd"]  # fmt: skip


def palette(scheme: str) -> dict[str, str]:
    light, _, rest = CSS.partition("@media (prefers-color-scheme: dark)")
    found = dict(re.findall(r"(--[\w-]+): (#\w{6})", light))
    dark = dict(re.findall(r"(--[\w-]+): (#\w{6})", rest.partition("*, *::before")[0]))
    assert len(dark) > 20
    return found if scheme == "light" else found | dark


def luminance(colour: str) -> float:
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    r, g, b = (c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts)
    return 0.2126 * r + 0.7152 * g + 0.0722 * b


def contrast(one: str, other: str) -> float:
    """As WCAG 2 has it."""
    light, dark = sorted((luminance(one), luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_contrast(scheme: str) -> None:
    colours = palette(scheme)
    low = {pair: contrast(*(colours[name] for name in pair)) for pair in TEXT}
    assert {pair: ratio for pair, ratio in low.items() if ratio < 4.5} == {}
    shapes = {name: contrast(colours[name], colours["--surface"]) for name in SHAPES}
    assert {name: ratio for name, ratio in shapes.items() if ratio < 3} == {}
    assert contrast("#000000", "#ffffff") == pytest.approx(21)


# --- numbers --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("shown", "wanted"),
    [
        (units.size_text(0), "0 B"), (units.size_text(1023), "1023 B"),
        (units.size_text(1536), "1.5 KiB"), (units.size_text(2**62), "4.0 EiB"),
        (units.count_text(999_999), "999,999"), (units.count_text(2**62), "4.61 E"),
        (units.time_text(0), "1970-01-01 00:00"), (units.time_text(None), units.NONE),
        (units.time_text(2**62), "4,611,686,018,427,387,904 ms"),
        (units.span_text(90_000), "1.5 min"), (units.span_text(86_400_000), "1 d"),
        (units.ago_text(0, 3_600_000), "1 h ago"), (units.ago_text(7_200_000, 0), "in 2 h"),
        (units.share_text(0.042), "4.2 %"), (units.share_text(1), "100 %"),
    ],
)  # fmt: skip
def test_numbers(shown: str, wanted: str) -> None:
    assert shown == wanted


def test_a_report_of_nothing() -> None:
    empty = replace(large(topics=0, partitions=0, segments=1), path="<&\"'")
    page = render(empty)
    checked(page)
    assert "no topics yet" in page
    assert "&lt;&amp;&quot;&#x27;" in page
