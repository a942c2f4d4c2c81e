"""What the sections of the page are made of: tables, legends, axes, figures."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from sparklog.tools.report.html import Child, Html, el
from sparklog.tools.report.units import NONE

NOTHING: Final = Html(NONE)
"""The cell of a table that has nothing to say."""


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table; `kind`: text, n (a number, to the right) or bar."""

    name: str
    kind: str = "text"

    @property
    def style(self) -> str | None:
        """The class of its cells."""
        return {"n": "n", "bar": "b"}.get(self.kind)


def table(caption: str, columns: Sequence[Column], rows: Iterable[Sequence[Child]]) -> Html:
    """A table; on a narrow screen each row becomes a card, its cells named by their column.

    The first column is the row's header. Roles are given, for a card would lose them.
    """
    head = el(
        "tr",
        [el("th", c.name, scope="col", role="columnheader", class_=c.style) for c in columns],
        role="row",
    )
    body = []
    for row in rows:
        first = el("th", row[0], scope="row", role="rowheader", class_=columns[0].style)
        cells = [
            el("td", cell, role="cell", class_=_style(column, cell), data_name=column.name)
            for column, cell in zip(columns[1:], row[1:], strict=True)
        ]
        body.append(el("tr", first, cells, role="row"))
    return el(
        "table",
        el("caption", caption),
        el("thead", head, role="rowgroup"),
        el("tbody", body, role="rowgroup"),
        role="table",
    )


def _style(column: Column, cell: Child) -> str | None:
    """A cell's class; one without anything to say isn't shown on a card."""
    if cell is NOTHING:
        return f"{column.style or ''} nil".strip()
    return column.style


def legend(entries: Iterable[tuple[str, Child]]) -> Html:
    """What colours mean: (class, words) each."""
    return el(
        "ul",
        [
            el("li", el("svg", el("rect", width=10, height=10, class_=name), aria_hidden="true"),
               el("span", words))
            for name, words in entries
        ],
        class_="legend",
    )  # fmt: skip


def axis(labels: Sequence[Child]) -> Html:
    """Labels along a picture, the first at its left end and the last at its right."""
    return el("div", [el("span", label) for label in labels], class_="axis")


def figure(title: Child, *content: Child) -> Html:
    """A picture with its title."""
    return el("figure", el("figcaption", title), content)


def folded(summary: Child, *content: Child, key: str) -> Html:
    """Details that are folded at first; `key` tells them from others when the page is renewed."""
    return el("details", el("summary", summary), content, data_key=key)


def section(anchor: str, title: str, *content: Child) -> Html:
    """A section with its heading."""
    return el("section", el("h2", title, id=f"{anchor}-h"), content, id=anchor,
              aria_labelledby=f"{anchor}-h")  # fmt: skip


def note(*words: Child) -> Html:
    """A remark below a heading or a picture."""
    return el("p", words, class_="note")


def chip(words: Child, kind: str = "") -> Html:
    """A short mark beside a name."""
    return el("span", words, class_=f"chip {kind}".strip())
