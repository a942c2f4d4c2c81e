"""The examples that need no Spark print what they say; tests/spark/test_examples.py has others."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tests.examples import FOLDER, load, shown

LINES_MAX = 125  # the others are demos, not examples to read in a minute
DEMOS = {"quickstart.py", "archive.py", "cluster.py"}


def test_latest_per_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    module = load("latest_per_key", monkeypatch)
    module.main(tmp_path / "log")
    assert capsys.readouterr().out == shown(module)


@pytest.mark.parametrize("path", sorted(FOLDER.rglob("*.py")), ids=lambda path: path.name)
def test_each_says_how_it_is_run(path: Path) -> None:
    text = path.read_text()
    doc = ast.get_docstring(ast.parse(text)) or ""
    assert path.parent != FOLDER or f"python examples/{path.name}" in doc
    assert path.name in DEMOS or len(text.splitlines()) <= LINES_MAX
