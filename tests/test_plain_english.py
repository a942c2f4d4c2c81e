"""The English of docstrings, messages and pages stays plain: limits, and the phrases that count."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests import plain_english
from tests.paths import ROOT

EVERYTHING = plain_english.all_files()


def test_the_limits_of_docstrings_messages_and_pages() -> None:
    found = plain_english.measure(EVERYTHING)
    assert found["docstrings"].rate <= plain_english.DOCSTRINGS_MAX
    assert found["docstrings"].vague_share <= plain_english.VAGUE_MAX
    assert found["messages"].rate <= plain_english.MESSAGES_MAX
    assert found["pages"].rate <= plain_english.PAGES_MAX
    assert found["docstrings"].count > 5_000
    assert found["messages"].count > 1_000


def test_no_file_contains_many_vague_phrases() -> None:
    """The hook of .pre-commit-config.yaml rejects such a file."""
    assert plain_english.vague_files(EVERYTHING) == []


VAGUE = '''"""What became of a commit of which nobody could tell."""

def erase():
    """Hold the lock of whoever erases anew; those of a rehearsal need none."""
    raise ValueError("it lies where it was told; what is gone comes back")
'''
PLAIN = '''"""Resolves commits whose outcome is unknown."""

def erase():
    """Acquire the erasure lock, except in a dry run."""
    raise ValueError("the file was deleted: restore it from a copy")
'''


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(plain_english, "ROOT", tmp_path)
    return tmp_path


def test_a_vague_file_is_rejected_and_a_plain_one_is_not(checkout: Path) -> None:
    (checkout / "vague.py").write_text(VAGUE)
    (checkout / "plain.py").write_text(PLAIN)
    faults = plain_english.vague_files([checkout / "vague.py", checkout / "plain.py"])
    assert {fault.partition(":")[0] for fault in faults} == {"vague.py"}
    assert "vague.py:3: 'anew': write again" in faults


def test_code_is_not_prose(checkout: Path) -> None:
    page = checkout / "page.md"
    page.write_text("`what is` of <!-- whoever -->\n\n```sh\nnobody\n```\n| those of | a |\n")
    assert plain_english.measure([page])["pages"].phrases == []


def test_the_hooks_exist() -> None:
    """Each hook of the configuration names a program of .venv, or a module of the tests."""
    text = (ROOT / ".pre-commit-config.yaml").read_text()
    entries = [line.split()[1:] for line in text.splitlines() if "entry:" in line]
    assert [entry[0] for entry in entries] == [
        ".venv/bin/ruff", ".venv/bin/mypy", ".venv/bin/codespell", ".venv/bin/python",
    ]  # fmt: skip
    assert entries[-1][1:] == ["-m", "tests.plain_english"]


def test_the_first_change_of_contributing_changes_a_generated_page() -> None:
    """The sed command finds its text, and that text is on the generated page."""
    page = (ROOT / "CONTRIBUTING.md").read_text()
    (command,) = (line for line in page.splitlines() if line.startswith("sed -i"))
    before = command.split("/")[1].replace("\\", "")
    assert (ROOT / "sparklog/config.py").read_text().count(before) == 1
    assert before in (ROOT / "docs/options.md").read_text()
