"""Where the suite's time goes: writes the table in tests/README.md out of pytest's JUnit files.

    python -m tests.durations                           after `make test` and `make test DEPTH=ci`
    python -m tests.durations small=A.xml ci=B.xml      out of other files
    python -m tests.durations --slowest 40 [small=A.xml]

`make test` leaves build/junit-DEPTH.xml. Seconds are of tests with their fixtures, summed over the
processes: with two of them the suite takes about half. A column without a file stays as it is.
"""

import argparse
import re
import sys
import xml.etree.ElementTree as ElementTree
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from tests.paths import ROOT

PAGE: Final = ROOT / "tests/README.md"
COLUMNS: Final = ("small", "ci")
BEGIN, END = "<!-- durations: python -m tests.durations -->\n", "<!-- end of durations -->\n"
FILE_SECONDS_MIN: Final = 8.0  # files that take longer, at any depth, have a line of their own
Row = tuple[float, str, str]  # seconds, file, test


def tests_of(junit: Path) -> list[Row]:
    """Return the tests of a JUnit file: seconds with set-up, file below tests/, name."""
    rows = []
    for case in ElementTree.parse(junit).iter("testcase"):
        words = case.get("classname", "").split(".")
        while words and words[-1][:1].isupper():  # a class of tests
            words.pop()
        file = "/".join(words[1:]) + ".py"
        rows.append((float(case.get("time", 0)), file, case.get("name", "")))
    return rows


def by_place(rows: list[Row]) -> Counter[str]:
    """Seconds by folder (of the first level) and by file."""
    seconds: Counter[str] = Counter()
    for took, file, _ in rows:
        folder = file.partition("/")[0] + "/" if "/" in file else "(root)"
        for place in {folder, file, "all"}:
            seconds[place] += took
    return seconds


def table(columns: Mapping[str, Mapping[str, float]], known: Mapping[str, list[str]]) -> str:
    """Return the table: folders by name, below each the files that take long."""
    seconds = {place for column in columns.values() for place in column}
    noted = {
        place
        for place in seconds
        if not place.endswith(".py")
        or any(column.get(place, 0) >= FILE_SECONDS_MIN for column in columns.values())
    }
    lines = [
        f"| tests | {' | '.join(f'{c}, s' for c in COLUMNS)} |",
        "|--|" + "--:|" * len(COLUMNS),
    ]
    for place in [*sorted(noted - {"all"}), "all"]:
        cells = []
        for number, column in enumerate(COLUMNS):
            if column in columns:
                cells.append(f"{columns[column].get(place, 0):.0f}")
            else:
                cells.append(known.get(place, ["", ""])[number])
        inner = place.endswith(".py") and "/" in place
        name = f"- {place.partition('/')[2]}" if inner else place
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def known_cells(page: str) -> dict[str, list[str]]:
    """Return the cells of the table that stands there, by place."""
    found: dict[str, list[str]] = {}
    folder = ""
    for name, *cells in re.findall(r"^\| (\S.*?) \| (\S*) \| (\S*) \|$", page, re.MULTILINE):
        folder = folder if name.startswith("- ") else name
        found[folder + name[2:] if name.startswith("- ") else name] = cells
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("files", nargs="*", metavar="DEPTH=FILE")
    parser.add_argument("--slowest", type=int, default=0, help="list the slowest tests instead")
    given = parser.parse_args()
    files = {depth: ROOT / f"build/junit-{depth}.xml" for depth in COLUMNS}
    if given.files:
        files = {depth: Path(file) for depth, _, file in (f.partition("=") for f in given.files)}
    files = {depth: file for depth, file in files.items() if file.exists()}
    if not files:
        print("no JUnit file: run make test first", file=sys.stderr)
        return 2
    if given.slowest:
        for depth, file in files.items():
            print(depth)
            for took, where, name in sorted(tests_of(file), reverse=True)[: given.slowest]:
                print(f"{took:8.1f} s  {where}::{name}")
        return 0
    before, begin, rest = PAGE.read_text().partition(BEGIN)
    old, end, after = rest.partition(END)
    columns = {depth: by_place(tests_of(file)) for depth, file in files.items()}
    PAGE.write_text(before + begin + table(columns, known_cells(old)) + end + after)
    return 0


if __name__ == "__main__":
    sys.exit(main())
