"""The page in a real browser: nothing is cut, nothing overlaps, nothing is asked for."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sparklog.service import Severity
from sparklog.tools.report.live import LiveReport
from sparklog.tools.report.model import LogReport, Notice
from sparklog.tools.report.page import render

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
        boxes.push([r, what]);
      }
    }
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
      if (Math.min(a.right, b.right) - Math.max(a.left, b.left) > 1)
        found.push(`overlap: ${boxes[i][1]} / ${boxes[j][1]}`);
    }
  return { faults: [...new Set(found)].slice(0, 10), texts: boxes.length };
}"""
SIZES = [(w, s) for w in (390, 1440) for s in ("light", "dark")]


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
        '<p style="margin-top:-1.2em">two</p></section></main>'
    )
    window.goto(file.as_uri())
    faults = window.evaluate(FAULTS)["faults"]
    assert any("wide" in fault for fault in faults)
    assert any("overlap: one / two" in fault for fault in faults)


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


def test_the_live_page_keeps_the_place(browser: Any, demo_report: LogReport) -> None:
    """What is new comes in; where one looks, what is unfolded and focused stays."""
    made = []

    def make() -> LogReport:
        made.append(replace(demo_report, version=f"9.{len(made)}"))
        return made[-1]

    context = browser.new_context(viewport={"width": 1000, "height": 600})
    page, failed = context.new_page(), []
    page.on("pageerror", lambda error: failed.append(str(error)))
    page.on("console", lambda m: failed.append(m.text) if m.type == "error" else None)
    with LiveReport(make, ("127.0.0.1", 0), refresh_ms=100) as live:
        page.goto(live.url)
        page.locator("details[data-key^='p-'] summary").first.click()
        page.evaluate("window.scrollTo({top: 700, behavior: 'instant'})")
        before = len(made)
        page.locator(".made", has_text="sparklog 9.0").wait_for(state="detached")
        assert len(made) >= before
        assert page.evaluate("scrollY") == 700
        assert page.locator("details[open]").count() == 1
        assert page.evaluate("document.activeElement.tagName") == "SUMMARY"
        assert "live" in page.locator("#live").inner_text()
        assert failed == []
    page.locator("#live.failed").wait_for()
    context.close()
