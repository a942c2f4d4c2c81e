"""HTML for notebooks, and tables for `_repr_html_`.

Every text is escaped, except HTML that this module built.
"""

import re
from collections.abc import Iterable, Sequence
from html import escape
from typing import Final, Self

UNSHOWN: Final = re.compile(
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff"  # forbidden in HTML
    "\u202a-\u202e\u2066-\u2069]"  # they reverse the direction of the following text
)
"""Characters of a log's names and records that HTML shows as U+FFFD: here, and in the pages."""

_ROWS_MAX: Final = 50


class Html(str):
    """Text that is HTML."""

    __slots__ = ()

    @classmethod
    def join(cls, parts: Iterable["Child"]) -> Self:
        """Concatenate parts."""
        return cls("".join(text(part) for part in parts))


Child = str | int | float | None | Iterable["Child"]


def text(child: Child) -> str:
    """Return a child as HTML: strings are escaped, None is empty, iterables are concatenated."""
    if isinstance(child, Html):  # before str: an Html is a str that is escaped already
        return child
    if child is None:
        return ""
    if isinstance(child, str):
        return escape(UNSHOWN.sub("\ufffd", child))
    if isinstance(child, int | float):
        return str(child)
    return "".join(text(each) for each in child)


def el(tag: str, /, *children: Child, **attributes: str | float) -> Html:
    """Return an element."""
    written = "".join(f' {name}="{text(value)}"' for name, value in attributes.items())
    return Html(f"<{tag}{written}>{text(children)}</{tag}>")


def foreign(name: str) -> Html:
    """Return a user-defined name in an element that isolates the name's writing direction."""
    return el("bdi", name)


def table(
    caption: Child,
    columns: Sequence[str],
    rows: Sequence[Sequence[Child]],
    *,
    notes: Iterable[str] = (),
) -> str:
    """Return an HTML table of the first 50 rows for `_repr_html_`. All texts are escaped.

    The style comes from the notebook, which ignores styles from untrusted cells.
    """
    head = el("tr", [el("th", name, scope="col", style="text-align:left") for name in columns])
    body = [
        el("tr", [el("td", cell, style="text-align:left") for cell in row])
        for row in rows[:_ROWS_MAX]
    ]
    left = len(rows) - _ROWS_MAX
    texts = [*notes, *([f"{left} more of {len(rows)}"] if left > 0 else [])]
    element = el("table", el("caption", caption, style="text-align:left"), el("thead", head),
                 el("tbody", body))  # fmt: skip
    return Html.join([element if rows else el("p", caption), *(el("p", note) for note in texts)])
