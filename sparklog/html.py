"""HTML from Python values. Every text is escaped, except HTML that this module built."""

import re
from collections.abc import Iterable
from html import escape
from typing import Final, Self

_VOID: Final = frozenset({"meta", "input", "br"})
_SHAPES: Final = frozenset({"rect", "path"})
_FORBIDDEN: Final = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]")


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
    if isinstance(child, Html):
        return child
    if child is None:
        return ""
    if isinstance(child, str):
        return escape(_FORBIDDEN.sub("\ufffd", child))
    if isinstance(child, int | float):
        return str(child)
    return "".join(text(each) for each in child)


def el(tag: str, /, *children: Child, **attributes: str | float | bool | None) -> Html:
    """Return an element.

    `class_` means class, `data_at` data-at. Attributes with the value None or False are omitted.
    """
    written = "".join(
        f" {key.rstrip('_').replace('_', '-')}" + ("" if value is True else f'="{text(value)}"')
        for key, value in attributes.items()
        if value is not None and value is not False
    )
    if tag in _VOID:
        return Html(f"<{tag}{written}>")
    if tag in _SHAPES and not children:
        return Html(f"<{tag}{written}/>")
    return Html(f"<{tag}{written}>{text(children)}</{tag}>")


def foreign(name: str) -> Html:
    """Return a user-defined name in an element that isolates the name's writing direction."""
    return el("bdi", name)
