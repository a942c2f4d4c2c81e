"""Each place that implements a rule has a switch; see `places`."""

import pytest

from tests.diskless.model.places import DISKLESS, NO_SWITCH, RULES, places, table


def test_each_place_of_a_rule_has_a_switch() -> None:
    """Write a mutant of the line, and the test that catches it; or say why none is needed."""
    found = list(places())
    assert {place.rule.name for place in found} == {rule.name for rule in RULES}
    assert [f"{p.rule.name}: {p.file}:{p.number} {p.text}" for p in found if not p.mutants] == []
    assert "NO SWITCH" not in table()


@pytest.mark.parametrize("line", NO_SWITCH)
def test_lines_without_a_switch_are_there(line: str) -> None:
    texts = [file.read_text() for file in DISKLESS.glob("*.py")]
    assert any(line == each.strip() for text in texts for each in text.splitlines())
