"""Every piece of advice that a message gives has a test that executes it."""

from __future__ import annotations

import pytest

from tests.advice.scan import advice, advice_in
from tests.advice.table import CANNOT, NO_ADVICE, TABLE, UNTESTED, is_test, read

STILL_UNTESTED = 0
"""How many entries say `untested`. Lower this number when you add a test; it never rises."""

NAME = TABLE.relative_to(TABLE.parents[2])


def test_every_advice_has_an_entry() -> None:
    missing = [
        f"{', '.join(places)}:\n{clause}"
        for clause, places in advice().items()
        if clause not in read()
    ]
    assert not missing, (
        f"{NAME} lacks this advice. Write a test that does what the message says and checks what"
        " it promises, and add the advice with the name of that test below it (four spaces,"
        f" tests/FILE.py::test_NAME):\n" + "\n".join(missing)
    )


def test_no_entry_is_stale() -> None:
    stale = [clause for clause in read() if clause not in advice()]
    assert not stale, f"no message gives this advice: remove it from {NAME}, or correct it:\n" + (
        "\n".join(stale)
    )


def test_every_entry_names_tests_or_a_reason() -> None:
    wrong = []
    for clause, lines in read().items():
        if not lines:
            wrong.append(f"{clause}: nothing stands below it")
        is_word = lines in ([UNTESTED], [NO_ADVICE]) or (
            len(lines) == 1 and len(lines[0]) > len(CANNOT) and lines[0].startswith(CANNOT)
        )
        wrong += (
            []
            if is_word
            else [f"{line} is no test: {clause}" for line in lines if not is_test(line)]
        )
    assert not wrong, f"correct {NAME}:\n" + "\n".join(wrong)


def test_fewer_and_fewer_are_untested() -> None:
    untested = [clause for clause, lines in read().items() if lines == [UNTESTED]]
    assert len(untested) <= STILL_UNTESTED, (
        f"{len(untested)} entries of {NAME} say {UNTESTED}, {STILL_UNTESTED} at most may: write the"
        " tests of the new ones instead"
    )


def test_entries_are_sorted() -> None:
    assert list(read()) == sorted(read())


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("x.log ends early; restore it from a copy", ["restore it from a copy"]),
        ("it is damaged. Restore the file from a copy", ["Restore the file from a copy"]),
        ("with the query stopped, move it back", ["with the query stopped, move it back"]),
        ("no such topic (create it first)", ["no such topic (create it first"]),
        ("{} is damaged: `sparklog verify {}` says why", ["`sparklog verify {}` says why"]),
        ("sparklog has no share groups", []),
        ("Delete the records before an offset.", []),
        ("log start offset", []),
    ],
)
def test_advice_is_recognized(text: str, found: list[str]) -> None:
    assert [words.rstrip(")") for words in advice_in(text)] == found
