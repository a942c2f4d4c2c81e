"""Pages as text: whole, and without anything from elsewhere."""

import re
from html.parser import HTMLParser

VOID = {"meta", "input", "br"}
SHAPES = {"rect", "path"}


class _Balance(HTMLParser):
    def __init__(self, places: tuple[str, ...]) -> None:
        super().__init__(convert_charrefs=True)
        self.places = places
        self.open: list[str] = []
        self.tags: list[str] = []
        self.keys: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        given = dict(attrs)
        for name, value in attrs:
            assert not name.startswith("on"), (tag, name)
            if name in ("src", "srcset", "data", "action"):
                raise AssertionError(f"{tag} asks for {value}")
            if name == "href":
                assert (value or "").startswith(self.places), value
        if tag == "details":
            self.keys.append(given["data-key"] or "")
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert tag in SHAPES, tag

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def checked(page: str, *, is_live: bool = False) -> _Balance:
    """Every element is closed where it should be, nothing is asked for, keys are unique.

    `is_live`: one of the pages that are served, which link one another.
    """
    found = _Balance(("#", "./", "topics/") if is_live else ("#",))
    found.feed(page)
    assert not found.open
    assert not re.search(r"url\(|@import|https?://", page.partition("<body>")[0])
    assert len(found.keys) == len(set(found.keys))
    page.encode("utf-8")
    return found
