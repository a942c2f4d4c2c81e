"""Rendering of the pages from Jinja2 templates.

`render` makes the content of a page from a template in `templates/`. `document` makes an HTML
page of this content. The style sheet and the scripts are embedded in the page, so an exported
report is one file, and has the same style and scripts as the pages of the server. `static/page.js`
shows times in the viewer's time zone, adds a copy button to commands and filters topics.
`static/live.js` refreshes the content and shows its age.
"""

import base64
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any, Final

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from sparklog.html import UNSHOWN
from sparklog.ui import units

CONTENT: Final = "content"
"""The id of the main element, which a live page refreshes."""
_PACKAGE: Final = "sparklog.ui"


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """The HTML of a page, and the Content-Security-Policy for the response's header."""

    text: str
    policy: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Refresh:
    """How a live page is refreshed.

    Attributes:
        source: The relative URL of the content.
        every_ms: The time between two refreshes.
        made_ms: The time of the content, which the page shows without JavaScript.
    """

    source: str
    every_ms: int
    made_ms: int


def render(template: str, **values: object) -> Markup:
    """Render a template to HTML. Every value is escaped, except Markup.

    Names and records of a log may contain any characters. Characters that HTML forbids, and
    characters that reverse the direction of text, are replaced.
    """
    return Markup(_environment().get_template(template).render(**values))  # noqa: S704


def document(
    title: str, content: Markup, *, refresh: Refresh | None = None, served: bool = False
) -> Document:
    """Return an HTML page. Without JavaScript, all content is visible, and times are in UTC.

    Args:
        title: The title of the browser window.
        content: The HTML of the main element.
        refresh: How the page is refreshed, or None for a page that does not change.
        served: Whether a server sends the page. Its forms and scripts may then send requests to
            that server. An exported page must not send requests.
    """
    scripts = [_static("page.js"), *([_static("live.js")] if refresh is not None else [])]
    policy = _policy(scripts, served=served)
    text = render(
        "document.html", title=title, content=content, content_id=CONTENT, refresh=refresh,
        policy=policy, style=Markup(_static("page.css")),  # noqa: S704 - our own file
        scripts=[Markup(script) for script in scripts],  # noqa: S704
    )  # fmt: skip
    return Document(text=f"{text}\n", policy=policy)


def policy_of_data() -> str:
    """Return the Content-Security-Policy that forbids scripts, for responses without a page."""
    return _policy((), served=False)


def _policy(scripts: Sequence[str], *, served: bool) -> str:
    """Return a Content-Security-Policy that allows only `scripts`, and no other hosts."""
    # Hashes, not 'unsafe-inline': a script that gets into a page through a record does not run.
    digests = [
        base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for text in scripts
    ]
    allowed = " ".join(f"'sha256-{digest}'" for digest in digests) or "'none'"
    own = "'self'" if served else "'none'"
    return (
        f"default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action {own}; "
        f"connect-src {own}; script-src {allowed}"
    )


@cache
def _static(name: str) -> str:
    return files(_PACKAGE).joinpath("static", name).read_text("utf-8")


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader(_PACKAGE), autoescape=True, undefined=StrictUndefined,
        finalize=_finalize, trim_blocks=True, lstrip_blocks=True, auto_reload=False,
    )  # fmt: skip
    environment.filters |= units.FILTERS
    return environment


def _finalize(value: Any) -> Any:
    """Return the text of a template's value: "" for None, and unsafe characters replaced."""
    if value is None:
        return ""
    if isinstance(value, str) and not isinstance(value, Markup):
        return UNSHOWN.sub("\ufffd", value)
    return value
