"""What objects and long work show in a notebook."""

import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

import sparklog
from sparklog.html import Html, el, table, text
from sparklog.progress import Progress, shows_progress
from sparklog.service import Service, verify

HOSTILE = "<script>alert(1)</script>&"


class Cells(HTMLParser):
    """Texts of cells, and the tags that were met; each must be closed."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.cells: list[str] = []
        self.tags: set[str] = set()
        self.feed(html)
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.open.append(tag)
        self.tags.add(tag)
        if tag in ("td", "th", "caption", "p"):
            self.cells.append("")

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.cells[-1] += data


def shown(html: str) -> list[str]:
    found = Cells(html)
    assert "script" not in found.tags
    return found.cells


@pytest.fixture
def path(tmp_path: Path) -> Iterator[str]:
    with sparklog.open(tmp_path / "log", mode="rw") as log:
        log.create_topic("flights", partitions=2, config={"retention.ms": 60_000})
        log.append("flights", pa.table({"value": ["a", "b", "c"]}), partition=1)
        yield log.path


def test_a_log_and_its_topics(path: str) -> None:
    with sparklog.open(path) as log:
        assert shown(log._repr_html_()) == [
            f"{path}: 1 topic", "topic", "partitions", "offsets", "", "flights", "2", "3", "",
        ]  # fmt: skip
        assert {"flights", "2", "retention.ms=60000"} <= {*shown(log.topics()._repr_html_())}
        assert shown(log.topic("flights")._repr_html_())[-2:] == ["retention.ms", "60000"]
        assert log.topics() == {"flights": log.topic("flights")}
        assert repr(log) == f"<Log {path}>"


def test_a_log_that_is_gone_says_so(path: str, tmp_path: Path) -> None:
    """Nothing that shows itself raises: a cell would be a traceback."""
    with sparklog.open(path) as log:
        Path(path).rename(tmp_path / "elsewhere")
        (said,) = shown(log._repr_html_())
        assert path in said and len(said) > len(path) + 20


def test_a_check_and_a_round(path: str) -> None:
    assert "nothing found" in shown(verify(path)._repr_html_())[0]
    (segment,) = Path(path).glob("flights-1/*.log")
    segment.write_bytes(segment.read_bytes()[:-1] + b"x")
    cells = shown(verify(path)._repr_html_())
    assert f"{segment} at byte 0, offsets [0, 3)" in cells and {"damage", "repair"} <= {*cells}
    cells = shown(Service(path).run_once(dry_run=True)._repr_html_())
    assert cells[0].startswith(f"What a round would do: {path}")


def test_a_table_is_escaped_and_bounded() -> None:
    cells = shown(table(HOSTILE, [HOSTILE], [[HOSTILE]] * 60, notes=[HOSTILE]))
    assert cells == [HOSTILE] * 53 + ["10 more of 60"]


# --- bars --------------------------------------------------------------------------------------


class Handle:
    """What IPython's display(..., display_id=True) gives."""

    def __init__(self) -> None:
        self.shown: list[str] = []

    def update(self, thing: Any) -> None:
        self.shown.append(thing._repr_html_())


@pytest.fixture
def cells(monkeypatch: pytest.MonkeyPatch) -> list[Handle]:
    """The bars of a notebook, as IPython is there."""
    made: list[Handle] = []

    def display(thing: Any, *, display_id: bool) -> Handle:
        assert display_id
        made.append(Handle())
        made[-1].update(thing)
        return made[-1]

    module, displays = ModuleType("IPython"), ModuleType("IPython.display")
    module.get_ipython = lambda: SimpleNamespace(kernel=object())  # type: ignore[attr-defined]
    displays.display = display  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "IPython", module)
    monkeypatch.setitem(sys.modules, "IPython.display", displays)
    return made


@shows_progress("counting")
def count(total: int, *, progress: Progress | None = None) -> bool:
    if total < 0:
        raise ValueError(total)
    for done in range(total):
        if progress is not None:
            progress(done + 1, total)
        count(0)
    return progress is not None


def test_long_work_has_one_bar(cells: list[Handle]) -> None:
    assert count(3)
    (bar,) = cells
    assert "<progress></progress> counting: 0 s" in bar.shown[0]
    assert '<progress value="3" max="3"></progress> counting: 100%' in bar.shown[-1]
    assert bar.shown[-1].endswith(", done</div>")
    assert len(bar.shown) == 3  # the second and third call came within a fifth of a second


def test_what_fails_says_that_it_stopped(cells: list[Handle]) -> None:
    with pytest.raises(ValueError, match="-1"):
        count(-1)
    assert cells[0].shown[-1].endswith(", stopped</div>")
    count(1)  # and the next one has a bar again
    assert len(cells) == 2


def test_who_takes_the_progress_has_no_bar(cells: list[Handle]) -> None:
    told: list[int] = []
    count(2, progress=lambda done, total: told.append(done))
    assert told == [1, 2] and cells == []


def test_without_a_notebook_there_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not count(2)
    terminal = ModuleType("IPython")
    terminal.get_ipython = lambda: SimpleNamespace()  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "IPython", terminal)
    assert not count(2)


def test_verify_has_one(path: str, cells: list[Handle]) -> None:
    verify(path)
    assert "verifying: 100%" in cells[0].shown[-1]


def test_text_is_escaped_and_html_is_not() -> None:
    assert text("<&\"'") == "&lt;&amp;&quot;&#x27;"
    assert el("p", "<", Html("<br>"), None, [1, "&"], title='"') == (
        '<p title="&quot;">&lt;<br>1&amp;</p>'
    )
    assert text("a\x00\ud800\x1bb") == "a\ufffd\ufffd\ufffdb"
    assert text("paid\u202e001\u2066") == "paid\ufffd001\ufffd"
