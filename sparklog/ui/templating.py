"""Jinja2 templates of the pages, and a whole page around its content.

`render` makes the content of a page from a template in `templates/`. `document` puts it between a
head and the scripts, all of them inside the page, without external parts: the exported report and
the pages of the server have the same style and the same scripts. `static/page.js` shows times in
the viewer's zone, adds a copy button to commands and filters topics; `static/live.js` refreshes
the content and shows its age.
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
    """A whole page, and the Content-Security-Policy that it needs: for a server's header too."""

    text: str
    policy: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Refresh:
    """How a live page is refreshed: `source` is the relative URL of its content.

    `made_ms`: the time of the content, which the page shows without JavaScript.
    """

    source: str
    every_ms: int
    made_ms: int


def render(template: str, **values: object) -> Markup:
    """Return the HTML of a template. Every value is escaped, except Markup.

    Characters that HTML forbids and those that reverse the direction of text are replaced, because
    names and records of a log may contain any.
    """
    return Markup(_environment().get_template(template).render(**values))  # noqa: S704


def document(
    title: str, content: Markup, *, refresh: Refresh | None = None, served: bool = False
) -> Document:
    """Return a page. Without JavaScript it is complete, with its times in UTC.

    `served`: by a server, which its forms and its refreshing may address; an exported page asks
    for nothing.
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
    """Return the policy of a response that is not a page: nothing may run in it."""
    return _policy((), served=False)


def _policy(scripts: Sequence[str], *, served: bool) -> str:
    """No external parts, and no scripts but these texts."""
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
    """Return a template's value as it is shown: None is empty; some characters are replaced."""
    if value is None:
        return ""
    if isinstance(value, str) and not isinstance(value, Markup):
        return UNSHOWN.sub("\ufffd", value)
    return value
