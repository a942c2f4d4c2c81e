"""Parts of pages: tables, legends, figures, chips, commands to copy."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from sparklog.html import Child, Html, el
from sparklog.quantities import MINUTE_MS
from sparklog.ui.report.scales import Scale
from sparklog.ui.units import NONE, stamp

_CUT_NAMED: Final = 3
_OPEN_MAX: Final = 12  # rows of a table that folds
_WORTH_FOLDING: Final = 4  # rows
NOTHING: Final = Html(NONE)
"""The content of an empty cell."""


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table; `kind`: text, n (a number, to the right), time, bar (a picture) or long.

    On a narrow screen long cells and pictures have a line of their own.
    """

    name: str
    kind: str = "text"

    @property
    def style(self) -> str | None:
        """The class of its cells."""
        return {"n": "n", "bar": "b", "time": "t", "long": "long"}.get(self.kind)


def table(caption: str, columns: Sequence[Column], rows: Iterable[Sequence[Child]]) -> Html:
    """A table; on a narrow screen each row becomes a card, with the column name at each cell.

    The first column is the row's header. Roles are given, because a card would lose them.
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


def folding_table(
    caption: str, columns: Sequence[Column], rows: Sequence[Sequence[Child]], *, key: str
) -> Html:
    """A table whose first rows are always visible, and the others on demand."""
    more = rows[_OPEN_MAX:]
    if len(more) < _WORTH_FOLDING:
        return table(caption, columns, rows)
    rest = table(f"{caption}, continued", columns, more)
    return Html.join(
        [table(caption, columns, rows[:_OPEN_MAX]), folded(f"{len(more)} more", rest, key=key)]
    )


def _style(column: Column, cell: Child) -> str | None:
    """A cell's class; an empty cell isn't shown on a card."""
    if cell is NOTHING:
        return f"{column.style or ''} nil".strip()
    return column.style


def legend(entries: Iterable[tuple[str, Child]]) -> Html:
    """A legend of colours: (class, words) each."""
    return el(
        "ul",
        [
            el("li", el("svg", _sign(name), aria_hidden="true"), el("span", words))
            for name, words in entries
        ],
        class_="legend",
    )  # fmt: skip


def _sign(name: str) -> Html:
    if name == "reader":
        return el("path", d="M1 2H9L5 8Z", class_=name)
    return el("rect", width=10, height=10, class_=name)


def figure(title: Child, *content: Child, more: Child = None) -> Html:
    """A picture with its title; `more` is at the other end of the line."""
    words = [el("span", title), el("span", more) if more is not None else None]
    return el("figure", el("figcaption", words), content)


def span_of(low_ms: float, high_ms: float) -> Html:
    """The time range of a picture's axis, with the year, which its ticks don't have."""
    seconds = high_ms - low_ms < 10 * MINUTE_MS
    ends = (stamp(round(ms), seconds=seconds) for ms in (low_ms, high_ms))
    return el("span", next(ends), " to ", next(ends))


def beyond(
    values: Sequence[float], edges_ms: Sequence[int], limit: Scale, words: Callable[[int], str]
) -> Html | None:
    """The values that a picture's scale cuts, in words, or None if there are none."""
    cut = [(t, value) for t, value in zip(edges_ms, values, strict=False) if value > limit.top]
    if not cut:
        return None
    cut.sort(key=lambda one: -one[1])
    parts = [el("span", words(round(value)), " at ", stamp(t)) for t, value in cut[:_CUT_NAMED]]
    joined = [[", " if at else None, part] for at, part in enumerate(parts)]
    more = f", and {len(cut) - _CUT_NAMED} more" if len(cut) > _CUT_NAMED else None
    return note("Beyond the scale, and cut: ", joined, more, ".")


def command(words: str) -> Html:
    """A command to run; page.js adds a button that copies it."""
    return el("span", el("code", words), class_="command")


def folded(summary: Child, *content: Child, key: str) -> Html:
    """Details that are folded at first; `key` identifies them when the page is refreshed."""
    return el("details", el("summary", summary), content, data_key=key)


def section(anchor: str, title: Child, *content: Child) -> Html:
    """A section with its heading."""
    return el("section", el("h2", title, id=f"{anchor}-h"), content, id=anchor,
              aria_labelledby=f"{anchor}-h")  # fmt: skip


def note(*words: Child) -> Html:
    """A remark below a heading or a picture."""
    return el("p", words, class_="note")


def chip(words: Child, kind: str = "") -> Html:
    """A short mark beside a name; `kind`: is-red, is-amber, is-green, or nothing."""
    return el("span", words, class_=f"chip {kind}".strip())
