"""Every public class and function has an example, which runs as its docstring shows it.

Examples that use Spark run in tests/spark/test_api_examples.py.
"""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from tests import api_examples
from tests.paths import ROOT


@pytest.mark.parametrize("name", api_examples.documented())
def test_an_export_has_an_example(name: str) -> None:
    assert api_examples.example_of(api_examples.documented()[name]).examples


@pytest.mark.parametrize("name", api_examples.documented())
def test_every_part_of_an_export_is_documented(name: str) -> None:
    assert api_examples.undocumented(api_examples.documented()[name]) == []


def test_ruff_checks_the_modules_of_the_public_api() -> None:
    """The list in pyproject.toml of modules where all public names need docstrings."""
    ignores = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["ruff"]["lint"]
    (pattern,) = (p for p in ignores["per-file-ignores"] if p.startswith("!"))
    listed = set(pattern.removeprefix("!sparklog/{").removesuffix("}.py").split(","))
    modules = {value.__module__ for value in api_examples.documented().values()}
    paths = {module.replace(".", "/").removeprefix("sparklog/") for module in modules}
    assert {path for path in paths if (ROOT / f"sparklog/{path}.py").is_file()} <= listed


@pytest.mark.parametrize("name", api_examples.cases(spark=False))
def test_the_examples_run(name: str, tmp_path: Path) -> None:
    for n, test in enumerate(api_examples.tests_of(api_examples.documented()[name])):
        place = tmp_path / str(n)
        place.mkdir()
        with api_examples.directory(place):
            api_examples.write_flights()
            api_examples.run(test)


def test_an_example_that_prints_something_else_fails(tmp_path: Path) -> None:
    def example() -> None:
        """Count.

        >>> len(log.topics())
        7
        """

    with api_examples.directory(tmp_path):
        api_examples.write_flights()
        with pytest.raises(AssertionError, match="Got:\n    1"):
            api_examples.run(api_examples.example_of(example))
