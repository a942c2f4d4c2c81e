"""Every public class and function has an example, which runs as its docstring shows it.

Examples that use Spark run in tests/spark/test_api_examples.py.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests import api_examples


@pytest.mark.parametrize("name", api_examples.documented())
def test_an_export_has_an_example(name: str) -> None:
    assert api_examples.example_of(api_examples.documented()[name]).examples


@pytest.mark.parametrize("name", api_examples.documented())
def test_every_part_of_an_export_is_documented(name: str) -> None:
    assert api_examples.undocumented(api_examples.documented()[name]) == []


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
