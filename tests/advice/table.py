"""Reads `advice.txt`: each piece of advice, and indented below it the tests that execute it.

Instead of tests, an entry may hold one of these lines:

- `cannot: REASON`: nothing in a test can do it, for example because it needs another host
- `no advice`: the words only look like an imperative
- `untested`: a test is still missing; the number of these entries may only fall
"""

from __future__ import annotations

import ast
from functools import cache
from typing import Final

from tests.paths import ROOT

TABLE: Final = ROOT / "tests" / "advice" / "advice.txt"
UNTESTED: Final = "untested"
NO_ADVICE: Final = "no advice"
CANNOT: Final = "cannot: "


def read() -> dict[str, list[str]]:
    """Return {advice: the lines below it}."""
    found: dict[str, list[str]] = {}
    advice = ""
    for line in TABLE.read_text().splitlines():
        if not line.strip() or line.startswith("#"):
            continue
        if line.startswith("    "):
            found[advice].append(line.strip())
        else:
            advice = line
            assert advice not in found, f"{TABLE.name} has this advice twice: {advice}"
            found[advice] = []
    return found


def is_test(name: str) -> bool:
    """Return whether a test, such as tests/log/test_log.py::test_read, exists."""
    path, _, function = name.partition("::")
    return function in _functions(path)


@cache
def _functions(path: str) -> frozenset[str]:
    file = ROOT / path
    if not path.startswith("tests/") or not file.is_file():
        return frozenset()
    tree = ast.parse(file.read_text())
    return frozenset(
        node.name
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and node.name.startswith("test_")
    )
