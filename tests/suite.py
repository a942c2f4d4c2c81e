"""The suite as `make test` runs it; what failed in it is tried once more, alone.

    python -m tests.suite PYTEST'S ARGUMENTS

The second try has a process of its own and the machine for itself, so that it tells a fault from
what the other tests did to this one: their state, their load. Crash seeds and hypothesis' examples
are the same again. What needed it is named at the end, its first failure above: it is a fault all
the same, of the test or, where a process was killed at a random moment, perhaps of the code. A
night's run (`make test DEPTH=all`) has no second try and no time limit.
"""

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from tests import depth
from tests.paths import ROOT

TRIED_AGAIN_MAX: Final = 10  # more than that don't fail by chance
_FAILED: Final = ".pytest_cache/v/cache/lastfailed"  # pytest's own list, what --last-failed reads
_TESTS_FAILED: Final = 1  # pytest's exit code; others say that it was stopped, or didn't run


def run(arguments: Sequence[str], alone: Sequence[str] = (), root: Path = ROOT) -> int:
    """Run pytest in `root`, then once more what failed; return the exit code of the last run.

    The second run takes what stands in `alone`, and the failed tests, in place of `arguments`.
    """
    pytest = [sys.executable, "-m", "pytest"]
    code = subprocess.call([*pytest, "--cache-clear", *arguments], cwd=root)
    failed = _failed(root) if code == _TESTS_FAILED else []
    if not 0 < len(failed) <= TRIED_AGAIN_MAX:
        return code
    tests = "\n  ".join(failed)
    print(f"\nFailed, and tried once more, alone:\n  {tests}\n", flush=True)
    code = subprocess.call([*pytest, *alone, *failed], cwd=root)
    if code == 0:
        print(f"\nNeeded a second try, to be mended (failures above):\n  {tests}", flush=True)
    return code


def _failed(root: Path) -> list[str]:
    file = root / _FAILED
    return sorted(json.loads(file.read_text())) if file.exists() else []


def compile_tests(root: Path = ROOT) -> None:
    """Let one process write the bytecode of all tests, unless an earlier run has done so.

    Otherwise each process of a first run would rewrite the assertions of all tests: some 20 s of
    computing, four times at once.
    """
    if not any((root / "tests/__pycache__").glob("conftest.*-pytest-*.pyc")):
        collect = [sys.executable, "-m", "pytest", "--collect-only", "--quiet"]
        subprocess.call(collect, cwd=root, stdout=subprocess.DEVNULL)


def main() -> int:
    """Run the suite of this depth with the arguments of the command line."""
    if depth.DEPTH == "all":
        command = [sys.executable, "-m", "pytest", "--timeout", "0", *sys.argv[1:]]
        return subprocess.call(command, cwd=ROOT)
    if depth.DEPTH == "ci":  # the order of a set of strings, too, is the same each time
        os.environ.setdefault("PYTHONHASHSEED", "0")
    compile_tests()
    junit = ROOT / "build" / f"junit-{depth.DEPTH}-again.xml"
    return run(sys.argv[1:], alone=["-n", "0", "--junitxml", str(junit)])


if __name__ == "__main__":
    sys.exit(main())
