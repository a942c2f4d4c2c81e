"""Tables for `_repr_html_`, in Jupyter and other notebooks."""

from collections.abc import Iterable, Sequence
from typing import Final

from sparklog.html import Child, Html, el

_ROWS_MAX: Final = 50


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
