"""A whole page around its content, with policy, styles and scripts inside, and no external parts.

Reports and the pages of `serve --ui` are made by `document`; its styles and parts are in `page.css`
and `page_parts`. `page.js` shows times in the viewer's zone and adds a copy button to commands;
`live.js` refreshes the content and shows its age.
"""

import base64
import hashlib
from collections.abc import Sequence
from functools import cache
from importlib.resources import files
from typing import Final

from sparklog.html import Child, Html, el

PACKAGE: Final = "sparklog.tools.report"
CONTENT: Final = "content"
"""The id of the main element, which a live page refreshes."""


@cache
def asset(name: str, package: str = PACKAGE) -> str:
    """Return the text of a file beside the code."""
    return files(package).joinpath(name).read_text("utf-8")


def document(
    title: str,
    *content: Child,
    refresh_ms: int | None = None,
    source: str = CONTENT,
    styles: Sequence[str] = (),
    scripts: Sequence[str] = (),
    forms: bool = False,
) -> str:
    """Return a page. Without JavaScript it is complete, with its times in UTC.

    Args: refresh_ms: for a live page, how often it requests `source`, a relative URL, for its
    content. styles, scripts: texts in addition to the pages' own. forms: whether it has forms,
    which are sent to the same site.
    """
    scripts = _scripts(scripts, live=refresh_ms is not None)
    badge = None if refresh_ms is None else _badge(refresh_ms, source)
    said = policy(scripts, live=refresh_ms is not None, forms=forms)
    head = el(
        "head",
        el("meta", charset="utf-8"),
        el("meta", http_equiv="Content-Security-Policy", content=said),
        el("meta", name="viewport", content="width=device-width, initial-scale=1"),
        el("meta", name="referrer", content="no-referrer"),
        el("title", title),
        el("style", Html("\n".join([asset("page.css"), *styles]))),
    )
    body = el(
        "body",
        el("a", "Skip to the content", href=f"#{CONTENT}", class_="skip"),
        badge,
        el("main", content, id=CONTENT, tabindex="-1"),
        [el("script", Html(script)) for script in scripts],
    )
    return f"<!doctype html>\n{el('html', head, body, lang='en')}\n"


def _badge(refresh_ms: int, source: str) -> Html:
    """The age of the content, with text for a screen reader only when the state changes."""
    return el(
        "p", el("span", "live", role="status"), " ", el("span", aria_hidden="true"),
        id="live", class_="live", data_state="live", data_refresh=str(refresh_ms),
        data_source=source,
    )  # fmt: skip


def _scripts(more: Sequence[str], *, live: bool) -> list[str]:
    return [asset("page.js"), *([asset("live.js")] if live else []), *more]


def policy(scripts: Sequence[str], *, live: bool, forms: bool = False) -> str:
    """The Content-Security-Policy: no external parts, and no scripts but these texts."""
    digests = [
        base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for text in scripts
    ]
    parts = [
        "default-src 'none'",
        "style-src 'unsafe-inline'",
        "base-uri 'none'",
        f"form-action '{'self' if forms else 'none'}'",
        "script-src " + " ".join(f"'sha256-{digest}'" for digest in digests),
    ]
    return "; ".join([*parts, "connect-src 'self'"] if live else parts)


def header_policy(*, live: bool = True, scripts: Sequence[str] = (), forms: bool = False) -> str:
    """The same for a server's header, of pages that `document` makes with these arguments."""
    return policy(_scripts(scripts, live=live), live=live, forms=forms)
