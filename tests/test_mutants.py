"""The list of seeded bugs fits the source: `make test-mutants` then runs them."""

import ast
from collections import Counter
from functools import lru_cache

import pytest

from tests.depth import LEFT_OUT_OF_SMALL
from tests.mutants import MUTANTS, Mutant
from tests.paths import ROOT


def test_each_applies_to_the_source() -> None:
    """Each changes the code in exactly one place, and the result is still Python."""
    faults = [f"{m.name}: {fault}" for m in MUTANTS for fault in _faults(m)]
    assert faults == [], "where the source has moved on, change the mutant"


def _faults(mutant: Mutant) -> list[str]:
    text = (ROOT / mutant.file).read_text()
    faults = [
        f"{test} does not exist"
        for test in mutant.tests
        if not (ROOT / test.partition("::")[0]).exists()
    ]
    try:
        changed = mutant.applied(text)
        if mutant.file.endswith(".py") and ast.dump(ast.parse(changed)) == _dump(text):
            faults.append("changes no code")
    except (ValueError, SyntaxError) as fault:
        faults.append(str(fault))
    return faults


@lru_cache
def _dump(text: str) -> str:
    return ast.dump(ast.parse(text))


def test_each_has_a_name_of_its_own() -> None:
    assert [name for name, n in Counter(m.name for m in MUTANTS).items() if n > 1] == []


def test_the_small_suite_has_their_tests(request: pytest.FixtureRequest) -> None:
    """Where the whole suite is collected, at any depth: none of what a mutant names is `deep`."""
    items = request.session.items
    small = {
        item.nodeid
        for item in items
        if not any(item.get_closest_marker(mark) for mark in LEFT_OUT_OF_SMALL)
    }
    collected = {item.nodeid.partition("::")[0] for item in items}
    starts = {part for node in small for part in _parts(node)}
    named = {test for mutant in MUTANTS for test in mutant.tests}
    assert {t for t in named if t.partition("::")[0] in collected and t not in starts} == set()


def _parts(node: str) -> list[str]:
    """A test's names: with its parameters, without, its class's and its file's."""
    words = node.partition("[")[0].split("::")
    return [node, *("::".join(words[:n]) for n in range(1, len(words) + 1))]
