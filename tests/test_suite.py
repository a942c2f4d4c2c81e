"""The suite's runner: a second try, alone, for a few failures; none for many, or a stopped run."""

from pathlib import Path

import pytest

from tests.suite import TRIED_AGAIN_MAX, run

BY_CHANCE = """
import pathlib
def test_by_chance():
    seen = pathlib.Path("seen")
    before = seen.exists()
    seen.touch()
    assert before
def test_right(): pass
"""
PLAIN = ["-q"]


@pytest.fixture(autouse=True)
def no_plugins(monkeypatch: pytest.MonkeyPatch) -> None:
    """None but those named: they take most of such a run's time."""
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")


def suite(root: Path, text: str, *arguments: str) -> int:
    (root / "pytest.ini").write_text("[pytest]\n")
    (root / "test_it.py").write_text(text)
    return run([*PLAIN, *arguments], alone=[*PLAIN, "--junitxml", "again.xml"], root=root)


def test_what_fails_once_is_named(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert suite(tmp_path, BY_CHANCE) == 0
    out = capfd.readouterr().out
    assert "1 failed, 1 passed" in out
    assert out.rstrip().endswith("(failures above):\n  test_it.py::test_by_chance")
    assert 'tests="1"' in (tmp_path / "again.xml").read_text()


def test_what_fails_twice_fails(tmp_path: Path) -> None:
    assert suite(tmp_path, "def test_a(): assert 0\ndef test_b(): pass") == 1
    assert 'tests="1" ' in (tmp_path / "again.xml").read_text()


@pytest.mark.deep
def test_a_parameter_is_part_of_the_name(tmp_path: Path) -> None:
    text = 'import pytest\n@pytest.mark.parametrize("a", ["x::y z/[1]", "ü", "b"])\n'
    assert suite(tmp_path, text + 'def test_a(a): assert a == "b"') == 1
    assert 'tests="2" ' in (tmp_path / "again.xml").read_text()


def test_many_failures_are_no_chance(tmp_path: Path) -> None:
    text = f'import pytest\n@pytest.mark.parametrize("n", range({TRIED_AGAIN_MAX + 1}))\n'
    assert suite(tmp_path, text + "def test_a(n): assert 0") == 1
    assert not (tmp_path / "again.xml").exists()


@pytest.mark.deep
@pytest.mark.parametrize(
    ("text", "arguments", "code"),
    [
        ("def test_a(): pass", [], 0),
        ("def test_a(): raise KeyboardInterrupt", [], 2),
        ("def test_a(", [], 2),
        ("def test_a(): pass", ["--no-such-option"], 4),
        ("", [], 5),
    ],
    ids=["passes", "interrupted", "syntax", "option", "empty"],
)
def test_without_a_failed_test_once_is_enough(
    text: str, arguments: list[str], code: int, tmp_path: Path
) -> None:
    assert suite(tmp_path, text, *arguments) == code
    assert not (tmp_path / "again.xml").exists()


@pytest.mark.deep
def test_failures_of_an_earlier_run_are_forgotten(tmp_path: Path) -> None:
    assert suite(tmp_path, "def test_a(): assert 0") == 1
    (tmp_path / "again.xml").unlink()
    assert suite(tmp_path, "def test_a(): raise KeyboardInterrupt") == 2
    assert not (tmp_path / "again.xml").exists()


@pytest.mark.deep
def test_a_process_that_dies_is_tried_again(tmp_path: Path) -> None:
    text = BY_CHANCE.replace("assert before", "before or __import__('os')._exit(9)")
    assert suite(tmp_path, text, "-p", "xdist.plugin", "-n", "1") == 0
    assert 'tests="1" ' in (tmp_path / "again.xml").read_text()
