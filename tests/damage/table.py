"""The expected verdicts of a home, as data: a line for each kind of file and damage.

    head entry | missing | ok | ok | wrong | ok | ok | nothing | green | ok
      ! read: wrong, and no error

The words stand in the order of `model.COLUMNS`. A line that begins with "!" is a rule that the row
above still breaks: known, and to be removed from the table once it is mended.
"""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from tests.damage.judge import Row
from tests.damage.model import COLUMNS

EXPECTED: Final = Path(__file__).parent / "expected"
_BROKEN: Final = "  ! "


@dataclass(slots=True)
class Expected:
    """One row as it should be: the words, and the rules that it is known to break."""

    words: dict[str, str]
    known: set[str] = field(default_factory=set)


Table = dict[tuple[str, str], Expected]


def expected_of(row: Row) -> Expected:
    """Return a row as the table has it."""
    return Expected(dict(row.words), set(row.broken))


def read_table(home: str) -> Table:
    """Return a home's table; empty if there is none yet."""
    table: Table = {}
    path = EXPECTED / f"{home}.txt"
    row: Expected | None = None
    for line in path.read_text().splitlines() if path.exists() else ():
        if line.startswith(_BROKEN):
            assert row is not None, line
            row.known.add(line.removeprefix(_BROKEN))
        elif line and not line.startswith("#"):
            kind, damage, *words = (word.strip() for word in line.split("|"))
            row = table[kind, damage] = Expected(dict(zip(COLUMNS, words, strict=True)))
    return table


def write_table(home: str, table: Table) -> None:
    """Write a home's table, in the order in which it is given."""
    rows = [(*key, *(row.words[name] for name in COLUMNS)) for key, row in table.items()]
    head = ("# kind", "damage", *COLUMNS)
    widths = [max(len(row[at]) for row in (head, *rows)) for at in range(len(head))]
    lines = []
    for row, known in zip((head, *rows), (set(), *(r.known for r in table.values())), strict=True):
        cells = (word.ljust(width) for word, width in zip(row, widths, strict=True))
        lines.append(" | ".join(cells).rstrip())
        lines += [f"{_BROKEN}{rule}" for rule in sorted(known)]
    EXPECTED.mkdir(exist_ok=True)
    (EXPECTED / f"{home}.txt").write_text("\n".join(lines) + "\n")


def differences(found: Expected, expected: Expected | None) -> list[str]:
    """Return what is not as the table says."""
    if expected is None:
        return ["the table has no such row"]
    told = [
        f"{name}: {found.words[name]}, the table says {expected.words[name]}"
        for name in COLUMNS
        if found.words[name] != expected.words[name]
    ]
    told += [f"breaks a rule: {rule}" for rule in sorted(found.known - expected.known)]
    told += [
        f"no longer breaks a rule, remove it from the table: {rule}"
        for rule in sorted(expected.known - found.known)
    ]
    return told
