"""The tests of a table: its rows are those that the home has, and each is as the table says."""

from collections.abc import Iterator

from tests.damage.actions import without_waiting
from tests.damage.damages import DAMAGES, damaged
from tests.damage.judge import Judge
from tests.damage.model import Files, Home, Kind
from tests.damage.table import differences, expected_of, read_table
from tests.depth import DAMAGES_EVERY


def kinds_in(home: str) -> list[str]:
    """Return the kinds of a home's table, for the names of its tests."""
    return list(dict.fromkeys(kind for kind, _ in read_table(home)))


def rows_of(home: Home) -> Iterator[tuple[Kind, str, Files]]:
    """Yield (kind, damage, the damaged files) of all rows."""
    for kind in home.kinds:
        for name in DAMAGES:
            files = damaged(home.files, kind, name)
            if files is not None:
                yield kind, name, files


def check_names(home: Home) -> None:
    """Check that every file has a kind, and that the table has exactly the rows of the kinds."""
    assert [(kind.name, damage) for kind, damage, _ in rows_of(home)] == list(read_table(home.name))


def check_undamaged(home: Home) -> None:
    """Check that nothing is wrong with the log that is damaged."""
    with without_waiting():
        row = Judge(home).row(home.files)
    assert (row.words["read"], row.words["verify"], row.broken) == ("right", "ok", set()), row


def check_kind(home: Home, name: str) -> None:
    """Judge the damages of one kind of file, or those that this depth takes of them."""
    table, told = read_table(home.name), []
    with without_waiting():
        judge = Judge(home)
        for at, (kind, damage, files) in enumerate(rows_of(home)):
            if kind.name == name and at % DAMAGES_EVERY == 0:
                row = judge.row(files, kind, damage)
                wrong = differences(expected_of(row), table.get((name, damage)))
                told += [f"{name} | {damage}: {what}" for what in wrong]
                told += [f"    {action}: {text}" for action, text in row.texts.items() if wrong]
    again = f"if that is as it should be: python -m tests.damage {home.name} --write"
    assert not told, "\n".join([*told, again])
