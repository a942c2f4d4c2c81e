"""The tests marked `slow`: runs them, and records in the repository what came of it.

    python -m tests.slow_tests [-n PROCESSES] [FILE ...]    `make test-all`

Each file has a pytest process of its own, at the counts of CI's depth. When one ends, its results
replace those of the same file in slow_tests.json, and docs/slow-tests.md is written from it. A
single file can therefore be repeated, for example after a foreign server timed out; date, commit
and machine are recorded per file. tests/test_slow_tests.py compares the record with the tests and
with docs/promises.md.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import platform
import re
import subprocess
import sys
import threading
import xml.etree.ElementTree as ElementTree
from collections import Counter
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

from tests.paths import ROOT

RECORD: Final = ROOT / "tests" / "slow_tests.json"
PAGE: Final = ROOT / "docs" / "slow-tests.md"
_OWN: Final = (RECORD, PAGE)
_MARK: Final = "mark.slow"
TEST_SECONDS_MAX: Final = 3600
_NO_TESTS: Final = 5  # pytest's exit code
_INTRO: Final = """\
<!-- Made from tests/slow_tests.json: python -m tests.reference; tests/test_docs.py checks it. -->
# Record of the slow tests

CI runs all tests except those marked `slow`, which take minutes each. `make test-all` runs these
and records their results here: for each file the day, the commit and the machine of its last run.
A test of the small suite fails if [promises.md](promises.md) names a proof with slow tests that is
not recorded here as passed, if a slow test is missing, or if one failed.

`make test DEPTH=all` is not part of this record. It runs the whole suite with thousands of seeds,
which takes a night.
"""

Results = dict[str, Any]
Record = dict[str, Results]


def load() -> Record:
    """Return the record: results by file."""
    return json.loads(RECORD.read_text()) if RECORD.exists() else {}  # type: ignore[no-any-return]


def slow_tests() -> dict[str, set[str]]:
    """Return the files with slow tests, each with the names of those whose mark is seen there.

    A mark in the parameters of a conftest's fixture makes slow tests of the files that use it.
    """
    files = {}
    for path in sorted((ROOT / "tests").rglob("*.py")):
        text = path.read_text()
        if _MARK not in text:
            continue
        if path.name.startswith("test_"):
            files[_name_of(path)] = set(_marked(text))
        elif path.name == "conftest.py":
            for fixture in _marked(text):
                for user in path.parent.rglob("test_*.py"):
                    if re.search(rf"def test_\w+\([^)]*\b{fixture}\b", user.read_text()):
                        files.setdefault(_name_of(user), set())
    return files


def _marked(text: str) -> Iterator[str]:
    """Names of the functions of a module with the mark: by a decorator, or by `pytestmark`.

    The decorator may name a list of parameters in which the mark is.
    """
    module = ast.parse(text)
    marks = {
        ast.unparse(target)
        for node in module.body
        if isinstance(node, ast.Assign | ast.AnnAssign) and _MARK in ast.unparse(node)
        for target in (node.targets if isinstance(node, ast.Assign) else [node.target])
    }
    marked = re.compile("|".join([re.escape(_MARK), *(rf"\b{name}\b" for name in marks)]))
    for node in ast.walk(module):
        if isinstance(node, ast.FunctionDef):
            decorated = any(marked.search(ast.unparse(each)) for each in node.decorator_list)
            if decorated or ("pytestmark" in marks and node.name.startswith("test_")):
                yield node.name


def _name_of(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def proofs(page: str) -> dict[str, list[str]]:
    """Return the proofs that docs/promises.md names, each with its test files."""
    named = re.findall(r"`(tests/[\w./*]+)`", page)
    return {
        name: [
            _name_of(file)
            for path in ROOT.glob(name)
            for file in (path.rglob("test_*.py") if path.is_dir() else [path])
        ]
        for name in named
    }


def faults(record: Record, slow: Mapping[str, set[str]], page: str) -> list[str]:
    """Return what the record lacks of the slow tests, and of the proofs that the page names."""
    wrong = []
    for file, names in slow.items():
        if file not in record:
            wrong.append(f"{file}: not recorded")
            continue
        results = record[file]
        wrong += [f"{file}::{name} failed" for name in results["failed"]]
        wrong += [f"{file}::{name}: not recorded" for name in names - set(results["tests"])]
    wrong += [f"{file}: recorded, but has no slow tests" for file in record.keys() - slow.keys()]
    limits = page.partition("## Limits")[2]
    for proof, files in proofs(page).items():
        wrong += [
            f"{proof}: {file} was only skipped, which the page's Limits don't say"
            for file in files
            if file in record and not record[file]["passed"] and file not in limits
        ]
    return wrong


def results_of(junit: Path) -> Results:
    """Return the results in a JUnit file of pytest's: names of tests, counts, reasons of skips."""
    names, failed, passed = set(), set(), 0
    skipped: Counter[str] = Counter()
    for case in ElementTree.parse(junit).iter("testcase"):
        name = case.get("name", "")
        names.add(name.partition("[")[0])
        if case.find("failure") is not None or case.find("error") is not None:
            failed.add(name)
        elif (skip := case.find("skipped")) is not None:
            skipped[skip.get("message", "")] += 1
        else:
            passed += 1
    return {
        "passed": passed,
        "failed": sorted(failed),
        "skipped": dict(sorted(skipped.items())),
        "tests": sorted(names),
    }


def machine() -> str:
    """Return the cores and versions that a run depends on."""
    pom = (ROOT / "tests/oracle/pom.xml").read_text()
    kafka = re.search(r"<artifactId>kafka_[^<]*</artifactId>\s*<version>([\d.]+)<", pom)
    return (
        f"{os.cpu_count()} cores, Python {platform.python_version()}, "
        f"PySpark {version('pyspark')}, Kafka {kafka[1] if kafka else '?'}"
    )


def write(record: Record) -> None:
    """Write the record and its page."""
    RECORD.write_text(json.dumps(dict(sorted(record.items())), indent=1) + "\n")
    PAGE.write_text(page_of(record))


def page_of(record: Record) -> str:
    """Return docs/slow-tests.md."""
    rows, reasons = [], []
    for file, results in sorted(record.items()):
        skipped = sum(results["skipped"].values())
        reasons += [f"- `{file}`, {n}: {why}\n" for why, n in results["skipped"].items()]
        rows.append(
            f"| `{file}` | {results['passed']} | {len(results['failed'])} | {skipped} "
            f"| {results['seconds']} | {results['date']} | `{results['commit']}` "
            f"| {results['machine']} |\n"
        )
    table = (
        "\n| tests | passed | failed | skipped | seconds | date | commit | machine |\n"
        "|--|--:|--:|--:|--:|--|--|--|\n"
    )
    missing = "".join(f"- `{file}`\n" for file in sorted(slow_tests().keys() - record.keys()))
    gaps = f"\nNot recorded yet, so the record is not complete:\n\n{missing}" if missing else ""
    skips = "\nSkipped, and why:\n\n" + "".join(reasons) if reasons else ""
    return _INTRO + table + "".join(rows) + gaps + skips


def _git(*arguments: str) -> str:
    done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=True)
    return done.stdout.strip()


def run(file: str) -> Results | None:
    """Run the slow tests of a file; return their results. None: pytest itself failed."""
    junit = ROOT / "build" / "slow" / (file.replace("/", "-") + ".xml")
    junit.unlink(missing_ok=True)
    junit.parent.mkdir(parents=True, exist_ok=True)
    command = [
        sys.executable, "-m", "pytest", "-q", "-m", "slow", "-p", "no:cacheprovider",
        "--timeout", str(TEST_SECONDS_MAX), "--junitxml", str(junit), file,
    ]  # fmt: skip
    environment = {**os.environ, "SPARKLOG_TEST_DEPTH": "ci", "PYTHONHASHSEED": "0"}
    begin = datetime.now(UTC)
    output = junit.with_suffix(".out")
    with output.open("w") as out:
        code = subprocess.call(command, cwd=ROOT, env=environment, stdout=out, stderr=out)
    if code not in (0, 1) or not junit.exists():
        print(f"{file}: pytest ended with {code}: {output}", flush=True)
        return None
    results = results_of(junit)
    seconds = round((datetime.now(UTC) - begin).total_seconds())
    skipped = sum(results["skipped"].values())
    print(
        f"{file}: {results['passed']} passed, {len(results['failed'])} failed, "
        f"{skipped} skipped in {seconds} s",
        flush=True,
    )
    if results["failed"]:
        print(output.read_text(), flush=True)
    return {"date": f"{begin:%Y-%m-%d}", "seconds": seconds, "machine": machine(), **results}


def main() -> int:
    """Run the files of the command line, or all with slow tests, those that take longest first."""
    parser = argparse.ArgumentParser(prog="python -m tests.slow_tests", description=__doc__)
    parser.add_argument("-n", type=int, default=2, metavar="PROCESSES")
    parser.add_argument("files", nargs="*")
    given = parser.parse_args()
    if _git("status", "--porcelain", "--", ".", *(f":!{_name_of(path)}" for path in _OWN)):
        parser.error("commit first: the record names the commit of which the tests ran")
    commit = _git("rev-parse", "--short=12", "HEAD")
    last = load()
    files = given.files or list(slow_tests())
    files.sort(key=lambda file: -last.get(file, {"seconds": 0})["seconds"])
    lock = threading.Lock()

    def run_and_record(file: str) -> bool:
        results = run(file)
        if results is None:
            return False
        with lock:
            write({**load(), file: {"commit": commit, **results}})
        return not results["failed"]

    with ThreadPoolExecutor(given.n) as pool:
        passed = list(pool.map(run_and_record, files))
    return 0 if all(passed) else 1


if __name__ == "__main__":
    sys.exit(main())
