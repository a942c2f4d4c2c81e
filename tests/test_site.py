"""The site of `make docs`: it builds without a warning, and needs nothing from elsewhere."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests import browser
from tests.paths import ROOT

pytest.importorskip("material", reason="mkdocs-material isn't installed: the extra docs")
# What a browser would fetch: but for links that a reader clicks, all of it is the site's own.
FETCHED = re.compile(r"""<(?:script|img|link|iframe)\b[^>]*?\b(?:src|href)=["']?([^"'\s>]+)""")
CSS = re.compile(r"""(?:url\(["']?|@import\s+["'])([^"')]+)""")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The built site."""
    out = tmp_path_factory.mktemp("site")
    # With --quiet, --strict would never fail.
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "-d", str(out)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return out


@pytest.mark.deep
def test_every_page_is_there(site: Path) -> None:
    for page in [*(ROOT / "docs").glob("*.md"), *(ROOT / "sparklog").rglob("*.md")]:
        name = "format" if page.name == "README.md" else page.stem
        found = list(site.glob("protocol-*.html" if name == "PROTOCOL" else f"{name}.html"))
        assert found, page
    assert len(list(site.glob("protocol-*.html"))) == 4
    assert "exactly_once.py" in (site / "examples.html").read_text()


@pytest.mark.deep
def test_it_asks_nobody_else_for_anything(site: Path) -> None:
    pages = list(site.rglob("*.html"))
    assert len(pages) > 20
    for page in pages:
        for fetched in FETCHED.findall(page.read_text()):
            assert not re.match(r"(?:\w+:)?//", fetched), f"{page.name}: {fetched}"
    for sheet in site.rglob("*.css"):
        for fetched in CSS.findall(sheet.read_text()):
            assert fetched.startswith(("data:", "#")) or "//" not in fetched, (sheet, fetched)


@pytest.mark.deep
def test_no_comment_of_a_source_is_shown(site: Path) -> None:
    for page in site.glob("*.html"):
        assert not re.search(r"<!--\s*(?:skip|invisible|ends-with|Made)", page.read_text()), page


@pytest.mark.deep
def test_a_browser_shows_it_from_a_disk(site: Path) -> None:
    """At the width of a phone nothing sticks out; search finds, without a server."""
    try:
        chromium = browser.find()
    except browser.Unavailable as reason:
        pytest.skip(str(reason))
    assert chromium
    with browser.started() as started:
        page = started.new_page(viewport={"width": 390, "height": 800})
        page.set_default_timeout(240_000)
        asked, errors = [], []
        page.on("request", lambda request: asked.append(request.url))
        page.on("pageerror", lambda error: errors.append(str(error)))
        for each in sorted(site.glob("*.html")):
            if each.name == "404.html":  # its links are those of a server's root
                continue
            page.goto(each.as_uri())
            width = page.evaluate("document.documentElement.scrollWidth")
            assert width <= 390, f"{each.name} is {width} px wide"
        page.goto((site / "index.html").as_uri())
        page.click("label[for=__search]")
        page.locator("input.md-search__input").press_sequentially("respect readers", delay=20)
        page.wait_for_selector(".md-search-result__item a", timeout=240_000)
        assert "options" in page.content()
        elsewhere = [url for url in asked if not url.startswith(("file:", "data:", "blob:"))]
        assert (elsewhere, errors) == ([], [])
