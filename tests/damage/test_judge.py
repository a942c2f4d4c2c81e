"""The judge notices what a table must never accept: it is tried with actions that lie."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from tests.damage.actions import ACTIONS, append, without_waiting
from tests.damage.bucket import MemoryPlace, home
from tests.damage.damages import DAMAGES
from tests.damage.judge import Judge, Row
from tests.damage.model import Verdict
from tests.damage.promises import broken_promise


def judged(kind: str, damage: str, **changed: Callable[[str], object]) -> Row:
    made = home()
    lying = replace(made, actions=replace(ACTIONS, **changed))  # type: ignore[arg-type]
    files = next(DAMAGES[damage](made.files, each) for each in made.kinds if each.name == kind)
    assert files is not None
    with without_waiting():
        return Judge(lying).row(files)


def rules(row: Row, action: str) -> list[str]:
    return [rule for rule in row.broken if rule.startswith(f"{action}:")]


@pytest.mark.parametrize(
    ("action", "word"), [("verify", "ok"), ("status", "green")]
)  # fmt: skip
def test_good_verdicts_where_a_read_fails(action: str, word: str) -> None:
    row = judged("segment", "flipped", **{action: lambda path: Verdict(word)})
    assert rules(row, action) == [f"{action}: {word}, and a read is fails"]


def test_rows_that_are_missing_without_an_error() -> None:
    row = judged("group", "missing")
    assert row.words["read"] == "wrong"
    assert rules(row, "read") == ["read: wrong, and no error"]


def test_a_repair_that_makes_it_worse() -> None:
    def destroys(path: str) -> Verdict:
        place = MemoryPlace(path)
        files = {name: data for name, data in place.files().items() if "t-0" not in name}
        place.remove()
        place.put(files)
        return Verdict("ok")

    row = judged("endpoint", "missing", repair=destroys)
    assert any("makes it worse: t-0 was right and is fails" in rule for rule in row.broken)


def test_an_append_that_nobody_sees() -> None:
    row = judged("endpoint", "missing", append=lambda path: {"t-0": (b"appended",)})
    assert "write: acknowledged, and a read is wrong then" in row.broken
    assert rules(judged("endpoint", "missing", append=append), "write") == []


def test_bare_errors_and_errors_without_advice() -> None:
    def raises(error: Exception) -> Callable[[str], Verdict]:
        def run(path: str) -> Verdict:
            raise error

        return run

    row = judged("endpoint", "missing", round=raises(KeyError("x")))
    assert rules(row, "round") == ["round: a bare error, KeyError"]


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("verify PATH", None),
        ("verify PATH --leave_remote", "is refused as wrong use"),
        ("no-such-command PATH", "is refused as wrong use"),
        ("delete-records PATH --offset t:0:2", "makes it worse"),
    ],
)
def test_quoted_commands_are_run(words: str, told: str | None) -> None:
    made = home()
    with made.lay_out(made.files) as place:
        truth = ACTIONS.read(place.path)
        found = broken_promise(words, place, ACTIONS, truth)
    assert found is None if told is None else found is not None and told in found
