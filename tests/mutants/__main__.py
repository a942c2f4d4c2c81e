"""Put each mutant into a copy of the tree, run its tests, and tell which one survives.

    python -m tests.mutants            all of them
    python -m tests.mutants NAME ...   those whose names contain one of the words
    python -m tests.mutants --quick    without the look at the tree as it is

The tests run on the tree as it is first: one that fails without a bug catches nothing. Fails if a
mutant survives, no longer applies, or breaks the module instead of its behaviour. The checkout
itself is never touched. SPARKLOG_TEST_DEPTH is that of the environment (small).
"""

import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue

from tests.mutants import MUTANTS, Mutant
from tests.paths import ROOT

COPIED = (
    "sparklog", "tests", "docs", "examples", "docker", "scripts", "pyproject.toml", "README.md",
    "Makefile", "CHANGELOG.md", "CONTRIBUTING.md", "mkdocs.yml", "pyspark_sparklog.py",
    "pytest_sparklog.py",
)  # fmt: skip
PROCESSES = int(os.environ.get("TEST_PROCESSES") or 2)
TIMEOUT_S = 300
CAUGHT, SURVIVED = 1, 0  # pytest's exit codes


@dataclass(frozen=True, slots=True)
class Verdict:
    """What became of a mutant; `how`: the test that caught it, or what else happened."""

    mutant: Mutant
    caught: bool
    how: str
    seconds: float


def copied(target: Path) -> Path:
    """Copy what tests need to `target`."""
    for name in COPIED:
        source = ROOT / name
        if source.is_dir():
            ignored = shutil.ignore_patterns("__pycache__", "*.c", ".hypothesis")
            shutil.copytree(source, target / name, ignore=ignored)
        elif source.exists():
            shutil.copy(source, target / name)
    return target


def run(
    tree: Path, tests: Iterable[str], *, timeout_s: int | None = None
) -> subprocess.CompletedProcess[str]:
    """Run tests of a tree, until the first that fails."""
    words = ("-x", "-q", "-n0", "-p", "no:cacheprovider", "--tb=line", "--timeout", "120")
    with subprocess.Popen(
        [sys.executable, "-m", "pytest", *words, f"--basetemp={tree}/tmp", *tests],
        cwd=tree, env={**os.environ, "PYTHONPATH": str(tree)}, stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
    ) as process:  # fmt: skip
        try:
            said = process.communicate(timeout=timeout_s)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)  # with the servers that tests started
        return subprocess.CompletedProcess(process.args, process.returncode, *said)


def judge(tree: Path, mutant: Mutant) -> Verdict:
    """Put one bug into `tree`, and take it out again."""
    file = tree / mutant.file
    text, began = "", time.monotonic()
    try:
        text = file.read_text()
        file.write_text(mutant.applied(text))
        done = run(tree, mutant.tests, timeout_s=TIMEOUT_S)
        caught = done.returncode == CAUGHT and "found no collectors" not in done.stdout
        how = _failed(done.stdout) if caught else _why_not(done)
    except (ValueError, OSError) as error:
        caught, how = False, str(error)
    except subprocess.TimeoutExpired:
        caught, how = False, f"more than {TIMEOUT_S} s: name quicker tests"
    finally:
        if text:
            file.write_text(text)
    return Verdict(mutant, caught, how, time.monotonic() - began)


def _failed(said: str) -> str:
    found = re.search(r"^(?:FAILED|ERROR) (\S+)", said, re.MULTILINE)
    return found[1].removeprefix("tests/") if found else "a test failed"


def _why_not(done: subprocess.CompletedProcess[str]) -> str:
    if done.returncode == SURVIVED:
        return "SURVIVED: add a test that catches it"
    last = (done.stdout + done.stderr).strip().splitlines()[-3:]
    return f"pytest ended with {done.returncode}: {' / '.join(last)}"


def chosen(words: Sequence[str]) -> list[Mutant]:
    """Return the mutants that the words name; all of them for none."""
    return [m for m in MUTANTS if not words or any(word in m.name for word in words)]


def main(words: Sequence[str]) -> int:
    is_quick = "--quick" in words
    words = [word for word in words if word != "--quick"]
    mutants = chosen(words)
    if not mutants:
        print(f"no mutant's name contains {' or '.join(words)}")
        return 2
    with tempfile.TemporaryDirectory(prefix="sparklog-mutants-") as home:
        trees: SimpleQueue[Path] = SimpleQueue()
        for number in range(PROCESSES):
            trees.put(copied(Path(home) / str(number)))

        def whole(tests: Sequence[str]) -> str:
            tree = trees.get()
            done = run(tree, tests)
            trees.put(tree)
            return "" if done.returncode == 0 else done.stdout[-3000:] + done.stderr[-1000:]

        def one(mutant: Mutant) -> Verdict:
            tree = trees.get()
            try:
                found = judge(tree, mutant)
            finally:
                trees.put(tree)
            mark = "caught  " if found.caught else "NOT CAUGHT"
            print(f"{mark} {mutant.name:36} {found.seconds:6.1f} s  {found.how}", flush=True)
            return found

        needed = [] if is_quick else sorted({test for mutant in mutants for test in mutant.tests})
        with ThreadPoolExecutor(PROCESSES) as pool:
            parts = [needed[n::PROCESSES] for n in range(PROCESSES)]
            wrong = [said for said in pool.map(whole, filter(None, parts)) if said]
            if wrong:
                print(*wrong, "these tests fail without any bug: mend them first", sep="\n")
                return 2
            verdicts = list(pool.map(one, mutants))
    return report(verdicts)


def report(verdicts: Sequence[Verdict]) -> int:
    """Print how many bugs of each part were caught; return the exit code."""
    parts: dict[str, list[Verdict]] = {}
    for verdict in verdicts:
        parts.setdefault("/".join(verdict.mutant.file.split("/")[1:3]), []).append(verdict)
    print(f"\n{'part':32} {'bugs':>5} {'caught':>6} {'seconds':>8}")
    for part, found in sorted(parts.items()):
        seconds = sum(verdict.seconds for verdict in found)
        print(f"{part:32} {len(found):5} {sum(v.caught for v in found):6} {seconds:8.1f}")
    left = [verdict for verdict in verdicts if not verdict.caught]
    seconds = sum(verdict.seconds for verdict in verdicts)
    print(f"{'all':32} {len(verdicts):5} {len(verdicts) - len(left):6} {seconds:8.1f}")
    for verdict in left:
        print(f"NOT CAUGHT: {verdict.mutant.name} ({verdict.mutant.file}): {verdict.how}")
    return 1 if left else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
