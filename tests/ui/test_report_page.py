"""The page as text: escaped, whole, small, its colours legible."""

import base64
import hashlib
import re
from dataclasses import replace
from importlib.resources import files
from pathlib import Path

import pyarrow as pa
import pytest
from markupsafe import Markup, escape

import sparklog
from sparklog.service import Severity
from sparklog.service.health import Health
from sparklog.ui import units
from sparklog.ui.report.build import make_report
from sparklog.ui.report.charts import blocks
from sparklog.ui.report.growth import growth
from sparklog.ui.report.model import (
    CommitsReport,
    GrowthReport,
    LogReport,
    Notice,
    PartitionReport,
    SegmentReport,
    TopicReport,
    Where,
)
from sparklog.ui.report.page import content, render
from sparklog.ui.templating import Refresh, document
from tests.ui.page_text import checked

CSS = files("sparklog.ui").joinpath("static/page.css").read_text("utf-8")


def test_the_page_is_whole_and_asks_for_nothing(demo_report: LogReport) -> None:
    page = render(demo_report)
    found = checked(page)
    assert found.tags.count("script") == 1
    assert "default-src &#39;none&#39;" in page
    assert found.tags.count("h1") == 1
    assert len(page.encode()) < 400_000
    headings = re.findall(r'<h2 id="(\w+)-h"', page)
    assert headings.pop(0) == "health"
    assert headings == ["topics", "growth", "segments", "retention", "compaction", "commits",
                        "readers", "directories"]  # fmt: skip
    for name in headings:
        assert f'href="#{name}"' in page
    pictures = re.findall(r'<svg class="(?:strip|bar|plot|spark)"[^>]*>', page)
    assert len(pictures) > 30
    assert all('role="img"' in p and "aria-label=" in p for p in pictures)


@pytest.mark.parametrize("is_live", [False, True])
def test_the_policy_names_each_script_and_no_other(demo_report: LogReport, is_live: bool) -> None:
    refresh = Refresh(source="content", every_ms=5000, made_ms=0) if is_live else None
    page = document("title", content(demo_report), refresh=refresh, served=is_live).text
    scripts = re.findall(r"<script>(.*?)</script>", page, re.S)
    (policy,) = re.findall(r'http-equiv="Content-Security-Policy" content="([^"]+)"', page)
    digests = [base64.b64encode(hashlib.sha256(s.encode()).digest()).decode() for s in scripts]
    assert re.findall("sha256-([^&]+)&#39;", policy) == digests
    assert len(scripts) == (2 if is_live else 1)
    assert f"connect-src &#39;{'self' if is_live else 'none'}&#39;" in policy
    assert "unsafe" not in policy.replace("style-src &#39;unsafe-inline&#39;", "")
    assert ('data-refresh="5000"' in page) is is_live


def test_templates_escape_text_and_replace_forbidden_characters() -> None:
    found = str(document("<&\"'a\x00\ud800\x1b", Markup("<br>")).text)
    assert "<title>&lt;&amp;&#34;&#39;a\ufffd\ufffd\ufffd</title>" in found
    assert '<main id="content" tabindex="-1"><br></main>' in found


@pytest.mark.parametrize("name", ["a<b>&c", "\"quoted'", "</title><script>alert(1)", "عربي"])
def test_whatever_a_name_is(demo_report: LogReport, name: str) -> None:
    """Names of topics, writers, groups, dirs, configs, and what errors say."""
    topics = tuple(
        replace(t, name=name + str(at), partitions=tuple(
            replace(p, topic=name + str(at), error=name if not at else None) for p in t.partitions
        ))
        for at, t in enumerate(demo_report.topics)
    )  # fmt: skip
    writers = tuple(
        replace(w, writer="w", query=name, topics=(name,)) for w in demo_report.commits.writers
    )
    found = replace(
        demo_report, topics=topics, path=name, url=name,
        commits=replace(demo_report.commits, writers=writers),
        readers=tuple(replace(r, group="g", query=name, topic=name) for r in demo_report.readers),
        directories=tuple(replace(d, path=name, offline=name) for d in demo_report.directories),
        notices=(Notice(severity=Severity.DAMAGE, where=name, what=name),),
    )  # fmt: skip
    page = render(found)
    tags = checked(page).tags
    assert tags.count("script") == 1
    assert "b" not in tags
    assert page.count(f"<bdi>{escape(name)}</bdi>") > 8
    assert f"<bdi>{escape(name)} (w)</bdi>" in page
    assert f"<bdi>{escape(name)} (g)</bdi>" in page


def test_the_size_stays_bounded() -> None:
    """1,000 partitions and 20,000 segments."""
    page = render(grown(large(topics=10, partitions=100, segments=20)))
    checked(page)
    assert len(page.encode()) < 2_500_000
    many = render(grown(large(topics=1000, partitions=1, segments=20)))
    checked(many)
    assert len(many.encode()) < 1_000_000
    long = render(grown(large(topics=1, partitions=1, segments=20_000)))
    checked(long)
    assert len(long.encode()) < 300_000
    assert "20,000" in long


def grown(report: LogReport) -> LogReport:
    """With what all topics wrote over time."""
    return replace(report, growth=growth(report.topics, now_ms=report.time_ms))


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
        health=Health("large", 1_700_100_000_000, "log", ()),
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
    *((text, ground) for text in ("--ink", "--soft", "--accent")
      for ground in ("--surface", "--page", "--chip", "--tint")),
    *((f"--{level}", ground) for level in ("green", "amber", "red")
      for ground in ("--surface", "--page", f"--{level}-bg")),
    *((text, f"--{level}-bg") for level in ("green", "amber", "red")
      for text in ("--ink", "--soft", "--accent")),
    ("--held", "--surface"), ("--on-accent", "--accent"),
]  # fmt: skip
SHAPES = ["--local", "--both", "--remote", "--held", "--none", "--gzip", "--snappy",
          "--lz4", "--zstd", "--edge"]  # fmt: skip


def palette(scheme: str) -> dict[str, str]:
    light, _, rest = CSS.partition("@media screen and (prefers-color-scheme: dark)")
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
        (units.duration_text(90_000), "1.5 min"), (units.duration_text(86_400_000), "1 d"),
        (units.ago_text(0, 3_600_000), "1 h ago"), (units.ago_text(7_200_000, 0), "in 2 h"),
        (units.share_text(0.042), "4.2 %"), (units.share_text(1), "100 %"),
        (units.tick_text(0, binary=True), "0"),
        (units.tick_text(20 * 2**20, binary=True), "20 MiB"),
        (units.tick_text(2560, binary=True), "2.5 KiB"), (units.tick_text(2_000_000), "2 M"),
        (units.tick_text(100), "100"), (units.tick_text(2_500_000), "2.5 M"),
    ],
)  # fmt: skip
def test_numbers(shown: str, wanted: str) -> None:
    """A number and its unit stay on one line."""
    is_date = wanted.startswith("1970")
    assert shown == (wanted if is_date else wanted.replace(" ", "\xa0"))


def test_shares_and_times_of_a_short_log(tmp_path: Path) -> None:
    """Shares are of the whole log, and an axis of less than a second has a tick at both ends."""
    path = tmp_path / "log"
    with sparklog.open(path, "rw", options={"flush": "none"}) as log:
        for name, count in (("large", 300), ("small", 100)):
            log.create_topic(name, config={"cleanup.policy": "compact"})
            times = pa.array([1_700_000_000_300 + n for n in range(count)], pa.timestamp("ms"))
            rows = {"key": ["k"] * count, "value": ["x" * 50] * count, "timestamp": times}
            log.append(name, pa.table(rows))
    page = content(make_report(path))
    shares = dict(re.findall('aria-label="(large|small): (\\d+)\xa0% of the log"', page))
    assert set(shares) == {"large", "small"}
    assert sum(map(int, shares.values())) in (99, 100, 101)
    assert int(shares["large"]) < 90
    axes = re.findall('data-low="([0-9]+)" data-high="([0-9]+)">(.*?)</div>', page, re.S)
    assert len(axes) >= 2
    for low, high, ticks in axes:
        assert int(low) % 1000 == int(high) % 1000 == 0
        assert 'class="first" style="--at:0.0"' in ticks
        assert 'class="last" style="--at:1.0"' in ticks
    assert "active segment of a partition is not counted" in page


def test_a_report_of_nothing() -> None:
    empty = replace(large(topics=0, partitions=0, segments=1), path="<&\"'")
    page = render(empty)
    checked(page)
    assert "no topics yet" in page
    assert "&lt;&amp;&#34;&#39;" in page
