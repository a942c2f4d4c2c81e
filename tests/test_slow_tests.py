"""The record of the slow tests: it has each of them, and what docs/promises.md calls a proof."""

from pathlib import Path
from typing import Any

import pytest

from tests import slow_tests
from tests.paths import ROOT

PROMISES = (ROOT / "docs/promises.md").read_text()
KILLS = "tests/spark/test_applications.py"


def test_each_slow_test_and_each_proof_is_recorded_as_passed() -> None:
    slow = slow_tests.slow_tests()
    assert len(slow) > 20
    assert slow_tests.faults(slow_tests.load(), slow, PROMISES) == [], (
        "run: make test-all SLOW_TESTS='FILE ...'"
    )


def test_each_proof_has_tests() -> None:
    proofs = slow_tests.proofs(PROMISES)
    assert len(proofs) > 15
    assert [name for name, files in proofs.items() if not files] == []


def results(**given: Any) -> slow_tests.Results:
    return {"passed": 2, "failed": [], "skipped": {}, "tests": ["test_kills"], **given}


@pytest.mark.parametrize(
    ("record", "fault"),
    [
        ({}, f"{KILLS}: not recorded"),
        ({KILLS: results(tests=[])}, f"{KILLS}::test_kills: not recorded"),
        ({KILLS: results(failed=["test_kills[1]"])}, f"{KILLS}::test_kills[1] failed"),
        (
            {KILLS: results(passed=0, skipped={"no JDK": 2})},
            f"{KILLS}: {KILLS} was only skipped, which the page's Limits don't say",
        ),
        (
            {KILLS: results(), "tests/test_gone.py": results()},
            "tests/test_gone.py: recorded, but has no slow tests",
        ),
    ],
)
def test_what_the_record_lacks_is_named(record: slow_tests.Record, fault: str) -> None:
    slow, page = {KILLS: {"test_kills"}}, f"| a promise | `{KILLS}` |\n\n## Limits\n\n"
    assert slow_tests.faults({KILLS: results()}, slow, page) == []
    assert slow_tests.faults(record, slow, page) == [fault]
    if "skipped" in fault:
        assert slow_tests.faults(record, slow, f"{page}`{KILLS}` was skipped.") == []


def test_results_are_those_of_pytests_file(tmp_path: Path) -> None:
    junit = tmp_path / "junit.xml"
    junit.write_text(
        '<testsuites><testsuite><testcase name="test_a[1]" /><testcase name="test_a[2]">'
        '<failure message="no" /></testcase><testcase name="test_b"><error message="no" />'
        '</testcase><testcase name="test_c[x]"><skipped message="no JDK" /></testcase>'
        "</testsuite></testsuites>"
    )
    assert slow_tests.results_of(junit) == {
        "passed": 1,
        "failed": ["test_a[2]", "test_b"],
        "skipped": {"no JDK": 1},
        "tests": ["test_a", "test_b", "test_c"],
    }


def test_marks_are_found_in_decorators_modules_and_fixtures() -> None:
    slow = slow_tests.slow_tests()
    assert "test_every_single_bit" in slow["tests/crash/test_corruption.py"]
    assert slow["tests/state/test_suites.py"] == {"test_suite"}  # by pytestmark
    assert "tests/kafka/clients/test_reading.py" in slow  # by the fixture golden_server
