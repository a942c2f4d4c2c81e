"""The list of seeded bugs fits the source: `make test-mutants` then runs them."""

import ast
from collections import Counter

import pytest

from tests.mutants import MUTANTS, Mutant
from tests.paths import ROOT


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_it_applies(mutant: Mutant) -> None:
    """Once, to code that is still Python; where the source has moved on, move `old` along."""
    text = (ROOT / mutant.file).read_text()
    changed = mutant.applied(text)
    assert ast.dump(ast.parse(changed)) != ast.dump(ast.parse(text))
    for test in mutant.tests:
        assert (ROOT / test.partition("::")[0]).exists(), test


def test_each_has_a_name_of_its_own() -> None:
    assert [name for name, n in Counter(m.name for m in MUTANTS).items() if n > 1] == []
