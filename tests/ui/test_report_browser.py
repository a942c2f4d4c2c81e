"""The page in a real browser: nothing is cut, broken, pale or asked for; times are the viewer's."""

import re
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from sparklog.service import Severity
from sparklog.service.health import Check, Health, Level
from sparklog.ui.report.model import LogReport, Notice, Where
from sparklog.ui.report.page import content, render
from sparklog.ui.templating import Refresh, document
from tests import depth

# What is wrong with the layout: text outside the window or its box, words on top of each other.
FAULTS = """() => {
  const found = [], wide = innerWidth, boxes = [];
  if (document.documentElement.scrollWidth > wide)
    found.push(`the page is ${document.documentElement.scrollWidth} wide`);
  const words = (e) => [...e.childNodes].some((n) => n.nodeType === 3 && n.textContent.trim());
  for (const e of document.querySelectorAll("main *")) {
    if (e.closest("svg, caption, .skip") || !words(e) || !e.checkVisibility()) continue;
    if (e.closest("thead") && wide < 760) continue;
    for (const node of e.childNodes) {
      if (node.nodeType !== 3 || !node.textContent.trim()) continue;
      const range = document.createRange();
      range.selectNodeContents(node);
      for (const r of range.getClientRects()) {
        const what = node.textContent.trim().slice(0, 40);
        if (r.left < -0.5 || r.right > wide + 0.5) found.push(`outside: ${what}`);
        const holder = e.closest("td, th, li, dd, dt, p, h1, h2, h3, section") ?? document.body;
        const box = holder.getBoundingClientRect();
        if (r.right > box.right + 1 || r.left < box.left - 1) found.push(`out of its box: ${what}`);
        boxes.push([r, what, node]);
      }
    }
  }
  // What stays on one line, and numbers in tables.
  const whole = "main time, main .nb, main .axis *, main .y span, thead th, td.n *, td.t *";
  for (const e of document.querySelectorAll(whole)) {
    if (!e.checkVisibility() || !words(e) || (e.closest("thead") && wide < 760)) continue;
    if (e.matches("thead th") && !/≤|now/.test(e.textContent)) continue;
    const range = document.createRange();
    range.selectNodeContents(e);
    const lines = new Set([...range.getClientRects()].map((r) => Math.round(r.bottom)));
    if (lines.size > 1) found.push(`broken over lines: ${e.textContent.slice(0, 40)}`);
  }
  // Boxes of a row fill it: no empty cell is left over.
  for (const list of document.querySelectorAll(".tiles")) {
    const box = list.getBoundingClientRect(), rows = new Map();
    for (const e of list.children) {
      const r = e.getBoundingClientRect();
      rows.set(Math.round(r.top), Math.max(rows.get(Math.round(r.top)) ?? 0, r.right));
    }
    for (const right of rows.values())
      if (right < box.right - 2) found.push(`an empty cell from ${right} on`);
  }
  for (const svg of document.querySelectorAll("main svg")) {
    const r = svg.getBoundingClientRect();
    if (r.right > wide + 0.5) found.push(`a picture ends at ${r.right}`);
    if (r.width && r.width < 8) found.push(`a picture is ${r.width} wide`);
  }
  boxes.sort((a, b) => a[0].top - b[0].top);
  for (let i = 0; i < boxes.length; i++)
    for (let j = i + 1; j < boxes.length && boxes[j][0].top < boxes[i][0].bottom - 3; j++) {
      const [a, b] = [boxes[i][0], boxes[j][0]];
      if (boxes[i][2] === boxes[j][2]) continue; // a line that is shortened has two
      if (Math.min(a.right, b.right) - Math.max(a.left, b.left) > 1)
        found.push(`overlap: ${boxes[i][1]} / ${boxes[j][1]}`);
    }
  return { faults: [...new Set(found)].slice(0, 10), texts: boxes.length };
}"""
# Text that is too pale, as it is shown; what is drawn in a picture has no text.
PALE = """() => {
  const parse = (c) => (c.match(/[\\d.]+/g) ?? []).map(Number);
  const part = (v) => v / 255 <= 0.04045 ? v / 255 / 12.92 : ((v / 255 + 0.055) / 1.055) ** 2.4;
  const light = ([r, g, b]) => 0.2126 * part(r) + 0.7152 * part(g) + 0.0722 * part(b);
  const ground = (e) => {
    for (let at = e; at; at = at.parentElement) {
      const c = parse(getComputedStyle(at).backgroundColor);
      if (c.length === 3 || c[3] === 1) return c;
    }
    return [255, 255, 255];
  };
  const found = new Set();
  let count = 0;
  for (const e of document.querySelectorAll("body *")) {
    if (e.closest("svg, script, style") || !e.checkVisibility()) continue;
    if (![...e.childNodes].some((n) => n.nodeType === 3 && n.textContent.trim())) continue;
    const [a, b] = [light(parse(getComputedStyle(e).color)), light(ground(e))];
    const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    count++;
    if (ratio < 4.5) found.add(`${ratio.toFixed(2)}: ${e.textContent.trim().slice(0, 40)}`);
  }
  return { pale: [...found], count };
}"""
ALL_SIZES = [(w, s) for w in (390, 1440) for s in ("light", "dark")]
SIZES = depth.by_depth(small=[(390, "dark"), (1440, "light")], ci=ALL_SIZES, all=ALL_SIZES)


def odd(report: LogReport) -> LogReport:
    """The same with names and numbers that try the layout."""
    long, rtl = "a-very-long-topic-name." * 10, "דוחות יומיים"
    topics = list(report.topics)
    for at, name in ((0, long), (1, rtl), (2, "<b>&\"'")):
        partitions = tuple(replace(p, topic=name) for p in topics[at].partitions)
        topics[at] = replace(topics[at], name=name, partitions=partitions)
    first = topics[0].partitions[0]
    huge = replace(first, log_start=0, end=2**62)
    topics[0] = replace(topics[0], partitions=(huge, *topics[0].partitions[1:]))
    writers = tuple(
        replace(w, writer=name, records=2**62)
        for w, name in zip(report.commits.writers, (long, rtl, "x" * 249), strict=False)
    )
    readers = tuple(replace(r, group=long, lag=2**62) for r in report.readers)
    notices = (
        Notice(severity=Severity.DAMAGE, where="/data/" + "d" * 200, what=f"offline: {long}"),
        Notice(severity=Severity.WARNING, where=rtl, what="שגיאה (error) 42"),
    )
    commits = replace(report.commits, writers=writers)
    return replace(report, topics=tuple(topics), commits=commits, readers=readers, notices=notices)


@pytest.fixture(params=SIZES, ids=lambda p: f"{p[0]}-{p[1]}")
def window(browser: Any, request: pytest.FixtureRequest) -> Iterator[Any]:
    """A window of each size and colour scheme; no message on its console, no request."""
    width, scheme = request.param
    context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme)
    page, said = context.new_page(), []
    page.on("console", lambda message: said.append(message.text))
    page.on("pageerror", lambda error: said.append(str(error)))
    page.on("request", lambda r: said.append(r.url) if not r.url.startswith("file:") else None)
    yield page
    context.close()
    assert said == []


def unfold(page: Any) -> None:
    page.evaluate("document.querySelectorAll('details').forEach((d) => { d.open = true })")


def check(page: Any) -> None:
    looked = page.evaluate(FAULTS)
    assert looked["faults"] == []
    assert looked["texts"] > 100
    shown = page.evaluate(PALE)
    assert shown["pale"] == []
    assert shown["count"] > 100


@pytest.mark.deep
def test_nothing_is_cut(window: Any, tmp_path: Path, demo_report: LogReport) -> None:
    for name, report in (("demo", demo_report), ("odd", odd(demo_report))):
        file = tmp_path / f"{name}.html"
        file.write_text(render(report), "utf-8")
        window.goto(file.as_uri())
        check(window)
        unfold(window)
        check(window)


def test_the_check_is_not_asleep(window: Any, tmp_path: Path) -> None:
    file = tmp_path / "bad.html"
    file.write_text(
        '<main><section><p style="width:4000px">wide</p><p>one</p>'
        '<p style="margin-top:-1.2em">two</p><p style="width:3em"><time>2023-11-14</time></p>'
        '<p style="background:#fff;color:#ccc">pale</p>'
        '<dl class="tiles" style="width:300px"><div style="width:9px">.</div></dl></section></main>'
    )
    window.goto(file.as_uri())
    faults = window.evaluate(FAULTS)["faults"]
    assert window.evaluate(PALE)["pale"] == ["1.61: pale"]
    assert any("broken over lines: 2023" in fault for fault in faults)
    assert any("an empty cell" in fault for fault in faults)
    assert any("wide" in fault for fault in faults)
    assert any("overlap: one / two" in fault for fault in faults)


@pytest.mark.deep
def test_colours_follow_the_scheme_and_keys_lead_through(
    browser: Any, tmp_path: Path, demo_report: LogReport
) -> None:
    file = tmp_path / "report.html"
    file.write_text(render(demo_report), "utf-8")
    seen = []
    for scheme in ("light", "dark"):
        context = browser.new_context(color_scheme=scheme, reduced_motion="reduce")
        page = context.new_page()
        page.goto(file.as_uri())
        style = "getComputedStyle(document.body).backgroundColor"
        seen.append(page.evaluate(style))
        page.keyboard.press("Tab")
        assert page.evaluate("document.activeElement.className") == "skip"
        for _ in range(2):
            page.keyboard.press("Tab")
        outline = page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
        assert outline == "solid"
        scroll = page.evaluate("getComputedStyle(document.documentElement).scrollBehavior")
        assert scroll == "auto"
        context.close()
    assert seen[0] != seen[1]


def alone(report: LogReport) -> LogReport:
    """The same log without a tier."""
    topics = tuple(
        replace(t, remote_storage_enable=False, config={}, partitions=tuple(
            replace(p, remote_bytes=0, segments=tuple(
                replace(s, where=Where.LOCAL, codec="lz4", first_ms=s.since_ms) for s in p.segments
            ), going=tuple(replace(g, where=Where.BOTH, rule="retention.ms") for g in p.going))
            for p in t.partitions
        ))
        for t in report.topics
    )  # fmt: skip
    kinds = ("local", "both", "remote")
    sums = tuple(sum(parts) for parts in zip(*report.growth.bytes.values(), strict=True))
    held = {kind: sums if kind == "local" else (0,) * len(sums) for kind in kinds}
    return replace(
        report, url=None, topics=topics, growth=replace(report.growth, bytes=held),
        health=Health(report.path, report.time_ms, "log", ()),
    )  # fmt: skip


@pytest.mark.deep
def test_a_log_without_a_tier_speaks_of_none(
    browser: Any, tmp_path: Path, demo_report: LogReport
) -> None:
    """In words, titles and legends; nor do rules by the names of their options alone."""
    seen = {}
    for name, report in (("tiered", demo_report), ("alone", alone(demo_report))):
        file = tmp_path / f"{name}.html"
        file.write_text(render(report), "utf-8")
        page = browser.new_page()
        page.goto(file.as_uri())
        unfold(page)
        seen[name] = page.evaluate(
            "document.body.textContent.replace(/.*Content-Security[^]*?<\\/style>/, '')"
        )
        page.close()
    assert "remote" in seen["tiered"]
    assert not re.search("remote|local", seen["alone"].partition('"use strict"')[0])
    for words in seen.values():
        shown = words.partition('"use strict"')[0]
        assert not re.search(r"wanted from|dirty ratio|log\.start\.offset|\bkept\b", shown)


@pytest.mark.deep
def test_times_are_the_viewers_and_the_zone_is_said_once(
    browser: Any, tmp_path: Path, demo_report: LogReport
) -> None:
    """With JavaScript the viewer's; without it UTC. Ticks move to round times there."""
    file = tmp_path / "report.html"
    file.write_text(render(demo_report), "utf-8")
    zones = {"UTC": "2023-11-16 14:13:20", "Australia/Adelaide": "2023-11-17 00:43:20",
             "America/New_York": "2023-11-16 09:13:20"}  # fmt: skip
    for zone, wanted in [*zones.items(), (None, zones["UTC"])]:
        context = browser.new_context(
            timezone_id=zone or "Australia/Adelaide", java_script_enabled=zone is not None
        )
        page = context.new_page()
        page.goto(file.as_uri())
        assert wanted in page.locator(".made").inner_text()
        shown = page.locator("main").inner_text()
        assert shown.count(zone or "UTC") == 1
        if zone not in (None, "UTC"):
            assert "UTC" not in shown
            ticks = page.evaluate(
                "[...document.querySelectorAll('.chart .axis time')]"
                ".filter((e) => !e.hidden).map((e) => e.textContent)"
            )
            assert len(ticks) >= 8
            assert all(re.fullmatch(r"\d\d:[03]0|\d+ Nov", tick) for tick in ticks)
            block = page.locator(".strip g > title").first.text_content()
            assert zones["UTC"][:13] not in block
        context.close()


def test_what_helps_can_be_copied(browser: Any, tmp_path: Path, demo_report: LogReport) -> None:
    command = "sparklog verify '/data/<b>log'"
    checks = (Check("partitions", Level.RED, "t-0 is offline", command),
              Check("disk", Level.GREEN, "room enough"))  # fmt: skip
    found = replace(demo_report, health=Health("/data", 0, "log", checks))
    file = tmp_path / "report.html"
    file.write_text(render(found), "utf-8")
    page = browser.new_page()
    page.clock.install(time=0)
    page.goto(file.as_uri())
    page.clock.pause_at(60_000)  # the labels of the button stay until the clock is moved
    assert page.locator("#health h2").inner_text() == "Red: broken, 1 of 2 checks"
    assert [e.get_attribute("aria-label") for e in page.locator("#health li svg").all()] == [
        "red", "green",
    ]  # fmt: skip
    page.evaluate("void (navigator.clipboard.writeText = async (w) => { window.written = w; })")
    button = page.locator(".command button")
    assert button.get_attribute("aria-label") == f"copy {command}"
    button.focus()
    page.keyboard.press("Enter")
    page.locator(".command button", has_text="copied").wait_for()
    assert page.evaluate("window.written") == command
    page.evaluate("void (navigator.clipboard.writeText = async () => { throw new Error(); })")
    page.clock.run_for(1500)
    button.click()
    page.locator(".command button", has_text="selected").wait_for()
    page.clock.run_for(1500)  # the timer of the first click must not end this label
    assert button.inner_text() == "selected"
    page.clock.run_for(1000)
    assert button.inner_text() == "copy"
    assert page.evaluate("getSelection().toString()") == command
    page.close()


def test_headings_and_tables_are_in_order(
    browser: Any, tmp_path: Path, demo_report: LogReport
) -> None:
    file = tmp_path / "report.html"
    file.write_text(render(demo_report), "utf-8")
    page = browser.new_page()
    page.goto(file.as_uri())
    levels = page.evaluate(
        "[...document.querySelectorAll('h1,h2,h3,h4')].map((e) => Number(e.tagName[1]))"
    )
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(after - before <= 1 for before, after in pairwise(levels))
    bare = page.evaluate(
        "[...document.querySelectorAll('th')].filter((e) => !e.scope).length"
        "+ [...document.querySelectorAll('table')].filter((e) => !e.caption).length"
        "+ [...document.querySelectorAll('svg')].filter((e) => e.getAttribute('role') !== 'img'"
        " && e.getAttribute('aria-hidden') !== 'true' && !e.parentElement.closest('svg')).length"
    )
    assert bare == 0
    page.close()


def test_on_paper(browser: Any, tmp_path: Path, demo_report: LogReport) -> None:
    """Light whatever the scheme; without what can't be clicked there."""
    file = tmp_path / "report.html"
    refresh = Refresh(source="content", every_ms=60_000, made_ms=0)
    page_text = document("log", content(demo_report), refresh=refresh).text
    file.write_text(page_text, "utf-8")
    context = browser.new_context(color_scheme="dark", viewport={"width": 700, "height": 900})
    page = context.new_page()
    page.goto(file.as_uri())
    page.emulate_media(media="print", color_scheme="dark")
    assert page.evaluate("getComputedStyle(document.body).color") == "rgb(26, 32, 39)"
    hidden = ["#live", "nav", ".skip", "details"]
    assert not any(page.locator(one).first.is_visible() for one in hidden)
    assert page.evaluate("document.documentElement.scrollWidth") <= 700
    context.close()
