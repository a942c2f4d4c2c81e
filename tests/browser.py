"""A real browser for tests of pages: Chromium, driven by Playwright; and why there is none."""

import importlib.util
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome-stable", "google-chrome")
# Containers have no room for its sandbox, and it gets nothing but our own pages.
ARGUMENTS = ("--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage")


class Unavailable(Exception):
    """There is no browser here, or nothing to drive it; the text says what to run."""


def find() -> str:
    """Return the path of a Chromium: SPARKLOG_BROWSER, else PATH's. Raises Unavailable."""
    if importlib.util.find_spec("playwright") is None:
        raise Unavailable("nothing to drive a browser: pip install playwright")
    for name in (os.environ.get("SPARKLOG_BROWSER", ""), *NAMES):
        found = shutil.which(name)
        if found is not None:
            return found
    raise Unavailable("no Chromium: run scripts/browser")


@contextmanager
def started() -> Iterator[Any]:
    """Start one; gives Playwright's Browser. Raises Unavailable."""
    path = find()
    from playwright.sync_api import sync_playwright

    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=path, args=list(ARGUMENTS))
        try:
            yield browser
        finally:
            browser.close()
