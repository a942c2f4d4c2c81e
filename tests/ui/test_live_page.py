"""The live page in a real browser: it stays where one looks, and its badge tells the truth."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from sparklog.network.addresses import Address
from sparklog.ui.report.model import LogReport
from sparklog.ui.report.page import content
from sparklog.ui.server import LiveServer
from sparklog.ui.site import LogSite
from sparklog.ui.templating import Refresh, document

URL = "http://localhost:9/"
REFRESH_MS = 1000


class Server:
    """What answers a page's requests, by will: well, never, not at all, or with an error."""

    def __init__(self, page: Any, report: LogReport) -> None:
        self.mode, self.asked, self.age_s = "well", 0, 0
        self._report, self._held = report, list[Any]()
        page.route("**/*", self._answer)

    def _answer(self, route: Any) -> None:
        if not route.request.url.endswith("content"):
            refresh = Refresh(source="content", every_ms=REFRESH_MS, made_ms=0)
            body = document("log", content(self._report), refresh=refresh, served=True).text
            route.fulfill(body=body, content_type="text/html; charset=utf-8")
            return
        self.asked += 1
        if self.mode == "gone":
            route.abort("connectionrefused")
        elif self.mode == "hangs":
            self._held.append(route)
        elif self.mode == "fails":
            route.fulfill(status=503, body="the disk is <gone>")
        else:
            body = content(replace(self._report, version=f"9.{self.asked}"))
            route.fulfill(body=body, headers={"Age": str(self.age_s)})

    def go_on(self) -> None:
        """Answer well, those too who wait."""
        self.mode, held, self._held = "well", self._held, []
        for route in held:
            route.fulfill(body=content(self._report))


@pytest.fixture
def page(browser: Any) -> Iterator[Any]:
    """A page with a clock that stands until it is moved."""
    context = browser.new_context(viewport={"width": 390, "height": 700})
    page, failed = context.new_page(), []
    page.on("pageerror", lambda error: failed.append(str(error)))
    page.clock.install(time=1_700_000_000)
    yield page
    context.close()
    assert failed == []


def badge(page: Any) -> tuple[str, str]:
    live = page.locator("#live")
    return live.get_attribute("data-state"), live.inner_text()


def wait_for(page: Any, state: str, *, seconds: int = 30) -> str:
    """Let time go on until the badge says so; returns its words."""
    for _ in range(seconds):
        if badge(page)[0] == state:
            return badge(page)[1]
        page.clock.run_for(1000)
        page.wait_for_timeout(20)
    raise AssertionError(badge(page))


@pytest.mark.deep
def test_the_badge_tells_its_age_and_who_is_gone(page: Any, demo_report: LogReport) -> None:
    server = Server(page, demo_report)
    page.goto(URL)
    assert badge(page)[0] == "live"
    colours = {page.evaluate("getComputedStyle(document.getElementById('live')).backgroundColor")}
    assert badge(page) == ("live", "live 0 s ago")

    server.mode = "hangs"
    words = wait_for(page, "late")
    assert words.startswith("late no response, last update ")
    assert 3 <= int(words.rpartition("update ")[2].partition(" s")[0]) <= 8
    colours.add(page.evaluate("getComputedStyle(document.getElementById('live')).backgroundColor"))
    before = badge(page)[1]
    page.clock.run_for(5000)
    assert badge(page)[1] != before  # it grows older
    server.go_on()
    wait_for(page, "live")

    server.mode = "gone"
    assert "the server does not respond" in wait_for(page, "gone")
    colours.add(page.evaluate("getComputedStyle(document.getElementById('live')).backgroundColor"))
    assert page.evaluate("document.documentElement.scrollWidth") == 390
    box = page.locator("#live").bounding_box()
    assert box["x"] >= 0
    assert box["x"] + box["width"] <= 390
    server.go_on()
    wait_for(page, "live")
    assert len(colours) == 3

    server.mode = "fails"
    assert "the disk is <gone>" in wait_for(page, "late")
    server.mode, server.age_s = "well", 40
    words = wait_for(page, "live")
    assert words in ("live 40 s ago", "live 41 s ago")  # the server's report is that old


@pytest.mark.deep
def test_it_asks_again_and_again_but_never_twice_at_once(page: Any, demo_report: LogReport) -> None:
    server = Server(page, demo_report)
    page.goto(URL)
    server.mode = "hangs"
    for _ in range(8):
        page.clock.run_for(1000)
        page.wait_for_timeout(10)
    assert server.asked == 1
    page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")
    assert server.asked == 1
    server.go_on()
    wait_for(page, "live")
    before = server.asked
    for _ in range(5):
        page.clock.run_for(1000)
        page.wait_for_timeout(30)
    assert 3 <= server.asked - before <= 6


def test_what_comes_anew_is_in_the_viewers_zone_too(browser: Any, demo_report: LogReport) -> None:
    context = browser.new_context(timezone_id="Australia/Adelaide")
    page = context.new_page()
    page.clock.install(time=1_700_000_000)
    server = Server(page, demo_report)
    page.goto(URL)
    first = page.locator("main").inner_text()
    page.clock.run_for(1100)
    page.locator(".made", has_text="sparklog 9.1").wait_for()
    again = page.locator("main").inner_text()
    assert again == first.replace(f"sparklog {demo_report.version}", "sparklog 9.1")
    assert "Australia/Adelaide" in again
    assert server.asked == 1
    context.close()


@pytest.mark.deep
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
    with LiveServer(LogSite(make, refresh_ms=100), Address("127.0.0.1", 0)) as live:
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
    page.locator("#live[data-state=gone]").wait_for()
    context.close()
